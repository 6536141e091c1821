//! The process that reads one log by Darshan's library, and dies alone when the library does.

use super::counters::{Counters, FILES_MAX, FileCounters, LogSummary, ModuleInfo, Record as CounterRecord};
use super::dxt::{self, Decoder, Format, Item};
use super::library::{Library, Log, Module};
use super::{reconstruct, sandbox, swapped};
use crate::error::{Result, TraceError};
use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use crate::stream::{Info, Source};
use crate::wtrace::Writer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};

/// What is asked of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A [`LogSummary`] as JSON.
    Summary,
    /// The operations of the DXT modules as `.wtrace`.
    Dxt,
    /// A likely course of events made from counters, as `.wtrace`.
    Reconstruct,
}

impl Mode {
    /// As it stands on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Dxt => "dxt",
            Self::Reconstruct => "reconstruct",
        }
    }

    /// From a command line.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Summary, Self::Dxt, Self::Reconstruct].into_iter().find(|mode| mode.name() == name)
    }
}

/// How the process says on standard error what went wrong; a line of JSON after this.
pub(super) const PREFIX: &str = "weft-darshan: ";

/// How the process says on standard error which part of its sandbox the kernel does not have; a sentence after this.
pub(super) const NOTICE: &str = "weft-darshan-notice: ";

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    NoLibrary { tried: String },
    NoDxt { modules: String },
    Other(String),
}

/// Reads `path` and writes what `mode` asks for to standard output; the code to end with. Errors go to standard error
/// in a form that the parent understands.
pub fn serve(mode: Mode, path: &Path) -> u8 {
    // A damaged log must not bring the machine down with it.
    let log = sandbox::Log::at(path).map_err(|error| TraceError::io(path, error));
    let done = log.and_then(|log| {
        limit(path)?;
        match mode {
            Mode::Summary => summary(path, &log),
            Mode::Dxt => operations(path, &log),
            Mode::Reconstruct => reconstructed(path, &log),
        }
    });
    let refusal = match done {
        Ok(()) => return 0,
        Err(TraceError::NoLibrary { tried, .. }) => Refusal::NoLibrary { tried },
        Err(TraceError::NoDxt { modules, .. }) => Refusal::NoDxt { modules },
        Err(TraceError::Darshan { what, .. } | TraceError::Unfit { what, .. }) => Refusal::Other(what),
        Err(TraceError::Io { error, .. }) => Refusal::Other(error.to_string()),
        Err(other) => Refusal::Other(other.to_string()),
    };
    eprintln!("\n{PREFIX}{}", serde_json::to_string(&refusal).expect("plain data becomes JSON"));
    1
}

/// Darshan's library, loaded. From here on the process is confined to the log.
fn library(log: &sandbox::Log) -> Result<Library> {
    let library = Library::find()?;
    for missing in sandbox::enter(log) {
        eprintln!("{NOTICE}{missing}");
    }
    Ok(library)
}

fn limit(path: &Path) -> Result<()> {
    let len = std::fs::metadata(path).map_err(|error| TraceError::io(path, error))?.len();
    for (resource, limit) in [
        // Names and one record at a time; names compress.
        (libc::RLIMIT_AS, (4 << 30) + len.saturating_mul(64)),
        // Seconds: what is read and written runs at tens of MB/s of the log.
        (libc::RLIMIT_CPU, 60 + len / (1 << 20)),
        (libc::RLIMIT_CORE, 0),
        // Standard error is a file.
        (libc::RLIMIT_FSIZE, 1 << 20),
    ] {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: a valid limit; failing to lower one leaves the one before.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
    Ok(())
}

/// An open log with what all modes need of it.
struct Reading<'a> {
    library: &'a Library,
    path: &'a Path,
    /// Where to open it.
    opened: &'a Path,
    swapped: bool,
    modules: Vec<Module>,
    summary: LogSummary,
}

impl<'a> Reading<'a> {
    fn open(library: &'a Library, path: &'a Path, opened: &'a Path) -> Result<Self> {
        let mut begin = Vec::new();
        let file = std::fs::File::open(opened).map_err(|error| TraceError::io(path, error))?;
        file.take(16).read_to_end(&mut begin).map_err(|error| TraceError::io(path, error))?;
        let swapped = swapped(&begin).ok_or_else(|| refused(path, "no log of Darshan 3"))?;
        let log = library.open(opened).ok_or_else(|| refused(path, "the library refuses it"))?;
        let job = log.job().ok_or_else(|| refused(path, "the job's description cannot be read"))?;
        let program = log.program().unwrap_or_default();
        let modules = log.modules();
        let seconds = (job.end_time_sec as f64 - job.start_time_sec as f64)
            + (job.end_time_nsec as f64 - job.start_time_nsec as f64) / 1e9;
        let began = i128::from(job.start_time_sec) * 1_000_000_000 + i128::from(job.start_time_nsec);
        let info = |module: &Module| ModuleInfo {
            name: module.name.clone(),
            version: module.version,
            partial: module.partial,
        };
        let summary = LogSummary {
            library: library.version.clone(),
            library_path: library.path.clone(),
            program,
            processes: u32::try_from(job.nprocs).unwrap_or(0),
            began_unix_ns: u64::try_from(began).unwrap_or(0),
            seconds: seconds.max(0.0),
            modules: modules.iter().map(info).collect(),
            counters: Vec::new(),
        };
        Ok(Self { library, path, opened, swapped, modules, summary })
    }

    /// A descriptor of its own for each module: the library keeps the state of its decompression when a module is
    /// left before its end.
    fn log(&self) -> Result<Log<'_>> {
        self.library.open(self.opened).ok_or_else(|| refused(self.path, "the library refuses it"))
    }

    fn module(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.name == name)
    }

    fn names(&self) -> Result<BTreeMap<u64, String>> {
        let mut names = BTreeMap::new();
        if !self.log()?.names(|id, name| drop(names.insert(id, name))) {
            return Err(refused(self.path, "the names of its files cannot be read"));
        }
        Ok(names)
    }

    /// Hands each record of a counter module to `each`.
    fn counters(&self, module: &Module, mut each: impl FnMut(&CounterRecord<'_>)) -> Result<()> {
        let Some((_, ints, floats)) = counter_tables(&module.name) else { return Ok(()) };
        let table = |name: &CStr| self.library.counter_names(name).map_err(|what| refused(self.path, what));
        let (ints, floats) = (table(ints)?, table(floats)?);
        let words = 2 + ints.len() + floats.len();
        let whole =
            self.log()?.records(module, words, |words| each(&CounterRecord::new(&ints, &floats, words)));
        if whole { Ok(()) } else { Err(refused(self.path, format!("its module {} ends early", module.name))) }
    }

    fn info(&self, source: Source) -> Info {
        let partial = self.modules.iter().filter(|module| module.partial);
        let mut notes: Vec<String> = partial
            .map(|module| {
                format!("Darshan ran out of memory for the module {}: files are missing", module.name)
            })
            .collect();
        if source == Source::DarshanCounters {
            notes.push(
                "made from counters: numbers and bytes of reads and writes are the program's, offsets and times are \
                 guesses"
                    .into(),
            );
        }
        Info {
            source,
            program: self.summary.program.clone(),
            processes: self.summary.processes,
            began_unix_ns: self.summary.began_unix_ns,
            notes,
        }
    }
}

fn refused(path: &Path, what: impl Into<String>) -> TraceError {
    TraceError::Darshan { path: path.to_owned(), what: what.into() }
}

/// Prefix of the counters of a module, and the library's tables of their names.
fn counter_tables(module: &str) -> Option<(&'static str, &'static CStr, &'static CStr)> {
    match module {
        "POSIX" => Some(("POSIX", c"posix_counter_names", c"posix_f_counter_names")),
        "MPI-IO" => Some(("MPIIO", c"mpiio_counter_names", c"mpiio_f_counter_names")),
        "STDIO" => Some(("STDIO", c"stdio_counter_names", c"stdio_f_counter_names")),
        _ => None,
    }
}

fn summary(path: &Path, log: &sandbox::Log) -> Result<()> {
    let library = library(log)?;
    let mut reading = Reading::open(&library, path, log.path())?;
    let names = reading.names()?;
    let mut all = Vec::new();
    for module in &reading.modules {
        let Some((prefix, ..)) = counter_tables(&module.name) else { continue };
        let mut files: BTreeMap<u64, FileCounters> = BTreeMap::new();
        let mut total = FileCounters::default();
        reading.counters(module, |record| {
            let counters = record.counters(prefix);
            total.add(&counters);
            files.entry(record.id()).or_default().add(&counters);
        })?;
        let count = files.len() as u64;
        let mut largest: Vec<(u64, FileCounters)> = files.into_iter().collect();
        largest
            .sort_by_key(|(_, file)| std::cmp::Reverse(file.bytes_read.saturating_add(file.bytes_written)));
        largest.truncate(FILES_MAX);
        let named = |(id, file)| FileCounters { name: name_of(&names, id), ..file };
        let largest = largest.into_iter().map(named).collect();
        all.push(Counters { module: module.name.clone(), files: count, total, largest });
    }
    reading.summary.counters = all;
    let json = serde_json::to_string(&reading.summary).expect("plain data becomes JSON");
    let out = std::io::stdout();
    writeln!(out.lock(), "{json}").map_err(|error| TraceError::io(path, error))
}

fn name_of(names: &BTreeMap<u64, String>, id: u64) -> String {
    names.get(&id).cloned().unwrap_or_else(|| format!("darshan-record-{id:016x}"))
}

/// Which directions of a file and rank were collective throughout; DXT does not say it of single operations.
#[derive(Clone, Copy, Default)]
struct Collective {
    reads: bool,
    writes: bool,
}

fn operations(path: &Path, log: &sandbox::Log) -> Result<()> {
    let library = library(log)?;
    let reading = Reading::open(&library, path, log.path())?;
    let modules: Vec<_> = [("DXT_MPIIO", Level::MpiIo), ("DXT_POSIX", Level::Posix)]
        .into_iter()
        .filter_map(|(name, level)| Some((reading.module(name)?, level)))
        .collect();
    if modules.is_empty() {
        let names: Vec<&str> = reading.modules.iter().map(|module| &*module.name).collect();
        return Err(TraceError::NoDxt { path: path.to_owned(), modules: names.join(", ") });
    }
    let names = reading.names()?;
    let mut collective: BTreeMap<(u64, Option<u32>), Collective> = BTreeMap::new();
    if let Some(module) = reading.module("MPI-IO") {
        reading.counters(module, |record| {
            let only = |what: &str| {
                let of = |kind: &str| record.count(&format!("MPIIO_{kind}_{what}"));
                of("COLL") > 0 && of("INDEP") + of("SPLIT") + of("NB") == 0
            };
            collective.insert(
                (record.id(), record.rank()),
                Collective { reads: only("READS"), writes: only("WRITES") },
            );
        })?;
    }
    let mut info = reading.info(Source::DarshanDxt);
    let mut formats = Vec::new();
    for (module, level) in modules {
        let format = Format::of(level, module.version, reading.swapped).ok_or_else(|| {
            refused(path, format!("{} of version {} is unknown", module.name, module.version))
        })?;
        if format.has_offsets {
            formats.push((module, format));
        } else {
            info.notes.push(format!("{} is of a version without offsets and was left out", module.name));
        }
    }
    let mut writer = Writer::to(path, std::io::stdout().lock())?;
    writer.info(&info)?;
    for (module, format) in formats {
        let log = reading.log()?;
        let mut place = None;
        each_item(&log, module, format, path, |item| match item {
            Item::Head(head) => {
                let known = collective
                    .get(&(head.record_id, Some(head.rank)))
                    .or_else(|| collective.get(&(head.record_id, None)));
                let known = known.copied().filter(|_| format.level == Level::MpiIo).unwrap_or_default();
                let file = writer.file(&name_of(&names, head.record_id))?;
                place = Some((Rank(head.rank), writer.host(&head.host)?, file, known));
                Ok(())
            }
            Item::Segment(segment) => {
                let (rank, host, file, known) = place.expect("a head comes first");
                writer.push(&record(rank, host, file, format.level, known, &segment))
            }
        })?;
    }
    writer.finish().map(drop)
}

fn record(
    rank: Rank,
    host: HostId,
    file: FileId,
    level: Level,
    known: Collective,
    segment: &dxt::Segment,
) -> Record {
    Record {
        rank,
        host,
        file,
        op: if segment.write { Operation::Write } else { Operation::Read },
        level,
        collective: if segment.write { known.writes } else { known.reads },
        offset: FileOffset(segment.offset),
        len: ByteLen(segment.len),
        start: Nanos(segment.start_ns),
        end: Nanos(segment.end_ns),
    }
}

/// Bytes of a module that are in memory at a time.
const CHUNK: usize = 256 << 10;

fn each_item(
    log: &Log<'_>,
    module: &Module,
    format: Format,
    path: &Path,
    mut each: impl FnMut(Item) -> Result<()>,
) -> Result<()> {
    let failed = |what: &str| refused(path, format!("{}: {what}", module.name));
    let mut decoder = Decoder::new(format);
    let mut buf = vec![0; CHUNK];
    let mut kept = 0;
    loop {
        let room = buf.len() - kept;
        let took =
            log.module_bytes(module, &mut buf[kept..]).ok_or_else(|| failed("it does not decompress"))?;
        let have = kept + took;
        let mut rest = &buf[..have];
        while let Some((item, after)) = decoder.take(rest).map_err(failed)? {
            each(item)?;
            rest = after;
        }
        let (from, left) = (have - rest.len(), rest.len());
        buf.copy_within(from..have, 0);
        kept = left;
        if took < room {
            break;
        }
    }
    if kept != 0 || !decoder.between_files() {
        return Err(failed("it ends within a record"));
    }
    Ok(())
}

fn reconstructed(path: &Path, log: &sandbox::Log) -> Result<()> {
    let library = library(log)?;
    let reading = Reading::open(&library, path, log.path())?;
    let Some(module) = reading.module("POSIX") else {
        let names: Vec<&str> = reading.modules.iter().map(|module| &*module.name).collect();
        let what = format!("it has no POSIX counters either, only {}", names.join(", "));
        return Err(TraceError::Unfit { path: path.to_owned(), what });
    };
    let names = reading.names()?;
    let mut writer = Writer::to(path, std::io::stdout().lock())?;
    writer.info(&reading.info(Source::DarshanCounters))?;
    let mut failed = None;
    let processes = reading.summary.processes.max(1);
    let mut sharing = reconstruct::Sharing::default();
    reading.counters(module, |counters| sharing.add(counters))?;
    let places = sharing.places();
    reading.counters(module, |counters| {
        if failed.is_none() {
            failed = writer
                .file(&name_of(&names, counters.id()))
                .and_then(|file| {
                    reconstruct::file(counters, &places, file, processes, &mut |record| writer.push(record))
                })
                .err();
        }
    })?;
    match failed {
        Some(error) => Err(error),
        None => writer.finish().map(drop),
    }
}

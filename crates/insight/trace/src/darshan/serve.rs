//! The child process that reads one log with Darshan's library.
//!
//! If a damaged log crashes the library, only this process dies.

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

/// Task of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Write a [`LogSummary`] as JSON.
    Summary,
    /// Write the operations of the DXT modules as `.wtrace`.
    Dxt,
    /// Write operations reconstructed from the counters as `.wtrace`.
    Reconstruct,
}

impl Mode {
    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Dxt => "dxt",
            Self::Reconstruct => "reconstruct",
        }
    }

    /// Parses a name from the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Summary, Self::Dxt, Self::Reconstruct].into_iter().find(|mode| mode.name() == name)
    }
}

/// Prefix of the line on standard error that holds the reason of a failure as JSON.
pub(super) const PREFIX: &str = "weft-darshan: ";

/// Prefix of lines on standard error that describe a missing layer of the sandbox.
pub(super) const NOTICE: &str = "weft-darshan-notice: ";

/// Reason of a failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    NoLibrary { tried: String },
    NoDxt { modules: String },
    Other(String),
}

/// Reads the log `path` and writes the result of `mode` to standard output.
///
/// Returns the exit status. Errors go to standard error in a form that the parent parses.
pub fn serve(mode: Mode, path: &Path) -> u8 {
    // Memory, time and file size are limited first, so that a damaged log cannot exhaust the host.
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
    eprintln!("\n{PREFIX}{}", serde_json::to_string(&refusal).expect("serialization cannot fail"));
    1
}

/// Loads Darshan's library, then confines the process to the log.
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
        // The names and one record are in memory at a time. Names are compressed in the log.
        (libc::RLIMIT_AS, (4 << 30) + len.saturating_mul(64)),
        // CPU seconds. Reading and writing handle tens of MB/s.
        (libc::RLIMIT_CPU, 60 + len / (1 << 20)),
        (libc::RLIMIT_CORE, 0),
        // Standard error is a file, and the only one that the process can extend.
        (libc::RLIMIT_FSIZE, 1 << 20),
    ] {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the pointer is valid. If the call fails, the previous limit remains.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    }
    Ok(())
}

/// An open log, with the data that all modes need.
struct Reading<'a> {
    library: &'a Library,
    path: &'a Path,
    /// Path at which the log can be opened inside the sandbox.
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
        let swapped = swapped(&begin).ok_or_else(|| refused(path, "not a Darshan 3 log"))?;
        let log = library.open(opened).ok_or_else(|| refused(path, "the library cannot open it"))?;
        let job = log.job().ok_or_else(|| refused(path, "the job record cannot be read"))?;
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

    /// Opens the log again for one module.
    ///
    /// The library keeps the state of its decompression when a module is not read to its end.
    fn log(&self) -> Result<Log<'_>> {
        self.library.open(self.opened).ok_or_else(|| refused(self.path, "the library cannot open it"))
    }

    fn module(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.name == name)
    }

    fn names(&self) -> Result<BTreeMap<u64, String>> {
        let mut names = BTreeMap::new();
        if !self.log()?.names(|id, name| drop(names.insert(id, name))) {
            return Err(refused(self.path, "the file names cannot be read"));
        }
        Ok(names)
    }

    /// Passes each record of a counter module to `each`.
    fn counters(&self, module: &Module, mut each: impl FnMut(&CounterRecord<'_>)) -> Result<()> {
        let Some((_, ints, floats)) = counter_tables(&module.name) else { return Ok(()) };
        let table = |name: &CStr| self.library.counter_names(name).map_err(|what| refused(self.path, what));
        let (ints, floats) = (table(ints)?, table(floats)?);
        let words = 2 + ints.len() + floats.len();
        let whole =
            self.log()?.records(module, words, |words| each(&CounterRecord::new(&ints, &floats, words)));
        if whole {
            Ok(())
        } else {
            Err(refused(self.path, format!("the module {} is truncated", module.name)))
        }
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

/// Returns a module's counter prefix and the library's tables of counter names.
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
    let json = serde_json::to_string(&reading.summary).expect("serialization cannot fail");
    let out = std::io::stdout();
    writeln!(out.lock(), "{json}").map_err(|error| TraceError::io(path, error))
}

fn name_of(names: &BTreeMap<u64, String>, id: u64) -> String {
    names.get(&id).cloned().unwrap_or_else(|| format!("darshan-record-{id:016x}"))
}

/// Directions in which all of a rank's operations on a file were collective.
///
/// DXT does not say whether a single operation was.
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
            refused(path, format!("unknown version {} of the module {}", module.version, module.name))
        })?;
        if format.has_offsets {
            formats.push((module, format));
        } else {
            info.notes.push(format!("{} was left out: its version has no offsets", module.name));
        }
    }
    let mut writer = Writer::to(path, std::io::stdout().lock())?;
    writer.info(&info)?;
    for (module, format) in formats {
        let log = reading.log()?;
        let mut current = None;
        each_item(&log, module, format, path, |item| match item {
            Item::Head(head) => {
                let known = collective
                    .get(&(head.record_id, Some(head.rank)))
                    .or_else(|| collective.get(&(head.record_id, None)));
                let known = known.copied().filter(|_| format.level == Level::MpiIo).unwrap_or_default();
                let file = writer.file(&name_of(&names, head.record_id))?;
                current = Some((Rank(head.rank), writer.host(&head.host)?, file, known));
                Ok(())
            }
            Item::Segment(segment) => {
                let (rank, host, file, known) = current.expect("a header precedes segments");
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

/// Length of a module's read buffer in bytes.
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
            log.module_bytes(module, &mut buf[kept..]).ok_or_else(|| failed("decompression failed"))?;
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
        return Err(failed("it ends inside a record"));
    }
    Ok(())
}

fn reconstructed(path: &Path, log: &sandbox::Log) -> Result<()> {
    let library = library(log)?;
    let reading = Reading::open(&library, path, log.path())?;
    let Some(module) = reading.module("POSIX") else {
        let names: Vec<&str> = reading.modules.iter().map(|module| &*module.name).collect();
        let what = format!("the log has no POSIX counters either, only {}", names.join(", "));
        return Err(TraceError::Unfit { path: path.to_owned(), what });
    };
    let names = reading.names()?;
    let mut writer = Writer::to(path, std::io::stdout().lock())?;
    writer.info(&reading.info(Source::DarshanCounters))?;
    let mut failed = None;
    let processes = reading.summary.processes.max(1);
    let mut sharing = reconstruct::Sharing::default();
    reading.counters(module, |counters| sharing.add(counters))?;
    let slots = sharing.slots();
    reading.counters(module, |counters| {
        if failed.is_none() {
            failed = writer
                .file(&name_of(&names, counters.id()))
                .and_then(|file| {
                    reconstruct::file(counters, &slots, file, processes, &mut |record| writer.push(record))
                })
                .err();
        }
    })?;
    match failed {
        Some(error) => Err(error),
        None => writer.finish().map(drop),
    }
}

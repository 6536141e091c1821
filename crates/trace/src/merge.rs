//! One trace from the files that traced processes left in a directory.
//!
//! Each process has a part (`.wtrace`) and a tail (`.wtail`, what was not in the part yet). Their records are sorted
//! through a file, so that memory is what names need and a few dozen MB; files of the same name become one.

use crate::error::{Result, TraceError};
use crate::names::FileId;
use crate::record::{Operation, Rank, Record};
use crate::sort::Sorter;
use crate::stream::{Info, RecordStream, Source};
use crate::wtrace::{Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weft_core::Nanos;
use weft_recorder::tail::Tail;

/// Records that are sorted in memory at a time.
const RUN_RECORDS: usize = 1 << 17;
/// Records from one word about progress to the next.
const TICK_RECORDS: u64 = 1 << 16;
/// Notes about single processes that are kept; of more there is only the number.
const NOTES_MAX: usize = 20;

/// What came of it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Merged {
    /// Ranks that have records.
    pub ranks: u32,
    /// Processes that have records.
    pub processes: u32,
    /// Files that have records.
    pub files: u32,
    /// Records in the trace.
    pub records: u64,
    /// Bytes that were read, of one level: those of MPI-IO calls cause POSIX ones.
    pub read_bytes: u64,
    /// Bytes that were written, likewise.
    pub written_bytes: u64,
    /// What is missing or damaged, for people.
    pub notes: Vec<String>,
    /// Whether any file was damaged, so that somebody may want to look at them.
    pub damaged: bool,
}

/// The files of a process.
struct Part {
    tail_path: PathBuf,
    part_path: PathBuf,
    tail: Tail,
    rank: Rank,
}

impl Part {
    /// Length of the part, 0 when there is none.
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.part_path).map_or(0, |found| found.len())
    }

    fn shown(&self) -> String {
        format!("process {} on {}", self.tail.process, self.tail.host)
    }
}

/// Makes the trace `out` of the files in `dir`; `program` is what was traced, for whoever reads the trace. The file
/// that records are sorted through lies beside `out`: `dir` may be on a disk that is full.
///
/// `tick` is told now and then how far it has come, of how much.
///
/// # Errors
/// What the system refuses; `out` is then as it was, unless it can only be written in its place: then there is none. Damaged
/// files are noted and read as far as they make sense.
pub fn merge(dir: &Path, out: &Path, program: &str, mut tick: impl FnMut(u64, u64)) -> Result<Merged> {
    let mut notes = Notes::default();
    let mut parts = find(dir, &mut notes)?;
    rank(&mut parts);
    let beside = beside(out);
    let opened = match &beside {
        Some(beside) => beside.reopen(),
        None => File::create(out),
    };
    let file = opened.map_err(|error| TraceError::io(out, error))?;
    let merged = merge_to((out, file), &parts, notes, program, &mut tick);
    match (&merged, beside) {
        (Ok(_), Some(beside)) => {
            let real = out.canonicalize().unwrap_or_else(|_| out.to_owned());
            beside.persist(real).map_err(|error| TraceError::io(out, error.error))?;
        }
        // Half a trace looks like one of a program that died. What is gone already is what is wanted.
        (Err(_), None) if is_plain(out) => drop(std::fs::remove_file(out)),
        _ => {}
    }
    merged
}

/// A file that takes the place of `out` when it is complete; none where that is no file, or none can be made beside it.
fn beside(out: &Path) -> Option<tempfile::NamedTempFile> {
    if std::fs::symlink_metadata(out).is_ok() && !is_plain(out) {
        return None;
    }
    let real = out.canonicalize().unwrap_or_else(|_| out.to_owned());
    let dir = real.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = std::fs::metadata(&real).map_or(0o666, |found| found.permissions().mode());
    let permissions = std::fs::Permissions::from_mode(mode);
    tempfile::Builder::new().prefix(".weft-").permissions(permissions).tempfile_in(dir).ok()
}

/// A file that was made to be written, no device and no pipe.
fn is_plain(out: &Path) -> bool {
    std::fs::metadata(out).is_ok_and(|found| found.is_file())
}

fn merge_to(
    (out, file): (&Path, File),
    parts: &[Part],
    mut notes: Notes,
    program: &str,
    tick: &mut dyn FnMut(u64, u64),
) -> Result<Merged> {
    // Every byte of the parts is read once and then, as it were, written once.
    let (mut done, half) = (0, parts.iter().map(Part::bytes).sum::<u64>());
    let mut writer = Writer::to(out, file)?;
    let began = parts.iter().map(|part| part.tail.anchor_unix_ns).min().unwrap_or(0);
    let beside = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = if is_plain(out) { beside.to_owned() } else { std::env::temp_dir() };
    let mut sorter = Sorter::new(&scratch, RUN_RECORDS)?;
    let mut merged = Merged::default();
    let (mut ranks, mut files, mut bytes) = (BTreeSet::new(), BTreeSet::new(), [[0u64; 2]; 2]);
    for part in parts {
        let shift = part.tail.anchor_unix_ns - began;
        let host = writer.host(&part.tail.host)?;
        let mut records = 0u64;
        read(part, &mut writer, &mut notes, |mut record, at| {
            if (merged.records + records + 1).is_multiple_of(TICK_RECORDS) {
                tick(done + at, 2 * half);
            }
            record.rank = part.rank;
            record.host = host;
            record.start = Nanos(record.start.get().saturating_add(shift));
            record.end = Nanos(record.end.get().saturating_add(shift));
            records += 1;
            if record.op.has_file() {
                files.insert(record.file);
            }
            if record.op.moves_bytes() {
                let sum = &mut bytes[record.level as usize][usize::from(record.op == Operation::Write)];
                *sum = sum.saturating_add(record.len.get());
            }
            sorter.push(record)
        })?;
        if records > 0 {
            merged.processes += 1;
            ranks.insert(part.rank);
        }
        merged.records += records;
        done += part.bytes();
    }
    let sorted = sorter.finish()?;
    for (record, count) in sorted.iter()?.zip(1u64..) {
        if count.is_multiple_of(TICK_RECORDS) {
            let part = half as f64 * count as f64 / merged.records as f64;
            tick(half + part as u64, 2 * half);
        }
        writer.push(&record?)?;
    }
    [merged.read_bytes, merged.written_bytes] = bytes[usize::from(bytes[0] == [0, 0])];
    (merged.ranks, merged.files) = (ranks.len() as u32, files.len() as u32);
    (merged.notes, merged.damaged) = (notes.done(), notes.damaged);
    let processes = ranks.last().map_or(0, |last| last.0 + 1);
    let info = Info {
        source: Source::Weft,
        program: program.to_owned(),
        processes,
        began_unix_ns: began,
        notes: merged.notes.clone(),
    };
    writer.info(&info)?;
    writer.finish()?;
    Ok(merged)
}

/// Whether a directory has the files of any traced process.
///
/// # Errors
/// What the system refuses.
pub fn has_parts(dir: &Path) -> Result<bool> {
    Ok(!tails(dir)?.is_empty())
}

/// What is told of single processes.
#[derive(Default)]
struct Notes {
    list: Vec<String>,
    more: usize,
    damaged: bool,
}

impl Notes {
    fn add(&mut self, note: String) {
        if self.list.len() < NOTES_MAX { self.list.push(note) } else { self.more += 1 }
    }

    fn damage(&mut self, note: String) {
        self.damaged = true;
        self.add(note);
    }

    fn done(&mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} notes more of this kind", self.more));
        }
        std::mem::take(&mut self.list)
    }
}

fn tails(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| TraceError::io(dir, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "wtail") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The processes, in the order of their start.
fn find(dir: &Path, notes: &mut Notes) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for tail_path in tails(dir)? {
        let tail = File::open(&tail_path).and_then(|file| Tail::read(&file));
        match tail {
            Ok(tail) => {
                let part_path = tail_path.with_extension("wtrace");
                parts.push(Part { tail_path, part_path, tail, rank: Rank(0) });
            }
            Err(error) => notes.damage(format!("{}: {error}; it was left out", tail_path.display())),
        }
    }
    parts.sort_by_key(|part| {
        (part.tail.anchor_unix_ns.saturating_add(part.tail.started_ns), part.tail.process)
    });
    Ok(parts)
}

/// Gives every process its rank: the one that it had, or the next number in the order of starts. Programs that one
/// process executed after each other are one.
fn rank(parts: &mut [Part]) {
    let known = parts.iter().filter_map(|part| part.tail.rank).max();
    let mut next = known.map_or(0, |last| last.saturating_add(1));
    let mut numbers = BTreeMap::new();
    for part in parts {
        let key = (part.tail.host.clone(), part.tail.process);
        part.rank = Rank(part.tail.rank.unwrap_or_else(|| {
            *numbers.entry(key).or_insert_with(|| {
                next += 1;
                next - 1
            })
        }));
    }
}

/// The records of a process, with files as `writer` numbers them, and how much was read of the part.
fn read(
    part: &Part,
    writer: &mut Writer,
    notes: &mut Notes,
    mut each: impl FnMut(Record, u64) -> Result<()>,
) -> Result<()> {
    let mut files: Vec<FileId> = Vec::new();
    let mut records = 0u64;
    let mut in_part = 0;
    if part.part_path.exists() {
        match Reader::open(&part.part_path) {
            Ok(mut reader) => {
                while let Some(record) = reader.next() {
                    match record {
                        Ok(mut record) => {
                            take_names(&mut files, &reader, writer)?;
                            if record.op.has_file() {
                                record.file = files[record.file.0 as usize];
                            }
                            records += 1;
                            each(record, reader.progress().0)?;
                        }
                        Err(error) => notes.damage(error.to_string()),
                    }
                }
                take_names(&mut files, &reader, writer)?;
                in_part = reader.names().files();
            }
            Err(error) => notes.damage(error.to_string()),
        }
    }
    // Names that are in the part already have a number there.
    let tail = &part.tail;
    if tail.names_first > in_part {
        notes.damage(format!("{}: names are missing from {}", part.shown(), part.part_path.display()));
        files.resize(tail.names_first as usize, writer.file("(unknown)")?);
    }
    for name in tail.names.iter().skip((in_part.saturating_sub(tail.names_first)) as usize) {
        files.push(writer.file(name)?);
    }
    let drained = tail.draining.is_some_and(|(_, before)| records > before);
    let source = File::open(&part.tail_path).map_err(|error| TraceError::io(&part.tail_path, error))?;
    let mut unknown = 0u64;
    let bad = tail.slots(&source, drained, |slot| {
        let file = files.get(slot.file as usize).copied();
        let Some(file) = file.or((!slot.op.has_file()).then_some(FileId(0))) else {
            unknown += 1;
            return Ok(());
        };
        each(slot.record(file), part.bytes()).map_err(Failed::Trace)
    });
    let bad = match bad {
        Ok(bad) => bad + unknown,
        Err(Failed::Trace(error)) => return Err(error),
        Err(Failed::Io(error)) => return Err(TraceError::io(&part.tail_path, error)),
    };
    if bad > 0 {
        let path = part.tail_path.display();
        notes.damage(format!("{path}: {bad} operations make no sense and were left out"));
    }
    if tail.lost > 0 {
        notes.add(format!("{}: {} operations could not be recorded", part.shown(), tail.lost));
    }
    if let Some(number) = tail.ended {
        let why = std::io::Error::from_raw_os_error(number);
        notes.add(format!("{}: tracing ended early: {why}", part.shown()));
    }
    Ok(())
}

/// Numbers the names that a part has told since the last time.
fn take_names(files: &mut Vec<FileId>, reader: &Reader, writer: &mut Writer) -> Result<()> {
    while let Some(name) = reader.names().file_name(FileId(files.len() as u32)) {
        files.push(writer.file(name)?);
    }
    Ok(())
}

enum Failed {
    Io(std::io::Error),
    Trace(TraceError),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

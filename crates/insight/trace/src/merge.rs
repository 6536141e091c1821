//! Merges the files that traced processes left in a directory into one trace.
//!
//! Each process has a part file (`.wtrace`) and a tail file (`.wtail`, records that are not in the part file yet). The
//! records are sorted through a temporary file, so memory holds the names and a few dozen MB. Files of different
//! processes that have the same name get one number.

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

/// Records sorted in memory at a time.
const RUN_RECORDS: usize = 1 << 17;
/// Number of records between two progress reports.
const TICK_RECORDS: u64 = 1 << 16;
/// Maximum number of notes about single processes. Further notes are only counted.
const NOTES_MAX: usize = 20;

/// Result of a merge.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Merged {
    /// Number of ranks that have records.
    pub ranks: u32,
    /// Number of processes that have records.
    pub processes: u32,
    /// Number of files that have records.
    pub files: u32,
    /// Number of records in the trace.
    pub records: u64,
    /// Bytes read, at POSIX if any bytes moved there, otherwise at MPI-IO.
    ///
    /// Counting both levels would count the transfers of MPI-IO calls twice.
    pub read_bytes: u64,
    /// Bytes written, at the level of `read_bytes`.
    pub written_bytes: u64,
    /// Descriptions of missing or damaged records, for users.
    pub notes: Vec<String>,
    /// Whether a file was damaged. The caller then keeps the files for inspection.
    pub damaged: bool,
}

/// The files of one process.
struct ProcessFiles {
    tail_path: PathBuf,
    part_path: PathBuf,
    tail: Tail,
    rank: Rank,
}

impl ProcessFiles {
    /// Length of the part file in bytes, 0 if there is none.
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.part_path).map_or(0, |found| found.len())
    }

    fn label(&self) -> String {
        format!("process {} on {}", self.tail.process, self.tail.host)
    }
}

/// Merges the files in `dir` into the trace `out`. `program` is the command line stored in the trace.
///
/// The temporary file for sorting is created beside `out`, because `dir` may be on a full disk. `tick` is called
/// regularly with the bytes processed and the total.
///
/// # Errors
/// Fails if a file cannot be read or written. `out` is then unchanged if the trace could be built beside it; otherwise
/// `out` is removed. Damage in the processes' files is not an error: it is noted, and valid records are merged.
pub fn merge(dir: &Path, out: &Path, program: &str, mut tick: impl FnMut(u64, u64)) -> Result<Merged> {
    let mut notes = Notes::default();
    let mut parts = find(dir, &mut notes)?;
    assign_ranks(&mut parts);
    let replacement = create_replacement(out);
    let opened = match &replacement {
        Some(replacement) => replacement.reopen(),
        None => File::create(out),
    };
    let file = opened.map_err(|error| TraceError::io(out, error))?;
    let merged = merge_to((out, file), &parts, notes, program, &mut tick);
    match (&merged, replacement) {
        (Ok(_), Some(replacement)) => {
            let real = out.canonicalize().unwrap_or_else(|_| out.to_owned());
            replacement.persist(real).map_err(|error| TraceError::io(out, error.error))?;
        }
        // A partial trace would look like that of a program that died. If `out` is gone already, that is fine.
        (Err(_), None) if is_regular_file(out) => drop(std::fs::remove_file(out)),
        _ => {}
    }
    merged
}

/// Creates a temporary file beside `out`, to be renamed to `out` when complete.
/// Returns `None` if `out` is not a regular file or its directory does not permit it.
fn create_replacement(out: &Path) -> Option<tempfile::NamedTempFile> {
    if std::fs::symlink_metadata(out).is_ok() && !is_regular_file(out) {
        return None;
    }
    let real = out.canonicalize().unwrap_or_else(|_| out.to_owned());
    let dir = real.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = std::fs::metadata(&real).map_or(0o666, |found| found.permissions().mode());
    let permissions = std::fs::Permissions::from_mode(mode);
    tempfile::Builder::new().prefix(".weft-").permissions(permissions).tempfile_in(dir).ok()
}

/// Whether `out` is a regular file, not a device or a pipe.
fn is_regular_file(out: &Path) -> bool {
    std::fs::metadata(out).is_ok_and(|found| found.is_file())
}

fn merge_to(
    (out, file): (&Path, File),
    parts: &[ProcessFiles],
    mut notes: Notes,
    program: &str,
    tick: &mut dyn FnMut(u64, u64),
) -> Result<Merged> {
    // Progress counts every byte of the part files twice: once when read, once when written.
    let (mut done, input_bytes) = (0, parts.iter().map(ProcessFiles::bytes).sum::<u64>());
    let mut writer = Writer::to(out, file)?;
    let began = parts.iter().map(|part| part.tail.anchor_unix_ns).min().unwrap_or(0);
    let parent_dir = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = if is_regular_file(out) { parent_dir.to_owned() } else { std::env::temp_dir() };
    let mut sorter = Sorter::new(&scratch, RUN_RECORDS)?;
    let mut merged = Merged::default();
    let (mut ranks, mut files, mut bytes) = (BTreeSet::new(), BTreeSet::new(), [[0u64; 2]; 2]);
    for part in parts {
        let shift = part.tail.anchor_unix_ns - began;
        let host = writer.host(&part.tail.host)?;
        let mut records = 0u64;
        read(part, &mut writer, &mut notes, |mut record, at| {
            if (merged.records + records + 1).is_multiple_of(TICK_RECORDS) {
                tick(done + at, 2 * input_bytes);
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
            let part = input_bytes as f64 * count as f64 / merged.records as f64;
            tick(input_bytes + part as u64, 2 * input_bytes);
        }
        writer.push(&record?)?;
    }
    [merged.read_bytes, merged.written_bytes] = bytes[usize::from(bytes[0] == [0, 0])];
    (merged.ranks, merged.files) = (ranks.len() as u32, files.len() as u32);
    (merged.notes, merged.damaged) = (notes.finish(), notes.damaged);
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

/// Whether a directory contains files of traced processes.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn has_parts(dir: &Path) -> Result<bool> {
    Ok(!tails(dir)?.is_empty())
}

/// Notes about single processes.
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

    fn finish(&mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more notes of this kind", self.more));
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

/// Returns the processes in the order of their start.
fn find(dir: &Path, notes: &mut Notes) -> Result<Vec<ProcessFiles>> {
    let mut parts = Vec::new();
    for tail_path in tails(dir)? {
        let tail = File::open(&tail_path).and_then(|file| Tail::read(&file));
        match tail {
            Ok(tail) => {
                let part_path = tail_path.with_extension("wtrace");
                parts.push(ProcessFiles { tail_path, part_path, tail, rank: Rank(0) });
            }
            Err(error) => notes.damage(format!("{}: {error}; the file was skipped", tail_path.display())),
        }
    }
    parts.sort_by_key(|part| {
        (part.tail.anchor_unix_ns.saturating_add(part.tail.started_ns), part.tail.process)
    });
    Ok(parts)
}

/// Assigns each process its recorded rank, or the next unused number in the order of starts.
///
/// Programs that one process executed one after another share a rank.
fn assign_ranks(parts: &mut [ProcessFiles]) {
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

/// Passes each record of a process to `each`, with the file number of `writer` and the bytes of the part file read.
fn read(
    part: &ProcessFiles,
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
    // Names that are both in the part file and in the tail already have a number: skip them.
    let tail = &part.tail;
    if tail.names_first > in_part {
        notes.damage(format!("{}: names are missing from {}", part.label(), part.part_path.display()));
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
        notes.damage(format!("{path}: {bad} invalid operations were skipped"));
    }
    if tail.lost > 0 {
        notes.add(format!("{}: {} operations could not be recorded", part.label(), tail.lost));
    }
    if let Some(number) = tail.ended {
        let why = std::io::Error::from_raw_os_error(number);
        notes.add(format!("{}: tracing ended early: {why}", part.label()));
    }
    Ok(())
}

/// Adds the names that a part file has announced since the last call to the merged trace.
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

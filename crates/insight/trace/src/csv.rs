//! Traces as CSV: a heading line, then one line per operation.
//!
//! Columns may come in any order, and unknown columns are ignored. `docs/reference/traces.md` lists the columns.

use crate::error::{Result, TraceError};
use crate::names::{HostId, NAMES_MAX, Names};
use crate::record::{Level, OFFSET_MAX, Operation, Rank, Record};
use crate::stream::{Info, RecordStream, Source};
use csv::{ReaderBuilder, StringRecord};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use weft_core::escape::escape;
use weft_core::{ByteLen, FileOffset, Nanos, escaped, unescaped};

/// Meaning of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Rank,
    Host,
    File,
    Operation,
    Offset,
    Length,
    /// Start time, with the number of nanoseconds per unit.
    Start(u64),
    End(u64),
    Duration(u64),
    Level,
    Collective,
}

/// Suffixes of time columns and nanoseconds per unit. A column without a suffix is in seconds.
const UNITS: [(&str, u64); 5] =
    [("_ns", 1), ("_us", 1_000), ("_ms", 1_000_000), ("_s", 1_000_000_000), ("", 1_000_000_000)];

impl Column {
    fn from_name(name: &str) -> Option<Self> {
        let name = name
            .trim()
            .trim_start_matches(['#', '\u{feff}'])
            .trim()
            .to_ascii_lowercase()
            .replace([' ', '-'], "_");
        match name.as_str() {
            "rank" | "process" => return Some(Self::Rank),
            "host" | "hostname" | "node" => return Some(Self::Host),
            "file" | "path" | "file_name" | "filename" => return Some(Self::File),
            "op" | "operation" | "wt/rd" => return Some(Self::Operation),
            "offset" => return Some(Self::Offset),
            "len" | "length" | "size" | "bytes" => return Some(Self::Length),
            "level" | "module" | "interface" => return Some(Self::Level),
            "collective" => return Some(Self::Collective),
            _ => {}
        }
        UNITS.iter().find_map(|(suffix, unit)| match name.strip_suffix(suffix)? {
            "start" | "begin" | "start_time" => Some(Self::Start(*unit)),
            "end" | "stop" | "end_time" => Some(Self::End(*unit)),
            "duration" | "time" | "elapsed" => Some(Self::Duration(*unit)),
            _ => None,
        })
    }
}

/// Whether `text`, a prefix of a file, contains a valid heading after optional comments.
pub(crate) fn has_heading(text: &str) -> bool {
    let cell = |cell: &str| cell.trim().trim_matches('"').to_owned();
    let mut lines = text.lines().map(|line| line.split(',').map(cell).collect::<StringRecord>());
    lines.find(|line| is_heading(line) || !is_ignored(line)).is_some_and(|line| is_heading(&line))
}

/// Whether the cells are a heading of a trace.
fn is_heading(line: &StringRecord) -> bool {
    let columns: Vec<_> = line.iter().filter_map(Column::from_name).collect();
    columns.contains(&Column::Operation) && columns.contains(&Column::File)
}

/// Whether a line is blank or a comment.
fn is_ignored(line: &StringRecord) -> bool {
    line.iter().all(str::is_empty) || line.get(0).is_some_and(|cell| cell.starts_with('#'))
}

/// A record stream over CSV. Memory holds one line, at most 64 KiB, and the names.
pub struct Reader<R: Read> {
    path: PathBuf,
    lines: csv::Reader<LineLimited<R>>,
    columns: Vec<Option<Column>>,
    line: StringRecord,
    names: Names,
    info: Info,
    len: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the heading. `path` is used in errors; `len` is the length of the input in bytes, 0 if unknown.
    ///
    /// # Errors
    /// Fails if the input cannot be read or the heading is invalid.
    pub fn new(path: &Path, input: R, len: u64) -> Result<Self> {
        let input = LineLimited { input, since_line: 0 };
        let mut builder = ReaderBuilder::new();
        let mut lines = builder.has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(input);
        let mut heading = StringRecord::new();
        while lines.read_record(&mut heading).map_err(|error| failed(path, &error))?
            && !is_heading(&heading)
            && is_ignored(&heading)
        {
            lines.get_mut().since_line = 0;
        }
        let line = heading.position().map_or(1, csv::Position::line);
        let wrong = |what: String| TraceError::Csv { path: path.to_owned(), line, what };
        let mut columns: Vec<Option<Column>> = Vec::new();
        for name in &heading {
            let column = Column::from_name(name);
            let twice = column.is_some_and(|column| {
                let same = |other: &Column| std::mem::discriminant(other) == std::mem::discriminant(&column);
                columns.iter().flatten().any(same)
            });
            if twice {
                return Err(wrong(format!("the column `{name}` repeats another column")));
            }
            columns.push(column);
        }
        for (needed, name) in [(Column::Operation, "operation"), (Column::File, "file")] {
            if !columns.contains(&Some(needed)) {
                return Err(wrong(format!(
                    "no column `{name}`; a heading line is needed, such as {HEADING}"
                )));
            }
        }
        let has = |test: fn(&Column) -> bool| columns.iter().flatten().any(test);
        if has(|column| matches!(column, Column::End(_)))
            && has(|column| matches!(column, Column::Duration(_)))
        {
            return Err(wrong("`end` and `duration` exclude each other; leave one of them out".into()));
        }
        Ok(Self {
            path: path.to_owned(),
            lines,
            columns,
            line: StringRecord::new(),
            names: Names::default(),
            info: Info { source: Source::Csv, ..Info::default() },
            len,
            ended: false,
        })
    }

    fn record(&mut self) -> Result<Option<Record>> {
        loop {
            self.lines.get_mut().since_line = 0;
            let mut cells = std::mem::take(&mut self.line).into_byte_record();
            let read = self.lines.read_byte_record(&mut cells).map_err(|error| failed(&self.path, &error))?;
            if !read {
                return Ok(None);
            }
            let position = cells.position().cloned();
            self.line = StringRecord::from_byte_record(cells).unwrap_or_else(|error| {
                // Programs print file names as raw bytes, whatever the encoding.
                error.into_byte_record().iter().map(escaped_text).collect()
            });
            self.line.set_position(position);
            if !is_ignored(&self.line) {
                break;
            }
        }
        let line = self.line.position().map_or(0, csv::Position::line);
        parse(&self.columns, &self.line, &mut self.names).map(Some).map_err(|what| TraceError::Csv {
            path: self.path.clone(),
            line,
            what,
        })
    }
}

/// Decodes a cell; bytes that are not UTF-8 become escapes.
fn escaped_text(cell: &[u8]) -> String {
    let mut out = String::new();
    for chunk in cell.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| escape(&mut out, *byte));
    }
    out
}

fn failed(path: &Path, error: &csv::Error) -> TraceError {
    let line = error.position().map_or(0, csv::Position::line);
    TraceError::Csv { path: path.to_owned(), line, what: error.to_string() }
}

fn parse(columns: &[Option<Column>], line: &StringRecord, names: &mut Names) -> Result<Record, String> {
    let mut record = Record {
        rank: Rank(0),
        host: HostId(0),
        file: crate::FileId(0),
        op: Operation::Read,
        level: Level::Posix,
        collective: false,
        offset: FileOffset(0),
        len: ByteLen(0),
        start: Nanos(0),
        end: Nanos(0),
    };
    let (mut op, mut file, mut end, mut duration) = (None, None, None, None);
    for (column, cell) in columns.iter().zip(line) {
        let Some(column) = column else { continue };
        if cell.is_empty() || cell == "-" {
            continue;
        }
        let wrong = |what: &str| format!("`{cell}` is not a valid {what}");
        match column {
            Column::Rank => record.rank = Rank(cell.parse().map_err(|_| wrong("rank (0, 1, 2 …)"))?),
            Column::Host => {
                record.host = names.host(cell).ok_or_else(|| format!("more than {NAMES_MAX} hosts"))?;
            }
            Column::File => file = Some(cell),
            Column::Operation => op = Some(Operation::from_name(cell).ok_or_else(|| wrong("operation"))?),
            Column::Offset => record.offset = FileOffset(bytes(cell).ok_or_else(|| wrong("offset"))?),
            Column::Length => record.len = ByteLen(bytes(cell).ok_or_else(|| wrong("length"))?),
            Column::Start(unit) => record.start = Nanos(time(cell, *unit).ok_or_else(|| wrong("time"))?),
            Column::End(unit) => end = Some(time(cell, *unit).ok_or_else(|| wrong("time"))?),
            Column::Duration(unit) => duration = Some(time(cell, *unit).ok_or_else(|| wrong("time"))?),
            Column::Level => {
                record.level = Level::from_name(cell).ok_or_else(|| wrong("level (posix or mpi-io)"))?
            }
            Column::Collective => {
                record.collective = match cell.to_ascii_lowercase().as_str() {
                    "1" | "true" | "yes" | "y" => true,
                    "0" | "false" | "no" | "n" => false,
                    _ => return Err(wrong("value of `collective` (yes or no)")),
                }
            }
        }
    }
    record.op = op.ok_or("no operation in this line")?;
    let start = record.start.get();
    let end = end.or(duration.map(|duration| start.saturating_add(duration))).unwrap_or(start);
    if end < start {
        return Err("the operation ends before it starts".into());
    }
    record.end = Nanos(end);
    if record.op.has_file() {
        // Normalize: the same bytes may be written plain or as escapes.
        let file = unescaped(file.ok_or("no file in this line")?);
        let file = escaped(&file);
        if file.len() > crate::names::NAME_BYTES_MAX {
            return Err("the file name is too long".into());
        }
        record.file = names.file(&file).ok_or_else(|| format!("more than {NAMES_MAX} files"))?;
    }
    if record.offset.get().max(record.len.get()) > OFFSET_MAX {
        return Err("offset or length exceeds the largest file offset".into());
    }
    Ok(record)
}

/// Parses a number of bytes with an optional binary unit.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let factor: u64 = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(factor)
}

/// Parses a time and returns nanoseconds, rounded down; `unit` is the number of nanoseconds per unit.
///
/// Decimals are parsed with integer arithmetic, which is exact.
fn time(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !(fraction.is_empty() || digits(fraction)) {
        // Scientific notation, in which programs print very small times.
        let value =
            text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)? * unit as f64;
        return (value < 9.2e18).then_some(value.round() as u64);
    }
    let mut part = 0;
    let mut worth = unit;
    for digit in fraction.bytes() {
        worth /= 10;
        part += u64::from(digit - b'0') * worth;
    }
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.record().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

impl<R: Read + Send> RecordStream for Reader<R> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn progress(&self) -> (u64, u64) {
        (self.lines.position().byte(), self.len)
    }
}

/// Maximum length of a line in bytes. Without a limit, a file without line ends would fill the memory.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Fails the input when a line exceeds [`LINE_BYTES_MAX`].
struct LineLimited<R> {
    input: R,
    since_line: usize,
}

impl<R: Read> Read for LineLimited<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.since_line > LINE_BYTES_MAX {
            return Err(std::io::Error::other(format!("a line longer than {LINE_BYTES_MAX} bytes")));
        }
        let len = self.input.read(buf)?;
        self.since_line += len;
        Ok(len)
    }
}

/// Escapes a name so that it survives a reader, which trims cells and takes an empty cell and `-` as missing.
fn escaped_cell(name: &str) -> Cow<'_, str> {
    let bare = name.trim();
    if bare.len() == name.len() && name != "-" {
        return name.into();
    }
    let escape_all = |out: &mut String, text: &str| text.bytes().for_each(|byte| escape(out, byte));
    let mut out = String::new();
    let (before, after) = match bare {
        "" | "-" => (name, ""),
        bare => name.split_once(bare).expect("a part of it"),
    };
    escape_all(&mut out, before);
    if !matches!(bare, "" | "-") {
        out.push_str(bare);
    }
    escape_all(&mut out, after);
    out.into()
}

/// The heading line that [`Writer`] writes.
pub const HEADING: &str = "rank,host,level,operation,collective,file,offset,length,start_ns,end_ns";

/// Writes records as CSV.
pub struct Writer<W: Write> {
    path: PathBuf,
    lines: csv::Writer<W>,
}

impl<W: Write> Writer<W> {
    /// Writes the heading. `path` is used in errors.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn new(path: &Path, out: W) -> Result<Self> {
        let mut writer = Self { path: path.to_owned(), lines: csv::Writer::from_writer(out) };
        writer.row(HEADING.split(','))?;
        Ok(writer)
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn push(&mut self, record: &Record, names: &Names) -> Result<()> {
        let file = if record.op.has_file() { names.file_name(record.file).unwrap_or_default() } else { "" };
        let file = escaped_cell(file);
        let number = |value: u64| value.to_string();
        self.row([
            &*number(u64::from(record.rank.0)),
            names.host_name(record.host).unwrap_or_default(),
            record.level.name(),
            record.op.name(),
            if record.collective { "yes" } else { "no" },
            &file,
            &number(record.offset.get()),
            &number(record.len.get()),
            &number(record.start.get()),
            &number(record.end.get()),
        ])
    }

    fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) -> Result<()> {
        self.lines.write_record(cells).map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => TraceError::io(&self.path, error),
            other => TraceError::Unfit { path: self.path.clone(), what: format!("{other:?}") },
        })
    }

    /// Flushes buffered lines and returns the output.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn finish(mut self) -> Result<W> {
        self.lines.flush().map_err(|error| TraceError::io(&self.path, error))?;
        let path = self.path;
        self.lines.into_inner().map_err(|error| TraceError::io(&path, error.into_error()))
    }
}

//! Traces as CSV: a heading, then a line for each operation.
//!
//! Columns may stand in any order; unknown ones are passed over. See docs/traces.md for the list.

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

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Rank,
    Host,
    File,
    Operation,
    Offset,
    Length,
    /// With nanoseconds in one of its unit.
    Start(u64),
    End(u64),
    Duration(u64),
    Level,
    Collective,
}

/// Nanoseconds in one of a column's unit, by the end of its name; seconds when it has none.
const UNITS: [(&str, u64); 5] =
    [("_ns", 1), ("_us", 1_000), ("_ms", 1_000_000), ("_s", 1_000_000_000), ("", 1_000_000_000)];

impl Column {
    fn named(name: &str) -> Option<Self> {
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

/// Whether `text`, the begin of a file, has a heading that this module reads, perhaps behind comments.
pub(crate) fn has_heading(text: &str) -> bool {
    let cell = |cell: &str| cell.trim().trim_matches('"').to_owned();
    let mut lines = text.lines().map(|line| line.split(',').map(cell).collect::<StringRecord>());
    lines.find(|line| is_heading(line) || !is_passed_over(line)).is_some_and(|line| is_heading(&line))
}

/// Whether the columns are those of a trace.
fn is_heading(line: &StringRecord) -> bool {
    let columns: Vec<_> = line.iter().filter_map(Column::named).collect();
    columns.contains(&Column::Operation) && columns.contains(&Column::File)
}

/// Whether a line is empty, or a comment.
fn is_passed_over(line: &StringRecord) -> bool {
    line.iter().all(str::is_empty) || line.get(0).is_some_and(|cell| cell.starts_with('#'))
}

/// A stream over a CSV file. Its memory: a line of at most 64 KiB, and the names.
pub struct Reader<R: Read> {
    path: PathBuf,
    lines: csv::Reader<Limited<R>>,
    columns: Vec<Option<Column>>,
    line: StringRecord,
    names: Names,
    info: Info,
    len: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Over anything that gives bytes; `path` stands in errors, `len` is how many bytes there are, 0 when unknown.
    ///
    /// # Errors
    /// What the system refuses; a heading that makes no sense.
    pub fn new(path: &Path, input: R, len: u64) -> Result<Self> {
        let input = Limited { input, since_line: 0 };
        let mut builder = ReaderBuilder::new();
        let mut lines = builder.has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(input);
        let mut heading = StringRecord::new();
        while lines.read_record(&mut heading).map_err(|error| failed(path, &error))?
            && !is_heading(&heading)
            && is_passed_over(&heading)
        {
            lines.get_mut().since_line = 0;
        }
        let line = heading.position().map_or(1, csv::Position::line);
        let wrong = |what: String| TraceError::Csv { path: path.to_owned(), line, what };
        let mut columns: Vec<Option<Column>> = Vec::new();
        for name in &heading {
            let column = Column::named(name);
            let twice = column.is_some_and(|column| {
                let same = |other: &Column| std::mem::discriminant(other) == std::mem::discriminant(&column);
                columns.iter().flatten().any(same)
            });
            if twice {
                return Err(wrong(format!("the column `{name}` says again what another says")));
            }
            columns.push(column);
        }
        for (needed, name) in [(Column::Operation, "operation"), (Column::File, "file")] {
            if !columns.contains(&Some(needed)) {
                return Err(wrong(format!("no column `{name}`; a heading is needed, such as {HEADING}")));
            }
        }
        let has = |test: fn(&Column) -> bool| columns.iter().flatten().any(test);
        if has(|column| matches!(column, Column::End(_)))
            && has(|column| matches!(column, Column::Duration(_)))
        {
            return Err(wrong("`end` and `duration` say the same; leave one of them out".into()));
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
                // Names as programs print them, of whatever bytes.
                error.into_byte_record().iter().map(as_text).collect()
            });
            self.line.set_position(position);
            if !is_passed_over(&self.line) {
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

/// A cell whose bytes that are not UTF-8 are escaped.
fn as_text(cell: &[u8]) -> String {
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
        let wrong = |what: &str| format!("`{cell}` is no {what}");
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
                    _ => return Err(wrong("yes or no")),
                }
            }
        }
    }
    record.op = op.ok_or("no operation in this line")?;
    let start = record.start.get();
    let end = end.or(duration.map(|duration| start.saturating_add(duration))).unwrap_or(start);
    if end < start {
        return Err("it ends before it begins".into());
    }
    record.end = Nanos(end);
    if record.op.has_file() {
        // One name has one text, whatever is written by its bytes here.
        let file = unescaped(file.ok_or("no file in this line")?);
        let file = escaped(&file);
        if file.len() > crate::names::NAME_BYTES_MAX {
            return Err("a file name longer than any".into());
        }
        record.file = names.file(&file).ok_or_else(|| format!("more than {NAMES_MAX} files"))?;
    }
    if record.offset.get().max(record.len.get()) > OFFSET_MAX {
        return Err("it ends past the largest offset".into());
    }
    Ok(record)
}

/// A number of bytes, with a binary unit if it has one.
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

/// A time in nanoseconds, rounded down; `unit` is nanoseconds in one. Exact for decimals, which floating point is not.
fn time(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !(fraction.is_empty() || digits(fraction)) {
        // Floating point as programs print very small times.
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

/// Longest line in bytes. A file without line ends would fill the memory otherwise.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Ends a file in which a line does not end.
struct Limited<R> {
    input: R,
    since_line: usize,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.since_line > LINE_BYTES_MAX {
            return Err(std::io::Error::other(format!("a line longer than {LINE_BYTES_MAX} bytes")));
        }
        let len = self.input.read(buf)?;
        self.since_line += len;
        Ok(len)
    }
}

/// A name in a cell, of which readers cut blanks off its ends, and to which an empty one and `-` say nothing.
fn told(name: &str) -> Cow<'_, str> {
    let bare = name.trim();
    if bare.len() == name.len() && name != "-" {
        return name.into();
    }
    let hidden = |out: &mut String, text: &str| text.bytes().for_each(|byte| escape(out, byte));
    let mut out = String::new();
    let (before, after) = match bare {
        "" | "-" => (name, ""),
        bare => name.split_once(bare).expect("a part of it"),
    };
    hidden(&mut out, before);
    if !matches!(bare, "" | "-") {
        out.push_str(bare);
    }
    hidden(&mut out, after);
    out.into()
}

/// The heading that [`Writer`] writes.
pub const HEADING: &str = "rank,host,level,operation,collective,file,offset,length,start_ns,end_ns";

/// Writes records as CSV.
pub struct Writer<W: Write> {
    path: PathBuf,
    lines: csv::Writer<W>,
}

impl<W: Write> Writer<W> {
    /// Writes the heading; `path` stands in errors.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(path: &Path, out: W) -> Result<Self> {
        let mut writer = Self { path: path.to_owned(), lines: csv::Writer::from_writer(out) };
        writer.row(HEADING.split(','))?;
        Ok(writer)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn push(&mut self, record: &Record, names: &Names) -> Result<()> {
        let file = if record.op.has_file() { names.file_name(record.file).unwrap_or_default() } else { "" };
        let file = told(file);
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

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn finish(mut self) -> Result<W> {
        self.lines.flush().map_err(|error| TraceError::io(&self.path, error))?;
        let path = self.path;
        self.lines.into_inner().map_err(|error| TraceError::io(&path, error.into_error()))
    }
}

//! Traces as [Parquet](https://parquet.apache.org): the columns of the CSV form, typed.
//!
//! | column | type |
//! | --- | --- |
//! | `rank` | UINT_32 |
//! | `host`, `level`, `operation`, `file` | STRING, by dictionary |
//! | `collective` | BOOLEAN |
//! | `offset`, `length` | UINT_64, bytes |
//! | `start_ns`, `end_ns` | UINT_64, nanoseconds since the trace began |
//!
//! `file` is null for a barrier and `host` where it is unknown. The key `weft.trace` of the file has what is known of
//! the program, as JSON.

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_trace::{Info, Names, Record, Result, TraceError};

/// Records in a row group: what is in memory at a time, and what a reader can skip as one.
pub const ROWS_PER_GROUP: usize = 128 << 10;

/// The key of the file's metadata with what is known of the program.
pub const INFO_KEY: &str = "weft.trace";

/// The columns of numbers that grow slowly from row to row, which differences make small.
const DELTAS: [&str; 4] = ["offset", "length", "start_ns", "end_ns"];

/// Writes records as Parquet. Its memory: a row group of [`ROWS_PER_GROUP`] records, the names, and a few hundred
/// bytes of the file's directory for each group.
pub struct Writer<W: Write + Send> {
    path: PathBuf,
    out: SerializedFileWriter<W>,
    rows: Rows,
    levels: Vec<Option<ByteArray>>,
    operations: Vec<Option<ByteArray>>,
    files: Vec<Option<ByteArray>>,
    hosts: Vec<Option<ByteArray>>,
}

/// The rows of a group, by column.
#[derive(Default)]
struct Rows {
    ranks: Vec<i32>,
    hosts: Vec<ByteArray>,
    host_is: Vec<i16>,
    levels: Vec<ByteArray>,
    operations: Vec<ByteArray>,
    collective: Vec<bool>,
    files: Vec<ByteArray>,
    file_is: Vec<i16>,
    numbers: [Vec<i64>; DELTAS.len()],
}

fn schema() -> Arc<Type> {
    let unsigned = |bits| Some(LogicalType::integer(bits, false));
    let column = |name: &str, physical, logical, repetition| {
        let built = Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build();
        Arc::new(built.expect("a fixed type"))
    };
    let text =
        |name: &str, repetition| column(name, Physical::BYTE_ARRAY, Some(LogicalType::String), repetition);
    let mut fields = vec![
        column("rank", Physical::INT32, unsigned(32), Repetition::REQUIRED),
        text("host", Repetition::OPTIONAL),
        text("level", Repetition::REQUIRED),
        text("operation", Repetition::REQUIRED),
        column("collective", Physical::BOOLEAN, None, Repetition::REQUIRED),
        text("file", Repetition::OPTIONAL),
    ];
    fields.extend(DELTAS.map(|name| column(name, Physical::INT64, unsigned(64), Repetition::REQUIRED)));
    Arc::new(Type::group_type_builder("trace").with_fields(fields).build().expect("a fixed schema"))
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("weft {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for name in DELTAS {
        let path = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file; `path` stands in errors.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(path: &Path, out: W) -> Result<Self> {
        let out = SerializedFileWriter::new(out, schema(), Arc::new(properties()))
            .map_err(|error| failed(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            out,
            rows: Rows::default(),
            levels: Vec::new(),
            operations: Vec::new(),
            files: Vec::new(),
            hosts: Vec::new(),
        })
    }

    /// Adds a record; `names` are those of its stream.
    ///
    /// # Errors
    /// What the system refuses when a row group is full.
    pub fn push(&mut self, record: &Record, names: &Names) -> Result<()> {
        let rows = &mut self.rows;
        rows.ranks.push(record.rank.0 as i32);
        let host = (record.host.0 > 0)
            .then(|| name(&mut self.hosts, record.host.0, || names.host_name(record.host)));
        rows.host_is.push(i16::from(host.is_some()));
        rows.hosts.extend(host);
        rows.levels.push(name(&mut self.levels, record.level as u32, || Some(record.level.name())));
        rows.operations.push(name(&mut self.operations, record.op as u32, || Some(record.op.name())));
        rows.collective.push(record.collective);
        let file = record
            .op
            .has_file()
            .then(|| name(&mut self.files, record.file.0, || names.file_name(record.file)));
        rows.file_is.push(i16::from(file.is_some()));
        rows.files.extend(file);
        let numbers = [record.offset.get(), record.len.get(), record.start.get(), record.end.get()];
        for (column, number) in rows.numbers.iter_mut().zip(numbers) {
            // UINT_64 is kept as the same 64 bits.
            column.push(number as i64);
        }
        if rows.ranks.len() >= ROWS_PER_GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        write(&mut self.out, &rows).map_err(|error| failed(&self.path, error))?;
        self.rows = rows.emptied();
        Ok(())
    }

    /// Ends the file with what is known of the program.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn finish(mut self, info: &Info) -> Result<W> {
        if !self.rows.ranks.is_empty() {
            self.group()?;
        }
        let json = serde_json::to_string(info).expect("plain data becomes JSON");
        self.out.append_key_value_metadata(KeyValue::new(INFO_KEY.to_owned(), json));
        let mut out = self.out.into_inner().map_err(|error| failed(&self.path, error))?;
        out.flush().map_err(|error| TraceError::io(&self.path, error))?;
        Ok(out)
    }
}

impl Rows {
    /// The same memory, for other rows.
    fn emptied(mut self) -> Self {
        self.ranks.clear();
        self.collective.clear();
        for names in [&mut self.hosts, &mut self.levels, &mut self.operations, &mut self.files] {
            names.clear();
        }
        self.host_is.clear();
        self.file_is.clear();
        self.numbers.iter_mut().for_each(Vec::clear);
        self
    }
}

/// A name whose bytes are shared by all rows that have it.
fn name<'a>(
    known: &mut Vec<Option<ByteArray>>,
    number: u32,
    name: impl Fn() -> Option<&'a str>,
) -> ByteArray {
    let at = number as usize;
    if known.len() <= at {
        known.resize(at + 1, None);
    }
    known[at].get_or_insert_with(|| ByteArray::from(name().unwrap_or_default())).clone()
}

fn write<W: Write + Send>(out: &mut SerializedFileWriter<W>, rows: &Rows) -> Result<(), ParquetError> {
    let mut group = out.next_row_group()?;
    let mut at = 0;
    while let Some(mut column) = group.next_column()? {
        match (column.untyped(), at) {
            (ColumnWriter::Int32ColumnWriter(column), 0) => column.write_batch(&rows.ranks, None, None),
            (ColumnWriter::ByteArrayColumnWriter(column), 1) => {
                column.write_batch(&rows.hosts, Some(&rows.host_is), None)
            }
            (ColumnWriter::ByteArrayColumnWriter(column), 2) => column.write_batch(&rows.levels, None, None),
            (ColumnWriter::ByteArrayColumnWriter(column), 3) => {
                column.write_batch(&rows.operations, None, None)
            }
            (ColumnWriter::BoolColumnWriter(column), 4) => column.write_batch(&rows.collective, None, None),
            (ColumnWriter::ByteArrayColumnWriter(column), 5) => {
                column.write_batch(&rows.files, Some(&rows.file_is), None)
            }
            (ColumnWriter::Int64ColumnWriter(column), 6..) => {
                column.write_batch(&rows.numbers[at - 6], None, None)
            }
            _ => unreachable!("the columns of the schema, in its order"),
        }?;
        column.close()?;
        at += 1;
    }
    group.close()?;
    Ok(())
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    // What the system refused in its own words.
    let error = match error {
        ParquetError::External(inner) => inner.downcast().map_or_else(std::io::Error::other, |error| *error),
        other => std::io::Error::other(other),
    };
    TraceError::io(path, error)
}

//! Writes traces as [Parquet](https://parquet.apache.org), with the columns of the CSV form and proper types.
//!
//! | column | type |
//! | --- | --- |
//! | `rank` | UINT_32 |
//! | `host`, `level`, `operation`, `file` | STRING, dictionary-encoded |
//! | `collective` | BOOLEAN |
//! | `offset`, `length` | UINT_64, bytes |
//! | `start_ns`, `end_ns` | UINT_64, nanoseconds since the trace began |
//!
//! `file` is null for a barrier, and `host` is null if unknown. The file's metadata key `weft.trace` holds information
//! about the program, as JSON.

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

/// Records in a row group, which bounds memory and is the unit that readers can skip.
pub const ROWS_PER_GROUP: usize = 128 << 10;

/// Metadata key of the information about the program, as JSON.
pub const INFO_KEY: &str = "weft.trace";

/// Numeric columns that change slowly from row to row, and therefore compress well as differences.
const DELTA_ENCODED: [&str; 4] = ["offset", "length", "start_ns", "end_ns"];

/// Writes records as Parquet. Memory is bounded by a row group of [`ROWS_PER_GROUP`] records, the names, and a few
/// hundred bytes of file metadata per row group.
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
    host_levels: Vec<i16>,
    levels: Vec<ByteArray>,
    operations: Vec<ByteArray>,
    collective: Vec<bool>,
    files: Vec<ByteArray>,
    file_levels: Vec<i16>,
    integers: [Vec<i64>; DELTA_ENCODED.len()],
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
    fields
        .extend(DELTA_ENCODED.map(|name| column(name, Physical::INT64, unsigned(64), Repetition::REQUIRED)));
    Arc::new(Type::group_type_builder("trace").with_fields(fields).build().expect("a fixed schema"))
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("weft {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for name in DELTA_ENCODED {
        let path = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

impl<W: Write + Send> Writer<W> {
    /// Creates a writer; `path` is used in error messages.
    ///
    /// # Errors
    /// I/O errors.
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

    /// Adds a record; `names` resolves its file and host.
    ///
    /// # Errors
    /// I/O errors when a full row group is written.
    pub fn push(&mut self, record: &Record, names: &Names) -> Result<()> {
        let rows = &mut self.rows;
        rows.ranks.push(record.rank.0 as i32);
        let host = (record.host.0 > 0)
            .then(|| name(&mut self.hosts, record.host.0, || names.host_name(record.host)));
        rows.host_levels.push(i16::from(host.is_some()));
        rows.hosts.extend(host);
        rows.levels.push(name(&mut self.levels, record.level as u32, || Some(record.level.name())));
        rows.operations.push(name(&mut self.operations, record.op as u32, || Some(record.op.name())));
        rows.collective.push(record.collective);
        let file = record
            .op
            .has_file()
            .then(|| name(&mut self.files, record.file.0, || names.file_name(record.file)));
        rows.file_levels.push(i16::from(file.is_some()));
        rows.files.extend(file);
        let integers = [record.offset.get(), record.len.get(), record.start.get(), record.end.get()];
        for (column, number) in rows.integers.iter_mut().zip(integers) {
            // UINT_64 is stored as INT64 with the same bits.
            column.push(number as i64);
        }
        if rows.ranks.len() >= ROWS_PER_GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        write(&mut self.out, &rows).map_err(|error| failed(&self.path, error))?;
        self.rows = rows.cleared();
        Ok(())
    }

    /// Finishes the file, and stores the information about the program.
    ///
    /// # Errors
    /// I/O errors.
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
    /// Clears the rows and keeps their allocations.
    fn cleared(mut self) -> Self {
        self.ranks.clear();
        self.collective.clear();
        for names in [&mut self.hosts, &mut self.levels, &mut self.operations, &mut self.files] {
            names.clear();
        }
        self.host_levels.clear();
        self.file_levels.clear();
        self.integers.iter_mut().for_each(Vec::clear);
        self
    }
}

/// A name whose bytes are shared by all rows that contain it.
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
                column.write_batch(&rows.hosts, Some(&rows.host_levels), None)
            }
            (ColumnWriter::ByteArrayColumnWriter(column), 2) => column.write_batch(&rows.levels, None, None),
            (ColumnWriter::ByteArrayColumnWriter(column), 3) => {
                column.write_batch(&rows.operations, None, None)
            }
            (ColumnWriter::BoolColumnWriter(column), 4) => column.write_batch(&rows.collective, None, None),
            (ColumnWriter::ByteArrayColumnWriter(column), 5) => {
                column.write_batch(&rows.files, Some(&rows.file_levels), None)
            }
            (ColumnWriter::Int64ColumnWriter(column), 6..) => {
                column.write_batch(&rows.integers[at - 6], None, None)
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
    // Unwraps the original I/O error.
    let error = match error {
        ParquetError::External(inner) => inner.downcast().map_or_else(std::io::Error::other, |error| *error),
        other => std::io::Error::other(other),
    };
    TraceError::io(path, error)
}

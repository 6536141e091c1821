//! File format of a dump: all rows of a database at one moment.
//!
//! ```text
//! offset size | field
//!      0    8 | magic        "WEFTDUMP"
//!      8    4 | version      1
//!     12    8 | made         wall clock, nanoseconds since 1970, signed
//!     20    4 | identity_len
//!     24    i | identity     identity file of the database
//!   24+i    4 | crc          CRC-32 of all bytes before it
//! ```
//!
//! Rows follow, in ascending order of table and key:
//!
//! ```text
//!      0    1 kind         1
//!      1    1 table        number
//!      2    2 key_len
//!      4    4 value_len
//!      8    k key
//!    8+k    v value        sealed, see record.rs
//!  8+k+v    4 crc          CRC-32 of the row's bytes before it
//! ```
//!
//! The last record has no row, and the file ends after it:
//!
//! ```text
//!      0    1 kind         2
//!      1    7 reserved     zero
//!      8    8 rows         number of rows
//!     16    8 hash         XXH3-64 of the file before this record
//!     24    4 crc          CRC-32 of bytes 0 to 23 of this record
//! ```
//!
//! Numbers are little-endian. A truncated file lacks the last record; missing or moved rows change the hash.

use super::engine::Table;
use super::record::Untrusted;
use std::io::{self, Read, Write};
use weft_core::Timestamp;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: [u8; 8] = *b"WEFTDUMP";
const VERSION: u32 = 1;
const FIXED_LEN: usize = 24;
const KIND_ROW: u8 = 1;
const KIND_END: u8 = 2;
const HEAD_LEN: usize = 8;
const END_LEN: usize = 28;
/// Maximum length in bytes of an identity file: a name and some numbers.
const IDENTITY_LEN_MAX: u32 = 1 << 17;
/// Maximum length in bytes of a value: far above what the protocol lets clients store.
const VALUE_LEN_MAX: u32 = 16 << 20;

/// Header of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpHeader {
    /// Time when the dump was made.
    pub made: Timestamp,
    /// Identity file of the database.
    pub identity: Vec<u8>,
}

/// A row of a dump; its checksums have been verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpRow {
    /// Table.
    pub table: Table,
    /// Key.
    pub key: Vec<u8>,
    /// Sealed value.
    pub value: Vec<u8>,
}

/// Error of reading a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not begin with a dump header.
    #[error("it is not a metadata dump; give a file made by `weft meta dump`")]
    Foreign,
    /// A later version of Weft made the dump.
    #[error("the dump has format version {0}, this program knows {VERSION}; use the Weft that made it")]
    Version(u32),
    /// The file ends too early.
    #[error("the dump is cut short after {rows} rows; use another one")]
    Cut {
        /// Number of rows before the end.
        rows: u64,
    },
    /// The dump is damaged.
    #[error("the dump is damaged after {rows} rows ({what}); use another one")]
    Damaged {
        /// Number of intact rows before the damage.
        rows: u64,
        /// Damaged part.
        what: &'static str,
    },
}

/// Writer of a dump.
pub struct DumpWriter<W> {
    out: W,
    hash: Xxh3,
    rows: u64,
    buffer: Vec<u8>,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(out: W, header: &DumpHeader) -> io::Result<Self> {
        let mut this = Self { out, hash: Xxh3::new(), rows: 0, buffer: Vec::new() };
        let made = i64::try_from(header.made.0).unwrap_or(i64::MAX);
        let len = u32::try_from(header.identity.len()).expect("an identity is short");
        this.buffer.extend_from_slice(&MAGIC);
        this.buffer.extend_from_slice(&VERSION.to_le_bytes());
        this.buffer.extend_from_slice(&made.to_le_bytes());
        this.buffer.extend_from_slice(&len.to_le_bytes());
        this.buffer.extend_from_slice(&header.identity);
        this.close_record()?;
        Ok(this)
    }

    /// Writes the next row. Rows must come in ascending order of table and key.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn row(&mut self, table: Table, key: &[u8], value: &[u8]) -> io::Result<()> {
        let key_len = u16::try_from(key.len()).expect("keys are a name and some numbers");
        let value_len = u32::try_from(value.len()).expect("values are bounded by the protocol");
        self.buffer.extend_from_slice(&[KIND_ROW, table as u8]);
        self.buffer.extend_from_slice(&key_len.to_le_bytes());
        self.buffer.extend_from_slice(&value_len.to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        self.rows += 1;
        self.close_record()
    }

    /// Writes the last record. Returns the file and the number of rows. Without it the dump counts as truncated.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn end(mut self) -> io::Result<(W, u64)> {
        let hash = self.hash.digest();
        self.buffer.extend_from_slice(&[KIND_END, 0, 0, 0, 0, 0, 0, 0]);
        self.buffer.extend_from_slice(&self.rows.to_le_bytes());
        self.buffer.extend_from_slice(&hash.to_le_bytes());
        self.close_record()?;
        self.out.flush()?;
        Ok((self.out, self.rows))
    }

    /// Writes the buffer and its checksum.
    fn close_record(&mut self) -> io::Result<()> {
        let crc = crc32fast::hash(&self.buffer);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.hash.update(&self.buffer);
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Reader of a dump that verifies it row by row.
pub struct DumpReader<R> {
    file: R,
    header: DumpHeader,
    hash: Xxh3,
    rows: u64,
    last: Option<(Table, Vec<u8>)>,
    ended: bool,
}

impl<R: Read> DumpReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`DumpError`].
    pub fn new(mut file: R) -> Result<Self, DumpError> {
        let mut bytes = vec![0; FIXED_LEN];
        match file.read_exact(&mut bytes[..MAGIC.len()]) {
            Ok(()) if bytes[..8] == MAGIC => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(DumpError::Foreign),
        }
        read(&mut file, &mut bytes[MAGIC.len()..], 0)?;
        let u32_at =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (version, len) = (u32_at(&bytes, 8), u32_at(&bytes, 20));
        if version != VERSION {
            return Err(DumpError::Version(version));
        }
        if len > IDENTITY_LEN_MAX {
            return Err(DumpError::Damaged { rows: 0, what: "its header" });
        }
        bytes.resize(FIXED_LEN + len as usize + 4, 0);
        read(&mut file, &mut bytes[FIXED_LEN..], 0)?;
        let (content, crc) = bytes.split_last_chunk::<4>().expect("longer");
        if crc32fast::hash(content) != u32::from_le_bytes(*crc) {
            return Err(DumpError::Damaged { rows: 0, what: "its header" });
        }
        let made = i64::from_le_bytes(content[12..20].try_into().expect("eight bytes"));
        let header =
            DumpHeader { made: Timestamp(i128::from(made)), identity: content[FIXED_LEN..].to_vec() };
        let mut hash = Xxh3::new();
        hash.update(&bytes);
        Ok(Self { file, header, hash, rows: 0, last: None, ended: false })
    }

    /// Returns the header of the dump.
    pub fn header(&self) -> &DumpHeader {
        &self.header
    }

    /// Returns the next row; `None` after the last one, if the whole file is intact.
    ///
    /// # Errors
    /// [`DumpError`].
    pub fn next_row(&mut self) -> Result<Option<DumpRow>, DumpError> {
        if self.ended {
            return Ok(None);
        }
        let rows = self.rows;
        let damaged = |what| DumpError::Damaged { rows, what };
        let mut head = [0; HEAD_LEN];
        read(&mut self.file, &mut head, rows)?;
        if head[0] == KIND_END {
            return self.read_end(&head).map(|()| None);
        }
        if head[0] != KIND_ROW {
            return Err(damaged("an unknown kind of record"));
        }
        let key_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if value_len > VALUE_LEN_MAX {
            return Err(damaged("a length"));
        }
        let mut rest = vec![0; key_len];
        read(&mut self.file, &mut rest, rows)?;
        let end = key_len + value_len as usize + 4;
        // Allocate memory as bytes arrive, because a damaged length may be huge.
        while rest.len() < end {
            let from = rest.len();
            rest.resize(end.min(from + (64 << 10)), 0);
            read(&mut self.file, &mut rest[from..], rows)?;
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head);
        hasher.update(&rest[..end - 4]);
        if hasher.finalize().to_le_bytes() != rest[end - 4..] {
            return Err(damaged("the checksum of a row"));
        }
        self.hash.update(&head);
        self.hash.update(&rest);
        let table = Table::from_number(head[1]).ok_or(damaged("an unknown table"))?;
        rest.truncate(end - 4);
        let value = rest.split_off(key_len);
        let key = rest;
        if self.last.as_ref().is_some_and(|(last, before)| (*last, before) >= (table, &key)) {
            return Err(damaged("the order of its rows"));
        }
        if Untrusted::new(value.clone()).verify(table, &key).is_err() {
            return Err(damaged("the seal of a row"));
        }
        self.last = Some((table, key.clone()));
        self.rows += 1;
        Ok(Some(DumpRow { table, key, value }))
    }

    fn read_end(&mut self, head: &[u8; HEAD_LEN]) -> Result<(), DumpError> {
        let rows = self.rows;
        let damaged = |what| Err(DumpError::Damaged { rows, what });
        let mut end = [0; END_LEN];
        end[..HEAD_LEN].copy_from_slice(head);
        read(&mut self.file, &mut end[HEAD_LEN..], rows)?;
        if crc32fast::hash(&end[..24]).to_le_bytes() != end[24..] || end[1..8] != [0; 7] {
            return damaged("its end");
        }
        if end[8..16] != rows.to_le_bytes() || end[16..24] != self.hash.digest().to_le_bytes() {
            return damaged("the checksum of the file");
        }
        if self.file.read(&mut [0])? > 0 {
            return damaged("bytes after its end");
        }
        self.ended = true;
        Ok(())
    }

    /// Returns the number of rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

fn read(file: &mut impl Read, bytes: &mut [u8], rows: u64) -> Result<(), DumpError> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DumpError::Cut { rows },
        _ => DumpError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::seal;
    use super::*;

    fn header() -> DumpHeader {
        DumpHeader { made: Timestamp(0x0102_0304), identity: b"id".to_vec() }
    }

    fn sample() -> Vec<u8> {
        let mut dump = DumpWriter::new(Vec::new(), &header()).expect("written");
        for (table, key) in [(Table::Counters, &b"k"[..]), (Table::Inodes, b"a"), (Table::Inodes, b"b")] {
            dump.row(table, key, &seal(table, key, &300u32)).expect("written");
        }
        dump.end().expect("written").0
    }

    fn all(bytes: &[u8]) -> Result<Vec<DumpRow>, DumpError> {
        let mut dump = DumpReader::new(bytes)?;
        let mut rows = Vec::new();
        while let Some(row) = dump.next_row()? {
            rows.push(row);
        }
        assert_eq!(dump.rows(), rows.len() as u64);
        Ok(rows)
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"WEFTDUMP\x01\0\0\0\x04\x03\x02\x01\0\0\0\0\x02\0\0\0id".to_vec();
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        for (table, key) in [(0, b'k'), (1, b'a'), (1, b'b')] {
            let mut row = vec![1, table, 1, 0, 6, 0, 0, 0, key, 0xac, 0x02];
            let seal = crc32fast::hash(&[table, key, 0xac, 0x02]);
            row.extend_from_slice(&seal.to_le_bytes());
            let crc = crc32fast::hash(&row);
            row.extend_from_slice(&crc.to_le_bytes());
            expected.extend_from_slice(&row);
        }
        let mut end = vec![2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        end.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&expected).to_le_bytes());
        let crc = crc32fast::hash(&end);
        end.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(&end);
        assert_eq!(sample(), expected);
    }

    #[test]
    fn dumps_round_trip() {
        let bytes = sample();
        assert_eq!(DumpReader::new(&bytes[..]).expect("read").header(), &header());
        let rows = all(&bytes).expect("sound");
        let keys: Vec<_> = rows.iter().map(|row| (row.table, &row.key[..])).collect();
        assert_eq!(keys, [(Table::Counters, &b"k"[..]), (Table::Inodes, b"a"), (Table::Inodes, b"b")]);
        assert_eq!(rows[1].value, seal(Table::Inodes, b"a", &300u32));
    }

    #[test]
    fn every_flipped_bit_and_every_missing_byte_is_rejected() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(all(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(all(&good[..len]).is_err(), "length {len}");
        }
        assert!(all(&[&good[..], b"x"].concat()).is_err(), "an extra byte");
    }

    #[test]
    fn missing_moved_and_duplicate_rows_are_rejected() {
        let good = sample();
        let (head, row) = (30, 19);
        let rows: Vec<_> = good[head..head + 3 * row].chunks(row).collect();
        let end = &good[head + 3 * row..];
        let with = |order: &[usize]| {
            let mut bytes = good[..head].to_vec();
            order.iter().for_each(|at| bytes.extend_from_slice(rows[*at]));
            bytes.extend_from_slice(end);
            all(&bytes)
        };
        assert_eq!(with(&[0, 1, 2]).expect("sound").len(), 3);
        for order in [&[0, 1][..], &[0, 2], &[0, 2, 1], &[1, 0, 2], &[0, 1, 1, 2], &[]] {
            assert!(with(order).is_err(), "{order:?}");
        }
    }

    #[test]
    fn foreign_files_and_later_versions_have_distinct_errors() {
        assert!(matches!(all(b"[cluster]\nname = \"x\""), Err(DumpError::Foreign)));
        assert!(matches!(all(b""), Err(DumpError::Foreign)));
        let mut later = sample();
        later[8] = 2;
        assert!(matches!(all(&later), Err(DumpError::Version(2))));
        assert!(matches!(all(&sample()[..40]), Err(DumpError::Cut { rows: 0 })));
    }
}

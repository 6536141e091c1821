//! Writes `.wtrace` in bounded memory. If the program dies, the blocks written so far remain readable.

use super::{BLOCK_HEADER_LEN, HEADER_LEN, header};
use super::{BlockError, BlockKind, Header, block_len, decode_block, decode_names};
use super::{Encoder, block};
use crate::error::{Result, TraceError};
use crate::names::{FileId, HostId, NAME_BYTES_MAX, Names};
use crate::record::Record;
use crate::stream::Info;
use crate::varint;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Maximum number of records in a block, and so of records lost when the program dies.
const RECORDS_PER_BLOCK: usize = 4096;
/// Plain length at which a block is written, in bytes.
const PLAIN_PER_BLOCK: usize = 128 << 10;

/// Writer of a trace. Memory holds one block of records and the names.
///
/// Records may come in any order, but those of one rank should come in the order in which they started. If the program
/// dies, records that were not [`Writer::flush`]ed are lost. Readers and [`Writer::append`] detect an incomplete block.
pub struct Writer<W: Write = File> {
    path: PathBuf,
    out: W,
    names: Names,
    /// Encoded names that are not in the file yet.
    new_names: Vec<u8>,
    new_names_count: u32,
    encoder: Encoder,
    scratch: Vec<u8>,
    records: u64,
}

impl Writer<File> {
    /// Creates or truncates the file and writes the header.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn create(path: &Path) -> Result<Self> {
        let out = File::create(path).map_err(|error| TraceError::io(path, error))?;
        Self::to(path, out)
    }

    /// Opens a trace for appending, or creates it. An incomplete block at the end is removed.
    ///
    /// # Errors
    /// Fails if the file cannot be accessed, is not a trace, or is damaged before its last block.
    pub fn append(path: &Path) -> Result<Self> {
        let failed = |error| TraceError::io(path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if len == 0 {
            return Self::to(path, file);
        }
        let (names, records, good) = scan(path, &mut file, len)?;
        file.set_len(good).map_err(failed)?;
        file.seek(SeekFrom::Start(good)).map_err(failed)?;
        Ok(Self { names, records, ..Self::over(path, file) })
    }

    /// Flushes buffered records and syncs the file to disk.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.out.sync_data().map_err(|error| TraceError::io(&self.path, error))
    }
}

/// Returns the names and the number of records in a file, and the end of its last valid block.
fn scan(path: &Path, file: &mut File, len: u64) -> Result<(Names, u64, u64)> {
    let failed = |error| TraceError::io(path, error);
    let damaged = |at, what: &str| TraceError::Damaged { path: path.to_owned(), at, what: what.to_owned() };
    let mut head = [0; HEADER_LEN];
    file.read_exact(&mut head).map_err(failed)?;
    Header::decode(&head).map_err(|what| damaged(0, &what))?;
    let (mut names, mut records, mut at) = (Names::default(), 0, HEADER_LEN as u64);
    let mut bytes = Vec::new();
    while len - at >= BLOCK_HEADER_LEN as u64 {
        let mut head = [0; BLOCK_HEADER_LEN];
        file.read_exact(&mut head).map_err(failed)?;
        let Ok(block_len) = block_len(&head) else {
            // A file system leaves zeros in place of lost data. Other bytes are not Weft's to remove.
            if head.iter().all(|byte| *byte == 0) {
                break;
            }
            return Err(damaged(at, "no block marker"));
        };
        if at + block_len as u64 > len {
            break;
        }
        bytes.clear();
        bytes.extend_from_slice(&head);
        bytes.resize(block_len, 0);
        file.read_exact(&mut bytes[BLOCK_HEADER_LEN..]).map_err(failed)?;
        match decode_block(&bytes) {
            Ok(block) => match block.kind {
                BlockKind::Records => records += u64::from(block.items),
                BlockKind::Names => {
                    decode_names(&block.plain, block.items, &mut names).map_err(|what| damaged(at, what))?;
                }
                BlockKind::Info | BlockKind::End => {}
            },
            Err(_) if at + block_len as u64 == len => break,
            Err(BlockError::Bad { what, .. }) => return Err(damaged(at, what)),
            Err(BlockError::Short) => unreachable!("all of it was read"),
        }
        at += block_len as u64;
    }
    Ok((names, records, at))
}

impl<W: Write> Writer<W> {
    /// Writes the header to `out`. `path` is used in errors.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn to(path: &Path, out: W) -> Result<Self> {
        let mut writer = Self::over(path, out);
        writer.put(&header())?;
        Ok(writer)
    }

    fn over(path: &Path, out: W) -> Self {
        Self {
            path: path.to_owned(),
            out,
            names: Names::default(),
            new_names: Vec::new(),
            new_names_count: 0,
            encoder: Encoder::default(),
            scratch: Vec::new(),
            records: 0,
        }
    }

    /// Returns a file's number and adds the name if it is new.
    ///
    /// # Errors
    /// Fails if the trace has too many files.
    pub fn file(&mut self, name: &str) -> Result<FileId> {
        let name = within(name);
        let before = self.names.files();
        let file = self.names.file(name).ok_or_else(|| self.too_many())?;
        if file.0 == before {
            self.name(0, name)?;
        }
        Ok(file)
    }

    /// Returns a host's number and adds the name if it is new.
    ///
    /// # Errors
    /// Fails if the trace has too many hosts.
    pub fn host(&mut self, name: &str) -> Result<HostId> {
        let name = within(name);
        let before = self.names.hosts();
        let host = self.names.host(name).ok_or_else(|| self.too_many())?;
        if host.0 == before + 1 {
            self.name(1, name)?;
        }
        Ok(host)
    }

    fn too_many(&self) -> TraceError {
        TraceError::Unfit { path: self.path.clone(), what: "more names than a trace may contain".into() }
    }

    fn name(&mut self, kind: u8, name: &str) -> Result<()> {
        // Names stay in memory until a block of records needs them.
        self.new_names.push(kind);
        varint::put(&mut self.new_names, name.len() as u64);
        self.new_names.extend_from_slice(name.as_bytes());
        self.new_names_count += 1;
        if self.new_names.len() >= PLAIN_PER_BLOCK { self.write_names() } else { Ok(()) }
    }

    /// Names added so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Appends a record. Its file and host must have been added to this writer.
    ///
    /// # Errors
    /// Returns the operating system's error if a full block cannot be written.
    ///
    /// # Panics
    /// Panics if the record's file or host was not added to this writer.
    pub fn push(&mut self, record: &Record) -> Result<()> {
        assert!(!record.op.has_file() || record.file.0 < self.names.files(), "a file without a name");
        assert!(record.host.0 <= self.names.hosts(), "a host without a name");
        self.encoder.push(record);
        self.records += 1;
        if self.encoder.len() >= RECORDS_PER_BLOCK || self.encoder.plain_len() >= PLAIN_PER_BLOCK {
            self.flush()?;
        }
        Ok(())
    }

    /// Number of records appended, including those in memory.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes facts about the program. If called more than once, the last call counts.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn info(&mut self, info: &Info) -> Result<()> {
        let json = serde_json::to_vec(info).expect("serialization cannot fail");
        self.write_block(3, 1, &json)
    }

    /// Writes buffered names and records.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn flush(&mut self) -> Result<()> {
        self.write_names()?;
        if self.encoder.is_empty() {
            return Ok(());
        }
        self.scratch.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        self.encoder.finish(&mut scratch);
        let written = self.put(&scratch);
        self.scratch = scratch;
        written
    }

    fn write_names(&mut self) -> Result<()> {
        if self.new_names.is_empty() {
            return Ok(());
        }
        let names = std::mem::take(&mut self.new_names);
        let count = std::mem::take(&mut self.new_names_count);
        let written = self.write_block(2, count, &names);
        self.new_names = names;
        self.new_names.clear();
        written
    }

    fn write_block(&mut self, kind: u8, items: u32, plain: &[u8]) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        block(&mut scratch, kind, items, plain);
        let written = self.put(&scratch);
        self.scratch = scratch;
        written
    }

    /// Writes a block with one call, so that a program that dies leaves complete blocks.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error: io::Error| TraceError::io(&self.path, error))
    }

    /// Flushes and writes the end block.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn finish(mut self) -> Result<W> {
        self.flush()?;
        let mut plain = Vec::new();
        varint::put(&mut plain, self.records);
        self.write_block(4, 0, &plain)?;
        self.out.flush().map_err(|error| TraceError::io(&self.path, error))?;
        Ok(self.out)
    }
}

/// Truncates a name to the format's maximum length, at a character boundary.
fn within(name: &str) -> &str {
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = if name.len() <= NAME_BYTES_MAX {
        name.len()
    } else {
        (0..=NAME_BYTES_MAX).rev().find(fits).unwrap_or(0)
    };
    &name[..end]
}

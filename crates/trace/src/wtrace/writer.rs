//! Writes records as they come, in bounded memory, so that what was written before a program dies can be read.

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

/// Records in a block, unless flushed before: a program that dies loses at most so many.
const RECORDS_PER_BLOCK: usize = 4096;
/// Bytes of a block before compression at which it is written, whatever its records.
const PLAIN_PER_BLOCK: usize = 128 << 10;

/// A trace that is being written. Its memory: a block of records, and the names.
///
/// Records may come in any order; those of one rank should come in the order in which they began. What was not
/// [`Writer::flush`]ed when the program dies is lost; a torn block is noticed by readers and by [`Writer::append`].
pub struct Writer<W: Write = File> {
    path: PathBuf,
    out: W,
    names: Names,
    /// Names that are not in the file yet.
    new_names: Vec<u8>,
    new_names_count: u32,
    encoder: Encoder,
    scratch: Vec<u8>,
    records: u64,
}

impl Writer<File> {
    /// Begins a trace; what was there is gone.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn create(path: &Path) -> Result<Self> {
        let out = File::create(path).map_err(|error| TraceError::io(path, error))?;
        Self::to(path, out)
    }

    /// Goes on with a trace that a writer finished or left, or begins one. A torn tail is cut off.
    ///
    /// # Errors
    /// What the system refuses; a file that is no trace or is damaged before its tail.
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

    /// Writes what is still in memory and brings all of it to the disk.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.out.sync_data().map_err(|error| TraceError::io(&self.path, error))
    }
}

/// The names and the number of records in a file, and where its last good block ends.
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
            // Zeros are what a file system leaves of bytes that it lost; anything else is not ours to cut off.
            if head.iter().all(|byte| *byte == 0) {
                break;
            }
            return Err(damaged(at, "no block begins here"));
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
    /// Begins a trace in anything that takes bytes; `path` stands in errors.
    ///
    /// # Errors
    /// What the system refuses.
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

    /// The number of a file, new or known.
    ///
    /// # Errors
    /// When there are too many files in the trace.
    pub fn file(&mut self, name: &str) -> Result<FileId> {
        let name = within(name);
        let before = self.names.files();
        let file = self.names.file(name).ok_or_else(|| self.too_many())?;
        if file.0 == before {
            self.name(0, name)?;
        }
        Ok(file)
    }

    /// The number of a host, new or known.
    ///
    /// # Errors
    /// When there are too many hosts in the trace.
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
        TraceError::Unfit { path: self.path.clone(), what: "more names than a trace can have".into() }
    }

    fn name(&mut self, kind: u8, name: &str) -> Result<()> {
        // Names lie in memory until a block of records needs them.
        self.new_names.push(kind);
        varint::put(&mut self.new_names, name.len() as u64);
        self.new_names.extend_from_slice(name.as_bytes());
        self.new_names_count += 1;
        if self.new_names.len() >= PLAIN_PER_BLOCK { self.write_names() } else { Ok(()) }
    }

    /// The names so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Adds a record. Its file and host must come from this writer.
    ///
    /// # Errors
    /// What the system refuses when a block is full.
    ///
    /// # Panics
    /// When its file or host is none of this writer's.
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

    /// Number of records in the file, those in memory among them.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes what is known of the program; the last one that was written counts.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn info(&mut self, info: &Info) -> Result<()> {
        let json = serde_json::to_vec(info).expect("plain data becomes JSON");
        self.write_block(3, 1, &json)
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// What the system refuses.
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

    /// One write for each block, so that a program that dies leaves whole ones.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error: io::Error| TraceError::io(&self.path, error))
    }

    /// Ends the trace: what is in memory, and an end block.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn finish(mut self) -> Result<W> {
        self.flush()?;
        let mut plain = Vec::new();
        varint::put(&mut plain, self.records);
        self.write_block(4, 0, &plain)?;
        self.out.flush().map_err(|error| TraceError::io(&self.path, error))?;
        Ok(self.out)
    }
}

/// As much of a name as the format takes.
fn within(name: &str) -> &str {
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = if name.len() <= NAME_BYTES_MAX {
        name.len()
    } else {
        (0..=NAME_BYTES_MAX).rev().find(fits).unwrap_or(0)
    };
    &name[..end]
}

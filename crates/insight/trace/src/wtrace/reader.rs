//! Reads a `.wtrace` file or stream, block by block.

use super::{BLOCK_HEADER_LEN, HEADER_LEN};
use super::{Block, BlockError, BlockKind, Header, block_len, decode_block, decode_names, decode_records};
use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::record::Record;
use crate::stream::{Info, RecordStream};
use crate::varint::Cursor;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// State of a trace's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEnd {
    /// The end has not been reached.
    Unread,
    /// The trace ends with an end block.
    Finished,
    /// The trace ends after a complete block that is not an end block: its writer is running or has died.
    Open,
    /// The trace ends inside a block: its writer died while writing.
    Truncated {
        /// Offset of the incomplete block in bytes.
        at: u64,
    },
}

/// A record stream over a `.wtrace` file or pipe. Memory holds one block and the names.
pub struct Reader<R: Read = BufReader<File>> {
    path: PathBuf,
    input: R,
    at: u64,
    len: u64,
    names: Names,
    info: Info,
    records: Vec<Record>,
    next: usize,
    bytes: Vec<u8>,
    end: TraceEnd,
    last_was_end: bool,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or its header is invalid.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error| TraceError::io(path, error);
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Self::new(path, BufReader::with_capacity(256 << 10, file), len)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header from `input`. `path` is used in errors; `len` is the input's length in bytes, 0 if unknown.
    ///
    /// # Errors
    /// Fails if the input cannot be read or its header is invalid.
    pub fn new(path: &Path, mut input: R, len: u64) -> Result<Self> {
        let mut head = Vec::new();
        let took = (&mut input).take(HEADER_LEN as u64).read_to_end(&mut head);
        took.map_err(|error| TraceError::io(path, error))?;
        Header::decode(&head).map_err(|what| TraceError::Damaged { path: path.to_owned(), at: 0, what })?;
        Ok(Self {
            path: path.to_owned(),
            input,
            at: HEADER_LEN as u64,
            len,
            names: Names::default(),
            info: Info::default(),
            records: Vec::new(),
            next: 0,
            bytes: Vec::new(),
            end: TraceEnd::Unread,
            last_was_end: false,
        })
    }

    /// State of the trace's end, known once the stream has ended.
    pub fn end(&self) -> TraceEnd {
        self.end
    }

    /// Path used in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one block. Returns false at the end.
    fn read_block(&mut self) -> Result<bool> {
        self.bytes.clear();
        self.read(BLOCK_HEADER_LEN)?;
        if self.bytes.is_empty() {
            self.end = if self.last_was_end { TraceEnd::Finished } else { TraceEnd::Open };
            if self.end == TraceEnd::Open {
                self.info
                    .notes
                    .push("the trace has no end mark: the program is still running or has died".into());
            }
            return Ok(false);
        }
        let Some(&head) = self.bytes.first_chunk::<BLOCK_HEADER_LEN>() else { return Ok(self.truncated()) };
        let decoded = match block_len(&head) {
            Ok(len) => {
                self.read(len - BLOCK_HEADER_LEN)?;
                decode_block(&self.bytes)
            }
            Err(error) => Err(error),
        };
        match decoded {
            Ok(block) => {
                self.apply(&block)?;
                self.at += block.len as u64;
                Ok(true)
            }
            Err(BlockError::Short) => Ok(self.truncated()),
            // After a host crash, pages that did not reach the disk are zero, or stale within the last block.
            Err(BlockError::Bad { ends: Some(_), .. }) if self.at_end()? => Ok(self.truncated()),
            Err(BlockError::Bad { ends: None, .. }) if self.is_zero_to_end()? => Ok(self.truncated()),
            Err(BlockError::Bad { what, .. }) => Err(self.damaged(what)),
        }
    }

    /// Reads up to `len` more bytes of the block.
    fn read(&mut self, len: usize) -> Result<()> {
        let took = (&mut self.input).take(len as u64).read_to_end(&mut self.bytes);
        took.map(drop).map_err(|error| TraceError::io(&self.path, error))
    }

    fn truncated(&mut self) -> bool {
        self.end = TraceEnd::Truncated { at: self.at };
        let at = self.at;
        self.info.notes.push(format!(
            "the trace is truncated at byte {at}: later records were not written and are missing"
        ));
        false
    }

    fn at_end(&mut self) -> Result<bool> {
        let before = self.bytes.len();
        self.read(1)?;
        Ok(self.bytes.len() == before)
    }

    /// Whether the bytes of the current block and all that follow are zero.
    fn is_zero_to_end(&mut self) -> Result<bool> {
        loop {
            if self.bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            self.bytes.clear();
            self.read(64 << 10)?;
            if self.bytes.is_empty() {
                return Ok(true);
            }
        }
    }

    fn damaged(&self, what: &str) -> TraceError {
        TraceError::Damaged { path: self.path.clone(), at: self.at, what: what.to_owned() }
    }

    fn apply(&mut self, block: &Block) -> Result<()> {
        self.last_was_end = false;
        let taken = match block.kind {
            BlockKind::Records => {
                self.records.clear();
                self.next = 0;
                decode_records(&block.plain, block.items, &self.names, &mut self.records)
            }
            BlockKind::Names => decode_names(&block.plain, block.items, &mut self.names),
            BlockKind::Info => serde_json::from_slice(&block.plain)
                .map(|info| self.info = info)
                .map_err(|_| "the description of the program is invalid"),
            BlockKind::End => {
                self.last_was_end = true;
                Cursor::new(&block.plain).number().map(drop).ok_or("an end block has no record count")
            }
        };
        taken.map_err(|what| self.damaged(what))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.get(self.next) {
                self.next += 1;
                return Some(Ok(*record));
            }
            self.records.clear();
            self.next = 0;
            if self.end != TraceEnd::Unread {
                return None;
            }
            match self.read_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.records.clear();
                    self.end = TraceEnd::Truncated { at: self.at };
                    return Some(Err(error));
                }
            }
        }
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
        (self.at, self.len)
    }
}

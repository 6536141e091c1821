//! Reads a trace block by block.

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

/// How a trace ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// Its end was not reached yet.
    Unread,
    /// By an end block.
    Finished,
    /// After a whole block: its writer still runs or has died.
    Open,
    /// Within a block that begins here: what its writer had not written when it died is missing.
    Torn {
        /// Offset in bytes.
        at: u64,
    },
}

/// A stream over a `.wtrace` file or a pipe that has one. Its memory: a block, and the names.
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
    tail: Tail,
    last_was_end: bool,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// What the system refuses; a file that is no trace.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |error| TraceError::io(path, error);
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Self::new(path, BufReader::with_capacity(256 << 10, file), len)
    }
}

impl<R: Read> Reader<R> {
    /// Over anything that gives bytes; `path` stands in errors, `len` is how many there are, 0 when unknown.
    ///
    /// # Errors
    /// What the system refuses; bytes that are no trace.
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
            tail: Tail::Unread,
            last_was_end: false,
        })
    }

    /// How the trace ends; known when the stream is at its end.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The path that stands in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a block; `false` at the end.
    fn block(&mut self) -> Result<bool> {
        self.bytes.clear();
        self.read(BLOCK_HEADER_LEN)?;
        if self.bytes.is_empty() {
            self.tail = if self.last_was_end { Tail::Finished } else { Tail::Open };
            if self.tail == Tail::Open {
                self.info
                    .notes
                    .push("its writer has not finished it: the program still runs or has died".into());
            }
            return Ok(false);
        }
        let Some(&head) = self.bytes.first_chunk::<BLOCK_HEADER_LEN>() else { return Ok(self.torn()) };
        let decoded = match block_len(&head) {
            Ok(len) => {
                self.read(len - BLOCK_HEADER_LEN)?;
                decode_block(&self.bytes)
            }
            Err(error) => Err(error),
        };
        match decoded {
            Ok(block) => {
                self.take(&block)?;
                self.at += block.len as u64;
                Ok(true)
            }
            Err(BlockError::Short) => Ok(self.torn()),
            // Pages that never reached the disk are zero, or old within the last block.
            Err(BlockError::Bad { ends: Some(_), .. }) if self.at_end()? => Ok(self.torn()),
            Err(BlockError::Bad { ends: None, .. }) if self.zeros()? => Ok(self.torn()),
            Err(BlockError::Bad { what, .. }) => Err(self.damaged(what)),
        }
    }

    /// Reads so many more bytes of the block, or as many as there are.
    fn read(&mut self, len: usize) -> Result<()> {
        let took = (&mut self.input).take(len as u64).read_to_end(&mut self.bytes);
        took.map(drop).map_err(|error| TraceError::io(&self.path, error))
    }

    fn torn(&mut self) -> bool {
        self.tail = Tail::Torn { at: self.at };
        let at = self.at;
        self.info
            .notes
            .push(format!("it is torn off at byte {at}: what its writer had not written by then is missing"));
        false
    }

    fn at_end(&mut self) -> Result<bool> {
        let before = self.bytes.len();
        self.read(1)?;
        Ok(self.bytes.len() == before)
    }

    /// Whether all that was read of the block and all that follows is zero.
    fn zeros(&mut self) -> Result<bool> {
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

    fn take(&mut self, block: &Block) -> Result<()> {
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
                .map_err(|_| "what it says of the program makes no sense"),
            BlockKind::End => {
                self.last_was_end = true;
                Cursor::new(&block.plain).number().map(drop).ok_or("an end without a number of records")
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
            if self.tail != Tail::Unread {
                return None;
            }
            match self.block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.records.clear();
                    self.tail = Tail::Torn { at: self.at };
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

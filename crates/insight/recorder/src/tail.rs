//! The tail file, `*.wtail`: names and records that are not in the process's part file yet, mapped into memory.
//!
//! The kernel keeps the pages of a shared mapping however the process ends; only a crash of the host loses them.
//! Integers are little-endian, as on every machine that Weft runs on.
//!
//! ```text
//! header, 4 KiB
//!   0  magic "WEFTTAIL"
//!   8  version, u32: 1
//!  12  zero, u32
//!  16  process id, u32
//!  20  rank, u32; 2^32 - 1 if unknown
//!  24  time 0 of the trace, u64: nanoseconds since the Unix epoch
//!  32  start of recording in this process, u64: nanoseconds since time 0
//!  40  lost operations, u64: seen but not recorded
//!  48  errno of the error that ended tracing, u32; 0 if none did
//!  52  number of shards used so far, u32
//!  56  buffer being drained, u32: its number + 1, or 0 for none
//!  60  zero, u32
//!  64  records in the part file before the drain, u64
//!  72  names in the part file, u32
//!  76  length of the name list below, u32
//!  80  length of the host name, u32
//!  84  length of the command line, u32
//! 128  host name, at most 256 bytes
//! 384  command line, at most 3 KiB
//!
//! name list, from 4 KiB to 64 KiB: names that are not in the part file, encoded as in a names block
//!
//! buffers, 64 KiB each, from 64 KiB on; shard n has the buffers 2n and 2n + 1
//!   0  number of slots in use, u32
//!  64  slots of 48 bytes:
//!        0  start, u64        16  offset, u64     32  file, u32           37  bit 0 MPI-IO, bit 1 collective
//!        8  end, u64          24  length, u64     36  operation + 1, u8   38  zero
//! ```
//!
//! A process can die between appending to the part file and updating the tail. Readers of a tail therefore look at the
//! part file: the buffer being drained is already there if the part file has more records than the header says. A name
//! is already there if its number is below the part file's number of names.

use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use crate::varint::Cursor;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weft_core::{ByteLen, FileOffset, Nanos};

/// First bytes of the file.
pub const MAGIC: &[u8; 8] = b"WEFTTAIL";
/// Format version.
pub const VERSION: u32 = 1;
/// Offset of the name list, which follows the header.
pub const NAMES_OFFSET: usize = 4096;
/// Offset of the first buffer.
pub const BUFFERS_OFFSET: usize = 64 << 10;
/// Length of a buffer in bytes.
pub const BUFFER_LEN: usize = 64 << 10;
/// Offset of the first slot in a buffer.
pub const SLOTS_OFFSET: usize = 64;
/// Length of a slot in bytes.
pub const SLOT_LEN: usize = 48;
/// Number of slots in a buffer.
pub const SLOTS_PER_BUFFER: usize = (BUFFER_LEN - SLOTS_OFFSET) / SLOT_LEN;
/// Maximum number of shards.
pub const SHARDS_MAX: usize = 16;
/// Maximum length of a host name in bytes.
pub const HOST_LEN_MAX: usize = 256;
/// Maximum length of a command line in bytes.
pub const PROGRAM_LEN_MAX: usize = 3072;

/// Offsets of the header's fields.
pub(crate) mod header {
    pub const VERSION: usize = 8;
    pub const PROCESS: usize = 16;
    pub const RANK: usize = 20;
    pub const ANCHOR: usize = 24;
    pub const STARTED: usize = 32;
    pub const LOST: usize = 40;
    pub const ENDED: usize = 48;
    pub const SHARDS: usize = 52;
    pub const DRAINING: usize = 56;
    pub const DRAINED: usize = 64;
    pub const NAMES_FIRST: usize = 72;
    pub const NAMES_LEN: usize = 76;
    pub const HOST_LEN: usize = 80;
    pub const PROGRAM_LEN: usize = 84;
    pub const HOST: usize = 128;
    pub const PROGRAM: usize = 384;
}

/// Value of the rank field while the rank is unknown.
pub const UNKNOWN_RANK: u32 = u32::MAX;

/// One operation, as a slot stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Start in nanoseconds since time 0 of the trace.
    pub start: u64,
    /// End in nanoseconds since time 0 of the trace.
    pub end: u64,
    /// See [`Record::offset`].
    pub offset: u64,
    /// See [`Record::len`].
    pub len: u64,
    /// Number of the file's name in the part file.
    pub file: u32,
    /// Kind of operation.
    pub op: Operation,
    /// Interface of the call.
    pub level: Level,
    /// Whether the operation is part of a collective call.
    pub collective: bool,
}

impl Slot {
    /// Encodes the slot.
    #[inline]
    pub fn encode(&self) -> [u8; SLOT_LEN] {
        let flags = u64::from(self.level == Level::MpiIo) | u64::from(self.collective) << 1;
        let last = u64::from(self.file) | (self.op as u64 + 1) << 32 | flags << 40;
        let words = [self.start, self.end, self.offset, self.len, last, 0];
        let mut out = [[0; 8]; SLOT_LEN / 8];
        for (place, word) in out.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        *out.as_flattened().first_chunk().expect("as long")
    }

    /// Converts to a record of `file`. Rank and host are in the tail's header and left 0 here.
    pub fn record(&self, file: FileId) -> Record {
        Record {
            rank: Rank(0),
            host: HostId(0),
            file,
            op: self.op,
            level: self.level,
            collective: self.collective,
            offset: FileOffset(self.offset),
            len: ByteLen(self.len),
            start: Nanos(self.start),
            end: Nanos(self.end),
        }
    }

    /// Decodes a slot; `None` if no recorder wrote these bytes.
    ///
    /// After a host crash, pages of the file may be missing.
    pub fn decode(bytes: &[u8; SLOT_LEN]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("within"));
        let slot = Self {
            start: word(0),
            end: word(8),
            offset: word(16),
            len: word(24),
            file: u32::from_le_bytes(*bytes[32..].first_chunk().expect("within")),
            op: Operation::from_number(bytes[36].checked_sub(1)?)?,
            level: if bytes[37] & 1 == 0 { Level::Posix } else { Level::MpiIo },
            collective: bytes[37] & 2 != 0,
        };
        (slot.end >= slot.start && bytes[37] < 4 && bytes[38..48] == [0; 10]).then_some(slot)
    }
}

/// Contents of a tail's header and name list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Process id.
    pub process: u32,
    /// Rank, if known.
    pub rank: Option<u32>,
    /// Wall-clock time of time 0, in nanoseconds since the Unix epoch.
    pub anchor_unix_ns: u64,
    /// Start of recording in this process, in nanoseconds since time 0.
    pub started_ns: u64,
    /// Operations that were seen but not recorded.
    pub lost: u64,
    /// `errno` of the error that ended tracing early.
    pub ended: Option<i32>,
    /// Name of the host that the process ran on.
    pub host: String,
    /// Command line, possibly truncated.
    pub program: String,
    /// Number of the first name in `names`.
    pub names_first: u32,
    /// Names that the part file may lack. See the module documentation for names that are in both.
    pub names: Vec<String>,
    /// Buffer that was being drained, and the number of records in the part file before the drain.
    pub draining: Option<(usize, u64)>,
    shards: usize,
}

/// Random access to a tail's bytes, in a file or in memory.
pub trait TailSource {
    /// Fills `out` with the bytes from `offset` on. Bytes after the end read as zero.
    ///
    /// # Errors
    /// Returns the operating system's error.
    fn fill_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

impl TailSource for [u8] {
    fn fill_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.fill(0);
        let rest = self.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(())
    }
}

impl TailSource for File {
    fn fill_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out[done..].fill(0);
        Ok(())
    }
}

impl Tail {
    /// Reads the header and the name list.
    ///
    /// # Errors
    /// Fails if the source cannot be read or its header is invalid.
    pub fn read(source: &(impl TailSource + ?Sized)) -> io::Result<Self> {
        let bad = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let mut head = vec![0; NAMES_OFFSET];
        source.fill_at(0, &mut head)?;
        let u32_at = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("within"));
        let u64_at = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("within"));
        if &head[..8] != MAGIC {
            return bad("it is not a tail file of a trace");
        }
        if u32_at(header::VERSION) != VERSION {
            return bad("unsupported version of the tail format");
        }
        let (host_len, program_len) =
            (u32_at(header::HOST_LEN) as usize, u32_at(header::PROGRAM_LEN) as usize);
        let (shards, names_len) = (u32_at(header::SHARDS) as usize, u32_at(header::NAMES_LEN) as usize);
        if host_len > HOST_LEN_MAX || program_len > PROGRAM_LEN_MAX || shards > SHARDS_MAX {
            return bad("a length in the header exceeds its limit");
        }
        if names_len > BUFFERS_OFFSET - NAMES_OFFSET || u32_at(header::NAMES_FIRST) > crate::NAMES_MAX {
            return bad("the name list exceeds its limit");
        }
        let text = |at: usize, len: usize| String::from_utf8_lossy(&head[at..at + len]).into_owned();
        let mut names = vec![0; names_len];
        source.fill_at(NAMES_OFFSET as u64, &mut names)?;
        let draining = u32_at(header::DRAINING) as usize;
        Ok(Self {
            process: u32_at(header::PROCESS),
            rank: Some(u32_at(header::RANK)).filter(|&rank| rank != UNKNOWN_RANK),
            anchor_unix_ns: u64_at(header::ANCHOR),
            started_ns: u64_at(header::STARTED),
            lost: u64_at(header::LOST),
            ended: Some(u32_at(header::ENDED) as i32).filter(|&number| number != 0),
            host: text(header::HOST, host_len),
            program: text(header::PROGRAM, program_len),
            names_first: u32_at(header::NAMES_FIRST),
            names: decode_names(&names),
            draining: (draining > 0 && draining <= 2 * SHARDS_MAX)
                .then(|| (draining - 1, u64_at(header::DRAINED))),
            shards,
        })
    }

    /// Calls `each` with the slots of all buffers and returns the number of invalid slots.
    ///
    /// `drained` says that the buffer of [`Tail::draining`] is already in the part file and must be skipped.
    ///
    /// # Errors
    /// Fails if the source cannot be read or `each` fails.
    pub fn slots<E: From<io::Error>>(
        &self,
        source: &(impl TailSource + ?Sized),
        drained: bool,
        mut each: impl FnMut(Slot) -> Result<(), E>,
    ) -> Result<u64, E> {
        let skip = self.draining.filter(|_| drained).map(|(buffer, _)| buffer);
        let mut bad = 0;
        let mut bytes = Vec::new();
        for buffer in (0..2 * self.shards).filter(|&buffer| Some(buffer) != skip) {
            let base = (BUFFERS_OFFSET + buffer * BUFFER_LEN) as u64;
            let mut count = [0; 4];
            source.fill_at(base, &mut count)?;
            let count = u32::from_le_bytes(count) as usize;
            if count > SLOTS_PER_BUFFER {
                bad += 1;
                continue;
            }
            bytes.resize(count * SLOT_LEN, 0);
            source.fill_at(base + SLOTS_OFFSET as u64, &mut bytes)?;
            for slot in bytes.chunks_exact(SLOT_LEN) {
                match Slot::decode(slot.first_chunk().expect("a slot")) {
                    Some(slot) => each(slot)?,
                    None => bad += 1,
                }
            }
        }
        Ok(bad)
    }
}

/// Decodes names up to the first invalid one.
fn decode_names(bytes: &[u8]) -> Vec<String> {
    let mut cursor = Cursor::new(bytes);
    let mut names = Vec::new();
    while !cursor.is_empty() {
        let name = (|| {
            cursor.byte().filter(|&kind| kind == 0)?;
            let len = cursor.number().filter(|&len| len <= crate::NAME_BYTES_MAX as u64)?;
            std::str::from_utf8(cursor.bytes(len as usize)?).ok()
        })();
        match name {
            Some(name) => names.push(name.to_owned()),
            None => break,
        }
    }
    names
}

//! What a recorder has not written to its part yet: a mapped file beside it, `*.wtail`.
//!
//! Whatever ends the program, the kernel keeps what lies in the mapping; only a host that goes down loses it. Numbers
//! have the machine's byte order, which is little-endian on every machine that Weft runs on.
//!
//! ```text
//! head, 4 KiB
//!   0  magic "WEFTTAIL"
//!   8  version, u32: 1
//!  12  zero, u32
//!  16  process, u32
//!  20  rank, u32; 2^32 - 1 while unknown
//!  24  what time 0 is, u64: nanoseconds since 1970
//!  32  first look of the tracer at this process, u64: nanoseconds since time 0
//!  40  operations that were seen and not recorded, u64
//!  48  why tracing ended early, u32: error number, 0 when it did not
//!  52  shards that were ever used, u32
//!  56  the half that is being written to the part, u32: its number + 1, 0 for none
//!  60  zero, u32
//!  64  records in the part before that, u64
//!  72  names in the part, u32
//!  76  bytes of names below, u32
//!  80  length of the host's name, u32
//!  84  length of the program's name, u32
//! 128  the host's name, at most 256 bytes
//! 384  the program's command line, at most 3 KiB
//!
//! names that are not in the part, from 4 KiB to 64 KiB, as in a names block of the part
//!
//! halves of shards, 64 KiB each, from 64 KiB on; shard n has the halves 2n and 2n + 1
//!   0  records in this half, u32
//!  64  slots of 48 bytes:
//!        0  begin, u64        16  offset, u64     32  file, u32           37  bit 0 MPI-IO, bit 1 collective
//!        8  end, u64          24  length, u64     36  operation + 1, u8   38  zero
//! ```
//!
//! Both writes that move something to the part can be cut short by the end of the program, and are told apart by what
//! the part has: a half that is being written is in the part if that has more records than before; of the names, those
//! are in the part that have a number there.

use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use crate::varint::Cursor;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weft_core::{ByteLen, FileOffset, Nanos};

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"WEFTTAIL";
/// Of the format.
pub const VERSION: u32 = 1;
/// Where names begin; before them is the head.
pub const NAMES_AT: usize = 4096;
/// Where halves begin.
pub const HALVES_AT: usize = 64 << 10;
/// Length of a half.
pub const HALF_LEN: usize = 64 << 10;
/// Where slots begin in a half.
pub const SLOTS_AT: usize = 64;
/// Length of a slot.
pub const SLOT_LEN: usize = 48;
/// Slots in a half.
pub const SLOTS: usize = (HALF_LEN - SLOTS_AT) / SLOT_LEN;
/// Most shards.
pub const SHARDS: usize = 16;
/// Longest name of a host in bytes.
pub const HOST_LEN_MAX: usize = 256;
/// Longest command line in bytes.
pub const PROGRAM_LEN_MAX: usize = 3072;

/// Places in the head.
pub(crate) mod at {
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

/// A rank that is not known.
pub const NO_RANK: u32 = u32::MAX;

/// One operation as a slot has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Begin in nanoseconds since time 0 of the process's clock.
    pub start: u64,
    /// End.
    pub end: u64,
    /// As in a record.
    pub offset: u64,
    /// As in a record.
    pub len: u64,
    /// Number of the file in the part.
    pub file: u32,
    /// What.
    pub op: Operation,
    /// By which interface.
    pub level: Level,
    /// As part of a call that all ranks made together.
    pub collective: bool,
}

impl Slot {
    /// As bytes.
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

    /// As a record of `file`; who and where stands in the tail.
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

    /// From bytes; `None` for what no recorder wrote, such as pages that a host which went down had not written.
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

/// What a tail says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Number of the process on its host.
    pub process: u32,
    /// Its rank, when it had one.
    pub rank: Option<u32>,
    /// What time 0 is, in nanoseconds since 1970.
    pub anchor_unix_ns: u64,
    /// When the process was first seen, in nanoseconds since time 0.
    pub started_ns: u64,
    /// Operations that were seen and not recorded.
    pub lost: u64,
    /// The error that ended tracing early.
    pub ended: Option<i32>,
    /// Where it ran.
    pub host: String,
    /// Its command line, perhaps cut off.
    pub program: String,
    /// Number that the first of `names` has.
    pub names_first: u32,
    /// Names that are not in the part, unless they have a number there.
    pub names: Vec<String>,
    /// The half that was being written to the part, and how many records that had before.
    pub draining: Option<(usize, u64)>,
    shards: usize,
}

/// Bytes at an offset: a file, or memory.
pub trait Source {
    /// Fills `out` from `offset` on; bytes past the end are zero.
    ///
    /// # Errors
    /// What the system refuses.
    fn at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

impl Source for [u8] {
    fn at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.fill(0);
        let rest = self.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(())
    }
}

impl Source for File {
    fn at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
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
    /// Reads the head and the names.
    ///
    /// # Errors
    /// What the system refuses, and what makes no sense, for people.
    pub fn read(source: &(impl Source + ?Sized)) -> io::Result<Self> {
        let bad = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let mut head = vec![0; NAMES_AT];
        source.at(0, &mut head)?;
        let half = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("within"));
        let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("within"));
        if &head[..8] != MAGIC {
            return bad("it is no tail of a trace");
        }
        if half(at::VERSION) != VERSION {
            return bad("a version of the format that this program does not read");
        }
        let (host_len, program_len) = (half(at::HOST_LEN) as usize, half(at::PROGRAM_LEN) as usize);
        let (shards, names_len) = (half(at::SHARDS) as usize, half(at::NAMES_LEN) as usize);
        if host_len > HOST_LEN_MAX || program_len > PROGRAM_LEN_MAX || shards > SHARDS {
            return bad("a length in its head is longer than any");
        }
        if names_len > HALVES_AT - NAMES_AT || half(at::NAMES_FIRST) > crate::NAMES_MAX {
            return bad("its names are longer or more than any");
        }
        let text = |at: usize, len: usize| String::from_utf8_lossy(&head[at..at + len]).into_owned();
        let mut names = vec![0; names_len];
        source.at(NAMES_AT as u64, &mut names)?;
        let draining = half(at::DRAINING) as usize;
        Ok(Self {
            process: half(at::PROCESS),
            rank: Some(half(at::RANK)).filter(|&rank| rank != NO_RANK),
            anchor_unix_ns: word(at::ANCHOR),
            started_ns: word(at::STARTED),
            lost: word(at::LOST),
            ended: Some(half(at::ENDED) as i32).filter(|&number| number != 0),
            host: text(at::HOST, host_len),
            program: text(at::PROGRAM, program_len),
            names_first: half(at::NAMES_FIRST),
            names: decode_names(&names),
            draining: (draining > 0 && draining <= 2 * SHARDS).then(|| (draining - 1, word(at::DRAINED))),
            shards,
        })
    }

    /// Calls `each` with what is in the halves, except the one that [`Tail::draining`] names if `drained` says that it
    /// is in the part; the number of slots that make no sense.
    ///
    /// # Errors
    /// What the system refuses, and what `each` says.
    pub fn slots<E: From<io::Error>>(
        &self,
        source: &(impl Source + ?Sized),
        drained: bool,
        mut each: impl FnMut(Slot) -> Result<(), E>,
    ) -> Result<u64, E> {
        let skip = self.draining.filter(|_| drained).map(|(half, _)| half);
        let mut bad = 0;
        let mut bytes = Vec::new();
        for half in (0..2 * self.shards).filter(|&half| Some(half) != skip) {
            let base = (HALVES_AT + half * HALF_LEN) as u64;
            let mut count = [0; 4];
            source.at(base, &mut count)?;
            let count = u32::from_le_bytes(count) as usize;
            if count > SLOTS {
                bad += 1;
                continue;
            }
            bytes.resize(count * SLOT_LEN, 0);
            source.at(base + SLOTS_AT as u64, &mut bytes)?;
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

/// The names in a tail as far as they make sense.
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

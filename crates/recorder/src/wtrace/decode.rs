//! Blocks back to records and names. Every length is checked before memory is reserved for it.

use super::encode::{Deltas, has_place};
use super::{
    BLOCK_HEADER_LEN, HEADER_LEN, MAGIC, MARKER, PLAIN_LEN_MAX, RECORD_LEN_MIN, STORED_LEN_MAX, VERSION,
};
use crate::names::{FileId, HostId, NAME_BYTES_MAX, Names};
use crate::record::{Level, Operation, Rank, Record};
use crate::varint::Cursor;
use weft_core::{ByteLen, FileOffset, Nanos};

/// A file's header that was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Version of the format.
    pub version: u16,
}

impl Header {
    /// Checks a header.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(format!("{} bytes are too few for a header", bytes.len()));
        };
        if &bytes[..8] != MAGIC {
            return Err("not a .wtrace file".into());
        }
        let crc = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        if crc32fast::hash(&bytes[..12]) != crc {
            return Err("the header's checksum is wrong".into());
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION || bytes[10..12] != [0, 0] {
            return Err(format!("version {version} of the format, and this program reads version {VERSION}"));
        }
        Ok(Self { version })
    }
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Records.
    Records,
    /// Names of files and hosts.
    Names,
    /// What is known of the program.
    Info,
    /// A writer finished here.
    End,
}

/// A block whose checksum held, with its bytes plain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// What it holds.
    pub kind: BlockKind,
    /// Number of records or names.
    pub items: u32,
    /// Its bytes after decompression.
    pub plain: Vec<u8>,
    /// Bytes that it takes in the file.
    pub len: usize,
}

/// Why a block could not be taken from the front of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockError {
    /// There are too few bytes: a tail that was torn off, or more is still to come.
    Short,
    /// They are no block, or one that was changed after it was written; `ends` says where it would end, as far as
    /// that can be told.
    Bad {
        /// What is wrong, for people.
        what: &'static str,
        /// Bytes that the block claims to take.
        ends: Option<usize>,
    },
}

/// The lengths in a block's header: of all of the block in the file, as far as that is sane.
///
/// # Errors
/// [`BlockError::Bad`].
pub fn block_len(head: &[u8; BLOCK_HEADER_LEN]) -> Result<usize, BlockError> {
    let bad = |what| Err(BlockError::Bad { what, ends: None });
    if &head[..4] != MARKER {
        return bad("no block begins here");
    }
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (plain, stored) = (number(8), number(12));
    if plain > PLAIN_LEN_MAX || stored > STORED_LEN_MAX {
        return bad("a block longer than any");
    }
    Ok(BLOCK_HEADER_LEN + stored)
}

/// The block at the front of `bytes`.
///
/// # Errors
/// [`BlockError`].
pub fn decode_block(bytes: &[u8]) -> Result<Block, BlockError> {
    let head = bytes.first_chunk::<BLOCK_HEADER_LEN>().ok_or(BlockError::Short)?;
    let len = block_len(head)?;
    let bytes = bytes.get(..len).ok_or(BlockError::Short)?;
    let bad = |what| BlockError::Bad { what, ends: Some(len) };
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let stored = &bytes[BLOCK_HEADER_LEN..];
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..20]);
    hasher.update(stored);
    if hasher.finalize() != number(20) {
        return Err(bad("its checksum is wrong"));
    }
    let plain_len = number(8) as usize;
    let plain = match head[5] {
        0 if stored.len() == plain_len => stored.to_vec(),
        // LZ4 makes at most 255 bytes of one.
        1 if plain_len <= stored.len().saturating_mul(255) => {
            let mut plain = vec![0; plain_len];
            match lz4_flex::block::decompress_into(stored, &mut plain) {
                Ok(len) if len == plain_len => plain,
                _ => return Err(bad("it does not decompress")),
            }
        }
        _ => return Err(bad("its lengths or its codec make no sense")),
    };
    let kind = match head[4] {
        1 => BlockKind::Records,
        2 => BlockKind::Names,
        3 => BlockKind::Info,
        4 => BlockKind::End,
        _ => return Err(bad("a block of an unknown kind")),
    };
    Ok(Block { kind, items: number(16), plain, len })
}

/// Appends the records of a block to `out`. Files and hosts must be among `names`.
///
/// # Errors
/// What makes no sense, for people.
pub fn decode_records(
    plain: &[u8],
    items: u32,
    names: &Names,
    out: &mut Vec<Record>,
) -> Result<(), &'static str> {
    if plain.len() / RECORD_LEN_MIN < items as usize {
        return Err("more records than fit");
    }
    out.reserve(items as usize);
    let mut cursor = Cursor::new(plain);
    let mut deltas = Deltas::default();
    for _ in 0..items {
        let record = record(&mut cursor, &mut deltas).ok_or("a record is cut off or out of range")?;
        let has_file = !record.op.has_file() || record.file.0 < names.files();
        if !has_file || names.host_name(record.host).is_none() {
            return Err("a record of a file or host that has no name");
        }
        out.push(record);
    }
    if cursor.is_empty() { Ok(()) } else { Err("bytes after the last record") }
}

fn record(cursor: &mut Cursor<'_>, before: &mut Deltas) -> Option<Record> {
    let flags = cursor.byte()?;
    let op = Operation::from_number(flags & 0xf)?;
    if flags & 0x40 != 0 {
        before.rank = cursor.delta(u64::from(before.rank))?.try_into().ok()?;
        before.host = cursor.delta(u64::from(before.host))?.try_into().ok()?;
    }
    if flags & 0x80 != 0 {
        before.file = cursor.delta(u64::from(before.file))?.try_into().ok()?;
    }
    before.start = cursor.delta(before.start)?;
    let end = before.start.checked_add(cursor.number()?)?;
    let (mut offset, mut len) = (0, 0);
    if has_place(op) {
        let place = before.place(before.rank, before.file);
        offset = cursor.delta(place.0)?;
        len = cursor.delta(place.1)?;
        *place = (offset.saturating_add(len), len);
    }
    Some(Record {
        rank: Rank(before.rank),
        host: HostId(before.host),
        file: FileId(before.file),
        op,
        level: if flags & 0x10 == 0 { Level::Posix } else { Level::MpiIo },
        collective: flags & 0x20 != 0,
        offset: FileOffset(offset),
        len: ByteLen(len),
        start: Nanos(before.start),
        end: Nanos(end),
    })
}

/// Adds the names of a block to `names`.
///
/// # Errors
/// What makes no sense, for people.
pub fn decode_names(plain: &[u8], items: u32, names: &mut Names) -> Result<(), &'static str> {
    let mut cursor = Cursor::new(plain);
    for _ in 0..items {
        let kind = cursor.byte().ok_or("a name is cut off")?;
        let len =
            cursor.number().filter(|len| *len <= NAME_BYTES_MAX as u64).ok_or("a name longer than any")?;
        let name = cursor.bytes(len as usize).ok_or("a name is cut off")?;
        let name = std::str::from_utf8(name).map_err(|_| "a name that is not UTF-8")?;
        let known = match kind {
            0 => names.file_again(name).is_some(),
            1 => !name.is_empty() && names.new_host(name).is_some(),
            _ => return Err("a name of an unknown kind"),
        };
        if !known {
            return Err("a name that is there already, or more than any trace has");
        }
    }
    if cursor.is_empty() { Ok(()) } else { Err("bytes after the last name") }
}

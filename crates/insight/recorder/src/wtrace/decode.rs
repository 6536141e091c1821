//! Decodes blocks of records and names. Every length is checked before memory is allocated for it.

use super::encode::{Deltas, has_extent};
use super::{
    BLOCK_HEADER_LEN, HEADER_LEN, MAGIC, MARKER, PLAIN_LEN_MAX, RECORD_LEN_MIN, STORED_LEN_MAX, VERSION,
};
use crate::names::{FileId, HostId, NAME_BYTES_MAX, Names};
use crate::record::{Level, Operation, Rank, Record};
use crate::varint::Cursor;
use weft_core::{ByteLen, FileOffset, Nanos};

/// A validated file header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Format version.
    pub version: u16,
}

impl Header {
    /// Validates a header.
    ///
    /// # Errors
    /// Returns the reason as text for users.
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
            return Err(format!(
                "unsupported format version {version}; this program reads version {VERSION}"
            ));
        }
        Ok(Self { version })
    }
}

/// Contents of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Records.
    Records,
    /// Names of files and hosts.
    Names,
    /// JSON facts about the traced program.
    Info,
    /// Mark at which a writer finished.
    End,
}

/// A decompressed block whose checksum is correct.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Contents of the block.
    pub kind: BlockKind,
    /// Number of records or names in the block.
    pub items: u32,
    /// Decompressed bytes.
    pub plain: Vec<u8>,
    /// Length of the encoded block in the file, in bytes.
    pub len: usize,
}

/// Reason why no block could be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockError {
    /// The bytes end before the block does: the file was truncated, or its writer has not finished the block.
    Short,
    /// The bytes are not a block, or the block was damaged.
    Bad {
        /// The reason, as text for users.
        what: &'static str,
        /// Length of the damaged block according to its header, if the header is plausible.
        ends: Option<usize>,
    },
}

/// Returns the length of an encoded block, header included.
///
/// # Errors
/// Returns [`BlockError::Bad`] if the header is implausible.
pub fn block_len(head: &[u8; BLOCK_HEADER_LEN]) -> Result<usize, BlockError> {
    let bad = |what| Err(BlockError::Bad { what, ends: None });
    if &head[..4] != MARKER {
        return bad("no block marker");
    }
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (plain, stored) = (number(8), number(12));
    if plain > PLAIN_LEN_MAX || stored > STORED_LEN_MAX {
        return bad("a block exceeds the maximum length");
    }
    Ok(BLOCK_HEADER_LEN + stored)
}

/// Decodes the block at the front of `bytes`.
///
/// # Errors
/// Returns [`BlockError`] if the block is incomplete or damaged.
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
        return Err(bad("wrong checksum"));
    }
    let plain_len = number(8) as usize;
    let plain = match head[5] {
        0 if stored.len() == plain_len => stored.to_vec(),
        // LZ4 expands one byte to at most 255 bytes; check before allocating.
        1 if plain_len <= stored.len().saturating_mul(255) => {
            let mut plain = vec![0; plain_len];
            match lz4_flex::block::decompress_into(stored, &mut plain) {
                Ok(len) if len == plain_len => plain,
                _ => return Err(bad("decompression failed")),
            }
        }
        _ => return Err(bad("inconsistent lengths or unknown codec")),
    };
    let kind = match head[4] {
        1 => BlockKind::Records,
        2 => BlockKind::Names,
        3 => BlockKind::Info,
        4 => BlockKind::End,
        _ => return Err(bad("unknown kind of block")),
    };
    Ok(Block { kind, items: number(16), plain, len })
}

/// Decodes a block of records and appends them to `out`. Files and hosts must be in `names`.
///
/// # Errors
/// Returns the reason as text for users if a record is invalid.
pub fn decode_records(
    plain: &[u8],
    items: u32,
    names: &Names,
    out: &mut Vec<Record>,
) -> Result<(), &'static str> {
    if plain.len() / RECORD_LEN_MIN < items as usize {
        return Err("the record count exceeds the block's length");
    }
    out.reserve(items as usize);
    let mut cursor = Cursor::new(plain);
    let mut deltas = Deltas::default();
    for _ in 0..items {
        let record = record(&mut cursor, &mut deltas).ok_or("a record is truncated or out of range")?;
        let has_file = !record.op.has_file() || record.file.0 < names.files();
        if !has_file || names.host_name(record.host).is_none() {
            return Err("a record refers to an unnamed file or host");
        }
        out.push(record);
    }
    if cursor.is_empty() { Ok(()) } else { Err("bytes after the last record") }
}

fn record(cursor: &mut Cursor<'_>, previous: &mut Deltas) -> Option<Record> {
    let flags = cursor.byte()?;
    let op = Operation::from_number(flags & 0xf)?;
    if flags & 0x40 != 0 {
        previous.rank = cursor.delta(u64::from(previous.rank))?.try_into().ok()?;
        previous.host = cursor.delta(u64::from(previous.host))?.try_into().ok()?;
    }
    if flags & 0x80 != 0 {
        previous.file = cursor.delta(u64::from(previous.file))?.try_into().ok()?;
    }
    previous.start = cursor.delta(previous.start)?;
    let end = previous.start.checked_add(cursor.number()?)?;
    let (mut offset, mut len) = (0, 0);
    if has_extent(op) {
        let access = previous.access(previous.rank, previous.file);
        offset = cursor.delta(access.0)?;
        len = cursor.delta(access.1)?;
        *access = (offset.saturating_add(len), len);
    }
    Some(Record {
        rank: Rank(previous.rank),
        host: HostId(previous.host),
        file: FileId(previous.file),
        op,
        level: if flags & 0x10 == 0 { Level::Posix } else { Level::MpiIo },
        collective: flags & 0x20 != 0,
        offset: FileOffset(offset),
        len: ByteLen(len),
        start: Nanos(previous.start),
        end: Nanos(end),
    })
}

/// Decodes a block of names and adds them to `names`.
///
/// # Errors
/// Returns the reason as text for users if a name is invalid.
pub fn decode_names(plain: &[u8], items: u32, names: &mut Names) -> Result<(), &'static str> {
    let mut cursor = Cursor::new(plain);
    for _ in 0..items {
        let kind = cursor.byte().ok_or("a name is truncated")?;
        let len = cursor.number().filter(|len| *len <= NAME_BYTES_MAX as u64).ok_or("a name is too long")?;
        let name = cursor.bytes(len as usize).ok_or("a name is truncated")?;
        let name = std::str::from_utf8(name).map_err(|_| "a name that is not UTF-8")?;
        let known = match kind {
            0 => names.file_again(name).is_some(),
            1 => !name.is_empty() && names.new_host(name).is_some(),
            _ => return Err("unknown kind of name"),
        };
        if !known {
            return Err("duplicate or too many names");
        }
    }
    if cursor.is_empty() { Ok(()) } else { Err("bytes after the last name") }
}

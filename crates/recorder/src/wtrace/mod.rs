//! Weft's own trace format, `.wtrace`: written while a program runs, readable up to where it was torn off.
//!
//! All numbers little-endian.
//!
//! ```text
//! header, 16 bytes
//!   0  magic "WEFTTRC\n"
//!   8  version, u16: 1
//!  10  zero, u16
//!  12  crc32 of bytes 0..12, u32
//!
//! blocks, one after another to the end of the file
//!   0  marker "WBLK"
//!   4  kind, u8: 1 records, 2 names, 3 info, 4 end
//!   5  codec, u8: 0 plain, 1 LZ4 block
//!   6  zero, u16
//!   8  plain length, u32, at most 1 MiB
//!  12  stored length, u32, at most 1 MiB + 16 KiB
//!  16  items, u32: records or names in the block
//!  20  crc32 of bytes 0..20 and the stored bytes, u32
//!  24  stored bytes
//! ```
//!
//! A block stands for itself: differences begin anew in each. Names come before the records that use them, and a
//! name's number is its place among those of its kind in the file. A file's name may come again: the writer forgot it to
//! save memory, and both numbers mean that file. An end block says that a writer finished; a file that goes on after one was appended to. A file without an end block at its end belongs to a program that still
//! runs or that died.
//!
//! Names block: per name its kind (u8: 0 file, 1 host), length as a number, UTF-8 bytes. Info block: JSON. End block:
//! number of records in the file so far as a number. Records block: see `encode`. Numbers are LEB128.

mod decode;
mod encode;

pub use decode::{
    Block, BlockError, BlockKind, Header, block_len, decode_block, decode_names, decode_records,
};
pub use encode::{Encoder, block};

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"WEFTTRC\n";
/// Of the format that is written.
pub const VERSION: u16 = 1;
/// Length of the header in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of what stands before a block's stored bytes.
pub const BLOCK_HEADER_LEN: usize = 24;
/// First bytes of a block.
pub const MARKER: &[u8; 4] = b"WBLK";
/// Most bytes of a block before compression.
pub const PLAIN_LEN_MAX: usize = 1 << 20;
/// Most bytes of a block as it is stored.
pub const STORED_LEN_MAX: usize = PLAIN_LEN_MAX + (16 << 10);
/// Most records in a block; each takes at least [`RECORD_LEN_MIN`] bytes.
pub const RECORDS_MAX: usize = PLAIN_LEN_MAX / RECORD_LEN_MIN;
/// Fewest bytes of a record in a block.
pub const RECORD_LEN_MIN: usize = 3;

/// The header.
pub fn header() -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

//! Weft's trace format, `.wtrace`: appended while a program runs, and readable up to a truncated end.
//!
//! ```text
//! ┌────────┬─────────────┬───────┬─────────┬─────────┬─────┬───────┬─────────┬───────────┐
//! │ header │ block: info │ names │ records │ records │  …  │ names │ records │ end       │
//! │  16 B  │    JSON     │       │         │         │     │       │         │ (at close)│
//! └────────┴─────────────┴───────┴─────────┴─────────┴─────┴───────┴─────────┴───────────┘
//!
//! header, 16 bytes
//!   0  magic "WEFTTRC\n"
//!   8  version, u16: 1
//!  10  zero, u16
//!  12  crc32 of bytes 0..12, u32
//!
//! block
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
//! Fixed-width integers are little-endian; variable-length numbers are LEB128 ([`crate::varint`]).
//!
//! | block | plain bytes |
//! | --- | --- |
//! | records | records as in `encode.rs`; deltas restart in each block, so a block can be decoded alone |
//! | names | for each name: kind (u8: 0 file, 1 host), length as a number, UTF-8 bytes |
//! | info | JSON facts about the traced program |
//! | end | number of records in the file so far, as a number |
//!
//! - A name's number is its position among the names of its kind in the file. A name precedes the records that use it.
//! - A file name may appear twice if its writer forgot it to save memory. Both numbers then denote the same file.
//! - An end block marks that a writer finished. Blocks after it were appended later.
//! - A file that does not end with an end block belongs to a program that is still running or died.

mod decode;
mod encode;

pub use decode::{
    Block, BlockError, BlockKind, Header, block_len, decode_block, decode_names, decode_records,
};
pub use encode::{Encoder, block};

/// First bytes of the file.
pub const MAGIC: &[u8; 8] = b"WEFTTRC\n";
/// Format version.
pub const VERSION: u16 = 1;
/// Length of the file header in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of a block's header in bytes.
pub const BLOCK_HEADER_LEN: usize = 24;
/// First bytes of a block.
pub const MARKER: &[u8; 4] = b"WBLK";
/// Maximum plain length of a block in bytes.
pub const PLAIN_LEN_MAX: usize = 1 << 20;
/// Maximum stored length of a block in bytes.
pub const STORED_LEN_MAX: usize = PLAIN_LEN_MAX + (16 << 10);
/// Maximum number of records in a block.
pub const RECORDS_MAX: usize = PLAIN_LEN_MAX / RECORD_LEN_MIN;
/// Minimum encoded length of a record in bytes.
pub const RECORD_LEN_MIN: usize = 3;

/// Encodes the file header.
pub fn header() -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

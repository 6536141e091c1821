//! Checksums of the blocks of a file, in a file beside it.
//!
//! ```text
//! offset         size field
//!      0           64 header (see `header`)
//!     64         4032 zeros
//!   4096 + 8 b      8 slot of block b (see `slot`)
//! ```
//! Slots that are missing at the end are holes.
//!
//! **A killed process.** The system keeps what the process wrote, in the order of the writes. A write first puts the new
//! checksum beside the old one into the slots of its blocks, then writes the bytes, then settles the slots. A block whose
//! slot is not settled may have either checksum.
//!
//! **A loss of power.** Bytes and slots that were not synced may be old or new, independently of each other. The header
//! therefore says which blocks are *sealed*: their bytes and slots are both on the disk. Before a write changes sealed
//! blocks, the header that opens them is synced: once for a range, which doubles with each opening. Blocks behind the
//! sealed ones need nothing. A sync of the datafile syncs no checksums. When a datafile has been idle for a while its bytes
//! and slots are synced, and the header seals all blocks. After the machine has started anew, an unsealed block that does
//! not match its slot is taken as it is, and counted; a sealed one is damaged.
//!
//! See `docs/decisions/integrity.md`.

mod block;
mod block_sums;
mod header;
mod slot;

pub use block::{BLOCK_BYTES, block_of, block_sum, blocks_in};
pub use header::{BadHeader, HEADER_BYTES, Header};
pub use slot::{SLOT_BYTES, Slot};

pub(crate) use block_sums::{BlockSums, touched};

/// Ending of the name of a checksum file, behind the name of its datafile.
pub const SUFFIX: &str = ".sum";
/// Offset of the first slot in a checksum file.
pub const SLOTS_AT: u64 = 4096;

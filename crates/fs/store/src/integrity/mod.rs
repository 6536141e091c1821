//! Checksums at rest: one checksum per block of a datafile, in a file beside it.
//!
//! ```text
//! offset         size | field
//!      0           64 | header (see `header`)
//!     64         4032 | zeros
//!   4096 + 8 b      8 | slot of block b (see `slot`)
//! ```
//!
//! Slots past the end of the file belong to holes.
//!
//! # Crash safety
//!
//! | event | possible state | consequence |
//! | --- | --- | --- |
//! | write in progress | slot holds new and old checksum | a block that matches either one is good |
//! | process killed | a prefix of: slot (new, old), bytes, slot (new, new) | every prefix is consistent |
//! | loss of power | unsynced bytes and slots are each old or new | only sealed blocks must match |
//! | medium damage | a sealed block mismatches its slot | the read fails with an error |
//!
//! An unsealed block that mismatches its slot after a loss of power is accepted as it is, and counted. A block is
//! *sealed* when block and slot are known to be on the disk. The header records which blocks are sealed:
//!
//! | step | syncs |
//! | --- | --- |
//! | append, or write to unsealed blocks | none |
//! | first write to sealed blocks | before the write, the header that unseals a range; the range doubles each time |
//! | sync of the datafile by a program | the datafile alone |
//! | idle for [`SEAL_IDLE`](crate::target::SEAL_IDLE) | datafile and slots; then the sealing header, unsynced |
//!
//! Both header rules are safe in any state that a loss of power leaves: unsealing is durable before the blocks change,
//! and sealing is written after blocks and slots are durable.
//!
//! `docs/design/checksums.md` explains the decision.

mod block;
mod block_sums;
mod header;
mod slot;

pub use block::{BLOCK_BYTES, block_of, block_sum, blocks_in};
pub use header::{BadHeader, HEADER_BYTES, Header};
pub use slot::{SLOT_BYTES, Slot};

pub(crate) use block_sums::{BlockSums, touched};

/// Suffix of a checksum file's name, behind the name of its datafile.
pub const SUFFIX: &str = ".sum";
/// Offset of the first slot in a checksum file.
pub const SLOTS_AT: u64 = 4096;

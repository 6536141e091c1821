//! The metadata database: a transactional engine behind a small trait, and the records that it keeps.
//!
//! ```text
//! metadata/identity    whose database this is, and the version of its formats   (identity.rs)
//! metadata/log.0, .1   what has been committed since the base was brought up    (log.rs)
//! metadata/base.redb   everything older: one redb table per [`Table`]           (base.rs)
//! metadata/base.sums   checksums of the blocks of the base                      (sums.rs, checked.rs)
//! metadata/reserve     room to go on with when the device is full               (journal/reserve.rs)
//! ```
//! A mutation reads and writes under one lock in memory, and is durable once the log frame that holds it is; frames
//! are written by whoever waits first, for all that came before ([`Journal`]). When a log is full its changes go to
//! the base in one redb transaction while the other log takes the next ones. After a crash the logs are read again.
//!
//! What is assumed of the medium: a write that does not change a byte of a sector does not damage that sector, and
//! what was synced stays. Everything else (torn, lost and reordered unsynced writes) is survived.

mod base;
mod checked;
mod delta;
mod dump;
mod engine;
mod identity;
mod journal;
mod log;
#[doc(hidden)]
pub mod log_bytes;
mod record;
mod rows;
mod sums;
#[doc(hidden)]
pub mod sums_bytes;

pub use dump::{DumpError, DumpHeader, DumpReader, DumpRow, DumpWriter};
pub use engine::{
    BaseCheck, Engine, EngineError, EngineStats, Point, Scan, Snapshot, TABLES, Table, Transaction, Visit,
};
pub use identity::{Identity, IdentityError};
pub use journal::{
    Journal, JournalOptions, OpenError, RestoreError, Restored, StoredSnapshot, Wanted, has_identity, restore,
};
pub use record::{Damaged, Untrusted, seal};
pub use rows::{
    ALLOCATOR_KEY, AllocatorRow, DentryRow, Generations, INTEGRITY_BITS, IdsRow, Inode, LayoutChoice,
    MoveRow, Node, NodeKind, OwnerRow, PERMISSION_BITS, RESTORED_KEY, ReapRow, ReplyRow, RestoredRow,
    RevokedRow, RoomRow, RuleRow, RulesRow, START_KEY, StartRow, TargetRow, dentry_key, file_key, owner_key,
    reply_key, revoked_key, session_key, start_key, target_key, xattr_key,
};

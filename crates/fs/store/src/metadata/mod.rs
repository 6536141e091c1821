//! The metadata database: a transactional engine behind a small trait, and the rows in it.
//!
//! ```text
//! metadata/identity   | cluster of the database, and version of its formats    (identity.rs)
//! metadata/log.0, .1  | changes committed since the last checkpoint            (log.rs)
//! metadata/synced     | how far the logs were synced                          (progress.rs)
//! metadata/base.redb  | everything older: one redb table per [`Table`]         (base.rs)
//! metadata/base.sums  | checksums of the blocks of the base                    (sums.rs, checked.rs)
//! metadata/reserve    | space held back for a full device                      (journal/reserve.rs)
//! ```
//!
//! A mutation runs under one lock in memory and is durable once its log frame is. The first waiter writes the frames
//! for all others ([`Journal`]). When a log is full, one redb transaction applies its changes to the base while the
//! other log takes new ones. After a crash the logs are replayed.
//!
//! Assumptions about the medium: a write that changes no byte of a sector does not damage that sector, and synced
//! bytes stay. Everything else (torn, lost and reordered unsynced writes) is survived.

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
mod progress;
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
    DatabaseSpec, Journal, JournalOptions, OpenError, RestoreError, Restored, StoredSnapshot, has_identity,
    restore,
};
pub use record::{Damaged, Untrusted, seal};
pub use rows::{
    ALLOCATOR_KEY, AllocatorRow, CLUSTER_MAP_KEY, COMPRESSION_BITS, ClusterMapRow, DOMAINS_KEY, DentryRow,
    DomainsRow, FileChargeRow, Generations, INTEGRITY_BITS, IdsRow, InlineRow, Inode, LEASING_START_KEY,
    LEVELS_KEY, LayoutChoice, LevelsRow, MoveRow, Node, NodeKind, OwnerRow, PERMISSION_BITS, QuotaRow,
    RESTORED_KEY, ReapRow, ReplicaRow, ReplyRow, RestoredRow, RevokedRow, RuleRow, RulesRow, START_KEY,
    ServerRow, ServerState, SpaceReservationRow, StartRow, TargetPlaceRow, TargetRow, dentry_key, file_key,
    owner_key, quota_key, quota_of_key, reply_key, revoked_key, session_key, start_key, target_key,
    xattr_key,
};

//! The interface between the metadata service and its database: named tables of ordered keys, snapshots and
//! transactions.
//!
//! A site that outgrows the embedded engine can put an existing transactional store behind these traits.

use super::record::{Damaged, Untrusted};
use std::ops::Bound;

/// A named table. Its number is part of the log's format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Table {
    /// Single rows: the allocator of file ids, the record of starts.
    Counters = 0,
    /// File id -> inode.
    Inodes = 1,
    /// Directory's file id, name -> child's file id and kind.
    Dentries = 2,
    /// File id, name -> extended attribute.
    Xattrs = 3,
    /// File id of an unlinked file that is still open.
    Orphans = 4,
    /// File id with generation -> layout of datafiles that the data servers must remove.
    Reap = 5,
    /// Session, slot -> last sequence number and its reply.
    Replies = 6,
    /// Sessions that hold locks; a restarted service waits for them.
    Sessions = 7,
    /// Directory's file id -> layout rules for files created below it.
    Rules = 8,
    /// Target with limited capacity -> space that layouts reserve on it.
    SpaceReservations = 9,
    /// File id -> unfinished move to another layout.
    Moves = 10,
    /// Target -> its disk and state.
    Targets = 11,
    /// Number of a start -> file ids allocated from then to the next start.
    Starts = 12,
    /// User id -> number of inodes that the user owns.
    Owners = 13,
    /// Key id -> time of revocation.
    Revoked = 14,
    /// File id -> its replica.
    Replicas = 15,
    /// Account, a user or directory tree -> its limits and usage.
    Quotas = 16,
    /// File id -> tree and charge of a file that counts in an account.
    FileCharges = 17,
    /// File id -> bytes of a small file.
    Inline = 18,
}

/// Number of tables.
pub const TABLES: usize = 19;

impl Table {
    /// All tables, by number.
    pub const ALL: [Self; TABLES] = [
        Self::Counters,
        Self::Inodes,
        Self::Dentries,
        Self::Xattrs,
        Self::Orphans,
        Self::Reap,
        Self::Replies,
        Self::Sessions,
        Self::Rules,
        Self::SpaceReservations,
        Self::Moves,
        Self::Targets,
        Self::Starts,
        Self::Owners,
        Self::Revoked,
        Self::Replicas,
        Self::Quotas,
        Self::FileCharges,
        Self::Inline,
    ];

    /// Returns the table's name in the base and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Inodes => "inodes",
            Self::Dentries => "dentries",
            Self::Xattrs => "xattrs",
            Self::Orphans => "orphans",
            Self::Reap => "reap",
            Self::Replies => "replies",
            Self::Sessions => "sessions",
            Self::Rules => "rules",
            Self::SpaceReservations => "rooms",
            Self::Moves => "moves",
            Self::Targets => "targets",
            Self::Starts => "starts",
            Self::Owners => "owners",
            Self::Revoked => "revoked",
            Self::Replicas => "replicas",
            Self::Quotas => "quotas",
            Self::FileCharges => "charges",
            Self::Inline => "inline",
        }
    }

    /// Returns the table with a number.
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < TABLES { Some(Self::ALL[number as usize]) } else { None }
    }
}

/// Error of the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A stored value is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The base cannot be read or written.
    #[error("metadata database {path}: {what}; check the device below it, then start the server again")]
    Base {
        /// Path of its file.
        path: String,
        /// Error of redb.
        what: String,
    },
    /// The base's file is damaged.
    #[error("metadata database {path}: {what}")]
    Corrupt {
        /// Path of its file.
        path: String,
        /// Damage and remedy.
        what: String,
    },
    /// The base's device is full. Changes are rejected until there is space; reads still work.
    #[error(
        "metadata database {path}: its device is full; free some space there, and changes resume by themselves"
    )]
    Full {
        /// Path of its file.
        path: String,
    },
    /// The log cannot be written. No more changes are accepted, because memory and device may differ.
    #[error("metadata log {path}: {what}; check the device below it, then start the server again")]
    Log {
        /// Path of its file.
        path: String,
        /// Error of the operating system.
        what: String,
    },
}

/// Whether a scan continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// Continue with the next row.
    Next,
    /// Stop.
    Stop,
}

/// Visitor of a scan, called for each row.
pub type Visit<'a> = dyn FnMut(&[u8], Untrusted) -> Result<Scan, EngineError> + 'a;

/// A consistent state of all tables.
pub trait Snapshot {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Errors of the base.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError>;

    /// Visits rows from `from` on in the order of their keys, until `visit` stops or the table ends.
    ///
    /// # Errors
    /// Errors of the base and of `visit`.
    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError>;
}

/// A snapshot that includes its own changes.
pub trait Transaction: Snapshot {
    /// Sets the value of a key; `value` comes from [`seal`](super::seal).
    fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>);
    /// Removes a key; does nothing if it is absent.
    fn delete(&mut self, table: Table, key: &[u8]);
}

/// A position in the history of changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Point(pub u64);

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineStats {
    /// Transactions with changes.
    pub mutations: u64,
    /// Syncs of the log that made changes durable.
    pub commits: u64,
    /// Checkpoints: times that changes were applied to the base.
    pub checkpoints: u64,
    /// Bytes of changes in memory that the base does not include yet.
    pub delta_bytes: u64,
    /// Blocks of the base found damaged since the start and not repaired.
    pub damaged_blocks: u64,
}

/// Result of a check of the base's file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BaseCheck {
    /// Number of blocks verified.
    pub blocks: u64,
    /// Damaged byte ranges, and whether each was repaired.
    pub damaged: Vec<(std::ops::Range<u64>, bool)>,
}

/// A database with one writer at a time, atomic transactions and group commit.
pub trait Engine: Send + Sync + 'static {
    /// Runs `body` on the current state.
    fn read<R>(&self, body: impl FnOnce(&dyn Snapshot) -> R) -> R;

    /// Runs `body` exclusively, and applies its changes if it returns `Ok`. They are visible to others at once, and
    /// durable after [`durable`](Engine::durable) with the returned point.
    ///
    /// # Errors
    /// Errors of `body`, or the error of a log that has failed earlier.
    fn write<R, X: From<EngineError>>(
        &self,
        body: impl FnOnce(&mut dyn Transaction) -> Result<R, X>,
    ) -> Result<(R, Point), X>;

    /// Waits until all changes up to `point` survive the end of this process. They will survive a loss of power within
    /// about a second, or when [`durable`](Engine::durable) returns.
    ///
    /// # Errors
    /// When the log cannot be written.
    async fn written(&self, point: Point) -> Result<(), EngineError>;

    /// Waits until all changes up to `point` survive a loss of power.
    ///
    /// # Errors
    /// When the log cannot be written.
    async fn durable(&self, point: Point) -> Result<(), EngineError>;

    /// Requests that all changes up to `point` become durable within about a second, or with the next commit. Waits
    /// only if very much is outstanding.
    async fn durable_soon(&self, point: Point) -> Result<(), EngineError>;

    /// Waits while changes arrive faster than checkpoints apply them. Call it before a mutation.
    async fn throttle(&self);

    /// Waits for the modeled time of past reads and writes; returns at once on a real device.
    async fn await_device(&self);

    /// Returns true if the device is so full that only changes that need no more space should be made, so that
    /// removals still can.
    fn is_low(&self) -> bool;

    /// Returns the current point.
    fn now(&self) -> Point;

    /// Returns the point up to which all changes are durable.
    fn durable_point(&self) -> Point;

    /// Returns the counters.
    fn stats(&self) -> EngineStats;

    /// Verifies the checksums of everything in the base; with `repair`, repairs what can be repaired.
    ///
    /// # Errors
    /// Errors of the device.
    fn check_base(&self, repair: bool) -> Result<BaseCheck, EngineError>;
}

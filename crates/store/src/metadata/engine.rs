//! What the metadata service asks of a database: named tables of ordered keys, snapshots and transactions.
//!
//! A site that outgrows the embedded engine puts an existing transactional store behind these traits.

use super::record::{Damaged, Untrusted};
use std::ops::Bound;

/// A named table. The number is part of the log's format.
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
    /// File id of what has no name any more and is still open.
    Orphans = 4,
    /// File id, with its generation -> layout of what is to be removed from the data servers.
    Reap = 5,
    /// Session, slot -> last sequence number and its reply.
    Replies = 6,
    /// Sessions that hold locks, so that a restarted service knows that it must wait for them.
    Sessions = 7,
    /// Directory's file id -> rules about layouts of what is made below it.
    Rules = 8,
    /// Target with limited room -> what layouts promise on it.
    Rooms = 9,
    /// File id -> the move to another layout that is under way or was left.
    Moves = 10,
    /// Target -> its disk and state.
    Targets = 11,
    /// Number of a start -> the file ids that were given out from then to the next start.
    Starts = 12,
    /// User id -> number of inodes that the user owns.
    Owners = 13,
    /// Key -> when it was revoked.
    Revoked = 14,
}

/// Number of tables.
pub const TABLES: usize = 15;

impl Table {
    /// All of them, by number.
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
        Self::Rooms,
        Self::Moves,
        Self::Targets,
        Self::Starts,
        Self::Owners,
        Self::Revoked,
    ];

    /// Its name in the base and in messages.
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
            Self::Rooms => "rooms",
            Self::Moves => "moves",
            Self::Targets => "targets",
            Self::Starts => "starts",
            Self::Owners => "owners",
            Self::Revoked => "revoked",
        }
    }

    /// The table of this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < TABLES { Some(Self::ALL[number as usize]) } else { None }
    }
}

/// Why the database could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A stored value is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The base could not be read or written.
    #[error("metadata database {path}: {what}; check the device below it, then start the server again")]
    Base {
        /// Its file.
        path: String,
        /// What redb says.
        what: String,
    },
    /// The base's file is not what was written.
    #[error("metadata database {path}: {what}")]
    Corrupt {
        /// Its file.
        path: String,
        /// The damage, and the remedy.
        what: String,
    },
    /// The base's device is full: changes are refused until there is room, and everything is readable meanwhile.
    #[error("metadata database {path}: its device is full; make room there, and changes go on by themselves")]
    Full {
        /// Its file.
        path: String,
    },
    /// The log could not be written: nothing more is accepted, because what is in memory and what is on the
    /// device may differ.
    #[error("metadata log {path}: {what}; check the device below it, then start the server again")]
    Log {
        /// Its file.
        path: String,
        /// What the system says.
        what: String,
    },
}

/// Whether a scan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// To the next row.
    Next,
    /// No further.
    Stop,
}

/// What a scan does with each row.
pub type Visit<'a> = dyn FnMut(&[u8], Untrusted) -> Result<Scan, EngineError> + 'a;

/// A consistent state of all tables.
pub trait Snapshot {
    /// The value of a key.
    ///
    /// # Errors
    /// Of the base.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError>;

    /// Visits rows from `from` on in the order of their keys, until `visit` stops or the table ends.
    ///
    /// # Errors
    /// Of the base, and those of `visit`.
    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError>;
}

/// A snapshot that sees its own changes.
pub trait Transaction: Snapshot {
    /// Sets the value of a key; `value` comes from [`seal`](super::seal).
    fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>);
    /// Removes a key; missing there is nothing to do.
    fn delete(&mut self, table: Table, key: &[u8]);
}

/// A place in the history of changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Point(pub u64);

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineStats {
    /// Transactions that changed something.
    pub mutations: u64,
    /// Frames that reached the device, each with one sync.
    pub commits: u64,
    /// Times that the base was brought up.
    pub checkpoints: u64,
    /// Bytes of changes in memory that are not in the base yet.
    pub delta_bytes: u64,
    /// Blocks of the base that were found damaged since the start and are not mended.
    pub damaged_blocks: u64,
}

/// Findings of a check of the base's file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BaseCheck {
    /// Blocks that were verified.
    pub blocks: u64,
    /// Ranges of bytes that are damaged, and whether they have been mended.
    pub damaged: Vec<(std::ops::Range<u64>, bool)>,
}

/// A database with one writer at a time, atomic transactions and commits in groups.
pub trait Engine: Send + Sync + 'static {
    /// Runs `body` on the state as it is now.
    fn read<R>(&self, body: impl FnOnce(&dyn Snapshot) -> R) -> R;

    /// Runs `body` alone; its changes are kept when it returns `Ok` and are as if they had never been otherwise.
    /// Others see them at once; they are durable after [`durable`](Engine::durable) with the returned point.
    ///
    /// # Errors
    /// Those of `body`, and that of a log which has failed before.
    fn write<R, X: From<EngineError>>(
        &self,
        body: impl FnOnce(&mut dyn Transaction) -> Result<R, X>,
    ) -> Result<(R, Point), X>;

    /// Waits until everything up to `point` survives loss of power.
    ///
    /// # Errors
    /// When it does not.
    async fn durable(&self, point: Point) -> Result<(), EngineError>;

    /// Everything up to `point` becomes durable within about a second, or with the next commit; waits only when
    /// very much is outstanding.
    async fn lazily(&self, point: Point) -> Result<(), EngineError>;

    /// Waits while changes come faster than the base takes them. To be awaited before a mutation.
    async fn room(&self);

    /// Sleeps the modelled time of reads and writes so far; nothing in the real world.
    async fn pay(&self);

    /// Whether the device is so full that only what takes no more room should be changed, so that removals find some.
    fn is_low(&self) -> bool;

    /// Everything so far.
    fn now(&self) -> Point;

    /// Counters.
    fn stats(&self) -> EngineStats;

    /// Verifies the checksums of everything that the base keeps on the device; with `repair`, mends what can be mended.
    ///
    /// # Errors
    /// Of the device.
    fn check_base(&self, repair: bool) -> Result<BaseCheck, EngineError>;
}

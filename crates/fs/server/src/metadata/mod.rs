//! The metadata service: namespace, attributes, opens, sessions and locks.
//!
//! Each request is one step on the database. Readers see a snapshot; changes run one after the other. The reply of a
//! change is stored in the same transaction, so a repeated request gets the first answer. State that exists only in
//! memory (opens, locks, sessions) changes inside the same step. The reply is sent when the change is durable; all
//! replies that wait share one sync.
//!
//! | files | purpose |
//! |---|---|
//! | `serve`, `step` | one request: operation, caller, step on the database, durability of its reply |
//! | `session`, `sessions`, `reclaim` | begin and end of clients, and their return after a restart |
//! | `walk`, `permit` | paths, symbolic links, permission |
//! | `namespace`, `rename`, `attrs`, `list`, `xattr` | operations on names and attributes, pure over the database |
//! | `open`, `opens`, `size`, `unknown_writers` | open files and the validity of file sizes |
//! | `inline`, `byte_leases` | small files in the database; their bytes in clients that have opened them |
//! | `locking`, `waiting`, `fences` | locks, waiting for them, revocation of the append lock |
//! | `layouts`, `rules`, `space_reservations`, `destination` | choice of layouts, and the space they reserve |
//! | `compression` | choice of the compression of files |
//! | `moves` | files that are being moved to other layouts |
//! | `replicas`, `replica_space` | replicas of files, and their removal when targets fill up |
//! | `cluster_map`, `targets`, `lineage` | servers and targets on record; file ids in use |
//! | `server_health`, `closed_targets` | state of the data servers; targets that take no new files |
//! | `pages`, `name_leases` | pages in the caches of mounts and delegates; names and attributes in those of mounts |
//! | `paths` | paths of inodes, for `weft top` |
//! | `tasks`, `reaper` | removal of the datafiles of removed files |
//! | `quotas` | limits of users and trees, and what their files are charged |
//! | `owners`, `keys`, `check`, `dump` | inodes by user, revoked keys, `weft fsck`, dumps |

mod attrs;
mod byte_leases;
mod check;
mod closed_targets;
mod cluster_map;
mod compression;
mod destination;
mod dump;
mod fault;
mod fences;
mod inline;
mod keys;
mod layouts;
mod levels;
mod lineage;
mod list;
mod locking;
mod moves;
mod name_leases;
mod namespace;
mod op;
mod open;
mod opens;
mod owners;
mod pages;
mod paths;
mod permit;
mod quotas;
mod reaper;
mod reclaim;
mod rename;
mod replica_space;
mod replicas;
mod rules;
mod serve;
mod server_health;
mod session;
mod sessions;
mod size;
mod space_reservations;
mod start;
mod step;
mod tables;
mod targets;
mod tasks;
mod unknown_writers;
mod waiting;
mod walk;
mod xattr;

pub use check::NamespaceCheck;
pub use cluster_map::SharedMap;
pub use layouts::placed_as;
pub use locking::HostName;
pub use reaper::{LinkRemoval, Removal};

use crate::config::Hooks;
use locking::Locks;
use op::Core;
use parking_lot::Mutex;
use sessions::Sessions;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::ibridge::PeerAverages;
use weft_core::{ByteLen, Compression, Nanos, Placement, TargetId, TargetSettings};
use weft_env::{Dir, Env};
use weft_store::emulate::Emulation;
use weft_store::metadata::{Engine, Journal, JournalOptions, Point};
use weft_wire::hello::{Identity, JobNumber};
use weft_wire::keys::Delegation;
use weft_wire::status::{MetadataStatus, UserStatus};
use weft_wire::{BoundSession, ClusterMap, Level, Levels, SessionOwner};

/// Configuration of the metadata service.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the database.
    pub path: PathBuf,
    /// Targets and servers of the cluster, as the cluster file names them.
    pub cluster: ClusterMap,
    /// Whether a blank directory is formatted, which begins a new cluster.
    pub format: bool,
    /// Settings that have defaults.
    pub options: Options,
}

impl Config {
    /// Configuration with the default options, which refuses a blank directory.
    pub fn new(path: PathBuf, cluster: ClusterMap) -> Self {
        Self { path, cluster, format: false, options: Options::default() }
    }
}

/// Whether the directory of the database exists and has been formatted.
pub async fn is_formatted<E: Env>(env: &E, config: &Config) -> bool {
    match env.dir(&config.path).await {
        Ok(dir) => weft_store::metadata::has_identity(&dir).await,
        Err(_) => false,
    }
}

/// Settings that have defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes of the database.
    pub journal: JournalOptions,
    /// Layout of files for which no other layout is requested.
    pub placement: Placement,
    /// Compression of files for which no other one is requested, and whose targets have no common setting.
    pub compression: Option<Compression>,
    /// Lifetime of a capability.
    pub capability_life: Nanos,
    /// Time after a start during which only clients of the previous start get locks, if there were any with locks or
    /// open removed files.
    pub grace: Nanos,
    /// Time after a start for which removed files stay that were open before: their programs may be waiting for something
    /// else, and return later than the grace time. Not less than that.
    pub orphans_kept: Nanos,
    /// Owner, group and mode of a new root directory.
    pub root: RootOptions,
    /// Device whose time the database takes; `None` for the real one.
    pub emulate: Option<Emulation>,
    /// Settings of the targets in the cluster file.
    pub targets: BTreeMap<TargetId, TargetSettings>,
    /// Whether the database has the cluster map, and servers and targets register there. Otherwise the map is that of the
    /// cluster file.
    pub keeps_map: bool,
    /// Feature levels that this server knows. A new cluster gets the latest of them.
    pub levels: Levels,
    /// Limits of one user. They do not apply to root and the user who runs the server.
    pub user: UserBounds,
    /// Maximum size of files whose bytes are in the database; 0 for none.
    pub inline_max: ByteLen,
    /// Whether the replies to all changes of names and attributes wait for their sync, also those to clients on this host.
    pub syncs_all_names: bool,
    /// Interval at which each data server is polled for its state and free space. With `None`, new files are placed as
    /// if all servers were up and empty.
    pub poll_interval: Option<Nanos>,
    /// Whether a database whose logs have lost durable changes is opened without them.
    pub accept_lost_log: bool,
    /// Whether all targets of the cluster file take new files without having attached. For worlds whose data servers do
    /// not attach ([`Join::No`](crate::Join)), and for services without data servers.
    pub without_registry: bool,
}

/// Limits of one user in the metadata service, over all connections and mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserBounds {
    /// Maximum number of open files plus files being truncated.
    pub opens: u32,
    /// Maximum number of locked ranges plus tickets for locks.
    pub locks: u32,
    /// Maximum number of inodes.
    pub inodes: u64,
}

impl Default for UserBounds {
    fn default() -> Self {
        Self { opens: 262_144, locks: 65_536, inodes: 10_000_000 }
    }
}

/// Owner, group and mode of a new root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootOptions {
    /// Owner; `None` for the user who runs the server.
    pub uid: Option<u32>,
    /// Group.
    pub gid: u32,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            journal: JournalOptions::default(),
            placement: Placement::default(),
            compression: None,
            capability_life: Nanos::from_s(3600),
            grace: Nanos::from_s(3),
            orphans_kept: Nanos::from_s(3),
            root: RootOptions { uid: None, gid: 0, mode: 0o755 },
            emulate: None,
            targets: BTreeMap::new(),
            keeps_map: false,
            levels: Levels::KNOWN,
            user: UserBounds::default(),
            inline_max: ByteLen(0),
            syncs_all_names: false,
            poll_interval: None,
            accept_lost_log: false,
            without_registry: false,
        }
    }
}

/// State of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    /// The session, bound to its owner: the same id from another identity is another session.
    pub session: BoundSession,
    /// Number of the connection within the session.
    slot: u32,
    /// Identity of the peer.
    identity: Identity,
    /// Process id of the peer on its host, 0 if unknown.
    pid: u32,
    /// Host of the peer.
    host: HostName,
    /// Whether the peer is a server of the cluster.
    is_server: bool,
    /// Whether the peer is an administrator.
    is_administrator: bool,
    /// Users that the peer may act for.
    delegation: Delegation,
    /// Job of the process.
    job: Option<JobNumber>,
    /// Feature level of the connection.
    level: Level,
    /// Whether a loss of power on this host ends the client too, so that its changes of names need not be durable before
    /// their replies.
    ends_with_host: bool,
}

impl ConnectionContext {
    /// Sets the feature level of the connection, which is the latest one otherwise.
    #[must_use]
    pub fn at_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Owner of the session.
    fn owner(&self) -> SessionOwner {
        SessionOwner { uid: self.identity.uid, is_server: self.is_server }
    }

    /// Whether the peer acts for other users and may name inodes by number, because permissions do not restrict it
    /// anyway.
    fn is_trusted(&self) -> bool {
        self.is_server || self.identity.is_root()
    }

    /// Whether the peer acts for other users, as the kernel of their host does. It may read programs in order to execute them.
    fn acts_for_users(&self) -> bool {
        self.is_trusted() || self.delegation != Delegation::Itself
    }
}

/// Time for which reported averages of disks are kept. A data server may require fresher ones.
const AVERAGES_KEPT: Nanos = Nanos::from_s(60);

/// Number of notifiers shared by all files with waiting lock requests.
const LOCK_NOTIFIERS: usize = 16;

/// Progress of recording ended sessions in the database.
#[derive(Clone, Copy, Default, Debug)]
struct SessionEnds {
    /// Latest change that recorded an end.
    latest: Option<Point>,
    /// Latest change that is known to be durable.
    durable: Option<Point>,
    /// Whether the end of a session could not be written. Then the rows of all sessions without locks have to be
    /// deleted first.
    is_behind: bool,
}

impl SessionEnds {
    /// Adds the change that recorded an end; `None` if it failed.
    fn add(&mut self, change: Option<Point>) {
        self.latest = self.latest.max(change);
        self.is_behind |= change.is_none();
    }

    fn are_durable(&self) -> bool {
        !self.is_behind && self.latest <= self.durable
    }
}

/// The metadata service of one server.
pub struct Service<E: Env> {
    env: E,
    dir: E::Dir,
    journal: Journal<E>,
    core: Core,
    hooks: Hooks,
    sessions: Mutex<Sessions>,
    locks: Mutex<Locks>,
    dumps: dump::Dumps,
    /// Averages that data servers reported about their disks.
    averages: Mutex<PeerAverages>,
    /// Notified when a lock on a file with this remainder may be free, or the service stops.
    lock_changed: [E::Notify; LOCK_NOTIFIERS],
    /// Notified when an event was added or completed, or a session has ended.
    event_changed: E::Notify,
    /// Notified when there are datafiles to remove, or the service stops.
    reap_work: E::Notify,
    /// Notified when the pollers of data servers must look again, or the service stops.
    watch_work: E::Notify,
    /// Notified when the cluster map may have changed, or the service stops.
    map_changed: E::Notify,
    /// Notified when space has become free, or waiting for it is pointless.
    freed: E::Notify,
    /// Notified when the copy of an inline file, or a lease of its bytes, has ended.
    hold_ended: E::Notify,
    /// Notified when the reaper has ended.
    reaper_ended: E::Notify,
    reaper_runs: AtomicBool,
    /// Whether a data server has come back, so that removals there need not wait for their retry.
    server_returned: AtomicBool,
    stopping: AtomicBool,
    /// Ends of sessions known to the database. A lock of an ended session is granted to another session only after the
    /// end is durable, so no later start gives the lock back to the ended one.
    ends: Mutex<SessionEnds>,
    /// Time until which only locks of the previous start are granted.
    grace_until: Nanos,
    /// Time until which removed files stay that were open before the start.
    orphans_until: Nanos,
    /// Whether the database records which sessions did not return by then.
    grace_is_over: AtomicBool,
    /// Time after which mounts have dropped the pages they kept before the start.
    pages_known_from: Nanos,
    /// Time at which the last name lease of the previous start has ended.
    names_known_from: Nanos,
    /// Whether the database records that this start leases names.
    has_recorded_leases: AtomicBool,
    /// Latest point of a change of names that was answered before its sync.
    early_names: AtomicU64,
    /// As in [`Options`].
    syncs_all_names: bool,
    requests: AtomicU64,
    recalls: pages::RecallCounts,
}

impl<E: Env> Service<E> {
    /// Version of the cluster map, for the replies of the service.
    pub(crate) fn map_version(&self) -> u32 {
        self.core.map.get().version
    }

    /// Number of all quotas, and the `quotas_max` whose use is nearest to a limit. None if the database fails.
    pub fn quotas(&self, quotas_max: usize) -> (u64, Vec<weft_wire::meta::Quota>) {
        self.journal.read(|s| quotas::nearest_to_limits(s, quotas_max)).unwrap_or_default()
    }

    /// State of the service for `weft status`.
    pub async fn status(&self) -> MetadataStatus {
        // The database is read first, and each lock is released before the next one is taken: a task that holds one of
        // the locks may wait for the journal.
        let inodes = self.journal.read(|s| tables::allocator(s)).map_or(0, |row| row.inodes);
        let space_reservations = self.journal.read(|s| self.core.reservations.status(s)).unwrap_or_default();
        let moves = self.journal.read(|s| moves::count_rows(s)).unwrap_or_default();
        let moves = self.core.moves.counts(moves);
        let delegates = self.delegate_counts();
        let stats = self.journal.stats();
        let space = self.dir.space().await.unwrap_or_default();
        let sessions = self.sessions.lock().len() as u32;
        let opens = self.core.opens.lock().len() as u32;
        let locks = self.locks.lock().count() as u32;
        MetadataStatus {
            inodes,
            sessions,
            opens,
            locks,
            requests: self.requests.load(Ordering::Relaxed),
            mutations: stats.mutations,
            commits: stats.commits,
            reaping: self.core.reaping.load(Ordering::Relaxed),
            total: space.total,
            free: space.free,
            space_reservations,
            damaged_blocks: stats.damaged_blocks,
            targets: self.core.registry.records(),
            moves,
            delegates,
        }
    }

    /// Adds opens, locks and inodes of each user.
    pub(crate) fn add_users(&self, users: &mut BTreeMap<u32, UserStatus>) {
        fn of(users: &mut BTreeMap<u32, UserStatus>, uid: u32) -> &mut UserStatus {
            users.entry(uid).or_insert(UserStatus { uid, ..UserStatus::default() })
        }
        // Unreadable counts are reported by `weft fsck`.
        for (uid, inodes) in self.journal.read(|s| owners::all(s)).unwrap_or_default() {
            of(users, uid).inodes = inodes;
        }
        for (uid, opens) in self.core.opens.lock().by_user() {
            of(users, *uid).opens = *opens;
        }
        for (uid, locks) in self.locks.lock().by_user() {
            of(users, *uid).locks = locks.held as u32;
        }
    }

    /// Makes waiting calls return. Sessions whose connections end after this may return to the next start.
    pub fn begin_shutdown(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Makes waiting calls return, ends the service's own tasks and makes all changes durable.
    pub async fn shutdown(&self) {
        self.begin_shutdown();
        self.wait_for_reaper().await;
        self.dumps.clear();
        if let Err(error) = self.end_in_order().await {
            self.log(&format!("error: the metadata service did not shut down cleanly: {error}"));
        }
    }

    fn wake_all(&self) {
        self.lock_changed.iter().for_each(weft_env::Notify::notify_all);
        weft_env::Notify::notify_all(&self.event_changed);
        weft_env::Notify::notify_all(&self.hold_ended);
        weft_env::Notify::notify_all(&self.reap_work);
        weft_env::Notify::notify_all(&self.watch_work);
        weft_env::Notify::notify_all(&self.map_changed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn log(&self, line: &str) {
        (self.hooks.log)(line);
    }
}

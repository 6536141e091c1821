//! The metadata service: namespace, attributes, opens, sessions and locks.
//!
//! A request is served in one step on the database: readers on its state of the moment, changes one after the other,
//! each with its reply kept beside it so that a repeated request gets the first answer. What is only in memory (opens,
//! locks, sessions) is changed inside the same step. Then the reply waits until the change is durable, together with
//! all others that wait at the time.
//!
//! ```text
//! serve        one request: which operation, on whose behalf                  session  beginning and end of clients
//! step         a look or a change of the database, told when durable          reclaim  what clients tell again
//! waiting      locks that are waited for              pages   what mounts keep, dropped when others write
//! walk         paths, links and search permission        permit  permission   layouts  which layout a file gets
//! rules        which rule of a directory a new file takes    rooms   what layouts promise on targets with limited room
//! namespace, rename, attrs, list, xattr, open, size, check   the operations, each pure over the database
//! free     which data servers answer and what space they have       closed   targets that take no new files, and why
//! moves    files on their way to other layouts         dump    states of the database, read page by page
//! keys     which keys are refused
//! targets  which disks joined the cluster, and may be used    lineage  which file ids are given out
//! owners   how many inodes each user owns, and may own
//! opens, sessions, locking, fences   what is in memory, pure        reaper  removal of datafiles
//! ```

mod attrs;
mod check;
mod closed;
mod destination;
mod dump;
mod fault;
mod fences;
mod free;
mod ghosts;
mod keys;
mod layouts;
mod lineage;
mod list;
mod locking;
mod moves;
mod namespace;
mod op;
mod open;
mod opens;
mod owners;
mod pages;
mod permit;
mod reaper;
mod reclaim;
mod rename;
mod rooms;
mod rules;
mod serve;
mod session;
mod sessions;
mod size;
mod start;
mod step;
mod tables;
mod targets;
mod tasks;
mod waiting;
mod walk;
mod xattr;

pub use check::NamespaceCheck;
pub use layouts::placed_as;
pub use reaper::{LinkRemoval, Removal};

use crate::config::Hooks;
use locking::Locks;
use op::Core;
use parking_lot::Mutex;
use sessions::Sessions;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::ibridge::Board;
use weft_core::{ByteLen, Nanos, Placement, Reserve, TargetId};
use weft_env::{Dir, Env};
use weft_store::emulate::Emulation;
use weft_store::metadata::{Engine, Journal, JournalOptions, Point};
use weft_wire::hello::Identity;
use weft_wire::keys::Acting;
use weft_wire::status::{MetadataStatus, UserStatus};
use weft_wire::{BoundSession, ClusterMap, SessionOwner};

/// What the metadata service is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of its database.
    pub path: PathBuf,
    /// Where the targets and their servers are.
    pub cluster: ClusterMap,
    /// Whether a blank directory is formatted: a new cluster begins there.
    pub format: bool,
    /// What has a default.
    pub options: Options,
}

impl Config {
    /// With the default options; a blank directory is refused.
    pub fn new(path: PathBuf, cluster: ClusterMap) -> Self {
        Self { path, cluster, format: false, options: Options::default() }
    }
}

/// Whether the directory of the database is there and has been formatted.
pub async fn is_formatted<E: Env>(env: &E, config: &Config) -> bool {
    match env.dir(&config.path).await {
        Ok(dir) => weft_store::metadata::has_identity(&dir).await,
        Err(_) => false,
    }
}

/// What has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes of the database.
    pub journal: JournalOptions,
    /// The layout of files of which nobody wants another one.
    pub placement: Placement,
    /// How long a capability holds.
    pub capability_life: Nanos,
    /// How long, after a start with clients that had locks or removed files open, only those get locks.
    pub grace: Nanos,
    /// Owner, group and mode of the root directory when it is made.
    pub root: RootOptions,
    /// The device whose time the database takes; `None` the one below.
    pub emulate: Option<Emulation>,
    /// What layouts may promise on targets with limited room.
    pub rooms: BTreeMap<TargetId, ByteLen>,
    /// Shares of one user. They do not bound root and the user who runs the server.
    pub user: UserBounds,
    /// What new files leave free on targets.
    pub reserves: BTreeMap<TargetId, Reserve>,
    /// How often each data server is asked whether it answers, and for its free space; `None` never: then new files are
    /// placed as if all servers were well and empty.
    pub ask_every: Option<Nanos>,
    /// All targets of the cluster file take new files, whether their servers attached them or not: for worlds whose data
    /// servers do not attach ([`Join::No`](crate::Join)), and services without data servers.
    pub without_registry: bool,
}

/// Shares of one user in the metadata service, over all connections and mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserBounds {
    /// Most open files, and files that are being cut.
    pub opens: u32,
    /// Most locked ranges and places in queues for locks.
    pub locks: u32,
    /// Most inodes.
    pub inodes: u64,
}

impl Default for UserBounds {
    fn default() -> Self {
        Self { opens: 262_144, locks: 65_536, inodes: 10_000_000 }
    }
}

/// Owner, group and mode of the root directory when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootOptions {
    /// Owner; `None` is the user who runs the server.
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
            capability_life: Nanos::from_s(3600),
            grace: Nanos::from_s(3),
            root: RootOptions { uid: None, gid: 0, mode: 0o755 },
            emulate: None,
            rooms: BTreeMap::new(),
            user: UserBounds::default(),
            reserves: BTreeMap::new(),
            ask_every: None,
            without_registry: false,
        }
    }
}

/// What the service knows of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    /// The session, bound to its owner: the same id from another identity is another session.
    pub session: BoundSession,
    /// Number of the connection in it.
    slot: u32,
    /// Who it is.
    identity: Identity,
    /// Its process on its node, 0 where unknown.
    pid: u32,
    /// A server of the cluster.
    is_server: bool,
    /// May administrate.
    is_administrator: bool,
    /// Whom it may act for.
    acting: Acting,
}

impl ConnectionContext {
    /// The owner of the session.
    fn owner(&self) -> SessionOwner {
        SessionOwner { uid: self.identity.uid, is_server: self.is_server }
    }

    /// Whether the peer acts for others and names inodes by their numbers: permission does not hold it back anyway.
    fn is_trusted(&self) -> bool {
        self.is_server || self.identity.is_root()
    }
}

/// How long the service remembers what a data server told of its disks. Those who ask for it may want it fresher.
const AVERAGES_KEPT: Nanos = Nanos::from_s(60);

/// How many notifiers share the files on which somebody waits for a lock.
const LOCK_NOTIFIERS: usize = 16;

/// How far the database knows which sessions have ended.
#[derive(Clone, Copy, Default, Debug)]
struct Ends {
    /// The change with the latest end.
    latest: Option<Point>,
    /// The latest change that is known to be durable.
    durable: Option<Point>,
    /// The end of some session could not be written: rows of sessions without locks have to be deleted first.
    is_behind: bool,
}

impl Ends {
    /// A session has ended with this change, or with `None` the change could not be made.
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
    cluster: ClusterMap,
    hooks: Hooks,
    sessions: Mutex<Sessions>,
    locks: Mutex<Locks>,
    dumps: dump::Dumps,
    /// What data servers told of their disks.
    averages: Mutex<Board>,
    /// A lock on a file of this number's remainder may be free, or the service ends.
    lock_changed: [E::Notify; LOCK_NOTIFIERS],
    /// There is an event, one was done, or a session has ended.
    event_changed: E::Notify,
    /// There is something to remove, or the service ends.
    reap_work: E::Notify,
    /// The service ends: nobody goes on watching servers.
    watch_work: E::Notify,
    /// Room has become free, or is not to be waited for.
    freed: E::Notify,
    /// The reaper has ended.
    reaper_ended: E::Notify,
    reaper_runs: AtomicBool,
    /// A data server that was down answers again: what is to be removed there need not wait any longer.
    server_returned: AtomicBool,
    stopping: AtomicBool,
    /// How far the database knows which sessions have ended. A lock of an ended session is granted to another session
    /// only when the end is durable, so that no later start gives the lock back.
    ends: Mutex<Ends>,
    /// Until then only what was locked before the start is locked.
    grace_until: Nanos,
    /// The database says who has not come back until then.
    grace_is_over: AtomicBool,
    /// From then on mounts have dropped the pages that they kept before the start.
    pages_told_from: Nanos,
    requests: AtomicU64,
}

impl<E: Env> Service<E> {
    /// The state for `weft status`.
    pub async fn status(&self) -> MetadataStatus {
        // The locks below would be held until all of the answer is made, and whoever writes to the journal may wait
        // for one: it is read before, and each lock is let go of by itself.
        let inodes = self.journal.read(|s| tables::allocator(s)).map_or(0, |row| row.inodes);
        let rooms = self.journal.read(|s| self.core.rooms.told(s)).unwrap_or_default();
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
            rooms,
            damaged_blocks: stats.damaged_blocks,
            targets: self.core.registry.records(),
        }
    }

    /// Adds opens, locks and inodes of each user.
    pub(crate) fn add_users(&self, users: &mut BTreeMap<u32, UserStatus>) {
        fn of(users: &mut BTreeMap<u32, UserStatus>, uid: u32) -> &mut UserStatus {
            users.entry(uid).or_insert(UserStatus { uid, ..UserStatus::default() })
        }
        // `weft fsck` reports accounts that cannot be read.
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

    /// Makes waiting calls return. Sessions whose connections end from here on may come back to the next start.
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
            self.log(&format!("the metadata service did not end in order: {error}"));
        }
    }

    fn wake_all(&self) {
        self.lock_changed.iter().for_each(weft_env::Notify::notify_all);
        weft_env::Notify::notify_all(&self.event_changed);
        weft_env::Notify::notify_all(&self.reap_work);
        weft_env::Notify::notify_all(&self.watch_work);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn log(&self, line: &str) {
        (self.hooks.log)(line);
    }
}

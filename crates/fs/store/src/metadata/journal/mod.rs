//! The embedded engine: a log for durability, changes in memory, and a base below.
//!
//! ```text
//!  write ----> pending frame ----> log.0 / log.1        one write and one sync per group of changes
//!    |
//!    +-------> delta               changes since the last freeze
//!                | the log is full: freeze, switch logs
//!              frozen              changes on their way to the base
//!                | checkpoint (background)
//!              base                redb: everything older
//! ```
//!
//! | event | effect |
//! | --- | --- |
//! | write | under one lock: rows in `delta`, change in the pending frame, next [`Point`] |
//! | written | the caller writes the pending frame, without a sync |
//! | durable | the first waiter writes the pending frame and syncs the log for all others |
//! | log full | `delta` becomes `frozen`; frames go to the other log |
//! | checkpoint | one redb transaction with the frozen rows and the last frame's number |
//! | read | newest first: `delta`, `frozen`, base |
//! | start | frames after the base's last one are replayed into the base |
//! | log failure | no more writes, until a restart |
//! | base failure | no more writes, until a repeated checkpoint succeeds |
//! | device full | space in `reserve` is released to the base, see [`Engine::is_low`] |
//!
//! `docs/design/metadata-engine.md` has the measurements behind this design.

mod checkpointer;
mod commit;
mod files;
mod reserve;
mod restore;
mod snapshot;
mod view;

use super::base::{Base, BaseSnapshot};
use super::delta::Delta;
use super::engine::{BaseCheck, Engine, EngineError, EngineStats, Point, Snapshot, Table, Transaction};
use super::identity::{Identity, IdentityError};
use super::log::{LogKey, append_change, start_frame};
use crate::emulate::{Emulated, Emulator};
use checkpointer::DEFERRED_MAX;
use files::{
    BASE, IDENTITY, IDENTITY_NEW, LOCK, LOGS, RESERVE, Recovered, SUMS, SYNCED, check_empty, format, gone,
    make_synced, read_all, recover, store_identity,
};
use parking_lot::{Mutex, RwLock};
use reserve::Reserve;
pub use restore::{RestoreError, Restored, restore};
pub use snapshot::StoredSnapshot;
use std::io;
use std::sync::Arc;
use view::{Reader, Writer};
use weft_core::{ByteLen, ClusterId, Nanos};
use weft_env::{BlockingFile, Dir, Env, File, Notify, OpenMode};

/// Number of pending bytes above which changes are written although no caller waits.
const DEFERRED_BYTES_MAX: usize = 256 << 10;
/// Bytes of frames that may wait for a sync. Above that, whoever writes the next one syncs. A start searches a multiple of
/// it for the proof that a damaged frame was durable.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;
/// Space reserved for a full device, in lengths of a log.
const RESERVE_LOG_LENGTHS: u64 = 4;
/// On a full device, a log counts as full at this fraction of its length, so that a checkpoint needs little space.
const LOW_LOG_DIVISOR: u64 = 64;
/// On a full device, number of bytes of changes per transaction of a checkpoint. Each transaction reuses the pages
/// that the previous one freed.
const LOW_TRANSACTION_BYTES: u64 = 32 << 10;

/// Sizes of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Length of each of the two logs: the amount of changes between checkpoints. It bounds the memory of changes and
    /// the time of a start after a crash.
    pub log_len: ByteLen,
    /// Memory of the base's page cache.
    pub cache_len: ByteLen,
    /// Time that a commit waits for further changes. Zero commits whatever arrived during the previous commit, which
    /// is best unless a sync takes very long.
    pub commit_delay: Nanos,
    /// A commit with this many changes does not wait.
    pub commit_changes_max: u32,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            log_len: ByteLen::from_mib(16),
            cache_len: ByteLen::from_mib(64),
            commit_delay: Nanos::ZERO,
            commit_changes_max: 1024,
        }
    }
}

type Blocking<E> = Emulated<E, <<E as Env>::File as File>::Blocking>;

/// The embedded engine. Clones share it.
pub struct Journal<E: Env>(Arc<Shared<E>>);

impl<E: Env> Clone for Journal<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<E: Env> {
    env: E,
    /// Locked before `state`.
    end: Mutex<LogEnd>,
    /// Locked before `commit`.
    state: RwLock<State>,
    commit: Mutex<Commit>,
    /// Signaled when changes became durable, a checkpoint completed, or the background task ended.
    progress: E::Notify,
    /// Signaled when the background task has work.
    work: E::Notify,
    base: Base<Blocking<E>>,
    logs: [Blocking<E>; 2],
    /// The file that records how far the logs were synced.
    synced: Blocking<E>,
    /// Lengths of the logs at the start.
    log_lens: [u64; 2],
    /// Key of the frames.
    key: LogKey,
    reserve: Reserve<E>,
    dir_name: String,
    identity: Identity,
    log_len: u64,
    commit_delay: Nanos,
    commit_changes_max: u64,
    /// Lock on the directory, held until the database is closed.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The state that readers see, and changes that are not in the log yet.
struct State {
    /// Changes since the last freeze.
    delta: Delta,
    /// Changes that the next checkpoint applies, and the last frame that contains some of them.
    frozen: Option<(Arc<Delta>, u64)>,
    base: Arc<BaseSnapshot>,
    /// Frame that collects changes: empty, or space for the header followed by changes.
    pending: Vec<u8>,
    /// Number of mutations so far.
    point: u64,
    /// Error of the log; permanent.
    failed: Option<EngineError>,
    /// Error of the last checkpoint, until one succeeds.
    checkpoint_error: Option<EngineError>,
}

/// Place of the next frame, and the frames since the last sync.
struct LogEnd {
    file: usize,
    offset: u64,
    /// Number of the next frame.
    frame: u64,
    /// Log of the last frame, and the offset behind it.
    last: (usize, u64),
    /// Empty buffer to fill next.
    spare: Vec<u8>,
    /// Logs with frames that no sync has begun to cover.
    unsynced_files: [bool; 2],
    /// Bytes of these frames.
    unsynced_bytes: u64,
}

/// Progress of the log.
struct Commit {
    /// Point up to which changes are written, so that they survive the process.
    written: u64,
    /// Point up to which changes are synced.
    durable: u64,
    /// Last frame of these.
    synced_frame: u64,
    /// Whether a task syncs the log.
    leading: bool,
    commits: u64,
    checkpoints: u64,
    /// Time of the oldest change without a waiting caller.
    deferred_since: Option<Nanos>,
    stop: bool,
    is_task_running: bool,
}

/// Reason why a metadata path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("it is in use by another process: end that server, or give this one another path")]
    InUse,
    /// The directory holds something else.
    #[error("it holds {0:?}, which is not Weft's: give an empty directory")]
    Foreign(String),
    /// The directory is blank.
    #[error(
        "it is blank: if its disk is not mounted, mount it and start the server again; if it is lost, restore a dump \
         with `weft meta restore`; a new cluster begins with `weft serve --format`"
    )]
    Blank,
    /// The directory holds a database without its identity file.
    #[error("it holds a database without its identity file; restore that from a copy of this path")]
    Unidentified,
    /// The database belongs to another cluster or version.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Error of the file system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The database to open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseSpec {
    /// Name of the cluster.
    pub cluster: String,
    /// Formats a blank directory, which begins a new cluster.
    pub format: bool,
    /// Identity of a new cluster; [`ClusterId::NONE`] chooses a random one.
    pub new_id: ClusterId,
    /// Goes on without changes that were durable and that the logs have lost.
    pub accept_lost_log: bool,
}

impl DatabaseSpec {
    /// Opens a database of this cluster, and formats a blank directory.
    pub fn formatting(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), format: true, new_id: ClusterId::NONE, accept_lost_log: false }
    }
}

/// Returns true if the directory has an identity file, so it is not blank.
pub async fn has_identity<D: Dir>(dir: &D) -> bool {
    dir.meta(IDENTITY).await.is_ok()
}

impl<E: Env> Journal<E> {
    /// Returns the identity of the database.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Opens the database in `dir`, or creates one if the directory is blank and `spec` permits it. `dir_name` is used
    /// in messages. Starts the background task.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        env: E,
        dir: E::Dir,
        dir_name: &str,
        spec: &DatabaseSpec,
        options: JournalOptions,
    ) -> Result<Self, OpenError> {
        Self::open_emulated(env, dir, dir_name, spec, options, None).await
    }

    /// Opens the database on an emulated device, whose time commits and reads of the base take. Formatting does not.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open_emulated(
        env: E,
        dir: E::Dir,
        dir_name: &str,
        spec: &DatabaseSpec,
        options: JournalOptions,
        device: Option<Emulator<E>>,
    ) -> Result<Self, OpenError> {
        let lock = match dir.lock(LOCK).await {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(OpenError::InUse),
            Err(error) => return Err(error.into()),
        };
        let names = dir.list("").await?;
        if !names.iter().any(|name| name == IDENTITY) {
            let ours = [IDENTITY_NEW, LOCK, BASE, SUMS, LOGS[0], LOGS[1], SYNCED, RESERVE, "lost+found"];
            if let Some(foreign) = names.iter().find(|name| !ours.contains(&name.as_str())) {
                return Err(OpenError::Foreign(foreign.clone()));
            }
            check_empty(&dir, &names).await?;
            if !spec.format {
                return Err(OpenError::Blank);
            }
            let id = if spec.new_id.is_none() { random_id(&env) } else { spec.new_id };
            let cluster = spec.cluster.clone();
            format(&dir, &Identity { cluster, id, was_version_1: false }, options).await?;
        }
        let found = read_all(&dir.open(IDENTITY, OpenMode::READ).await?).await?;
        let mut identity = Identity::decode(&found)?;
        identity.check(&spec.cluster)?;
        if identity.id.is_none() {
            identity.id = random_id(&env);
        }
        let room =
            dir.open(RESERVE, OpenMode::CREATE).await.ok().map(|file| Emulated::new(file.blocking(), None));
        let len_max = ByteLen(RESERVE_LOG_LENGTHS * options.log_len.0);
        let reserve = Reserve::new(room, dir.clone(), options.log_len, len_max).await;
        reserve.release_if_full().await;
        let is_synced_lost = spec.accept_lost_log && dir.meta(SYNCED).await.is_err();
        if !Identity::has_synced(&found) || is_synced_lost {
            make_synced(&dir, options.log_len, spec.accept_lost_log).await?;
        }
        if found != identity.encode() {
            // Of an earlier version, which would not find later changes.
            store_identity(&dir, &identity.encode()).await?;
        }

        let open = async |name, number| match dir.open(name, OpenMode::WRITE).await {
            Ok(file) => {
                let device = device.clone().filter(|_| number > 0);
                Ok(Emulated::new(file.blocking(), device.map(|device| (device, number))))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(gone(name)),
            Err(error) => Err(error),
        };
        let logs = [open(LOGS[0], 1).await?, open(LOGS[1], 2).await?];
        // Without an emulated device: a real one writes it later, along with other pages.
        let synced = open(SYNCED, 0).await?;
        let cache = usize::try_from(options.cache_len.0).unwrap_or(usize::MAX);
        // A base without checksums was created by an earlier version and gets them now.
        let sums = Emulated::new(
            dir.open(SUMS, OpenMode::CREATE).await?.blocking(),
            device.clone().map(|device| (device, 4)),
        );
        let base = Base::open(open(BASE, 3).await?, sums, format!("{dir_name}/{BASE}"), cache)?;
        let mut fresh = [0; 8];
        env.random(&mut fresh);
        let loss = (LogKey(u64::from_le_bytes(fresh)), spec.accept_lost_log);
        let Recovered { last, key, lens } = recover(&base, &logs, &synced, &reserve, loss)?;
        reserve.allocate().await;
        let this = Self(Arc::new(Shared {
            state: RwLock::new(State {
                delta: Delta::default(),
                frozen: None,
                base: Arc::new(base.snapshot()?),
                pending: Vec::new(),
                point: 0,
                failed: None,
                checkpoint_error: None,
            }),
            end: Mutex::new(LogEnd {
                file: 0,
                offset: 0,
                frame: last + 1,
                last: (0, 0),
                spare: Vec::new(),
                unsynced_files: [false; 2],
                unsynced_bytes: 0,
            }),
            commit: Mutex::new(Commit {
                written: 0,
                durable: 0,
                synced_frame: last,
                leading: false,
                commits: 0,
                checkpoints: 0,
                deferred_since: None,
                stop: false,
                is_task_running: true,
            }),
            progress: env.notify(),
            work: env.notify(),
            base,
            logs,
            synced,
            log_lens: lens,
            key,
            reserve,
            dir_name: dir_name.to_owned(),
            identity,
            log_len: options.log_len.0,
            commit_delay: options.commit_delay,
            commit_changes_max: u64::from(options.commit_changes_max),
            lock: Mutex::new(Some(lock)),
            env,
        }));
        this.await_device().await;
        let task = this.clone();
        this.0.env.spawn("weft-checkpoint", move || async move { task.run_task().await })?;
        Ok(this)
    }

    /// Returns the bytes of the identity file.
    pub fn identity_bytes(&self) -> Vec<u8> {
        self.0.identity.encode()
    }

    /// Returns the path of the base's file, for messages.
    pub fn base_path(&self) -> String {
        format!("{}/{BASE}", self.0.dir_name)
    }

    /// Makes everything durable, stops the background task and releases the lock. No changes are possible afterwards.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        let result = self.durable(self.now()).await;
        let shared = &*self.0;
        shared.commit.lock().stop = true;
        shared.work.notify_all();
        loop {
            let epoch = shared.progress.epoch();
            if !shared.commit.lock().is_task_running {
                break;
            }
            shared.progress.wait(epoch, None).await;
        }
        let closed = EngineError::Log { path: shared.dir_name.clone(), what: "closed".to_owned() };
        shared.state.write().failed.get_or_insert(closed);
        shared.base.close();
        // For the case that the machine loses power soon.
        let _ = shared.synced.sync();
        *shared.lock.lock() = None;
        result
    }
}

impl<E: Env> Engine for Journal<E> {
    fn read<R>(&self, body: impl FnOnce(&dyn Snapshot) -> R) -> R {
        let state = self.0.state.read();
        body(&Reader(state.layers(None)))
    }

    fn write<R, X: From<EngineError>>(
        &self,
        body: impl FnOnce(&mut dyn Transaction) -> Result<R, X>,
    ) -> Result<(R, Point), X> {
        let mut state = self.0.state.write();
        if let Some(error) = state.failed.as_ref().or(state.checkpoint_error.as_ref()) {
            return Err(error.clone().into());
        }
        let mut transaction = Writer { state: &state, changes: Delta::default() };
        let result = body(&mut transaction)?;
        let changes = transaction.changes;
        if !changes.is_empty() {
            if state.pending.is_empty() {
                start_frame(&mut state.pending);
            }
            for table in Table::ALL {
                for (key, value) in changes.rows(table) {
                    append_change(&mut state.pending, table, key, value.as_deref());
                }
            }
            state.delta.absorb(changes);
            state.point += 1;
        }
        Ok((result, Point(state.point)))
    }

    async fn written(&self, point: Point) -> Result<(), EngineError> {
        let shared = &*self.0;
        let (is_written, deferred_since) = {
            let commit = shared.commit.lock();
            (commit.written >= point.0, commit.deferred_since)
        };
        let is_due = |since: Nanos| shared.env.now().saturating_sub(since) > DEFERRED_MAX;
        let is_much = !is_written && self.append_pending()?.unsynced_bytes > UNSYNCED_BYTES_MAX;
        if is_much || deferred_since.is_some_and(is_due) {
            return self.durable(point).await;
        }
        self.sync_soon(point);
        Ok(())
    }

    async fn durable(&self, point: Point) -> Result<(), EngineError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            let lead = {
                let mut commit = shared.commit.lock();
                if commit.durable >= point.0 {
                    return Ok(());
                }
                !std::mem::replace(&mut commit.leading, true)
            };
            if !lead {
                shared.progress.wait(epoch, None).await;
                continue;
            }
            self.lead().await?;
        }
    }

    async fn durable_soon(&self, point: Point) -> Result<(), EngineError> {
        let shared = &*self.0;
        if shared.state.read().pending.len() > DEFERRED_BYTES_MAX {
            return self.durable(point).await;
        }
        self.sync_soon(point);
        Ok(())
    }

    async fn throttle(&self) {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            {
                let state = shared.state.read();
                let is_backlogged = state.frozen.is_some() && state.delta.bytes() > 4 * shared.log_len;
                if !is_backlogged || state.failed.is_some() || state.checkpoint_error.is_some() {
                    return;
                }
            }
            shared.progress.wait(epoch, None).await;
        }
    }

    async fn await_device(&self) {
        let shared = &*self.0;
        for file in shared.base.files().into_iter().chain(&shared.logs).chain([&shared.synced]) {
            file.wait_for_device().await;
        }
    }

    fn is_low(&self) -> bool {
        self.0.reserve.is_low()
    }

    fn now(&self) -> Point {
        Point(self.0.state.read().point)
    }

    fn durable_point(&self) -> Point {
        Point(self.0.commit.lock().durable)
    }

    fn stats(&self) -> EngineStats {
        let state = self.0.state.read();
        let commit = self.0.commit.lock();
        let frozen = state.frozen.as_ref().map_or(0, |(delta, _)| delta.bytes());
        EngineStats {
            mutations: state.point,
            commits: commit.commits,
            checkpoints: commit.checkpoints,
            delta_bytes: state.delta.bytes() + frozen,
            damaged_blocks: self.0.base.damaged(),
        }
    }

    fn check_base(&self, repair: bool) -> Result<BaseCheck, EngineError> {
        self.0.base.check(repair)
    }
}

fn random_id<E: Env>(env: &E) -> ClusterId {
    let mut bytes = [0; 16];
    env.random(&mut bytes);
    ClusterId::from_random(bytes)
}

//! Beginning and end of the service.

use super::fault::{Fault, Outcome};
use super::fences::Fences;
use super::free::Free;
use super::ghosts::Ghosts;
use super::layouts::Layouts;
use super::lineage;
use super::locking::Locks;
use super::moves::Moves;
use super::op::Core;
use super::opens::Opens;
use super::reaper::{LinkRemoval, Removal};
use super::rooms::Rooms;
use super::rules::Rules;
use super::sessions::Sessions;
use super::tables::{allocator, inode, put_allocator, put_inode, put_start_row, start_row};
use super::targets::Registry;
use super::{Config, LOCK_NOTIFIERS, Options, Service};
use crate::config::Hooks;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weft_core::ibridge::Board;
use weft_core::{ByteLen, ClusterId, FileId, Nanos, Timestamp};
use weft_env::Env;
use weft_env::plants::{Plant, planted};
use weft_store::emulate::Emulator;
use weft_store::metadata::{
    AllocatorRow, Engine, EngineError, Identity, Inode, Journal, Node, Scan, Snapshot, Table, Transaction,
    Wanted,
};
use weft_wire::BoundSession;
use weft_wire::meta::{PAGES_DROPPED_AFTER, ROOT};
use weft_wire::{ClusterMap, ClusterSecret};

/// Fences of one start and the next lie so far apart, in seconds: the capabilities that the one before gave behind its
/// fences end before those of this one, however soon it follows.
const FENCES_APART_S: u64 = 8;
/// For so many starts; from then on they must be that far apart in time.
const FENCES_APART_MAX: u32 = 450;

/// What the database says of the time before the start.
struct Before {
    incarnation: u32,
    reaping: u64,
    /// Somebody had locks or removed files open, and may come back for them.
    expected: bool,
    /// Who had locks.
    locked: BTreeSet<BoundSession>,
    /// Whose replies are kept.
    replied: BTreeSet<BoundSession>,
    /// No file from here on was there.
    first_new: FileId,
    rooms: Rooms,
    rules: Rules,
    registry: Registry,
}

impl<E: Env> Service<E> {
    /// Opens the database, made when its directory is blank and the configuration says so, and starts the service's own tasks.
    ///
    /// # Errors
    /// A sentence that names the path and the remedy.
    pub async fn start(
        env: E,
        config: Config,
        secret: ClusterSecret,
        hooks: Hooks,
    ) -> Result<Arc<Self>, String> {
        let removal = LinkRemoval::new(env.clone(), config.cluster.clone(), secret.clone());
        let ask_every = config.options.ask_every;
        let service = Self::start_with(env, config, secret.clone(), hooks, removal).await?;
        for (server, every) in service.core.free.servers().zip(std::iter::repeat(ask_every)) {
            let Some(every) = every else { break };
            let (watcher, secret) = (Arc::clone(&service), secret.clone());
            let task = move || async move { watcher.watch_server(server, secret, every).await };
            service.env.spawn("weft-watch", task).map_err(|error| format!("metadata service: {error}"))?;
        }
        Ok(service)
    }

    /// The same with another way to the data servers.
    ///
    /// # Errors
    /// A sentence that names the path and the remedy.
    pub async fn start_with<R: Removal>(
        env: E,
        config: Config,
        secret: ClusterSecret,
        hooks: Hooks,
        mut removal: R,
    ) -> Result<Arc<Self>, String> {
        let Config { path, cluster, format, options } = config;
        let name = path.display().to_string();
        let told = |error: &dyn std::fmt::Display| format!("metadata path {name}: {error}");
        let dir = env.dir(&path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => told(&format!(
                "{error}: if its disk is not mounted, mount it and start the server again; a new cluster begins with \
                 `weft serve --format`"
            )),
            _ => told(&error),
        })?;
        // A simulated cluster without a registry needs no identity of its own, and keeps its course of events.
        let new_id = if options.without_registry { ClusterId(1) } else { ClusterId::NONE };
        let wanted = Wanted { cluster: cluster.name.clone(), format, new_id };
        let device = options.emulate.as_ref().map(|emulation| Emulator::new(&env, emulation));
        let journal =
            Journal::open_emulated(env.clone(), dir.clone(), &name, &wanted, options.journal, device)
                .await
                .map_err(|error| told(&error))?;
        let wall = env.wall();
        let (before, point) = journal
            .write(|t| {
                super::keys::begin(t, &secret)?;
                begin(t, &options, journal.identity(), &cluster, hooks.uid, wall)
            })
            .map_err(|fault: Fault| told(&fault.told()))?;
        removal.set_cluster(journal.identity().id);
        journal.durable(point).await.map_err(|error| told(&error))?;
        journal.pay().await;

        let now = env.now();
        let restarted = before.incarnation > 1;
        // One second more than whole seconds of a capability, and as much for the service's own clock.
        let writers_until = Timestamp(wall.0 + i128::from(options.capability_life.0) + 2_000_000_000);
        let mut sessions = Sessions::default();
        before.replied.iter().for_each(|session| sessions.has_ended(*session, now));
        let service = Arc::new(Self {
            dir,
            core: Core {
                layouts: Layouts::new(cluster.clone(), options.placement),
                rooms: before.rooms,
                free: Free::new(options.reserves, &cluster),
                rules: Mutex::new(before.rules),
                registry: before.registry,
                secret,
                bounds: options.user,
                owner_uid: hooks.uid,
                capability_life_s: options.capability_life.0 / 1_000_000_000,
                incarnation: before.incarnation,
                cautious_until: if restarted {
                    Timestamp(wall.0 + i128::from(options.grace.0))
                } else {
                    Timestamp(0)
                },
                opens: Mutex::new(Opens::default()),
                ghosts: Mutex::new(Ghosts::new(before.first_new, writers_until)),
                // Who had an append lock then does not tell of it again.
                fences: Mutex::new(if restarted {
                    let until_s = u64::try_from(writers_until.parts().0).unwrap_or(0);
                    let apart_s = FENCES_APART_S * u64::from(before.incarnation.min(FENCES_APART_MAX));
                    Fences::new(before.first_new, until_s + apart_s)
                } else {
                    Fences::default()
                }),
                data_fences: Mutex::default(),
                moves: Moves::default(),
                granted_latest_s: AtomicU64::new(0),
                reaping: AtomicU64::new(before.reaping),
                reap_wanted: AtomicBool::new(false),
                freeing: Mutex::default(),
            },
            cluster,
            hooks,
            sessions: Mutex::new(sessions),
            locks: Mutex::new(Locks::of_before(before.locked)),
            dumps: super::dump::Dumps::default(),
            ends: Mutex::default(),
            averages: Mutex::new(Board::new(super::AVERAGES_KEPT)),
            lock_changed: std::array::from_fn::<_, LOCK_NOTIFIERS, _>(|_| env.notify()),
            event_changed: env.notify(),
            reap_work: env.notify(),
            watch_work: env.notify(),
            freed: env.notify(),
            reaper_ended: env.notify(),
            reaper_runs: AtomicBool::new(true),
            server_returned: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            grace_is_over: AtomicBool::new(!before.expected),
            grace_until: if before.expected { now.saturating_add(options.grace) } else { Nanos::ZERO },
            pages_told_from: if restarted { now.saturating_add(PAGES_DROPPED_AFTER) } else { Nanos::ZERO },
            requests: AtomicU64::new(0),
            journal,
            env,
        });
        let reaper = Arc::clone(&service);
        let spawned = service.env.spawn("weft-reaper", move || async move { reaper.reap(removal).await });
        spawned.map_err(|error| told(&error))?;
        Ok(service)
    }

    /// The end, once nothing runs any more.
    pub(super) async fn end_in_order(&self) -> Result<(), EngineError> {
        let ended = self.journal.write(|t| -> Outcome<()> {
            let row = start_row(t)?;
            put_start_row(t, &weft_store::metadata::StartRow { clean: true, ..row });
            Ok(())
        });
        if let Ok((_, point)) = ended {
            self.journal.durable(point).await?;
        }
        self.journal.shutdown().await
    }
}

fn begin(
    t: &mut dyn Transaction,
    options: &Options,
    identity: &Identity,
    cluster: &ClusterMap,
    uid: u32,
    now: Timestamp,
) -> Outcome<Before> {
    let mut start = start_row(t)?;
    let crashed = start.incarnation > 0 && !start.clean;
    start.incarnation += 1;
    start.clean = false;
    put_start_row(t, &start);
    if inode(t, ROOT)?.is_none() {
        put_inode(t, ROOT, &root(options, uid, now));
        put_allocator(t, &AllocatorRow { next: FileId(ROOT.0 + 1), inodes: 1 });
    }
    if !planted(Plant::ReusedIds) {
        // Where ids may repeat after a restored copy, they are dense.
        let clock = if options.without_registry { Timestamp(0) } else { now };
        lineage::begin(t, start.incarnation, crashed, clock)?;
    }
    let registry = Registry::begin(t, identity, cluster, options.without_registry)?;
    let mut replied = BTreeSet::new();
    t.scan(Table::Replies, Bound::Unbounded, &mut |key, _| {
        if let Some((session, _)) = key.split_first_chunk::<16>() {
            replied.insert(BoundSession(u128::from_be_bytes(*session)));
        }
        Ok(Scan::Next)
    })?;
    let mut locked = BTreeSet::new();
    t.scan(Table::Sessions, Bound::Unbounded, &mut |key, _| {
        if let Ok(session) = key.try_into() {
            locked.insert(BoundSession(u128::from_be_bytes(session)));
        }
        Ok(Scan::Next)
    })?;
    let rooms = Rooms::new(options.rooms.clone());
    rooms.begin(t)?;
    super::owners::begin(t)?;
    let expected = !locked.is_empty() || count(t, Table::Orphans, 1)? > 0;
    Ok(Before {
        incarnation: start.incarnation,
        reaping: count(t, Table::Reap, u64::MAX)?,
        expected,
        locked,
        replied,
        first_new: allocator(t)?.next,
        rooms,
        rules: Rules::load(t)?,
        registry,
    })
}

fn count(s: &dyn Snapshot, table: Table, max: u64) -> Outcome<u64> {
    let mut count = 0;
    s.scan(table, Bound::Unbounded, &mut |_, _| {
        count += 1;
        Ok(if count < max { Scan::Next } else { Scan::Stop })
    })?;
    Ok(count)
}

fn root(options: &Options, uid: u32, now: Timestamp) -> Inode {
    let root = options.root;
    Inode {
        mode: root.mode & super::permit::MODE_MASK,
        uid: root.uid.unwrap_or(uid),
        gid: root.gid,
        nlink: 2,
        size: ByteLen(0),
        blocks_512: 0,
        atime: now,
        mtime: now,
        ctime: now,
        mtime_set_at: now,
        parent: ROOT,
        name: Vec::new(),
        xattrs: 0,
        node: Node::Directory { entries: 0, default: None },
    }
}

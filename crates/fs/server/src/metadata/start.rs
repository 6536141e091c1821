//! Start and end of the service.

use super::byte_leases::ByteLeases;
use super::cluster_map::{self, Settings, SharedMap};
use super::compression::DefaultCompression;
use super::fault::{Fault, Outcome};
use super::fences::Fences;
use super::layouts::Layouts;
use super::lineage;
use super::locking::Locks;
use super::moves::Moves;
use super::name_leases::{forget_leases, had_leases, record_leases};
use super::op::{Core, seconds};
use super::opens::Opens;
use super::quotas::Quotas;
use super::reaper::{LinkRemoval, Removal};
use super::replicas::replicated_files;
use super::rules::Rules;
use super::server_health::ServerHealth;
use super::sessions::Sessions;
use super::space_reservations::SpaceReservations;
use super::tables::{allocator, inode, put_allocator, put_inode, put_start_row, start_row};
use super::targets::Registry;
use super::unknown_writers::UnknownWriters;
use super::{Config, LOCK_NOTIFIERS, Options, Service};
use crate::config::Hooks;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weft_core::ibridge::PeerAverages;
use weft_core::{ByteLen, ClusterId, FileId, Nanos, Timestamp};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::emulate::Emulator;
use weft_store::metadata::{
    AllocatorRow, DatabaseSpec, Engine, EngineError, Identity, Inode, Journal, Node, Scan, Snapshot, Table,
    Transaction,
};
use weft_wire::BoundSession;
use weft_wire::meta::{NAME_LEASE, PAGES_DROPPED_AFTER, ROOT};
use weft_wire::{ClusterMap, ClusterSecret};

/// Distance in seconds between the fences of consecutive starts. Capabilities that an earlier start issued behind its
/// fences end before the fences of this one, however soon it follows.
const FENCES_APART_S: u64 = 8;
/// Number of starts for which the distance adds up. Further starts must be that far apart in time.
const FENCES_APART_MAX: u32 = 450;

/// State of the database at the end of the previous start.
struct PreviousState {
    incarnation: u32,
    /// Whether mounts may have leased names.
    leased_names: bool,
    reaping: u64,
    /// Whether a session had locks or open removed files, and may return for them.
    expected: bool,
    /// Sessions that had locks.
    locked: BTreeSet<BoundSession>,
    /// Sessions whose replies are kept.
    replied: BTreeSet<BoundSession>,
    /// First file id that was not assigned before.
    first_new: FileId,
    reservations: SpaceReservations,
    rules: Rules,
    quotas: Quotas,
    registry: Registry,
    map: ClusterMap,
    /// Settings of targets.
    settings: Settings,
    /// Servers of the cluster file that were removed.
    removed_servers: Vec<String>,
    /// Whether no client could use a file that it had opened.
    unused: bool,
    /// Files with replicas.
    replicated: Vec<FileId>,
}

impl<E: Env> Service<E> {
    /// Opens the database and starts the service's own tasks. A blank directory is formatted if the configuration says
    /// so.
    ///
    /// # Errors
    /// A message that names the path and the remedy.
    pub async fn start(
        env: E,
        config: Config,
        secret: ClusterSecret,
        hooks: Hooks,
    ) -> Result<Arc<Self>, String> {
        let removal = LinkRemoval::new(env.clone(), &config.cluster, secret.clone(), config.options.levels);
        let poll_interval = config.options.poll_interval;
        let service = Self::start_with(env, config, secret.clone(), hooks, removal).await?;
        let Some(every) = poll_interval else { return Ok(service) };
        let describe = |error| format!("metadata service: {error}");
        if service.core.keeps_map {
            let watcher = Arc::clone(&service);
            let task = move || watcher.watch_servers(secret, every);
            service.env.spawn("weft-watchers", task).map_err(describe)?;
        } else {
            for server in service.core.server_health.servers() {
                Self::spawn_watcher(&service, server, &secret, every).map_err(describe)?;
            }
        }
        Ok(service)
    }

    /// Starts the service with another access to the data servers.
    ///
    /// # Errors
    /// A message that names the path and the remedy.
    pub async fn start_with<R: Removal>(
        env: E,
        config: Config,
        secret: ClusterSecret,
        hooks: Hooks,
        mut removal: R,
    ) -> Result<Arc<Self>, String> {
        let Config { path, cluster, format, options } = config;
        let name = path.display().to_string();
        let describe = |error: &dyn std::fmt::Display| format!("metadata path {name}: {error}");
        let dir = env.dir(&path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => describe(&format!(
                "{error}: if its disk is not mounted, mount it and start the server again; a new cluster begins with \
                 `weft serve --format`"
            )),
            _ => describe(&error),
        })?;
        // A simulated cluster without a registry needs no identity of its own. A fixed one keeps its course of events.
        let new_id = if options.without_registry { ClusterId(1) } else { ClusterId::NONE };
        let accept_lost_log = options.accept_lost_log;
        let wanted = DatabaseSpec { cluster: cluster.name.clone(), format, new_id, accept_lost_log };
        let device = options.emulate.as_ref().map(|emulation| Emulator::new(&env, emulation));
        let journal =
            Journal::open_emulated(env.clone(), dir.clone(), &name, &wanted, options.journal, device)
                .await
                .map_err(|error| describe(&error))?;
        let wall = env.wall();
        let (before, point) = journal
            .write(|t| {
                super::keys::begin(t, &secret)?;
                begin(t, &options, journal.identity(), &cluster, hooks.uid, wall)
            })
            .map_err(|fault: Fault| describe(&fault.log_text()))?;
        let map = SharedMap::new(before.map);
        removal.set_cluster(journal.identity().id, map.clone());
        for name in &before.removed_servers {
            (hooks.log)(&format!(
                "warn: the cluster file names server {name}, which was removed from the cluster: it is ignored"
            ));
        }
        journal.durable(point).await.map_err(|error| describe(&error))?;
        journal.await_device().await;

        let now = env.now();
        let restarted = before.incarnation > 1;
        // One second for rounding up to whole seconds of a capability, and one for the service's own clock.
        let writers_until = Timestamp(wall.0 + i128::from(options.capability_life.0) + 2_000_000_000);
        let unknown = || match before.unused {
            true => UnknownWriters::new(FileId(0), Timestamp(0)),
            false => UnknownWriters::new(before.first_new, writers_until),
        };
        let compression = DefaultCompression::new(options.compression, &before.settings);
        let mut opens = Opens::default();
        before.replicated.iter().for_each(|file| opens.set_replicated(*file, true));
        let mut sessions = Sessions::default();
        before.replied.iter().for_each(|session| sessions.has_ended(*session, now));
        let service = Arc::new(Self {
            dir,
            core: Core {
                layouts: Layouts::new(map.clone(), options.placement),
                compression: RwLock::new(compression),
                reservations: before.reservations,
                server_health: ServerHealth::new(&map.get(), &before.settings),
                map,
                keeps_map: options.keeps_map,
                levels: options.levels,
                rules: Mutex::new(before.rules),
                quotas: Mutex::new(before.quotas),
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
                opens: Mutex::new(opens),
                unknown_writers: Mutex::new(unknown()),
                unknown_holders: Mutex::new(unknown()),
                // Holders of append locks do not reclaim them after a restart.
                fences: Mutex::new(if restarted {
                    let apart_s = FENCES_APART_S * u64::from(before.incarnation.min(FENCES_APART_MAX));
                    Fences::new(before.first_new, seconds(writers_until) + apart_s, seconds(wall))
                } else {
                    Fences::default()
                }),
                data_fences: Mutex::default(),
                moves: Moves::default(),
                inline_max: options.inline_max,
                first_of_start: before.first_new,
                growths: Mutex::default(),
                unsynced_bytes: Mutex::default(),
                byte_leases: Mutex::new(ByteLeases::new(restarted, now)),
                name_leases: Mutex::default(),
                granted_latest_s: AtomicU64::new(0),
                reaping: AtomicU64::new(before.reaping),
                reap_wanted: AtomicBool::new(false),
                freeing: Mutex::default(),
            },
            hooks,
            sessions: Mutex::new(sessions),
            locks: Mutex::new(Locks::with_known_sessions(before.locked)),
            dumps: super::dump::Dumps::default(),
            ends: Mutex::default(),
            averages: Mutex::new(PeerAverages::new(super::AVERAGES_KEPT)),
            lock_changed: std::array::from_fn::<_, LOCK_NOTIFIERS, _>(|_| env.notify()),
            event_changed: env.notify(),
            reap_work: env.notify(),
            watch_work: env.notify(),
            map_changed: env.notify(),
            freed: env.notify(),
            hold_ended: env.notify(),
            reaper_ended: env.notify(),
            reaper_runs: AtomicBool::new(true),
            server_returned: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            grace_is_over: AtomicBool::new(!before.expected),
            grace_until: if before.expected { now.saturating_add(options.grace) } else { Nanos::ZERO },
            orphans_until: match before.expected {
                true => now.saturating_add(options.grace.max(options.orphans_kept)),
                false => Nanos::ZERO,
            },
            pages_known_from: if restarted { now.saturating_add(PAGES_DROPPED_AFTER) } else { Nanos::ZERO },
            names_known_from: if before.leased_names { now.saturating_add(NAME_LEASE) } else { Nanos::ZERO },
            has_recorded_leases: AtomicBool::new(false),
            early_names: AtomicU64::new(0),
            syncs_all_names: options.syncs_all_names,
            requests: AtomicU64::new(0),
            recalls: super::pages::RecallCounts::default(),
            journal,
            env,
        });
        let reaper = Arc::clone(&service);
        let spawned = service.env.spawn("weft-reaper", move || async move { reaper.reap(removal).await });
        spawned.map_err(|error| describe(&error))?;
        Ok(service)
    }

    /// Whether no client, known or unknown, can use a file that it has opened.
    fn is_unused(&self) -> bool {
        let now = self.env.wall();
        let (writers, holders) = (&self.core.unknown_writers, &self.core.unknown_holders);
        self.core.opens.lock().is_empty() && !writers.lock().any(now) && !holders.lock().any(now)
    }

    /// Records a clean end, after all tasks have ended.
    pub(super) async fn end_in_order(&self) -> Result<(), EngineError> {
        let ended = self.journal.write(|t| -> Outcome<()> {
            let row = start_row(t)?;
            let unused = self.is_unused();
            put_start_row(t, &weft_store::metadata::StartRow { clean: true, unused, ..row });
            if self.has_no_leases() {
                forget_leases(t);
            }
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
) -> Outcome<PreviousState> {
    let mut start = start_row(t)?;
    let crashed = start.incarnation > 0 && !start.clean;
    let unused = start.incarnation == 0 || start.clean && start.unused;
    let leased_names = had_leases(t, start.incarnation)?;
    start.incarnation += 1;
    if leased_names {
        // If this start ends before those leases do, the next one waits for them.
        record_leases(t, start.incarnation);
    }
    (start.clean, start.unused) = (false, false);
    put_start_row(t, &start);
    super::levels::begin(t, options.levels, start.incarnation == 1)?;
    if inode(t, ROOT)?.is_none() {
        put_inode(t, ROOT, &root(options, uid, now));
        put_allocator(t, &AllocatorRow { next: FileId(ROOT.0 + 1), inodes: 1 });
    }
    if !is_seeded(Mutant::ReusedIds) {
        // Ids must not repeat after a restored copy; see `lineage`. Without a registry they are dense.
        let clock = if options.without_registry { Timestamp(0) } else { now };
        lineage::begin(t, start.incarnation, crashed, clock)?;
    }
    let (map, settings, removed_servers) = match options.keeps_map {
        true => cluster_map::begin(t, cluster, &options.targets, now)?,
        false => (cluster.clone(), options.targets.clone(), Vec::new()),
    };
    let registry = Registry::begin(t, identity, &map, options.without_registry)?;
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
    let reservations = SpaceReservations::new(&settings);
    reservations.begin(t)?;
    super::owners::begin(t)?;
    let expected = !locked.is_empty() || count(t, Table::Orphans, 1)? > 0;
    Ok(PreviousState {
        incarnation: start.incarnation,
        leased_names,
        reaping: count(t, Table::Reap, u64::MAX)?,
        expected,
        locked,
        replied,
        first_new: allocator(t)?.next,
        reservations,
        rules: Rules::load(t)?,
        quotas: Quotas::load(t)?,
        registry,
        map,
        settings,
        removed_servers,
        unused,
        replicated: replicated_files(t)?,
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

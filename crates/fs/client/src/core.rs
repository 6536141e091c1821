//! State that all clones of a client share.

use crate::connect::ensure_connected;
use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::last_sizes::LastSizes;
use crate::lease::SessionLeases;
use crate::options::{ClientOptions, Credentials, IssuedKey};
use crate::pending_unlocks::PendingUnlocks;
use crate::pool::Pool;
use crate::registry::Registry;
use crate::server::Server;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use weft_core::{ClusterId, Nanos, ServerId, TargetId, TargetState};
use weft_env::{Env, Notify, Processor};
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::SessionId;
use weft_wire::meta::{HandleId, TargetRecord};
use weft_wire::status::MetadataEntry;
use weft_wire::{ClusterMap, Errno};

/// Shortest time between two questions for the map while a server does not answer, and between two looks for another key
/// while one refuses it.
pub(crate) const ASK_INTERVAL: Nanos = Nanos::from_s(1);
/// Time for which the metadata server does not answer before other servers are asked for its addresses.
const SEEK_AFTER: Nanos = Nanos::from_ms(200);

/// One session: its servers, connections, opens and leases.
pub(crate) struct Core<E: Env> {
    pub(crate) env: E,
    map: RwLock<Arc<ClusterMap>>,
    /// Version of the map.
    map_version: AtomicU32,
    /// Time at which the metadata server was last asked for the map because another server did not answer.
    map_asked_at: Mutex<Option<Nanos>>,
    /// When other servers were last asked for the addresses of the metadata server.
    metadata_sought_at: Mutex<Option<Nanos>>,
    /// Version of the map from which they named its present addresses; 0 before.
    metadata_version: Mutex<u32>,
    /// Targets whose disks were given up, when the metadata server was last asked for the map because another server did not
    /// answer.
    given_up: Mutex<BTreeSet<TargetId>>,
    pub(crate) options: ClientOptions,
    pub(crate) credentials: Credentials,
    /// Key that has replaced the one of the credentials.
    renewed_key: Mutex<Option<IssuedKey>>,
    /// Time of the last look for another key.
    key_looked_at: Mutex<Option<Nanos>>,
    pub(crate) session_id: SessionId,
    /// Identity of the cluster, learned from the metadata server.
    pub(crate) cluster_id: OnceLock<ClusterId>,
    /// The servers of the map, at the places of their numbers.
    servers: boxcar::Vec<Box<Server<E>>>,
    /// Connections to the metadata server.
    pub(crate) metadata: Pool<E>,
    /// The single connection for events. There is only one, so that its loss is noticed.
    pub(crate) events: Pool<E>,
    pub(crate) registry: Registry,
    /// Unlocks that the metadata server has not acknowledged.
    pub(crate) pending_unlocks: PendingUnlocks,
    /// Number of reclaims in progress; see [`Core::wait_for_reclaims`].
    reclaiming: AtomicU64,
    reclaimed: E::Notify,
    pub(crate) leases: SessionLeases<E>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sizes: LastSizes,
    handles: AtomicU64,
    /// See [`Core::restarts`].
    restarts: AtomicU64,
    /// See [`Core::reclaims`].
    reclaims: AtomicU64,
    /// Time at which the newest answered metadata request was sent, in nanoseconds of the monotonic clock.
    pub(crate) answered_at_ns: AtomicU64,
    /// See [`Core::is_kept`].
    kept: AtomicBool,
    /// Set in a forked child: everything here belongs to the parent.
    abandoned: AtomicBool,
}

/// Whether something that was last done at `done_at` is due again, which is noted then.
fn is_due(done_at: &Mutex<Option<Nanos>>, now: Nanos) -> bool {
    let mut done_at = done_at.lock();
    let is_due = done_at.is_none_or(|at| now.saturating_sub(at) >= ASK_INTERVAL);
    if is_due {
        *done_at = Some(now);
    }
    is_due
}

impl<E: Env> Core<E> {
    pub(crate) fn new(
        env: E,
        map: Arc<ClusterMap>,
        options: ClientOptions,
        credentials: Credentials,
    ) -> Self {
        let mut session = [0; 16];
        env.random(&mut session);
        let servers = (0..map.servers.len() as u32).map(ServerId);
        let servers = servers.map(|id| Box::new(Server::new(&env, id, Arc::clone(&map), &options)));
        Self {
            servers: servers.collect(),
            map_version: AtomicU32::new(map.version),
            map_asked_at: Mutex::default(),
            metadata_sought_at: Mutex::default(),
            metadata_version: Mutex::default(),
            given_up: Mutex::default(),
            renewed_key: Mutex::default(),
            key_looked_at: Mutex::default(),
            map: RwLock::new(map),
            metadata: Pool::new(&env, 0, options.metadata_connections_max),
            events: Pool::new(&env, options.metadata_connections_max, 1),
            registry: Registry::default(),
            pending_unlocks: PendingUnlocks::default(),
            reclaiming: AtomicU64::new(0),
            reclaimed: env.notify(),
            leases: SessionLeases::new(options.leases_max),
            counters: Arc::default(),
            sizes: LastSizes::default(),
            cluster_id: OnceLock::new(),
            handles: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            reclaims: AtomicU64::new(0),
            answered_at_ns: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            session_id: SessionId(u128::from_le_bytes(session)),
            env,
            options,
            credentials,
        }
    }

    pub(crate) fn server(&self, id: ServerId) -> &Server<E> {
        &self.servers[id.0 as usize]
    }

    /// All servers of the map, those without an entry excepted.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server<E>> {
        self.servers.iter().map(|(_, server)| &**server).filter(|server| !server.entry().is_blank())
    }

    pub(crate) fn metadata_server(&self) -> &Server<E> {
        self.server(self.map.read().metadata)
    }

    /// The cluster map as this client knows it.
    pub(crate) fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.map.read())
    }

    /// Whether the metadata server has another map than this client, as far as `version`, from a reply, tells.
    pub(crate) fn has_other_map(&self, version: u32) -> bool {
        version != 0 && version != self.map_version.load(Relaxed)
    }

    /// Takes the map that the metadata server sent.
    pub(crate) fn take_map(&self, mut map: ClusterMap) {
        let mut current = self.map.write();
        if map.version == current.version {
            return;
        }
        // The cluster file may have named servers that are not part of the cluster any more.
        let count = self.servers.count().max(map.servers.len());
        map.servers.resize_with(count, ServerEntry::default);
        let map = Arc::new(map);
        self.servers.iter().for_each(|(_, server)| server.take_map(&map));
        for number in self.servers.count()..count {
            let server = Server::new(&self.env, ServerId(number as u32), Arc::clone(&map), &self.options);
            if self.is_kept() {
                server.connections.keep_connected();
            }
            self.servers.push(Box::new(server));
        }
        self.map_version.store(map.version, Relaxed);
        *current = map;
    }

    /// Whether to ask the metadata server for the map now, because another server does not answer. The answer is no to
    /// clients without a map of the metadata server, and more often than once a second.
    pub(crate) fn should_ask_for_map(&self) -> bool {
        if self.map_version.load(Relaxed) == 0 {
            return false;
        }
        is_due(&self.map_asked_at, self.env.now())
    }

    /// Whether to ask other servers now where the metadata server is, which does not answer.
    pub(crate) fn should_seek_metadata(&self, is_last_attempt: bool) -> bool {
        let now = self.env.now();
        self.options.metadata_search.is_some()
            && (is_last_attempt || self.metadata_server().is_down_for(now, SEEK_AFTER))
            && is_due(&self.metadata_sought_at, now)
    }

    /// Takes the addresses of the metadata server from a later map than this client has, and returns whether they are others.
    /// The rest of the map is fetched when the metadata server answers.
    pub(crate) fn move_metadata(&self, told: MetadataEntry) -> bool {
        let MetadataEntry { version, entry } = told;
        let mut current = self.map.write();
        let mut sought = self.metadata_version.lock();
        let at = current.metadata.0 as usize;
        if version <= current.version.max(*sought)
            || entry.addresses.is_empty()
            || current.servers[at].addresses == entry.addresses
        {
            return false;
        }
        *sought = version;
        let mut map = ClusterMap::clone(&current);
        map.servers[at].addresses = entry.addresses;
        let map = Arc::new(map);
        self.servers[at].take_map(&map);
        *current = map;
        true
    }

    /// The key that greetings name and prove; `None` without one.
    pub(crate) fn greeting_key(&self) -> Option<IssuedKey> {
        self.renewed_key.lock().clone().or_else(|| self.credentials.greeting_key())
    }

    /// Reads the key again after a server has refused `refused`. Returns whether there is another one.
    pub(crate) fn renew_key(&self, refused: Option<&IssuedKey>) -> bool {
        let known = self.greeting_key();
        if known.as_ref() != refused {
            return true;
        }
        let renewed = self.credentials.renewed().filter(|renewed| known.as_ref() != Some(renewed));
        let is_renewed = renewed.is_some();
        if is_renewed {
            *self.renewed_key.lock() = renewed;
        }
        is_renewed
    }

    /// Returns whether the key was replaced since a server refused it. Looks at most once a second.
    pub(crate) fn has_other_key(&self) -> bool {
        let now = self.env.now();
        let mut looked_at = self.key_looked_at.lock();
        if looked_at.is_some_and(|at| now.saturating_sub(at) < ASK_INTERVAL) {
            return false;
        }
        *looked_at = Some(now);
        self.renew_key(self.greeting_key().as_ref())
    }

    /// Notes which targets wait for a disk.
    pub(crate) fn note_records(&self, records: &[TargetRecord]) {
        let waits = |record: &&TargetRecord| record.state == TargetState::Joining;
        *self.given_up.lock() = records.iter().filter(waits).map(|record| record.target).collect();
    }

    /// Whether all targets of a server that does not answer were given up: nobody waits for it any more.
    pub(crate) fn has_given_up(&self, server: ServerId) -> bool {
        let given_up = self.given_up.lock();
        let map = self.map.read();
        let mut own = map.targets.iter().filter(|target| target.server == server).peekable();
        server != map.metadata && own.peek().is_some() && own.all(|target| given_up.contains(&target.id))
    }

    /// Returns the server that has `target`.
    pub(crate) fn route(&self, target: TargetId) -> Result<ServerId, Error> {
        const WHY: &str =
            "the file lies on a target that is not part of the cluster: `weft target list` shows them";
        self.map.read().server_of(target).ok_or(Error::misuse(Errno::EIO, WHY))
    }

    /// Returns the processor on which the calling task will wait, so that a server on this machine can work there too.
    pub(crate) fn processor(&self) -> Option<Processor> {
        if self.options.same_processor { self.env.processor() } else { None }
    }

    /// Returns the number of times that any server greeted with another incarnation than before, including the first
    /// greeting of each. While it stays the same, no server known to this client has lost bytes.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Relaxed)
    }

    /// Returns the number of times that opens and locks were reclaimed, because their session may have been lost.
    pub(crate) fn reclaims(&self) -> u64 {
        self.reclaims.load(SeqCst)
    }

    /// Counts a reclaim, before it begins.
    pub(crate) fn note_reclaim(&self) {
        self.reclaims.fetch_add(1, SeqCst);
    }

    /// Notes the moment before an open is sent, from which on its reply is valid.
    pub(crate) fn before_open(&self) -> BeforeOpen {
        BeforeOpen { restarts: self.restarts(), sent_at: self.env.now() }
    }

    /// Counts a greeting with another incarnation than before.
    pub(crate) fn note_restart(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }

    pub(crate) fn new_handle(&self) -> HandleId {
        HandleId(self.handles.fetch_add(1, Relaxed) + 1)
    }

    /// Marks a reclaim as in progress. The caller holds the mark from the snapshot of the registry until the reply
    /// arrives.
    pub(crate) fn begin_reclaim(&self) -> Reclaiming<'_, E> {
        self.reclaiming.fetch_add(1, SeqCst);
        Reclaiming(self)
    }

    /// Waits until no reclaim is in progress.
    ///
    /// A caller that ends an open or a lock removes it from the registry, waits here, and then sends the end to the
    /// server. A reclaim that began earlier may still name it and must not reach the server afterwards.
    pub(crate) async fn wait_for_reclaims(&self) {
        loop {
            let seen = self.reclaimed.epoch();
            if self.reclaiming.load(SeqCst) == 0 {
                return;
            }
            self.reclaimed.wait(seen, None).await;
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Relaxed)
    }

    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.is_abandoned() {
            const WHY: &str = "the connections belong to the parent process: adopt the file after a fork";
            return Err(Error::misuse(Errno::EBADF, WHY));
        }
        Ok(())
    }

    /// See [`crate::Client::connect_all`].
    pub(crate) async fn connect_all(&self) -> Result<(), Error> {
        self.check_not_forked()?;
        let deadline = Deadline::begin(&self.env, self.options.connect_timeout);
        let mut result = Ok(());
        let metadata = self.map().metadata;
        for server in self.servers() {
            let is_metadata = server.id == metadata;
            let pools = [Some(&server.connections), is_metadata.then_some(&self.metadata)];
            for pool in pools.into_iter().flatten().filter(|pool| !pool.is_connected()) {
                let mut pooled = pool.acquire().await;
                if let Err(error) = ensure_connected(self, server, &mut pooled, deadline).await {
                    result = Err(error);
                }
            }
        }
        result
    }

    /// See [`crate::Client::keep_connections`].
    pub(crate) fn keep_connections(&self) {
        self.kept.store(true, Relaxed);
        self.metadata.keep_connected();
        for (_, server) in &self.servers {
            server.connections.keep_connected();
        }
    }

    /// Whether this process cannot make connections for the session any more.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    /// Closes a forked child's copies of the connections where they can be reached, and makes every other use fail.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
        self.metadata.forget();
        self.events.forget();
        for (_, server) in &self.servers {
            server.connections.forget();
            server.channel.forget();
        }
    }
}

/// See [`Core::before_open`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeOpen {
    /// [`Core::restarts`].
    pub(crate) restarts: u64,
    /// Time at which the open is sent.
    pub(crate) sent_at: Nanos,
}

/// A reclaim in progress.
pub(crate) struct Reclaiming<'a, E: Env>(&'a Core<E>);

impl<E: Env> Drop for Reclaiming<'_, E> {
    fn drop(&mut self) {
        self.0.reclaiming.fetch_sub(1, SeqCst);
        self.0.reclaimed.notify_all();
    }
}

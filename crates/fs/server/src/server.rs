//! Start, tasks and orderly end of a server.

use crate::activity::Activity;
use crate::added::AddedService;
use crate::attach::{AttachError, Registrar};
use crate::audit::Origin;
use crate::averages;
use crate::config::{Join, ServerConfig, TargetConfig, WritableLeases};
use crate::connection;
use crate::connections::{Connections, Entry, OverUserLimit};
use crate::data::{ConnectionRights, DataService};
use crate::greeting::Greeted;
use crate::latency::{Distribution, Latencies, Operation};
use crate::metadata;
use crate::pending::{GreetingSlot, Pending};
use crate::refusals::Refusals;
use crate::status;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use weft_core::ClusterId;
use weft_core::Nanos;
use weft_env::{Address, Closer, Env, Listener, Notify};
use weft_store::error::TargetError;
use weft_store::target::Target;
use weft_wire::cluster::ServerEntry;
use weft_wire::meta::Quota;
use weft_wire::status::{MetadataEntry, ServerStatus};
use weft_wire::{Errno, WireError};

/// Interval of the server's periodic work on connections, leases and memory.
const TICK: Nanos = Nanos::from_s(1);
/// Time for which a client keeps its admission to a target while it does not receive.
const PERMIT_HOLD_MAX: Nanos = Nanos::from_s(1);
/// Pause after a failed accept while descriptors or memory are short.
const SHORTAGE_PAUSE: Nanos = Nanos::from_ms(100);
/// Pause after any other failed accept.
const RETRY_PAUSE: Nanos = Nanos::from_ms(1);
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A target cannot be used.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// The targets could not be attached.
    #[error("{0}")]
    Attach(AttachError),
    /// The metadata database cannot be used.
    #[error("{0}")]
    Metadata(String),
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: Address,
        /// Error of the system.
        source: io::Error,
    },
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}: raise the limit of processes and threads")]
    Thread(io::Error),
}

/// The services of a server; those of other roles are missing.
pub struct ServerParts<E: Env> {
    /// The data service.
    pub data: Option<Arc<DataService<E>>>,
    /// The metadata service.
    pub metadata: Option<Arc<metadata::Service<E>>>,
    /// Service that another crate adds.
    pub added: Option<Arc<dyn AddedService<E>>>,
    /// Identity of the cluster; [`ClusterId::NONE`] for data servers without a metadata server.
    pub cluster_id: ClusterId,
}

/// State shared by all tasks of a server.
pub struct Shared<E: Env> {
    pub(crate) env: E,
    pub(crate) config: ServerConfig,
    pub(crate) data: Option<Arc<DataService<E>>>,
    pub(crate) metadata: Option<Arc<metadata::Service<E>>>,
    pub(crate) added: Option<Arc<dyn AddedService<E>>>,
    pub(crate) connections: Connections<E>,
    pub(crate) pending: Pending<E::Conn>,
    /// Refused greetings, for the logs.
    pub(crate) refusals: Refusals,
    pub(crate) incarnation: u64,
    pub(crate) cluster_id: ClusterId,
    /// Boot id of the host.
    pub(crate) boot: u64,
    pub(crate) started: Nanos,
    pub(crate) stopping: AtomicBool,
    pub(crate) panics: AtomicU64,
    stop: E::Notify,
    stopped: AtomicBool,
    /// Number of listeners that are open.
    listening: AtomicUsize,
    stopped_notify: E::Notify,
    /// The metadata server: with version 0 as the cluster file names it, otherwise as it has said itself.
    metadata_server: Mutex<Option<MetadataEntry>>,
    /// Whether the task that exchanges service times runs.
    exchanging: AtomicBool,
    /// Latencies of requests to the metadata service.
    pub(crate) latencies: Latencies,
    /// Activity by client, user and file.
    pub(crate) activity: Arc<Activity>,
    /// Current time to the second, for tasks that need no better.
    clock: Arc<AtomicU64>,
}

impl<E: Env> Shared<E> {
    pub(crate) fn log(&self, line: &str) {
        (self.config.hooks.log)(line);
    }

    /// Entry of the metadata server, as far as it is known.
    pub(crate) fn metadata_server(&self) -> Option<ServerEntry> {
        self.metadata_server.lock().as_ref().map(|known| known.entry.clone())
    }

    /// Entry that the metadata server has sent.
    pub(crate) fn told_metadata_entry(&self) -> Option<MetadataEntry> {
        self.metadata_server.lock().clone().filter(|known| known.version > 0)
    }

    /// Takes what the metadata server says of itself. One of another name is not that of this cluster file.
    pub(crate) fn set_metadata_server(&self, told: MetadataEntry) {
        let mut known = self.metadata_server.lock();
        let Some(known) = known.as_mut().filter(|known| known.entry.name == told.entry.name) else { return };
        if told.version < known.version {
            return;
        }
        let addresses = &told.entry.addresses;
        if !addresses.iter().any(|address| known.entry.addresses.contains(address)) {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            self.log(&format!(
                "metadata server {} has moved to {}: correct its address in the cluster file before this server starts again",
                told.entry.name,
                addresses.join(" or ")
            ));
        }
        *known = told;
    }

    /// Latencies of a kind of request since the start.
    pub(crate) fn latencies_of(&self, operation: Operation) -> Distribution {
        match (operation, &self.data) {
            (Operation::Metadata, _) => self.latencies.of(operation),
            (_, Some(data)) => data.latencies.of(operation),
            (_, None) => Latencies::default().of(operation),
        }
    }

    pub(crate) fn panicked(&self, doing: &str) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.log(&format!(
            "error: a bug in the server ended a connection while {doing}: see the message above"
        ));
    }

    /// Waits for `duration`; returns false early if the server must stop.
    pub(crate) async fn is_serving_for(&self, duration: Nanos) -> bool {
        let until = self.env.now().saturating_add(duration);
        loop {
            let seen = self.stop.epoch();
            if self.stopping.load(Ordering::SeqCst) {
                return false;
            }
            let left = until.saturating_sub(self.env.now());
            if left == Nanos::ZERO {
                return true;
            }
            self.stop.wait(seen, Some(left)).await;
        }
    }

    pub(crate) fn request_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.notify_all();
    }

    /// Rights of a peer.
    pub(crate) fn rights_of(&self, greeted: &Greeted) -> ConnectionRights {
        let uid = greeted.principal.identity.uid;
        let is_own = greeted.principal.is_administrator
            || greeted.principal.identity.is_root()
            || uid == self.config.hooks.uid;
        ConnectionRights {
            is_unbounded: is_own || greeted.principal.is_server,
            leases_writable: is_own || self.config.limits.writable_leases == WritableLeases::All,
        }
    }

    /// Counts a connection for its user.
    ///
    /// # Errors
    /// `EAGAIN` if the user has as many connections as one user may have.
    pub(crate) fn count_connection(&self, entry: &Entry, greeted: &Greeted) -> Result<(), WireError> {
        let max = self.config.limits.connections_of_user();
        let max = (!self.rights_of(greeted).is_unbounded).then_some(max);
        self.connections.count_for(entry, greeted.principal.identity.uid, max).map_err(|OverUserLimit { max }| {
            let detail = format!(
                "server {:?}: user {} has {max} connections, as many as one user may have: close some, or raise \
                 user_connections under [limits] in the cluster file and restart the server",
                self.config.name, greeted.principal.identity.uid
            );
            WireError::new(Errno::EAGAIN, detail)
        })
    }

    /// Origin of the requests of a peer, for the audit log if there is one.
    pub(crate) fn origin(&self, greeted: &Greeted, peer: String) -> Option<Origin> {
        let sink = self.config.hooks.audit.clone()?;
        let key = greeted.key.as_ref().map(|key| key.id);
        Some(Origin { sink, peer, key, uid: Some(greeted.principal.identity.uid) })
    }

    /// Closes the connections whose keys are no longer accepted.
    pub(crate) fn end_refused_keys(&self) {
        let ended = self.connections.close_refused(&self.config.secret, self.env.wall());
        if ended > 0 {
            self.log(&format!(
                "ended {ended} connections whose keys have expired, were revoked or belong to an earlier secret"
            ));
        }
    }
}

/// A server.
pub struct Server;

impl Server {
    /// Opens the targets and the database, listens, and serves in tasks of its own.
    ///
    /// # Errors
    /// Any reason that prevents the start, with the remedy.
    pub async fn start<E: Env>(env: E, mut config: ServerConfig) -> Result<ServerHandle<E>, StartError> {
        let metadata = match config.metadata.clone() {
            Some(metadata) => Some(start_metadata(&env, &config, metadata).await?),
            None => None,
        };
        let mut registrar = Registrar::new(&env, &config, metadata.as_ref());
        let opened = async {
            let cluster_id = match &metadata {
                Some(service) => service.cluster_id(),
                None => registrar.cluster_id().await?,
            };
            if let Some(number) = registrar.register(&config).await? {
                config.server = number;
            }
            if let Some(revoked) = registrar.revoked_keys().await? {
                config.secret.revoke(revoked.keys);
            }
            let data = match config.targets.is_empty() {
                true => None,
                false => Some(DataService::open(&env, &config, &mut registrar).await?),
            };
            Ok((data, cluster_id))
        };
        match opened.await {
            Ok((data, cluster_id)) => {
                Self::start_with(env, config, ServerParts { data, metadata, added: None, cluster_id }).await
            }
            Err(error) => {
                if let Some(service) = &metadata {
                    service.shutdown().await;
                }
                Err(match error {
                    AttachError::Target(error) => StartError::Target(error),
                    other => StartError::Attach(other),
                })
            }
        }
    }

    /// Listens and serves with services that are open already.
    ///
    /// # Errors
    /// The server cannot listen on an address.
    pub async fn start_with<E: Env>(
        env: E,
        config: ServerConfig,
        parts: ServerParts<E>,
    ) -> Result<ServerHandle<E>, StartError> {
        let of_map = || config.metadata.as_ref().map(|own| own.cluster.server(own.cluster.metadata).clone());
        let metadata_server = config.metadata_server.clone().or_else(of_map);
        let mut listeners = Vec::new();
        for address in &config.addresses {
            let bound = env.listen(address).await;
            listeners.push(bound.map_err(|source| StartError::Listen { address: address.clone(), source })?);
        }
        let mut incarnation = [0; 8];
        env.random(&mut incarnation);
        let now = env.now();
        let shared = Arc::new(Shared {
            connections: Connections::new(&env, config.limits.connections_max),
            pending: Pending::new(config.limits.quota()),
            refusals: Refusals::new(config.hooks.clone()),
            data: parts.data,
            metadata: parts.metadata,
            added: parts.added,
            cluster_id: parts.cluster_id,
            incarnation: u64::from_le_bytes(incarnation),
            boot: env.boot(),
            started: now,
            stopping: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            stop: env.notify(),
            stopped: AtomicBool::new(false),
            listening: AtomicUsize::new(listeners.len()),
            stopped_notify: env.notify(),
            metadata_server: Mutex::new(metadata_server.map(|entry| MetadataEntry { version: 0, entry })),
            exchanging: AtomicBool::new(false),
            latencies: Latencies::default(),
            activity: Arc::new(Activity::new()),
            clock: Arc::new(AtomicU64::new(now.0)),
            config,
            env,
        });
        let addresses = listeners.iter().map(Listener::address).collect();
        let mut closers = Vec::new();
        for listener in listeners {
            closers.push(listener.closer());
            let acceptor = Arc::clone(&shared);
            let spawned = shared.env.spawn("weft accept", move || accept(acceptor, listener));
            spawned.map_err(StartError::Thread)?;
        }
        exchange_averages(&shared)?;
        if let Some(data) = &shared.data {
            data.start_background().map_err(StartError::Thread)?;
        }
        let supervised = Arc::clone(&shared);
        let spawned = shared.env.spawn("weft server", move || supervise(supervised, closers));
        spawned.map_err(StartError::Thread)?;
        Ok(ServerHandle { shared, addresses })
    }
}

/// Starts the metadata service. A blank directory is formatted if the configuration says so, but never while a target
/// of this server belongs to a cluster.
async fn start_metadata<E: Env>(
    env: &E,
    config: &ServerConfig,
    metadata: metadata::Config,
) -> Result<Arc<metadata::Service<E>>, StartError> {
    let format = config.join != Join::Known;
    if format && !metadata::is_formatted(env, &metadata).await {
        for target in &config.targets {
            if Target::has_identity(env, &target.path).await {
                return Err(StartError::Metadata(format!(
                    "metadata path {}: blank, but {} at {} belongs to a cluster with other metadata: mount the \
                     disk of the metadata, or restore it from a copy; for a new cluster, give all targets blank \
                     directories",
                    metadata.path.display(),
                    target.id,
                    target.path.display()
                )));
            }
        }
    }
    let metadata = metadata::Config { format, ..metadata };
    let path = metadata.path.clone();
    let started =
        metadata::Service::start(env.clone(), metadata, config.secret.clone(), config.hooks.clone());
    let service = started.await.map_err(StartError::Metadata)?;
    if let Some((target, cluster)) = foreign_target(env, config, service.cluster_id()).await {
        service.shutdown().await;
        return Err(StartError::Metadata(format!(
            "metadata path {}: belongs to cluster {}, but no target of this server does; {} at {} belongs to cluster \
             {cluster}: correct the paths, or mount the disks that belong together",
            path.display(),
            service.cluster_id(),
            target.id,
            target.path.display()
        )));
    }
    Ok(service)
}

/// A target of this server that belongs to another cluster than `own`, unless one belongs to `own`: then that one disk
/// is wrong, and only its target is refused. If all are foreign, the metadata may be the wrong one, and would show
/// clients the files of another cluster.
async fn foreign_target<'a, E: Env>(
    env: &E,
    config: &'a ServerConfig,
    own: ClusterId,
) -> Option<(&'a TargetConfig, ClusterId)> {
    let mut foreign = None;
    for target in &config.targets {
        match Target::cluster_of(env, &target.path).await {
            Some(cluster) if cluster == own => return None,
            Some(cluster) => foreign = Some((target, cluster)),
            None => {}
        }
    }
    foreign.filter(|_| !own.is_none())
}

/// Handle of a running server, which continues when this is dropped.
pub struct ServerHandle<E: Env> {
    shared: Arc<Shared<E>>,
    addresses: Vec<Address>,
}

impl<E: Env> ServerHandle<E> {
    /// Addresses it listens on, with actual ports in place of 0.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared<E> {
        &self.shared
    }

    /// Begins the orderly end: no new connections are accepted, running requests finish, leases are revoked, metadata
    /// becomes durable.
    pub fn request_stop(&self) {
        self.shared.request_stop();
    }

    /// Leaves dirty bytes on the SSDs when the server ends. They are as safe there as before, and the next start
    /// continues.
    pub fn skip_writeback(&self) {
        if let Some(data) = &self.shared.data {
            data.skip_writeback();
        }
    }

    /// Waits until the server has ended.
    pub async fn stopped(&self) {
        loop {
            let seen = self.shared.stopped_notify.epoch();
            if self.shared.stopped.load(Ordering::SeqCst) {
                return;
            }
            self.shared.stopped_notify.wait(seen, None).await;
        }
    }

    /// Ends the server in order, and waits until it has ended.
    pub async fn stop(&self) {
        self.request_stop();
        self.stopped().await;
    }

    /// Refused targets of this server, each with the reason and the remedy.
    pub fn refused_targets(&self) -> Vec<(weft_core::TargetId, String)> {
        self.shared.data.as_ref().map_or_else(Vec::new, |data| data.refusals())
    }

    /// Time for which no client has been connected. Idle connections of other servers do not count.
    pub fn idle_for(&self) -> Nanos {
        self.shared.connections.idle_for(self.shared.env.now())
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.connections.count()
    }

    /// State of the server for monitoring, without the use by users.
    pub async fn status(&self) -> ServerStatus {
        status::of_server(&self.shared).await
    }

    /// Number of all quotas, and the `quotas_max` whose use is nearest to a limit; none without the metadata service.
    pub fn quotas(&self, quotas_max: usize) -> (u64, Vec<Quota>) {
        self.shared.metadata.as_ref().map(|service| service.quotas(quotas_max)).unwrap_or_default()
    }

    /// Latencies of a kind of request since the start.
    pub fn latencies(&self, operation: Operation) -> Distribution {
        self.shared.latencies_of(operation)
    }

    /// Number of connections that a bug in the server has ended since its start.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }
}

/// Starts the task that exchanges service times, if the server has an SSD tier.
fn exchange_averages<E: Env>(shared: &Arc<Shared<E>>) -> Result<(), StartError> {
    let period = shared.data.as_ref().and_then(|data| data.averages().period());
    let (Some(_), Some(period)) = (shared.metadata_server(), period) else { return Ok(()) };
    shared.exchanging.store(true, Ordering::SeqCst);
    let exchanging = Arc::clone(shared);
    let task = move || async move {
        averages::exchange(Arc::clone(&exchanging), period).await;
        exchanging.exchanging.store(false, Ordering::SeqCst);
        exchanging.connections.ended.notify_all();
    };
    shared.env.spawn("weft averages", task).map_err(StartError::Thread)
}

async fn accept<E: Env>(shared: Arc<Shared<E>>, mut listener: E::Listener) {
    accept_all(&shared, &mut listener).await;
    drop(listener); // its address is free before the server counts as ended
    shared.listening.fetch_sub(1, Ordering::SeqCst);
    shared.connections.ended.notify_all();
}

async fn accept_all<E: Env>(shared: &Arc<Shared<E>>, listener: &mut E::Listener) {
    while !shared.stopping.load(Ordering::SeqCst) {
        let conn = match listener.accept().await {
            Ok(conn) => conn,
            Err(_) if shared.stopping.load(Ordering::SeqCst) => return,
            Err(error) => {
                // An immediate retry would only burn time while descriptors or memory are short. A peer that left
                // before it was accepted is hardly a reason to wait.
                let short = matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOMEM | ENOBUFS));
                if short {
                    let address = listener.address();
                    shared.log(&format!(
                        "error: cannot accept a connection on {address}: {error}: raise the limit of open files"
                    ));
                }
                shared.env.sleep(if short { SHORTAGE_PAUSE } else { RETRY_PAUSE }).await;
                continue;
            }
        };
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let slot = shared.pending.arrive(conn, shared.env.now());
        if start_greetings(shared, slot).is_err() {
            shared.env.sleep(SHORTAGE_PAUSE).await;
        }
    }
}

/// Starts connections that may greet, each in a task of its own.
///
/// # Errors
/// The system cannot start a task; this is logged.
pub(crate) fn start_greetings<E: Env>(
    shared: &Arc<Shared<E>>,
    slots: impl IntoIterator<Item = GreetingSlot<E::Conn>>,
) -> io::Result<()> {
    let mut result = Ok(());
    let mut slots: Vec<_> = slots.into_iter().collect();
    while let Some(slot) = slots.pop() {
        let closer = weft_env::Conn::closer(&slot.conn);
        let timeout = shared.config.limits.greeting_timeout;
        let entry = shared.connections.add(closer, &shared.clock, timeout);
        let (id, slot_id, served) = (entry.id, slot.id, Arc::clone(shared));
        let spawned = shared.env.spawn("weft conn", move || connection::run(served, entry, slot));
        if let Err(error) = spawned {
            let now = shared.env.now();
            shared.connections.remove(id, now);
            slots.extend(shared.pending.leave(slot_id, now));
            shared.log(&format!(
                "error: cannot serve a connection: {error}: raise the limit of processes and threads"
            ));
            result = Err(error);
        }
    }
    result
}

/// Does the periodic work until the server must stop, then ends it.
async fn supervise<E: Env>(shared: Arc<Shared<E>>, listeners: Vec<Box<dyn Closer>>) {
    run_periodic_work(&shared).await;
    for listener in &listeners {
        listener.close();
    }
    shut_down(&shared).await;
    shared.stopped.store(true, Ordering::SeqCst);
    shared.stopped_notify.notify_all();
}

/// Does the periodic work once a second.
async fn run_periodic_work<E: Env>(shared: &Shared<E>) {
    loop {
        let seen = shared.stop.epoch();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        shared.stop.wait(seen, Some(TICK)).await;
        let now = shared.env.now();
        shared.clock.store(now.0, Ordering::Relaxed);
        if let Some(data) = &shared.data {
            data.tick();
            data.seal_idle();
            for target in shared.connections.revoke_slow_permits(PERMIT_HOLD_MAX, now) {
                data.release_permit(target);
            }
        }
        shared.pending.tick(now);
        shared.refusals.log_repeated(now, shared.env.wall(), false);
        shared.end_refused_keys();
        let overdue = shared.connections.close_overdue(now);
        if overdue > 0 {
            shared.log(&format!("warn: ended {overdue} connections whose peers had stalled"));
        }
        if shared.data.as_ref().is_some_and(|data| data.is_short_of_memory()) {
            let timeout = shared.config.limits.short_stall_timeout;
            let ended = shared.connections.close_memory_holders(timeout, now);
            if ended > 0 {
                shared.log(&format!(
                    "warn: ended {ended} connections whose peers had stalled for more than {} s in a message while other \
                     requests waited for payload memory",
                    timeout.0 / 1_000_000_000
                ));
            }
        }
        let idle = shared.connections.idle_for(now);
        if shared.config.idle_exit.is_some_and(|limit| idle >= limit) {
            shared.request_stop();
        }
    }
}

/// Lets running requests finish, and releases everything.
async fn shut_down<E: Env>(shared: &Shared<E>) {
    let limits = &shared.config.limits;
    // Leases first: clients still have their connections, and send their requests by message.
    if let Some(data) = &shared.data {
        data.end_leases().await;
    }
    if let Some(metadata) = &shared.metadata {
        metadata.begin_shutdown();
    }
    shared.pending.close();
    shared.connections.close(false);
    let deadline = shared.env.now().saturating_add(limits.shutdown_timeout);
    loop {
        let seen = shared.connections.ended.epoch();
        let now = shared.env.now();
        let done = shared.connections.count() == 0
            && shared.listening.load(Ordering::SeqCst) == 0
            && !shared.exchanging.load(Ordering::SeqCst);
        if done || now >= deadline {
            break;
        }
        shared.connections.ended.wait(seen, Some(deadline.saturating_sub(now))).await;
    }
    if shared.connections.count() > 0 {
        shared.log("warn: aborted requests that did not finish in time");
        shared.connections.close(true);
    }
    shared.refusals.log_repeated(shared.env.now(), shared.env.wall(), true);
    if let Some(added) = &shared.added {
        added.stop().await;
    }
    if let Some(metadata) = &shared.metadata {
        metadata.shutdown().await;
    }
    if let Some(data) = &shared.data {
        data.stop_background().await;
        data.release_targets();
    }
}

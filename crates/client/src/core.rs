//! What all clones of a client share.

use crate::counters::Counters;
use crate::error::Error;
use crate::lease::Held;
use crate::options::{ClientOptions, Credentials};
use crate::pool::Pool;
use crate::registry::Registry;
use crate::server::Server;
use crate::size::LastSizes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use weft_core::{ClusterId, ServerId, TargetId};
use weft_env::{Env, Notify, Processor};
use weft_wire::hello::SessionId;
use weft_wire::meta::{HandleId, MetaRequest};
use weft_wire::{ClusterMap, Errno};

/// One session: its servers, connections, opens and leases.
pub(crate) struct Core<E: Env> {
    pub(crate) env: E,
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) options: ClientOptions,
    pub(crate) credentials: Credentials,
    pub(crate) session: SessionId,
    /// Identity of the cluster, learned from the metadata server.
    pub(crate) cluster_id: OnceLock<ClusterId>,
    pub(crate) servers: Vec<Server<E>>,
    /// Connections to the metadata service.
    pub(crate) metadata: Pool<E>,
    /// The one connection on which the metadata service is asked for events, so that its loss is seen.
    pub(crate) events: Pool<E>,
    pub(crate) registry: Registry,
    /// Unlocks to be said again.
    pub(crate) owed: Mutex<Vec<MetaRequest>>,
    /// Reclaims under way; see [`Core::until_reclaimed`].
    reclaiming: AtomicU64,
    reclaimed: E::Notify,
    pub(crate) leases: Held<E>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sizes: LastSizes,
    handles: AtomicU64,
    /// When the metadata service was last asked something that it answered, by the monotonic clock.
    pub(crate) heard: AtomicU64,
    /// Set in a forked child: everything here belongs to the parent.
    abandoned: AtomicBool,
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
        let servers = servers.map(|id| Server::new(&env, id, Arc::clone(&map), &options));
        Self {
            servers: servers.collect(),
            metadata: Pool::new(&env, 0, options.metadata_connections_max),
            events: Pool::new(&env, options.metadata_connections_max, 1),
            registry: Registry::default(),
            owed: Mutex::default(),
            reclaiming: AtomicU64::new(0),
            reclaimed: env.notify(),
            leases: Held::new(options.leases_max),
            counters: Arc::default(),
            sizes: LastSizes::default(),
            cluster_id: OnceLock::new(),
            handles: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            session: SessionId(u128::from_le_bytes(session)),
            env,
            map,
            options,
            credentials,
        }
    }

    pub(crate) fn server(&self, id: ServerId) -> &Server<E> {
        &self.servers[id.0 as usize]
    }

    pub(crate) fn metadata_server(&self) -> &Server<E> {
        self.server(self.map.metadata)
    }

    /// The server that has `target`.
    pub(crate) fn route(&self, target: TargetId) -> Result<ServerId, Error> {
        const WHY: &str =
            "the file lies on a target that the cluster file does not name: use the servers' cluster file";
        self.map.server_of(target).ok_or(Error::misuse(Errno::EIO, WHY))
    }

    /// Where the calling task is about to wait, for a server of this machine to work there too.
    pub(crate) fn processor(&self) -> Option<Processor> {
        if self.options.same_processor { self.env.processor() } else { None }
    }

    pub(crate) fn new_handle(&self) -> HandleId {
        HandleId(self.handles.fetch_add(1, Relaxed) + 1)
    }

    /// Before the registry is read for a reclaim, until its reply.
    pub(crate) fn begin_reclaim(&self) -> Reclaiming<'_, E> {
        self.reclaiming.fetch_add(1, SeqCst);
        Reclaiming(self)
    }

    /// After something was taken out of the registry and before the service is told to end it: a reclaim that began
    /// earlier may still name it, and must not be heard after its end.
    pub(crate) async fn until_reclaimed(&self) {
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

    pub(crate) fn check_ours(&self) -> Result<(), Error> {
        if self.is_abandoned() {
            const WHY: &str = "the connections belong to the parent process: adopt the file after a fork";
            return Err(Error::misuse(Errno::EBADF, WHY));
        }
        Ok(())
    }

    /// In a forked child: closes this process's copies of what can be reached, and lets nobody use the rest.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
        self.metadata.forget();
        self.events.forget();
        for server in &self.servers {
            server.lines.forget();
            server.channel.forget();
        }
    }
}

/// A reclaim under way.
pub(crate) struct Reclaiming<'a, E: Env>(&'a Core<E>);

impl<E: Env> Drop for Reclaiming<'_, E> {
    fn drop(&mut self) {
        self.0.reclaiming.fetch_sub(1, SeqCst);
        self.0.reclaimed.notify_all();
    }
}

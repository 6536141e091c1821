//! The metadata service.

use std::path::PathBuf;
use std::sync::Arc;
use weft_env::Env;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::{MetaCall, MetaReply};
use weft_wire::status::MetadataStatus;
use weft_wire::{ClusterMap, ClusterSecret, Errno};

/// What the metadata service is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of its database.
    pub path: PathBuf,
    /// Where the targets and their servers are.
    pub cluster: ClusterMap,
}

/// What the service knows of one connection.
#[derive(Debug)]
pub struct ConnectionContext {
    /// The client process.
    pub session: SessionId,
}

/// The metadata service of one server.
#[derive(Debug)]
pub struct Service<E: Env> {
    env: E,
}

impl<E: Env> Service<E> {
    /// Opens the database and starts the service's own tasks.
    ///
    /// # Errors
    /// A sentence that names the path and the remedy.
    pub async fn start(env: E, _config: Config, _secret: ClusterSecret) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { env }))
    }

    /// A connection has authenticated itself.
    pub fn connected(
        &self,
        session: SessionId,
        _slot: u32,
        _identity: Identity,
        _pid: u32,
        _is_server: bool,
    ) -> ConnectionContext {
        let _ = self.env.now();
        ConnectionContext { session }
    }

    /// Serves one request. Requests of one connection come one after the other.
    pub async fn call(&self, _ctx: &ConnectionContext, _call: MetaCall) -> MetaReply {
        MetaReply::Failed(Errno::ENOSYS.into())
    }

    /// A connection has ended.
    pub async fn disconnected(&self, _ctx: ConnectionContext) {}

    /// The state for `weft status`.
    pub async fn status(&self) -> MetadataStatus {
        MetadataStatus {
            inodes: 0,
            sessions: 0,
            opens: 0,
            locks: 0,
            requests: 0,
            mutations: 0,
            commits: 0,
            reaping: 0,
            total: Default::default(),
            free: Default::default(),
        }
    }

    /// Makes waiting calls return, ends the service's own tasks and makes all changes durable.
    pub async fn shutdown(&self) {}
}

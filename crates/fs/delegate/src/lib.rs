//! I/O delegates: a few processes of a job that cache pages of files together and do the file I/O of all ranks (IODC).
//!
//! A delegate is a server process with one service, whose messages are in [`weft_wire::delegate`]. Decisions are pure
//! functions of [`weft_core::delegates`].
// Runs in the simulated world too: no clock, file, socket or thread but those of weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: futures stay on the task that made them.

mod buffer;
mod first_touch;
mod late_unlocks;
mod pages;
mod read_ahead;
mod recall;
mod service;
mod state;
mod status;
mod transfer;
mod underlying;
mod write_failures;
mod writeback;

pub use underlying::{HostOrWeft, Recall, Recalls, Underlying};

use service::Service;
use std::sync::Arc;
use weft_core::{Nanos, ServerId};
use weft_env::{Address, Env};
use weft_server::{Hooks, Join, Limits, Server, ServerConfig, ServerHandle, ServerParts, StartError};
use weft_wire::ClusterSecret;
use weft_wire::Levels;
use weft_wire::cluster::ServerEntry;
use weft_wire::delegate::JobSettings;
use weft_wire::hello::Security;

/// Configuration of one delegate.
#[derive(Clone)]
pub struct DelegateConfig {
    /// Name of the job, which greetings must contain.
    pub job: String,
    /// All delegates of the job, by index. The name of delegate 3 is `delegate 3`.
    pub delegates: Vec<ServerEntry>,
    /// Settings of the job; `settings.index` is this delegate.
    pub settings: JobSettings,
    /// Addresses to listen on.
    pub addresses: Vec<Address>,
    /// Secret of the job, from which keys for network connections are derived.
    pub secret: ClusterSecret,
    /// Bytes that may be dirty before they are written without waiting for full pages.
    pub dirty_high: u64,
    /// Time without a request after which dirty bytes are written, if write-behind is on.
    pub idle: Nanos,
    /// Time without a session after which the delegate ends; `None` to run on.
    pub idle_exit: Option<Nanos>,
    /// Host name for the status.
    pub host: String,
    /// Facts and services of the environment.
    pub hooks: Hooks,
}

/// Most background tasks that write dirty bytes.
const WRITE_TASKS: usize = 2;

/// Most connections of a delegate: of ranks and of other delegates.
const CONNECTIONS_MAX: u32 = 1 << 15;

/// Starts a delegate, which serves in tasks of its own.
///
/// # Errors
/// The delegate cannot listen on an address, or the system cannot start a task.
pub async fn start<E: Env, U: Underlying<E>>(
    env: E,
    config: DelegateConfig,
    underlying: U,
) -> Result<ServerHandle<E>, StartError> {
    let server = ServerConfig {
        server: ServerId(config.settings.index),
        name: config.name(),
        cluster: config.job.clone(),
        addresses: config.addresses.clone(),
        secret: config.secret.clone(),
        targets: Vec::new(),
        metadata: None,
        metadata_server: None,
        limits: Limits { connections_max: CONNECTIONS_MAX, ..Limits::default() },
        security: Security::Mac,
        idle_exit: config.idle_exit,
        levels: Levels::KNOWN,
        sample: None,
        registers: false,
        join: Join::No,
        hooks: config.hooks.clone(),
    };
    let has_write_behind = config.settings.write_behind;
    let service = Service::new(env.clone(), config, underlying);
    if has_write_behind {
        for _ in 0..WRITE_TASKS {
            let task = Arc::clone(&service);
            env.spawn("weft write", move || task.run_write_behind()).map_err(StartError::Thread)?;
        }
    }
    let task = Arc::clone(&service);
    env.spawn("weft read-ahead", move || task.run_read_ahead()).map_err(StartError::Thread)?;
    let task = Arc::clone(&service);
    env.spawn("weft recall", move || task.run_recalls()).map_err(StartError::Thread)?;
    if service.peers.is_some() {
        let task = Arc::clone(&service);
        env.spawn("weft unlock", move || task.run_late_unlocks()).map_err(StartError::Thread)?;
    }
    let parts = ServerParts {
        data: None,
        metadata: None,
        added: Some(service),
        cluster_id: weft_core::ClusterId::NONE,
    };
    Server::start_with(env, server, parts).await
}

impl DelegateConfig {
    /// Name of this delegate in greetings and messages.
    fn name(&self) -> String {
        format!("delegate {}", self.settings.index)
    }
}

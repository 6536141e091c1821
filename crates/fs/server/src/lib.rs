//! A Weft server: connections, the data service and the metadata service.
//!
//! [`Server::start`] opens the targets and the database named in a [`ServerConfig`], listens, and serves each
//! connection in a task of its own. A connection is authenticated first; then its requests are served in order,
//! dispatched by their family. The same code runs in the real and in the simulated world.
// Runs in the simulated world too: no clock, file, socket or thread but those of weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: futures stay on the task that made them.

mod activity;
mod added;
mod admission;
mod attach;
pub mod audit;
mod averages;
mod config;
mod connection;
mod connections;
mod data;
mod greeting;
pub mod latency;
mod lease;
pub mod metadata;
mod payload;
mod peer;
mod pending;
mod refusals;
mod server;
mod status;
mod tiered;

pub use added::{AddedService, Caller, Served};
pub use attach::AttachError;
pub use config::{
    CacheConfig, Hooks, IbridgeConfig, Join, Limits, LogConfig, ServerConfig, TargetConfig, WritableLeases,
};
pub use data::DataService;
pub use server::{Server, ServerHandle, ServerParts, StartError};

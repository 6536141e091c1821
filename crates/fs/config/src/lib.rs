//! The cluster file: one commented `cluster.toml`, checked with line and remedy.
//!
//! [`Cluster::load`] reads and checks a file; [`Cluster::from_env`] finds it first. Errors are never repaired or
//! ignored: [`ConfigError`] reports file, line and column of an invalid value, the line itself, and what to write
//! instead. [`EXAMPLE`] is a loadable file that shows the whole format with comments.
//!
//! Invariants of a loaded [`Cluster`]:
//!
//! * exactly one server has the metadata role;
//! * names, target ids, addresses and paths (per host) are unique;
//! * every path is absolute;
//! * the key file, if this process can examine it, is readable only by its owner.

mod cache;
mod check;
mod client;
pub mod elf;
mod embedded;
mod error;
mod find;
mod ibridge;
pub mod job;
mod key;
mod load;
mod map;
mod model;
mod private;
mod process;
pub mod replicas;
mod scheduled;
mod section;

pub use embedded::{EmbeddedOptions, FORMING, default_state_dir, embedded_toml, forming, write_embedded};
pub use error::ConfigError;
pub use key::{ClusterKey, Key, KeyError, Rotation, read_key};
pub use model::{
    Cache, CacheLog, Checksums, Client, Cluster, Emulate, Ibridge, Limits, LogLevel, Metadata, Module,
    Server, TakesMeasured, Target, TransportChoice, WritableLeases,
};
pub use private::check_private_dir;
pub use process::{host_name, levels};
pub use weft_core::units::{format_duration, format_size, parse_duration, parse_size};

/// Commented example of a whole cluster file; `weft config example` prints it.
pub const EXAMPLE: &str = include_str!("example.toml");

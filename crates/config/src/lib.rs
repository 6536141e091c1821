//! The cluster file: one commented `cluster.toml`, checked with the line and the remedy.
//!
//! [`Cluster::load`] reads and checks a file, [`Cluster::from_env`] finds it first. Nothing that is wrong is
//! repaired or ignored: a bad value is refused with file, line and column, the line itself and what to write
//! instead ([`ConfigError`]). [`EXAMPLE`] is the whole format with comments, and loads.
//!
//! Invariants of a loaded [`Cluster`]:
//! * exactly one server has the metadata role;
//! * names, target ids, addresses and paths (per host) occur once;
//! * every path is absolute;
//! * the key file, where it can be seen, is readable by its owner alone.

mod check;
mod client;
mod embedded;
mod error;
mod find;
mod ibridge;
mod key;
mod load;
mod map;
mod model;
mod private;
mod quantity;
mod section;

pub use embedded::{EmbeddedOptions, FORMING, default_state_dir, embedded_toml, forming, write_embedded};
pub use error::ConfigError;
pub use key::{ClusterKey, Key, KeyError, Rotation, read_key};
pub use model::{
    Checksums, Client, Cluster, Emulate, Ibridge, Limits, LogLevel, Metadata, Module, Server, TakesMeasured,
    Target, TransportChoice, WritableLeases,
};
pub use private::check_private_dir;
pub use quantity::{format_duration, format_size, parse_duration, parse_size};

/// The whole cluster file with comments; `weft config example` prints it.
pub const EXAMPLE: &str = include_str!("example.toml");

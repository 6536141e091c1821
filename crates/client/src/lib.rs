//! The client of Weft: file handles, splitting, routing and exchange with the servers.
//!
//! A request walks through these rooms:
//!
//! ```text
//! client   session and opens         file     an open file: capability, leases, summary, farewell
//! namespace, attributes  by name     size     cut, found out from the datafiles, settled
//! read     holes and ends            write    summary, append
//! data     parts and payloads        lease    co-located datafiles by their own descriptors
//! exchange everything sent first, then received          call   metadata, each change once
//! migrate  a file to another layout, while others use it
//! pool     connections by server     connect  greeting   server  outages
//! ```
//!
//! * The client starts no thread and holds no lock while it waits for a server.
//! * Splitting happens in `weft_core` alone; the client never knows what a device is.
//! * Nothing is cached but layouts of open files, capabilities and leases: what another client wrote is seen.
//! * In a forked child nothing inherited is used ([`Client::after_fork_in_child`]).
// Runs in the simulated world too: no clock, file, socket or thread but those of weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: futures stay on the task that made them.

mod admin;
mod allowance;
mod append;
mod attributes;
mod call;
mod client;
mod connect;
mod control;
mod core;
mod counters;
mod data;
mod dump;
mod error;
mod exchange;
mod file;
mod gate;
mod gather;
mod holes;
mod lease;
mod lend;
mod locks;
mod log;
mod lost;
mod migrate;
mod namespace;
mod options;
mod owed;
mod pool;
mod read;
mod registry;
mod server;
mod size;
mod token;
mod under;
mod write;

pub use admin::StatFs;
pub use client::Client;
pub use counters::Counts;
pub use dump::MetadataDump;
pub use error::{Device, Error, Hindered, Missing, Refused, Result, Unreachable};
pub use file::OpenFile;
pub use lend::Loan;
pub use locks::Wait;
pub use log::set_log;
pub use migrate::{GoOn, MoveOptions, MoveOutcome, MoveProgress, MoveReport};
pub use options::{Checksums, ClientOptions, Credentials, IssuedKey, Key, Transport};
pub use size::LastKnown;
pub use token::HandleToken;
pub use weft_wire::ClusterMap;
pub use weft_wire::data::ProbeWork;
pub use weft_wire::hello::{Identity, SessionId};
pub use weft_wire::meta::{
    Attr, Entry, Event, FileType, HandleId, HeldLock, LayoutSpec, LockKind, LockOwner, LockRange, LockSpace,
    OpenFlags, Place, ROOT, SetAttr, SetTime,
};

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Client<weft_env::real::RealEnv>>();
    shared_between_threads::<OpenFile<weft_env::real::RealEnv>>();
};

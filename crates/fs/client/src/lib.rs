//! The client of Weft: open files, request splitting, routing and exchanges with the servers.
//!
//! A read or write passes through these modules from top to bottom:
//!
//! | step | module | does |
//! | --- | --- | --- |
//! | session | `client`, `session`, `core` | state that all clones share: servers, connections, opens, leases |
//! | names | `namespace`, `attributes`, `size` | operations by path; truncation, and the size by the datafiles |
//! | open file | `file` | capability, layout versions, leases, summary of writes, close |
//! | read and write | `read`, `write`, `append`, `holes`, `locks`, `lost_bytes` | the operations of an open file |
//! | retry | `file::capability_retry`, `attempts` | after an expired capability, a stale layout, a lost connection |
//! | transfer | `data`, `control`, `gather` | sub-requests with and without payload |
//! | lease | `lease`, `lease_request`, `pinned_extents` | co-located datafiles through their own descriptors |
//! | exchange | `exchange`, `call` | all data servers at once; the metadata server, each change once |
//! | connection | `pool`, `connect`, `connection`, `server` | pooled connections, greeting, outages |
//! | replica | `replicas` | requests to reorganized copies of files on mounted file systems |
//! | move | `migrate` | copies a file to another layout while programs use it |
//!
//! Callers that also use other file systems see it through [`FileSystem`] and [`FileHandle`] (`file_system`, `weft_file`),
//! which `host_fs`, `host_file`, `host_or_weft` and `delegates` implement, too.
//!
//! * The client starts no thread, and holds no thread lock while it waits for a server. Two async mutexes stay
//!   locked over messages: that of the appends to an open file, and that of the lease requests to a server.
//! * Splitting happens in `weft_core` alone; the client never knows what a device is.
//! * The client caches only the layouts, capabilities and leases of open files, so it sees the writes of other
//!   clients.
//! * A forked child uses nothing that it inherited ([`Client::after_fork_in_child`]).
// This crate also runs in the simulated world: clock, files, sockets and threads come from weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // As in weft-env: a future stays on the task that created it.

mod admin;
mod append;
mod async_mutex;
mod attempts;
mod attributes;
mod backoff;
mod call;
mod client;
mod connect;
mod connection;
mod control;
mod core;
mod counters;
mod data;
mod deadline;
mod delegates;
mod dump;
mod error;
mod exchange;
mod file;
mod file_system;
mod gather;
mod holes;
mod host_file;
mod host_fs;
mod host_or_weft;
pub mod idle;
mod inline;
mod interruption;
mod last_sizes;
mod lease;
mod lease_request;
mod leased_bytes;
mod locks;
mod log;
mod lost_bytes;
mod migrate;
mod namespace;
mod options;
mod pending_unlocks;
mod pinned_extents;
mod pool;
mod quotas;
mod read;
mod registry;
pub mod replicas;
mod server;
mod session;
mod short_datafiles;
mod size;
mod token;
mod weft_file;
mod write;

pub use admin::StatFs;
pub use client::Client;
pub use counters::Counts;
pub use delegates::{
    DelegatedFile, DelegatedFs, DelegatedSpec, Delegates, Forwarded, JobMap, Join, MaybeDelegated, RankOf,
    Source,
};
pub use dump::MetadataDump;
pub use error::{
    DelegateFailure, Device, Error, HostFailure, LocalFailure, Missing, Refused, ReplicaFailure, Result,
    Unreachable,
};
pub use file::OpenFile;
pub use file_system::{FileHandle, FileSystem, ReadPiece, WritePiece, read_all, write_all};
pub use host_file::HostFile;
pub use host_fs::{HostFs, HostPath};
pub use host_or_weft::{HostOrWeftFile, HostOrWeftFs, HostOrWeftPath};
pub use interruption::{ServerWait, set_server_wait};
pub use locks::Wait;
pub use log::{is_about_waiting, is_end_of_outage, set_log};
pub use migrate::{MoveOptions, MoveOutcome, MoveProgress, MoveReport, ProgressCallback};
pub use options::{
    Checksums, ClientOptions, Credentials, IssuedKey, Key, KeyRenewal, MetadataSearch, Transport,
};
pub use pinned_extents::PinnedExtents;
pub use size::LastKnown;
pub use token::HandleToken;
pub use weft_wire::ClusterMap;
pub use weft_wire::data::ProbeWork;
pub use weft_wire::hello::{Identity, SessionId};
pub use weft_wire::meta::{
    Attr, Entry, Event, FileType, HandleId, HeldLock, InodePath, LayoutSpec, LockKind, LockOwner, LockRange,
    LockSpace, OpenFlags, ROOT, SetAttr, SetTime,
};

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Client<weft_env::real::RealEnv>>();
    shared_between_threads::<OpenFile<weft_env::real::RealEnv>>();
};

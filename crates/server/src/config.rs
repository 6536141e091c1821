//! What a server is told at its start: a plain structure; the command line maps `cluster.toml` onto it.

use crate::audit::Sink;
use crate::metadata;
use crate::pending::Quota;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::ibridge::{Decider, DeciderSpec, Policy, ServiceCurve, Thresholds, Weight};
use weft_core::{ByteLen, Integrity, Nanos, ServerId, TargetId};
use weft_env::Address;
use weft_store::emulate::Emulation;
use weft_store::fragments::LogSpec;
use weft_store::target::Module;
use weft_wire::ClusterSecret;
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::Security;

/// All that a server is told at its start.
#[derive(Clone)]
pub struct ServerConfig {
    /// Its number in the cluster.
    pub server: ServerId,
    /// Its name in the cluster file.
    pub name: String,
    /// The cluster's name; a greeting that means another cluster is refused.
    pub cluster: String,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// From which all keys are derived.
    pub secret: ClusterSecret,
    /// Its targets; none on a server with the metadata role only.
    pub targets: Vec<TargetConfig>,
    /// Present when it has the metadata role.
    pub metadata: Option<metadata::Config>,
    /// Where the metadata service is; `None` with [`Join::No`], or where it is this server itself.
    pub metadata_server: Option<ServerEntry>,
    /// Bounds.
    pub limits: Limits,
    /// The least protection of connections that come over the network; [`Security::None`] counts as [`Security::Mac`].
    pub security: Security,
    /// The server ends itself when no connection was open for this long; `None` stays.
    pub idle_exit: Option<Nanos>,
    /// Of so many stretches of a client's time (a second each) the requests are kept as samples; `None` keeps
    /// none. With samples no descriptors are lent.
    pub sample: Option<NonZeroU32>,
    /// How its targets, and its metadata, become part of the cluster.
    pub join: Join,
    /// What the server cannot find out by itself in both worlds.
    pub hooks: Hooks,
}

/// How directories become part of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// Only those that did so before. Blank, missing and foreign directories are refused, unless the metadata server
    /// expects a new disk.
    Known,
    /// Blank directories are formatted and join as well, where the metadata server has no disk on record.
    Format,
    /// The metadata server is not asked, and blank directories are formatted: for data servers without one.
    No,
}

/// One target of a server.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Its number in the cluster.
    pub id: TargetId,
    /// Its class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
    /// The directory that holds it.
    pub path: PathBuf,
    /// How its datafiles are read and written.
    pub module: Module,
    /// Most requests that run on it at once; others wait, sessions taking turns.
    pub queue_depth: u32,
    /// Whether co-located clients may get the descriptors of its datafiles. Those of an emulated target never do.
    pub leases: bool,
    /// Whether new datafiles get checksums where their file does not say. Descriptors of those that have them are not lent.
    pub integrity: Integrity,
    /// The device whose time its requests take; `None` the one below.
    pub emulate: Option<Emulation>,
    /// An SSD beside it for small requests; `None` the disk serves all. With one, no descriptors are lent.
    pub ibridge: Option<IbridgeConfig>,
}

/// The SSD beside a target, and which requests go there.
#[derive(Clone, Debug)]
pub struct IbridgeConfig {
    /// The directory of its log on the SSD.
    pub path: PathBuf,
    /// Room for bytes in the log.
    pub size: ByteLen,
    /// Which requests go there.
    pub policy: Policy,
    /// What is small.
    pub thresholds: Thresholds,
    /// What a new request weighs in the disk's average service time.
    pub weight: Weight,
    /// What the disk takes for a request, as far as the decision knows it.
    pub curve: ServiceCurve,
    /// How often the average service time goes to the metadata service, and those of others come back.
    pub exchange: Nanos,
    /// How long a report of another server holds.
    pub stale: Nanos,
    /// Bytes are written back when the disk had no request for so long.
    pub idle: Nanos,
    /// Dirty bytes above which they are written back whatever the disk does.
    pub dirty_high: ByteLen,
    /// Dirty bytes down to which that goes on.
    pub dirty_low: ByteLen,
    /// Whether reads that would have been worth it are copied to the SSD when it is idle.
    pub preload: bool,
    /// The log has memory for one entry for each so many bytes of its size.
    pub entry_len: ByteLen,
    /// The device whose time the log's requests take; `None` the one below.
    pub emulate: Option<Emulation>,
}

impl IbridgeConfig {
    /// A log of `size` at `path` beside a disk with `curve`, everything else as the paper has it: reports every second,
    /// idle after 10 ms.
    pub fn new(path: PathBuf, size: ByteLen, curve: ServiceCurve) -> Self {
        Self {
            path,
            size,
            policy: Policy::Ibridge,
            thresholds: Thresholds::default(),
            weight: Weight::default(),
            curve,
            exchange: Nanos::from_s(1),
            stale: Nanos::from_s(5),
            idle: Nanos::from_ms(10),
            dirty_high: ByteLen(size.0 / 4 * 3),
            dirty_low: ByteLen(size.0 / 2),
            preload: true,
            entry_len: LogSpec::ENTRY_LEN,
            emulate: None,
        }
    }

    /// The decisions of `target`, beside which it lies and which has served nothing yet.
    pub(crate) fn decider(&self, target: &TargetConfig) -> Decider {
        Decider::new(DeciderSpec {
            target: target.id,
            has_memory: target.module == Module::Buffered,
            policy: self.policy,
            thresholds: self.thresholds,
            weight: self.weight,
            curve: self.curve.clone(),
            stale: self.stale,
        })
    }
}

/// Users who get descriptors of datafiles for writing. Every user who may read a file gets one for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritableLeases {
    /// Root and the user who runs the server. Both can write the datafiles without Weft as well.
    Own,
    /// Every user who may write the file. A holder can keep the descriptor and write after it has lost the right to.
    All,
}

impl Limits {
    /// Most connections of one user.
    pub(crate) fn connections_of_user(&self) -> u32 {
        self.user_connections.unwrap_or(self.connections_max / 2).max(1)
    }

    /// Most bytes of payload memory of one user.
    pub(crate) fn payload_of_user(&self) -> ByteLen {
        self.user_payload.unwrap_or(ByteLen(self.payload_memory_max.0 / 2))
    }

    /// Most bytes of shared payload areas of one user.
    pub(crate) fn shared_of_user(&self) -> ByteLen {
        self.user_payload.unwrap_or(ByteLen(self.shared_memory_max.0 / 2))
    }
}

/// Bounds of a server's memory and patience.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections of authenticated peers at once; more are refused with a sentence that says so.
    pub connections_max: u32,
    /// Most connections that authenticate themselves at once, apart from those; a quarter of them from one address or user.
    /// Others wait.
    pub greetings_max: u32,
    /// Most connections of one user at once; `None` half of all. Servers of the cluster, root and the user who runs the
    /// server have no such bound.
    pub user_connections: Option<u32>,
    /// Most memory for payloads of all connections.
    pub payload_memory_max: ByteLen,
    /// Most memory for payloads, and for shared payload areas, of one user; `None` half of all. With the same exceptions.
    pub user_payload: Option<ByteLen>,
    /// Users who get descriptors of datafiles for writing.
    pub writable_leases: WritableLeases,
    /// Most memory for one connection's shared payload area.
    pub shared_payload_max: ByteLen,
    /// Most memory for all shared payload areas.
    pub shared_memory_max: ByteLen,
    /// Most datafiles held open per target.
    pub open_datafiles_max: usize,
    /// Most requests that are kept as samples; the oldest give way.
    pub samples_max: usize,
    /// How long a connection may take to greet and prove itself.
    pub greeting_timeout: Nanos,
    /// How long a peer may stall in the middle of a message before its connection is ended.
    pub stall_timeout: Nanos,
    /// Time after which a stalled peer that holds payload memory loses its connection while other requests wait for memory.
    pub short_stall_timeout: Nanos,
    /// How long a revocation waits for a client's operations in flight before the client's connection is ended.
    pub revoke_timeout: Nanos,
    /// How long an orderly end waits for requests that run.
    pub shutdown_timeout: Nanos,
}

impl Limits {
    /// Bounds of connections whose peers have not authenticated themselves.
    pub(crate) fn quota(&self) -> Quota {
        let (greetings, connections) = (self.greetings_max as usize, self.connections_max as usize);
        Quota {
            greeting_max: greetings.max(1),
            greeting_per_source_max: (greetings / 4).max(1),
            waiting_max: connections / 2,
            waiting_per_source_max: connections / 8,
            patience: self.greeting_timeout,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8192,
            greetings_max: 64,
            user_connections: None,
            payload_memory_max: ByteLen::from_mib(256),
            user_payload: None,
            writable_leases: WritableLeases::Own,
            shared_payload_max: ByteLen::from_mib(1),
            shared_memory_max: ByteLen::from_mib(256),
            open_datafiles_max: 1024,
            samples_max: 65_536,
            greeting_timeout: Nanos::from_s(10),
            stall_timeout: Nanos::from_s(30),
            short_stall_timeout: Nanos::from_s(5),
            revoke_timeout: Nanos::from_s(5),
            shutdown_timeout: Nanos::from_s(10),
        }
    }
}

/// What the server cannot find out by itself in both worlds.
#[derive(Clone)]
pub struct Hooks {
    /// Resident memory of this process; 0 where unknown.
    pub memory: fn() -> ByteLen,
    /// Takes one line for the server's log.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
    /// This process.
    pub pid: u32,
    /// The user that runs this server, who like root may administrate it.
    pub uid: u32,
    /// Whether the process was told to end while the server was starting.
    pub is_ended: fn() -> bool,
    /// Takes the events of the audit log, if one is kept.
    pub audit: Option<Arc<dyn Sink>>,
}

impl Hooks {
    /// Knows nothing, logs nowhere and trusts root only.
    pub fn none() -> Self {
        Self { memory: || ByteLen(0), log: Arc::new(|_| ()), pid: 0, uid: 0, is_ended: || false, audit: None }
    }
}

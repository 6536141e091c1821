//! Configuration of a server, as a plain structure. The command line maps `cluster.toml` onto it.

use crate::audit::Sink;
use crate::metadata;
use crate::pending::Quota;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::{Decider, DeciderSpec, Policy, ServiceCurve, Thresholds, Weight};
use weft_core::{ByteLen, CacheShare, Integrity, Nanos, ServerId, TargetId, TargetSettings};
use weft_env::Address;
use weft_store::emulate::Emulation;
use weft_store::fragments::LogSpec;
use weft_store::target::Module;
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::Security;
use weft_wire::{ClusterSecret, Levels};

/// Configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Number of the server in the cluster.
    pub server: ServerId,
    /// Name of the server in the cluster file.
    pub name: String,
    /// Name of the cluster. A greeting for another cluster is refused.
    pub cluster: String,
    /// Addresses to listen on.
    pub addresses: Vec<Address>,
    /// Secret from which all keys are derived.
    pub secret: ClusterSecret,
    /// Targets of the server; none if it has the metadata role only.
    pub targets: Vec<TargetConfig>,
    /// Configuration of the metadata service, if the server has the metadata role.
    pub metadata: Option<metadata::Config>,
    /// The metadata server; `None` with [`Join::No`], or if it is this server.
    pub metadata_server: Option<ServerEntry>,
    /// Limits of memory, connections and waiting.
    pub limits: Limits,
    /// Minimum protection of network connections; [`Security::None`] counts as [`Security::Mac`].
    pub security: Security,
    /// Feature levels that this server knows.
    pub levels: Levels,
    /// Time without a connection after which the server stops; `None` to run on.
    pub idle_exit: Option<Nanos>,
    /// Keeps the requests of one in this number of intervals (of a second each) of a client as samples; `None` for no
    /// samples. With samples, no leases are granted.
    pub sample: Option<NonZeroU32>,
    /// How targets and metadata become part of the cluster.
    pub join: Join,
    /// Whether the server reports its addresses, and where it attached its targets, to the metadata service, which then
    /// gives it its number. Only where that keeps the cluster map
    /// ([`metadata::Options::keeps_map`](crate::metadata::Options::keeps_map)).
    pub registers: bool,
    /// Facts and services of the environment.
    pub hooks: Hooks,
}

/// How directories become part of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// Only directories that are part of it already. Blank, missing and foreign ones are refused, unless the metadata
    /// server expects a new disk.
    Known,
    /// Blank directories are formatted and join too, if the metadata server has no disk on record.
    Format,
    /// Without asking a metadata server; blank directories are formatted. For data servers without one.
    No,
}

/// One target of a server.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Number of the target in the cluster.
    pub id: TargetId,
    /// Class of the target: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
    /// Settings that the metadata service needs to place files.
    pub settings: TargetSettings,
    /// Directory of the target.
    pub path: PathBuf,
    /// How its datafiles are read and written.
    pub module: Module,
    /// Maximum number of concurrent requests. Others wait; sessions are served in rotation.
    pub queue_depth: u32,
    /// Whether co-located clients may lease its datafiles. Datafiles of an emulated target are never leased.
    pub leases: bool,
    /// Whether new datafiles get checksums if their file does not say. Datafiles with checksums are not leased.
    pub integrity: Integrity,
    /// Device whose time its requests take; `None` for the real one.
    pub emulate: Option<Emulation>,
    /// SSD tier for small requests; `None` to use the disk only. With one, no leases are granted.
    pub ibridge: Option<IbridgeConfig>,
    /// Read and write cache on an SSD; `None` for none. With one, no leases are granted.
    pub cache: Option<CacheConfig>,
}

impl TargetConfig {
    /// Log on the SSD that iBridge and the cache share, or that one of them has alone.
    pub(crate) fn log(&self) -> Option<LogConfig> {
        let of_cache = || self.cache.as_ref().and_then(|cache| cache.log.clone());
        self.ibridge.as_ref().map(IbridgeConfig::log).or_else(of_cache)
    }

    /// iBridge's policy, if any request may go to its classes.
    pub(crate) fn ibridge_policy(&self) -> Option<Policy> {
        self.ibridge.as_ref().map(|ibridge| ibridge.policy).filter(|policy| *policy != Policy::Off)
    }

    /// The cache, unless it is off.
    pub(crate) fn cache_in_use(&self) -> Option<&CacheConfig> {
        self.cache.as_ref().filter(|cache| cache.mode != CacheMode::Off)
    }
}

/// Log on an SSD beside a target.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directory of the log on the SSD.
    pub path: PathBuf,
    /// Capacity of the log for data.
    pub size: ByteLen,
    /// Service time of the disk, for the choice of ranges that are written back in one piece.
    pub curve: ServiceCurve,
    /// Time without a disk request after which bytes are written back.
    pub idle: Nanos,
    /// Dirty bytes above which writeback ignores traffic.
    pub dirty_high: ByteLen,
    /// Dirty bytes at which writeback yields to traffic again.
    pub dirty_low: ByteLen,
    /// Length of the log's capacity per entry in memory.
    pub entry_len: ByteLen,
    /// Device whose time the log's requests take; `None` for the real one.
    pub emulate: Option<Emulation>,
}

/// Read and write cache of a target.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Mode: the requests that the cache serves.
    pub mode: CacheMode,
    /// Order in which clean blocks are evicted.
    pub eviction: EvictionPolicy,
    /// Share of the log's capacity.
    pub share: CacheShare,
    /// Maximum length that is read ahead of sequential and strided readers; zero for none.
    pub prefetch: ByteLen,
    /// Log of the cache; used only if the target has no [`TargetConfig::ibridge`], whose log serves both otherwise.
    pub log: Option<LogConfig>,
}

impl CacheConfig {
    /// Cache of a mode with a log of `size` at `path`, for a disk with `curve`.
    pub fn new(mode: CacheMode, path: PathBuf, size: ByteLen, curve: ServiceCurve) -> Self {
        let log = Some(IbridgeConfig::new(path, size, curve).log());
        Self { share: CacheShare::Fixed(100), log, ..Self::shared(mode) }
    }

    /// Cache of a mode in the log of iBridge.
    pub fn shared(mode: CacheMode) -> Self {
        Self {
            mode,
            eviction: EvictionPolicy::default(),
            share: CacheShare::default(),
            prefetch: ByteLen(0),
            log: None,
        }
    }
}

/// SSD tier of a target, and its placement policy.
#[derive(Clone, Debug)]
pub struct IbridgeConfig {
    /// Directory of its log on the SSD.
    pub path: PathBuf,
    /// Capacity of the log for data.
    pub size: ByteLen,
    /// Placement policy.
    pub policy: Policy,
    /// Sizes up to which requests count as small.
    pub thresholds: Thresholds,
    /// Weight of a new request in the disk's average service time.
    pub weight: Weight,
    /// Service time of the disk as the policy models it.
    pub curve: ServiceCurve,
    /// Interval at which average service times are exchanged through the metadata service.
    pub exchange: Nanos,
    /// Time for which a report of another server is used.
    pub stale: Nanos,
    /// Time without a disk request after which bytes are written back.
    pub idle: Nanos,
    /// Dirty bytes above which writeback ignores traffic.
    pub dirty_high: ByteLen,
    /// Dirty bytes at which writeback yields to traffic again.
    pub dirty_low: ByteLen,
    /// Whether reads that the SSD should serve next time are copied to it while it is idle.
    pub preload: bool,
    /// Length of the log's capacity per entry in memory.
    pub entry_len: ByteLen,
    /// Device whose time the log's requests take; `None` for the real one.
    pub emulate: Option<Emulation>,
}

impl IbridgeConfig {
    /// Log of `size` at `path` for a disk with `curve`, with the defaults of the paper: reports every second, idle
    /// after 10 ms.
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

    /// Log of the tier.
    pub(crate) fn log(&self) -> LogConfig {
        LogConfig {
            path: self.path.clone(),
            size: self.size,
            curve: self.curve.clone(),
            idle: self.idle,
            dirty_high: self.dirty_high,
            dirty_low: self.dirty_low,
            entry_len: self.entry_len,
            emulate: self.emulate.clone(),
        }
    }

    /// Placement decisions for `target`, which has served nothing yet.
    pub(crate) fn decider(&self, target: &TargetConfig) -> Decider {
        Decider::new(DeciderSpec {
            target: target.id,
            has_page_cache: target.module == Module::Buffered,
            policy: self.policy,
            thresholds: self.thresholds,
            weight: self.weight,
            curve: self.curve.clone(),
            stale: self.stale,
        })
    }
}

/// Users who get writable descriptors of datafiles. Every user who may read a file gets one for reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritableLeases {
    /// Root and the user who runs the server, who can both write the datafiles without Weft too.
    Own,
    /// Every user who may write the file. A holder can keep the descriptor and write after losing the right to.
    All,
}

impl Limits {
    /// Maximum number of connections of one user.
    pub(crate) fn connections_of_user(&self) -> u32 {
        self.user_connections.unwrap_or(self.connections_max / 2).max(1)
    }

    /// Maximum payload memory of one user.
    pub(crate) fn payload_of_user(&self) -> ByteLen {
        self.user_payload.unwrap_or(ByteLen(self.payload_memory_max.0 / 2))
    }

    /// Maximum size of all shared payload areas of one user.
    pub(crate) fn shared_of_user(&self) -> ByteLen {
        self.user_payload.unwrap_or(ByteLen(self.shared_memory_max.0 / 2))
    }
}

/// Limits of a server's memory, connections and waiting.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections of authenticated peers. Others are refused with a message.
    pub connections_max: u32,
    /// Maximum number of further connections that authenticate at once, a quarter of them from one address or user.
    /// Others wait.
    pub greetings_max: u32,
    /// Maximum number of connections of one user; `None` for half of all. Servers of the cluster, root and the user who
    /// runs the server are not limited.
    pub user_connections: Option<u32>,
    /// Maximum memory for payloads of all connections.
    pub payload_memory_max: ByteLen,
    /// Maximum memory for payloads, and for shared payload areas, of one user; `None` for half of all. The same peers
    /// are not limited.
    pub user_payload: Option<ByteLen>,
    /// Users who get writable descriptors of datafiles.
    pub writable_leases: WritableLeases,
    /// Maximum size of one connection's shared payload area.
    pub shared_payload_max: ByteLen,
    /// Maximum size of all shared payload areas.
    pub shared_memory_max: ByteLen,
    /// Maximum number of open datafiles per target.
    pub open_datafiles_max: usize,
    /// Maximum number of samples; the oldest are dropped.
    pub samples_max: usize,
    /// Time limit for a connection to greet and authenticate.
    pub greeting_timeout: Nanos,
    /// Time after which a peer that stalls in the middle of a message loses its connection.
    pub stall_timeout: Nanos,
    /// Time after which a stalled peer that holds payload memory loses its connection, if other requests wait for
    /// memory.
    pub short_stall_timeout: Nanos,
    /// Time for which a revocation waits for a client's operations in flight before it closes the client's connection.
    pub revoke_timeout: Nanos,
    /// Time for which a stopping server waits for running requests.
    pub shutdown_timeout: Nanos,
}

impl Limits {
    /// Limits of connections whose peers have not authenticated.
    pub(crate) fn quota(&self) -> Quota {
        let (greetings, connections) = (self.greetings_max as usize, self.connections_max as usize);
        Quota {
            greeting_max: greetings.max(1),
            greeting_per_source_max: (greetings / 4).max(1),
            waiting_max: connections / 2,
            waiting_per_source_max: connections / 8,
            waiting_time_max: self.greeting_timeout,
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

/// Facts and services that the environment of a server provides.
#[derive(Clone)]
pub struct Hooks {
    /// Resident memory of this process; 0 if unknown.
    pub memory: fn() -> ByteLen,
    /// Takes one line for the server's log. It may begin with `error: ` or `warn: `; others are information. See
    /// docs/reference/logs.md.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
    /// Process id.
    pub pid: u32,
    /// User who runs this server. Like root, an administrator.
    pub uid: u32,
    /// Whether the process was asked to stop while the server was starting.
    pub is_ended: fn() -> bool,
    /// Receiver of the events of the audit log, if one is kept.
    pub audit: Option<Arc<dyn Sink>>,
}

impl Hooks {
    /// Writes a line about `subject`. A level at the start of the line stays there.
    pub(crate) fn log_of(&self, subject: &dyn std::fmt::Display, line: &str) {
        let level =
            ["error: ", "warn: "].into_iter().find(|level| line.starts_with(level)).unwrap_or_default();
        (self.log)(&format!("{level}{subject}: {}", &line[level.len()..]));
    }

    /// Hooks that know nothing, log nowhere and trust root only.
    pub fn none() -> Self {
        Self { memory: || ByteLen(0), log: Arc::new(|_| ()), pid: 0, uid: 0, is_ended: || false, audit: None }
    }
}

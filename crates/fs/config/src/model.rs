//! The contents of a cluster file after all checks.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
pub use weft_core::Module;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::{Policy, Weight};
use weft_core::{
    ByteLen, CacheShare, Compression, CompressionSetting, Integrity, Nanos, Placement, Reserve, TargetId,
};
use weft_env::Address;
use weft_wire::hello::Security;

/// One cluster, as its file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// File that was read.
    pub file: PathBuf,
    /// Name; clients and servers of different clusters reject each other.
    pub name: String,
    /// Prefix of Weft's paths, for the preload library and in command arguments.
    pub mount: PathBuf,
    /// File with the cluster key, readable only by its owner.
    pub key_file: PathBuf,
    /// Time without connections after which servers exit; `None` for never.
    pub idle_exit: Option<Nanos>,
    /// Protection of messages between hosts: a MAC, or encryption as well.
    pub security: Security,
    /// All servers; a `ServerId` is an index into this list.
    pub servers: Vec<Server>,
    /// Layout of new files for which neither the directory nor the program requests another.
    pub placement: Placement,
    /// Compression of new files for which neither program, rule, directory nor targets decide; `None` for none.
    pub compression: Option<Compression>,
    /// Maximum size of files whose bytes are in the metadata; 0 for none.
    pub inline_max: ByteLen,
    /// Limits of one user.
    pub limits: Limits,
    /// Client settings.
    pub client: Client,
    /// State directory, if `weft run` created this cluster; its clients may start the servers.
    pub embedded: Option<PathBuf>,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Name.
    pub name: String,
    /// Addresses, Unix sockets first.
    pub addresses: Vec<Address>,
    /// Host on which it runs; `None` for any (`weft serve` without a name starts it on every host).
    pub host: Option<String>,
    /// Metadata service, if the server has the role.
    pub metadata: Option<Metadata>,
    /// Targets in the order of the file; none without the data role.
    pub targets: Vec<Target>,
    /// Log file; `None` for standard error.
    pub log: Option<PathBuf>,
    /// Log level.
    pub log_level: LogLevel,
    /// Audit log file; `None` to keep no audit log.
    pub audit: Option<PathBuf>,
    /// Address at which the server exposes its metrics over HTTP; `None` for nowhere.
    pub metrics: Option<Address>,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// Maximum number of connections that are being authenticated.
    pub greetings_max: u32,
    /// Maximum memory for payloads in flight, over all connections.
    pub payload_memory: ByteLen,
    /// Sampling interval: requests are sampled in one of this many time slices of each client; `None` samples none.
    pub sample: Option<NonZeroU32>,
}

/// Metadata service of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Directory of the database.
    pub path: PathBuf,
    /// Memory for cached pages of the database.
    pub cache: ByteLen,
    /// Time for which a commit waits for more changes; zero commits at once all changes that arrived during the last
    /// commit.
    pub commit_delay: Nanos,
    /// Maximum number of changes in one commit.
    pub commit_max: u32,
    /// Whether the replies to all changes of names wait for their sync; otherwise only those to programs on other hosts.
    pub syncs_all_names: bool,
    /// Time after a crash for which clients may reclaim their opens and locks before others get them.
    pub grace: Nanos,
    /// Device whose timing the database emulates; `None` for the real one.
    pub emulate: Option<Emulate>,
}

/// One storage path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Number in the cluster; layouts refer to it, so it never changes.
    pub id: TargetId,
    /// Class: `hdd`, `ssd`, `nvme` or any other word.
    pub class: String,
    /// Directory of the datafiles.
    pub path: PathBuf,
    /// I/O module.
    pub module: Module,
    /// Maximum number of requests in progress; further ones wait.
    pub queue_depth: u32,
    /// Whether clients on the same node may get datafile descriptors; an emulated target never grants them.
    pub leases: bool,
    /// Whether new datafiles have checksums, if neither their file nor its directory decides.
    pub integrity: Integrity,
    /// Compression of new files on targets that all have this setting, if neither program, rule nor directory decides.
    pub compression: Option<CompressionSetting>,
    /// Device whose timing the target emulates; `None` for the real one.
    pub emulate: Option<Emulate>,
    /// Space that the bounded components of layouts may reserve; `None` for no limit.
    pub capacity: Option<ByteLen>,
    /// Space that new files leave free.
    pub reserve: Reserve,
    /// SSD beside the target for small requests; such a target grants no descriptors.
    pub ibridge: Option<Ibridge>,
    /// Read and write cache on an SSD; such a target grants no descriptors.
    pub cache: Option<Cache>,
}

/// Read and write cache of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    /// Mode: the requests that the cache serves.
    pub mode: CacheMode,
    /// Order in which clean blocks are evicted.
    pub eviction: EvictionPolicy,
    /// Share of the SSD.
    pub share: CacheShare,
    /// Maximum length read ahead of sequential and strided readers; zero for none.
    pub prefetch: ByteLen,
    /// Log of the cache; `None` if it uses the log of [`Target::ibridge`].
    pub log: Option<CacheLog>,
}

/// Log of a cache without iBridge. The fields are those of [`Ibridge`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheLog {
    /// Directory of the log.
    pub path: PathBuf,
    /// Capacity of the log.
    pub size: ByteLen,
    /// Idle time of the disk after which dirty bytes are written back.
    pub idle: Nanos,
    /// Dirty bytes above which write-back starts even if the disk is busy.
    pub dirty_high: ByteLen,
    /// Dirty bytes at which that write-back stops.
    pub dirty_low: ByteLen,
    /// Bytes of the log per entry in memory.
    pub entry_size: ByteLen,
    /// Device whose timing the log emulates; `None` for the real one.
    pub emulate: Option<Emulate>,
}

/// SSD beside a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ibridge {
    /// Directory of the log.
    pub path: PathBuf,
    /// Capacity of the log.
    pub size: ByteLen,
    /// Admission policy.
    pub policy: Policy,
    /// Size below which a piece of a request over several datafiles counts as small.
    pub fragments_below: ByteLen,
    /// Size below which a request of one piece counts as small.
    pub random_below: ByteLen,
    /// Weight of a new request in the disk's average service time.
    pub weight: Weight,
    /// Interval at which servers exchange their disks' averages.
    pub exchange: Nanos,
    /// Age above which such an average is ignored.
    pub stale: Nanos,
    /// Idle time of the disk after which dirty bytes are written back.
    pub idle: Nanos,
    /// Dirty bytes above which write-back starts even if the disk is busy.
    pub dirty_high: ByteLen,
    /// Dirty bytes at which that write-back stops.
    pub dirty_low: ByteLen,
    /// Whether idle time is used to copy to the SSD what earlier reads would have gained from.
    pub preload: bool,
    /// Bytes of the log per entry in memory.
    pub entry_size: ByteLen,
    /// Device whose figures the policy uses for the disk; see [`Target::figures`].
    pub profile: Option<Emulate>,
    /// Whether to use instead the figures that `weft profile` measured for the target's class.
    pub measured: bool,
    /// Device whose timing the log emulates; `None` for the real one.
    pub emulate: Option<Emulate>,
}

/// Whether measurements of a target's class by `weft profile` apply to its SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakesMeasured {
    /// The cluster file requires them.
    Must,
    /// They apply if they exist: the cluster file names no device.
    May,
    /// The cluster file names a device.
    No,
}

impl Target {
    /// Returns the directory of the log beside the target, and the device whose timing it emulates; `None` if the
    /// target has no SSD.
    pub fn log(&self) -> Option<(&Path, Option<&Emulate>)> {
        let of_ibridge = self.ibridge.as_ref().map(|found| (found.path.as_path(), found.emulate.as_ref()));
        let of_cache =
            || self.cache.as_ref()?.log.as_ref().map(|log| (log.path.as_path(), log.emulate.as_ref()));
        of_ibridge.or_else(of_cache)
    }

    /// Whether measured figures take precedence over [`Target::figures`].
    pub fn takes_measured(&self) -> TakesMeasured {
        match &self.ibridge {
            Some(ibridge) if ibridge.measured => TakesMeasured::Must,
            Some(ibridge) if ibridge.profile.is_none() && self.emulate.is_none() => TakesMeasured::May,
            _ => TakesMeasured::No,
        }
    }

    /// Returns the device whose figures the policy uses for the disk: that of the `profile` line, else the emulated
    /// one, else a typical device of the class.
    pub fn figures(&self) -> Emulate {
        let configured = self.ibridge.as_ref().and_then(|ibridge| ibridge.profile.clone());
        configured.or_else(|| self.emulate.clone()).unwrap_or_else(|| {
            Emulate::Named(match self.class.as_str() {
                "ssd" => "sata-ssd".into(),
                "nvme" => "nvme".into(),
                _ => "hdd-7200".into(),
            })
        })
    }
}

/// Device whose timing is emulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Emulate {
    /// Profile that is part of Weft.
    Named(String),
    /// Profile in a file on the server's host, as `weft profile` writes it.
    File(PathBuf),
}

impl std::fmt::Display for Emulate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Client settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Transport of file data.
    pub transport: TransportChoice,
    /// Timeout for connecting to a server.
    pub connect_timeout: Nanos,
    /// Timeout for a server's reply, after which the request is repeated over another connection.
    pub request_timeout: Nanos,
    /// Time for which a request is repeated to a server that does not answer. `None` for the default: see
    /// [`Cluster::client_options`] and [`Cluster::command_options`].
    pub retry_for: Option<Nanos>,
    /// Size below which a sub-request of a request over several datafiles is a fragment.
    pub fragment_threshold: ByteLen,
    /// Whether payloads carry checksums.
    pub checksums: Checksums,
    /// Whether a server on the same host may process a request on the client's processor.
    pub same_processor: bool,
    /// Maximum number of connections of one process to one server.
    pub connections_max: u32,
    /// Maximum number of datafile descriptors that one process leases.
    pub leases_max: u32,
}

/// Transport of file data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportChoice {
    /// Leased descriptors where allowed, messages otherwise.
    Auto,
    /// Leased descriptors, or an error where they are not allowed.
    Descriptor,
    /// Messages only.
    Socket,
}

/// Whether payloads carry checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// Not between processes of one node; between nodes, MACs cover all bytes.
    Auto,
    /// Also between processes of one node.
    On,
    /// Never.
    Off,
}

/// Log level; each level includes the previous ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Problems that require repair.
    Error,
    /// Problems that deserve attention.
    Warn,
    /// Starts, stops and sessions.
    Info,
    /// Every request.
    Debug,
}

impl Cluster {
    /// Returns a phrase for each emulated device: its figures are not those of this hardware.
    pub fn emulated(&self) -> Vec<String> {
        let of_server = |server: &Server| {
            let metadata = server.metadata.as_ref().and_then(|metadata| metadata.emulate.as_ref());
            let metadata = metadata.map(|device| format!("metadata of {}: {device}", server.name));
            let targets = server.targets.iter();
            let targets = targets.flat_map(|target| {
                let beside = target.log().and_then(|(_, emulate)| emulate);
                let disk = target.emulate.as_ref().map(|device| format!("target {}: {device}", target.id.0));
                let beside = beside.map(|device| format!("log beside target {}: {device}", target.id.0));
                disk.into_iter().chain(beside)
            });
            metadata.into_iter().chain(targets).collect::<Vec<_>>()
        };
        self.servers.iter().flat_map(of_server).collect()
    }
}

/// Limits of one user. They do not apply to root, servers of the cluster and the user who runs the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Users who get writable descriptors of datafiles.
    pub writable_leases: WritableLeases,
    /// Maximum number of connections to each server; `None` for half of the server's limit.
    pub user_connections: Option<u32>,
    /// Maximum payload memory of each server; `None` for half of the server's limit.
    pub user_payload: Option<ByteLen>,
    /// Maximum number of open files.
    pub user_opens: u32,
    /// Maximum number of locked ranges and waiting lock requests.
    pub user_locks: u32,
    /// Maximum number of inodes.
    pub user_inodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            writable_leases: WritableLeases::Own,
            user_connections: None,
            user_payload: None,
            user_opens: 262_144,
            user_locks: 65_536,
            user_inodes: 10_000_000,
        }
    }
}

/// Users who get writable descriptors of datafiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritableLeases {
    /// Root and the user who runs the server.
    Own,
    /// Every user who may write the file.
    All,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            connect_timeout: Nanos::from_s(3),
            request_timeout: Nanos::from_s(30),
            retry_for: None,
            fragment_threshold: ByteLen::from_kib(20),
            checksums: Checksums::Auto,
            same_processor: true,
            connections_max: 64,
            leases_max: 256,
        }
    }
}

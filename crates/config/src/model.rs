//! What a cluster file says, after all checks.

use std::num::NonZeroU32;
use std::path::PathBuf;
use weft_core::ibridge::{Policy, Weight};
use weft_core::{ByteLen, Integrity, Nanos, Placement, Reserve, TargetId};
use weft_env::Address;
use weft_wire::hello::Security;

/// One cluster, as its file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// The file that it was read from.
    pub file: PathBuf,
    /// Name; clients and servers of different clusters refuse each other.
    pub name: String,
    /// Paths at and below this one are Weft's, for the preload library and as the prefix that commands accept.
    pub mount: PathBuf,
    /// Holds the cluster key, readable by its owner alone.
    pub key_file: PathBuf,
    /// Servers end after this time without connections; `None` never.
    pub idle_exit: Option<Nanos>,
    /// Protection of messages between hosts: a MAC on each, or encryption as well.
    pub security: Security,
    /// All servers; a `ServerId` is an index here.
    pub servers: Vec<Server>,
    /// Layout of new files where neither the directory nor the program asks for another.
    pub placement: Placement,
    /// Shares of one user.
    pub limits: Limits,
    /// How clients behave.
    pub client: Client,
    /// The state directory, when `weft run` made this cluster; its servers may be started by whoever uses it.
    pub embedded: Option<PathBuf>,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it listens, Unix sockets first.
    pub addresses: Vec<Address>,
    /// The host on which it runs; `None` any (`weft serve` without a name starts it wherever it is called).
    pub host: Option<String>,
    /// Its metadata service, if it has the role.
    pub metadata: Option<Metadata>,
    /// Its targets, none if it has not the data role; in the order of the file.
    pub targets: Vec<Target>,
    /// Log file; `None` standard error.
    pub log: Option<PathBuf>,
    /// What is logged.
    pub log_level: LogLevel,
    /// File of the audit log; `None` keeps none.
    pub audit: Option<PathBuf>,
    /// Most connections at a time.
    pub connections_max: u32,
    /// Most connections that authenticate themselves at a time.
    pub greetings_max: u32,
    /// Most memory for payloads on their way, over all connections.
    pub payload_memory: ByteLen,
    /// Of so many stretches of a client's time the requests are kept as samples; `None` keeps none.
    pub sample: Option<NonZeroU32>,
}

/// The metadata service of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Directory of its database.
    pub path: PathBuf,
    /// Memory for cached pages of the database.
    pub cache: ByteLen,
    /// How long a commit waits for company; zero commits at once what has come together during the last one.
    pub commit_delay: Nanos,
    /// Most changes in one commit.
    pub commit_max: u32,
    /// After an unclean end, how long clients may reclaim what they had before others get it.
    pub grace: Nanos,
    /// The device whose time its database takes; `None` the one below.
    pub emulate: Option<Emulate>,
}

/// One storage path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its number in the cluster; layouts name it, so it stays for ever.
    pub id: TargetId,
    /// Its class: `hdd`, `ssd`, `nvme` or any other word.
    pub class: String,
    /// Directory of its datafiles.
    pub path: PathBuf,
    /// How its bytes are written.
    pub module: Module,
    /// Requests that run at a time; others wait their turn.
    pub queue_depth: u32,
    /// Whether clients of the same node may get datafile descriptors; those of an emulated target never do.
    pub leases: bool,
    /// Whether new datafiles get checksums where neither their file nor its directory says.
    pub integrity: Integrity,
    /// The device whose time its requests take; `None` the one below.
    pub emulate: Option<Emulate>,
    /// What parts of layouts that have an end may promise on it; `None` as much as they like.
    pub room: Option<ByteLen>,
    /// What new files leave free on it.
    pub reserve: Reserve,
    /// An SSD beside it for small requests; then no descriptors are lent.
    pub ibridge: Option<Ibridge>,
}

/// The SSD beside a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ibridge {
    /// Directory of its log.
    pub path: PathBuf,
    /// Room for bytes in the log.
    pub size: ByteLen,
    /// Which requests go there.
    pub policy: Policy,
    /// Pieces of requests over several datafiles are small below this size.
    pub fragments_below: ByteLen,
    /// Requests of one piece are small below this size.
    pub random_below: ByteLen,
    /// What a new request weighs in the disk's average service time.
    pub weight: Weight,
    /// How often servers tell each other of their disks.
    pub exchange: Nanos,
    /// How long that holds.
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
    pub entry_size: ByteLen,
    /// The device whose figures the decision takes for the disk's; see [`Target::figures`].
    pub profile: Option<Emulate>,
    /// Instead of it the figures that `weft profile` measured of the target's class.
    pub measured: bool,
    /// The device whose time the log's requests take; `None` the one below.
    pub emulate: Option<Emulate>,
}

/// Whether what `weft profile` measured of a target's class decides for its SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakesMeasured {
    /// The cluster file says so.
    Must,
    /// If there is anything: the cluster file names no device.
    May,
    /// The cluster file names another one.
    No,
}

impl Target {
    /// Whether figures that were measured come before [`Target::figures`].
    pub fn takes_measured(&self) -> TakesMeasured {
        match &self.ibridge {
            Some(ibridge) if ibridge.measured => TakesMeasured::Must,
            Some(ibridge) if ibridge.profile.is_none() && self.emulate.is_none() => TakesMeasured::May,
            _ => TakesMeasured::No,
        }
    }

    /// The device whose figures the decision takes for the disk's: that of the `profile` line, else what the target
    /// emulates, else a common one of its class.
    pub fn figures(&self) -> Emulate {
        let told = self.ibridge.as_ref().and_then(|ibridge| ibridge.profile.clone());
        told.or_else(|| self.emulate.clone()).unwrap_or_else(|| {
            Emulate::Named(match self.class.as_str() {
                "ssd" => "sata-ssd".into(),
                "nvme" => "nvme".into(),
                _ => "hdd-7200".into(),
            })
        })
    }
}

/// The device whose time requests take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Emulate {
    /// A profile that comes with Weft.
    Named(String),
    /// A profile in a file of the server's host, as `weft profile` writes one.
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

/// How a target's bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Through the page cache.
    Buffered,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Nowhere: writes are dropped and reads give zeros, to measure everything else.
    Null,
}

/// How clients behave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// How bytes travel.
    pub transport: TransportChoice,
    /// Longest time to connect to a server.
    pub connect_timeout: Nanos,
    /// Longest time that a server may be silent before the call fails with EIO.
    pub request_timeout: Nanos,
    /// How long a request goes on trying to reach a server, so that its restart passes unnoticed.
    pub retry_for: Nanos,
    /// Sub-requests shorter than this, of a request that spans several datafiles, are fragments.
    pub fragment_threshold: ByteLen,
    /// Whether payloads carry checksums.
    pub checksums: Checksums,
    /// Whether a server of the same host may answer on the processor on which the client waits.
    pub same_processor: bool,
    /// Most connections of one process to one server.
    pub connections_max: u32,
    /// Most datafile descriptors that one process holds under leases.
    pub leases_max: u32,
}

/// How bytes travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportChoice {
    /// By leased descriptor where it is allowed, by messages otherwise.
    Auto,
    /// By leased descriptor, or an error where it is not allowed.
    Descriptor,
    /// By messages always.
    Socket,
}

/// Whether payloads carry checksums on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// Between processes of one node no; between nodes MACs cover all bytes.
    Auto,
    /// Between processes of one node, too.
    On,
    /// Never.
    Off,
}

/// What is logged; each level includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Only what somebody must repair.
    Error,
    /// What somebody should look at.
    Warn,
    /// Starts, ends, sessions.
    Info,
    /// Every request.
    Debug,
}

impl Cluster {
    /// What is emulated, one phrase for each device: its figures are not those of this hardware.
    pub fn emulated(&self) -> Vec<String> {
        let of_server = |server: &Server| {
            let metadata = server.metadata.as_ref().and_then(|metadata| metadata.emulate.as_ref());
            let metadata = metadata.map(|device| format!("metadata of {}: {device}", server.name));
            let targets = server.targets.iter();
            let targets = targets.flat_map(|target| {
                let beside = target.ibridge.as_ref().and_then(|ibridge| ibridge.emulate.as_ref());
                let disk = target.emulate.as_ref().map(|device| format!("target {}: {device}", target.id.0));
                let beside = beside.map(|device| format!("log beside target {}: {device}", target.id.0));
                disk.into_iter().chain(beside)
            });
            metadata.into_iter().chain(targets).collect::<Vec<_>>()
        };
        self.servers.iter().flat_map(of_server).collect()
    }
}

impl Module {
    /// The word for it in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Null => "null",
        }
    }
}

/// Shares of one user. They do not bound root, servers of the cluster and the user who runs the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Users who get descriptors of datafiles for writing.
    pub writable_leases: WritableLeases,
    /// Most connections to each server; `None` half of the server's.
    pub user_connections: Option<u32>,
    /// Most payload memory of each server; `None` half of the server's.
    pub user_payload: Option<ByteLen>,
    /// Most open files.
    pub user_opens: u32,
    /// Most locked ranges, and places in queues for locks.
    pub user_locks: u32,
    /// Most inodes.
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

/// Users who get descriptors of datafiles for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritableLeases {
    /// Root and the user who runs the server.
    Own,
    /// Everybody who may write the file.
    All,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            connect_timeout: Nanos::from_s(3),
            request_timeout: Nanos::from_s(30),
            retry_for: Nanos::from_s(5),
            fragment_threshold: ByteLen::from_kib(20),
            checksums: Checksums::Auto,
            same_processor: true,
            connections_max: 64,
            leases_max: 256,
        }
    }
}

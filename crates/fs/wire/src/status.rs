//! Status messages, for `weft status`, `df` and tests.

use crate::activity::Activity;
use crate::bounded;
use crate::cluster::ServerEntry;
use crate::keys::{GENERATIONS_MAX, Revoked};
use crate::meta::{SpaceReservation, TargetRecord};
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, ClusterId, DeviceLoad, Nanos, ServerId, TargetId};

/// Request that any peer may send to any server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatusRequest {
    /// Returns the state of the server.
    Status,
    /// Stops the server in an orderly way. Reserved for administrators and the user who runs the server.
    Shutdown,
    /// Receives the payload of this message and replies with a payload of `reply_len` bytes, at most
    /// [`PAYLOAD_LEN_MAX`](crate::data::PAYLOAD_LEN_MAX). For measuring the network.
    Echo {
        /// Length of the reply's payload in bytes.
        reply_len: u32,
    },
    /// Revokes these keys. Reserved for the metadata server.
    Revoke(Revoked),
    /// Returns the activity of clients and files. Administrators see all users, others see themselves only.
    Activity,
    /// Returns the entry of the metadata server, for clients that know a former address of it.
    MetadataServer,
    /// Says where the metadata server is. Reserved for the metadata server. Reply: `MetadataServer`.
    SetMetadataServer(MetadataEntry),
}

/// Reply to a status request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatusReply {
    /// Reply to `Status`.
    Status(Box<ServerStatus>),
    /// Reply to `Shutdown`.
    ShuttingDown,
    /// Reply to any request that failed.
    Failed(crate::error::WireError),
    /// Reply to `Echo`; the payload is zeros.
    Echo,
    /// Reply to `Revoke`.
    Revoked,
    /// Reply to `Activity`.
    Activity(Box<Activity>),
    /// Reply to `MetadataServer` and `SetMetadataServer`: what the metadata server has said last; `None` before it has.
    MetadataServer(Option<MetadataEntry>),
}

/// Entry of the metadata server in a cluster map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MetadataEntry {
    /// Version of the map.
    pub version: u32,
    /// The entry.
    pub entry: ServerEntry,
}

/// State of one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Number of the server.
    pub server: ServerId,
    /// Name in the cluster file.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Time since the start.
    pub uptime: Nanos,
    /// Open connections.
    pub connections: u32,
    /// Resident memory in bytes, 0 if unknown.
    pub memory: ByteLen,
    /// Targets; empty on a server with only the metadata role.
    pub targets: Vec<TargetStatus>,
    /// Metadata service, if the server has the role.
    pub metadata: Option<MetadataStatus>,
    /// Identity of the cluster.
    pub cluster_id: ClusterId,
    /// Resource usage by user, in ascending order of user ids. Administrators see at most [`USERS_MAX`] users; other
    /// users see only themselves.
    pub users: Vec<UserStatus>,
    /// Limits that apply to each user.
    pub bounds: UserStatus,
    /// Accepted keys.
    pub keys: KeyStatus,
    /// Audit log, if the server keeps one.
    pub audit: Option<AuditStatus>,
}

/// Maximum number of users in one status.
pub const USERS_MAX: usize = 256;

/// Resources that one user occupies on a server, or may occupy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UserStatus {
    /// User id; 0 for limits.
    pub uid: u32,
    /// Connections.
    pub connections: u32,
    /// Memory for payloads in flight, shared areas included.
    pub payload: ByteLen,
    /// Open files and files being truncated; 0 on a server without metadata.
    pub opens: u32,
    /// Locked ranges and waiting lock requests.
    pub locks: u32,
    /// Inodes.
    pub inodes: u64,
}

/// Keys that a server accepts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Generations of the root secret, the current one first.
    #[serde(deserialize_with = "bounded::vec::<_, _, GENERATIONS_MAX>")]
    pub generations: Vec<u32>,
    /// Number of revoked keys.
    pub revoked: u32,
}

/// State of an audit log.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Path of the file on the server.
    pub path: String,
    /// Events written since the start.
    pub written: u64,
    /// Events lost since the start.
    pub lost: u64,
    /// Reason for which the log cannot be written at present.
    pub failed: Option<String>,
}

/// State of one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Number of the target.
    pub target: TargetId,
    /// Configured class.
    pub class: String,
    /// Path on the server.
    pub path: String,
    /// I/O module.
    pub module: String,
    /// Size of the underlying file system.
    pub total: ByteLen,
    /// Free space on it.
    pub free: ByteLen,
    /// Bytes read by messages since the start.
    pub bytes_read: u64,
    /// Bytes written by messages since the start.
    pub bytes_written: u64,
    /// Requests served since the start.
    pub requests: u64,
    /// Fragments and small random requests among them.
    pub fragments: u64,
    /// Requests running or waiting now.
    pub queue: u32,
    /// Descriptor leases granted now.
    pub leases: u32,
    /// Blocks that did not match their checksums since the start, each counted once.
    pub damaged: u64,
    /// Blocks accepted without checksums since the start, because the machine had lost power.
    pub unverified: u64,
    /// Bytes of chunks that were compressed, or tried to be, since the start.
    pub bytes_compressed: u64,
    /// Bytes stored for them.
    pub bytes_stored: u64,
    /// SSD beside the disk, if it has one.
    pub ssd: Option<SsdStatus>,
    /// Identifies the underlying file system: targets with the same number share its space. 0 if unknown.
    pub file_system: u64,
    /// Reason for which the server does not use the target; the other figures are then zero.
    pub refused: Option<RefusedTarget>,
    /// Load of the disk, from all its users. `None` without a local block device.
    pub disk: Option<DeviceLoad>,
}

/// Reason for which a server does not use a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedTarget {
    /// The reason as one word.
    pub state: String,
    /// The reason and the remedy.
    pub reason: String,
}

/// State of the SSD beside a target's disk. Counters start at zero with the server.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct SsdStatus {
    /// Directory on the server.
    pub path: String,
    /// iBridge's admission policy; `off` without iBridge.
    pub policy: String,
    /// Policy that divides the capacity between the classes.
    pub partition: String,
    /// Reason for which the SSD is no longer used.
    pub failed: Option<String>,
    /// Capacity for payload.
    pub capacity: ByteLen,
    /// Bytes that lie only on the SSD.
    pub dirty: ByteLen,
    /// Bytes that lie only on the SSD and cannot be read.
    pub lost: ByteLen,
    /// Number of datafile ranges on the SSD.
    pub entries: u64,
    /// The policy's estimate of the disk's average service time.
    pub service_time: Nanos,
    /// Usage by class, in the order of their numbers.
    #[serde(deserialize_with = "bounded::vec::<_, _, SSD_CLASSES_MAX>")]
    pub classes: Vec<SsdClass>,
    /// Read and write cache, if the target has one.
    pub cache: Option<CacheStatus>,
    /// Reads that the SSD served alone.
    pub read_hits: u64,
    /// Reads that both devices served.
    pub read_partial_hits: u64,
    /// Reads that the disk served alone.
    pub read_misses: u64,
    /// Bytes read from the SSD.
    pub bytes_read: ByteLen,
    /// Bytes written to the SSD.
    pub bytes_written: ByteLen,
    /// Bytes written back to the disk.
    pub bytes_written_back: ByteLen,
    /// Bytes written back per second, averaged over the last ten seconds.
    pub written_back_per_s: ByteLen,
    /// Bytes copied to the SSD after a read missed them.
    pub bytes_preloaded: ByteLen,
    /// Bytes moved on the SSD to free segments.
    pub bytes_moved: ByteLen,
}

/// Maximum number of classes in one status.
pub const SSD_CLASSES_MAX: usize = 64;

/// Usage of the SSD by one class of bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SsdClass {
    /// Number of the class in the format of the log.
    pub number: u8,
    /// Name of the class.
    pub name: String,
    /// Bytes stored.
    pub bytes: ByteLen,
    /// Stored bytes that lie only on the SSD.
    pub dirty: ByteLen,
    /// Maximum number of bytes while the SSD is full.
    pub quota: ByteLen,
    /// Average gain of the admitted requests, in nanoseconds of disk time; 0 for classes without an estimate.
    pub gain: i64,
    /// Requests admitted to the SSD.
    pub admitted: u64,
}

/// Read and write cache on the SSD. Counters start at zero with the server.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Mode.
    pub mode: String,
    /// Eviction policy.
    pub eviction: String,
    /// Share of the SSD, as configured.
    pub share: String,
    /// Blocks with clean bytes, which may be evicted.
    pub blocks: u64,
    /// Bytes of reads that the cache had.
    pub bytes_hit: ByteLen,
    /// Bytes of reads that the disk had to read.
    pub bytes_missed: ByteLen,
    /// Requests that no filter admitted.
    pub rejected: u64,
    /// Bytes evicted.
    pub bytes_evicted: ByteLen,
    /// Bytes read ahead of requests.
    pub bytes_prefetched: ByteLen,
}

impl SsdStatus {
    /// Returns the usage by the class with a name; zeros if it is not listed.
    pub fn class(&self, name: &str) -> SsdClass {
        self.classes.iter().find(|class| class.name == name).cloned().unwrap_or_default()
    }

    /// Returns the number of bytes on the SSD.
    pub fn bytes(&self) -> ByteLen {
        ByteLen(self.classes.iter().map(|class| class.bytes.0).sum())
    }
}

/// State of a metadata service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MetadataStatus {
    /// Inodes in use.
    pub inodes: u64,
    /// Live sessions.
    pub sessions: u32,
    /// Open handles.
    pub opens: u32,
    /// Byte-range locks held.
    pub locks: u32,
    /// Requests since the start.
    pub requests: u64,
    /// Requests that changed metadata since the start.
    pub mutations: u64,
    /// Commits that reached the disk since the start; with group commit fewer than changes.
    pub commits: u64,
    /// Files whose datafiles wait for removal.
    pub reaping: u64,
    /// Size of the file system below the database.
    pub total: ByteLen,
    /// Free space on it.
    pub free: ByteLen,
    /// Space that layouts reserve on targets with limited capacity, in ascending order of targets.
    pub space_reservations: Vec<SpaceReservation>,
    /// Damaged database blocks that have not been repaired; `weft fsck` names them.
    pub damaged_blocks: u64,
    /// Targets on record, in ascending order.
    pub targets: Vec<TargetRecord>,
    /// Moves of files to other layouts.
    pub moves: MoveCounts,
    /// Use of the cluster through I/O delegates.
    pub delegates: DelegateCounts,
}

/// Moves of files to other layouts. Counters start at zero with the server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct MoveCounts {
    /// Moves with a session that moves the file now.
    pub running: u32,
    /// Moves without one, which `weft migrate` continues or gives up.
    pub interrupted: u32,
    /// Moves that sessions have started or continued.
    pub started: u64,
    /// Files whose layout has changed.
    pub completed: u64,
    /// Moves whose session ended first.
    pub lost: u64,
    /// Moves that were given up, by a user or because another layout was requested.
    pub abandoned: u64,
    /// Moves of files that were removed.
    pub removed: u64,
    /// Bytes that movers have reported as copied.
    pub bytes_copied: ByteLen,
}

/// Use of the cluster through I/O delegates. Counters start at zero with the server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DelegateCounts {
    /// Jobs with delegates that have files open.
    pub jobs: u32,
    /// Delegates that may cache pages of a file now.
    pub delegates: u32,
    /// Files whose pages delegates may cache now.
    pub cached_files: u32,
    /// Files of jobs with delegates that are open now.
    pub open_files: u32,
    /// Opens by programs outside of a job that recalled a file from its delegates.
    pub recalls: u64,
    /// Recalls that the delegates did not complete in time, so that the open failed.
    pub recalls_failed: u64,
    /// Sum of the times for which such opens waited.
    pub recall_time: Nanos,
}

//! What a server says of itself to `weft status`, `df` and the tests.

use crate::bounded;
use crate::keys::{GENERATIONS_MAX, Revoked};
use crate::meta::{TargetRecord, TargetRoom};
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, ClusterId, Nanos, ServerId, TargetId};

/// What anyone who may connect can ask of any server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatusRequest {
    /// The state of the server.
    Status,
    /// Ends the server in order. Administrators and the user who runs it only.
    Shutdown,
    /// Takes the payload of this message, and answers with one of so many bytes, at most
    /// [`PAYLOAD_LEN_MAX`](crate::data::PAYLOAD_LEN_MAX): for measuring the way.
    Echo {
        /// Length of the reply's payload.
        reply_len: u32,
    },
    /// Refuses these keys from now on. The metadata server only.
    Revoke(Revoked),
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatusReply {
    /// To `Status`.
    Status(Box<ServerStatus>),
    /// To `Shutdown`.
    ShuttingDown,
    /// To anything.
    Failed(crate::error::WireError),
    /// To `Echo`: the payload is zeros.
    Echo,
    /// To `Revoke`.
    Revoked,
}

/// The state of one server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Which one.
    pub server: ServerId,
    /// Its name in the cluster file.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Since it started.
    pub uptime: Nanos,
    /// Connections open now.
    pub connections: u32,
    /// Resident memory in bytes, 0 where unknown.
    pub memory: ByteLen,
    /// Its targets, none on a metadata-only server.
    pub targets: Vec<TargetStatus>,
    /// Its metadata service, if it has the role.
    pub metadata: Option<MetadataStatus>,
    /// Identity of its cluster.
    pub cluster_id: ClusterId,
    /// Accounts of users, by rising user ids. Administrators see at most [`USERS_MAX`] users, other users only their own
    /// account.
    pub users: Vec<UserStatus>,
    /// Shares of one user.
    pub bounds: UserStatus,
    /// Which keys it accepts.
    pub keys: KeyStatus,
    /// Its audit log, if it keeps one.
    pub audit: Option<AuditStatus>,
}

/// Most users in one status.
pub const USERS_MAX: usize = 256;

/// Account of one user on a server, or the shares of one user.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user; 0 where these are bounds.
    pub uid: u32,
    /// Connections.
    pub connections: u32,
    /// Memory for payloads on their way, shared areas among it.
    pub payload: ByteLen,
    /// Open files, and files that are being cut; 0 on a server without metadata.
    pub opens: u32,
    /// Locked ranges and places in queues for locks.
    pub locks: u32,
    /// Inodes.
    pub inodes: u64,
}

/// Which keys a server accepts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Generations of the root secret, the one in use first.
    #[serde(deserialize_with = "bounded::vec::<_, _, GENERATIONS_MAX>")]
    pub generations: Vec<u32>,
    /// Number of keys that are refused.
    pub revoked: u32,
}

/// The state of an audit log.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Its file on the server.
    pub path: String,
    /// Events written since the start.
    pub written: u64,
    /// Events that could not be written since the start.
    pub lost: u64,
    /// Why it cannot be written now.
    pub failed: Option<String>,
}

/// The state of one target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Which one.
    pub target: TargetId,
    /// Its class as configured.
    pub class: String,
    /// Its path on the server.
    pub path: String,
    /// Its I/O module.
    pub module: String,
    /// Size of the file system below it.
    pub total: ByteLen,
    /// Free for use there.
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
    /// Descriptor leases given out now.
    pub leases: u32,
    /// Blocks that did not match their checksums since the start, each counted once.
    pub damaged: u64,
    /// Blocks that were taken without their checksums since the start, because the machine had lost power.
    pub unverified: u64,
    /// The SSD beside its disk, if it has one.
    pub ibridge: Option<IbridgeStatus>,
    /// Names the file system below it: targets with the same number share its room. 0 where that is not known.
    pub file_system: u64,
    /// Why the server does not use it; the other figures are zero then.
    pub refused: Option<RefusedTarget>,
}

/// Why a server does not use a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedTarget {
    /// In a word.
    pub state: String,
    /// The reason and the remedy.
    pub reason: String,
}

/// The state of the SSD beside a target's disk. Counts are since the start.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct IbridgeStatus {
    /// Its directory on the server.
    pub path: String,
    /// Which requests go to it.
    pub policy: String,
    /// Why it is of no use any more.
    pub failed: Option<String>,
    /// Room for payload.
    pub capacity: ByteLen,
    /// Bytes that lie on the SSD alone.
    pub dirty: ByteLen,
    /// Ranges of datafiles that it holds.
    pub entries: u64,
    /// The average time in which the disk serves a request, as the policy reckons it.
    pub service_time: Nanos,
    /// Pieces of requests that span several datafiles.
    pub fragments: IbridgeClass,
    /// Small random requests.
    pub random: IbridgeClass,
    /// Reads that the SSD served alone.
    pub read_hits: u64,
    /// Reads that both devices served.
    pub read_partial_hits: u64,
    /// Reads of which the SSD had nothing.
    pub read_misses: u64,
    /// Bytes that reads took from the SSD.
    pub bytes_read: ByteLen,
    /// Bytes that writes put on the SSD.
    pub bytes_written: ByteLen,
    /// Bytes written back to the disk.
    pub bytes_written_back: ByteLen,
    /// The same for each second of the last ten.
    pub written_back_per_s: ByteLen,
    /// Bytes copied to the SSD after a read that missed them.
    pub bytes_preloaded: ByteLen,
    /// Bytes moved on the SSD to make room.
    pub bytes_moved: ByteLen,
}

/// What one class of requests has on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct IbridgeClass {
    /// Bytes that it has.
    pub bytes: ByteLen,
    /// Bytes that it may have when room is short.
    pub quota: ByteLen,
    /// The average return of those admitted, in nanoseconds of the disk's time.
    pub gain: i64,
    /// Requests that went to the SSD.
    pub admitted: u64,
}

/// The state of a metadata service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MetadataStatus {
    /// Inodes in use.
    pub inodes: u64,
    /// Sessions alive.
    pub sessions: u32,
    /// Handles open.
    pub opens: u32,
    /// Byte-range locks held.
    pub locks: u32,
    /// Requests of every kind since the start.
    pub requests: u64,
    /// Mutations since the start.
    pub mutations: u64,
    /// Commits that reached the disk since the start; fewer than mutations where they were grouped.
    pub commits: u64,
    /// Files that wait for removal of their datafiles.
    pub reaping: u64,
    /// Size of the file system below the database.
    pub total: ByteLen,
    /// Free for use there.
    pub free: ByteLen,
    /// What layouts promise on targets with limited room, by rising numbers of targets.
    pub rooms: Vec<TargetRoom>,
    /// Blocks of the database that were found damaged and are not mended; `weft fsck` names them.
    pub damaged_blocks: u64,
    /// The targets on record, by rising numbers.
    pub targets: Vec<TargetRecord>,
}

//! What a server says of itself to `weft status`, `df` and the tests.

use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, Nanos, ServerId, TargetId};

/// What anyone who may connect can ask of any server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StatusRequest {
    /// The state of the server.
    Status,
    /// Ends the server in order. Administrators and the user who runs it only.
    Shutdown,
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
}

//! Replicas of files: reorganized copies of byte ranges, which belong to the file in the metadata service.

use crate::bounded;
use serde::{Deserialize, Serialize};
use weft_core::replicas::{Phase, REGIONS_MAX};
use weft_core::{ByteLen, FileId};

/// Maximum number of replicas in one reply.
pub const REPLICAS_MAX: usize = 256;
/// Maximum length of the bitmap of dirty regions.
pub const DIRTY_LEN_MAX: usize = (REGIONS_MAX / 8) as usize;

/// Replica to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaSpec {
    /// Number of processes whose requests it serves; 0 for any number.
    pub ranks: u32,
    /// Length of the replica's bytes. The mapping follows them in the replica's data.
    pub len: ByteLen,
    /// Length of the encoded mapping.
    pub mapping_len: u32,
    /// XXH3 hash of the encoded mapping.
    pub mapping_hash: u64,
    /// Time that it saves in each run by the model of its plan, in microseconds; 0 if unknown.
    pub gain_us: u64,
}

/// Requests that a fence or seal of `MetaRequest::FenceFile` rejects, under capabilities that were issued before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FenceKind {
    /// Writes ([`DataRequest::Fence`](crate::data::DataRequest::Fence)). For opens for writing.
    Writes,
    /// Reads and writes ([`DataRequest::Seal`](crate::data::DataRequest::Seal)). For opens for writing, and for the owner and
    /// root while nobody has the file open for writing.
    All,
    /// As `All`, and nobody else gets a capability that passes until `MetaRequest::ReleaseSeal`, the end of the session, or
    /// 10 s later. For opens for writing.
    AllUntilReleased,
}

/// Replica of a file, as the metadata service sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaInfo {
    /// The file.
    pub file: FileId,
    /// Its path below the root at creation or at the last rename; empty if it has none.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Its fixed properties.
    pub spec: ReplicaSpec,
    /// State.
    pub phase: Phase,
    /// Whether the programs that have the file open now, or had it last, use the replica.
    pub is_used: bool,
    /// Number of times the file is open.
    pub opens: u32,
    /// Bitmap of the regions in which the replica is newer than the file ([`weft_core::replicas::DirtyRegions`]), least
    /// significant bit first; empty if there are none.
    #[serde(deserialize_with = "bounded::vec::<_, _, DIRTY_LEN_MAX>")]
    pub dirty: Vec<u8>,
    /// Epoch of the file.
    pub epoch: u64,
    /// Number of times the file is open for writing or being truncated.
    pub writers: u32,
    /// Whether clients whose sessions were lost may still use the file.
    pub has_lost_opens: bool,
}

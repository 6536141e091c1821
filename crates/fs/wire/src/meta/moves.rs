//! Moves of files to other layouts.

use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout, Timestamp};

/// Maximum number of moves in one reply.
pub const MOVES_MAX: usize = 256;

/// Move in progress, as the metadata service sees it.
///
/// The capabilities name the datafiles: the current ones (`from`) and the new ones (`to`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// File.
    pub file: FileId,
    /// Proof that the session reached the file.
    pub proof: WalkProof,
    /// Capability to read, watch and seal the current datafiles.
    pub from: Capability,
    /// Current layout.
    pub from_layout: Layout,
    /// Capability to write the new datafiles.
    pub to: Capability,
    /// New layout.
    pub to_layout: Layout,
    /// Bytes that an earlier mover copied and that have not changed since.
    pub copied: ByteLen,
    /// Earliest expiry of accepted capabilities for `to`, in seconds since 1970. If it is not 0, an earlier mover may
    /// still be writing: before its first write, the new mover must fence the datafiles with this value.
    pub fence_s: u64,
    /// During the switch: expiry below which data servers must reject every request on `from`.
    pub seal_s: u64,
    /// During the switch: a capability for `to` that expires after all others. When all bytes are written, the mover
    /// fences `to` at this expiry, so that a delayed write of its own cannot overwrite a write of a client.
    pub last: Option<Capability>,
}

/// File that is being moved, or whose move has stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveState {
    /// File.
    pub file: FileId,
    /// Path below the root at creation or at the last rename.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Last known length.
    pub size: ByteLen,
    /// New layout.
    pub layout: Layout,
    /// Bytes at which the move resumes if its session ends.
    pub safe: ByteLen,
    /// Session that moves the file; `None` if the move has stopped.
    pub mover: Option<MoverState>,
}

/// Progress of a mover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoverState {
    /// Start of the move as far as the service knows; lost at its restart.
    pub since: Timestamp,
    /// Time of the last progress report.
    pub reported: Timestamp,
    /// Bytes copied until then. Bytes that were copied again after a change count twice.
    pub done: ByteLen,
    /// Bytes left to copy.
    pub left: ByteLen,
}

//! Moves of files to other layouts.

use crate::capability::Capability;
use crate::session::WalkProof;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout, Timestamp};

/// The most moves in one reply.
pub const MOVES_MAX: usize = 256;

/// A move under way, as the metadata service sees it.
///
/// Capabilities name the datafiles: those that the file has (`from`), and those that it shall have (`to`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// The file.
    pub file: FileId,
    /// That the session reached it.
    pub proof: WalkProof,
    /// To read, watch and seal what the file has.
    pub from: Capability,
    /// Where that is.
    pub from_layout: Layout,
    /// To write what it shall have.
    pub to: Capability,
    /// Where that is.
    pub to_layout: Layout,
    /// So much was copied by who was at it before, and nobody has changed the file since.
    pub copied: ByteLen,
    /// Not 0: somebody was at it before who may be writing still: data servers are to refuse capabilities of `to` that end
    /// before this, in seconds since 1970, before anything is written.
    pub fence_s: u64,
    /// After `MoveOver`: capabilities of `from` that end before this are to be refused for everything.
    pub seal_s: u64,
    /// After `MoveOver`: a capability of `to` that ends later than all others. When all is written, those are refused by a
    /// fence at its end, so that nothing that is late can be written over what others write.
    pub last: Option<Capability>,
}

/// A file that is being moved, or whose move was stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveState {
    /// The file.
    pub file: FileId,
    /// Its path below the root, as it was made or last renamed.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Its length as last known.
    pub size: ByteLen,
    /// What it is to get.
    pub layout: Layout,
    /// So much survives whatever happens to who moves it.
    pub safe: ByteLen,
    /// Who is at it; `None` when the move was stopped.
    pub mover: Option<MoverState>,
}

/// How somebody gets on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoverState {
    /// Since when, as far as the service knows: it forgets at its restart.
    pub since: Timestamp,
    /// When the following was told.
    pub told: Timestamp,
    /// What was copied by then, what was changed meanwhile counted again.
    pub done: ByteLen,
    /// What was left to be copied.
    pub left: ByteLen,
}

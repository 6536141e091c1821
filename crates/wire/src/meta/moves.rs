//! Moves of files to other layouts.

use crate::capability::Capability;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Layout};

/// A move under way, as the metadata service sees it.
///
/// Capabilities name the datafiles: those that the file has (`from`), and those that it shall have (`to`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// The file.
    pub file: FileId,
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

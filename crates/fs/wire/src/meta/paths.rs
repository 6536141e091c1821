//! Paths of inodes, for `weft top`.

use serde::{Deserialize, Serialize};

/// Maximum number of inodes in one `MetaRequest::Paths`.
pub const PATHS_MAX: usize = 64;

/// Path of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KnownPath {
    /// Path below the root at creation or at the last rename.
    Path(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The inode has no name: it was removed, or holds the data of a replica.
    Unnamed,
    /// The caller may not see the path.
    Hidden,
}

//! Quotas of users and directory trees.

use super::InodePath;
use serde::{Deserialize, Serialize};
use weft_core::{FileId, QuotaId, QuotaLimits, QuotaUsage};

/// Maximum number of accounts in one page of a listing, and of directories in [`MetaReply::TreeCounted`](super::MetaReply).
pub const QUOTAS_MAX: usize = 4096;

/// Account that a request names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum QuotaSubject {
    /// User.
    User(u32),
    /// Tree that the path is in: the nearest directory above it, or the path itself, that has a quota.
    TreeOf(InodePath),
}

/// Account with its limits and usage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// Account.
    pub id: QuotaId,
    /// Path of a tree from the root, without a leading slash; empty for a user.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Limits.
    pub limits: QuotaLimits,
    /// Usage.
    pub usage: QuotaUsage,
    /// Whether all files are counted; false while the files of a new tree are being counted.
    pub is_counted: bool,
}

/// Next step in counting the files of a new tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeStep {
    /// Root of the tree.
    pub tree: FileId,
    /// Directory whose entries to count.
    pub dir: FileId,
    /// Last name that is counted already; empty at the beginning.
    #[serde(with = "serde_bytes")]
    pub after: Vec<u8>,
}

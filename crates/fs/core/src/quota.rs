//! Quotas: limits on the bytes and inodes of a user or of a directory tree.
//!
//! A file counts with its length, not with the blocks that it occupies: the number is the same with compression, on
//! SSDs and on disks, and after a move. While a file is open for writing, it counts with the length up to which its
//! writers may extend it, its *charge*. The metadata server raises the charge before the data servers accept bytes
//! behind it, so a limit holds on every data server.

use crate::layout::Layout;
use crate::units::{ByteLen, FileId, FileOffset};
use serde::{Deserialize, Serialize};

/// Maximum number of bytes that a file is charged in advance, so that a writer in sequence rarely asks for more.
pub const CHARGE_AHEAD_MAX: u64 = 64 << 20;
/// Part of the space left that one file may be charged in advance: 1 in 16. Near its limit, a user can use all of it.
const CHARGE_AHEAD_SHARE: u64 = 16;

/// Account: a user or a directory tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum QuotaId {
    /// All files whose owner is this user.
    User(u32),
    /// All files below this directory, and the directory itself.
    Tree(FileId),
}

/// Limits of an account; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Maximum sum of the charges of all files.
    pub bytes: Option<ByteLen>,
    /// Maximum number of inodes.
    pub inodes: Option<u64>,
}

/// Usage of an account.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotaUsage {
    /// Sum of the charges of all files.
    pub bytes: ByteLen,
    /// Number of inodes.
    pub inodes: u64,
}

impl QuotaLimits {
    /// Share of the tighter limit that is used: 1.0 at the limit, 0.0 without limits.
    pub fn share_of(&self, usage: QuotaUsage) -> f64 {
        let share = |used: u64, max: u64| if max == 0 { 1.0 } else { used as f64 / max as f64 };
        let bytes = self.bytes.map_or(0.0, |max| share(usage.bytes.0, max.0));
        bytes.max(self.inodes.map_or(0.0, |max| share(usage.inodes, max)))
    }
}

impl QuotaUsage {
    /// Adds usage. Sums wrap, so that they are right again after absurdly long sparse files are removed.
    pub fn add(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_add(other.bytes.0);
        self.inodes = self.inodes.wrapping_add(other.inodes);
    }

    /// Subtracts usage.
    pub fn subtract(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_sub(other.bytes.0);
        self.inodes = self.inodes.wrapping_sub(other.inodes);
    }

    /// Replaces the charge of one file.
    pub fn change_bytes(&mut self, before: ByteLen, after: ByteLen) {
        self.bytes.0 = self.bytes.0.wrapping_sub(before.0).wrapping_add(after.0);
    }
}

impl QuotaLimits {
    /// Returns the bytes left; `None` without a limit.
    pub fn bytes_left(&self, usage: &QuotaUsage) -> Option<ByteLen> {
        self.bytes.map(|max| ByteLen(max.0.saturating_sub(usage.bytes.0)))
    }

    /// Returns the number of inodes left; `None` without a limit.
    pub fn inodes_left(&self, usage: &QuotaUsage) -> Option<u64> {
        self.inodes.map(|max| max.saturating_sub(usage.inodes))
    }

    /// Whether `more` fits below the limits. An account that already exceeds one of them, because that was lowered, may
    /// still change in the other respect.
    pub fn admit(&self, usage: &QuotaUsage, more: QuotaUsage) -> bool {
        let bytes = more.bytes.0 == 0 || self.bytes_left(usage).is_none_or(|left| more.bytes <= left);
        let inodes = more.inodes == 0 || self.inodes_left(usage).is_none_or(|left| more.inodes <= left);
        bytes && inodes
    }
}

/// Returns the bytes that a file is charged in advance, if its accounts have `left` bytes after the present write.
pub fn charge_ahead(left: ByteLen) -> ByteLen {
    ByteLen((left.0 / CHARGE_AHEAD_SHARE).min(CHARGE_AHEAD_MAX))
}

impl Layout {
    /// Returns the maximum length that any datafile of a file of this size has. A data server, which does not know
    /// stripes, accepts no bytes behind it.
    pub fn datafile_len_max(&self, file_size: ByteLen) -> ByteLen {
        let len = |(object, _)| self.local_len(object, FileOffset(file_size.0));
        self.objects().map(len).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::TargetId;

    fn usage(bytes: u64, inodes: u64) -> QuotaUsage {
        QuotaUsage { bytes: ByteLen(bytes), inodes }
    }

    #[test]
    fn limits_admit_up_to_the_last_byte_and_inode() {
        let limits = QuotaLimits { bytes: Some(ByteLen(100)), inodes: Some(3) };
        assert!(limits.admit(&usage(60, 2), usage(40, 1)));
        assert!(!limits.admit(&usage(60, 2), usage(41, 1)));
        assert!(!limits.admit(&usage(60, 2), usage(40, 2)));
        // Above one limit, the other still counts alone.
        assert!(limits.admit(&usage(200, 2), usage(0, 1)));
        assert!(limits.admit(&usage(50, 9), usage(50, 0)));
        assert!(!limits.admit(&usage(200, 2), usage(1, 0)));
        assert!(QuotaLimits::default().admit(&usage(u64::MAX, u64::MAX), usage(1, 1)));
    }

    #[test]
    fn charges_ahead_shrink_near_the_limit() {
        assert_eq!(charge_ahead(ByteLen(1 << 40)), ByteLen(CHARGE_AHEAD_MAX));
        assert_eq!(charge_ahead(ByteLen(1600)), ByteLen(100));
        assert_eq!(charge_ahead(ByteLen(15)), ByteLen(0));
    }

    #[test]
    fn no_datafile_of_a_shorter_file_is_longer_than_the_maximum() {
        let strips: Vec<(TargetId, ByteLen)> = [(0, 4096), (1, 65536), (2, 1000)]
            .map(|(target, size)| (TargetId(target), ByteLen(size)))
            .to_vec();
        let layout = Layout::variable(&strips).expect("a layout");
        for size in [0, 1, 4096, 4097, 70_000, 1_000_000] {
            let max = layout.datafile_len_max(ByteLen(size));
            for shorter in [0, size / 3, size.saturating_sub(1), size] {
                for (object, _) in layout.objects() {
                    assert!(layout.local_len(object, FileOffset(shorter)) <= max, "{size} {shorter}");
                }
            }
            assert_eq!(max == ByteLen(0), size == 0);
        }
    }
}

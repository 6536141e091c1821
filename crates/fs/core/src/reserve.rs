//! Space that stays free on a target: a target with less receives no new files.

use crate::units::ByteLen;
use serde::{Deserialize, Serialize};

/// Amount of free space on a target's file system that new files must not use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Reserve {
    /// A fiftieth of the size, at most 1 GiB.
    #[default]
    Usual,
    /// This percentage of the size.
    Percent(u8),
    /// This many bytes; with zero, no target is ever too full.
    Bytes(ByteLen),
}

/// Maximum of [`Reserve::Usual`].
const USUAL_MAX: ByteLen = ByteLen::from_mib(1024);

impl Reserve {
    /// Returns the reserve of a file system of `total` bytes.
    pub fn of(self, total: ByteLen) -> ByteLen {
        match self {
            Self::Usual => ByteLen(total.0 / 50).min(USUAL_MAX),
            Self::Percent(percent) => ByteLen((u128::from(total.0) * u128::from(percent) / 100) as u64),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns true if a target has too little free space for new files. A target of unknown size (`total` is zero)
    /// has no limit.
    pub fn is_reached(self, total: ByteLen, free: ByteLen) -> bool {
        total > ByteLen(0) && free < self.of(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_full_below_its_reserve() {
        let (mib, gib) = (1u64 << 20, 1u64 << 30);
        let full = |reserve: Reserve, total, free| reserve.is_reached(ByteLen(total), ByteLen(free));
        assert!(full(Reserve::Usual, 100 * mib, 2 * mib - 1) && !full(Reserve::Usual, 100 * mib, 2 * mib));
        assert!(full(Reserve::Usual, 1000 * gib, gib - 1) && !full(Reserve::Usual, 1000 * gib, gib));
        assert!(
            full(Reserve::Percent(10), 100 * mib, 9 * mib)
                && !full(Reserve::Percent(10), 100 * mib, 10 * mib)
        );
        assert!(full(Reserve::Percent(100), u64::MAX, u64::MAX - 1));
        assert!(full(Reserve::Bytes(ByteLen(7)), mib, 6) && !full(Reserve::Bytes(ByteLen(0)), mib, 0));
        assert!(!full(Reserve::Percent(50), 0, 0), "unknown size");
    }
}

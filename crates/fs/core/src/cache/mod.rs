//! Decisions of the SSD cache beside a target: which blocks enter it and which leave. They are pure: the owner reports
//! every event, and stores the bytes.
//!
//! ```text
//!  read --> touch --hit--> SSD                                 Eviction
//!             |
//!             miss --> CacheAdmission::read --> Admit --> store, insert --> while over capacity: victim
//!             |             StreamBypass, SecondAccess      Reject --> disk only
//!             +------> Prefetch::read --> ranges to read into the cache
//!  write --> CacheAdmission::write --> Admit --> store, insert (or touch) ...
//! ```
//!
//! | term | meaning |
//! | --- | --- |
//! | block | [`BLOCK_LEN`] bytes of a datafile, aligned; the unit of eviction. It may be there in part |
//! | ghost | key of a block that is not in the cache, kept to recognize its next access |
//! | stream | requests of one session to one datafile, each near the end of an earlier one |
//!
//! A block in the cache costs about 60 bytes of memory. The ghost tables take 0.1 to 0.2 % of the capacity while blocks
//! are whole, and at most 0.5 %.

mod admission;
mod eviction;
mod ghost;
mod prefetch;
mod queues;
mod second_access;
mod simulation;
mod stream_bypass;
mod streams;

pub use admission::{AdmissionFilter, AdmissionSpec, CacheAdmission, CacheRequest, Verdict};
pub use eviction::{Eviction, EvictionPolicy, EvictionPolicyError};
pub use prefetch::Prefetch;
pub use second_access::SecondAccess;
pub use simulation::{HitRatio, Simulation, Zipf};
pub use stream_bypass::{StreamBypass, StreamMax};

use crate::units::LocalExtent;
use std::fmt;
use std::str::FromStr;

/// Length of a block of the cache in bytes: 64 KiB.
pub const BLOCK_LEN: u64 = 64 << 10;

/// A block of a datafile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId {
    /// Identifies the datafile. The owner assigns it.
    pub file: u64,
    /// Number of the block in the datafile, in units of [`BLOCK_LEN`].
    pub index: u64,
}

impl BlockId {
    /// Returns the block with the byte at `offset`.
    pub const fn at(file: u64, offset: u64) -> Self {
        Self { file, index: offset / BLOCK_LEN }
    }

    /// Returns the blocks that an extent touches, in ascending order.
    pub fn of(file: u64, extent: LocalExtent) -> impl Iterator<Item = Self> + Clone {
        let first = extent.offset.0 / BLOCK_LEN;
        let end = match extent.len.0 {
            0 => first,
            len => extent.offset.0.saturating_add(len).div_ceil(BLOCK_LEN),
        };
        (first..end).map(move |index| Self { file, index })
    }

    /// Returns a 64-bit hash, equal on every machine.
    const fn hash(self) -> u64 {
        crate::random::splitmix64(crate::random::splitmix64(self.file) ^ self.index)
    }
}

/// Mode of the cache of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum CacheMode {
    /// No cache.
    #[default]
    Off,
    /// Copies of bytes that were read. A write drops or updates them on its way to the disk.
    Read,
    /// As `Read`, and written bytes go to the disk and the SSD. The SSD never has the only copy.
    WriteThrough,
    /// As `Read`, and written bytes go to the SSD first, which may have the only copy.
    WriteBack,
}

/// Error: the text is not a mode of the cache.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not a mode of the cache: use off, read, write-through or write-back")]
pub struct CacheModeError(pub String);

impl CacheMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Read, Self::WriteThrough, Self::WriteBack];

    /// Returns the name of the mode in cluster files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
        }
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for CacheMode {
    type Err = CacheModeError;

    fn from_str(text: &str) -> Result<Self, CacheModeError> {
        Self::ALL.into_iter().find(|mode| mode.word() == text).ok_or_else(|| CacheModeError(text.to_owned()))
    }
}

#[cfg(test)]
mod hit_ratio_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_round_trip() {
        for mode in CacheMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "writeback".parse::<CacheMode>().unwrap_err().to_string();
        assert!(error.contains("write-back"), "{error}");
    }

    #[test]
    fn an_extent_touches_its_blocks() {
        let indices = |offset, len| {
            BlockId::of(7, LocalExtent::new(offset, len)).map(|block| block.index).collect::<Vec<_>>()
        };
        assert_eq!(indices(0, 1), [0]);
        assert_eq!(indices(0, BLOCK_LEN), [0]);
        assert_eq!(indices(1, BLOCK_LEN), [0, 1]);
        assert_eq!(indices(BLOCK_LEN - 1, 2), [0, 1]);
        assert_eq!(indices(5 * BLOCK_LEN, 3 * BLOCK_LEN), [5, 6, 7]);
        assert!(indices(5 * BLOCK_LEN, 0).is_empty() && indices(1, 0).is_empty());
        assert_eq!(indices(u64::MAX, 1).len(), 1, "the last byte");
        assert_eq!(BlockId::at(7, BLOCK_LEN), BlockId { file: 7, index: 1 });
    }
}

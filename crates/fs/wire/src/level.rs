//! Feature levels: which messages and stored forms two versions of Weft have in common.
//!
//! A version knows two levels at least, its own and the one before. The greeting of each connection agrees on the highest level that
//! both programs know. A cluster has a level of its own. Nothing of a later level is stored before an administrator raises it with
//! `weft upgrade`, so that servers of the earlier version can still read everything.
//!
//! | level | adds |
//! | --- | --- |
//! | 1 | the first release |
//! | 2 | failure domains of servers in the cluster map |
//!
//! Messages of a level never change. A later level adds variants at the end of an enum, which say their level
//! ([`MetaRequest::level`](crate::meta::MetaRequest::level)). Greetings have no level: their form never changes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A feature level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Level(pub u8);

impl Level {
    /// Stands for no level, in greetings.
    pub const NONE: Self = Self(0);
    /// The first release.
    pub const FIRST: Self = Self(1);
    /// Failure domains of servers.
    pub const DOMAINS: Self = Self(2);
    /// Latest level that this version knows.
    pub const LATEST: Self = Self::DOMAINS;
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Levels that a program knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Levels {
    /// Earliest of them.
    pub earliest: Level,
    /// Latest of them.
    pub latest: Level,
}

impl Levels {
    /// Levels that this version knows.
    pub const KNOWN: Self = Self { earliest: Level::FIRST, latest: Level::LATEST };

    /// Levels of a version that knew none after `latest`.
    pub fn until(latest: Level) -> Self {
        Self { latest: latest.clamp(Level::FIRST, Level::LATEST), ..Self::KNOWN }
    }

    /// Returns the latest level that both know.
    pub fn common(self, other: Self) -> Option<Level> {
        let latest = self.latest.min(other.latest);
        (latest >= self.earliest.max(other.earliest)).then_some(latest)
    }

    /// Whether `level` is one of these.
    pub fn contain(self, level: Level) -> bool {
        (self.earliest..=self.latest).contains(&level)
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::KNOWN
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.earliest == self.latest {
            true => write!(f, "level {}", self.latest),
            false => write!(f, "levels {} to {}", self.earliest, self.latest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_use_the_latest_level_that_both_know() {
        let levels = |earliest, latest| Levels { earliest: Level(earliest), latest: Level(latest) };
        let cases = [
            (levels(1, 2), levels(1, 2), Some(2)),
            (levels(1, 2), levels(1, 1), Some(1)),
            (levels(1, 2), levels(2, 3), Some(2)),
            (levels(1, 2), levels(3, 4), None),
            (levels(1, 9), levels(3, 4), Some(4)),
        ];
        for (one, other, common) in cases {
            assert_eq!(one.common(other).map(|level| level.0), common, "{one} and {other}");
            assert_eq!(other.common(one), one.common(other), "{one} and {other}");
        }
        assert!(Levels::KNOWN.contain(Level::LATEST) && !Levels::KNOWN.contain(Level(Level::LATEST.0 + 1)));
        assert_eq!(Levels::until(Level::FIRST), levels(1, 1));
        assert_eq!(Levels::until(Level(200)), Levels::KNOWN);
    }
}

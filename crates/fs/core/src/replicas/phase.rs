//! State of a replica.

use serde::{Deserialize, Serialize};

/// State of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Bytes are being copied to it, or the copying was interrupted.
    Copying,
    /// It has the bytes of its original, but for writes since the last synchronization.
    Valid,
    /// The original was, or may have been, changed without the replica.
    Outdated,
}

impl Phase {
    /// Number in the state file of a replica on a mounted file system.
    pub fn number(self) -> u32 {
        match self {
            Self::Copying => 1,
            Self::Valid => 2,
            Self::Outdated => 3,
        }
    }

    /// Returns the phase of a number.
    pub fn of_number(number: u32) -> Option<Self> {
        [Self::Copying, Self::Valid, Self::Outdated].into_iter().find(|phase| phase.number() == number)
    }
}

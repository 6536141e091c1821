//! Identities of clusters and their targets, which keep them from being mistaken for one another.

use crate::compression::CompressionSetting;
use crate::reserve::Reserve;
use crate::units::ByteLen;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub u128);

        /// Serialized as a number in binary formats and as text in others, because JSON numbers cannot hold 128 bits.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match serializer.is_human_readable() {
                    true => serializer.collect_str(self),
                    false => self.0.serialize(serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if !deserializer.is_human_readable() {
                    return u128::deserialize(deserializer).map(Self);
                }
                let text = String::deserialize(deserializer)?.replace('-', "");
                u128::from_str_radix(&text, 16).map(Self).map_err(D::Error::custom)
            }
        }

        impl $name {
            /// The absent id: unknown, or not assigned yet.
            pub const NONE: Self = Self(0);

            /// Builds an id from 16 random bytes; never [`Self::NONE`].
            pub fn from_random(bytes: [u8; 16]) -> Self {
                Self(u128::from_le_bytes(bytes).max(1))
            }

            /// Returns true for [`Self::NONE`].
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }
        }

        /// Formats the id as a UUID.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let hex = format!("{:032x}", self.0);
                write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
        }
    };
}

random_id!(
    /// Identity of a cluster: random, chosen when its metadata is formatted, never changed.
    ClusterId
);
random_id!(
    /// Identity of a target's disk: random, chosen when the target is formatted. A replacement disk has another one.
    TargetUuid
);

impl ClusterId {
    /// Returns true if both ids are known and differ.
    pub fn is_other_than(self, other: Self) -> bool {
        !self.is_none() && !other.is_none() && self != other
    }
}

/// Token of one attach of a target. Target and metadata server both keep the latest, which reveals an outdated copy of
/// either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct AttachToken {
    /// Number of attaches of the target so far.
    pub counter: u64,
    /// Random number that distinguishes attaches with the same counter.
    pub nonce: u64,
}

impl AttachToken {
    /// Token of a target that never attached.
    pub const NONE: Self = Self { counter: 0, nonce: 0 };
}

/// State of a target in the cluster, as the metadata server records it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum TargetState {
    /// An administrator has permitted a blank disk to become this target; no disk has attached yet.
    Joining,
    /// In use.
    Active,
    /// In use, but receives no new files: its data is being moved to other targets.
    Draining,
    /// Removed from the cluster; never used again.
    Retired,
}

/// Settings of a target that the metadata server needs to place files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TargetSettings {
    /// Space that layouts may reserve; `None` for no limit.
    pub capacity: Option<ByteLen>,
    /// Space that new files leave free; `None` for a target that never becomes full.
    pub reserve: Option<Reserve>,
    /// Compression of new files on targets with the same setting.
    pub compression: Option<CompressionSetting>,
}

impl TargetSettings {
    /// Default settings with a capacity.
    pub fn with_capacity(capacity: ByteLen) -> Self {
        Self { capacity: Some(capacity), ..Self::default() }
    }
}

impl TargetState {
    /// Whether the disk `disk` of a target in this state may hold data of files.
    pub fn may_hold_data(self, disk: TargetUuid) -> bool {
        match self {
            Self::Active | Self::Draining => true,
            Self::Joining => !disk.is_none(),
            Self::Retired => false,
        }
    }

    /// Returns the name of the state in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Retired => "retired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_uuids_and_random_ones_are_never_none() {
        let id = ClusterId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
        assert!(!TargetUuid::from_random([0; 16]).is_none());
        assert!(TargetUuid::default().is_none());
    }
}

//! The I/O modules of targets.

use serde::{Deserialize, Serialize};

/// How a target reads and writes its datafiles (`module` in the cluster file).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Module {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Bypasses the page cache (`O_DIRECT`).
    Direct,
    /// Keeps lengths only and reads zeros, to measure everything but the devices.
    Null,
}

impl Module {
    /// Every module.
    pub const ALL: [Self; 3] = [Self::Buffered, Self::Direct, Self::Null];

    /// Returns the module's name in the cluster file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Null => "null",
        }
    }
}

//! Checksums at rest: the setting of a file, directory or target.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Checksum setting of a datafile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Integrity {
    /// No checksums.
    #[default]
    Off,
    /// A CRC-32C per 4 KiB block, verified on every read.
    Crc32c,
}

impl Integrity {
    /// All settings, in the order of help texts.
    pub const ALL: [Self; 2] = [Self::Off, Self::Crc32c];

    /// Returns the setting's name in the cluster file and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Crc32c => "crc32c",
        }
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Integrity {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|setting| setting.word() == word);
        found.ok_or_else(|| format!("integrity {word:?} is unknown: use off or crc32c"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip() {
        for setting in Integrity::ALL {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        assert!("CRC32C".parse::<Integrity>().is_err());
        assert!("".parse::<Integrity>().is_err());
    }
}

//! Checksums at rest: the setting of a file, a directory or a target.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Whether a datafile carries checksums of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Integrity {
    /// No checksums.
    #[default]
    Off,
    /// A CRC-32C of each 4 KiB block, verified on every read.
    Crc32c,
}

impl Integrity {
    /// All settings, in the order in which help texts list them.
    pub const ALL: [Self; 2] = [Self::Off, Self::Crc32c];

    /// The word in the cluster file and on the command line.
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
    fn words_read_back() {
        for setting in Integrity::ALL {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        assert!("CRC32C".parse::<Integrity>().is_err());
        assert!("".parse::<Integrity>().is_err());
    }
}

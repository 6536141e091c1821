//! Compression at rest: the setting of a file, directory, target or cluster.

use crate::units::ByteLen;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Extended attribute of files and directories with their compression setting.
pub const COMPRESSION_ATTRIBUTE: &str = "user.weft.compress";
/// Smallest chunk, in bytes.
pub const CHUNK_LEN_MIN: u64 = 16 << 10;
/// Largest chunk, in bytes.
pub const CHUNK_LEN_MAX: u64 = 1 << 20;
/// Chunk length of settings that name none, in bytes.
pub const CHUNK_LEN_DEFAULT: u64 = 64 << 10;
/// Level of `zstd` without a level.
pub const ZSTD_LEVEL_DEFAULT: u8 = 1;
/// Highest level of `zstd`.
pub const ZSTD_LEVEL_MAX: u8 = 19;

/// Codec policy of a compressed datafile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum CodecPolicy {
    /// LZ4 block format.
    Lz4,
    /// Zstandard at a level from 1 to 19.
    Zstd {
        /// Compression level.
        level: u8,
    },
    /// Chooses for each chunk: Zstandard at the default level where it saves clearly more than LZ4.
    Auto,
}

/// How a datafile's bytes are compressed. Its serialized form is the number of [`encode`](Self::encode), so that no
/// setting out of range is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Compression {
    /// Codec policy.
    pub policy: CodecPolicy,
    /// Base-2 logarithm of the chunk length.
    chunk_len_log2: u8,
}

impl Compression {
    /// Returns the setting with chunks of `chunk_len` bytes; `None` unless that is a power of two from
    /// [`CHUNK_LEN_MIN`] to [`CHUNK_LEN_MAX`] and the level is in range.
    pub fn new(policy: CodecPolicy, chunk_len: ByteLen) -> Option<Self> {
        let is_level = !matches!(policy, CodecPolicy::Zstd { level } if level == 0 || level > ZSTD_LEVEL_MAX);
        let is_len = chunk_len.0.is_power_of_two() && (CHUNK_LEN_MIN..=CHUNK_LEN_MAX).contains(&chunk_len.0);
        (is_level && is_len).then(|| Self { policy, chunk_len_log2: chunk_len.0.trailing_zeros() as u8 })
    }

    /// Returns the chunk length in bytes.
    pub const fn chunk_len(self) -> u64 {
        1 << self.chunk_len_log2
    }

    /// Encodes the setting as a number from 1 to 511; see [`decode`](Self::decode). 0 stands for no compression.
    ///
    /// | bits | contents |
    /// | --- | --- |
    /// | 0 to 4 | 1 to 19: Zstandard level; 30: LZ4; 31: automatic |
    /// | 5 to 8 | base-2 logarithm of the chunk length, less 14 |
    pub const fn encode(self) -> u16 {
        let policy = match self.policy {
            CodecPolicy::Zstd { level } => level as u16,
            CodecPolicy::Lz4 => 30,
            CodecPolicy::Auto => 31,
        };
        policy | (self.chunk_len_log2 as u16 - 14) << 5
    }

    /// Decodes a setting; `None` for 0 and for numbers that no setting has.
    pub fn decode(code: u16) -> Option<Self> {
        let policy = match code & 31 {
            level @ 1..=19 => CodecPolicy::Zstd { level: level as u8 },
            30 => CodecPolicy::Lz4,
            31 => CodecPolicy::Auto,
            _ => return None,
        };
        let log2 = (code >> 5) + 14;
        (log2 < 64).then(|| Self::new(policy, ByteLen(1 << log2))).flatten()
    }
}

impl From<Compression> for u16 {
    fn from(compression: Compression) -> Self {
        compression.encode()
    }
}

impl TryFrom<u16> for Compression {
    type Error = &'static str;

    fn try_from(code: u16) -> Result<Self, Self::Error> {
        Self::decode(code).ok_or("no number of a compression setting")
    }
}

/// Compression setting of a file or directory that has one of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum CompressionSetting {
    /// No compression, whatever the directory, the rules and the cluster say.
    Off,
    /// Compression.
    On(Compression),
}

impl CompressionSetting {
    /// Number of [`Off`](Self::Off): none of [`Compression::encode`].
    const OFF: u16 = 29;

    /// Returns how bytes are compressed; `None` for [`Off`](Self::Off).
    pub const fn compression(self) -> Option<Compression> {
        match self {
            Self::Off => None,
            Self::On(compression) => Some(compression),
        }
    }

    /// Encodes the setting as a number from 1 to 511: 29 stands for [`Off`](Self::Off), the others are those of
    /// [`Compression::encode`]. 0 stands for no setting.
    pub const fn encode(self) -> u16 {
        match self {
            Self::Off => Self::OFF,
            Self::On(compression) => compression.encode(),
        }
    }

    /// Decodes a setting; `None` for 0 and for numbers that no setting has.
    pub fn decode(code: u16) -> Option<Self> {
        if code == Self::OFF { Some(Self::Off) } else { Compression::decode(code).map(Self::On) }
    }
}

impl From<Option<Compression>> for CompressionSetting {
    fn from(compression: Option<Compression>) -> Self {
        compression.map_or(Self::Off, Self::On)
    }
}

impl From<CompressionSetting> for u16 {
    fn from(setting: CompressionSetting) -> Self {
        setting.encode()
    }
}

impl TryFrom<u16> for CompressionSetting {
    type Error = &'static str;

    fn try_from(code: u16) -> Result<Self, Self::Error> {
        Self::decode(code).ok_or("no number of a compression setting")
    }
}

impl fmt::Display for CompressionSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(compression) => compression.fmt(f),
        }
    }
}

impl FromStr for CompressionSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_compression(text).map(Self::from)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            CodecPolicy::Lz4 => f.write_str("lz4")?,
            CodecPolicy::Zstd { level } => write!(f, "zstd:{level}")?,
            CodecPolicy::Auto => f.write_str("auto")?,
        }
        write!(f, "/{}KiB", self.chunk_len() >> 10)
    }
}

/// Parses a setting such as `off`, `lz4`, `zstd`, `zstd:3`, `auto` or `zstd:3/256KiB`; `None` is `off`.
///
/// # Errors
/// Text that is none of these.
pub fn parse_compression(text: &str) -> Result<Option<Compression>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some)
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("compression {text:?} is unknown: use off, lz4, zstd, zstd:1 to zstd:19 or auto");
        let (word, chunk) = text.split_once('/').map_or((text, None), |(word, chunk)| (word, Some(chunk)));
        let policy = match word.split_once(':') {
            None if word == "lz4" => CodecPolicy::Lz4,
            None if word == "auto" => CodecPolicy::Auto,
            None if word == "zstd" => CodecPolicy::Zstd { level: ZSTD_LEVEL_DEFAULT },
            Some(("zstd", level)) => CodecPolicy::Zstd { level: level.parse().map_err(|_| unknown())? },
            _ => return Err(unknown()),
        };
        let chunk_len = match chunk {
            None => CHUNK_LEN_DEFAULT,
            Some("1MiB") => 1 << 20,
            Some(chunk) => {
                let kib = chunk.strip_suffix("KiB").and_then(|kib| kib.parse::<u64>().ok());
                kib.and_then(|kib| kib.checked_mul(1 << 10)).ok_or_else(|| {
                    format!("chunk {chunk:?} of compression {text:?} is no size: use 16KiB, 32KiB, … 1024KiB")
                })?
            }
        };
        Self::new(policy, ByteLen(chunk_len)).ok_or_else(|| {
            format!("compression {text:?} is out of range: levels are 1 to 19, chunks powers of two from 16KiB to 1MiB")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_as_text_and_as_numbers() {
        for text in ["lz4/64KiB", "zstd:1/16KiB", "zstd:19/1024KiB", "auto/128KiB"] {
            let setting: Compression = text.parse().expect(text);
            assert_eq!(setting.to_string(), text);
            assert_eq!(Compression::decode(setting.encode()), Some(setting));
        }
        assert_eq!("zstd".parse::<Compression>().unwrap().to_string(), "zstd:1/64KiB");
        assert_eq!(parse_compression("off"), Ok(None));
        let known = (0..=u16::MAX).filter_map(Compression::decode).count();
        assert_eq!(known, 21 * 7, "19 levels, LZ4 and automatic, with seven chunk lengths");
        assert!(
            (0..=u16::MAX)
                .all(|code| Compression::decode(code).is_none_or(|setting| setting.encode() == code))
        );
    }

    #[test]
    fn a_setting_may_be_off() {
        for text in ["off", "lz4/64KiB", "zstd:3/1024KiB"] {
            let setting: CompressionSetting = text.parse().expect(text);
            assert_eq!(setting.to_string(), text);
            assert_eq!(CompressionSetting::decode(setting.encode()), Some(setting));
            assert_eq!(setting.compression(), Compression::decode(setting.encode()));
        }
        let known = (0..=u16::MAX).filter_map(CompressionSetting::decode).count();
        assert_eq!(known, 21 * 7 + 1);
        assert_eq!(CompressionSetting::decode(0), None);
    }

    #[test]
    fn text_out_of_range_is_rejected() {
        for text in [
            "",
            "gzip",
            "zstd:0",
            "zstd:20",
            "zstd:x",
            "lz4:1",
            "lz4/8KiB",
            "lz4/48KiB",
            "lz4/2048KiB",
            "off/64KiB",
        ] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}

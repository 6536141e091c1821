//! Sizes in descriptions of workloads: bytes, or text such as `"64 KiB"`.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use weft_core::ByteLen;
use weft_core::units::{format_size, parse_size};

/// A number of bytes, parsed from an integer or from text with the unit `B`, `KiB`, `MiB`, `GiB` or `TiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct Size(pub u64);

impl Size {
    /// Creates a size in KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Creates a size in MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Creates a size in GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size(ByteLen(self.0)))
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let size = parse_size(text).map_err(|why| format!("{text:?} is not a size: {why}"))?;
        Ok(Self(size.0))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes or a size such as \"64 KiB\"")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom(format!("{bytes} is negative, and a size must not be")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text_are_parsed() {
        for (text, bytes) in
            [("7", 7), ("64 KiB", 65_536), ("1k", 1024), ("3 MiB", 3 << 20), ("10GiB", 10 << 30)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5 MiB", "64 KB", "99999999 TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn displayed_sizes_parse_to_the_same_size() {
        for bytes in [0, 1, 1023, 65_536, 66_560, 5 << 20, 10 << 30] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}

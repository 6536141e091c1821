//! Sizes of simulated caches.

use crate::failure::Failure;
use std::str::FromStr;
use weft_core::ByteLen;
use weft_core::cache::BLOCK_LEN;

/// Size of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CacheSize {
    Bytes(ByteLen),
    /// Part of the bytes that the workload uses, 0 to 1.
    Part(f64),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return crate::commands::size(text).map(Self::Bytes);
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Part(percent / 100.0)),
            _ => Err("a percentage is a number above 0, up to 100".into()),
        }
    }
}

/// Returns the sizes in bytes for a workload that uses `blocks` blocks.
///
/// # Errors
/// If a size is less than a block.
pub fn capacities(sizes: &[CacheSize], blocks: u64) -> Result<Vec<u64>, Failure> {
    let capacity = |size: &CacheSize| {
        let bytes = match *size {
            CacheSize::Bytes(bytes) => bytes.0,
            CacheSize::Part(part) => (part * (blocks * BLOCK_LEN) as f64) as u64,
        };
        if bytes >= BLOCK_LEN {
            return Ok(bytes);
        }
        let of = format!("the cache is smaller than a block of 64 KiB; the workload uses {blocks} blocks");
        Err(Failure::misuse("--cache", of).remedy("write a larger size"))
    };
    sizes.iter().map(capacity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_percentages() {
        assert_eq!("1GiB".parse(), Ok(CacheSize::Bytes(ByteLen(1 << 30))));
        assert_eq!("2.5%".parse(), Ok(CacheSize::Part(0.025)));
        for wrong in ["", "%", "0%", "-1%", "101%", "NaN%", "x"] {
            assert!(wrong.parse::<CacheSize>().is_err(), "{wrong}");
        }
        let sizes = [CacheSize::Bytes(ByteLen(70_000)), CacheSize::Part(0.5)];
        assert_eq!(capacities(&sizes, 10).expect("sizes"), [70_000, 5 * BLOCK_LEN]);
        assert!(capacities(&[CacheSize::Part(0.01)], 10).unwrap_err().text().contains("uses 10 blocks"));
    }
}

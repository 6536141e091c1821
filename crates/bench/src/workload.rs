//! What each rank does, as pure numbers: which bytes of which file, in which order.

use serde::{Deserialize, Serialize};

/// Where a rank's transfers lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One shared file, each rank a contiguous block (IOR's default, ior-easy with one file).
    Segmented,
    /// One shared file, transfers of the ranks interleaved (ior-hard).
    Interleaved,
    /// A file per rank.
    FilePerProcess,
}

impl Pattern {
    /// As it stands in rows of results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Segmented => "segmented",
            Self::Interleaved => "interleaved",
            Self::FilePerProcess => "file-per-process",
        }
    }

    /// The offset in bytes of transfer `index` of `rank`, of `count` transfers of `transfer` bytes by each of
    /// `ranks`.
    pub fn offset(self, rank: u64, ranks: u64, index: u64, count: u64, transfer: u64) -> u64 {
        match self {
            Self::Segmented => (rank * count + index) * transfer,
            Self::Interleaved => (index * ranks + rank) * transfer,
            Self::FilePerProcess => index * transfer,
        }
    }

    /// The name of the file that `rank` uses, below the case's directory.
    pub fn file_name(self, rank: u64) -> String {
        match self {
            Self::FilePerProcess => format!("data.{rank}"),
            Self::Segmented | Self::Interleaved => "data".to_owned(),
        }
    }
}

/// Bytes between two stamps.
const STAMP_EVERY: usize = 4096;

/// A buffer of `len` bytes for [`stamp`]: each byte depends on its place.
pub fn blank(len: usize) -> Vec<u8> {
    (0..len).map(|at| word(at as u64 / 8).to_le_bytes()[at % 8]).collect()
}

/// Makes `buf`, which came from [`blank`], into what the file holds from `offset`: a word that depends on the offset
/// every 4 KiB, so that a piece of a transfer in a wrong place is noticed, at next to no cost while time is taken.
pub fn stamp(buf: &mut [u8], offset: u64) {
    for (index, chunk) in buf.chunks_mut(STAMP_EVERY).enumerate() {
        let bytes = word(!(offset + (index * STAMP_EVERY) as u64)).to_le_bytes();
        let len = chunk.len().min(8);
        chunk[..len].copy_from_slice(&bytes[..len]);
    }
}

/// The first offset at which `buf`, read from `offset`, differs from what was stamped; `expected` is scratch from
/// [`blank`] of the same length.
pub fn first_difference(buf: &[u8], expected: &mut [u8], offset: u64) -> Option<u64> {
    stamp(expected, offset);
    if buf == expected {
        return None;
    }
    buf.iter().zip(expected.iter()).position(|(a, b)| a != b).map(|at| offset + at as u64)
}

/// Multiplicative mixing of Steele, Lea and Flood's SplitMix64.
fn word(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_by_hand() {
        assert_eq!(Pattern::Segmented.offset(1, 4, 2, 10, 100), 1200);
        assert_eq!(Pattern::Interleaved.offset(1, 4, 2, 10, 100), 900);
        assert_eq!(Pattern::FilePerProcess.offset(3, 4, 2, 10, 100), 200);
    }

    #[test]
    fn shared_patterns_cover_each_byte_once() {
        for pattern in [Pattern::Segmented, Pattern::Interleaved] {
            let (ranks, count, transfer) = (3, 5, 7);
            let mut seen = vec![0; (ranks * count * transfer) as usize];
            for rank in 0..ranks {
                for index in 0..count {
                    let at = pattern.offset(rank, ranks, index, count, transfer) as usize;
                    seen[at..at + transfer as usize].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{pattern:?}");
        }
    }

    #[test]
    fn a_piece_in_a_wrong_place_is_noticed() {
        let len = 3 * STAMP_EVERY + 5;
        let mut scratch = blank(len);
        let (mut a, mut b) = (blank(len), blank(len));
        stamp(&mut a, 1000);
        stamp(&mut b, 1000 + len as u64);
        assert_eq!(first_difference(&a, &mut scratch, 1000), None);
        assert_eq!(first_difference(&b, &mut scratch, 1000), Some(1000));
        let second = STAMP_EVERY..2 * STAMP_EVERY;
        a[second.clone()].copy_from_slice(&b[second]);
        assert_eq!(first_difference(&a, &mut scratch, 1000), Some(1000 + STAMP_EVERY as u64));
    }
}

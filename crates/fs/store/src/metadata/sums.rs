//! The file `base.sums`: checksums of the base's blocks.
//!
//! ```text
//! offset     size | field
//!      0     8192 | slot 0
//!   8192     8192 | slot 1
//!  16384      8·n | sums       of the blocks of the base, the first of them unused
//! ```
//!
//! The slots are written alternately, and the valid one with the higher number counts:
//!
//! ```text
//! offset     size | field
//!      0        8 | magic      "WEFTSUMS"
//!      8        4 | version    1
//!     12        4 | block_len  4096
//!     16        8 | number     number of the other slot plus one
//!     24        4 | count      number of parts of the sums in flux; 2^32 - 1: all parts
//!     28      4·c | parts      their numbers; part p has the sums of blocks 512·p to 512·p + 511
//!   4092        4 | crc        CRC-32 of the other bytes of the slot
//!   4096     4096 | block_0    block 0 of the base, the only one that is overwritten in place
//! ```
//!
//! Numbers are little-endian, and bytes between the fields are zero. Two values of a sum are special:
//!
//! | sum | meaning |
//! | --- | --- |
//! | 0 | the block was never written and holds zeros |
//! | 1 | the block was being written at a crash; the base does not refer to it |
//!
//! Otherwise the upper half is the CRC-32 of the block and the lower half that of its XXH3-64. If exactly one bit of
//! the block is flipped, the CRC locates it and the hash confirms it, so the block can be repaired.

use std::collections::BTreeSet;

/// Length of a block in bytes.
pub(super) const BLOCK_LEN: usize = 4096;
/// Length of a slot in bytes.
pub(super) const SLOT_LEN: usize = 2 * BLOCK_LEN;
/// Offset of the first sum.
pub(super) const SUMS_START: u64 = 2 * SLOT_LEN as u64;
/// Number of sums in a part, the unit of writing.
pub(super) const SUMS_PER_PART: usize = BLOCK_LEN / 8;

const MAGIC: [u8; 8] = *b"WEFTSUMS";
const VERSION: u32 = 1;
/// Maximum number of parts that a slot can list.
const PARTS_MAX: usize = 1000;
const PARTS_START: usize = 28;
const CRC_START: usize = BLOCK_LEN - 4;
/// The reflected polynomial of CRC-32.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Checksum of a block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum(pub u64);

impl Sum {
    /// The block was never written and holds zeros.
    pub const UNWRITTEN: Self = Self(0);
    /// The block is being written.
    pub const IN_FLUX: Self = Self(1);

    /// Returns the sum of a block.
    pub fn of(block: &[u8]) -> Self {
        let crc = crc32fast::hash(block);
        let hash = xxhash_rust::xxh3::xxh3_64(block) as u32;
        let sum = u64::from(crc) << 32 | u64::from(hash);
        // Avoid the two special values.
        Self(if sum <= Self::IN_FLUX.0 { sum + 2 } else { sum })
    }
}

/// Result of comparing a block with its sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The block is intact.
    Sound,
    /// The block was being written at a crash and holds nothing that counts.
    InFlux,
    /// This bit of the block is flipped.
    FlippedBit(usize),
    /// A bit of the checksum is flipped, and the block is intact.
    FlippedSum,
    /// The block is damaged beyond one bit.
    Damaged,
}

/// Compares a block with its recorded sum.
pub(super) fn verdict(block: &[u8], recorded: Sum) -> Verdict {
    if recorded == Sum::IN_FLUX {
        return Verdict::InFlux;
    }
    if recorded == Sum::UNWRITTEN {
        let mut ones = block.iter().enumerate().filter(|(_, byte)| **byte != 0);
        return match (ones.next(), ones.next()) {
            (None, _) => Verdict::Sound,
            (Some((at, byte)), None) if byte.is_power_of_two() => {
                Verdict::FlippedBit(at * 8 + byte.trailing_zeros() as usize)
            }
            _ => Verdict::Damaged,
        };
    }
    let found = Sum::of(block);
    if found == recorded {
        return Verdict::Sound;
    }
    if (found.0 ^ recorded.0).is_power_of_two() {
        return Verdict::FlippedSum;
    }
    let syndrome = ((found.0 ^ recorded.0) >> 32) as u32;
    let Some(bit) = flipped_bit(syndrome, block.len()) else { return Verdict::Damaged };
    let mut repaired = block.to_vec();
    flip(&mut repaired, bit);
    if Sum::of(&repaired) == recorded { Verdict::FlippedBit(bit) } else { Verdict::Damaged }
}

/// Flips a bit.
pub(super) fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Returns the bit of `len` bytes whose flipping changes their CRC-32 by `syndrome`. A CRC is linear, so the change
/// depends only on the distance of the bit from the end.
fn flipped_bit(syndrome: u32, len: usize) -> Option<usize> {
    let mut change = 1u32;
    for bit in (0..len * 8).rev() {
        change = (change >> 1) ^ if change & 1 == 1 { POLYNOMIAL } else { 0 };
        if change == syndrome {
            return Some(bit);
        }
    }
    None
}

/// A slot of the sums file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// The slot with the higher number counts.
    pub number: u64,
    /// Parts of the sums that are being changed together with their blocks; `None` for all.
    pub in_flux: Option<BTreeSet<u32>>,
    /// Block 0 of the base.
    pub block_0: Box<[u8; BLOCK_LEN]>,
}

fn slot_crc(slot: &[u8; SLOT_LEN]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&slot[..CRC_START]);
    hasher.update(&slot[BLOCK_LEN..]);
    hasher.finalize()
}

impl Slot {
    /// Encodes the slot.
    pub fn encode(&self) -> Box<[u8; SLOT_LEN]> {
        let mut out = Box::new([0; SLOT_LEN]);
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(BLOCK_LEN as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        let parts = self.in_flux.as_ref().filter(|parts| parts.len() <= PARTS_MAX);
        let count = parts.map_or(u32::MAX, |parts| parts.len() as u32);
        out[24..28].copy_from_slice(&count.to_le_bytes());
        for (at, part) in parts.into_iter().flatten().enumerate() {
            out[PARTS_START + 4 * at..][..4].copy_from_slice(&part.to_le_bytes());
        }
        out[BLOCK_LEN..].copy_from_slice(&self.block_0[..]);
        let crc = slot_crc(&out);
        out[CRC_START..BLOCK_LEN].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Verifies and decodes a slot; `None` if it is damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SLOT_LEN] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let good = bytes[..8] == MAGIC
            && u32_at(8) == VERSION
            && u32_at(12) == BLOCK_LEN as u32
            && u32_at(CRC_START) == slot_crc(bytes);
        if !good {
            return None;
        }
        let in_flux = match u32_at(24) {
            u32::MAX => None,
            count if count as usize <= PARTS_MAX => {
                Some((0..count as usize).map(|at| u32_at(PARTS_START + 4 * at)).collect())
            }
            _ => return None,
        };
        let mut block_0 = Box::new([0; BLOCK_LEN]);
        block_0.copy_from_slice(&bytes[BLOCK_LEN..]);
        let number = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        Some(Self { number, in_flux, block_0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Vec<u8> {
        (0..BLOCK_LEN as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    fn slot(parts: impl IntoIterator<Item = u32>) -> Slot {
        let in_flux = Some(parts.into_iter().collect());
        Slot { number: 0x0102, in_flux, block_0: Box::new([7; BLOCK_LEN]) }
    }

    #[test]
    fn golden_bytes() {
        let slot = slot([5, 0x0304]);
        let mut expected =
            b"WEFTSUMS\x01\0\0\0\0\x10\0\0\x02\x01\0\0\0\0\0\0\x02\0\0\0\x05\0\0\0\x04\x03\0\0".to_vec();
        expected.resize(CRC_START, 0);
        let crc = crc32fast::hash(&[&expected[..], &[7; BLOCK_LEN]].concat());
        expected.extend_from_slice(&crc.to_le_bytes());
        expected.extend_from_slice(&[7; BLOCK_LEN]);
        let bytes = slot.encode();
        assert_eq!(bytes[..], expected);
        assert_eq!(Slot::decode(&bytes[..]), Some(slot));
        let zeros = Sum::of(&[0; BLOCK_LEN]);
        assert_eq!(zeros.0 >> 32, u64::from(crc32fast::hash(&[0; BLOCK_LEN])));
    }

    #[test]
    fn a_slot_with_too_many_parts_lists_none() {
        let most = slot(0..PARTS_MAX as u32);
        assert_eq!(Slot::decode(&most.encode()[..]), Some(most));
        let more = slot(0..PARTS_MAX as u32 + 1);
        assert_eq!(Slot::decode(&more.encode()[..]).map(|slot| slot.in_flux), Some(None));
    }

    #[test]
    fn every_flipped_bit_of_a_slot_is_detected() {
        let good = slot([1]).encode();
        for bit in (0..SLOT_LEN * 8).filter(|bit| bit % 61 == 0 || bit / 8 < 40) {
            let mut bad = good.clone();
            flip(&mut bad[..], bit);
            assert_eq!(Slot::decode(&bad[..]), None, "bit {bit}");
        }
        for len in (0..SLOT_LEN).step_by(7) {
            assert_eq!(Slot::decode(&good[..len]), None, "length {len}");
        }
    }

    #[test]
    fn a_flipped_bit_is_located() {
        let good = block();
        let sum = Sum::of(&good);
        assert_eq!(verdict(&good, sum), Verdict::Sound);
        for bit in (0..BLOCK_LEN * 8).step_by(97).chain([BLOCK_LEN * 8 - 1]) {
            let mut bad = good.clone();
            flip(&mut bad, bit);
            assert_eq!(verdict(&bad, sum), Verdict::FlippedBit(bit));
        }
        for bit in 2..64 {
            assert_eq!(verdict(&good, Sum(sum.0 ^ 1 << bit)), Verdict::FlippedSum, "bit {bit} of the sum");
        }
    }

    #[test]
    fn larger_damage_is_detected_and_not_repaired() {
        let good = block();
        let sum = Sum::of(&good);
        for at in (0..BLOCK_LEN - 512).step_by(61) {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert_eq!(verdict(&bad, sum), Verdict::Damaged, "two bits of byte {at}");
            let mut bad = good.clone();
            bad[at..at + 512].fill(0);
            assert_eq!(verdict(&bad, sum), Verdict::Damaged, "a sector from {at} on");
        }
    }

    #[test]
    fn a_block_that_was_never_written_holds_zeros() {
        let mut block = vec![0; BLOCK_LEN];
        assert_eq!(verdict(&block, Sum::UNWRITTEN), Verdict::Sound);
        flip(&mut block, 4099);
        assert_eq!(verdict(&block, Sum::UNWRITTEN), Verdict::FlippedBit(4099));
        flip(&mut block, 7);
        assert_eq!(verdict(&block, Sum::UNWRITTEN), Verdict::Damaged);
        assert_eq!(verdict(&block, Sum::IN_FLUX), Verdict::InFlux);
    }
}

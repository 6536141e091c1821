//! A slot: the entry of one block in a checksum file.
//!
//! ```text
//! offset size | field
//!      0    4 | sum       checksum of the block (see `block_sum`)
//!      4    4 | previous  checksum before the write in progress; equal to `sum` when there is none
//! ```
//!
//! Numbers are little-endian. A block is good if it matches either checksum. Both are 0 for a hole.

use super::block::block_sum;

/// Length of a slot in bytes.
pub const SLOT_BYTES: u64 = 8;

/// The checksums that a block may have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slot {
    /// Checksum after the latest write.
    pub sum: u32,
    /// Checksum before the latest write.
    pub previous: u32,
}

impl Slot {
    /// Returns the slot of a block without a write in progress.
    pub const fn stable(sum: u32) -> Self {
        Self { sum, previous: sum }
    }

    /// Returns true if no write is in progress.
    pub const fn is_stable(self) -> bool {
        self.sum == self.previous
    }

    /// Returns true if a block with these bytes is good.
    pub fn accepts(self, block: &[u8]) -> bool {
        let sum = block_sum(block);
        sum == self.sum || sum == self.previous
    }

    /// Encodes the slot.
    pub fn encode(self) -> [u8; SLOT_BYTES as usize] {
        let mut out = [0; SLOT_BYTES as usize];
        out[..4].copy_from_slice(&self.sum.to_le_bytes());
        out[4..].copy_from_slice(&self.previous.to_le_bytes());
        out
    }

    /// Decodes a slot; any 8 bytes are valid.
    pub fn decode(bytes: [u8; SLOT_BYTES as usize]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { sum: u32::from_le_bytes([a, b, c, d]), previous: u32::from_le_bytes([e, f, g, h]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let slot = Slot { sum: 0x0102_0304, previous: 0x1112_1314 };
        assert_eq!(slot.encode(), [4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(Slot::decode(slot.encode()), slot);
        assert_eq!(Slot::decode([0; 8]), Slot::stable(0));
    }

    #[test]
    fn a_block_matches_the_intact_half_of_a_damaged_slot() {
        let slot = Slot::stable(block_sum(b"bytes"));
        for bit in 0..64 {
            let mut bytes = slot.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Slot::decode(bytes).accepts(b"bytes"), "bit {bit}");
            assert!(!Slot::decode(bytes).is_stable(), "bit {bit}");
        }
    }
}

//! The slots of the checksums' file over bytes in memory, for fuzzing what a start reads.

use super::sums::Slot;

/// Reads a slot; what it is when it is written again, or `None` when it is refused.
pub fn slot(bytes: &[u8]) -> Option<Vec<u8>> {
    Slot::decode(bytes).map(|slot| slot.encode().to_vec())
}

/// The first slot of a base of nothing.
pub fn sample() -> Vec<u8> {
    let slot =
        Slot { number: 7, in_flux: Some([1, 5].into()), block_0: Box::new([3; super::sums::BLOCK_LEN]) };
    slot.encode().to_vec()
}

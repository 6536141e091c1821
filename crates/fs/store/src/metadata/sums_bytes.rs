//! Decodes slots of the sums file held in memory, for fuzzing.

use super::sums::Slot;

/// Decodes a slot and encodes it again; `None` if it is rejected.
pub fn slot(bytes: &[u8]) -> Option<Vec<u8>> {
    Slot::decode(bytes).map(|slot| slot.encode().to_vec())
}

/// Returns a valid slot.
pub fn sample() -> Vec<u8> {
    let slot =
        Slot { number: 7, in_flux: Some([1, 5].into()), block_0: Box::new([3; super::sums::BLOCK_LEN]) };
    slot.encode().to_vec()
}

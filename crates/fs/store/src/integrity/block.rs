//! Checksum of a block.

/// Length in bytes of the unit of checksums.
pub const BLOCK_BYTES: u64 = 4096;

const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// CRC-32C of a block of zeros.
const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;

/// Returns the checksum of a block that begins with `bytes` and continues with zeros.
///
/// The value is CRC-32C xor that of a block of zeros. Blocks that were never written (holes, and blocks past the end)
/// therefore have checksum 0, as slots do that were never written.
///
/// # Panics
/// When `bytes` are longer than a block.
pub fn block_sum(bytes: &[u8]) -> u32 {
    let rest = &ZEROS[bytes.len()..];
    let crc = crc32c::crc32c(bytes);
    let crc = if rest.is_empty() { crc } else { crc32c::crc32c_append(crc, rest) };
    crc ^ ZERO_BLOCK_CRC
}

/// Returns the index of the block that contains byte `at`.
pub const fn block_of(at: u64) -> u64 {
    at / BLOCK_BYTES
}

/// Returns the number of blocks that the first `len` bytes touch.
pub const fn blocks_in(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_any_length_have_the_sum_of_a_hole() {
        assert_eq!(crc32c::crc32c(&ZEROS), ZERO_BLOCK_CRC);
        for len in [0, 1, 511, 4095, 4096] {
            assert_eq!(block_sum(&ZEROS[..len]), 0, "length {len}");
        }
    }

    #[test]
    fn crc32c_matches_its_check_value() {
        // Check value of CRC-32C, as in RFC 3720.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_short_block_is_padded_with_zeros() {
        let mut block = ZEROS;
        block[..700].fill(7);
        assert_eq!(block_sum(&block[..700]), block_sum(&block));
    }

    #[test]
    fn every_flipped_bit_changes_the_sum() {
        let mut block = ZEROS;
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = (at * 31 + at / 256) as u8;
        }
        let sum = block_sum(&block);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(block_sum(&block), sum, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

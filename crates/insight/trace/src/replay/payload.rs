//! Payloads in which every byte depends on its file, offset and generation, so that misplaced data is detected.

use weft_core::random::mix64;

/// Generation of data that existed before the replay.
pub const INITIAL: u64 = 0;
/// Generation of data written by the replay.
pub const REPLAYED: u64 = 1;

/// Returns the eight bytes at offset `8 * index` of a file.
fn word(file: u32, generation: u64, index: u64) -> [u8; 8] {
    // A different input for each file, generation and index.
    let position = index
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(file) << 1 | generation)
        .wrapping_add(0x1234_5678_9abc_def1);
    mix64(position).to_le_bytes()
}

fn byte(file: u32, generation: u64, offset: u64) -> u8 {
    word(file, generation, offset / 8)[(offset % 8) as usize]
}

/// Fills `buf` with the file's content from `offset` on.
pub fn fill(buf: &mut [u8], file: u32, generation: u64, offset: u64) {
    let head = ((8 - offset % 8) % 8).min(buf.len() as u64) as usize;
    let (head, rest) = buf.split_at_mut(head);
    for (at, target) in head.iter_mut().enumerate() {
        *target = byte(file, generation, offset + at as u64);
    }
    let mut at = offset + head.len() as u64;
    let mut words = rest.chunks_exact_mut(8);
    for target in &mut words {
        target.copy_from_slice(&word(file, generation, at / 8));
        at += 8;
    }
    for (target, byte) in words.into_remainder().iter_mut().zip(word(file, generation, at / 8)) {
        *target = byte;
    }
}

/// Data that verification accepts in addition to the data that the replay wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// No other data.
    WrittenOnly,
    /// Initial data.
    Initial,
    /// Initial data and the zeros of a hole.
    InitialOrHole,
}

/// Returns the first offset at which `buf`, read from `offset`, has a byte that is not accepted.
pub fn first_wrong(
    buf: &[u8],
    file: u32,
    offset: u64,
    accepted: Accepted,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    scratch.resize(buf.len(), 0);
    for generation in [REPLAYED, INITIAL] {
        if generation == REPLAYED || accepted != Accepted::WrittenOnly {
            fill(scratch, file, generation, offset);
            if scratch == buf {
                return None;
            }
        }
    }
    // The buffer mixes generations or has a hole: compare byte by byte.
    let right = |(at, found): (usize, &u8)| {
        let offset = offset + at as u64;
        *found == byte(file, REPLAYED, offset)
            || accepted != Accepted::WrittenOnly && *found == byte(file, INITIAL, offset)
            || accepted == Accepted::InitialOrHole && *found == 0
    };
    let wrong = buf.iter().enumerate().position(|target| !right(target));
    wrong.map(|at| offset + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_equals_the_same_range_of_the_whole() {
        let mut whole = vec![0; 200];
        fill(&mut whole, 3, REPLAYED, 1_000);
        for from in 0..40 {
            for len in 0..40 {
                let mut piece = vec![0; len];
                fill(&mut piece, 3, REPLAYED, 1_000 + from as u64);
                assert_eq!(piece, whole[from..from + len]);
            }
        }
    }

    #[test]
    fn misplaced_data_and_old_generations_are_detected() {
        let scratch = &mut Vec::new();
        let mut buf = vec![0; 64];
        fill(&mut buf, 1, REPLAYED, 96);
        assert_eq!(first_wrong(&buf, 1, 96, Accepted::WrittenOnly, scratch), None);
        assert_eq!(first_wrong(&buf, 2, 96, Accepted::InitialOrHole, scratch), Some(96));
        assert_eq!(first_wrong(&buf, 1, 104, Accepted::InitialOrHole, scratch), Some(104));
        fill(&mut buf[32..], 1, INITIAL, 128);
        assert_eq!(first_wrong(&buf, 1, 96, Accepted::Initial, scratch), None);
        assert_eq!(first_wrong(&buf, 1, 96, Accepted::WrittenOnly, scratch), Some(128));
        buf[40..50].fill(0);
        assert_eq!(first_wrong(&buf, 1, 96, Accepted::Initial, scratch), Some(136));
        assert_eq!(first_wrong(&buf, 1, 96, Accepted::InitialOrHole, scratch), None);
    }
}

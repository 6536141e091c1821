//! Payloads whose every byte says of which file, which offset and which generation it is.

/// Generation of bytes that were there before the replay.
pub const BEFORE: u64 = 0;
/// Generation of bytes that the replay wrote.
pub const REPLAY: u64 = 1;

/// The eight bytes at offset `8 * index` of a file.
fn word(file: u32, generation: u64, index: u64) -> [u8; 8] {
    // SplitMix64's finisher over a sum that differs for each.
    let mut z = index
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(file) << 1 | generation)
        .wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

fn byte(file: u32, generation: u64, offset: u64) -> u8 {
    word(file, generation, offset / 8)[(offset % 8) as usize]
}

/// Fills `buf` with what the file has from `offset` on.
pub fn fill(buf: &mut [u8], file: u32, generation: u64, offset: u64) {
    let head = ((8 - offset % 8) % 8).min(buf.len() as u64) as usize;
    let (head, rest) = buf.split_at_mut(head);
    for (at, place) in head.iter_mut().enumerate() {
        *place = byte(file, generation, offset + at as u64);
    }
    let mut at = offset + head.len() as u64;
    let mut words = rest.chunks_exact_mut(8);
    for place in &mut words {
        place.copy_from_slice(&word(file, generation, at / 8));
        at += 8;
    }
    for (place, byte) in words.into_remainder().iter_mut().zip(word(file, generation, at / 8)) {
        *place = byte;
    }
}

/// What bytes may be besides those that the replay wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Else {
    /// Nothing.
    Wrong,
    /// Those that were there before.
    Before,
    /// Those, or zeros of a hole.
    BeforeOrHole,
}

/// The first offset at which `buf`, read from `offset`, has a byte that it cannot have.
pub fn first_wrong(buf: &[u8], file: u32, offset: u64, or: Else, scratch: &mut Vec<u8>) -> Option<u64> {
    scratch.resize(buf.len(), 0);
    for generation in [REPLAY, BEFORE] {
        if generation == REPLAY || or != Else::Wrong {
            fill(scratch, file, generation, offset);
            if scratch == buf {
                return None;
            }
        }
    }
    // Bytes of both, or a hole: one by one.
    let right = |(at, found): (usize, &u8)| {
        let offset = offset + at as u64;
        *found == byte(file, REPLAY, offset)
            || or != Else::Wrong && *found == byte(file, BEFORE, offset)
            || or == Else::BeforeOrHole && *found == 0
    };
    let wrong = buf.iter().enumerate().position(|place| !right(place));
    wrong.map(|at| offset + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_part_of_the_whole() {
        let mut whole = vec![0; 200];
        fill(&mut whole, 3, REPLAY, 1_000);
        for from in 0..40 {
            for len in 0..40 {
                let mut piece = vec![0; len];
                fill(&mut piece, 3, REPLAY, 1_000 + from as u64);
                assert_eq!(piece, whole[from..from + len]);
            }
        }
    }

    #[test]
    fn wrong_places_files_and_generations_are_noticed() {
        let scratch = &mut Vec::new();
        let mut buf = vec![0; 64];
        fill(&mut buf, 1, REPLAY, 96);
        assert_eq!(first_wrong(&buf, 1, 96, Else::Wrong, scratch), None);
        assert_eq!(first_wrong(&buf, 2, 96, Else::BeforeOrHole, scratch), Some(96));
        assert_eq!(first_wrong(&buf, 1, 104, Else::BeforeOrHole, scratch), Some(104));
        fill(&mut buf[32..], 1, BEFORE, 128);
        assert_eq!(first_wrong(&buf, 1, 96, Else::Before, scratch), None);
        assert_eq!(first_wrong(&buf, 1, 96, Else::Wrong, scratch), Some(128));
        buf[40..50].fill(0);
        assert_eq!(first_wrong(&buf, 1, 96, Else::Before, scratch), Some(136));
        assert_eq!(first_wrong(&buf, 1, 96, Else::BeforeOrHole, scratch), None);
    }
}

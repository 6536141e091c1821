//! What files hold: bytes that depend on the file and the offset alone, so that any transfer can be checked, whoever
//! wrote it and by whatever pieces.

use weft_workload::{FileRef, mix};

/// After so many bytes the filling between stamps begins again.
const PERIOD: usize = 16 << 10;

/// Bytes between two stamps: few enough to cost next to nothing while time is taken, close enough that a piece of a
/// transfer in a wrong place is noticed.
const STAMP_EVERY: usize = 512;
const STAMP_LEN: usize = 8;

/// Makes contents, for transfers of up to a length; grows when a longer one comes.
#[derive(Debug, Default)]
pub struct Content {
    /// Byte i is the filling of offset i; between a stamp's place and the next nothing is ever changed.
    filling: Vec<u8>,
}

impl Content {
    /// For transfers of up to `longest` bytes.
    pub fn new(longest: usize) -> Self {
        let mut content = Self::default();
        content.reach(longest);
        content
    }

    fn reach(&mut self, len: usize) {
        let wanted = len + PERIOD + STAMP_LEN;
        let fill = |at: usize| {
            let word = mix((at % PERIOD / 8) as u64).to_le_bytes();
            word[at % 8]
        };
        self.filling.extend((self.filling.len()..wanted).map(fill));
    }

    /// What `file` holds in `len` bytes from `offset`.
    pub fn of(&mut self, file: FileRef, offset: u64, len: usize) -> &[u8] {
        self.reach(len);
        let begin = (offset % PERIOD as u64) as usize;
        // A period is a whole number of stamps, so stamps have fixed places here, too.
        let mut at = begin - begin % STAMP_EVERY;
        let mut stamped = offset - (begin - at) as u64;
        while at < begin + len {
            let stamp = mix(!stamped ^ (u64::from(file.0) << 40)).to_le_bytes();
            self.filling[at..at + STAMP_LEN].copy_from_slice(&stamp);
            at += STAMP_EVERY;
            stamped += STAMP_EVERY as u64;
        }
        &self.filling[begin..begin + len]
    }

    /// The first offset at which `bytes`, read from `offset`, is not what `file` holds.
    pub fn first_difference(&mut self, file: FileRef, offset: u64, bytes: &[u8]) -> Option<u64> {
        let expected = self.of(file, offset, bytes.len());
        if bytes == expected {
            return None;
        }
        bytes.iter().zip(expected).position(|(a, b)| a != b).map(|at| offset + at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_depend_on_the_offset_alone() {
        let mut content = Content::default();
        let file = FileRef(3);
        let whole = content.of(file, 0, 200_000).to_vec();
        for case in 0..2000 {
            let offset = mix(case) % 150_000;
            let len = (mix(case + 5000) % 50_000) as usize;
            let piece = &whole[offset as usize..offset as usize + len];
            assert_eq!(content.first_difference(file, offset, piece), None, "{len} bytes at {offset}");
        }
    }

    #[test]
    fn a_piece_in_a_wrong_place_is_noticed() {
        let mut content = Content::new(65_536);
        let (here, there) = (FileRef(0), FileRef(1));
        let mut bytes = content.of(here, 1000, 65_536).to_vec();
        assert_eq!(content.first_difference(here, 1000, &bytes), None);
        // The first stamp from 1000 on lies at 1024.
        assert_eq!(content.first_difference(there, 1000, &bytes), Some(1024));
        assert_eq!(content.first_difference(here, 1000 + PERIOD as u64, &bytes), Some(1024 + PERIOD as u64));
        let moved = content.of(here, 1000 + 2 * PERIOD as u64, 4096).to_vec();
        bytes[8192..12_288].copy_from_slice(&moved);
        let at = content.first_difference(here, 1000, &bytes).expect("noticed");
        assert!((9192..9192 + STAMP_EVERY as u64).contains(&at), "{at}");
    }
}

//! File contents that depend only on the file and the offset, so that any read can be checked, however it was written.

use weft_core::random::splitmix64;
use weft_workload::FileRef;

/// Period in bytes of the filler between stamps.
const PERIOD_BYTES: usize = 16 << 10;

/// Distance between two stamps in bytes.
///
/// Sparse enough to cost almost nothing in a timed phase, dense enough to detect a misplaced part of a transfer.
const STAMP_DISTANCE: usize = 512;
const STAMP_LEN: usize = 8;

/// Generates contents.
#[derive(Debug, Default)]
pub struct Content {
    /// Byte i is the filler at offset i. Only the places of stamps are overwritten.
    filler: Vec<u8>,
}

impl Content {
    /// Allocates filler for transfers of up to `longest` bytes.
    pub fn new(longest: usize) -> Self {
        let mut content = Self::default();
        content.extend_to(longest);
        content
    }

    fn extend_to(&mut self, len: usize) {
        let wanted = len + PERIOD_BYTES + STAMP_LEN;
        let fill = |at: usize| {
            let word = splitmix64((at % PERIOD_BYTES / 8) as u64).to_le_bytes();
            word[at % 8]
        };
        self.filler.extend((self.filler.len()..wanted).map(fill));
    }

    /// Returns the `len` bytes of `file` at `offset`.
    pub fn of(&mut self, file: FileRef, offset: u64, len: usize) -> &[u8] {
        self.extend_to(len);
        let begin = (offset % PERIOD_BYTES as u64) as usize;
        // The period is a multiple of the stamp distance, so stamps keep their places in the filler.
        let mut at = begin - begin % STAMP_DISTANCE;
        let mut stamped = offset - (begin - at) as u64;
        while at < begin + len {
            let stamp = splitmix64(!stamped ^ (u64::from(file.0) << 40)).to_le_bytes();
            self.filler[at..at + STAMP_LEN].copy_from_slice(&stamp);
            at += STAMP_DISTANCE;
            stamped += STAMP_DISTANCE as u64;
        }
        &self.filler[begin..begin + len]
    }

    /// Returns the first offset at which `bytes`, read at `offset`, differ from the content of `file`.
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
    fn content_depends_only_on_the_offset() {
        let mut content = Content::default();
        let file = FileRef(3);
        let whole = content.of(file, 0, 200_000).to_vec();
        for case in 0..2000 {
            let offset = splitmix64(case) % 150_000;
            let len = (splitmix64(case + 5000) % 50_000) as usize;
            let piece = &whole[offset as usize..offset as usize + len];
            assert_eq!(content.first_difference(file, offset, piece), None, "{len} bytes at {offset}");
        }
    }

    #[test]
    fn misplaced_data_is_detected() {
        let mut content = Content::new(65_536);
        let (first, second) = (FileRef(0), FileRef(1));
        let mut bytes = content.of(first, 1000, 65_536).to_vec();
        assert_eq!(content.first_difference(first, 1000, &bytes), None);
        // The first stamp at or after offset 1000 is at 1024.
        assert_eq!(content.first_difference(second, 1000, &bytes), Some(1024));
        let period = PERIOD_BYTES as u64;
        assert_eq!(content.first_difference(first, 1000 + period, &bytes), Some(1024 + period));
        let moved = content.of(first, 1000 + 2 * period, 4096).to_vec();
        bytes[8192..12_288].copy_from_slice(&moved);
        let at = content.first_difference(first, 1000, &bytes).expect("a difference");
        assert!((9192..9192 + STAMP_DISTANCE as u64).contains(&at), "{at}");
    }
}

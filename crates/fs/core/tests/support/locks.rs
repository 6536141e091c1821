//! A naive model of locks: per owner and byte, the mode held, or nothing.

use proptest::prelude::*;
use weft_core::ByteRange;
use weft_core::locks::{HeldLock, LockMode};

pub const BYTES: usize = 24;
pub const OWNERS: usize = 4;

#[derive(Clone, Default)]
pub struct Model {
    held: [[Option<LockMode>; BYTES]; OWNERS],
}

fn bytes(range: ByteRange) -> std::ops::Range<usize> {
    range.start() as usize..(range.end() as usize).min(BYTES)
}

impl Model {
    /// Returns true if `other` holds a lock that conflicts with the request.
    pub fn blocks(&self, other: usize, owner: usize, range: ByteRange, mode: LockMode) -> bool {
        let excludes =
            |held: &Option<LockMode>| held.is_some_and(|h| [h, mode].contains(&LockMode::Exclusive));
        other != owner && self.held[other][bytes(range)].iter().any(excludes)
    }

    pub fn blockers(&self, owner: usize, range: ByteRange, mode: LockMode) -> Vec<usize> {
        (0..OWNERS).filter(|&other| self.blocks(other, owner, range, mode)).collect()
    }

    pub fn set(&mut self, owner: usize, range: ByteRange, mode: Option<LockMode>) {
        self.held[owner][bytes(range)].fill(mode);
    }

    /// Returns every maximal range of one owner and mode, sorted.
    pub fn locks(&self) -> Vec<HeldLock<usize>> {
        let mut found = Vec::new();
        for (owner, held) in self.held.iter().enumerate() {
            let mut from = 0;
            for byte in 1..=BYTES {
                if byte < BYTES && held[byte] == held[from] {
                    continue;
                }
                if let (Some(mode), Some(range)) = (held[from], ByteRange::new(from as u64, byte as u64)) {
                    found.push(HeldLock { range, mode, owner });
                }
                from = byte;
            }
        }
        found.sort();
        found
    }
}

pub fn ranges() -> impl Strategy<Value = ByteRange> {
    let any = (0..BYTES as u64, 1..=BYTES as u64)
        .prop_filter_map("empty", |(start, len)| ByteRange::new(start, (start + len).min(BYTES as u64)));
    // Short ranges meet, split and merge more often than long ones.
    let short = (0..BYTES as u64 - 3, 1u64..4)
        .prop_filter_map("empty", |(start, len)| ByteRange::with_len(start, len));
    prop_oneof![any, short]
}

pub fn modes() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)]
}

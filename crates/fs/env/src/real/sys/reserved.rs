//! Descriptors of a host program that belong to this library: one bit for each number.
//!
//! A program that closes all unknown descriptors must skip these.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers above this limit are not tracked; floors are lower.
const NUMBERS_MAX: usize = 1 << 16;

static RESERVED: [AtomicU64; NUMBERS_MAX / 64] = [const { AtomicU64::new(0) }; NUMBERS_MAX / 64];

fn word(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((RESERVED.get(number / 64)?, 1 << (number % 64)))
}

pub fn set(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_or(bit, Relaxed);
    }
}

pub fn clear(fd: RawFd) {
    if let Some((word, bit)) = word(fd)
        && word.load(Relaxed) & bit != 0
    {
        word.fetch_and(!bit, Relaxed);
    }
}

pub fn has(fd: RawFd) -> bool {
    word(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

pub fn all() -> Vec<RawFd> {
    let words = RESERVED.iter().enumerate().filter(|(_, word)| word.load(Relaxed) != 0);
    words
        .flat_map(|(at, word)| {
            let word = word.load(Relaxed);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (at * 64 + bit) as RawFd)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reserved_until_cleared() {
        // Above the numbers that other tests of this process use.
        for fd in [60_000, 60_063, 60_064] {
            assert!(!has(fd));
            set(fd);
            assert!(has(fd) && all().contains(&fd));
            clear(fd);
            assert!(!has(fd) && !all().contains(&fd));
        }
        set(-1);
        set(1 << 20);
        assert!(!has(-1) && !has(1 << 20));
    }
}

//! Access pattern of a file handle: sequential or random.

use crate::units::{Extent, FileOffset};

/// Relation of a request to the previous one on the same handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Begins where the previous request ended; for the first request, at the start of the file.
    Sequential,
    /// Begins anywhere else.
    Random,
}

/// Access history of a handle. It is a single number, so a client can keep it in an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AccessHistory {
    next: FileOffset,
}

impl AccessHistory {
    /// Returns the history of a handle without requests.
    pub const fn new() -> Self {
        Self { next: FileOffset::ZERO }
    }

    /// Returns the history of a handle whose last request ended at `next`.
    pub const fn after(next: FileOffset) -> Self {
        Self { next }
    }

    /// Returns the offset at which a sequential request would begin.
    pub const fn next(self) -> FileOffset {
        self.next
    }

    /// Classifies a request and records it. An empty request counts as sequential and changes nothing.
    #[inline]
    pub fn observe(&mut self, extent: Extent) -> Access {
        if extent.len.0 == 0 {
            return Access::Sequential;
        }
        let access = if extent.offset == self.next { Access::Sequential } else { Access::Random };
        self.next = FileOffset(extent.offset.0.saturating_add(extent.len.0));
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_sequential_and_a_jump_is_not() {
        let mut history = AccessHistory::new();
        assert_eq!(history.observe(Extent::new(0, 10)), Access::Sequential);
        assert_eq!(history.observe(Extent::new(10, 10)), Access::Sequential);
        assert_eq!(history.observe(Extent::new(500, 0)), Access::Sequential);
        assert_eq!(history.observe(Extent::new(30, 10)), Access::Random);
        assert_eq!(history.observe(Extent::new(40, 1)), Access::Sequential);
        assert_eq!(history.observe(Extent::new(40, 1)), Access::Random, "the same byte again");
        assert_eq!(AccessHistory::after(FileOffset(41)), history);
    }

    #[test]
    fn a_first_request_in_the_middle_is_random() {
        assert_eq!(AccessHistory::new().observe(Extent::new(1, 1)), Access::Random);
    }
}

//! What a file handle remembers of its accesses: just enough to call one sequential or random.

use crate::units::{Extent, FileOffset};

/// How a request stands to the one before it on the same handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// It begins where the one before ended (the first: at the start of the file).
    Sequential,
    /// Anything else.
    Random,
}

/// The state behind [`Access`], one per handle. It is one number, so that a client may keep it in an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AccessHistory {
    next: FileOffset,
}

impl AccessHistory {
    /// A handle that has seen no request.
    pub const fn new() -> Self {
        Self { next: FileOffset::ZERO }
    }

    /// A handle whose last request ended at `next`.
    pub const fn after(next: FileOffset) -> Self {
        Self { next }
    }

    /// Where a sequential request would begin.
    pub const fn next(self) -> FileOffset {
        self.next
    }

    /// Judges a request and remembers it. An empty request counts as sequential and changes nothing.
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
        assert_eq!(history.observe(Extent::new(40, 1)), Access::Random, "reading the same byte again");
        assert_eq!(AccessHistory::after(FileOffset(41)), history);
    }

    #[test]
    fn a_handle_that_starts_in_the_middle_starts_at_random() {
        assert_eq!(AccessHistory::new().observe(Extent::new(1, 1)), Access::Random);
    }
}

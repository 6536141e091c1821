//! Runs of bytes that were asked for of late: what goes on where one ends is a part of it, and the system in front of the
//! disk joins what it writes of them.

use super::average::DiskRequest;

/// How many runs are remembered.
const RUNS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    file: u64,
    start: u64,
    end: u64,
}

/// The latest runs of one disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Runs {
    runs: [Run; RUNS],
    oldest: usize,
}

impl Runs {
    /// None yet.
    pub const fn new() -> Self {
        // A run that nothing touches: no request begins at the last offset.
        Self { runs: [Run { file: u64::MAX, start: u64::MAX, end: u64::MAX }; RUNS], oldest: 0 }
    }

    /// Takes a request; whether it touches a run.
    pub fn join(&mut self, request: &DiskRequest) -> bool {
        let (file, start) = (request.file, request.offset.0);
        let end = start.saturating_add(request.len.0);
        let touches = |run: &&mut Run| run.file == file && run.start <= end && start <= run.end;
        if let Some(run) = self.runs.iter_mut().find(touches) {
            (run.start, run.end) = (run.start.min(start), run.end.max(end));
            return true;
        }
        self.runs[self.oldest] = Run { file, start, end };
        self.oldest = (self.oldest + 1) % RUNS;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ByteLen, LocalOffset};

    fn request(file: u64, offset: u64, len: u64) -> DiskRequest {
        DiskRequest { file, offset: LocalOffset(offset), len: ByteLen(len), write: true }
    }

    #[test]
    fn what_touches_a_run_is_a_part_of_it() {
        let mut runs = Runs::new();
        assert!(!runs.join(&request(1, 100, 10)));
        assert!(runs.join(&request(1, 110, 10)), "behind");
        assert!(runs.join(&request(1, 90, 10)), "before");
        assert!(runs.join(&request(1, 95, 2)), "inside");
        assert!(!runs.join(&request(1, 121, 10)), "a byte away");
        assert!(!runs.join(&request(2, 120, 10)), "another datafile");
        assert!(runs.join(&request(1, 120, 1)));
    }

    #[test]
    fn the_oldest_run_is_forgotten_first() {
        let mut runs = Runs::new();
        for file in 0..RUNS as u64 {
            assert!(!runs.join(&request(file, 0, 10)));
        }
        assert!(runs.join(&request(0, 10, 10)));
        assert!(!runs.join(&request(1000, 0, 10)));
        assert!(!runs.join(&request(0, 20, 10)));
        assert!(runs.join(&request(2, 10, 10)));
    }
}

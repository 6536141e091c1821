//! Runs of bytes that were asked for of late: what goes on where one ends is a part of it, and the system in front of the
//! disk joins what it writes of them.

use super::average::DiskRequest;

/// How many runs are remembered.
const RUNS: usize = 64;
/// What begins or ends within so many times its own length of a run is near it: with that many writers of one run, it goes on
/// in no order.
pub(super) const NEAR: u64 = 128;

/// How a request lies to the runs before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It touches one.
    Part,
    /// It lies near one: the gap will be filled by others.
    Near,
    /// It is on its own.
    Alone,
}

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

    /// Takes a request.
    pub fn join(&mut self, request: &DiskRequest) -> Standing {
        let (file, start) = (request.file, request.offset.0);
        let end = start.saturating_add(request.len.0);
        let touches = |run: &&mut Run| run.file == file && run.start <= end && start <= run.end;
        if let Some(run) = self.runs.iter_mut().find(touches) {
            (run.start, run.end) = (run.start.min(start), run.end.max(end));
            return Standing::Part;
        }
        let reach = request.len.0.saturating_mul(NEAR);
        let is_near = |run: &Run| {
            run.file == file
                && run.start <= end.saturating_add(reach)
                && start <= run.end.saturating_add(reach)
        };
        let standing = if self.runs.iter().any(is_near) { Standing::Near } else { Standing::Alone };
        self.runs[self.oldest] = Run { file, start, end };
        self.oldest = (self.oldest + 1) % RUNS;
        standing
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
        use Standing::{Alone, Near, Part};
        let mut runs = Runs::new();
        assert_eq!(runs.join(&request(1, 1000, 10)), Alone);
        assert_eq!(runs.join(&request(1, 1010, 10)), Part, "behind");
        assert_eq!(runs.join(&request(1, 990, 10)), Part, "before");
        assert_eq!(runs.join(&request(1, 995, 2)), Part, "inside");
        assert_eq!(runs.join(&request(1, 1021, 10)), Near, "a byte away");
        assert_eq!(runs.join(&request(2, 1020, 10)), Alone, "another datafile");
        assert_eq!(runs.join(&request(1, 1020, 1)), Part);
        assert_eq!(runs.join(&request(1, 1031 + 1281, 10)), Alone, "too far behind");
        assert_eq!(runs.join(&request(1, 990 - 130, 1)), Alone, "too far before");
        assert_eq!(runs.join(&request(1, 3600, 10)), Near);
    }

    #[test]
    fn the_oldest_run_is_forgotten_first() {
        use Standing::{Alone, Part};
        let mut runs = Runs::new();
        for file in 0..RUNS as u64 {
            assert_eq!(runs.join(&request(file, 0, 10)), Alone);
        }
        assert_eq!(runs.join(&request(0, 10, 10)), Part);
        assert_eq!(runs.join(&request(1000, 0, 10)), Alone);
        assert_eq!(runs.join(&request(0, 20, 10)), Alone);
        assert_eq!(runs.join(&request(2, 10, 10)), Part);
    }
}

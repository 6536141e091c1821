//! Recent sequential runs. A request that continues a run is a part of it, and the I/O scheduler merges
//! their writes.

use super::average::DiskRequest;

/// Number of runs remembered.
const RUNS_MAX: usize = 64;
/// A request within this multiple of its own length of a run is near it. A run written by that many processes in no
/// order stays within this distance.
pub(super) const NEAR_FACTOR: u64 = 128;

/// Position of a request relative to recent runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Adjacency {
    /// Touches a run.
    Adjacent,
    /// Near a run: other requests will fill the gap.
    Near,
    /// Isolated.
    Isolated,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    file: u64,
    start: u64,
    end: u64,
}

/// Recent runs on one disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Runs {
    runs: [Run; RUNS_MAX],
    oldest: usize,
}

impl Runs {
    /// Returns an empty list.
    pub const fn new() -> Self {
        // A run that no request touches, because no request begins at the last offset.
        Self { runs: [Run { file: u64::MAX, start: u64::MAX, end: u64::MAX }; RUNS_MAX], oldest: 0 }
    }

    /// Records a request.
    pub fn join(&mut self, request: &DiskRequest) -> Adjacency {
        let (file, start) = (request.file, request.offset.0);
        let end = start.saturating_add(request.len.0);
        let touches = |run: &&mut Run| run.file == file && run.start <= end && start <= run.end;
        if let Some(run) = self.runs.iter_mut().find(touches) {
            (run.start, run.end) = (run.start.min(start), run.end.max(end));
            return Adjacency::Adjacent;
        }
        let reach = request.len.0.saturating_mul(NEAR_FACTOR);
        let is_near = |run: &Run| {
            run.file == file
                && run.start <= end.saturating_add(reach)
                && start <= run.end.saturating_add(reach)
        };
        let adjacency = if self.runs.iter().any(is_near) { Adjacency::Near } else { Adjacency::Isolated };
        self.runs[self.oldest] = Run { file, start, end };
        self.oldest = (self.oldest + 1) % RUNS_MAX;
        adjacency
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
    fn requests_that_touch_a_run_are_part_of_it() {
        use Adjacency::{Adjacent, Isolated, Near};
        let mut runs = Runs::new();
        assert_eq!(runs.join(&request(1, 1000, 10)), Isolated);
        assert_eq!(runs.join(&request(1, 1010, 10)), Adjacent, "behind");
        assert_eq!(runs.join(&request(1, 990, 10)), Adjacent, "before");
        assert_eq!(runs.join(&request(1, 995, 2)), Adjacent, "inside");
        assert_eq!(runs.join(&request(1, 1021, 10)), Near, "a byte away");
        assert_eq!(runs.join(&request(2, 1020, 10)), Isolated, "another datafile");
        assert_eq!(runs.join(&request(1, 1020, 1)), Adjacent);
        assert_eq!(runs.join(&request(1, 1031 + 1281, 10)), Isolated, "too far behind");
        assert_eq!(runs.join(&request(1, 990 - 130, 1)), Isolated, "too far before");
        assert_eq!(runs.join(&request(1, 3600, 10)), Near);
    }

    #[test]
    fn the_oldest_run_is_dropped_first() {
        use Adjacency::{Adjacent, Isolated};
        let mut runs = Runs::new();
        for file in 0..RUNS_MAX as u64 {
            assert_eq!(runs.join(&request(file, 0, 10)), Isolated);
        }
        assert_eq!(runs.join(&request(0, 10, 10)), Adjacent);
        assert_eq!(runs.join(&request(1000, 0, 10)), Isolated);
        assert_eq!(runs.join(&request(0, 20, 10)), Isolated);
        assert_eq!(runs.join(&request(2, 10, 10)), Adjacent);
    }
}

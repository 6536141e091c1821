//! Runs of bytes that the disk has served of late: a request that goes on where one ends moves no arm.

use super::average::DiskRequest;

/// How many runs are remembered.
const STREAMS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    file: u64,
    start: u64,
    end: u64,
}

/// The latest runs of one disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Streams {
    runs: [Option<Run>; STREAMS],
    oldest: usize,
}

impl Streams {
    pub const fn new() -> Self {
        Self { runs: [None; STREAMS], oldest: 0 }
    }

    fn find(&self, request: &DiskRequest) -> Option<usize> {
        let (start, end) = range(request);
        let touches = |run: &Run| run.file == request.file && run.start <= end && start <= run.end;
        self.runs.iter().position(|run| run.as_ref().is_some_and(touches))
    }

    /// Whether the request lies at or in a run.
    pub fn continues(&self, request: &DiskRequest) -> bool {
        self.find(request).is_some()
    }

    /// The disk serves the request.
    pub fn served(&mut self, request: &DiskRequest) {
        let (start, end) = range(request);
        if let Some(run) = self.find(request).and_then(|index| self.runs[index].as_mut()) {
            (run.start, run.end) = (run.start.min(start), run.end.max(end));
            return;
        }
        self.runs[self.oldest] = Some(Run { file: request.file, start, end });
        self.oldest = (self.oldest + 1) % STREAMS;
    }
}

fn range(request: &DiskRequest) -> (u64, u64) {
    (request.offset.0, request.offset.0.saturating_add(request.len.0))
}

//! Targets and network links as queues.

use super::head::Head;
use super::write_back::{NEAR_BYTES, SyncProgress, WriteBackBuffer};
use crate::figures::{Class, Head as HeadFigures, Service};
use std::collections::VecDeque;

/// A device is parallel if four requests at a time take less than this fraction of the time of one, each.
const PARALLEL_TIME_MAX: f64 = 0.5;
/// Request length for that test, bytes.
const PARALLEL_TEST_LEN: f64 = 4096.0;
/// Stream ends that a target remembers to recognize interleaved streams.
const STREAMS_MAX: usize = 64;

/// Whether a class serves requests of a direction in parallel. A disk with one head never does, even if it reorders many
/// queued requests so well that each takes a small part of the time.
pub(super) fn is_parallel(class: &Class, service: &Service) -> bool {
    class.read.head.is_none()
        && service.random_ns(4, PARALLEL_TEST_LEN)
            < PARALLEL_TIME_MAX * service.random_ns(1, PARALLEL_TEST_LEN)
}

/// A range of a datafile.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatafileRange {
    /// Datafile number.
    pub(super) object: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl DatafileRange {
    fn bounds(self) -> (u64, u64, u64) {
        (self.object, self.offset, self.offset.saturating_add(self.len))
    }
}

/// A target: its device, page cache and links.
#[derive(Clone, Default)]
pub(super) struct Target {
    pub(super) class: usize,
    free_at: f64,
    pub(super) busy_ns: f64,
    /// Completion times of the requests in the queue.
    completions: VecDeque<f64>,
    /// Datafile and end offset of the most recent streams, the latest last.
    stream_ends: VecDeque<(u64, u64)>,
    write_back: WriteBackBuffer,
    /// Reads that wait for the disk head, where the figures have one.
    pub(super) head: Head,
    /// Bytes read and written so far.
    pub(super) moved_bytes: f64,
    pub(super) into: Link,
    pub(super) out: Link,
}

/// One direction of a link.
#[derive(Clone, Copy, Default)]
pub(super) struct Link {
    pub(super) free_at: f64,
    pub(super) busy_ns: f64,
}

impl Link {
    /// Carries bytes requested at `now` that are ready at `ready`. Data that is ready late does not delay other
    /// messages.
    pub(super) fn carry(&mut self, now: f64, ready: f64, transfer_ns: f64) -> f64 {
        self.free_at = self.free_at.max(now) + transfer_ns;
        self.busy_ns += transfer_ns;
        self.free_at.max(ready + transfer_ns)
    }
}

impl Target {
    /// An idle target of a class.
    pub(super) fn of(class: usize) -> Self {
        Self { class, ..Self::default() }
    }

    /// Reads the parts of a range that the page cache does not hold, and returns when that is done.
    pub(super) fn read(&mut self, now: f64, class: &Class, range: DatafileRange, is_parallel: bool) -> f64 {
        let (write, object) = (&class.write, range.object);
        self.busy_ns += self.write_back.flush_due(now, write);
        let ranges = self.write_back.clean_ranges(now, write, range.bounds());
        // A read waits for write-back in progress.
        let delay_ns = class.read.read_delay.map_or(0.0, |delay| {
            let write_back_ns = self.write_back.time_to_threshold(now, write);
            (write_back_ns - delay.overlap_us * 1e3).clamp(0.0, delay.max_us * 1e3)
        });
        let (mut at, mut end) = (range.offset, now);
        for (from, to) in ranges {
            self.advance_stream(object, at, from);
            let free_at = self.free_at.max(now + delay_ns);
            let missing = DatafileRange { object, offset: from, len: to - from };
            end = end.max(self.serve_from(now, now + delay_ns, &class.read, missing, is_parallel));
            if !is_parallel {
                // Write-back is deferred while the device serves the read.
                self.write_back.defer_for_read(now, now + delay_ns, self.free_at - free_at, write);
            }
            at = to;
        }
        self.advance_stream(object, at, range.offset.saturating_add(range.len));
        end
    }

    /// Advances a stream past a range that the page cache answered.
    fn advance_stream(&mut self, object: u64, from: u64, to: u64) {
        if from < to
            && let Some(end) = self.stream_ends.iter_mut().find(|end| **end == (object, from))
        {
            end.1 = to;
        }
    }

    /// Serves a request that arrives at `now`, and returns its completion time.
    pub(super) fn serve(
        &mut self,
        now: f64,
        service: &Service,
        range: DatafileRange,
        is_parallel: bool,
    ) -> f64 {
        self.serve_from(now, now, service, range, is_parallel)
    }

    /// Serves a request that arrives at `now` no earlier than `from`, and returns its completion time.
    fn serve_from(
        &mut self,
        now: f64,
        from: f64,
        service: &Service,
        range: DatafileRange,
        is_parallel: bool,
    ) -> f64 {
        let DatafileRange { object, offset, len } = range;
        while self.completions.front().is_some_and(|end| *end <= now) {
            self.completions.pop_front();
        }
        let bytes = len as f64;
        let last = self.stream_ends.back().filter(|(last, _)| *last == object);
        let last = last.map(|(_, end)| offset.abs_diff(*end));
        let stream = self.stream_ends.iter().position(|end| *end == (object, offset));
        if let Some(stream) = stream {
            self.stream_ends.remove(stream);
        } else if self.stream_ends.len() == STREAMS_MAX {
            self.stream_ends.pop_front();
        }
        self.stream_ends.push_back((object, offset.saturating_add(len)));
        let depth = self.completions.len() as u32 + 1;
        let (device_ns, at_least) = match last {
            Some(0) => (service.sequential.ns(bytes), 0.0),
            Some(1..=NEAR_BYTES) => (service.near_ns(bytes), 0.0),
            _ if is_parallel => (service.random_ns(u32::MAX, bytes), service.random_ns(1, bytes)),
            _ if stream.is_some() => (service.streams_ns(depth, bytes), 0.0),
            _ => (service.random_ns(depth, bytes), 0.0),
        };
        self.busy_ns += device_ns;
        self.free_at = self.free_at.max(from) + device_ns;
        let end = self.free_at.max(from + at_least);
        self.completions.push_back(end);
        end
    }

    /// Queues a read for the head, and returns whether it has to wait.
    pub(super) fn queue_read(
        &mut self,
        now: f64,
        of: (u32, u32),
        range: DatafileRange,
        is_again: bool,
        service: &Service,
        figures: &HeadFigures,
    ) -> bool {
        self.head.add_rank_read(now, of, range, is_again, service, figures)
    }

    /// Starts the next read of the head, if one waits, and returns when its data has passed.
    pub(super) fn start_next(&mut self, now: f64, class: &Class, figures: &HeadFigures) -> Option<f64> {
        let passed = self.head.start_next(now, &class.read, figures)?;
        self.busy_ns += passed - now;
        self.free_at = self.free_at.max(passed);
        // Write-back is deferred while the head serves the read.
        self.write_back.defer_for_read(now, now, passed - now, &class.write);
        Some(passed)
    }

    /// Adds dirty bytes at `now`, and returns when the page cache has accepted them.
    pub(super) fn buffer_write(&mut self, now: f64, service: &Service, range: DatafileRange) -> f64 {
        let (taken, device_ns) = self.write_back.write(now, service, range.bounds());
        self.busy_ns += device_ns;
        taken
    }

    /// Writes the dirty data of a datafile; see [`WriteBackBuffer::sync`].
    pub(super) fn sync(&mut self, now: f64, service: &Service, object: u64, since: u64) -> SyncProgress {
        let (synced, device_ns) = self.write_back.sync(now, service, object, since);
        self.busy_ns += device_ns;
        synced
    }

    /// How often all dirty data of a datafile has been submitted for a sync.
    pub(super) fn synced(&self, object: u64) -> u64 {
        self.write_back.synced(object)
    }

    /// Writes all dirty data after the ranks have ended at `end`, and returns when it is on the device.
    pub(super) fn flush_all(&mut self, end: f64, service: &Service) -> f64 {
        self.busy_ns += self.write_back.flush_all(end, service);
        self.free_at.max(self.write_back.idle_at())
    }
}

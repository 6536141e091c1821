//! A disk head above a rotating medium, and its request queues.
//!
//! ```text
//!             scheduler queue                    device queue (NCQ)          head
//! requests ─> sorted by address, merged, ──────> up to `takes` ────────────> the request reached first
//!             split to 512 KiB
//!
//! previous request ended at `from` ──> look-ahead into the drive's cache ──> `until`
//! a byte b passes the head at  since + (b - from) / rate,  and again after every rotation
//! ```
//!
//! 1. The operating system sorts waiting requests by address and submits them in ascending order (elevator).
//! 2. The drive serves the submitted request whose first byte reaches the head first.
//! 3. The drive keeps reading past the end of a request. Bytes that have passed are in its cache; bytes within the
//!    look-ahead pass soon. All other bytes pass when the seek has settled and the platter has rotated far enough.

use super::read_ahead::ReadAhead;
use super::target::DatafileRange;
use crate::figures::{Head as Figures, Service};
use std::collections::VecDeque;

/// Adjacent requests are merged up to this length, and longer requests are split, bytes.
const REQUEST_MAX: u64 = 512 << 10;
/// Age at which a request is served before all others, nanoseconds.
const EXPIRY_NS: f64 = 5e8;
/// Requests submitted in ascending order before the scheduler checks for an expired one.
const BATCH_REQUESTS: u32 = 16;

/// A contiguous range to read from the device.
#[derive(Clone, Debug)]
struct DeviceRequest {
    object: u64,
    start: u64,
    end: u64,
    since: f64,
    /// Numbers of the read requests that need this range.
    readers: Vec<u32>,
}

/// A read request that waits for its device requests.
#[derive(Clone, Default, Debug)]
struct ReadRequest {
    of: Origin,
    /// Device requests that have not completed, and other reads that bring part of the range.
    left: u32,
    /// Reads that wait for this one.
    waiters: Vec<u32>,
}

/// Where a read request comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A rank's request, and the index of the target request in it.
    Rank(u32, u32),
    /// Read-ahead: datafile and first byte.
    ReadAhead(u64, u64),
}

impl Default for Origin {
    fn default() -> Self {
        Self::ReadAhead(0, 0)
    }
}

/// The drive's look-ahead: byte `from` passed the head at `since`, and everything from `start` on is in its cache.
#[derive(Clone, Copy, Debug)]
struct LookAhead {
    object: u64,
    start: u64,
    from: u64,
    since: f64,
    until: u64,
}

/// A head with its queues.
#[derive(Clone, Default)]
pub(super) struct Head {
    /// Scheduler queue, by address.
    waiting: Vec<DeviceRequest>,
    /// Requests queued in the device.
    submitted: Vec<DeviceRequest>,
    /// Request that the head is serving.
    serving: Option<DeviceRequest>,
    /// Datafile and end of the request submitted last.
    last_submitted: (u64, u64),
    /// Requests left to submit in ascending order before the next check for an expired one.
    batch_left: u32,
    read_ahead: ReadAhead,
    reads: Vec<ReadRequest>,
    free_numbers: Vec<u32>,
    look_ahead: Option<LookAhead>,
    /// Requests that the drive's cache answered at once.
    cache_hits: Vec<DeviceRequest>,
    /// Cache segments of earlier look-aheads: datafile, begin, end.
    segments: VecDeque<(u64, u64, u64)>,
}

/// When the head reaches a request.
#[derive(Clone, Copy)]
struct Reach {
    /// When its first byte passes.
    begins: f64,
    /// When its last byte has passed.
    passed: f64,
    kind: AccessKind,
}

#[derive(Clone, Copy, PartialEq)]
enum AccessKind {
    Cached,
    LookAhead,
    Seek,
}

impl Head {
    /// Whether the head is serving a request.
    pub(super) fn is_busy(&self) -> bool {
        self.serving.is_some()
    }

    /// Adds a rank's request and returns whether it has to wait. `is_again` says that the range was accessed before.
    pub(super) fn add_rank_read(
        &mut self,
        now: f64,
        (rank, part): (u32, u32),
        range_in_datafile: DatafileRange,
        is_again: bool,
        service: &Service,
        figures: &Figures,
    ) -> bool {
        let DatafileRange { object, offset, len } = range_in_datafile;
        let range = (offset, offset.saturating_add(len));
        if is_again || figures.read_ahead.0 == 0 {
            // The range was in the page cache and has been evicted since.
            self.read_ahead.evict(object, range);
        }
        let waits = self.add_read(now, Origin::Rank(rank, part), object, range);
        if figures.read_ahead.0 > 0
            && let Some((from, to)) = self.read_ahead.next_window(object, range, figures.read_ahead.0)
        {
            let mut gaps = Vec::new();
            self.read_ahead.missing(object, (from, to), &mut gaps, &mut Vec::new());
            for gap in gaps {
                self.add_read(now, Origin::ReadAhead(object, gap.0), object, gap);
            }
        }
        self.submit(now, service, figures);
        waits
    }

    fn add_read(&mut self, now: f64, of: Origin, object: u64, range: (u64, u64)) -> bool {
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.reads.push(ReadRequest::default());
            self.reads.len() as u32 - 1
        });
        let (mut gaps, mut in_flight) = (Vec::new(), Vec::new());
        self.read_ahead.missing(object, range, &mut gaps, &mut in_flight);
        let mut left = in_flight.len() as u32;
        in_flight.into_iter().for_each(|by| self.reads[by as usize].waiters.push(number));
        let by = matches!(of, Origin::ReadAhead(..)).then_some(number);
        for (from, to) in gaps {
            self.read_ahead.insert(object, (from, to), by);
            let mut start = from;
            while start < to {
                let end = to.min(start + REQUEST_MAX);
                self.add(DeviceRequest { object, start, end, since: now, readers: vec![number] });
                (start, left) = (end, left + 1);
            }
        }
        if left == 0 {
            self.free_numbers.push(number);
            return false;
        }
        self.reads[number as usize] = ReadRequest { of, left, waiters: Vec::new() };
        true
    }

    fn add(&mut self, mut request: DeviceRequest) {
        let mut at = self
            .waiting
            .partition_point(|other| (other.object, other.start) < (request.object, request.start));
        let joins = |a: &DeviceRequest, b: &DeviceRequest| {
            a.object == b.object && a.end == b.start && b.end - a.start <= REQUEST_MAX
        };
        if at > 0 && joins(&self.waiting[at - 1], &request) {
            at -= 1;
            let mut before = self.waiting.remove(at);
            before.end = request.end;
            before.readers.append(&mut request.readers);
            request = before;
        }
        if self.waiting.get(at).is_some_and(|after| joins(&request, after)) {
            let mut after = self.waiting.remove(at);
            request.end = after.end;
            request.readers.append(&mut after.readers);
            request.since = request.since.min(after.since);
        }
        self.waiting.insert(at, request);
    }

    /// Submits queued requests to the device: in ascending order, or an expired one first. Requests that the drive's
    /// cache can answer complete at once.
    fn submit(&mut self, now: f64, service: &Service, figures: &Figures) {
        let queue_depth = figures.queue_depth as usize;
        while self.submitted.len() + usize::from(self.serving.is_some()) < queue_depth.max(1)
            && !self.waiting.is_empty()
        {
            let is_before = |request: &DeviceRequest| (request.object, request.start) < self.last_submitted;
            let ahead = self.waiting.partition_point(is_before);
            let index = if self.batch_left > 0 && ahead < self.waiting.len() {
                self.batch_left -= 1;
                ahead
            } else {
                self.batch_left = BATCH_REQUESTS - 1;
                let since = |index: &usize| self.waiting[*index].since;
                let oldest = (0..self.waiting.len()).min_by(|a, b| since(a).total_cmp(&since(b)));
                let expired = oldest.filter(|oldest| now - since(oldest) > EXPIRY_NS);
                expired.unwrap_or(if ahead < self.waiting.len() { ahead } else { 0 })
            };
            let mut request = self.waiting.remove(index);
            request.since = now;
            self.last_submitted = (request.object, request.end);
            match self.is_cached(now, &request, service) {
                true => self.cache_hits.push(request),
                false => self.submitted.push(request),
            }
        }
    }

    /// Starts the request that is reached first, and returns when its last byte passes.
    pub(super) fn start_next(&mut self, now: f64, service: &Service, figures: &Figures) -> Option<f64> {
        self.submit(now, service, figures);
        let mut first: Option<(usize, Reach)> = None;
        for (index, request) in self.submitted.iter().enumerate() {
            if now - request.since > EXPIRY_NS {
                first = Some((index, self.reach(now, request, service, figures)));
                break;
            }
            let reach = self.reach(now, request, service, figures);
            if first.is_none_or(|(_, best)| reach.begins < best.begins) {
                first = Some((index, reach));
            }
        }
        let (index, reach) = first?;
        let request = self.submitted.remove(index);
        if reach.kind != AccessKind::Cached {
            let reads_on = figures.look_ahead.0;
            let before = self.look_ahead.filter(|_| reach.kind == AccessKind::LookAhead);
            let before = before.map(|look_ahead| look_ahead.start);
            if reach.kind == AccessKind::Seek {
                self.end_look_ahead(now, service, figures);
            }
            let start = before
                .unwrap_or(request.start)
                .min(request.start)
                .max(request.end.saturating_sub(reads_on))
                .min(request.end);
            self.look_ahead = Some(LookAhead {
                object: request.object,
                start,
                from: request.end,
                since: reach.passed,
                until: request.end.saturating_add(reads_on),
            });
        }
        self.serving = Some(request);
        Some(reach.passed)
    }

    /// Completes the request that the head is serving.
    pub(super) fn finish_current(&mut self) {
        self.cache_hits.extend(self.serving.take());
    }

    /// Appends the ranks, and the indices of their target requests, whose data has arrived since the last call.
    pub(super) fn take_completed(&mut self, done: &mut Vec<(u32, u32)>) {
        while let Some(request) = self.cache_hits.pop() {
            self.complete(request, done);
        }
    }

    fn complete(&mut self, request: DeviceRequest, done: &mut Vec<(u32, u32)>) {
        let mut readers = request.readers;
        while let Some(number) = readers.pop() {
            let read = &mut self.reads[number as usize];
            read.left -= 1;
            if read.left > 0 {
                continue;
            }
            readers.append(&mut read.waiters);
            match read.of {
                Origin::Rank(rank, part) => done.push((rank, part)),
                Origin::ReadAhead(object, start) => self.read_ahead.mark_present(object, start),
            }
            self.free_numbers.push(number);
        }
    }

    /// Whether a request is entirely in the drive's cache.
    fn is_cached(&self, now: f64, request: &DeviceRequest, service: &Service) -> bool {
        let DeviceRequest { object, start, end, .. } = *request;
        let holds = |(of, from, to): (u64, u64, u64)| of == object && from <= start && end <= to;
        let passed = |look_ahead: &LookAhead| {
            let until = look_ahead.from as f64 + (now - look_ahead.since) / service.sequential.byte_ns();
            (look_ahead.object, look_ahead.start, (until.max(0.0) as u64).min(look_ahead.until))
        };
        self.segments.iter().copied().any(holds) || self.look_ahead.as_ref().map(passed).is_some_and(holds)
    }

    fn reach(&self, now: f64, request: &DeviceRequest, service: &Service, figures: &Figures) -> Reach {
        let DeviceRequest { object, start, end, .. } = *request;
        let rate = service.sequential.byte_ns();
        if self.is_cached(now, request, service) {
            return Reach { begins: now, passed: now, kind: AccessKind::Cached };
        }
        let Some(look_ahead) = self.look_ahead else {
            let begins = now + figures.seek_ns(u64::MAX);
            return Reach { begins, passed: begins + (end - start) as f64 * rate, kind: AccessKind::Seek };
        };
        // First pass of a byte under the head. The rotational position of another datafile is unknown, so any value
        // serves.
        let passes = |byte: u64| look_ahead.since + (byte as f64 - look_ahead.from as f64) * rate;
        let after_seek = |byte: u64, seek: f64| {
            let (rotation, earliest, first) = (figures.rotation_us * 1e3, now + seek, passes(byte));
            first + ((earliest - first) / rotation).ceil() * rotation
        };
        if look_ahead.object == object && (look_ahead.start..=look_ahead.until).contains(&start) {
            if end <= look_ahead.until || passes(look_ahead.until) > now {
                // The head is already on its way there.
                return Reach {
                    begins: passes(start).max(now),
                    passed: passes(end).max(now),
                    kind: AccessKind::LookAhead,
                };
            }
            let begins = after_seek(look_ahead.until, 0.0);
            let passed = begins + (end - look_ahead.until) as f64 * rate;
            return Reach { begins, passed, kind: AccessKind::LookAhead };
        }
        // Datafiles lie next to each other, so the distance between two is about the length of the longer one.
        let is_same = look_ahead.object == object;
        let distance = if is_same { start.abs_diff(look_ahead.from) } else { start.max(look_ahead.from) };
        let begins = after_seek(start, figures.seek_ns(distance));
        Reach { begins, passed: begins + (end - start) as f64 * rate, kind: AccessKind::Seek }
    }

    /// Ends the look-ahead and keeps what it has read as a cache segment.
    fn end_look_ahead(&mut self, now: f64, service: &Service, figures: &Figures) {
        let Some(look_ahead) = self.look_ahead.take() else { return };
        let passed = ((now - look_ahead.since).max(0.0) / service.sequential.byte_ns()) as u64;
        let position = look_ahead.from.saturating_add(passed).min(look_ahead.until);
        if self.segments.len() >= figures.cache_segments as usize {
            self.segments.pop_front();
        }
        if figures.cache_segments > 0 {
            self.segments.push_back((look_ahead.object, look_ahead.start, position));
        }
    }
}

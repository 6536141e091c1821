//! Write-back: dirty data of the page cache on its way to the device.
//!
//! ```text
//! write ──> dirty ranges ──────────> in flight ────────────────> device cache ──> medium
//!           | by datafile, offset    | ascending, in portions  |
//!           `─── reads of these are answered from memory ──────'
//! ```
//!
//! The device begins to write when the dirty bytes reach the threshold (`gathers`), and continues while there are that
//! many. A read of other data waits for this write-back, but no longer than was measured (`waits`).

use crate::figures::Service;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes submitted to the device at a time. Ranges written meanwhile are sorted in with the rest.
const PORTION_BYTES: f64 = 16e6;
/// Gap up to which a request counts as near the end of the previous one, bytes.
pub(super) const NEAR_BYTES: u64 = 1 << 20;

/// Datafile, begin and end.
type Range = (u64, u64, u64);

/// A contiguous run submitted to the device. `from` and `to` are when it is written if no read defers it.
#[derive(Clone, Copy)]
struct InFlightRun {
    range: Range,
    from: f64,
    to: f64,
    /// Bytes submitted before this run.
    before: f64,
}

/// The dirty data of a target's page cache.
#[derive(Clone, Default)]
pub(super) struct WriteBackBuffer {
    /// Dirty ranges that were not submitted.
    dirty: BTreeSet<Range>,
    dirty_bytes: f64,
    /// Length of the longest dirty range ever.
    longest_dirty: u64,
    /// Number of completed sync submissions by datafile.
    synced: BTreeMap<u64, u64>,
    /// Datafile and end of the last submitted range.
    position: Option<(u64, u64)>,
    /// Bytes in flight to the device, and the interval in which it writes them.
    in_flight_bytes: f64,
    flush_begin: f64,
    flush_end: f64,
    /// Runs in flight in submission order, and an index by datafile and begin: the end, and the bytes submitted before.
    in_flight: VecDeque<InFlightRun>,
    in_flight_index: BTreeMap<(u64, u64), (u64, f64)>,
    longest_in_flight: u64,
    /// Total bytes submitted.
    submitted_bytes: f64,
    /// Time for which reads have deferred the write-back so far, and deferrals still to come: begin and duration.
    deferred_ns: f64,
    deferrals: VecDeque<(f64, f64)>,
    /// Begin of the current uninterrupted write-back.
    busy_since: f64,
}

/// Progress of a sync.
pub(super) enum SyncProgress {
    /// Completes at this time.
    Complete(f64),
    /// Must be retried at this time, when the device is free.
    RetryAt(f64),
}

impl WriteBackBuffer {
    /// When everything submitted is on the device.
    pub(super) fn idle_at(&self) -> f64 {
        self.flush_end
    }

    /// Defers the write-back by `device_ns` because the device serves a read at `from`.
    pub(super) fn defer_for_read(&mut self, now: f64, from: f64, device_ns: f64, service: &Service) {
        if self.time_to_threshold(now, service) <= from - now {
            return;
        }
        self.flush_end += device_ns;
        self.deferrals.push_back((from, device_ns));
    }

    /// Submits what would have been submitted by now, down to the threshold. Returns the device time.
    pub(super) fn flush_due(&mut self, now: f64, service: &Service) -> f64 {
        self.flush_while_idle(now, service, |over| over.clamp(1.0, PORTION_BYTES))
    }

    /// Submits portions while the device is idle and the threshold is reached.
    fn flush_while_idle(&mut self, now: f64, service: &Service, part: impl Fn(f64) -> f64) -> f64 {
        let mut device_ns = 0.0;
        while self.flush_end <= now && self.dirty_bytes >= threshold(service).max(1.0) {
            device_ns += self.submit(self.flush_end, service, part(self.dirty_bytes - threshold(service)));
        }
        device_ns
    }

    /// Adds dirty bytes at `now`. Returns when the page cache has accepted them, and the device time of the bytes that
    /// this submits.
    pub(super) fn write(&mut self, now: f64, service: &Service, range: Range) -> (f64, f64) {
        // A writer adds more data, so whole portions are submitted.
        let mut device_ns = self.flush_while_idle(now, service, |_| PORTION_BYTES);
        let (object, start, end) = range;
        if self.dirty.insert((object, start, end)) {
            self.dirty_bytes += (end - start) as f64;
            self.longest_dirty = self.longest_dirty.max(end - start);
        }
        if self.flush_end <= now && self.dirty_bytes >= threshold(service) {
            device_ns += self.submit(now, service, PORTION_BYTES);
        }
        let over = self.dirty_bytes + self.unwritten_bytes(now) - service.write_buffer.0 as f64;
        if over <= 0.0 {
            return (now, device_ns);
        }
        while over > self.unwritten_bytes(now) && !self.dirty.is_empty() {
            device_ns += self.submit(now, service, PORTION_BYTES);
        }
        // The excess over the limit has to be written first.
        let left = self.unwritten_bytes(now).max(1.0);
        (now + (self.flush_end - now) * (over / left).min(1.0), device_ns)
    }

    /// Parts of a range that are not dirty and not in flight.
    pub(super) fn clean_ranges(&mut self, now: f64, service: &Service, range: Range) -> Vec<(u64, u64)> {
        let (object, start, end) = range;
        let mut gaps = vec![(start, end)];
        self.drop_written(now);
        // Bytes that have left the page cache, as an offset into everything submitted so far and next.
        let written = self.in_flight.front().map_or(self.submitted_bytes, |run| {
            let part = (now - run.from - self.deferred_ns) / (run.to - run.from).max(1.0);
            run.before + (run.range.2 - run.range.1) as f64 * part.clamp(0.0, 1.0)
        });
        let gone = written + self.device_cache_bytes(now, service);
        let first = (object, start.saturating_sub(self.longest_in_flight));
        for (&(_, from), &(to, before)) in self.in_flight_index.range(first..(object, end)) {
            let part = (gone - before).clamp(0.0, (to - from) as f64) as u64;
            subtract(&mut gaps, (from + part, to));
        }
        let over = (self.dirty_bytes - threshold(service)).max(0.0);
        let next = (gone - self.submitted_bytes).clamp(0.0, over) as u64;
        let position = self.position.filter(|at| at.0 == object);
        let at = position.map_or((0, 0), |(_, at)| (at, at.saturating_add(next)));
        let first = (object, start.saturating_sub(self.longest_dirty), 0);
        for &(_, from, to) in self.dirty.range(first..(object, end, 0)) {
            subtract(&mut gaps, (from, to.min(at.0.max(from))));
            subtract(&mut gaps, (from.max(at.1.min(to)), to));
        }
        gaps
    }

    /// Bytes that the device's own cache has accepted and that are not on the medium yet.
    fn device_cache_bytes(&self, now: f64, service: &Service) -> f64 {
        let is_writing = self.time_to_threshold(now, service) > 0.0;
        let Some(cache) = service.cache.filter(|_| is_writing) else { return 0.0 };
        let gains = (cache.mb_s - service.sequential.mb_s).max(0.0) / 1e3;
        (cache.size.0 as f64).min(gains * (now - self.busy_since))
    }

    /// Time until the write-back has reduced the dirty bytes to the threshold.
    pub(super) fn time_to_threshold(&self, now: f64, service: &Service) -> f64 {
        let over = (self.dirty_bytes - threshold(service)).max(0.0);
        (self.flush_end - now).max(0.0) + over * service.sequential.byte_ns()
    }

    /// Writes the dirty data of a datafile once the device is idle. Returns the progress and the device time. `since`
    /// is the number of syncs when the request was made: data written later is not waited for.
    pub(super) fn sync(
        &mut self,
        now: f64,
        service: &Service,
        object: u64,
        since: u64,
    ) -> (SyncProgress, f64) {
        let of = |range: &Range| range.0 == object;
        if self.synced(object) > since || !self.dirty.iter().any(of) {
            return (SyncProgress::Complete(self.flush_end.max(now)), 0.0);
        }
        if self.flush_end > now {
            return (SyncProgress::RetryAt(self.flush_end), 0.0);
        }
        let others: BTreeSet<_> = self.dirty.iter().filter(|range| !of(range)).copied().collect();
        self.dirty.retain(of);
        self.dirty_bytes = total_len(&self.dirty);
        let device_ns = self.submit(now, service, f64::INFINITY);
        self.flush_end += service.sync_us * 1e3;
        *self.synced.entry(object).or_default() += 1;
        self.dirty_bytes = total_len(&others);
        self.dirty = others;
        (SyncProgress::Complete(self.flush_end), device_ns)
    }

    /// How often all dirty data of a datafile has been submitted for a sync.
    pub(super) fn synced(&self, object: u64) -> u64 {
        self.synced.get(&object).copied().unwrap_or(0)
    }

    /// Submits all dirty data and returns the device time.
    pub(super) fn flush_all(&mut self, now: f64, service: &Service) -> f64 {
        let device_ns = self.flush_due(now, service);
        if self.dirty.is_empty() { device_ns } else { device_ns + self.submit(now, service, f64::INFINITY) }
    }

    /// Drops runs that are on the device.
    fn drop_written(&mut self, now: f64) {
        while let Some((_, device_ns)) = self.deferrals.front().filter(|(from, _)| *from <= now) {
            self.deferred_ns += device_ns;
            self.deferrals.pop_front();
        }
        while let Some(run) = self.in_flight.front().filter(|run| run.to + self.deferred_ns <= now) {
            let place = (run.range.0, run.range.1);
            if self.in_flight_index.get(&place).is_some_and(|(_, before)| *before == run.before) {
                self.in_flight_index.remove(&place);
            }
            self.in_flight.pop_front();
        }
    }

    /// Bytes in flight that are not written yet.
    fn unwritten_bytes(&self, now: f64) -> f64 {
        if self.flush_end <= now || self.flush_end <= self.flush_begin {
            return 0.0;
        }
        self.in_flight_bytes * (self.flush_end - now) / (self.flush_end - self.flush_begin)
    }

    /// Submits up to `most` dirty bytes: upwards from the last position, then from the beginning. Adjacent ranges form
    /// one request. Returns the device time.
    fn submit(&mut self, now: f64, service: &Service, most: f64) -> f64 {
        let dirty_before = self.dirty_bytes;
        let (mut last, mut submitted) = (self.position, 0.0);
        let mut runs: Vec<Range> = Vec::new();
        self.drop_written(now);
        while submitted < most {
            let onward = self.position.and_then(|(object, end)| self.dirty.range((object, end, 0)..).next());
            let Some(range) = onward.or_else(|| self.dirty.first()).copied() else { break };
            self.dirty.remove(&range);
            let (object, from, to) = range;
            submitted += (to - from) as f64;
            match runs.last_mut() {
                Some(run) if run.0 == object && (run.1..=run.2).contains(&from) => run.2 = run.2.max(to),
                _ => runs.push(range),
            }
            self.position = Some((object, to));
        }
        self.in_flight_bytes = self.unwritten_bytes(now) + submitted;
        self.dirty_bytes = dirty_before - submitted;
        // The distance to the next request depends on how many there are to choose from.
        let count = (runs.len() as f64 * dirty_before / submitted.max(1.0)) as u32;
        let begin = self.flush_end.max(now);
        if self.flush_end < now {
            self.busy_since = now;
        }
        let mut device_ns = 0.0;
        let deferred = self.deferred_ns + self.deferrals.iter().map(|(_, device_ns)| device_ns).sum::<f64>();
        for range in runs {
            let (object, from, to) = range;
            let anywhere = service.gathered_ns(count, (to - from) as f64);
            let gap = last.filter(|last| last.0 == object).and_then(|last| from.checked_sub(last.1));
            let run = match gap.filter(|gap| *gap <= NEAR_BYTES) {
                // It may be faster to write across the gap.
                Some(gap) => anywhere.min(service.sequential.ns((gap + to - from) as f64)),
                None => anywhere,
            };
            let from_on = begin + device_ns - deferred;
            let before = self.submitted_bytes;
            self.in_flight.push_back(InFlightRun { range, from: from_on, to: from_on + run, before });
            self.in_flight_index.insert((object, from), (to, self.submitted_bytes));
            self.longest_in_flight = self.longest_in_flight.max(to - from);
            self.submitted_bytes += (to - from) as f64;
            device_ns += run;
            last = Some((object, to));
        }
        (self.flush_begin, self.flush_end) = (now, begin + device_ns);
        device_ns
    }
}

fn threshold(service: &Service) -> f64 {
    service.write_back_threshold.0 as f64
}

/// Total length of ranges.
fn total_len<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> f64 {
    ranges.into_iter().map(|(_, from, to)| (to - from) as f64).sum()
}

/// Removes a range from `gaps`.
fn subtract(gaps: &mut Vec<(u64, u64)>, (from, to): (u64, u64)) {
    for at in (0..gaps.len()).rev() {
        let (start, end) = gaps[at];
        if end <= from || to <= start {
            continue;
        }
        gaps.remove(at);
        let rest = [(start, from.max(start)), (to.min(end), end)];
        rest.into_iter().filter(|(start, end)| start < end).for_each(|gap| gaps.push(gap));
    }
    gaps.sort_unstable();
}

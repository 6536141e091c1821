//! The block layer: queues, merges and orders requests in front of a device.

mod queue;

use crate::drive::{Command, Drive, Verb};
use crate::time::{earliest, from_us};
use queue::{Queue, Slot};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weft_env::device::DeviceCounters;

/// Order in which requests go to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Elevator {
    /// In order of arrival.
    Noop,
    /// In batches by ascending address, reads before writes, with a deadline for each request.
    Deadline,
}

/// Parameters of the queue in front of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockSpec {
    /// Order in which requests go to the device.
    pub elevator: Elevator,
    /// Maximum length of a request in KiB. Merging stops there, and larger requests are split.
    pub request_kib: u64,
    /// Maximum number of requests that the device processes at once.
    pub device_depth: u32,
    /// Number of requests in a batch. Deadlines are checked between batches.
    pub batch: u32,
    /// Milliseconds after which a waiting read goes first.
    pub read_deadline_ms: f64,
    /// Milliseconds after which a waiting write goes first.
    pub write_deadline_ms: f64,
    /// Microseconds that a write to an empty queue waits for adjacent writes.
    pub plug_us: f64,
    /// Microseconds that the device stays idle after a read, to wait for a nearby one.
    pub anticipation_us: f64,
}

impl Default for BlockSpec {
    fn default() -> Self {
        Self {
            elevator: Elevator::Deadline,
            request_kib: 512,
            device_depth: 32,
            batch: 16,
            read_deadline_ms: 500.0,
            write_deadline_ms: 5_000.0,
            plug_us: 0.0,
            anticipation_us: 0.0,
        }
    }
}

/// Number of waiting writes that ends the wait for adjacent writes.
const PLUG_WRITES_MAX: usize = 4;
/// Distance in bytes behind the last read at which a waiting read ends the wait for a nearby one.
const NEARBY_BYTES: u64 = 1 << 20;
/// Number of read batches after which waiting writes get a batch.
const READ_BATCHES_MAX: u32 = 2;

/// A device with its queue.
pub(crate) struct BlockLayer {
    drive: Box<dyn Drive>,
    elevator: Elevator,
    request_max: u64,
    depth: usize,
    batch_max: u32,
    deadlines: [u64; 2],
    plug: u64,
    anticipation: u64,
    /// Queue of reads, then queue of writes.
    queues: [Queue; 2],
    /// Flushes by the number of their piece. They are sent first, and are not ordered with queued requests.
    flushes: VecDeque<u32>,
    in_flight: Vec<Option<InFlight>>,
    free_ids: Vec<u64>,
    in_flight_count: usize,
    sequence: u64,
    batch_left: u32,
    is_writing: bool,
    reads_before: u32,
    last_end: u64,
    last_read_end: Option<(u64, u64)>,
    plugged_until: Option<u64>,
    wake: Option<u64>,
    busy_since: u64,
    counters: DeviceCounters,
    /// Bytes in the queue of reads, then in the queue of writes.
    queued_bytes: [u64; 2],
    ended: Vec<u64>,
}

struct InFlight {
    pieces: Vec<u32>,
    is_read: bool,
    end: u64,
}

impl BlockLayer {
    pub fn new(spec: &BlockSpec, drive: Box<dyn Drive>) -> Self {
        Self {
            elevator: spec.elevator,
            request_max: (spec.request_kib * 1024).max(4096),
            depth: spec.device_depth.max(1) as usize,
            batch_max: spec.batch.max(1),
            deadlines: [spec.read_deadline_ms, spec.write_deadline_ms].map(|ms| from_us(ms * 1e3)),
            plug: from_us(spec.plug_us),
            anticipation: from_us(spec.anticipation_us),
            queues: [Queue::default(), Queue::default()],
            flushes: VecDeque::new(),
            in_flight: Vec::new(),
            free_ids: Vec::new(),
            in_flight_count: 0,
            sequence: 0,
            batch_left: 0,
            is_writing: false,
            reads_before: 0,
            last_end: 0,
            last_read_end: None,
            plugged_until: None,
            wake: None,
            busy_since: 0,
            counters: DeviceCounters::default(),
            queued_bytes: [0; 2],
            ended: Vec::new(),
            drive,
        }
    }

    pub fn capacity(&self) -> u64 {
        self.drive.capacity()
    }

    pub fn counters(&self, now: u64) -> DeviceCounters {
        let mut counters = self.counters.clone();
        counters.read_reasons.queued_bytes = self.queued_bytes[0];
        counters.write_reasons.waiting_bytes = self.queued_bytes[1];
        if self.in_flight_count > 0 {
            counters.busy.0 += now.saturating_sub(self.busy_since);
        }
        counters
    }

    /// Returns the maximum length of a request in bytes.
    pub fn request_max(&self) -> u64 {
        self.request_max
    }

    /// Adds a read or write of at most [`request_max`](Self::request_max) bytes. [`dispatch`](Self::dispatch) sends it.
    pub fn add(&mut self, now: u64, piece: u32, verb: Verb, at: u64, len: u64) {
        debug_assert!(len > 0 && len <= self.request_max && verb != Verb::Flush, "cut before it is added");
        let is_write = verb == Verb::Write;
        if is_write
            && self.plug > 0
            && self.plugged_until.is_none()
            && self.in_flight_count == 0
            && self.queues.iter().all(Queue::is_empty)
        {
            self.plugged_until = Some(now + self.plug);
        }
        self.sequence += 1;
        self.queued_bytes[usize::from(is_write)] += len;
        self.queues[usize::from(is_write)].add(self.sequence, now, piece, at, len, self.request_max);
    }

    /// Adds a flush of the device's cache.
    pub fn add_flush(&mut self, piece: u32) {
        self.flushes.push_back(piece);
    }

    pub fn next_event(&self) -> Option<u64> {
        earliest(self.drive.next_event(), self.wake)
    }

    /// Advances to `now` and appends the pieces that have ended.
    pub fn advance(&mut self, now: u64, done: &mut Vec<u32>) {
        let mut ended = std::mem::take(&mut self.ended);
        self.drive.advance(now, &mut ended);
        for id in ended.drain(..) {
            let flight = self.in_flight[id as usize].take().expect("a command in progress");
            self.free_ids.push(id);
            self.in_flight_count -= 1;
            if self.in_flight_count == 0 {
                self.counters.busy.0 += now - self.busy_since;
            }
            if flight.is_read {
                self.last_read_end = Some((now, flight.end));
            }
            done.extend(flight.pieces);
        }
        self.ended = ended;
        self.dispatch(now);
    }

    /// Sends requests until the device is full.
    pub fn dispatch(&mut self, now: u64) {
        self.wake = None;
        while self.in_flight_count < self.depth && self.drive.has_room() {
            if let Some(piece) = self.flushes.pop_front() {
                self.send(now, Verb::Flush, 0, 0, vec![piece]);
                continue;
            }
            if self.queues.iter().all(Queue::is_empty) || self.stays_idle(now) {
                return;
            }
            let Some((is_write, slot)) = self.choose(now) else { return };
            let request = self.queues[usize::from(is_write)].take(slot);
            self.last_end = request.end;
            let verb = if is_write { Verb::Write } else { Verb::Read };
            let len = request.end - request.start;
            self.queued_bytes[usize::from(is_write)] -= len;
            let count = if is_write { &mut self.counters.writes } else { &mut self.counters.reads };
            *count += 1;
            let bytes = if is_write { &mut self.counters.write_bytes } else { &mut self.counters.read_bytes };
            *bytes += len;
            *self.counters.block_sizes.entry(len).or_default() += 1;
            self.send(now, verb, request.start, len, request.pieces);
        }
    }

    /// Whether to keep the device idle for a better request. Sets the time at which that ends.
    fn stays_idle(&mut self, now: u64) -> bool {
        if let Some(until) = self.plugged_until {
            if now < until && self.queues[0].is_empty() && self.queues[1].len() < PLUG_WRITES_MAX {
                self.wake = Some(until);
                return true;
            }
            self.plugged_until = None;
        }
        if self.anticipation > 0
            && self.in_flight_count == 0
            && let Some((at, end)) = self.last_read_end
        {
            let until = at + self.anticipation;
            if now < until && !self.queues[0].has_between(end, end + NEARBY_BYTES) {
                self.wake = Some(until);
                return true;
            }
        }
        false
    }

    /// Chooses the next request, and returns whether it is a write.
    fn choose(&mut self, now: u64) -> Option<(bool, Slot)> {
        if self.elevator == Elevator::Noop {
            let [read, write] = self.queues.each_ref().map(Queue::oldest);
            return match (read, write) {
                (Some(read), Some(write)) if write.0 < read.0 => Some((true, write.1)),
                (Some(read), _) => Some((false, read.1)),
                (None, write) => write.map(|write| (true, write.1)),
            };
        }
        if self.batch_left > 0
            && let Some(slot) = self.queues[usize::from(self.is_writing)].next_from(self.last_end)
        {
            self.batch_left -= 1;
            return Some((self.is_writing, slot));
        }
        // Start a new batch: reads, unless writes have been passed over too often.
        let has_writes = !self.queues[1].is_empty();
        let must_write = has_writes && self.reads_before >= READ_BATCHES_MAX;
        self.is_writing = self.queues[0].is_empty() || must_write;
        self.reads_before = if self.is_writing || !has_writes { 0 } else { self.reads_before + 1 };
        self.batch_left = self.batch_max - 1;
        let queue = &self.queues[usize::from(self.is_writing)];
        let deadline = self.deadlines[usize::from(self.is_writing)];
        let late = queue.oldest_since().filter(|&(since, _)| now >= since + deadline);
        let slot = late
            .map(|(_, slot)| slot)
            .or_else(|| queue.next_from(self.last_end))
            .or_else(|| queue.next_from(0));
        slot.map(|slot| (self.is_writing, slot))
    }

    fn send(&mut self, now: u64, verb: Verb, at: u64, len: u64, pieces: Vec<u32>) {
        if self.in_flight_count == 0 {
            self.busy_since = now;
        }
        self.in_flight_count += 1;
        let flight = InFlight { pieces, is_read: verb == Verb::Read, end: at + len };
        let id = match self.free_ids.pop() {
            Some(id) => {
                self.in_flight[id as usize] = Some(flight);
                id
            }
            None => {
                self.in_flight.push(Some(flight));
                self.in_flight.len() as u64 - 1
            }
        };
        self.drive.submit(now, Command { id, verb, at, len });
    }
}

//! The simplest disk model: one queue, a time per request and a time per byte.

use crate::device::{DeviceAction, DeviceCounters, DeviceModel, DeviceRequest, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weft_core::Nanos;

/// Time of a request that only the page cache serves, in nanoseconds.
const MEMORY_LATENCY: u64 = 1_000;

/// Disk with one queue, a fixed time per request and a time per byte. Until a sync, a buffered write costs only a copy.
/// Every read reaches the medium.
#[derive(Clone, Debug)]
pub struct SimpleDisk {
    /// Time of an empty request.
    pub latency: Nanos,
    /// Bytes per second of the medium.
    pub bytes_per_s: u64,
    /// Bytes per second of a copy into the page cache.
    pub copy_bytes_per_s: u64,
    busy_until: u64,
    /// Completion time of each ticket.
    ends: BinaryHeap<Reverse<(u64, Ticket)>>,
    /// Bytes in the page cache by file. Bytes that are written again before a sync count, and are written, twice.
    unsynced: BTreeMap<u64, u64>,
    counters: DeviceCounters,
}

impl SimpleDisk {
    /// Creates a disk with these figures.
    pub fn new(latency: Nanos, bytes_per_s: u64) -> Self {
        assert!(bytes_per_s > 0, "a disk without bandwidth never completes a request");
        Self {
            latency,
            bytes_per_s,
            copy_bytes_per_s: 10_000_000_000,
            busy_until: 0,
            ends: BinaryHeap::new(),
            unsynced: BTreeMap::new(),
            counters: DeviceCounters::default(),
        }
    }

    /// Counts the reasons for bytes on the medium.
    fn count_reasons(&mut self, request: &DeviceRequest) {
        let len = request.len.0;
        let (reads, writes) = (&mut self.counters.read_reasons, &mut self.counters.write_reasons);
        match request.action {
            DeviceAction::Read => reads.requested_bytes += len,
            DeviceAction::Write => {
                writes.requested_bytes += len;
                if !request.is_direct {
                    writes.waiting_bytes += len;
                    *self.unsynced.entry(request.file).or_default() += len;
                }
            }
            DeviceAction::Sync => {
                if let Some(unsynced) = self.unsynced.get_mut(&request.file) {
                    let synced = len.min(*unsynced);
                    *unsynced -= synced;
                    writes.waiting_bytes -= synced;
                }
            }
            DeviceAction::Cut if request.offset.0 == 0 => {
                let dropped = self.unsynced.remove(&request.file).unwrap_or(0);
                writes.waiting_bytes -= dropped;
                writes.dropped_bytes += dropped;
            }
            DeviceAction::Cut | DeviceAction::Discard | DeviceAction::Name | DeviceAction::SyncNames => {}
        }
    }

    /// Returns the completion time of a request that arrives at `now`.
    fn end(&mut self, now: u64, request: &DeviceRequest) -> u64 {
        let len = request.len.0;
        match request.action {
            DeviceAction::Write if !request.is_direct => {
                return now + MEMORY_LATENCY + transfer(len, self.copy_bytes_per_s);
            }
            DeviceAction::Name | DeviceAction::Cut | DeviceAction::Discard => return now + MEMORY_LATENCY,
            DeviceAction::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += len;
            }
            DeviceAction::Write | DeviceAction::Sync | DeviceAction::SyncNames => {
                self.counters.writes += 1;
                self.counters.write_bytes += len;
            }
        }
        *self.counters.block_sizes.entry(len).or_default() += 1;
        let took = self.latency.0 + transfer(len, self.bytes_per_s);
        self.counters.busy.0 += took;
        self.busy_until = self.busy_until.max(now) + took;
        self.busy_until
    }
}

impl Default for SimpleDisk {
    /// Returns a disk similar to a current NVMe drive.
    fn default() -> Self {
        Self::new(Nanos(50_000), 2_000_000_000)
    }
}

/// Returns the time of `len` bytes at `bytes_per_s`, in nanoseconds.
pub(crate) fn transfer(len: u64, bytes_per_s: u64) -> u64 {
    (u128::from(len) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

impl DeviceModel for SimpleDisk {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest) {
        self.count_reasons(request);
        let end = self.end(now.0, request);
        self.ends.push(Reverse((end, ticket)));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.ends.peek().map(|Reverse((end, _))| Nanos(*end))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>) {
        while let Some(&Reverse((end, ticket))) = self.ends.peek()
            && end <= now.0
        {
            self.ends.pop();
            done.push(ticket);
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.counters.clone()
    }
}

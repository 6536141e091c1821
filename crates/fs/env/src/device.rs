//! Disk models, for the simulated world and for targets that emulate the timing of another disk.

use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Nanos};

/// Identifies a request to a modeled disk. The submitter chooses a unique number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Operation of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceAction {
    /// Reads a range of a file.
    Read,
    /// Writes a range of a file, into the page cache unless the request is direct.
    Write,
    /// Writes a file's unsynced bytes (the length of the request) to the medium.
    Sync,
    /// Writes a folder's names to the medium.
    SyncNames,
    /// Looks up or changes a name.
    Name,
    /// Cuts a file at the offset of the request; the space after it is free.
    Cut,
    /// Declares that a range's contents no longer matter; its space stays allocated.
    Discard,
}

/// Request to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRequest {
    /// Operation.
    pub action: DeviceAction,
    /// Number of the file on the disk; zero for names.
    pub file: u64,
    /// Offset in the file.
    pub offset: LocalOffset,
    /// Length.
    pub len: ByteLen,
    /// Whether the request bypasses the page cache.
    pub is_direct: bool,
}

/// Work that has reached a device so far, after its queue merged adjacent requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Reads served.
    pub reads: u64,
    /// Writes served.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub write_bytes: u64,
    /// Time during which the device was not idle.
    pub busy: Nanos,
    /// Number of requests by length in bytes.
    pub block_sizes: BTreeMap<u64, u64>,
    /// Reasons for `read_bytes`.
    pub read_reasons: ReadReasons,
    /// Reasons for `write_bytes`.
    pub write_reasons: WriteReasons,
}

/// Why a device reads more or fewer bytes than the read requests ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadReasons {
    /// Bytes of all read requests.
    pub requested_bytes: u64,
    /// Bytes of read requests to payload files ([`Control::count_payload`](crate::sim::Control::count_payload)).
    pub payload_bytes: u64,
    /// Rest of the sectors or pages that requests cover in part.
    pub padding_bytes: u64,
    /// Read-ahead.
    pub ahead_bytes: u64,
    /// Pages read because a write covers them in part.
    pub for_write_bytes: u64,
    /// Bytes that the page cache, or read-ahead in progress, provides.
    pub cached_bytes: u64,
    /// Bytes of holes.
    pub hole_bytes: u64,
    /// Bytes that wait in the device's queue.
    pub queued_bytes: u64,
    /// `queued_bytes` at the start, if the counters are a difference.
    pub queued_before_bytes: u64,
}

impl ReadReasons {
    /// Returns the bytes that the device must have read.
    pub fn expected_bytes(&self) -> u64 {
        let more = self.padding_bytes + self.ahead_bytes + self.for_write_bytes + self.queued_before_bytes;
        let fewer = self.cached_bytes + self.hole_bytes + self.queued_bytes;
        (self.requested_bytes + more).saturating_sub(fewer)
    }
}

/// Why a device writes more or fewer bytes than the write requests contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteReasons {
    /// Bytes of all write requests.
    pub requested_bytes: u64,
    /// Bytes of write requests to payload files ([`Control::count_payload`](crate::sim::Control::count_payload)).
    pub payload_bytes: u64,
    /// Rest of the sectors or pages that requests cover in part.
    pub padding_bytes: u64,
    /// Journal commits of the local file system.
    pub journal_bytes: u64,
    /// Bytes that were written again while they waited in the page cache.
    pub overwritten_bytes: u64,
    /// Bytes that were truncated, discarded or removed while they waited in the page cache.
    pub dropped_bytes: u64,
    /// Bytes that wait in the page cache or in the device's queue.
    pub waiting_bytes: u64,
    /// `waiting_bytes` at the start, if the counters are a difference.
    pub waiting_before_bytes: u64,
}

impl WriteReasons {
    /// Returns the bytes that the device must have written.
    pub fn expected_bytes(&self) -> u64 {
        let more = self.padding_bytes + self.journal_bytes + self.waiting_before_bytes;
        let fewer = self.overwritten_bytes + self.dropped_bytes + self.waiting_bytes;
        (self.requested_bytes + more).saturating_sub(fewer)
    }
}

impl DeviceCounters {
    /// Subtracts the work that had reached the device `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.reads -= before.reads;
        self.writes -= before.writes;
        self.read_bytes -= before.read_bytes;
        self.write_bytes -= before.write_bytes;
        self.busy.0 -= before.busy.0;
        for (len, count) in &before.block_sizes {
            *self.block_sizes.entry(*len).or_default() -= count;
        }
        self.block_sizes.retain(|_, count| *count > 0);
        let (now, was) = (&mut self.read_reasons, &before.read_reasons);
        now.requested_bytes -= was.requested_bytes;
        now.payload_bytes -= was.payload_bytes;
        now.padding_bytes -= was.padding_bytes;
        now.ahead_bytes -= was.ahead_bytes;
        now.for_write_bytes -= was.for_write_bytes;
        now.cached_bytes -= was.cached_bytes;
        now.hole_bytes -= was.hole_bytes;
        now.queued_before_bytes = was.queued_bytes;
        let (now, was) = (&mut self.write_reasons, &before.write_reasons);
        now.requested_bytes -= was.requested_bytes;
        now.payload_bytes -= was.payload_bytes;
        now.padding_bytes -= was.padding_bytes;
        now.journal_bytes -= was.journal_bytes;
        now.overwritten_bytes -= was.overwritten_bytes;
        now.dropped_bytes -= was.dropped_bytes;
        now.waiting_before_bytes = was.waiting_bytes;
        self
    }
}

/// Model of a disk below a local file system: a state machine driven by the caller's clock.
///
/// `now` never decreases over the calls of one model.
pub trait DeviceModel: Send {
    /// Submits a request that arrives at `now`.
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest);

    /// Returns the time of the model's next event; `None` if the model is idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Advances to `now` and appends the completed tickets in the order of completion.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>);

    /// Declares that the disk is empty at the start: a range that no request wrote is a hole, and reading it needs no
    /// access. Otherwise the previous contents are unknown, and every read accesses the medium.
    fn starts_empty(&mut self) {}

    /// Drops clean pages from the host's page cache, as other work does over a long time.
    fn forget(&mut self) {}

    /// Returns the work that has reached the device so far.
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

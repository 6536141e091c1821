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

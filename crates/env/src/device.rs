//! What a model of a disk is, for the simulated world and for targets that take a modelled disk's time.

use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Nanos};

/// One request to a modelled disk, chosen by whoever submits it and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What a disk is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceAction {
    /// Read a range of a file.
    Read,
    /// Write a range of a file; into memory first unless it is direct.
    Write,
    /// Bring a file's unsynced bytes (the length of the request) to the medium.
    Sync,
    /// Bring a folder's names to the medium.
    SyncNames,
    /// Look up or change a name.
    Name,
    /// The file is cut to the offset of the request: what lay behind it is free.
    Cut,
    /// What lay in a range of a file does not matter any more; it keeps its place.
    Discard,
}

/// One request to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRequest {
    /// What to do.
    pub action: DeviceAction,
    /// Which file of the disk, by a number of its own; zero for names.
    pub file: u64,
    /// Where in the file.
    pub offset: LocalOffset,
    /// How much.
    pub len: ByteLen,
    /// Past the memory of the system.
    pub is_direct: bool,
}

/// What has reached a device so far, after its queue has merged neighbors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Reads served.
    pub reads: u64,
    /// Writes served.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written by its host.
    pub write_bytes: u64,
    /// Time during which it was not idle.
    pub busy: Nanos,
    /// How many requests of each length in bytes it has served.
    pub block_sizes: BTreeMap<u64, u64>,
}

/// A model of a disk below a local file system: a state machine that somebody else's clock drives.
///
/// `now` never runs backwards over the calls of one model.
pub trait DeviceModel: Send {
    /// Takes a request that comes at `now`.
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest);

    /// When the model has something to do next; `None` when it is idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Moves on to `now` and appends the tickets that have ended, in the order of their ends.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>);

    /// All files on it are made by requests to come: what no request wrote is a hole, which no read fetches. Otherwise
    /// what lay there before is not known, and a read finds bytes wherever it looks.
    fn starts_empty(&mut self) {}

    /// Forgets what its host's memory holds of files and need not be written back, as after a long time of other
    /// work.
    fn forget(&mut self) {}

    /// What has reached the device so far.
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

//! Counters of a run over a locking file system.

use weft_models::locks::LockCounters;

/// Work of a locking file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockingOutcome {
    /// Counters of the lock model.
    pub locks: LockCounters,
    /// Bytes that clients wrote back because another client wanted their lock.
    pub revoked_bytes: u64,
    /// Write requests to servers.
    pub write_requests: u64,
    /// Bytes in them.
    pub write_bytes: u64,
    /// Bytes that a client wrote again before it sent them to a server.
    pub overwritten_bytes: u64,
    /// Rest of the units that write requests change in part. Servers write whole units.
    pub unit_rest_bytes: u64,
    /// Reads of a unit that a client changed in part.
    pub unit_reads: u64,
    /// Nanoseconds that all clients together waited for locks.
    pub lock_wait_ns: u64,
}

/// Work of the delegates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DelegatesOutcome {
    /// Most bytes of pages in the memory of one delegate, sampled during the run.
    pub memory_max: u64,
    /// Writes of all delegates to the file system.
    pub file_writes: u64,
    /// Bytes in them.
    pub file_bytes: u64,
    /// Requests that delegates forwarded to others.
    pub forwarded: u64,
    /// Read and write requests of ranks.
    pub requests: u64,
}

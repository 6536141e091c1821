//! How long a disk takes.

use weft_core::{ByteLen, LocalOffset, Nanos};

/// What a disk is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskAction {
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
}

/// One request to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRequest {
    /// What to do.
    pub action: DiskAction,
    /// Which file of the disk, by a number of its own; zero for names.
    pub file: u64,
    /// Where in the file.
    pub offset: LocalOffset,
    /// How much.
    pub len: ByteLen,
    /// Past the memory of the system.
    pub is_direct: bool,
}

/// A model of a disk: it says when a request that comes at `now` ends.
pub trait DiskModel: Send {
    /// When `request` ends; not before `now`. Requests come in the order of `now`.
    fn finish(&mut self, now: Nanos, request: &DiskRequest) -> Nanos;
}

/// A disk with one queue, a fixed time per request and a time per byte; buffered writes cost a copy until a sync.
#[derive(Clone, Debug)]
pub struct SimpleDisk {
    /// Time of a request of no bytes.
    pub latency: Nanos,
    /// Bytes per second of the medium.
    pub bytes_per_s: u64,
    /// Bytes per second of a copy into memory.
    pub copy_bytes_per_s: u64,
    busy_until: u64,
}

impl SimpleDisk {
    /// A disk with these figures.
    pub fn new(latency: Nanos, bytes_per_s: u64) -> Self {
        assert!(bytes_per_s > 0, "a disk without speed never ends a request");
        Self { latency, bytes_per_s, copy_bytes_per_s: 10_000_000_000, busy_until: 0 }
    }
}

impl Default for SimpleDisk {
    /// About a present-day NVMe drive.
    fn default() -> Self {
        Self::new(Nanos(50_000), 2_000_000_000)
    }
}

/// The time of `len` bytes at `bytes_per_s`, in nanoseconds.
pub(crate) fn transfer(len: u64, bytes_per_s: u64) -> u64 {
    (u128::from(len) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}

impl DiskModel for SimpleDisk {
    fn finish(&mut self, now: Nanos, request: &DiskRequest) -> Nanos {
        let buffered = request.action == DiskAction::Write && !request.is_direct;
        if buffered || request.action == DiskAction::Name {
            return Nanos(now.0 + 1_000 + transfer(request.len.0, self.copy_bytes_per_s));
        }
        let start = self.busy_until.max(now.0);
        self.busy_until = start + self.latency.0 + transfer(request.len.0, self.bytes_per_s);
        Nanos(self.busy_until)
    }
}

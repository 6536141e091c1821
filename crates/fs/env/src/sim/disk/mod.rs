//! Simulated disks, which keep the contents of the medium apart from those of the page cache.

mod body;
mod content;
mod device;
mod dir;
mod file;
mod pages;
mod simple;
mod swap;
mod tree;

pub(super) use device::Device;
pub use dir::SimDir;
pub use file::{SimBlockingFile, SimFile};
pub use simple::SimpleDisk;
pub(crate) use simple::transfer;
pub use swap::SpareDisk;
pub(super) use tree::{FolderId, Tree};

use super::rng::Rng;
use super::world::{DeviceId, World};
use crate::device::{DeviceAction, DeviceCounters, DeviceModel, DeviceRequest};
use body::Body;
use pages::PAGE_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::{ByteLen, LocalOffset, Timestamp};

/// Faults of a disk, in cases per million requests, and its capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskFaults {
    /// Reads that fail with `EIO`.
    pub read_errors_per_million: u32,
    /// Writes that fail with `EIO`; a part of the bytes may have been written.
    pub write_errors_per_million: u32,
    /// Syncs that fail with `EIO`; the unsynced bytes may then be lost although later syncs succeed.
    pub sync_errors_per_million: u32,
    /// All times in percent of the model's.
    pub slowness_percent: u32,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            read_errors_per_million: 0,
            write_errors_per_million: 0,
            sync_errors_per_million: 0,
            slowness_percent: 100,
            capacity_bytes: 1 << 40,
        }
    }
}

/// Disk of a machine.
pub(super) struct SimDisk {
    device: Arc<Device>,
    device_id: DeviceId,
    state: Mutex<DiskState>,
    pages_used: Arc<AtomicU64>,
    /// Bytes of read requests and of write requests to payload files.
    payload_bytes: [AtomicU64; 2],
}

struct DiskState {
    tree: Tree,
    faults: DiskFaults,
    /// Folders, each ending in `/`, below which new files store only their lengths, unless their names end in one of
    /// these suffixes.
    hollow: Vec<(String, Vec<String>)>,
    /// Folders and suffixes, as in `hollow`, of files whose bytes are counted as payload.
    payload: Vec<(String, Vec<String>)>,
    rng: Rng,
    inodes_made: u64,
    /// Holder of each locked file: the file's number, the process, and a token of the guard.
    locks: BTreeMap<u64, (super::world::ProcessId, u64)>,
    /// Holders of shared locks: the file's number, and by token the process, and whether it holds the lock exclusively.
    shared_locks: BTreeMap<u64, BTreeMap<u64, (super::world::ProcessId, bool)>>,
    tokens: u64,
}

/// File of a disk.
pub(super) struct SimInode {
    number: u64,
    is_payload: bool,
    state: Mutex<InodeState>,
    pages_used: Arc<AtomicU64>,
}

#[derive(Default)]
struct InodeState {
    content: Body,
    mtime: Timestamp,
    /// Changes before this mark are durable, or are being written by a sync, which the device completes before a later one.
    writing_to: u64,
}

impl Drop for SimInode {
    fn drop(&mut self) {
        self.pages_used.fetch_sub(self.state.get_mut().content.pages(), Relaxed);
    }
}

impl SimInode {
    /// Changes the contents and updates the number of allocated pages.
    fn change<R>(&self, mtime: Timestamp, change: impl FnOnce(&mut Body) -> R) -> R {
        let mut state = self.state.lock();
        let before = state.content.pages();
        let result = change(&mut state.content);
        let after = state.content.pages();
        state.mtime = state.mtime.max(mtime);
        self.pages_used.fetch_add(after.wrapping_sub(before), Relaxed);
        result
    }
}

impl SimDisk {
    /// Creates a disk whose model is the device with this number.
    pub fn new(device: Arc<Device>, device_id: DeviceId, rng: Rng) -> Self {
        let state = DiskState {
            tree: Tree::new(),
            faults: DiskFaults::default(),
            hollow: Vec::new(),
            payload: Vec::new(),
            rng,
            inodes_made: 0,
            locks: BTreeMap::new(),
            shared_locks: BTreeMap::new(),
            tokens: 0,
        };
        Self {
            device,
            device_id,
            state: Mutex::new(state),
            pages_used: Arc::default(),
            payload_bytes: Default::default(),
        }
    }

    pub fn set_faults(&self, world: &World, faults: DiskFaults) {
        self.state.lock().faults = faults;
        self.device.set_slowness(world, self.device_id, faults.slowness_percent);
    }

    pub fn set_model(&self, world: &World, model: Box<dyn DeviceModel>) {
        self.device.set_model(world, model);
    }

    pub fn keep_lengths(&self, folder: &str, except: &[&str]) {
        let except = except.iter().map(|suffix| (*suffix).to_owned()).collect();
        self.state.lock().hollow.push((format!("{folder}/"), except));
    }

    pub fn count_payload(&self, folder: &str, except: &[&str]) {
        let except = except.iter().map(|suffix| (*suffix).to_owned()).collect();
        self.state.lock().payload.push((format!("{folder}/"), except));
    }

    pub fn forget(&self) {
        self.device.forget();
    }

    pub fn counters(&self) -> DeviceCounters {
        let mut counters = self.device.counters();
        let [read, written] = self.payload_bytes.each_ref().map(|bytes| bytes.load(Relaxed));
        counters.read_reasons.payload_bytes = read;
        counters.write_reasons.payload_bytes = written;
        counters
    }

    pub fn lose_power(&self) {
        // The memory of the machine is lost. Requests in the disk's own queue are still served.
        self.device.forget();
        let (files, mut rng) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.locks.clear();
            (state.tree.lose_power(&mut state.rng), state.rng.fork())
        };
        for file in files {
            file.change(Timestamp(0), |content| content.lose_power(&mut rng));
        }
    }

    /// Decides whether this request fails.
    fn check(&self, action: DeviceAction) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let faults = &state.faults;
        let per_million = match action {
            DeviceAction::Read => faults.read_errors_per_million,
            DeviceAction::Write => faults.write_errors_per_million,
            DeviceAction::Sync | DeviceAction::SyncNames => faults.sync_errors_per_million,
            DeviceAction::Name | DeviceAction::Cut | DeviceAction::Discard => 0,
        };
        match state.rng.chance(per_million) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    /// Takes the time of `request` on the device.
    async fn run(&self, world: &World, request: &DeviceRequest) {
        self.device.submit(world, self.device_id, request).end().await;
    }

    /// Reports to the device that all of a file's space is free.
    fn report_removed(&self, world: &World, inode: &SimInode) {
        let request = DeviceRequest {
            action: DeviceAction::Cut,
            file: inode.number,
            offset: LocalOffset(0),
            len: ByteLen(0),
            is_direct: false,
        };
        self.device.submit_unawaited(world, self.device_id, &request);
    }

    fn capacity_bytes(&self) -> u64 {
        self.state.lock().faults.capacity_bytes
    }

    fn used_bytes(&self) -> u64 {
        self.pages_used.load(Relaxed) * PAGE_BYTES
    }

    /// Returns a number below `bound` from the disk's own random stream.
    fn below(&self, bound: u64) -> u64 {
        self.state.lock().rng.below(bound)
    }

    pub fn find_folder(&self, path: &str) -> io::Result<FolderId> {
        self.state.lock().tree.find_folder(Tree::root(), path)
    }
}

//! Journal of the mapping. Records become frames in the order of the mapping's changes; the first waiter writes and
//! syncs for all others (group commit).
//!
//! A log sequence number (LSN) counts records. `written >= lsn` means that a record survives the death of the process;
//! `durable >= lsn` means that it survives a loss of power.

use super::checkpoint::CheckpointInput;
use super::fallback_journal::FALLBACK_FILE;
use super::frame::{self, Kind};
use super::record::Record;
use super::{FragmentLog, LogError, Shared, State};
use crate::emulate;
use std::io::IoSlice;
use weft_core::LocalOffset;
use weft_env::device::DeviceAction;
use weft_env::{Env, File, Notify};

/// Names of the journal's files.
pub(super) const FILES: [&str; 2] = ["map.0", "map.1"];
/// Number of bytes by which a journal file is extended. It is extended by zeros ahead of the frames, so that a sync
/// need not write a new file length.
const EXTEND_STEP_BYTES: u64 = 256 << 10;
const ZEROS: &[u8] = &[0; 1 << 16];
/// Page of the system's memory.
const PAGE_BYTES: u64 = 4096;
/// Maximum capacity in bytes of a frame buffer that is kept for reuse.
const SPARE_BUFFER_BYTES_MAX: usize = 1 << 20;
/// Maximum number of datafiles whose unsynced records are tracked one by one. Beyond that, every datafile counts as
/// unsynced.
const UNSYNCED_DATAFILES_MAX: usize = 65_536;
/// File numbers of the payload file and of the first journal file on an emulated device.
pub(super) const PAYLOADS_NUMBER: u64 = 1;
const FILES_NUMBER: u64 = 2;

/// Progress of the journal.
pub(super) struct Commit {
    /// All records up to this LSN, and all frames up to this number, have been written.
    pub written: u64,
    pub written_frame: u64,
    /// LSN and frame number up to which everything, payloads included, is durable.
    pub durable: u64,
    pub durable_frame: u64,
    /// True while a task writes frames.
    pub leading: bool,
    /// True while a task syncs.
    pub syncing: bool,
    /// Index of the current journal file, and the offset of its next frame.
    pub file: usize,
    pub offset: u64,
    /// Offset of the next frame in the other file while that file receives a checkpoint.
    pub copy_offset: Option<u64>,
    /// Length in bytes to which each file has been extended.
    pub allocated: [u64; 2],
    /// Length of the last checkpoint in bytes.
    pub checkpoint_len: u64,
    /// Empty buffer to fill next.
    pub spare: Vec<u8>,
    pub stop: bool,
    pub task_running: bool,
    /// Number of checkpoints written.
    pub checkpoints: u64,
}

/// Returns the `len` bytes of a frame, and zeros behind it up to the end of the page. A page that is written in part is
/// read first unless it is in memory. Only for the last frame of a file.
fn to_page_end(frame: &[u8], offset: u64, len: usize) -> &[u8] {
    let end = offset + len as u64;
    &frame[..len + (end.next_multiple_of(PAGE_BYTES) - end) as usize]
}

impl State {
    /// Appends a record to the pending frame and returns its LSN.
    pub fn append(&mut self, record: &Record) -> u64 {
        if self.pending.is_empty() {
            frame::start(&mut self.pending);
        }
        record.encode(&mut self.pending);
        self.lsn += 1;
        if let Some(key) = record.key() {
            if self.unsynced_datafiles.len() >= UNSYNCED_DATAFILES_MAX {
                self.unsynced_datafiles.clear();
                self.all_unsynced_lsn = self.lsn;
            }
            self.unsynced_datafiles.insert(key, self.lsn);
        }
        if matches!(record, Record::Put(_)) {
            self.has_unsealed = true;
        }
        self.lsn
    }
}

impl<E: Env> FragmentLog<E> {
    /// Waits until all records up to `lsn` have been written to the file: the death of the process does not undo them.
    pub(super) async fn commit(&self, lsn: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            let leads = {
                let mut commit = shared.commit.lock();
                if commit.written >= lsn {
                    return Ok(());
                }
                shared.check_journal()?;
                !std::mem::replace(&mut commit.leading, true)
            };
            match leads {
                true => self.lead(None).await?,
                false => {
                    shared.progress.wait(epoch, None).await;
                }
            }
        }
    }

    /// Writes all pending records as one frame. The caller holds the lead. With `checkpoint`, also takes a snapshot of
    /// the mapping as of this frame; from then on, frames go to both files.
    pub(super) async fn lead(
        &self,
        checkpoint: Option<&mut Option<CheckpointInput>>,
    ) -> Result<(), LogError> {
        let shared = &*self.0;
        let (taken, mut frame, lsn, number, durable, file, offset, copy_offset) = {
            let mut state = shared.state.lock();
            let mut commit = shared.commit.lock();
            let spare = std::mem::take(&mut commit.spare);
            let frame = std::mem::replace(&mut state.pending, spare);
            let number = commit.written_frame + u64::from(!frame.is_empty());
            let (file, offset, copy_offset) = (commit.file, commit.offset, commit.copy_offset);
            commit.offset += frame.len() as u64;
            commit.copy_offset = copy_offset.map(|at| at + frame.len() as u64);
            let taken =
                checkpoint.is_some().then(|| CheckpointInput { snapshot: state.map.snapshot(), number });
            (taken, frame, state.lsn, number, commit.durable_frame, file, offset, copy_offset)
        };
        let made = taken.as_ref().map(CheckpointInput::len);
        if let (Some(checkpoint), Some(len)) = (checkpoint, made) {
            *checkpoint = taken;
            let mut commit = shared.commit.lock();
            (commit.copy_offset, commit.checkpoint_len) = (Some(len), len);
        }
        let mut result = Ok(());
        if !frame.is_empty() {
            frame::finish(&mut frame, Kind::Changes, number, durable, shared.key);
            let len = frame.len();
            frame.resize(len + PAGE_BYTES as usize, 0);
            result = self.write_frame(file, to_page_end(&frame, offset, len), offset).await;
            if let (Ok(()), Some(offset)) = (&result, copy_offset) {
                result = self.write_frame(1 - file, to_page_end(&frame, offset, len), offset).await;
            }
        }
        if let (Ok(()), Some(len)) = (&result, made) {
            // Extend the file before other frames are written there, because extending overwrites with zeros.
            result = self.extend_file(1 - file, len).await;
        }
        let mut commit = shared.commit.lock();
        commit.leading = false;
        if result.is_ok() {
            (commit.written, commit.written_frame) = (lsn, number);
        }
        frame.clear();
        if frame.capacity() <= SPARE_BUFFER_BYTES_MAX {
            commit.spare = frame;
        }
        drop(commit);
        shared.progress.notify_all();
        result
    }

    /// Writes a frame at an offset that no other task writes. Only the holder of the lead may write beyond the
    /// extended length.
    pub(super) async fn write_frame(&self, file: usize, frame: &[u8], offset: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        self.extend_file(file, offset + frame.len() as u64).await?;
        if file == FALLBACK_FILE {
            return self.write_fallback(frame, offset).await;
        }
        let number = FILES_NUMBER + file as u64;
        let in_flight = shared.begin(DeviceAction::Write, number, offset, frame.len());
        let written = shared.journal[file].write_at(&[IoSlice::new(frame)], LocalOffset(offset)).await;
        written.map_err(|error| shared.fail(FILES[file], "write", &error))?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    async fn extend_file(&self, file: usize, end: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        let Some(allocated) = shared.commit.lock().allocated.get(file).copied() else { return Ok(()) };
        if end <= allocated {
            return Ok(());
        }
        let mut at = allocated;
        while at < end + EXTEND_STEP_BYTES {
            let written = shared.journal[file].write_at(&[IoSlice::new(ZEROS)], LocalOffset(at)).await;
            written.map_err(|error| shared.fail(FILES[file], "extend", &error))?;
            at += ZEROS.len() as u64;
        }
        shared.commit.lock().allocated[file] = at;
        Ok(())
    }

    pub(super) async fn sync_file(&self, file: usize) -> Result<(), LogError> {
        let shared = &*self.0;
        if file == FALLBACK_FILE {
            return self.sync_fallback().await;
        }
        let in_flight = shared.begin(DeviceAction::Sync, FILES_NUMBER + file as u64, 0, 0);
        let synced = shared.journal[file].sync().await;
        synced.map_err(|error| shared.fail(FILES[file], "sync", &error))?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    pub(super) async fn sync_payloads(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        let in_flight = shared.begin(DeviceAction::Sync, PAYLOADS_NUMBER, 0, 0);
        let synced = shared.payloads.sync().await;
        synced.map_err(|error| shared.fail(super::PAYLOADS, "sync", &error))?;
        emulate::finish(in_flight).await;
        Ok(())
    }

    /// Waits until all records up to `lsn` survive a loss of power.
    pub(super) async fn durable(&self, lsn: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            let leads = {
                let mut commit = shared.commit.lock();
                if commit.durable >= lsn {
                    return Ok(());
                }
                shared.check_journal()?;
                !std::mem::replace(&mut commit.syncing, true)
            };
            if !leads {
                shared.progress.wait(epoch, None).await;
                continue;
            }
            let sealed = self.seal().await;
            shared.commit.lock().syncing = false;
            shared.progress.notify_all();
            sealed?;
        }
    }

    /// Makes everything so far durable: syncs the payloads, writes a `Sealed` record, syncs the journal.
    async fn seal(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        let (lsn, unsealed) = {
            let mut state = shared.state.lock();
            // Keep the datafiles of a previous sync that failed: this sync covers them too.
            if state.syncing_datafiles.is_empty() {
                state.syncing_datafiles = std::mem::take(&mut state.unsynced_datafiles);
            }
            (state.lsn, std::mem::take(&mut state.has_unsealed))
        };
        self.commit(lsn).await?;
        // A failed SSD never syncs its remaining payloads; reading detects which are missing.
        if unsealed && shared.check_healthy().is_ok() {
            // A frame is written after the payloads of its puts.
            let frame = shared.commit.lock().written_frame;
            self.sync_payloads().await?;
            let sealed = shared.state.lock().append(&Record::Sealed(frame));
            self.commit(sealed).await?;
        }
        let (file, frame) = {
            let commit = shared.commit.lock();
            (commit.file, commit.written_frame)
        };
        self.sync_file(file).await?;
        {
            let mut commit = shared.commit.lock();
            commit.durable = commit.durable.max(lsn);
            commit.durable_frame = commit.durable_frame.max(frame);
        }
        let synced = std::mem::take(&mut shared.state.lock().syncing_datafiles);
        drop(synced); // Outside the lock.
        Ok(())
    }

    /// Waits until no other task writes frames, and takes the lead.
    pub(super) async fn take_lead(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            if !std::mem::replace(&mut shared.commit.lock().leading, true) {
                return Ok(());
            }
            shared.progress.wait(epoch, None).await;
        }
    }
}

impl<E: Env> Shared<E> {
    /// Starts a request on the emulated SSD, if there is one.
    pub(super) fn begin(
        &self,
        action: DeviceAction,
        file: u64,
        offset: u64,
        len: usize,
    ) -> Option<emulate::InFlight<E>> {
        let device = self.device.as_ref()?;
        Some(device.begin(&emulate::request(action, file, LocalOffset(offset), len)))
    }
}

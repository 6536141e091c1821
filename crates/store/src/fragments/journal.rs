//! The journal: records become frames, in the order of the mapping's changes; whoever waits first writes for all.

use super::checkpoint::Taken;
use super::failed::EXILE;
use super::frame::{self, Kind};
use super::record::Record;
use super::{FragmentLog, LogError, Shared, State};
use crate::emulate;
use std::io::IoSlice;
use weft_core::LocalOffset;
use weft_env::device::DeviceAction;
use weft_env::{Env, File, Notify};

/// The names of its files.
pub(super) const FILES: [&str; 2] = ["map.0", "map.1"];
/// Room is made ahead by zeros, so that a sync has no length of a file to bring along.
const ROOM_STEP: u64 = 256 << 10;
const ZEROS: &[u8] = &[0; 1 << 16];
/// Longer frames leave no buffer behind.
const SPARE_LEN_MAX: usize = 1 << 20;
/// So many datafiles are remembered that have unsynced changes; beyond, all have.
const TOUCHED_MAX: usize = 65_536;
/// Numbers of the payloads' file and of the journal's files on an emulated device.
pub(super) const PAYLOADS_NUMBER: u64 = 1;
const FILES_NUMBER: u64 = 2;

/// Where the journal stands. Points count records.
pub(super) struct Commit {
    /// Written up to this point, and up to this frame.
    pub written: u64,
    pub written_frame: u64,
    /// The same for what is durable, with all payloads.
    pub durable: u64,
    pub durable_frame: u64,
    /// Somebody writes.
    pub leading: bool,
    /// Somebody syncs.
    pub syncing: bool,
    /// The file in use, and where in it the next frame goes.
    pub file: usize,
    pub offset: u64,
    /// Where it goes in the other one, while that is getting a checkpoint.
    pub also: Option<u64>,
    /// How far each file reaches.
    pub room: [u64; 2],
    /// Length of the last checkpoint.
    pub checkpoint_len: u64,
    /// An empty buffer to be filled next.
    pub spare: Vec<u8>,
    pub stop: bool,
    pub keeper: bool,
    /// Checkpoints so far.
    pub checkpoints: u64,
}

impl State {
    /// Takes a record to be written; the point to wait for.
    pub fn append(&mut self, record: &Record) -> u64 {
        if self.pending.is_empty() {
            frame::start(&mut self.pending);
        }
        record.encode(&mut self.pending);
        self.point += 1;
        if let Some(key) = record.key() {
            if self.touched.len() >= TOUCHED_MAX {
                self.touched.clear();
                self.all_touched = self.point;
            }
            self.touched.insert(key, self.point);
        }
        if matches!(record, Record::Put(_)) {
            self.unsealed = true;
        }
        self.point
    }
}

impl<E: Env> FragmentLog<E> {
    /// Waits until everything up to `point` has been handed to the system: the end of the process does not undo it.
    pub(super) async fn commit(&self, point: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            let leads = {
                let mut commit = shared.commit.lock();
                if commit.written >= point {
                    return Ok(());
                }
                shared.journals()?;
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

    /// Writes all that is pending as one frame; the caller has taken the lead. With `checkpoint` takes the mapping as it
    /// is with this frame, and from here on frames go to both files.
    pub(super) async fn lead(&self, checkpoint: Option<&mut Option<Taken>>) -> Result<(), LogError> {
        let shared = &*self.0;
        let (taken, mut frame, point, number, durable, file, offset, also) = {
            let mut state = shared.state.lock();
            let mut commit = shared.commit.lock();
            let spare = std::mem::take(&mut commit.spare);
            let frame = std::mem::replace(&mut state.pending, spare);
            let number = commit.written_frame + u64::from(!frame.is_empty());
            let (file, offset, also) = (commit.file, commit.offset, commit.also);
            commit.offset += frame.len() as u64;
            commit.also = also.map(|at| at + frame.len() as u64);
            let taken = checkpoint.is_some().then(|| Taken { picture: state.map.picture(), number });
            (taken, frame, state.point, number, commit.durable_frame, file, offset, also)
        };
        let made = taken.as_ref().map(Taken::len);
        if let (Some(checkpoint), Some(len)) = (checkpoint, made) {
            *checkpoint = taken;
            let mut commit = shared.commit.lock();
            (commit.also, commit.checkpoint_len) = (Some(len), len);
        }
        let mut result = Ok(());
        if !frame.is_empty() {
            frame::finish(&mut frame, Kind::Changes, number, durable, shared.key);
            result = self.write_frame(file, &frame, offset).await;
            if let (Ok(()), Some(offset)) = (&result, also) {
                result = self.write_frame(1 - file, &frame, offset).await;
            }
        }
        if let (Ok(()), Some(len)) = (&result, made) {
            // Before anybody else writes there: room is made by zeros.
            result = self.make_room(1 - file, len).await;
        }
        let mut commit = shared.commit.lock();
        commit.leading = false;
        if result.is_ok() {
            (commit.written, commit.written_frame) = (point, number);
        }
        frame.clear();
        if frame.capacity() <= SPARE_LEN_MAX {
            commit.spare = frame;
        }
        drop(commit);
        shared.progress.notify_all();
        result
    }

    /// Writes where nobody else writes now; beyond the room there is, only whoever has the lead.
    pub(super) async fn write_frame(&self, file: usize, frame: &[u8], offset: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        self.make_room(file, offset + frame.len() as u64).await?;
        if file == EXILE {
            return self.write_exile(frame, offset).await;
        }
        let number = FILES_NUMBER + file as u64;
        let charge = shared.begin(DeviceAction::Write, number, offset, frame.len());
        let written = shared.journal[file].write_at(&[IoSlice::new(frame)], LocalOffset(offset)).await;
        written.map_err(|error| shared.fail(FILES[file], "write", &error))?;
        emulate::end(charge).await;
        Ok(())
    }

    async fn make_room(&self, file: usize, end: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        let Some(room) = shared.commit.lock().room.get(file).copied() else { return Ok(()) };
        if end <= room {
            return Ok(());
        }
        let mut at = room;
        while at < end + ROOM_STEP {
            let written = shared.journal[file].write_at(&[IoSlice::new(ZEROS)], LocalOffset(at)).await;
            written.map_err(|error| shared.fail(FILES[file], "extend", &error))?;
            at += ZEROS.len() as u64;
        }
        shared.commit.lock().room[file] = at;
        Ok(())
    }

    pub(super) async fn sync_file(&self, file: usize) -> Result<(), LogError> {
        let shared = &*self.0;
        if file == EXILE {
            return self.sync_exile().await;
        }
        let charge = shared.begin(DeviceAction::Sync, FILES_NUMBER + file as u64, 0, 0);
        let synced = shared.journal[file].sync().await;
        synced.map_err(|error| shared.fail(FILES[file], "sync", &error))?;
        emulate::end(charge).await;
        Ok(())
    }

    pub(super) async fn sync_payloads(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        let charge = shared.begin(DeviceAction::Sync, PAYLOADS_NUMBER, 0, 0);
        let synced = shared.payloads.sync().await;
        synced.map_err(|error| shared.fail(super::PAYLOADS, "sync", &error))?;
        emulate::end(charge).await;
        Ok(())
    }

    /// Waits until everything up to `point` survives loss of power.
    pub(super) async fn durable(&self, point: u64) -> Result<(), LogError> {
        let shared = &*self.0;
        loop {
            let epoch = shared.progress.epoch();
            let leads = {
                let mut commit = shared.commit.lock();
                if commit.durable >= point {
                    return Ok(());
                }
                shared.journals()?;
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

    /// Brings everything so far to the device: payloads, then a record that says so, then the journal.
    async fn seal(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        let (point, unsealed) = {
            let mut state = shared.state.lock();
            // What a sync before this one has left behind that failed stays: it will be covered, too.
            if state.being_synced.is_empty() {
                state.being_synced = std::mem::take(&mut state.touched);
            }
            (state.point, std::mem::take(&mut state.unsealed))
        };
        self.commit(point).await?;
        // What the failed SSD has not synced by now it never will; reading finds out what that was.
        if unsealed && shared.fine().is_ok() {
            // All payloads of frames written by now were written before them.
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
            commit.durable = commit.durable.max(point);
            commit.durable_frame = commit.durable_frame.max(frame);
        }
        let synced = std::mem::take(&mut shared.state.lock().being_synced);
        drop(synced); // while nobody waits
        Ok(())
    }

    /// Waits until nobody writes a frame, and lets nobody.
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
    /// Begins a request on the emulated SSD, if there is one.
    pub(super) fn begin(
        &self,
        action: DeviceAction,
        file: u64,
        offset: u64,
        len: usize,
    ) -> Option<emulate::Charge<E>> {
        let device = self.device.as_ref()?;
        Some(device.begin(&emulate::request(action, file, LocalOffset(offset), len)))
    }
}

//! Appending frames to the map, sync, and checkpoints.

use super::frame::{self, Frame, RECORDS_MAX};
use super::header::{Header, HeaderedFile};
use super::record::{RECORD_BYTES, Record, UNIT_BYTES};
use super::{Compressed, MAP_SUFFIX, NEW_SUFFIX, bytes_of};
use crate::content::Fault;
use crate::emulate::ChargedFile;
use crate::error::is_full;
use crate::range_lock::RangeLocks;
use parking_lot::Mutex;
use std::io;
use weft_core::{ByteLen, LocalOffset, Timestamp};
use weft_env::{BlockingFile, Dir, Env, File, OpenMode};

/// Length in bytes below which a map is not replaced by a checkpoint.
const CHECKPOINT_LEN_MIN: u64 = 64 << 10;
/// A sync writes a checkpoint when the map is this many times as long as its live records.
const CHECKPOINT_RATIO: u64 = 4;
/// Length in bytes from which a checkpoint does not wait for a sync by a program.
const UNSYNCED_LEN_MAX: u64 = 4 << 20;
/// Number of bytes that stay allocated behind the end of a map, so that a datafile can shrink on a full disk.
const SLACK_BYTES: u64 = 1 << 10;
/// Pending space in bytes from which it is released without a sync by a program.
const PENDING_BYTES_MAX: u64 = 16 << 20;
/// Pending space, and free space that holds blocks, may be one part in this number of the container.
const PENDING_PART: u64 = 8;
/// Free space in bytes that may hold blocks.
const DIRTY_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of holes punched per sync.
const HOLES_MAX: usize = 256;
/// Maximum number of bytes of a checkpoint written at once.
const WRITE_BYTES: usize = 1 << 20;

/// End of a map that was opened.
#[derive(Default)]
pub(super) struct MapEnd {
    /// Number of the last frame.
    pub last: u64,
    /// Number of the last frame with records.
    pub changed: u64,
    /// Offset behind the last frame.
    pub len: u64,
    /// The bytes that frames up to this number name are on the disk.
    pub sealed: u64,
    /// The frames up to this number are on the disk.
    pub durable: u64,
    /// True if a checkpoint must precede the next frame.
    pub needs_checkpoint: bool,
    /// Number of the frame that, by the header of the container, the map has durably; 0 before its first sync.
    pub marked: u64,
}

/// The open map.
pub(super) struct Journal<E: Env> {
    /// Locked while a frame is appended and applied, or a checkpoint is written.
    appending: RangeLocks<E>,
    /// Locked during a sync, before `appending`.
    syncing: RangeLocks<E>,
    state: Mutex<JournalState<E>>,
}

struct JournalState<E: Env> {
    map: ChargedFile<E>,
    len: u64,
    /// Number of bytes from the start whose space is allocated.
    reserved: u64,
    sealed: u64,
    durable: u64,
    needs_checkpoint: bool,
    marked: u64,
    /// True when a failed write could not be undone, so that no frame can follow.
    is_broken: bool,
    /// True when the datafile was removed, so that no checkpoint may give a map its name again.
    is_removed: bool,
}

/// Cause of a change, which decides about the modification time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A program.
    Program,
    /// Upkeep, which keeps the modification time.
    Upkeep,
}

impl<E: Env> Journal<E> {
    pub fn new(env: &E, map: ChargedFile<E>, end: &MapEnd) -> Self {
        let state = JournalState {
            map,
            len: end.len,
            reserved: end.len,
            sealed: end.sealed,
            durable: end.durable,
            needs_checkpoint: end.needs_checkpoint,
            marked: end.marked,
            is_broken: false,
            is_removed: false,
        };
        Self { appending: RangeLocks::new(env), syncing: RangeLocks::new(env), state: Mutex::new(state) }
    }

    /// Returns the file of the map. A checkpoint replaces it.
    pub fn map(&self) -> E::File {
        self.state.lock().map.file.clone()
    }

    /// Sets the modification time of the map, which is that of the datafile.
    pub async fn set_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        // Upkeep restores the time that it has read before, and a checkpoint copies it.
        let _guard = self.appending.lock(0, 1).await;
        self.map().set_mtime(mtime).await
    }

    /// Returns true if records that failed may nevertheless be in the map.
    pub fn is_broken(&self) -> bool {
        self.state.lock().is_broken
    }
}

fn device_error() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

impl<E: Env> Compressed<E> {
    /// Appends records to the map in one frame, and applies them. The caller has locked their chunks, and has written
    /// the bytes that they name. `end` is the least length of the datafile afterwards.
    ///
    /// # Errors
    /// Errors of the device; nothing is changed then.
    pub(super) async fn commit(&self, mut records: Vec<Record>, end: u64, cause: Cause) -> Result<(), Fault> {
        let _guard = self.journal.appending.lock(0, 1).await;
        // Zeros behind the end have no record of their own.
        let reached = records.iter().map(|record| record.len_min(self.chunk_len)).max().unwrap_or(0);
        if self.state.lock().chunks.len().max(reached) < end {
            records.push(Record::Length { len: end });
        }
        if records.is_empty() {
            if cause == Cause::Program {
                self.journal.map().set_mtime(self.env.wall()).await?;
            }
            return Ok(());
        }
        if self.journal.state.lock().needs_checkpoint {
            self.checkpoint(true).await?;
        }
        let number = self.append(&records, None, cause).await?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut freed = Vec::new();
        for record in &records {
            // Bytes that stay in their place, in another role, are as durable as before.
            let named = match *record {
                Record::Version { chunk, version } => Some((chunk, version.extent())),
                Record::Piece { chunk, piece } => Some((chunk, piece.extent())),
                Record::Hole { .. } | Record::Zeros { .. } | Record::Length { .. } => None,
            };
            if let Some((chunk, named)) = named
                && !state.chunks.get(chunk).extents().any(|before| before.at == named.at)
            {
                state.space.note_named(named);
            }
            state.chunks.apply(record, &mut freed);
            freed.drain(..).for_each(|extent| state.space.free(extent, number));
        }
        (state.last, state.last_change) = (number, number);
        if cause == Cause::Program {
            self.note_change(state);
        }
        Ok(())
    }

    /// Appends a frame without records. `sealed` is a new number of sealed frames. The caller holds the lock
    /// `appending`.
    async fn append_empty(&self, sealed: Option<u64>) -> Result<u64, Fault> {
        let number = self.append(&[], sealed, Cause::Upkeep).await?;
        self.state.lock().last = number;
        Ok(number)
    }

    /// Appends a frame, and returns its number. The caller holds the lock `appending`, and then applies the records and
    /// records the number at once: a sync in between would seal a frame whose places are not known yet.
    async fn append(&self, records: &[Record], sealed: Option<u64>, cause: Cause) -> Result<u64, Fault> {
        let last = self.state.lock().last;
        let (map, at, frames, number) = {
            let state = self.journal.state.lock();
            if state.is_broken {
                return Err(device_error().into());
            }
            let mut frames = Vec::with_capacity(256);
            let sealed = sealed.map_or(state.sealed, |sealed| sealed.max(state.sealed));
            let mut frame = Frame { number: last, sealed, durable: state.durable, boot: self.env.boot() };
            for records in records.chunks(RECORDS_MAX).chain(records.is_empty().then_some(records)) {
                frame.number += 1;
                frame.encode(self.pair, records, &mut frames);
            }
            (state.map.clone(), state.len, frames, frame.number)
        };
        let end = at + frames.len() as u64;
        let grows = records.iter().any(|it| matches!(it, Record::Version { .. } | Record::Piece { .. }));
        if grows && cause == Cause::Program {
            self.reserve(&map, end + SLACK_BYTES)?;
        }
        let mtime = match cause {
            Cause::Program => None,
            Cause::Upkeep => Some(map.file.meta().await?.mtime),
        };
        let mut written = self.write_frames(&map, &frames, at).await;
        if matches!(&written, Err(error) if is_full(error) && !grows)
            && !self.journal.is_broken()
            && self.reserve.release(frames.len()).await
        {
            written = self.write_frames(&map, &frames, at).await;
        }
        written?;
        if let Some(mtime) = mtime {
            // A wrong time is better than a failed operation.
            let _ = map.file.set_mtime(mtime).await;
        }
        self.journal.state.lock().len = end;
        Ok(number)
    }

    /// Writes frames at the end of the map.
    async fn write_frames(&self, map: &ChargedFile<E>, frames: &[u8], at: u64) -> io::Result<()> {
        let written = map.write_at(frames, LocalOffset(at)).await;
        if written.is_err() {
            // Parts of the frame must not be mistaken for one after the next start.
            let is_undone = map.set_len(ByteLen(at)).await.is_ok();
            let mut state = self.journal.state.lock();
            // The truncation has freed what was allocated behind the end.
            (state.is_broken, state.reserved) = (!is_undone, at);
        }
        written
    }

    /// Allocates the space of the map up to `end`.
    fn reserve(&self, map: &ChargedFile<E>, end: u64) -> io::Result<()> {
        const STEP_MIN: u64 = 4 << 10;
        const STEP_MAX: u64 = 256 << 10;
        if self.journal.state.lock().reserved >= end {
            return Ok(());
        }
        let reserved = (end + (end / 4).min(STEP_MAX)).next_multiple_of(STEP_MIN);
        map.file.blocking().reserve(ByteLen(reserved))?;
        self.journal.state.lock().reserved = reserved;
        Ok(())
    }

    /// Makes all changes so far, and the names of the files, survive a loss of power.
    ///
    /// # Errors
    /// Errors of the device. After a failed sync of a file, [`Fault::Unsafe`] until the datafile has been truncated to
    /// length zero.
    pub async fn sync(&self) -> Result<(), Fault> {
        let wanted = self.state.lock().last_change;
        let _guard = self.journal.syncing.lock(0, 1).await;
        if self.has_failed() {
            return Err(Fault::Unsafe);
        }
        {
            let state = self.journal.state.lock();
            if state.is_removed {
                return Ok(());
            }
            // The headers of a new datafile are not durable, even if it has no bytes.
            let is_sealed = state.sealed >= wanted && state.durable >= wanted.max(1);
            if is_sealed && !state.needs_checkpoint && self.names.are_synced() {
                return Ok(());
            }
        }
        Box::pin(self.sync_changes()).await
    }

    /// Makes names and headers of the files survive a loss of power. Does nothing for a datafile that was synced since
    /// it was opened.
    ///
    /// # Errors
    /// Errors of [`sync`](Self::sync).
    pub async fn sync_headers(&self) -> Result<(), Fault> {
        let has_headers = self.journal.state.lock().durable > 0;
        match has_headers {
            true => Ok(self.names.sync().await?),
            false => self.sync().await,
        }
    }

    async fn sync_changes(&self) -> Result<(), Fault> {
        self.sync_names().await?;
        let live = self.state.lock().chunks.live_records() * RECORD_BYTES as u64;
        let (is_long, is_needed) = {
            let state = self.journal.state.lock();
            (state.len > CHECKPOINT_LEN_MIN.max(live * CHECKPOINT_RATIO), state.needs_checkpoint)
        };
        let mut is_done = false;
        if is_long || is_needed {
            let _guard = self.journal.appending.lock(0, 1).await;
            match self.checkpoint(is_needed).await {
                Ok(()) => is_done = true,
                // A full disk. The map is longer than necessary, but complete.
                Err(Fault::Io(_)) if !is_needed && !self.has_failed() => {}
                Err(fault) => return Err(fault),
            }
        }
        if !is_done {
            self.seal().await?;
        }
        self.reserve.allocate().await;
        self.mark_container().await;
        let bound = self.state.lock().chunks.stored() / PENDING_PART;
        self.punch_free(bound.max(DIRTY_BYTES_MAX), HOLES_MAX).await;
        Ok(())
    }

    /// Seals all frames so far, durably.
    async fn seal(&self) -> Result<(), Fault> {
        let mark = {
            let mut state = self.state.lock();
            state.space.begin_seal();
            state.last
        };
        self.sync_file(&self.container).await?;
        let (number, map) = {
            let _guard = self.journal.appending.lock(0, 1).await;
            let number = self.append_empty(Some(mark)).await?;
            (number, self.journal.state.lock().map.clone())
        };
        self.sync_file(&map).await?;
        {
            let mut state = self.journal.state.lock();
            state.sealed = state.sealed.max(mark);
            state.durable = state.durable.max(number);
        }
        self.state.lock().space.sealed(mark);
        // Not synced: it only proves that the frames before it were.
        let _guard = self.journal.appending.lock(0, 1).await;
        let _ = self.append_empty(None).await;
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.upkeep.is_unsafe(self.key)
    }

    async fn sync_file(&self, file: &ChargedFile<E>) -> io::Result<()> {
        let synced = file.sync().await;
        if synced.is_err() {
            self.upkeep.note_unsafe(self.key);
        }
        synced
    }

    async fn sync_names(&self) -> io::Result<()> {
        let synced = self.names.sync().await;
        if synced.is_err() {
            self.upkeep.note_unsafe(self.key);
        }
        synced
    }

    /// Records in the container which frames the map has durably. Not synced, because it only proves that a map without
    /// them is damaged.
    pub(super) async fn mark_container(&self) {
        let durable = {
            let state = self.journal.state.lock();
            if state.durable <= state.marked {
                return;
            }
            state.durable
        };
        let header = Header { progress: durable, ..self.header() };
        if self.container.write_at(&header.encode(HeaderedFile::Container), LocalOffset(0)).await.is_ok() {
            self.journal.state.lock().marked = durable;
        }
    }

    fn header(&self) -> Header {
        let (key, compression, pair) = (self.key, self.compression, self.pair);
        Header { key, compression, pair, boot: self.env.boot(), progress: 0, frames: 0 }
    }

    /// Replaces the map by a new one without replaced records. All changes so far are durable afterwards. On a full
    /// device it takes space from the target's reserve if it `is_needed`. The caller holds the lock `appending`.
    async fn checkpoint(&self, is_needed: bool) -> Result<(), Fault> {
        if self.has_failed() {
            return Err(Fault::Unsafe);
        }
        if self.journal.state.lock().is_removed {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        self.sync_names().await?;
        let (first, records) = {
            let mut state = self.state.lock();
            state.space.begin_seal();
            (state.last + 1, state.chunks.records().collect::<Vec<Record>>())
        };
        self.sync_file(&self.container).await?;
        let (last, bytes) = frame::checkpoint(self.header(), first, &records);
        let dir = self.names.dir();
        let (name, name_new) = (self.key.name() + MAP_SUFFIX, self.key.name() + NEW_SUFFIX);
        let mut written = self.write_map(&name_new, &bytes).await;
        if is_needed
            && matches!(&written, Err(error) if is_full(error))
            && self.reserve.release(bytes.len()).await
        {
            written = self.write_map(&name_new, &bytes).await;
        }
        let map = written?;
        let renamed = async {
            dir.rename(&name_new, &name).await?;
            self.names.sync_again().await
        };
        if let Err(error) = renamed.await {
            // Either map may be the one that a loss of power leaves.
            self.journal.state.lock().is_broken = true;
            self.upkeep.note_unsafe(self.key);
            return Err(error.into());
        }
        {
            let mut state = self.journal.state.lock();
            state.map = map;
            (state.len, state.reserved) = (bytes.len() as u64, bytes.len() as u64);
            (state.sealed, state.durable) = (last, last);
            state.needs_checkpoint = false;
        }
        self.upkeep.note_whole(self.key);
        {
            let mut state = self.state.lock();
            state.last = last;
            state.space.sealed(last);
        }
        if is_needed {
            // The former map has given back what the new one took.
            self.reserve.allocate().await;
        }
        Ok(())
    }

    /// Writes a new map beside the old one, durably. Nothing is left of it after an error.
    async fn write_map(&self, name: &str, bytes: &[u8]) -> io::Result<ChargedFile<E>> {
        let (dir, charge) = (self.names.dir(), self.journal.state.lock().map.charge.clone());
        let map = ChargedFile { file: dir.open(name, OpenMode::CREATE).await?, charge };
        let written = async {
            map.set_len(ByteLen(0)).await?;
            for (index, part) in bytes.chunks(WRITE_BYTES).enumerate() {
                map.write_at(part, LocalOffset((index * WRITE_BYTES) as u64)).await?;
            }
            map.sync().await?;
            map.file.set_mtime(self.journal.map().meta().await?.mtime).await
        };
        match written.await {
            Ok(()) => Ok(map),
            Err(error) => {
                // A full disk needs its space.
                let _ = dir.remove(name).await;
                Err(error)
            }
        }
    }

    /// Waits for a running checkpoint, and prevents others: the datafile was removed.
    pub async fn detach(&self) {
        let _guard = self.journal.appending.lock(0, 1).await;
        self.journal.state.lock().is_removed = true;
    }

    /// Forgets a failed sync, because nothing will be stored any more. The next frame goes to a new map. Returns true
    /// if a sync had failed.
    pub(super) fn forgive(&self) -> bool {
        let was_unsafe = self.upkeep.forgive(self.key);
        self.journal.state.lock().needs_checkpoint |= was_unsafe;
        was_unsafe
    }

    /// Punches holes into free space while more than `bound` bytes of it hold blocks.
    pub(super) async fn punch_free(&self, bound: u64, limit: usize) {
        let dirty = {
            let mut state = self.state.lock();
            match state.space.dirty_units() * UNIT_BYTES > bound {
                true => state.space.take_dirty(limit),
                false => return,
            }
        };
        for extent in dirty {
            let (offset, len) = bytes_of(extent);
            // A file system without holes keeps the blocks, which are used again.
            let is_hole = self.container.punch(offset, len).await.is_ok();
            self.state.lock().space.punched(extent, is_hole);
        }
    }

    /// Returns true if freed space or the map has passed its bound, so that a sync must release space.
    pub(super) fn needs_sync(&self) -> bool {
        let (pending, stored, live) = {
            let state = self.state.lock();
            let pending = state.space.pending_units() * UNIT_BYTES;
            (pending, state.chunks.stored(), state.chunks.live_records() * RECORD_BYTES as u64)
        };
        if self.reserve.is_used() && pending > 0 && !self.has_failed() {
            // The device is full: the next write needs the space.
            return true;
        }
        let state = self.journal.state.lock();
        let is_long = state.len > UNSYNCED_LEN_MAX.max(live * CHECKPOINT_RATIO);
        !self.has_failed() && (is_long || pending > PENDING_BYTES_MAX.max(stored / PENDING_PART))
    }
}

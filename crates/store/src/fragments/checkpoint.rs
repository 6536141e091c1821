//! Checkpoints: the mapping as a whole, so that the journal does not grow for ever.

use super::failed::EXILE;
use super::frame::{self, FrameKey, Kind};
use super::map::Map;
use super::record::Record;
use super::{FragmentLog, LogError, State};
use weft_core::ranges::ByteRange;
use weft_env::{Env, Notify};

/// A checkpoint is made when as many bytes of changes lie behind the last one as this part of a segment, or twice as many
/// as that has.
const CHANGES_SEGMENT_PART: u64 = 16;
/// The length of a part of a checkpoint, about.
const PART_LEN: usize = 1 << 20;

impl<E: Env> FragmentLog<E> {
    /// Whether it is time for a checkpoint.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let changes_min = self.0.spec.segment_len.0 / CHANGES_SEGMENT_PART;
        let commit = self.0.commit.lock();
        let changes = commit.offset.saturating_sub(commit.checkpoint_len);
        commit.file != EXILE && commit.also.is_none() && changes > changes_min.max(2 * commit.checkpoint_len)
    }

    /// Writes the mapping to the other file, which then is the journal. Meanwhile this one goes on.
    pub(super) async fn checkpoint(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        // The other file is about to be overwritten: whatever was durable there alone has to be here first.
        let point = shared.state.lock().append(&Record::Sealed(0));
        self.durable(point).await?;
        self.take_lead().await?;
        // While we have the lead nobody moves the journal to the disk.
        if let Err(error) = shared.fine() {
            shared.commit.lock().leading = false;
            shared.progress.notify_all();
            return Err(error);
        }
        let mut parts = Vec::new();
        self.lead(Some(&mut parts)).await?;
        let other = {
            let commit = shared.commit.lock();
            shared.fine()?;
            1 - commit.file
        };
        self.write_parts(other, &parts).await?;
        self.take_lead().await?;
        let mut commit = shared.commit.lock();
        commit.leading = false;
        let result = shared.fine();
        if let (Ok(()), Some(also)) = (&result, commit.also.take()) {
            (commit.file, commit.offset) = (other, also);
            commit.checkpoints += 1;
        }
        drop(commit);
        shared.progress.notify_all();
        result
    }

    /// The same at the start, when nobody else is there: file `read` has been read.
    pub(super) async fn first_checkpoint(&self, read: usize) -> Result<(), LogError> {
        let shared = &*self.0;
        let other = 1 - read;
        self.sync_file(read).await?;
        let parts = {
            let state = shared.state.lock();
            self.encode(&state, shared.commit.lock().written_frame)
        };
        let len = self.write_parts(other, &parts).await?;
        let mut state = shared.state.lock();
        state.unsealed = false;
        let mut commit = shared.commit.lock();
        (commit.file, commit.offset, commit.checkpoint_len) = (other, len, len);
        Ok(())
    }

    /// Writes a checkpoint and makes it durable; its length.
    async fn write_parts(&self, file: usize, parts: &[Vec<u8>]) -> Result<u64, LogError> {
        let mut at = 0;
        for (index, part) in parts.iter().enumerate() {
            // The last part says that it is whole: of one with payloads that are not durable it must not be there.
            if index + 1 == parts.len() {
                self.sync_payloads().await?;
            }
            self.write_frame(file, part, at).await?;
            at += part.len() as u64;
        }
        self.sync_file(file).await?;
        Ok(at)
    }

    /// The mapping as a checkpoint with the changes up to frame `number`.
    pub(super) fn encode(&self, state: &State, number: u64) -> Vec<Vec<u8>> {
        checkpoint_of(&state.map, self.0.env.boot(), number, self.0.key)
    }
}

/// A mapping as a checkpoint, in parts.
pub(super) fn checkpoint_of(map: &Map, boot: u64, number: u64, key: FrameKey) -> Vec<Vec<u8>> {
    let mut parts = Parts { done: Vec::new(), part: Vec::new(), number, key };
    parts.add(&Record::Begin { boot, sealed: number });
    for (index, segment) in map.segments.iter() {
        let (generation, chunks) = segment.journaled();
        parts.add(&Record::Segment { segment: index, generation });
        for chunk in chunks {
            parts.add(&Record::Chunk { position: chunk.position, len: chunk.len, check: chunk.check });
        }
    }
    for (key, mtime) in map.keys_from(None) {
        parts.add(&Record::File { key, mtime });
        for entry in map.overlapping(key, ByteRange::ALL) {
            parts.add(&Record::Entry { extent: entry.extent, place: entry.place, label: entry.label });
        }
    }
    parts.cut();
    parts.add(&Record::Ready);
    parts.cut();
    parts.done
}

/// The checkpoint of a log with nothing in it.
pub(super) fn empty_checkpoint(boot: u64, key: FrameKey) -> Vec<u8> {
    let mut parts = Parts { done: Vec::new(), part: Vec::new(), number: 0, key };
    parts.add(&Record::Begin { boot, sealed: 0 });
    parts.add(&Record::Ready);
    parts.cut();
    parts.done.concat()
}

struct Parts {
    done: Vec<Vec<u8>>,
    part: Vec<u8>,
    number: u64,
    key: FrameKey,
}

impl Parts {
    fn add(&mut self, record: &Record) {
        if self.part.is_empty() {
            frame::start(&mut self.part);
        }
        record.encode(&mut self.part);
        if self.part.len() >= PART_LEN {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if !self.part.is_empty() {
            let mut part = std::mem::take(&mut self.part);
            frame::finish(&mut part, Kind::Checkpoint, self.number, self.done.len() as u64, self.key);
            self.done.push(part);
        }
    }
}

//! Checkpoints of the mapping, which bound the length of the journal.
//!
//! ```text
//! step | current file (A)                         | other file (B)
//!    1 | sync: all older frames are durable here  |
//!    2 | one frame, and a snapshot of the mapping |
//!    3 | frames of changes ...                    | ... also here, behind the space of the checkpoint
//!    4 |                                          | all parts of the checkpoint but the last
//!    5 | sync of the payloads                     |
//!    6 |                                          | last part (`Ready`), sync
//!    7 |                                          | B is the current file
//! ```
//!
//! The snapshot shares copy-on-write pages with the mapping, so lookups never wait for the encoding. A crash before
//! step 7 leaves A as the journal, because B has no complete checkpoint.

use super::fallback_journal::FALLBACK_FILE;
use super::frame::{self, FrameKey, Kind};
use super::map::MapSnapshot;
use super::record::{self, Record};
use super::{FragmentLog, LogError};
use weft_env::{Env, Notify};

/// A checkpoint is due when the changes since the last one are longer than this fraction of a segment, and more than
/// twice as long as that checkpoint.
const CHANGES_SEGMENT_DIVISOR: u64 = 16;
/// Maximum number of records in a part of a checkpoint: less than 1 MiB.
const PART_RECORDS: u64 = 32_768;

impl<E: Env> FragmentLog<E> {
    /// Returns true if a checkpoint is due.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let changes_min = self.0.spec.segment_len.0 / CHANGES_SEGMENT_DIVISOR;
        let commit = self.0.commit.lock();
        let changes = commit.offset.saturating_sub(commit.checkpoint_len);
        commit.file != FALLBACK_FILE
            && commit.copy_offset.is_none()
            && changes > changes_min.max(2 * commit.checkpoint_len)
    }

    /// Writes a checkpoint to the other file and makes it the current one. Changes continue concurrently.
    pub(super) async fn checkpoint(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        // The other file is about to be overwritten, so everything durable only there must become durable here.
        let lsn = shared.state.lock().append(&Record::Sealed(0));
        self.durable(lsn).await?;
        self.take_lead().await?;
        // The journal cannot move to the disk while this task holds the lead.
        if let Err(error) = shared.check_healthy() {
            shared.commit.lock().leading = false;
            shared.progress.notify_all();
            return Err(error);
        }
        let mut taken = None;
        self.lead(Some(&mut taken)).await?;
        let taken = taken.expect("the lead takes it");
        let (parts, len) = (self.encode(&taken), taken.len());
        // Release the snapshot, so that changes no longer copy pages.
        drop(taken);
        assert_eq!(parts.iter().map(|part| part.len() as u64).sum::<u64>(), len, "the space reserved for it");
        let other = {
            let commit = shared.commit.lock();
            shared.check_healthy()?;
            1 - commit.file
        };
        self.write_parts(other, &parts).await?;
        self.take_lead().await?;
        let mut commit = shared.commit.lock();
        commit.leading = false;
        let result = shared.check_healthy();
        if let (Ok(()), Some(copy_offset)) = (&result, commit.copy_offset.take()) {
            (commit.file, commit.offset) = (other, copy_offset);
            commit.checkpoints += 1;
        }
        drop(commit);
        shared.progress.notify_all();
        result
    }

    /// Writes the checkpoint of a start, without concurrent changes. The journal was read from file `read`.
    pub(super) async fn first_checkpoint(&self, read: usize) -> Result<(), LogError> {
        let shared = &*self.0;
        let other = 1 - read;
        self.sync_file(read).await?;
        let parts = {
            let state = shared.state.lock();
            let number = shared.commit.lock().written_frame;
            self.encode(&CheckpointInput { snapshot: state.map.snapshot(), number })
        };
        let len = self.write_parts(other, &parts).await?;
        let mut state = shared.state.lock();
        state.has_unsealed = false;
        let mut commit = shared.commit.lock();
        (commit.file, commit.offset, commit.checkpoint_len) = (other, len, len);
        Ok(())
    }

    /// Writes and syncs a checkpoint; returns its length.
    async fn write_parts(&self, file: usize, parts: &[Vec<u8>]) -> Result<u64, LogError> {
        let mut at = 0;
        for (index, part) in parts.iter().enumerate() {
            // The last part marks the checkpoint as complete, so the payloads must be durable before it is written.
            if index + 1 == parts.len() {
                self.sync_payloads().await?;
            }
            self.write_frame(file, part, at).await?;
            at += part.len() as u64;
        }
        self.sync_file(file).await?;
        Ok(at)
    }

    pub(super) fn encode(&self, taken: &CheckpointInput) -> Vec<Vec<u8>> {
        checkpoint_of(&taken.snapshot, self.0.env.boot(), taken.number, self.0.key)
    }
}

/// Content of a checkpoint: the mapping as of a frame.
pub(super) struct CheckpointInput {
    pub snapshot: MapSnapshot,
    /// Number of the last frame of changes that the snapshot includes.
    pub number: u64,
}

impl CheckpointInput {
    /// Returns the length of the encoded checkpoint in bytes.
    pub fn len(&self) -> u64 {
        checkpoint_len(&self.snapshot)
    }
}

/// Encodes a snapshot as the parts of a checkpoint.
pub(super) fn checkpoint_of(snapshot: &MapSnapshot, boot: u64, number: u64, key: FrameKey) -> Vec<Vec<u8>> {
    let mut parts = CheckpointEncoder { finished: Vec::new(), part: Vec::new(), records: 0, number, key };
    parts.add(&Record::Begin { boot, sealed: number });
    for (index, segment) in (0..).zip(snapshot.segments.iter()) {
        let (generation, chunks) = segment.journaled();
        parts.add(&Record::Segment { segment: index, generation });
        for chunk in chunks {
            parts.add(&Record::Chunk { position: chunk.position, len: chunk.len, check: chunk.check });
        }
    }
    snapshot.for_each_datafile(|file| {
        parts.add(&Record::File { key: file.key, mtime: file.mtime });
        for (extent, location, label) in file.entries() {
            parts.add(&Record::Entry { extent, location, label });
        }
    });
    parts.finish_part();
    parts.add(&Record::Ready);
    parts.finish_part();
    parts.finished
}

/// Returns the total length of [`checkpoint_of`], computed from counts of records.
fn checkpoint_len(snapshot: &MapSnapshot) -> u64 {
    let chunks: usize = snapshot.segments.iter().map(|segment| segment.journaled().1.len()).sum();
    let counts = [
        (record::BEGIN_LEN, 1),
        (record::SEGMENT_LEN, snapshot.segments.len() as u64),
        (record::CHUNK_LEN, chunks as u64),
        (record::FILE_LEN, snapshot.files_count()),
        (record::ENTRY_LEN, snapshot.entries_count()),
    ];
    let records: u64 = counts.iter().map(|(_, count)| count).sum();
    let bytes: u64 = counts.iter().map(|(len, count)| len * count).sum();
    let parts = records.div_ceil(PART_RECORDS) + 1;
    bytes + record::READY_LEN + parts * frame::HEADER_LEN as u64
}

/// Returns the checkpoint of an empty log.
pub(super) fn empty_checkpoint(boot: u64, key: FrameKey) -> Vec<u8> {
    let mut parts = CheckpointEncoder { finished: Vec::new(), part: Vec::new(), records: 0, number: 0, key };
    parts.add(&Record::Begin { boot, sealed: 0 });
    parts.add(&Record::Ready);
    parts.finish_part();
    parts.finished.concat()
}

struct CheckpointEncoder {
    finished: Vec<Vec<u8>>,
    part: Vec<u8>,
    /// Number of records in the current part.
    records: u64,
    number: u64,
    key: FrameKey,
}

impl CheckpointEncoder {
    fn add(&mut self, record: &Record) {
        if self.part.is_empty() {
            frame::start(&mut self.part);
        }
        record.encode(&mut self.part);
        self.records += 1;
        if self.records == PART_RECORDS {
            self.finish_part();
        }
    }

    fn finish_part(&mut self) {
        if !self.part.is_empty() {
            let mut part = std::mem::take(&mut self.part);
            frame::finish(&mut part, Kind::Checkpoint, self.number, self.finished.len() as u64, self.key);
            self.finished.push(part);
            self.records = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datafile::DatafileKey;
    use crate::fragments::map::{Label, Map};
    use crate::fragments::piece::{Location, State};
    use crate::fragments::segments::Segments;
    use weft_core::DataClass;
    use weft_core::ranges::ByteRange;
    use weft_core::{FileId, ObjectId, Timestamp};

    #[test]
    fn length_of_a_checkpoint_is_known_before_encoding() {
        let mut map = Map::new(Segments::new(9, 1 << 20));
        let mut lens = Vec::new();
        for count in 0..70_000_u32 {
            let location = Location { segment: count % 9, position: count / 9 * 100 };
            let key = DatafileKey::new(FileId(u64::from(count % 1000)), ObjectId::default());
            let extent = ByteRange::with_len(u64::from(count) * 10, 5).expect("bytes");
            let label =
                Label { class: DataClass::RANDOM, state: State::Dirty, gain: 1, puts: 1, is_used: false };
            map.insert(key, extent, location, label, Timestamp(1));
            map.segments.written(location, 5, 7);
            if count % 10_007 == 0 || count > 69_997 {
                let snapshot = map.snapshot();
                let parts = checkpoint_of(&snapshot, 1, 2, FrameKey(3));
                let len: usize = parts.iter().map(Vec::len).sum();
                assert_eq!(len as u64, checkpoint_len(&snapshot), "{count}");
                lens.push(parts.len());
            }
        }
        assert_eq!(
            (lens[0], lens.last()),
            (2, Some(&6)),
            "one part and the final one, then as many as needed"
        );
    }
}

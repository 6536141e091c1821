//! Checkpoints: the mapping as a whole, so that the journal does not grow for ever.

use super::failed::EXILE;
use super::frame::{self, FrameKey, Kind};
use super::map::Picture;
use super::record::{self, Record};
use super::{FragmentLog, LogError};
use weft_env::{Env, Notify};

/// A checkpoint is made when as many bytes of changes lie behind the last one as this part of a segment, or twice as many
/// as that has.
const CHANGES_SEGMENT_PART: u64 = 16;
/// Records of a part of a checkpoint: less than a MiB.
const PART_RECORDS: u64 = 32_768;

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
        let mut taken = None;
        self.lead(Some(&mut taken)).await?;
        let taken = taken.expect("the lead takes it");
        let (parts, len) = (self.encode(&taken), taken.len());
        // From here on nobody has to copy what he changes.
        drop(taken);
        assert_eq!(parts.iter().map(|part| part.len() as u64).sum::<u64>(), len, "room was left for it");
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
            let number = shared.commit.lock().written_frame;
            self.encode(&Taken { picture: state.map.picture(), number })
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

    pub(super) fn encode(&self, taken: &Taken) -> Vec<Vec<u8>> {
        checkpoint_of(&taken.picture, self.0.env.boot(), taken.number, self.0.key)
    }
}

/// What a checkpoint is to say: the mapping with the changes up to a frame.
pub(super) struct Taken {
    pub picture: Picture,
    /// Its number.
    pub number: u64,
}

impl Taken {
    /// How long the checkpoint will be.
    pub fn len(&self) -> u64 {
        checkpoint_len(&self.picture)
    }
}

/// A mapping as a checkpoint, in parts.
pub(super) fn checkpoint_of(picture: &Picture, boot: u64, number: u64, key: FrameKey) -> Vec<Vec<u8>> {
    let mut parts = Parts { done: Vec::new(), part: Vec::new(), records: 0, number, key };
    parts.add(&Record::Begin { boot, sealed: number });
    for (index, segment) in (0..).zip(picture.segments.iter()) {
        let (generation, chunks) = segment.journaled();
        parts.add(&Record::Segment { segment: index, generation });
        for chunk in chunks {
            parts.add(&Record::Chunk { position: chunk.position, len: chunk.len, check: chunk.check });
        }
    }
    picture.each_file(|file| {
        parts.add(&Record::File { key: file.key, mtime: file.mtime });
        for (extent, place, label) in file.entries() {
            parts.add(&Record::Entry { extent, place, label });
        }
    });
    parts.cut();
    parts.add(&Record::Ready);
    parts.cut();
    parts.done
}

/// The length of all parts of [`checkpoint_of`], by counting.
fn checkpoint_len(picture: &Picture) -> u64 {
    let chunks: usize = picture.segments.iter().map(|segment| segment.journaled().1.len()).sum();
    let counts = [
        (record::BEGIN_LEN, 1),
        (record::SEGMENT_LEN, picture.segments.len() as u64),
        (record::CHUNK_LEN, chunks as u64),
        (record::FILE_LEN, picture.files_count()),
        (record::ENTRY_LEN, picture.entries_count()),
    ];
    let records: u64 = counts.iter().map(|(_, count)| count).sum();
    let bytes: u64 = counts.iter().map(|(len, count)| len * count).sum();
    let parts = records.div_ceil(PART_RECORDS) + 1;
    bytes + record::READY_LEN + parts * frame::HEADER_LEN as u64
}

/// The checkpoint of a log with nothing in it.
pub(super) fn empty_checkpoint(boot: u64, key: FrameKey) -> Vec<u8> {
    let mut parts = Parts { done: Vec::new(), part: Vec::new(), records: 0, number: 0, key };
    parts.add(&Record::Begin { boot, sealed: 0 });
    parts.add(&Record::Ready);
    parts.cut();
    parts.done.concat()
}

struct Parts {
    done: Vec<Vec<u8>>,
    part: Vec<u8>,
    /// In this part.
    records: u64,
    number: u64,
    key: FrameKey,
}

impl Parts {
    fn add(&mut self, record: &Record) {
        if self.part.is_empty() {
            frame::start(&mut self.part);
        }
        record.encode(&mut self.part);
        self.records += 1;
        if self.records == PART_RECORDS {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if !self.part.is_empty() {
            let mut part = std::mem::take(&mut self.part);
            frame::finish(&mut part, Kind::Checkpoint, self.number, self.done.len() as u64, self.key);
            self.done.push(part);
            self.records = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datafile::DatafileKey;
    use crate::fragments::map::{Label, Map};
    use crate::fragments::piece::{Place, State};
    use crate::fragments::segments::Segments;
    use weft_core::ibridge::Class;
    use weft_core::ranges::ByteRange;
    use weft_core::{FileId, ObjectId, Timestamp};

    #[test]
    fn room_for_a_checkpoint_is_known_before_it_is_made() {
        let mut map = Map::new(Segments::new(9, 1 << 20));
        let mut lens = Vec::new();
        for count in 0..70_000_u32 {
            let place = Place { segment: count % 9, position: count / 9 * 100 };
            let key = DatafileKey::new(FileId(u64::from(count % 1000)), ObjectId::default());
            let extent = ByteRange::with_len(u64::from(count) * 10, 5).expect("bytes");
            let label = Label { class: Class::Random, state: State::Dirty, gain: 1, puts: 1, is_used: false };
            map.insert(key, extent, place, label, Timestamp(1));
            map.segments.written(place, 5, 7);
            if count % 10_007 == 0 || count > 69_997 {
                let picture = map.picture();
                let parts = checkpoint_of(&picture, 1, 2, FrameKey(3));
                let len: usize = parts.iter().map(Vec::len).sum();
                assert_eq!(len as u64, checkpoint_len(&picture), "{count}");
                lens.push(parts.len());
            }
        }
        assert_eq!((lens[0], lens.last()), (2, Some(&6)), "one part and the end; as many as it takes");
    }
}

//! What a log says of the bytes that it holds.

use crate::datafile::DatafileKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, Timestamp};

/// What is remembered with bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tag {
    /// Whose share of the room they take.
    pub class: Class,
    /// The return for which they were taken, in nanoseconds.
    pub gain: i64,
    /// The disk does not have them. Without this they are a copy of what the disk has, and never replace dirty bytes.
    pub dirty: bool,
    /// When they were written.
    pub mtime: Timestamp,
}

/// What of a range lies in a log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Overlap {
    /// Some byte of it.
    pub any: bool,
    /// Some byte that the disk does not have, lost ones too.
    pub dirty: bool,
}

/// What of a datafile lies in a log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cached {
    /// Where its last byte in the log ends: the datafile is at least so long.
    pub end: ByteLen,
    /// The newest time of writing among the dirty entries.
    pub mtime: Timestamp,
    /// Bytes that the disk does not have.
    pub dirty: ByteLen,
    /// Bytes that it has too.
    pub clean: ByteLen,
}

/// Where payload bytes lie on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub segment: u32,
    pub position: u32,
}

/// Keeps a segment from being used again.
#[derive(Debug)]
pub(super) struct Pin(Arc<AtomicU32>);

impl Pin {
    pub fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A range of a datafile that lies in one piece in a log. The room it lies in is not used again while this lives.
#[derive(Debug)]
pub struct Piece {
    pub(super) key: DatafileKey,
    pub(super) extent: ByteRange,
    pub(super) state: State,
    pub(super) place: Place,
    pub(super) _pin: Option<Pin>,
}

/// What the disk has of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nothing: the log has the newest bytes.
    Dirty,
    /// The same bytes, synced.
    Clean,
    /// The same bytes, which may be in the system's memory alone.
    Copy,
    /// Nothing, and the log neither.
    Lost,
}

impl Piece {
    /// Of this datafile.
    pub fn key(&self) -> DatafileKey {
        self.key
    }

    /// These bytes.
    pub fn extent(&self) -> ByteRange {
        self.extent
    }

    /// Whether the disk does not have them.
    pub fn is_dirty(&self) -> bool {
        matches!(self.state, State::Dirty | State::Lost)
    }

    /// Whether nobody has them: reading them says what was lost.
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }
}

/// What of a class lies in a log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// Bytes that the disk does not have.
    pub dirty: ByteLen,
    /// Bytes that it has too.
    pub clean: ByteLen,
    /// Entries of the mapping.
    pub entries: u64,
    /// Mean return for which they were taken, in nanoseconds.
    pub gain: i64,
    /// As given by [`FragmentLog::set_quotas`](super::FragmentLog::set_quotas).
    pub quota: ByteLen,
}

/// Counters of a log since it was opened, and what lies in it now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStats {
    /// By [`Class::index`].
    pub classes: [ClassStats; Class::ALL.len()],
    /// Room for payloads that may be filled: what quotas are parts of.
    pub capacity: ByteLen,
    /// Segments, and of these free.
    pub segments: u64,
    /// Segments that can be filled at once.
    pub segments_free: u64,
    /// Datafiles with anything in the log.
    pub datafiles: u64,
    /// Bytes put.
    pub put: ByteLen,
    /// Clean bytes that had to go for others.
    pub evicted: ByteLen,
    /// Bytes moved to empty segments for others.
    pub moved: ByteLen,
    /// Bytes lost (see [`Lost`](super::Lost)).
    pub lost: ByteLen,
    /// Memory of the mapping, in bytes, roughly.
    pub memory: ByteLen,
    /// Bytes of the journal since its last checkpoint.
    pub journal: ByteLen,
    /// Checkpoints of the journal.
    pub checkpoints: u64,
    /// The SSD failed.
    pub failed: bool,
}

impl LogStats {
    /// Bytes that the disk does not have.
    pub fn dirty(&self) -> ByteLen {
        ByteLen(self.classes.iter().map(|class| class.dirty.0).sum())
    }

    /// Bytes that it has too.
    pub fn clean(&self) -> ByteLen {
        ByteLen(self.classes.iter().map(|class| class.clean.0).sum())
    }
}

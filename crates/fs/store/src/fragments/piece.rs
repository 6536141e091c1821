//! Descriptions of the bytes in a log.

use crate::datafile::DatafileKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, Timestamp};

/// Attributes that a caller gives to the bytes of a put.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tag {
    /// Class whose quota the bytes count against.
    pub class: DataClass,
    /// Return for which the bytes were admitted, in nanoseconds (see [`weft_core::ibridge`]).
    pub gain: i64,
    /// True when the disk does not have the bytes. Clean bytes are a copy of the disk's and never replace dirty ones.
    pub dirty: bool,
    /// Modification time of the write.
    pub mtime: Timestamp,
}

/// State of a byte range in a log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Overlap {
    /// True when the log has some byte of the range.
    pub any: bool,
    /// True when the log has some dirty or lost byte of the range.
    pub dirty: bool,
}

/// State of a datafile in a log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cached {
    /// End of the last byte in the log; the datafile is at least this long.
    pub end: ByteLen,
    /// Newest modification time among the dirty entries.
    pub mtime: Timestamp,
    /// Bytes that the disk does not have.
    pub dirty: ByteLen,
    /// Bytes that the disk has too.
    pub clean: ByteLen,
}

/// Location of payload bytes on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    pub segment: u32,
    pub position: u32,
}

/// Keeps a segment from being reused while it is read or written.
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

/// A contiguous range of a datafile at one location in a log. Its segment is not reused while the piece exists.
#[derive(Debug)]
pub struct Piece {
    pub(super) key: DatafileKey,
    pub(super) extent: ByteRange,
    pub(super) class: DataClass,
    pub(super) state: State,
    pub(super) location: Location,
    pub(super) _pin: Option<Pin>,
}

/// State of an entry in relation to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The log has the only current copy.
    Dirty,
    /// The disk has the same bytes, and they are synced.
    Clean,
    /// The disk has the same bytes, but possibly only in its cache: the bytes were read from there.
    Copy,
    /// The log had the only current copy and can no longer read it.
    Lost,
}

impl Piece {
    /// Returns the datafile.
    pub fn key(&self) -> DatafileKey {
        self.key
    }

    /// Returns the range in the datafile.
    pub fn extent(&self) -> ByteRange {
        self.extent
    }

    /// Returns the class whose quota the bytes count against.
    pub fn class(&self) -> DataClass {
        self.class
    }

    /// Returns true if the disk does not have the bytes.
    pub fn is_dirty(&self) -> bool {
        matches!(self.state, State::Dirty | State::Lost)
    }

    /// Returns true if neither device has the bytes; reading them returns an error.
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }
}

/// Counters of one class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// Bytes that the disk does not have.
    pub dirty: ByteLen,
    /// Bytes that the disk has too.
    pub clean: ByteLen,
    /// Number of entries in the mapping.
    pub entries: u64,
    /// Mean return per put, in nanoseconds.
    pub gain: i64,
    /// Quota set by [`FragmentLog::set_quotas`](super::FragmentLog::set_quotas).
    pub quota: ByteLen,
}

/// Counters of a log since it was opened, and its present content.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStats {
    /// Counters per class, by [`DataClass::index`].
    pub classes: [ClassStats; DataClass::COUNT],
    /// Bytes that may be live at once; quotas are shares of it.
    pub capacity: ByteLen,
    /// Number of segments.
    pub segments: u64,
    /// Number of segments that can be filled at once.
    pub segments_free: u64,
    /// Number of datafiles with bytes in the log.
    pub datafiles: u64,
    /// Bytes put.
    pub put: ByteLen,
    /// Clean bytes evicted.
    pub evicted: ByteLen,
    /// Bytes moved by compaction.
    pub moved: ByteLen,
    /// Lost bytes (see [`Lost`](super::Lost)).
    pub lost: ByteLen,
    /// Approximate memory of the mapping, in bytes.
    pub memory: ByteLen,
    /// Bytes in the journal since the last checkpoint.
    pub journal: ByteLen,
    /// Number of checkpoints written.
    pub checkpoints: u64,
    /// True when the SSD has failed.
    pub failed: bool,
}

impl LogStats {
    /// Returns the bytes that the disk does not have.
    pub fn dirty(&self) -> ByteLen {
        ByteLen(self.classes.iter().map(|class| class.dirty.0).sum())
    }

    /// Returns the bytes that the disk has too.
    pub fn clean(&self) -> ByteLen {
        ByteLen(self.classes.iter().map(|class| class.clean.0).sum())
    }
}

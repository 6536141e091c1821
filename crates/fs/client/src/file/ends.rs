//! Ends of an open file's datafiles: as recorded by the metadata server, and as written through this open file.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_core::{ByteLen, FileId, FileOffset, Layout, ObjectId, RecordedLens, SubRequest, TargetId};
use weft_wire::meta::WrittenLens;

/// Ends of the datafiles of one layout version, in the order of [`Layout::objects`].
pub(crate) struct DatafileEnds {
    /// Number of datafiles before each component.
    starts: Vec<usize>,
    /// Ends of the writes through this open file; empty when it is not open for writing.
    written: Vec<DatafileWrites>,
    /// Whether some datafiles must be checked before their first write.
    checks: AtomicBool,
    recorded: Mutex<Recorded>,
}

/// State of one datafile that is written.
struct DatafileWrites {
    /// Offset after the last byte written.
    end: AtomicU64,
    /// Whether the datafile is known to be as long as recorded, or had no record at the open.
    checked: AtomicBool,
}

/// Lengths recorded by the metadata server, as last fetched.
struct Recorded {
    /// `None` before the first fetch.
    lens: Option<RecordedLens>,
    /// Size of the file at the last fetch. A file that has grown since may have longer records.
    size: FileOffset,
    /// [`Core::restarts`](crate::core::Core::restarts) before the last fetch. The file may have grown since, and may
    /// have lost the new bytes when a server restarted.
    restarts: u64,
}

impl DatafileEnds {
    /// Creates the ends of a layout version. `recorded` has the lengths, and
    /// [`Core::restarts`](crate::core::Core::restarts) as read before the lengths were fetched; `None` if they must be
    /// fetched first.
    pub(crate) fn new(layout: &Layout, recorded: Option<(RecordedLens, u64)>, writes: bool) -> Self {
        let (mut starts, mut count) = (Vec::new(), 0);
        if writes {
            for component in layout.components() {
                starts.push(count);
                count += component.strips.len();
            }
        }
        let (recorded, restarts) = recorded.map_or((None, 0), |(lens, restarts)| (Some(lens), restarts));
        let size = recorded.as_ref().map_or(FileOffset::ZERO, |lens| lens.file_size(layout));
        let any = recorded.as_ref().is_some_and(|lens| !lens.is_empty());
        let len = |index| recorded.as_ref().map_or(ByteLen::ZERO, |lens| lens.get(index));
        let column = |index| DatafileWrites {
            end: AtomicU64::new(0),
            checked: AtomicBool::new(len(index) == ByteLen::ZERO),
        };
        Self {
            starts,
            written: (0..count).map(column).collect(),
            checks: AtomicBool::new(writes && any),
            recorded: Mutex::new(Recorded { lens: recorded, size, restarts }),
        }
    }

    /// Records that all of `sub` was written.
    #[inline]
    pub(crate) fn note_write(&self, sub: &SubRequest) {
        let Some(column) = self.column(sub.object) else { return };
        let to = sub.local.offset.0 + sub.local.len.0;
        if column.end.load(Relaxed) < to {
            column.end.fetch_max(to, Relaxed);
        }
    }

    #[inline]
    fn column(&self, object: ObjectId) -> Option<&DatafileWrites> {
        let start = self.starts.get(usize::from(object.component))?;
        self.written.get(start + usize::from(object.column))
    }

    /// Returns the datafiles of `subs` that have a record and were not checked since the open.
    ///
    /// Writing to a datafile that has lost bytes would turn the lost bytes into a hole.
    #[inline]
    pub(crate) fn unchecked(&self, subs: &[SubRequest]) -> Vec<(ObjectId, TargetId)> {
        if !self.checks.load(Relaxed) {
            return Vec::new();
        }
        let is_unchecked =
            |sub: &&SubRequest| self.column(sub.object).is_some_and(|column| !column.checked.load(Relaxed));
        subs.iter().filter(is_unchecked).map(|sub| (sub.object, sub.target)).collect()
    }

    /// Forgets the records and all checks, because a datafile may have been lost since.
    pub(crate) fn expire(&self) {
        self.recorded.lock().lens = None;
        self.written.iter().for_each(|column| column.checked.store(false, Relaxed));
        self.checks.store(!self.written.is_empty(), Relaxed);
    }

    /// Marks the datafile of `object` as being as long as recorded.
    pub(crate) fn mark_checked(&self, object: ObjectId) {
        if let Some(column) = self.column(object) {
            column.checked.store(true, Relaxed);
        }
    }

    /// Returns the ends of the writes through this open file, for the datafiles named `data`.
    pub(crate) fn written(&self, data: FileId) -> WrittenLens {
        let lens = self.written.iter().map(|column| ByteLen(column.end.load(Relaxed))).collect();
        WrittenLens { data, lens: RecordedLens::new(lens) }
    }

    /// Raises the ends of the writes through this open file to `lens`.
    pub(crate) fn raise_written(&self, lens: &RecordedLens) {
        for (index, column) in self.written.iter().enumerate() {
            column.end.fetch_max(lens.get(index).0, Relaxed);
        }
    }

    /// Returns the recorded lengths as far as they are known.
    pub(crate) fn recorded(&self) -> RecordedLens {
        self.recorded.lock().lens.clone().unwrap_or_default()
    }

    /// Returns whether the known records cover `lens`.
    pub(crate) fn is_recorded(&self, lens: &RecordedLens) -> bool {
        !self.recorded.lock().lens.clone().unwrap_or_default().raise(lens)
    }

    /// Raises the known records to `lens`, which the metadata server has received.
    pub(crate) fn raise_recorded(&self, lens: &RecordedLens) {
        self.recorded.lock().lens.get_or_insert_default().raise(lens);
    }

    /// Takes over the records of a file that had `size`, fetched after `restarts` was read.
    pub(crate) fn set_recorded(&self, lens: RecordedLens, size: FileOffset, restarts: u64) {
        let mut recorded = self.recorded.lock();
        recorded.lens = Some(lens);
        recorded.size = size;
        recorded.restarts = restarts;
    }

    /// Returns whether the records were never fetched, or have expired.
    pub(crate) fn is_unfetched(&self) -> bool {
        self.recorded.lock().lens.is_none()
    }

    /// Returns whether the records were never fetched, or fetched before a server restarted.
    pub(crate) fn is_unknown(&self, restarts: u64) -> bool {
        let recorded = self.recorded.lock();
        recorded.lens.is_none() || recorded.restarts != restarts
    }

    /// Returns whether a file of `size` may have longer records than those known here.
    pub(crate) fn is_outdated(&self, size: FileOffset) -> bool {
        let recorded = self.recorded.lock();
        recorded.lens.is_none() || recorded.size < size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{Access, Extent, SplitPolicy, TargetId};

    #[test]
    fn ends_are_those_of_the_last_bytes_written_to_each_datafile() {
        let layout =
            Layout::striped(&[TargetId(0), TargetId(1), TargetId(2)], ByteLen(10)).expect("a layout");
        let ends = DatafileEnds::new(&layout, Some((RecordedLens::NONE, 1)), true);
        let write = |ends: &DatafileEnds, offset, len| {
            let extent = Extent::new(offset, len);
            layout
                .split(extent, Access::Random, SplitPolicy::Off)
                .iter()
                .for_each(|sub| ends.note_write(sub));
        };
        assert!(ends.written(FileId(7)).lens.is_empty());
        write(&ends, 35, 10);
        write(&ends, 2, 3);
        let lens = RecordedLens::new(vec![ByteLen(20), ByteLen(15)]);
        assert_eq!(ends.written(FileId(7)), WrittenLens { data: FileId(7), lens: lens.clone() });
        assert!(!ends.is_recorded(&lens) && ends.is_outdated(FileOffset(1)));
        ends.raise_recorded(&lens);
        assert!(ends.is_recorded(&lens));
        ends.set_recorded(RecordedLens::NONE, FileOffset(45), 1);
        assert!(!ends.is_recorded(&lens) && !ends.is_outdated(FileOffset(45)));
        assert!(ends.is_outdated(FileOffset(46)));
        assert!(!ends.is_unknown(1) && ends.is_unknown(2), "bytes may be lost since");
        ends.set_recorded(RecordedLens::NONE, FileOffset(45), 2);
        assert!(!ends.is_unknown(2));

        let recorded = RecordedLens::new(vec![ByteLen(0), ByteLen(3)]);
        let again = DatafileEnds::new(&layout, Some((recorded, 1)), true);
        let subs = layout.split(Extent::new(0, 30), Access::Random, SplitPolicy::Off);
        assert_eq!(again.unchecked(&subs), [(subs[1].object, TargetId(1))]);
        again.mark_checked(subs[1].object);
        assert!(again.unchecked(&subs).is_empty());

        let reader = DatafileEnds::new(&layout, None, false);
        write(&reader, 0, 100);
        assert!(reader.written(FileId(7)).lens.is_empty(), "not open for writing");
        assert!(reader.is_outdated(FileOffset(0)) && reader.is_unknown(0) && reader.recorded().is_empty());
    }
}

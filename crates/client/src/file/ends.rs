//! Where the datafiles of an open file end: as recorded by the metadata service, and as written through this open.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_core::{ByteLen, FileId, FileOffset, Layout, ObjectId, RecordedLens, SubRequest, TargetId};
use weft_wire::meta::WrittenLens;

/// Ends of datafiles, in the order of [`Layout::objects`].
pub(crate) struct Ends {
    /// Datafiles before each component.
    starts: Vec<usize>,
    /// Writes through this open; empty when it is not open for writing.
    written: Vec<Column>,
    /// Some datafiles have to be checked before they are written.
    checks: bool,
    recorded: Mutex<Recorded>,
}

/// Writes to one datafile.
struct Column {
    /// One past the last byte written.
    end: AtomicU64,
    /// The datafile is as long as recorded, or nothing was recorded at the open.
    checked: AtomicBool,
}

/// What the metadata service has recorded, as far as this open file has heard.
struct Recorded {
    /// `None` before it was asked.
    lens: Option<RecordedLens>,
    /// Size of the file when it was last asked: a file that has grown since may have longer records.
    size: FileOffset,
}

impl Ends {
    /// `recorded` is `None` where the metadata service has to be asked first.
    pub(super) fn new(layout: &Layout, recorded: Option<RecordedLens>, writes: bool) -> Self {
        let (mut starts, mut count) = (Vec::new(), 0);
        if writes {
            for component in layout.components() {
                starts.push(count);
                count += component.strips.len();
            }
        }
        let size = recorded.as_ref().map_or(FileOffset::ZERO, |lens| lens.file_size(layout));
        let len = |index| recorded.as_ref().map_or(ByteLen::ZERO, |lens| lens.get(index));
        let column =
            |index| Column { end: AtomicU64::new(0), checked: AtomicBool::new(len(index) == ByteLen::ZERO) };
        Self {
            starts,
            written: (0..count).map(column).collect(),
            checks: writes && size > FileOffset::ZERO,
            recorded: Mutex::new(Recorded { lens: recorded, size }),
        }
    }

    /// All of `sub` was written.
    #[inline]
    pub(crate) fn note(&self, sub: &SubRequest) {
        let Some(column) = self.column(sub.object) else { return };
        let to = sub.local.offset.0 + sub.local.len.0;
        if column.end.load(Relaxed) < to {
            column.end.fetch_max(to, Relaxed);
        }
    }

    #[inline]
    fn column(&self, object: ObjectId) -> Option<&Column> {
        let start = self.starts.get(usize::from(object.component))?;
        self.written.get(start + usize::from(object.column))
    }

    /// Datafiles of `subs` with a record that were not checked since the open. A write to a datafile that has lost bytes
    /// would make them a hole.
    #[inline]
    pub(crate) fn unchecked(&self, subs: &[SubRequest]) -> Vec<(ObjectId, TargetId)> {
        if !self.checks {
            return Vec::new();
        }
        let is_unchecked =
            |sub: &&SubRequest| self.column(sub.object).is_some_and(|column| !column.checked.load(Relaxed));
        subs.iter().filter(is_unchecked).map(|sub| (sub.object, sub.target)).collect()
    }

    /// The datafile of `object` is as long as recorded.
    pub(crate) fn checked(&self, object: ObjectId) {
        if let Some(column) = self.column(object) {
            column.checked.store(true, Relaxed);
        }
    }

    /// Where the writes through this open end, of the datafiles that are named `data`.
    pub(crate) fn written(&self, data: FileId) -> WrittenLens {
        let lens = self.written.iter().map(|column| ByteLen(column.end.load(Relaxed))).collect();
        WrittenLens { data, lens: RecordedLens::new(lens) }
    }

    /// What is recorded, as far as known.
    pub(crate) fn recorded(&self) -> RecordedLens {
        self.recorded.lock().lens.clone().unwrap_or_default()
    }

    /// Whether `lens` are recorded already, as far as known.
    pub(crate) fn is_recorded(&self, lens: &RecordedLens) -> bool {
        !self.recorded.lock().lens.clone().unwrap_or_default().raise(lens)
    }

    /// The metadata service records `lens` too.
    pub(crate) fn record(&self, lens: &RecordedLens) {
        self.recorded.lock().lens.get_or_insert_default().raise(lens);
    }

    /// The metadata service was asked of a file that had `size`.
    pub(crate) fn heard(&self, lens: RecordedLens, size: FileOffset) {
        let mut recorded = self.recorded.lock();
        recorded.lens = Some(lens);
        recorded.size = size;
    }

    /// Whether the metadata service has to be asked for what is recorded.
    pub(crate) fn is_unknown(&self) -> bool {
        self.recorded.lock().lens.is_none()
    }

    /// Whether more may be recorded of a file of `size` than is known here.
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
        let ends = Ends::new(&layout, Some(RecordedLens::NONE), true);
        let write = |ends: &Ends, offset, len| {
            let extent = Extent::new(offset, len);
            layout.split(extent, Access::Random, SplitPolicy::Off).iter().for_each(|sub| ends.note(sub));
        };
        assert!(ends.written(FileId(7)).lens.is_empty());
        write(&ends, 35, 10);
        write(&ends, 2, 3);
        let lens = RecordedLens::new(vec![ByteLen(20), ByteLen(15)]);
        assert_eq!(ends.written(FileId(7)), WrittenLens { data: FileId(7), lens: lens.clone() });
        assert!(!ends.is_recorded(&lens) && ends.is_outdated(FileOffset(1)));
        ends.record(&lens);
        assert!(ends.is_recorded(&lens));
        ends.heard(RecordedLens::NONE, FileOffset(45));
        assert!(!ends.is_recorded(&lens) && !ends.is_outdated(FileOffset(45)));
        assert!(ends.is_outdated(FileOffset(46)));

        let recorded = RecordedLens::new(vec![ByteLen(0), ByteLen(3)]);
        let again = Ends::new(&layout, Some(recorded), true);
        let subs = layout.split(Extent::new(0, 30), Access::Random, SplitPolicy::Off);
        assert_eq!(again.unchecked(&subs), [(subs[1].object, TargetId(1))]);
        again.checked(subs[1].object);
        assert!(again.unchecked(&subs).is_empty());

        let reader = Ends::new(&layout, None, false);
        write(&reader, 0, 100);
        assert!(reader.written(FileId(7)).lens.is_empty(), "not open for writing");
        assert!(reader.is_outdated(FileOffset(0)) && reader.is_unknown() && reader.recorded().is_empty());
    }
}

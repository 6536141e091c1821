//! Recorded lengths of datafiles, which distinguish a missing or externally truncated datafile from a hole.

use crate::layout::{COLUMNS_MAX, Layout};
use crate::units::{ByteLen, FileOffset, ObjectId, TargetId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A lower bound for the length of each datafile of a file. Zero means no record. [`ByteLen::UNKNOWN`] says that the datafile's
/// disk was given up while nobody knew its length: any bytes may have been in it.
///
/// The order is that of [`Layout::objects`]. Trailing zeros are omitted, so equal records have equal encodings.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct RecordedLens(Vec<ByteLen>);

impl RecordedLens {
    /// The empty record.
    pub const NONE: Self = Self(Vec::new());

    /// Records `lens`, in the order of [`Layout::objects`].
    pub fn new(mut lens: Vec<ByteLen>) -> Self {
        while lens.last() == Some(&ByteLen::ZERO) {
            lens.pop();
        }
        Self(lens)
    }

    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the recorded length of the datafile at `index` of [`Layout::objects`].
    pub fn get(&self, index: usize) -> ByteLen {
        self.0.get(index).copied().unwrap_or(ByteLen::ZERO)
    }

    /// Iterates over the datafiles of `layout` that have a recorded length.
    pub fn of<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (ObjectId, TargetId, ByteLen)> + 'a {
        let recorded = layout.objects().zip(&self.0).filter(|(_, len)| **len > ByteLen::ZERO);
        recorded.map(|((object, target), len)| (object, target, *len))
    }

    /// Returns the recorded length of the datafile of `object`; zero if `layout` has no such object.
    pub fn len_of(&self, layout: &Layout, object: ObjectId) -> ByteLen {
        layout.index_of(object).map_or(ByteLen::ZERO, |index| self.get(index))
    }

    /// Whether the length of some datafile was unknown when its disk was given up.
    pub fn any_unknown(&self) -> bool {
        self.0.contains(&ByteLen::UNKNOWN)
    }

    /// Marks the datafile at `index` of [`Layout::objects`] as lost, with an unknown length.
    pub fn mark_unknown(&mut self, index: usize) {
        if self.0.len() <= index {
            self.0.resize(index + 1, ByteLen::ZERO);
        }
        self.0[index] = ByteLen::UNKNOWN;
    }

    /// Raises each length to that in `other` if larger; returns true if any was raised.
    pub fn raise(&mut self, other: &Self) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), ByteLen::ZERO);
        }
        let mut raised = false;
        for (len, other) in self.0.iter_mut().zip(&other.0) {
            raised |= *other > *len;
            *len = (*len).max(*other);
        }
        raised
    }

    /// Lowers each length to its maximum in a file of `size` bytes; returns true if any was lowered.
    pub fn lower(&mut self, layout: &Layout, size: FileOffset) -> bool {
        let mut lowered = false;
        for (len, (object, _)) in self.0.iter_mut().zip(layout.objects()) {
            let kept = layout.local_len(object, size);
            lowered |= kept < *len;
            *len = (*len).min(kept);
        }
        *self = Self::new(std::mem::take(&mut self.0));
        lowered
    }

    /// Returns the minimum size of a file whose datafiles have these lengths. Unknown lengths do not count.
    pub fn file_size(&self, layout: &Layout) -> FileOffset {
        let known = self.of(layout).filter(|(_, _, len)| *len != ByteLen::UNKNOWN);
        layout.file_size(known.map(|(object, _, len)| (object, len)))
    }
}

impl<'de> Deserialize<'de> for RecordedLens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lens = Vec::<ByteLen>::deserialize(deserializer)?;
        if lens.len() > COLUMNS_MAX || lens.last() == Some(&ByteLen::ZERO) {
            return Err(D::Error::custom("a record of lengths is too long, or ends in a zero"));
        }
        Ok(Self(lens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(lens: &[u64]) -> RecordedLens {
        RecordedLens::new(lens.iter().copied().map(ByteLen).collect())
    }

    fn layout() -> Layout {
        Layout::striped(&[TargetId(4), TargetId(2), TargetId(7)], ByteLen(10)).expect("a layout")
    }

    #[test]
    fn records_are_raised_by_others_and_lowered_by_truncation() {
        let mut record = lens(&[10, 0, 3, 0]);
        assert_eq!(record, lens(&[10, 0, 3]));
        assert!(record.raise(&lens(&[4, 7])) && !record.raise(&lens(&[10, 7, 3])));
        assert_eq!(record, lens(&[10, 7, 3]));
        assert_eq!(record.file_size(&layout()), FileOffset(23));
        let of: Vec<_> = record.of(&layout()).map(|(_, target, len)| (target.0, len.0)).collect();
        assert_eq!(of, [(4, 10), (2, 7), (7, 3)]);
        assert!(!record.lower(&layout(), FileOffset(23)));
        assert!(record.lower(&layout(), FileOffset(12)));
        assert_eq!(record, lens(&[10, 2]));
        assert!(record.lower(&layout(), FileOffset(0)) && record.is_empty());
        assert_eq!(record.file_size(&layout()), FileOffset(0));
    }

    #[test]
    fn an_unknown_length_is_longer_than_any_and_does_not_count_for_the_size() {
        let mut record = lens(&[10]);
        assert!(!record.any_unknown());
        record.mark_unknown(2);
        assert_eq!(record, RecordedLens::new(vec![ByteLen(10), ByteLen(0), ByteLen::UNKNOWN]));
        assert!(record.any_unknown());
        assert_eq!(record.file_size(&layout()), FileOffset(10));
        assert!(!record.raise(&lens(&[0, 0, 7])) && record.any_unknown());
        assert!(record.lower(&layout(), FileOffset(25)) && !record.any_unknown());
        assert_eq!(record, lens(&[10, 0, 5]), "as long as it can be in a file of this size");
    }

    #[test]
    fn objects_outside_the_layout_have_no_record() {
        let record = lens(&[1, 2, 3]);
        let object = |component, column| ObjectId { component, column };
        assert_eq!(record.len_of(&layout(), object(0, 2)), ByteLen(3));
        assert_eq!(record.len_of(&layout(), object(0, 3)), ByteLen(0));
        assert_eq!(record.len_of(&layout(), object(1, 0)), ByteLen(0));
        assert_eq!(lens(&[1, 2, 3, 4]).of(&layout()).count(), 3);
    }

    #[test]
    fn records_have_a_unique_encoding() {
        let record = lens(&[300, 0, 1]);
        let bytes = postcard::to_allocvec(&record).expect("encodes");
        assert_eq!(bytes, [3, 0xac, 0x02, 0, 1]);
        assert_eq!(postcard::from_bytes::<RecordedLens>(&bytes), Ok(record));
        assert!(postcard::from_bytes::<RecordedLens>(&[2, 1, 0]).is_err(), "ends in a zero");
        assert!(postcard::from_bytes::<RecordedLens>(&[2, 1]).is_err(), "truncated");
    }
}

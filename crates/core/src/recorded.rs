//! Lengths of datafiles that the metadata service has recorded, so that a datafile that is missing or was cut below Weft
//! is told from a hole.

use crate::layout::{COLUMNS_MAX, Layout};
use crate::units::{ByteLen, FileOffset, ObjectId, TargetId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A lower bound for the length of each datafile of a file. Zero records nothing.
///
/// The order is that of [`Layout::objects`]; zeros at the end are left out, so that equal records have equal bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct RecordedLens(Vec<ByteLen>);

impl RecordedLens {
    /// A record that says nothing.
    pub const NONE: Self = Self(Vec::new());

    /// A record of `lens`, in the order of [`Layout::objects`].
    pub fn new(mut lens: Vec<ByteLen>) -> Self {
        while lens.last() == Some(&ByteLen::ZERO) {
            lens.pop();
        }
        Self(lens)
    }

    /// Whether it records nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The recorded length of the datafile at `index` of [`Layout::objects`].
    pub fn get(&self, index: usize) -> ByteLen {
        self.0.get(index).copied().unwrap_or(ByteLen::ZERO)
    }

    /// Every datafile with a recorded length, as far as `layout` has it.
    pub fn of<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (ObjectId, TargetId, ByteLen)> + 'a {
        let recorded = layout.objects().zip(&self.0).filter(|(_, len)| **len > ByteLen::ZERO);
        recorded.map(|((object, target), len)| (object, target, *len))
    }

    /// The recorded length of the datafile of `object`; zero when `layout` has no such object.
    pub fn len_of(&self, layout: &Layout, object: ObjectId) -> ByteLen {
        layout.index_of(object).map_or(ByteLen::ZERO, |index| self.get(index))
    }

    /// Raises each length to that of `other` where that is larger. Whether any was raised.
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

    /// Lowers each length to what a file of `size` has there. Whether any was lowered.
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

    /// The least size of a file whose datafiles have these lengths.
    pub fn file_size(&self, layout: &Layout) -> FileOffset {
        layout.file_size(self.of(layout).map(|(object, _, len)| (object, len)))
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
    fn records_are_raised_to_each_others_lengths_and_lowered_by_cuts() {
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
    fn objects_outside_the_layout_have_no_record() {
        let record = lens(&[1, 2, 3]);
        let object = |component, column| ObjectId { component, column };
        assert_eq!(record.len_of(&layout(), object(0, 2)), ByteLen(3));
        assert_eq!(record.len_of(&layout(), object(0, 3)), ByteLen(0));
        assert_eq!(record.len_of(&layout(), object(1, 0)), ByteLen(0));
        assert_eq!(lens(&[1, 2, 3, 4]).of(&layout()).count(), 3);
    }

    #[test]
    fn records_have_one_encoding() {
        let record = lens(&[300, 0, 1]);
        let bytes = postcard::to_allocvec(&record).expect("encodes");
        assert_eq!(bytes, [3, 0xac, 0x02, 0, 1]);
        assert_eq!(postcard::from_bytes::<RecordedLens>(&bytes), Ok(record));
        assert!(postcard::from_bytes::<RecordedLens>(&[2, 1, 0]).is_err(), "ends in a zero");
        assert!(postcard::from_bytes::<RecordedLens>(&[2, 1]).is_err(), "cut off");
    }
}

//! The way back: from the lengths of the datafiles to the size of the file, and from a size to the lengths.
//!
//! The truth about a file's size is its datafiles. A datafile is at least as long as the last byte ever written
//! to it, so the size is the largest [`Layout::logical_end`] over all of them.

use crate::geometry::Geometry;
use crate::layout::{Layout, object_id};
use crate::units::{ByteLen, FileOffset, LocalOffset, ObjectId, TargetId};

/// Where one byte of a file lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The datafile.
    pub object: ObjectId,
    /// The target that holds it.
    pub target: TargetId,
    /// The byte's place in it.
    pub local: LocalOffset,
}

impl Layout {
    /// Where the byte at `offset` lies.
    ///
    /// # Panics
    /// At offset 2^64 - 1, which no file reaches: that is the largest size, not the largest offset.
    pub fn locate(&self, offset: FileOffset) -> Location {
        assert!(offset.0 < u64::MAX, "offset 2^64 - 1 lies behind the largest file");
        let component = self.component_at(offset.0);
        let geometry = &self.geometry()[component];
        let at = geometry.turn(offset.0 - geometry.start);
        let column = geometry.column(at.within);
        let target = self.components()[component].strips[column].target;
        Location {
            object: object_id(component, column),
            target,
            local: LocalOffset(geometry.held(column, at)),
        }
    }

    /// The smallest file size that makes the datafile of `object` at least `local_len` long: one past the file
    /// offset of the last byte that it holds at this length; 0 when it is empty.
    ///
    /// A length beyond what the object can hold at all (a damaged or foreign datafile) counts as full.
    ///
    /// # Panics
    /// When the layout has no such object.
    pub fn logical_end(&self, object: ObjectId, local_len: ByteLen) -> FileOffset {
        let (geometry, column) = self.column_of(object);
        let local_len = local_len.0.min(geometry.share(column));
        match local_len.checked_sub(1) {
            None => FileOffset::ZERO,
            Some(last) => FileOffset(geometry.start + geometry.rel(column, last) + 1),
        }
    }

    /// The size of a file whose datafiles have these lengths; objects left out are empty.
    ///
    /// # Panics
    /// When the layout lacks one of the objects.
    pub fn file_size(&self, lens: impl IntoIterator<Item = (ObjectId, ByteLen)>) -> FileOffset {
        lens.into_iter().map(|(object, len)| self.logical_end(object, len)).max().unwrap_or(FileOffset::ZERO)
    }

    /// How many bytes of `object` lie below `file_size`: how long its datafile must be, at most, in a file
    /// truncated to that size, and how long it is in a file of that size without holes.
    ///
    /// To shrink a file, trim every object to this. To extend one, give [`Layout::last_object`] this length and
    /// leave the others: the rest is a hole.
    ///
    /// # Panics
    /// When the layout has no such object.
    pub fn local_len(&self, object: ObjectId, file_size: FileOffset) -> ByteLen {
        let (geometry, column) = self.column_of(object);
        let rel = file_size.0.clamp(geometry.start, geometry.end) - geometry.start;
        ByteLen(geometry.held(column, geometry.turn(rel)))
    }

    /// The object that holds the last byte of a file of this size; `None` for an empty file.
    pub fn last_object(&self, file_size: FileOffset) -> Option<(ObjectId, TargetId)> {
        let last = self.locate(FileOffset(file_size.0.checked_sub(1)?));
        Some((last.object, last.target))
    }

    fn column_of(&self, object: ObjectId) -> (&Geometry, usize) {
        let column = usize::from(object.column);
        match self.geometry().get(usize::from(object.component)) {
            Some(geometry) if column < geometry.columns() => (geometry, column),
            _ => panic!("object {object} is not one of this layout"),
        }
    }
}

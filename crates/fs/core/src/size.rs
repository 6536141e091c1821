//! File size and datafile lengths, each computed from the other.
//!
//! The datafiles define a file's size. A datafile is at least as long as its last written byte, so the size is the
//! maximum of [`Layout::logical_end`] over all datafiles.

use crate::geometry::Geometry;
use crate::layout::{Layout, object_id};
use crate::units::{ByteLen, FileOffset, LocalOffset, ObjectId, TargetId};

/// Location of one byte of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// Datafile of the byte.
    pub object: ObjectId,
    /// Target that holds the datafile.
    pub target: TargetId,
    /// Offset in the datafile.
    pub local: LocalOffset,
}

impl Layout {
    /// Returns the location of the byte at `offset`.
    ///
    /// # Panics
    /// At offset 2^64 - 1, which is the maximum size and therefore beyond every offset.
    pub fn locate(&self, offset: FileOffset) -> Location {
        assert!(offset.0 < u64::MAX, "offset 2^64 - 1 is past the largest file");
        let component = self.component_at(offset.0);
        let geometry = &self.geometry()[component];
        let at = geometry.position(offset.0 - geometry.start);
        let column = geometry.column(at.within);
        let target = self.components()[component].strips[column].target;
        Location {
            object: object_id(component, column),
            target,
            local: LocalOffset(geometry.held(column, at)),
        }
    }

    /// Returns the smallest file size with which the datafile of `object` is at least `local_len` long: one past the
    /// file offset of its last byte, or 0 when it is empty.
    ///
    /// A length beyond what the object can hold (a damaged or foreign datafile) counts as full.
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

    /// Returns the size of a file whose datafiles have these lengths; objects left out are empty.
    ///
    /// # Panics
    /// When the layout lacks one of the objects.
    pub fn file_size(&self, lens: impl IntoIterator<Item = (ObjectId, ByteLen)>) -> FileOffset {
        lens.into_iter().map(|(object, len)| self.logical_end(object, len)).max().unwrap_or(FileOffset::ZERO)
    }

    /// Returns the number of bytes of `object` below `file_size`. This is the maximum length of its datafile in a file
    /// truncated to that size, and its length in a file of that size without holes.
    ///
    /// To shrink a file, truncate every object to this length. To extend a file, set the length of
    /// [`Layout::last_object`] only; the rest is a hole.
    ///
    /// # Panics
    /// When the layout has no such object.
    pub fn local_len(&self, object: ObjectId, file_size: FileOffset) -> ByteLen {
        let (geometry, column) = self.column_of(object);
        let rel = file_size.0.clamp(geometry.start, geometry.end) - geometry.start;
        ByteLen(geometry.held(column, geometry.position(rel)))
    }

    /// Returns the object that holds the last byte of a file of this size; `None` for an empty file.
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

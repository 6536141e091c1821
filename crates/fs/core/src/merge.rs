//! The inverse of the splitting function: maps a range of a datafile to the ranges of the file that it holds.
//!
//! The inverse of [`Layout::split_into`], for code that has observed what servers see (an object and an extent of it)
//! and needs the program's request.

use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::units::{Extent, LocalExtent, ObjectId};

/// Iterator over the ranges of the file in a range of a datafile; see [`Layout::file_pieces`].
#[derive(Clone, Debug)]
pub struct FilePieces<'a> {
    /// Component, and column in it; `None` for an object that is not in the layout.
    column: Option<(&'a Geometry, usize)>,
    at: u64,
    end: u64,
}

impl Layout {
    /// Returns the ranges of the file that lie in `local` of `object`, in order. None are empty, and no two are
    /// adjacent.
    ///
    /// Bytes beyond what the object can hold, and objects that are not in this layout, yield nothing: the observation
    /// may have been made under another layout.
    pub fn file_pieces(&self, object: ObjectId, local: LocalExtent) -> FilePieces<'_> {
        let column = usize::from(object.column);
        let geometry = self.geometry().get(usize::from(object.component));
        let column =
            geometry.filter(|geometry| column < geometry.columns()).map(|geometry| (geometry, column));
        let at = local.offset.0;
        let share = column.map_or(0, |(geometry, column)| geometry.share(column));
        FilePieces { column, at, end: at.saturating_add(local.len.0).min(share) }
    }
}

impl Iterator for FilePieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let (geometry, column) = self.column?;
        if self.at >= self.end {
            return None;
        }
        let (left, stripe) = (self.end - self.at, geometry.stripe(column));
        // The stripes of a single column are contiguous in the file too: one piece.
        let len = if geometry.columns() == 1 { left } else { left.min(stripe - self.at % stripe) };
        let offset = geometry.start + geometry.rel(column, self.at);
        self.at += len;
        Some(Extent::new(offset, len))
    }
}

//! The other way round: a range of a datafile becomes the ranges of the file that it holds.
//!
//! The inverse of [`Layout::split_into`], for whoever has seen what servers see (an object and an extent of it) and wants to
//! know what the program asked for.

use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::units::{Extent, LocalExtent, ObjectId};

/// Iterator over the ranges of the file that lie in a range of a datafile; see [`Layout::file_pieces`].
#[derive(Clone, Debug)]
pub struct FilePieces<'a> {
    /// The component, and the column in it; `None` for an object that the layout has not.
    of: Option<(&'a Geometry, usize)>,
    at: u64,
    end: u64,
}

impl Layout {
    /// The ranges of the file that lie in `local` of `object`, in order, none empty, and no two that touch.
    ///
    /// What the object cannot hold at all, and everything of an object that is not one of this layout, is left out: who asks
    /// may have heard of the object under another layout.
    pub fn file_pieces(&self, object: ObjectId, local: LocalExtent) -> FilePieces<'_> {
        let column = usize::from(object.column);
        let geometry = self.geometry().get(usize::from(object.component));
        let of = geometry.filter(|geometry| column < geometry.columns()).map(|geometry| (geometry, column));
        let at = local.offset.0;
        let share = of.map_or(0, |(geometry, column)| geometry.share(column));
        FilePieces { of, at, end: at.saturating_add(local.len.0).min(share) }
    }
}

impl Iterator for FilePieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let (geometry, column) = self.of?;
        if self.at >= self.end {
            return None;
        }
        let (left, stripe) = (self.end - self.at, geometry.stripe(column));
        // The stripes of a lone column follow one another in the file too: one piece.
        let len = if geometry.columns() == 1 { left } else { left.min(stripe - self.at % stripe) };
        let offset = geometry.start + geometry.rel(column, self.at);
        self.at += len;
        Some(Extent::new(offset, len))
    }
}

//! Heat maps of traces: where in a file, or by which rank, how many bytes were moved when.
//!
//! Two passes over the trace, so that axes and cells are exact and memory does not grow with the number of records:
//! a [`Survey`] says what there is and which files moved most, [`HeatMap`]s take the records, [`svg`] draws.

mod axis;
mod grid;
mod scale;
mod survey;
mod svg;

pub use axis::View;
pub use grid::{Grid, HeatMap};
pub use survey::{FileHeat, Survey};
pub use svg::{Picture, svg};

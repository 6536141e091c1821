//! Heat maps of traces: bytes moved by offset, rank and time.
//!
//! A heat map takes two passes over the trace, so that axes and cells are exact. Memory does not grow with the number
//! of records.
//!
//! ```text
//! trace ──pass 1──> Survey: axes, busiest files ──> HeatMap, empty
//!   |                                                    |
//!   └─────pass 2─────────────────────────────────────────┴──> HeatMap, filled ──> svg
//! ```

mod axis;
mod grid;
mod scale;
mod survey;
mod svg;

pub use axis::View;
pub use grid::{Grid, HeatMap};
pub use survey::{FileHeat, Survey};
pub use svg::{Picture, svg};

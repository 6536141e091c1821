//! Reads and writes files of Weft's trace format. [`weft_recorder::wtrace`] describes and encodes the blocks.

mod reader;
mod writer;

pub use reader::{Reader, TraceEnd};
pub use weft_recorder::wtrace::*;
pub use writer::Writer;

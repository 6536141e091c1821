//! Weft's own trace format, `.wtrace`, as files and streams. Its blocks: [`weft_recorder::wtrace`].

mod reader;
mod writer;

pub use reader::{Reader, Tail};
pub use weft_recorder::wtrace::*;
pub use writer::Writer;

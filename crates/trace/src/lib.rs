//! Traces of programs, read and written as streams with bounded memory.
//!
//! [`open()`] recognises what a file is by its content and gives a [`RecordStream`]: logs of Darshan with DXT, CSV, and
//! Weft's own format [`wtrace`]. What streams lead to: [`summary`] and [`prepared`].

pub mod csv;
pub mod darshan;
mod error;
pub mod merge;
mod open;
pub mod prepared;
pub mod replay;
mod sort;
mod stream;
pub mod summary;
pub mod wtrace;

pub use error::{Result, TraceError};
pub use open::{AnyStream, Kind, OpenOptions, kind, open};
pub use stream::{Info, RecordStream, Source};
pub use weft_recorder::{
    FileId, HostId, Level, NAME_BYTES_MAX, NAMES_MAX, Names, OFFSET_MAX, Operation, Rank, Record,
};
use weft_recorder::{names, record, varint};

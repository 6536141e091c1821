//! Traces of programs, read and written as streams with bounded memory.
//!
//! [`open()`] recognises what a file is by its content and gives a [`RecordStream`]: logs of Darshan with DXT, CSV, and
//! Weft's own format [`wtrace`]. What streams lead to: [`summary`] and [`prepared`].

pub mod csv;
pub mod darshan;
mod error;
mod names;
mod open;
pub mod prepared;
mod record;
pub mod replay;
mod sort;
mod stream;
pub mod summary;
mod varint;
pub mod wtrace;

pub use error::{Result, TraceError};
pub use names::{FileId, HostId, NAME_BYTES_MAX, NAMES_MAX, Names};
pub use open::{AnyStream, Kind, OpenOptions, kind, open};
pub use record::{Level, Operation, Rank, Record};
pub use stream::{Info, RecordStream, Source};

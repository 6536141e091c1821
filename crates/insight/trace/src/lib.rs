//! Reads, writes and replays traces of programs, as streams in bounded memory.
//!
//! ```text
//!  Darshan 3 log ─┐                                  ┌─► summary     totals of a trace
//!  CSV ───────────┼─► open() ─► RecordStream ────────┼─► csv, wtrace export
//!  .wtrace ───────┘   (format detected by content)   └─► prepared    sorted, split by rank
//!      ▲                                                    ├─► replay         on real files
//!      │                                                    └─► TraceWorkload  on the twin
//!    merge ◄─ files of traced processes (weft-recorder)
//! ```
//!
//! [`wtrace`] describes Weft's format, [`darshan`] how logs are read and reconstructed, [`replay`] how processes repeat
//! a trace.

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
pub use sort::{Merge, Sorted, Sorter};
pub use stream::{Info, RecordStream, Source};
pub use weft_recorder::{
    FileId, HostId, Level, NAME_BYTES_MAX, NAMES_MAX, Names, OFFSET_MAX, Operation, Rank, Record,
};
use weft_recorder::{names, record, varint};

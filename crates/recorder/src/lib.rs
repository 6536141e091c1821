//! What a traced program carries: the records of a trace, the blocks of the `.wtrace` format, and the [`Recorder`].
//!
//! The recorder lives in foreign programs, so it keeps to few rules: it starts no thread, holds no descriptor (a
//! program may close them all, and the number would be another file's), takes bounded memory, and ends with one line
//! when its disk is full. What it has not written yet lies in a file that is mapped ([`tail`]): no way in which a
//! program ends, SIGKILL among them, loses what was recorded.
//!
//! What becomes of its files is `weft-trace`'s business.

pub mod clock;
pub mod names;
pub mod record;
mod recorder;
pub mod tail;
pub mod varint;
pub mod wtrace;

pub use names::{FileId, HostId, NAME_BYTES_MAX, NAMES_MAX, Names};
pub use record::{Level, OFFSET_MAX, Operation, Rank, Record};
pub use recorder::{Event, FileRef, Options, Recorder};

//! The recorder that traced programs carry: records, the blocks of the `.wtrace` format, and the [`Recorder`].
//!
//! The recorder runs inside programs that Weft does not control, so it imposes as little as possible on them:
//!
//! | rule | reason |
//! | --- | --- |
//! | starts no thread | the program may fork, or count its threads |
//! | keeps no descriptor open | a program may close every descriptor; the kernel then reuses the number |
//! | uses bounded memory | buffers and name tables have fixed limits ([`tail`], `recorder/names.rs`) |
//! | ends tracing when the disk is full | the program continues; standard error gets one line |
//! | buffers records in a mapped file | the kernel keeps the pages however the program ends, even by SIGKILL |
//!
//! `weft-trace` merges and reads the files that a recorder leaves.

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

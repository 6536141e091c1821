//! Replays a trace on real files, with processes that take the place of the traced ranks.
//!
//! ```text
//!                         parent (parent.rs)
//!        orders: one line of JSON │ ▲ reports: one line of JSON
//!           ┌─────────────────────┼─┴───────────────────┐
//!           ▼                     ▼                     ▼
//!      worker 0              worker 1              janitor         processes (worker.rs)
//!      ├ thread: ranks 0, 4  ├ thread: ranks 1, 5                  threads   (ranks.rs)
//!      └ thread: ranks 2, 6  └ thread: ranks 3, 7
//! ```
//!
//! The parent gives all workers one order and waits until each has reported its completion:
//!
//! | order | workers |
//! | --- | --- |
//! | `Hello` | report that they run and have opened the prepared trace |
//! | `Begin` | worker 0 creates the directory and checks the free space |
//! | `Prepare`, `PrepareParts` | create the files that existed before the traced program, and fill what will be read |
//! | `SyncInput` | sync these files, if requested |
//! | `Run` | execute the steps of their ranks, each rank in order |
//! | `SyncWritten` | sync the files that were written, if requested, as the last operations of the replay |
//! | `Pass` | release the threads that wait at a barrier, sent when every worker has reported it |
//! | `Verify` | compare the data that another worker wrote (`payload.rs`) |
//! | `Clean`, `End` | remove the files and the directory |
//! | `Quit` | exit |
//!
//! The janitor is a further worker process that waits. If the replay fails or the parent is killed, the janitor's
//! standard input ends, and it removes all files.

mod files;
mod parent;
mod payload;
mod protocol;
mod ranks;
mod tally;
mod worker;

pub use parent::{Options, Outcome, Progress, run};
pub use tally::{Done, FileTally, KindTally, Tally};
pub use worker::serve;

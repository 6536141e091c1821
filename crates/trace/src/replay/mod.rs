//! A trace done again on real files, by processes that stand for its ranks.
//!
//! ```text
//! parent (run)      starts workers, leads them through the parts, passes barriers on, adds their tallies up
//! worker (serve)    a process: some ranks, dealt to threads; one line of JSON for each message
//! ranks             a thread: its ranks' steps, each rank's in order
//! files             what is there before, and what must be there after
//! ```

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

//! A modelled parallel file system with locks, like Lustre or GPFS, in the simulated world.
//!
//! The file system has no code of Weft: it is a model of the ones that delegates run over. It carries lengths only.
//!
//! ```text
//! client (a rank or a delegate)                                       servers
//! write ── lock each stripe object, or the file ── weft_models::locks
//!       ── read units that it changes in part ─────────────────────── disk
//!       ── copy into the client's cache: dirty
//!          write-back: enough bytes for a request ─────────────────── disk
//!          revocation, sync, close: all dirty bytes ───────────────── disk
//! ```
//!
//! | cost | model |
//! | --- | --- |
//! | lock messages, the queue of lock servers | `weft_models::locks` |
//! | waiting for the holder's calls and its write-back | the tasks of this file system |
//! | payloads | the network between the machines, shared with the messages of ranks and delegates |
//! | disks | one device profile for each server, past the page cache |
//!
//! | file | contents |
//! | --- | --- |
//! | `spec` | descriptions of file system and delegates |
//! | `state` | locks in use, caches, files |
//! | `grants` | locks: requests, revocations |
//! | `write_back` | requests to servers |
//! | `handle` | open files |
//! | `exchange` | messages between ranks in two-phase I/O |
//! | `delegates` | delegates over the file system |
//! | `drive` | runs a workload |

mod delegates;
mod drive;
mod exchange;
mod grants;
mod handle;
mod outcome;
mod spec;
mod state;
mod write_back;

pub(crate) use drive::run;
pub use handle::{LockedFile, LockingMount};
pub use outcome::{DelegatesOutcome, LockingOutcome};
pub use spec::{DelegatesSpec, LockingKind, LockingSpec};
pub use state::LockingFs;

//! Replicas: reorganized copies of byte ranges of a file, used in place of the original.
//!
//! # Files of Weft
//!
//! The metadata server knows the replica, and decides at each open whether it is used. Its data is a file without a name: the
//! bytes, then the mapping ([`weft_core::replicas::Mapping`]).
//!
//! | module | does |
//! | --- | --- |
//! | `open_file` | splits the requests of an open file between file and replica |
//! | `client` | creates, synchronizes, compares and drops replicas |
//! | `transfer` | copies bytes from the original to the replica, and back; for both kinds |
//!
//! # Files of the host's own file systems
//!
//! A replica consists of a few files in `.weft/replicas`, on the file system of its original. Their names begin with its id:
//!
//! | file | contents |
//! | --- | --- |
//! | `.mapping` | where each replicated byte lies in the data ([`weft_core::replicas::Mapping`]); never changes |
//! | `.data` | the bytes |
//! | `.state` | phase, and the attributes of the original when both had the same bytes; replaced as a whole |
//! | `.written` | whether anything was written since then, and which regions of the data |
//! | `.users` | lock: shared by the processes that have the file open, exclusive to synchronize |
//!
//! | module | does |
//! | --- | --- |
//! | `format` | encodes and decodes these files |
//! | `files` | opens, creates and removes a replica; its state |
//! | `usage` | begin and end of a use by a process, synchronization |
//! | `redirector` | the open file: splits requests between original and replica |
//!
//! # Consistency
//!
//! * Each byte has one owner while a replica is in use: the replica if the mapping contains it, else the original.
//! * Every process that opens the file holds the shared lock. The first one, which holds it exclusively for a moment,
//!   decides for all others whether the replica is used.
//! * The mark of a region is durable before its first byte is written.
//! * The last process that closes the file copies marked regions to the original, syncs it, and records its attributes.
//!   If that is interrupted, the next use begins with it.
//! * Where the original ends, the replica has zeros, so that a longer file shows no old bytes.
//! * Another program that changed the original shows in its attributes, and the replica is not used any more. If both
//!   were written, nothing is copied and the file cannot be opened before somebody decides.

mod client;
mod files;
mod format;
mod open_file;
mod redirector;
mod transfer;
mod usage;

pub(crate) use open_file::Redirection;

pub use client::Purpose;
pub use files::{
    Identity, Origin, Replica, ReplicaInfo, Written, is_written, list as list_replicas, read_info,
    replica_id, replicated_inode,
};
pub use format::{decode_mapping, decode_state, encode_mapping, encode_state};
pub use redirector::{MaybeReplicated, Redirector};
pub use transfer::{Difference, Pace, Unpaced};
pub use usage::{Begun, Synchronized, Usage};
pub use weft_core::replicas::Phase;

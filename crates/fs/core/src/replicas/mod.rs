//! Replicas of parts of a file: where bytes of a replicated file lie in its replica.
//!
//! S. He and X.-H. Sun, "A Cost-Effective Distribution-Aware Data Replication Scheme for Parallel I/O Systems", IEEE
//! Transactions on Computers 67(10), 2018, section 4.3, stores one table entry for each replicated request. Here regular
//! patterns are stored as strides ([`Grid`]), so that the mapping of a strided program has constant size.
//!
//! | module | contents |
//! | --- | --- |
//! | `mapping` | the mapping: lookup, iteration, validation |
//! | `compaction` | pieces to grids and extents |
//! | `dirty` | regions of a replica that were written since it was last synchronized |
//! | `phase` | state of a replica |

mod compaction;
mod dirty;
mod mapping;
mod phase;

pub use dirty::{DirtyRegions, REGIONS_MAX, region_len};
pub use mapping::{Grid, MappedExtent, Mapping, MappingError, Part, SLOTS_MAX, Slot};
pub use phase::Phase;

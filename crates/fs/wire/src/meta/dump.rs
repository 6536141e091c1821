//! Dumps of the metadata database.

use serde::{Deserialize, Serialize};
use weft_core::Timestamp;

/// Maximum number of rows in one page of a dump.
pub const DUMP_ROWS_MAX: usize = 4096;
/// Maximum number of dumps at a time. Each keeps a snapshot of the database.
pub const DUMPS_MAX: usize = 2;

/// Dump that has started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpBegun {
    /// Number of the dump.
    pub number: u64,
    /// Time of the snapshot, by the metadata server's clock.
    pub made: Timestamp,
    /// Identity file of the database.
    #[serde(with = "serde_bytes")]
    pub identity: Vec<u8>,
    /// Number of inodes, for a progress bar.
    pub inodes: u64,
}

/// Row of the database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpedRow {
    /// Number of the table.
    pub table: u8,
    /// Key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Value, with its stored checksum.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

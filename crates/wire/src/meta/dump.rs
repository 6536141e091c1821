//! Dumps of the metadata database.

use serde::{Deserialize, Serialize};
use weft_core::Timestamp;

/// The most rows in one page of a dump.
pub const DUMP_ROWS_MAX: usize = 4096;
/// The most dumps at a time: each keeps a state of the database.
pub const DUMPS_MAX: usize = 2;

/// A dump that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpBegun {
    /// Its number.
    pub number: u64,
    /// When the state of the database was taken, by the metadata server's clock.
    pub made: Timestamp,
    /// The identity file of the database.
    #[serde(with = "serde_bytes")]
    pub identity: Vec<u8>,
    /// Number of inodes, for a progress bar.
    pub inodes: u64,
}

/// A row of the database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpedRow {
    /// Number of its table.
    pub table: u8,
    /// Its key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// Its value, with the seal under which it is stored.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

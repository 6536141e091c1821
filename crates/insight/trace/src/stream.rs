//! Record streams, the common interface of all trace formats.

use crate::error::Result;
use crate::names::Names;
use crate::record::Record;
use serde::{Deserialize, Serialize};

/// Origin of a trace's records.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Weft's recorder, or another writer of `.wtrace`.
    #[default]
    Weft,
    /// A CSV file.
    Csv,
    /// The DXT modules of a Darshan log.
    DarshanDxt,
    /// Operations reconstructed from a Darshan log's counters.
    ///
    /// Operation counts and byte totals are the program's; offsets and times are guesses.
    DarshanCounters,
}

impl Source {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weft => "weft",
            Self::Csv => "csv",
            Self::DarshanDxt => "darshan-dxt",
            Self::DarshanCounters => "darshan-counters",
        }
    }
}

/// Facts about the traced program. Records can be read without them.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Origin of the records.
    pub source: Source,
    /// Command line; empty if unknown.
    pub program: String,
    /// Number of processes of the program, 0 if unknown. Some may have no records.
    pub processes: u32,
    /// Start of the trace in nanoseconds since the Unix epoch, 0 if unknown.
    pub began_unix_ns: u64,
    /// Remarks for readers of the trace, such as the number of lost records.
    pub notes: Vec<String>,
}

/// A stream of records in bounded memory. After an error the stream ends.
pub trait RecordStream: Iterator<Item = Result<Record>> + Send {
    /// Facts about the program. Complete once the stream has ended.
    fn info(&self) -> &Info;

    /// Names of all files and hosts that occurred so far.
    fn names(&self) -> &Names;

    /// Bytes of the source read so far, and its total length in bytes.
    fn progress(&self) -> (u64, u64);
}

//! What all sources have in common.

use crate::error::Result;
use crate::names::Names;
use crate::record::Record;
use serde::{Deserialize, Serialize};

/// Where a trace's records came from at first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Weft's own tracer, or who else wrote Weft's format.
    #[default]
    Weft,
    /// A CSV file.
    Csv,
    /// The DXT modules of a Darshan log.
    DarshanDxt,
    /// A likely course of events made from a Darshan log's counters: sizes and amounts are those of the program,
    /// offsets and times are guesses.
    DarshanCounters,
}

impl Source {
    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weft => "weft",
            Self::Csv => "csv",
            Self::DarshanDxt => "darshan-dxt",
            Self::DarshanCounters => "darshan-counters",
        }
    }
}

/// What a trace says of the program as a whole. Nothing of it is needed to read records.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Where the records came from.
    pub source: Source,
    /// Command line, empty when unknown.
    pub program: String,
    /// Number of processes that the program had, 0 when unknown; fewer may have records.
    pub processes: u32,
    /// Begin of the trace in nanoseconds since 1970, 0 when unknown.
    pub began_unix_ns: u64,
    /// What a reader should know, such as records that are missing because the tracer ran out of memory.
    pub notes: Vec<String>,
}

/// Records one after another, in memory that does not grow with their number. After an error there are no more.
pub trait RecordStream: Iterator<Item = Result<Record>> + Send {
    /// What is known of the program. Complete when the stream is at its end.
    fn info(&self) -> &Info;

    /// Names of the files and hosts of all records that came so far.
    fn names(&self) -> &Names;

    /// How much of the source was read, and how much there is, in bytes; for progress bars.
    fn progress(&self) -> (u64, u64);
}

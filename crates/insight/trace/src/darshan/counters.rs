//! Contents of a Darshan log other than operations: the job, the modules, and counters per file.

use serde::{Deserialize, Serialize};

/// Summary of a log.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct LogSummary {
    /// Version of libdarshan-util that read the log.
    pub library: String,
    /// Path of that library.
    pub library_path: String,
    /// Command line.
    pub program: String,
    /// Number of processes.
    pub processes: u32,
    /// Start of the job in nanoseconds since the Unix epoch.
    pub began_unix_ns: u64,
    /// Run time of the job in seconds.
    pub seconds: f64,
    /// Modules with data.
    pub modules: Vec<ModuleInfo>,
    /// Counters of the modules POSIX, MPI-IO and STDIO, if they have data.
    pub counters: Vec<Counters>,
}

impl LogSummary {
    /// Whether the log contains single operations.
    pub fn has_dxt(&self) -> bool {
        self.modules.iter().any(|module| module.name.starts_with("DXT_"))
    }
}

/// A module of a log.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Name of the module.
    pub name: String,
    /// Version of the module's data format.
    pub version: i32,
    /// Whether Darshan ran out of memory for the module, so that files are missing.
    pub partial: bool,
}

/// Exclusive upper bounds of Darshan's request size classes in bytes. The last class is unbounded.
pub const SIZE_CLASSES: [u64; 10] =
    [101, 1_025, 10_241, 102_401, 1_048_577, 4_194_305, 10_485_761, 104_857_601, 1_073_741_825, u64::MAX];

/// Counters of one module over all files and ranks.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Name of the module.
    pub module: String,
    /// Number of files.
    pub files: u64,
    /// Totals over all files; the name is empty.
    pub total: FileCounters,
    /// Files with the most bytes, at most [`FILES_MAX`].
    pub largest: Vec<FileCounters>,
}

/// Maximum number of files in a summary.
pub const FILES_MAX: usize = 100;

/// Counters of one file over all ranks.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct FileCounters {
    /// Path of the file.
    pub name: String,
    /// Number of opens.
    pub opens: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads that started at or after the end of the same rank's previous one; 0 if the module does not count them.
    pub sequential_reads: u64,
    /// Writes that started at or after the end of the same rank's previous one; 0 if the module does not count them.
    pub sequential_writes: u64,
    /// Operations whose offset was not a multiple of the file system's alignment.
    pub unaligned: u64,
    /// Number of reads by request size class; see [`SIZE_CLASSES`].
    pub read_sizes: [u64; 10],
    /// Number of writes by request size class; see [`SIZE_CLASSES`].
    pub write_sizes: [u64; 10],
}

impl FileCounters {
    /// Adds another file's counters.
    pub fn add(&mut self, other: &Self) {
        self.opens += other.opens;
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.sequential_reads += other.sequential_reads;
        self.sequential_writes += other.sequential_writes;
        self.unaligned += other.unaligned;
        for (sum, more) in self.read_sizes.iter_mut().zip(&other.read_sizes) {
            *sum += more;
        }
        for (sum, more) in self.write_sizes.iter_mut().zip(&other.write_sizes) {
            *sum += more;
        }
    }
}

/// A record of a counter module, accessed by counter name.
pub struct Record<'a> {
    names: &'a [String],
    float_names: &'a [String],
    words: &'a [u64],
}

impl<'a> Record<'a> {
    /// Wraps `words`: record id, rank, then one word for each name.
    pub fn new(names: &'a [String], float_names: &'a [String], words: &'a [u64]) -> Self {
        assert_eq!(words.len(), 2 + names.len() + float_names.len(), "a record of another length");
        Self { names, float_names, words }
    }

    /// Darshan's record id of the file.
    pub fn id(&self) -> u64 {
        self.words[0]
    }

    /// Rank of the record; `None` if the record covers all ranks.
    pub fn rank(&self) -> Option<u32> {
        u32::try_from(self.words[1] as i64).ok()
    }

    /// Value of an integer counter; 0 if the module lacks the counter or did not count.
    pub fn count(&self, name: &str) -> u64 {
        let at = self.names.iter().position(|other| other == name);
        at.map_or(0, |at| (self.words[2 + at] as i64).max(0) as u64)
    }

    /// Value of a floating-point counter; 0 if the module lacks the counter or did not count.
    pub fn float(&self, name: &str) -> f64 {
        let at = self.float_names.iter().position(|other| other == name);
        let value = at.map_or(0.0, |at| f64::from_bits(self.words[2 + self.names.len() + at]));
        if value.is_finite() { value.max(0.0) } else { 0.0 }
    }

    /// Number of reads or writes by request size class.
    pub fn sizes(&self, prefix: &str, direction: &str) -> [u64; 10] {
        let aggregated = if prefix == "MPIIO" { "AGG_" } else { "" };
        const CLASSES: [&str; 10] = [
            "0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G",
            "1G_PLUS",
        ];
        CLASSES.map(|class| self.count(&format!("{prefix}_SIZE_{direction}_{aggregated}{class}")))
    }

    /// Extracts the counters that a summary shows.
    pub fn counters(&self, prefix: &str) -> FileCounters {
        let count = |name: &str| self.count(&format!("{prefix}_{name}"));
        let mpi = prefix == "MPIIO";
        let of_kinds = |what: &str| {
            ["INDEP", "COLL", "SPLIT", "NB"].iter().map(|kind| count(&format!("{kind}_{what}"))).sum::<u64>()
        };
        FileCounters {
            name: String::new(),
            opens: if mpi { count("INDEP_OPENS") + count("COLL_OPENS") } else { count("OPENS") },
            reads: if mpi { of_kinds("READS") } else { count("READS") },
            writes: if mpi { of_kinds("WRITES") } else { count("WRITES") },
            bytes_read: count("BYTES_READ"),
            bytes_written: count("BYTES_WRITTEN"),
            sequential_reads: count("SEQ_READS"),
            sequential_writes: count("SEQ_WRITES"),
            unaligned: count("FILE_NOT_ALIGNED"),
            read_sizes: self.sizes(prefix, "READ"),
            write_sizes: self.sizes(prefix, "WRITE"),
        }
    }
}

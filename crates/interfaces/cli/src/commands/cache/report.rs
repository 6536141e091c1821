//! Results of the simulations.

use crate::table::Table;
use serde_json::json;
use weft_core::cache::{AdmissionSpec, BLOCK_LEN, EvictionPolicy, HitRatio, Simulation};
use weft_core::units::human_bytes;

/// Policies of a simulated cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    policy: EvictionPolicy,
    /// Whether the filters of the server decide about admission; otherwise all blocks enter.
    filtered: bool,
}

impl Case {
    /// All cases, in the order of the columns.
    pub const ALL: [Self; 4] = [
        Self { policy: EvictionPolicy::S3Fifo, filtered: false },
        Self { policy: EvictionPolicy::Lru, filtered: false },
        Self { policy: EvictionPolicy::S3Fifo, filtered: true },
        Self { policy: EvictionPolicy::Lru, filtered: true },
    ];

    /// Returns an empty cache for each case, in the order of [`Case::ALL`].
    pub fn simulations(capacity: u64) -> [Simulation; Self::ALL.len()] {
        Self::ALL.map(|case| {
            let admission = match case.filtered {
                true => AdmissionSpec::for_capacity(capacity),
                false => AdmissionSpec::all(capacity),
            };
            Simulation::new(case.policy, &admission)
        })
    }
}

/// Result of a workload on one size of the cache.
pub struct Row {
    /// Skew of the Zipf distribution; `None` for a trace.
    pub skew: Option<f64>,
    pub capacity: u64,
    /// Phase of the workload, or direction of the requests of a trace.
    pub phase: WorkloadPhase,
    /// Result of each case, in the order of [`Case::ALL`].
    pub results: Vec<CaseResult>,
}

/// Requests of a workload that a row counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadPhase {
    /// All requests of a Zipf workload.
    All,
    BeforeScan,
    DuringScan,
    AfterScan,
    /// The reads of a trace.
    Reads,
    /// The writes of a trace.
    Writes,
}

impl WorkloadPhase {
    const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::BeforeScan => "before scan",
            Self::DuringScan => "during scan",
            Self::AfterScan => "after scan",
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }
}

#[derive(Clone, Copy)]
pub struct CaseResult {
    pub ratio: HitRatio,
    /// Bytes that entered the cache since its start, until the end of the phase.
    pub stored: u64,
}

/// Results of all workloads and sizes.
pub struct Report {
    /// Number of different blocks of the workload.
    pub footprint: u64,
    pub rows: Vec<Row>,
}

impl Report {
    /// Prints a table.
    pub fn print(&self) {
        outln!("{} in {} blocks of 64 KiB", human_bytes(self.footprint * BLOCK_LEN), self.footprint);
        outln!();
        let mut table = Table::new([
            "skew",
            "cache",
            "requests",
            "blocks",
            "s3-fifo",
            "lru",
            "s3-fifo filtered",
            "lru filtered",
        ]);
        for row in &self.rows {
            let cell = |at: usize| match row.results[at].ratio {
                HitRatio { requests: 0, .. } => "-".to_owned(),
                ratio => format!("{:.2}%", ratio.ratio() * 100.0),
            };
            table.row([
                row.skew.map_or_else(|| "-".to_owned(), |skew| format!("{skew:.2}")),
                human_bytes(row.capacity),
                row.phase.word().to_owned(),
                row.results[0].ratio.requests.to_string(),
                cell(0),
                cell(1),
                cell(2),
                cell(3),
            ]);
        }
        out!("{}", table.render());
    }

    /// Prints one JSON object per line.
    pub fn print_json(&self) {
        for row in &self.rows {
            for (case, result) in Case::ALL.iter().zip(&row.results) {
                let line = json!({
                    "skew": row.skew,
                    "footprint_bytes": self.footprint * BLOCK_LEN,
                    "cache_bytes": row.capacity,
                    "requests": row.phase.word(),
                    "policy": case.policy.word(),
                    "filtered": case.filtered,
                    "blocks": result.ratio.requests,
                    "hits": result.ratio.hits,
                    "hit_ratio": result.ratio.ratio(),
                    "stored_bytes": result.stored,
                });
                outln!("{line}");
            }
        }
    }
}

//! Latencies of requests, from their arrival to the reply, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Nanos;
use weft_wire::activity::LatencyCounts;

/// Upper bounds of the classes of latencies; a further class has all longer ones.
pub const BOUNDS: [Nanos; 16] = {
    let us = [
        10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000,
        10_000_000,
    ];
    let mut bounds = [Nanos(0); 16];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = Nanos(us[at] * 1000);
        at += 1;
    }
    bounds
};
const CLASSES: usize = BOUNDS.len() + 1;

/// Kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads of datafiles by messages.
    Read,
    /// Writes of datafiles by messages.
    Write,
    /// Other requests about datafiles, such as syncs.
    Datafile,
    /// Requests to the metadata service that do not wait for other clients.
    Metadata,
}

impl Operation {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Datafile, Self::Metadata];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Datafile => "datafile",
            Self::Metadata => "metadata",
        }
    }
}

/// Latencies of one kind of request since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Distribution {
    /// Number of requests in each class of [`BOUNDS`], and of all longer ones.
    pub counts: [u64; CLASSES],
    /// Sum of all latencies.
    pub sum: Nanos,
}

impl Distribution {
    /// Number of requests.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl From<Distribution> for LatencyCounts {
    fn from(found: Distribution) -> Self {
        Self { counts: found.counts.to_vec(), sum: found.sum }
    }
}

#[derive(Default)]
struct Counters {
    counts: [AtomicU64; CLASSES],
    sum_ns: AtomicU64,
}

/// Latencies by kind of request. Kept all the time: counting costs less than reading the clock.
#[derive(Default)]
pub(crate) struct Latencies([Counters; Operation::ALL.len()]);

impl Latencies {
    /// Counts a request.
    pub fn add(&self, operation: Operation, latency: Nanos) {
        let counters = &self.0[operation as usize];
        let class = BOUNDS.partition_point(|bound| *bound < latency);
        counters.counts[class].fetch_add(1, Ordering::Relaxed);
        counters.sum_ns.fetch_add(latency.0, Ordering::Relaxed);
    }

    /// Returns the latencies of a kind.
    pub fn of(&self, operation: Operation) -> Distribution {
        let counters = &self.0[operation as usize];
        Distribution {
            counts: std::array::from_fn(|class| counters.counts[class].load(Ordering::Relaxed)),
            sum: Nanos(counters.sum_ns.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_class() {
        let latencies = Latencies::default();
        for ns in [0, 10_000, 10_001, 10_000_000_000, 10_000_000_001] {
            latencies.add(Operation::Write, Nanos(ns));
        }
        let found = latencies.of(Operation::Write);
        let mut expected = [0; CLASSES];
        (expected[0], expected[1], expected[15], expected[16]) = (2, 1, 1, 1);
        assert_eq!((found.counts, found.count()), (expected, 5));
        assert_eq!(found.sum, Nanos(20_000_020_002));
        assert_eq!(latencies.of(Operation::Read).count(), 0);
        assert!(BOUNDS.is_sorted());
    }
}

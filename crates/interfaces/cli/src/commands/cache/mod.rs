//! `weft cache`: predicts the hit ratio of SSD caches.

mod block_trace;
mod report;
mod size;
mod trace;
mod zipf;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use report::Report;
use size::CacheSize;
use std::path::PathBuf;

const AFTER: &str = "\
Simulates the cache of a target without devices, in blocks of 64 KiB. Each workload and cache size is simulated four
times: with the eviction policies S3-FIFO and LRU, where every missed block enters the cache (s3-fifo, lru), and behind
the filters of the server (filtered): a read enters at its second access, and long streams of reads stay out.

Without TRACE the workload is a Zipf distribution: block n is read with a probability in proportion to n^-SKEW. The
ratios begin with an empty cache. With --scan, other blocks are read once, one after each block of the workload, when
half of the requests are done. The table then shows the ratios of the workload's own blocks in as many requests before
the scan (or all before it), during it and after it.

A TRACE is a Darshan log with DXT, CSV or .wtrace, as for `weft trace`; its reads and writes of each file are played in
the order of their times. It may also be a trace of a block device, one request on a line, in the order of time:
  MSR Cambridge, no heading  Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
  CSV with a heading         timestamp,offset,size,op in any order, and volume if there are several; further columns
                             are ignored
Offset and size are bytes; Type and op are Read or Write. A written block stays in the cache, so a write is a hit when
its block is there.

docs/reference/cache-simulation.md describes the output.

Examples:
  weft cache simulate
  weft cache simulate --zipf 0.8,1.0 --blocks 1000000 --cache 1%,10GiB
  weft cache simulate --scan 10 --cache 5%
  weft cache simulate run.wtrace --cache 1GiB,4GiB
  weft cache simulate usr_0.csv --json | jq -r '[.cache_bytes, .policy, .hit_ratio] | @tsv'";

/// Predicts the hit ratio of SSD caches.
#[derive(Args)]
#[command(after_long_help = "Example:
  weft cache simulate --scan 10")]
pub struct Cache {
    #[command(subcommand)]
    what: CacheCommand,
}

#[derive(Subcommand)]
enum CacheCommand {
    /// Simulate caches by S3-FIFO and LRU under a Zipf workload or a trace
    Simulate(Simulate),
}

/// Simulates caches by S3-FIFO and LRU under a Zipf workload or a trace.
#[derive(Args)]
#[command(after_long_help = AFTER)]
struct Simulate {
    /// A trace of a program, or of a block device [default: a Zipf workload]
    trace: Option<PathBuf>,
    /// Sizes of the cache: bytes, such as 4GiB, or a percentage of the bytes that the workload uses; comma-separated
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "1%,10%")]
    cache: Vec<CacheSize>,
    /// Skews of the Zipf distribution, 0 to 5: a comma-separated list, or a range in steps of 0.2
    #[arg(long, value_name = "SKEW,…|FROM..TO", default_value = "0.6..1.2", conflicts_with = "trace")]
    zipf: zipf::Skews,
    /// Number of blocks of the Zipf workload
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, conflicts_with = "trace")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    blocks: u64,
    /// Number of requests of the Zipf workload, one block each
    #[arg(long, value_name = "COUNT", default_value_t = 500_000, conflicts_with = "trace")]
    #[arg(value_parser = clap::value_parser!(u64).range(2..))]
    requests: u64,
    /// Read as many other blocks once, in order, as this many times the size of the cache
    #[arg(long, value_name = "TIMES", conflicts_with = "trace")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    scan: Option<u64>,
    /// Seed of the random numbers; equal seeds give equal results
    #[arg(long, default_value_t = 1, conflicts_with = "trace")]
    seed: u64,
    /// Reconstruct plausible operations from the counters of a Darshan log without DXT
    #[arg(long, requires = "trace")]
    reconstruct: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

impl Cache {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        let CacheCommand::Simulate(simulate) = self.what;
        simulate.run()
    }
}

impl Simulate {
    fn run(self) -> Result<u8, Failure> {
        let report = match &self.trace {
            Some(path) => trace::simulate(path, self.reconstruct, &self.cache)?,
            None => self.zipf()?,
        };
        if self.json {
            report.print_json()
        } else {
            report.print()
        }
        Ok(0)
    }

    fn zipf(&self) -> Result<Report, Failure> {
        let workload =
            zipf::Workload { blocks: self.blocks, requests: self.requests, scan: self.scan, seed: self.seed };
        let capacities = size::capacities(&self.cache, self.blocks)?;
        let mut rows = Vec::new();
        let bar = zipf::bar(&workload, self.zipf.0.len() * capacities.len());
        for &skew in &self.zipf.0 {
            for &capacity in &capacities {
                rows.extend(zipf::simulate(&workload, skew, capacity, &bar));
            }
        }
        bar.finish_and_clear();
        Ok(Report { footprint: self.blocks, rows })
    }
}

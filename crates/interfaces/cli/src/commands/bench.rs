//! `weft bench`: measures Weft and a plain local directory.

use super::run::{Run, preload_library};
use crate::embedded;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_bench::{BenchArgs, Context};
use weft_config::Cluster;

const AFTER: &str = "\
Each value has a control: the same work by the same number of processes on a new plain directory, in the same round.
`ratio` is the median ratio over the rounds. Everything written is read back and compared, outside of the measured
time.

Columns: processor time per operation in the ranks (cli us) and in the servers (srv us), and requests to servers per
operation (msg/op). Requests include opens. Transfers by leased descriptors send none.

--against compares two configurations: another cluster takes the place of the plain directory. `s` is the median time
of a round, columns with `o` are those of the other cluster, and `speed` and `cpu` are the medians of the rounds'
ratios of throughput and of processor time per operation. --beside adds further clusters to the rounds. One that
equals the other cluster shows the effect of chance. With --flush, a write includes its sync and the write-back of
SSDs beside disks.

--integrity measures the cost of checksums at rest: the same work on files with the setting crc32c (measured) and off
(other), alternating on one cluster, with these columns. Files with checksums have no leases of descriptors. The
transport auto therefore compares messages with descriptors, and socket compares messages with messages.

--workload runs the file operations of a parallel program: mpi-io-test, ior, hpio, mpi-tile-io, btio, flash-io,
s3d-io, server-span, mdtest, mpi-md-test, or a description in a file (`weft workload list`,
docs/reference/workloads.md). It prints a value for each phase. A last round compares every byte.

Examples:
  weft bench                                            on the configured or the embedded cluster
  weft bench --interfaces preload --transfers 47008 --json
  weft bench --workload mpi-io-test --set size=65KiB --ranks 8
  weft bench --cluster on.toml --against off.toml --flush --writes-only --transfers 47008 --interfaces library
  weft bench --integrity --transports socket --files 0    cost of checksums at rest
  weft bench --workload btio.toml --path /mnt/other       without Weft: another file system and the local directory
  weft mount /mnt/w && weft bench --interfaces fuse --mount /mnt/w";

/// Measures speed against the plain local directory.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

impl Bench {
    /// Measures and returns the exit code.
    pub fn run(mut self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::InvalidInput => Failure::misuse("bench", error),
            _ => Failure::new("bench", error),
        };
        if self.args.path.is_some() {
            weft_bench::run(&self.args, None, &mut std::io::stdout()).map_err(failed)?;
            return Ok(0);
        }
        let cluster = match file.or_else(Cluster::configured) {
            Some(file) => Cluster::load(&file)?,
            None => Run::embedded_cluster()?,
        };
        embedded::revive(&cluster)?;
        let _held = embedded::hold(&cluster)?;
        if self.args.control.is_none() && self.args.against.is_none() && !self.args.integrity {
            // On the same device as the targets. Otherwise the comparison is meaningless.
            self.args.control = cluster.embedded.as_ref().map(|state| state.join("bench-control"));
        }
        let context = Context {
            cluster_file: cluster.file.clone(),
            preload: preload_library()?,
            prefix: cluster.mount.display().to_string(),
            emulated: cluster.emulated(),
        };
        weft_bench::run(&self.args, Some(&context), &mut std::io::stdout()).map_err(failed)?;
        Ok(0)
    }
}

/// A process of a measurement. Only `weft bench` starts it.
#[derive(Args)]
pub struct BenchRank {
    /// Description of its work
    spec: String,
}

impl BenchRank {
    /// Works until the parent process ends it.
    pub fn run(self) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| Failure::new("bench-rank", error);
        let spec = serde_json::from_str(&self.spec).map_err(|error| failed(error.into()))?;
        weft_bench::rank::serve(&spec).map_err(failed)?;
        Ok(0)
    }
}

//! `weft bench`: what Weft does, beside what the plain local directory does.

use super::run::{Run, preload_library};
use crate::embedded;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_bench::{BenchArgs, Context};
use weft_config::Cluster;

const AFTER: &str = "\
Every figure stands beside a control: the same work by as many processes on a fresh plain directory, in the same round.
`ratio` is the median over the rounds of one by the other. Everything written is read back and compared outside of the
time taken.

Columns: processor time in the ranks (cli us) and in the servers (srv us) per operation, and requests to servers per
operation (msg/op; opening is among them, transfers by leased descriptors send none).

--against puts another cluster in the place of the plain directory, so that two configurations are compared with each
other: `s` is the median time of a round, columns with `o` are the other cluster's, `speed` and `cpu` the medians of the
rounds' quotients of throughput and of processor time per operation. --beside has further clusters take turns with those
two: one that is alike to the other shows what chance gives. With --flush a write has ended when it is synced and SSDs
beside disks are written back.

--integrity shows what checksums at rest cost: the same work on files with the setting crc32c (measured) and off
(other), in turns on the same cluster, with the same columns. A file with checksums lends no descriptor, so the transport
auto compares messages with descriptors where the other file lends them; socket compares messages with messages.

--workload plays what a parallel program does to files: mpi-io-test, ior, hpio, mpi-tile-io, btio, flash-io, s3d-io,
server-span, mdtest, mpi-md-test, or what a file describes (`weft workload list`, docs/workloads.md). A figure is
printed for each of its phases; a last round compares every byte.

Examples:
  weft bench                                            on the configured or the embedded cluster
  weft bench --interfaces preload --transfers 47008 --json
  weft bench --workload mpi-io-test --set size=65KiB --ranks 8
  weft bench --cluster on.toml --against off.toml --flush --writes-only --transfers 47008 --interfaces library
  weft bench --integrity --transports socket --files 0    what checksums at rest cost
  weft bench --workload btio.toml --path /mnt/other       no Weft: another file system beside the local directory
  weft mount /mnt/w && weft bench --interfaces fuse --mount /mnt/w";

/// Measures speed against the plain local directory.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

impl Bench {
    /// Measures; the code to end with.
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
            // On the device of the targets, or the comparison means nothing.
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

/// One process of a measurement; started by `weft bench` alone.
#[derive(Args)]
pub struct BenchRank {
    /// What it is
    spec: String,
}

impl BenchRank {
    /// Works until its parent says that it is over.
    pub fn run(self) -> Result<u8, Failure> {
        let failed = |error: std::io::Error| Failure::new("bench-rank", error);
        let spec = serde_json::from_str(&self.spec).map_err(|error| failed(error.into()))?;
        weft_bench::rank::serve(&spec).map_err(failed)?;
        Ok(0)
    }
}

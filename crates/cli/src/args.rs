//! The command line as a whole; each subcommand's own arguments stand in its file.

use crate::commands as c;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

const AFTER: &str = "\
Examples:
  weft run -- mpiexec -n 4 ./app       start a cluster on this machine if none runs, and run a program on it
  weft ls -l /weft                     look at what it wrote
  weft getstripe /weft/out.h5          see where its bytes are
  weft status                          see servers, targets, space and load

Weft paths:
  Files of Weft are named with the prefix that programs see, /weft unless the cluster file says otherwise. Where
  only Weft paths make sense the prefix may be left out: `weft ls /dir` is `weft ls /weft/dir`.

Environment:
  WEFT_CLUSTER   the cluster file (else ~/.config/weft/cluster.toml, /etc/weft/cluster.toml, the embedded cluster)
  WEFT_STATE     where the embedded cluster lies (else ~/.local/state/weft/default)
  WEFT_KEY       this user's key file (else ~/.config/weft/key, else the cluster's)
  WEFT_DARSHAN_LIB  libdarshan-util or its folder, for Darshan logs (else where `make deps` puts it)
  WEFT_PRELOAD   the preload library that `weft run` uses (else the one installed with this program)

Exit codes:
  0  done
  1  it could not be done, or what was asked about is not well (status, config check)
  2  wrong arguments, cluster file or key
  `weft run` passes on the code of its program; `weft fsck` has codes of its own.";

/// A parallel file system in user space: stripes files over many disks and servers, for unmodified MPI, HDF5 and
/// POSIX programs.
#[derive(Parser)]
#[command(name = "weft", version, after_long_help = AFTER, after_help = "`weft help COMMAND` tells more, with examples.")]
#[command(max_term_width = 110, infer_long_args = true, disable_help_subcommand = false)]
pub struct Weft {
    /// The cluster file to use.
    #[arg(long, global = true, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program on Weft, starting a cluster on this machine if none is configured
    Run(c::run::Run),
    /// Stop the servers of the cluster that run on this machine
    Stop(c::stop::Stop),
    /// Run a server of the cluster, or all of this host
    Serve(c::serve::Serve),
    /// Show servers, targets, space and load
    Status(c::status::Status),
    /// Show the cluster as a directory, for every program, by FUSE
    Mount(c::mount::Mount),
    /// End a mount
    Umount(c::mount::Umount),
    /// List directories
    Ls(c::ls::Ls),
    /// Copy files between the local file system and Weft, or within Weft
    Cp(c::cp::Cp),
    /// Write files to standard output
    Cat(c::cat::Cat),
    /// Rename or move within Weft
    Mv(c::tree::Mv),
    /// Remove files
    Rm(c::tree::Rm),
    /// Make directories
    Mkdir(c::tree::Mkdir),
    /// Make empty files, or set times to now
    Touch(c::tree::Touch),
    /// Make links
    Ln(c::tree::Ln),
    /// Show all attributes
    Stat(c::stat::Stat),
    /// Show space by target
    Df(c::df::Df),
    /// Show how much room directories take
    Du(c::du::Du),
    /// Set how a new file, or all new files of a directory, are striped
    Setstripe(c::stripe::Setstripe),
    /// Show how files are striped
    Getstripe(c::stripe::Getstripe),
    /// Move files to other layouts while programs use them
    Migrate(c::migrate::Migrate),
    /// Check the whole cluster, and repair it when asked to
    Fsck(c::fsck::Fsck),
    /// Dump, restore and verify the metadata
    Meta(c::meta::Meta),
    /// Have what lies on SSDs beside disks written to the disks
    Flush(c::flush::Flush),
    /// Show the targets on record; let them join and leave
    Target(c::target::Target),
    /// Let all targets of a server join, or leave
    Server(c::server::Server),
    /// Move data from full targets to empty ones
    Rebalance(c::rebalance::Rebalance),
    /// Make keys
    Key(c::key::KeyArgs),
    /// Check, show or begin a cluster file
    Config(c::config::Config),
    /// Measure speed against the plain local directory
    Bench(c::bench::Bench),
    /// Show what parallel programs do to files, as the benchmarks of this field do it
    Workload(c::workload::Workload),
    /// Measure the cluster that runs, or the device under a path
    Profile(c::profile::ProfileArgs),
    /// Run client and servers on a simulated cluster
    Twin(c::twin::Twin),
    /// Run the experiments of papers on simulated clusters
    Lab(c::lab::Lab),
    #[command(hide = true)]
    BenchRank(c::bench::BenchRank),
    /// Look at traces of programs: Darshan logs, CSV, Weft's own
    Trace(c::trace::Trace),
    /// Plan layouts for a traced program
    Plan(c::plan::PlanArgs),
    /// Have files get the layouts of a plan
    Apply(c::apply::Apply),
    /// Do again what a traced program did, on real files or on the twin
    Replay(c::replay::Replay),
    #[command(hide = true)]
    ReplayWorker(c::replay::ReplayWorker),
    #[command(hide = true)]
    DarshanReader(c::trace::DarshanReader),
    /// Print shell completions
    Completions(c::docs::Completions),
    /// Write manual pages
    Man(c::docs::Man),
}

#[cfg(test)]
mod tests;

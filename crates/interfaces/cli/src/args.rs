//! The command line. The arguments of each subcommand are in its own file.

use crate::commands as c;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

const AFTER: &str = "\
Examples:
  weft run -- mpiexec -n 4 ./app       run a program, and start a cluster on this machine if none runs
  weft ls -l /weft                     list the files it wrote
  weft getstripe /weft/out.h5          show where its bytes are
  weft status                          show servers, targets, space and load

Weft paths:
  Paths on Weft have the prefix that programs see: /weft, unless the cluster file sets `mount`. Commands that only
  take paths on Weft accept them without the prefix: `weft ls /dir` is `weft ls /weft/dir`, unless this host has
  a /dir.

Environment:
  WEFT_CLUSTER   the cluster file (else that of the Slurm job, ~/.config/weft/cluster.toml, /etc/weft/cluster.toml,
                 the embedded cluster)
  WEFT_STATE     state directory of the embedded cluster (else ~/.local/state/weft/default)
  WEFT_KEY       this user's key file (else ~/.config/weft/key, else the cluster's)
  WEFT_DELEGATES the job directory whose I/O delegates programs use, or HOST:PORT,... with WEFT_DELEGATE_KEY
  WEFT_OVER      directories that programs use through delegates, separated by colons
  WEFT_DARSHAN_LIB  libdarshan-util or its directory, for Darshan logs (else where `make deps` puts it)
  WEFT_PRELOAD   the preload library that `weft run` uses (else the one installed with this program)

Exit codes:
  0  success
  1  failure, or a problem was found (status, config check)
  2  wrong arguments, cluster file or key
  `weft run` returns the code of its program; `weft fsck` has further codes.";

/// A parallel file system in user space: stripes files over many disks and servers, for unmodified MPI, HDF5 and
/// POSIX programs.
#[derive(Parser)]
#[command(name = "weft", version, after_long_help = AFTER, after_help = "`weft help COMMAND` shows details and examples.")]
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
    /// Run one server of the cluster, or all servers of this host
    Serve(c::serve::Serve),
    /// Show servers, targets, space and load
    Status(c::status::Status),
    /// Show current activity by client, user, file and target
    Top(c::top::Top),
    /// Run an I/O delegate of a job, or show and stop a job's delegates
    Delegate(Box<c::delegate::Delegate>),
    /// Show the cluster as a directory, for every program, by FUSE
    Mount(c::mount::Mount),
    /// End a mount
    Umount(c::mount::Umount),
    /// List directories
    Ls(c::ls::Ls),
    /// Find files by name, size, age, owner and layout
    Find(c::find::Find),
    /// Copy files between the local file system and Weft, or within Weft
    Cp(c::cp::Cp),
    /// Write files to standard output
    Cat(c::cat::Cat),
    /// Rename or move files within Weft
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
    /// Change permissions
    Chmod(c::owners::Chmod),
    /// Change owner and group
    Chown(c::owners::Chown),
    /// Show space by target
    Df(c::df::Df),
    /// Show the space that directories take
    Du(c::du::Du),
    /// Show and set quotas of users and directory trees
    Quota(c::quota::QuotaArgs),
    /// Set how a new file, or all new files of a directory, are striped
    Setstripe(c::stripe::Setstripe),
    /// Show how files are striped
    Getstripe(c::stripe::Getstripe),
    /// Move files to other layouts while programs use them
    Migrate(c::migrate::Migrate),
    /// Create, show and remove replicas of files on mounted file systems
    Replicate(c::replicate::Replicate),
    /// Copy replicas and move files in the background
    Agent(c::agent::Agent),
    /// Check the whole cluster, and repair it when asked to
    Fsck(c::fsck::Fsck),
    /// Dump, restore and verify the metadata
    Meta(c::meta::Meta),
    /// Write the data on SSDs beside disks back to the disks
    Flush(c::flush::Flush),
    /// Show the targets on record, and let targets join or leave
    Target(c::target::Target),
    /// Show servers, name their failure domains, and let them join or leave
    Server(c::server::Server),
    /// Raise the feature level of the cluster after all servers have a later version
    Upgrade(c::upgrade::Upgrade),
    /// Move data from full targets to empty ones
    Rebalance(c::rebalance::Rebalance),
    /// Create and manage keys
    Key(c::key::KeyArgs),
    /// Check, show or create a cluster file
    Config(c::config::Config),
    /// Measure speed against the plain local directory
    Bench(c::bench::Bench),
    /// Show what parallel programs do to files, using the field's benchmarks
    Workload(c::workload::Workload),
    /// Predict the hit ratio of SSD caches
    Cache(c::cache::Cache),
    /// Measure the running cluster, or the device under a path
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
    /// Give files the layouts of a plan
    Apply(c::apply::Apply),
    /// Repeat what a traced program did, on real files or on the twin
    Replay(c::replay::Replay),
    #[command(hide = true)]
    PrivateMount(c::private_mount::PrivateMount),
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

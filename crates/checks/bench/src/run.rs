//! Options of a benchmark run, and the order of its cases.

use crate::cases::Bench;
use crate::context::Context;
use crate::named;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::path::PathBuf;

/// Options of a benchmark run.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Number of processes; default 4, or as the workload says
    #[arg(long)]
    pub ranks: Option<u32>,
    /// Play this workload instead of the default cases: a kind, such as `btio`, or a file
    #[arg(long, value_name = "KIND|FILE.toml")]
    pub workload: Option<String>,
    /// Set a parameter of the workload, such as size="65 KiB"; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "workload")]
    pub set: Vec<String>,
    /// Measure system calls on a directory of any file system instead of Weft
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Compare with this cluster instead of a plain local directory; the one that runs first changes in each round
    #[arg(long, value_name = "CLUSTER.toml", conflicts_with_all = ["path", "mount", "control"])]
    pub against: Option<PathBuf>,
    /// Measure further clusters in the same rounds and print rows for them; may be repeated. A cluster equal to that of
    /// `--against` shows the noise
    #[arg(long, value_name = "CLUSTER.toml", requires = "against")]
    pub beside: Vec<PathBuf>,
    /// Compare files with checksums at rest to files without, in turn on one cluster, instead of Weft to a plain local
    /// directory
    #[arg(long, conflicts_with_all = ["path", "against", "beside", "control"])]
    pub integrity: bool,
    /// Repeat transfers, all arms in turn, until each arm has taken this long in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub at_least: f64,
    /// Count a write as complete when its bytes are on the disks: files synced, and SSDs beside disks written back
    #[arg(long, conflicts_with = "path")]
    pub flush: bool,
    /// Skip reads; all written data is still read back and compared
    #[arg(long)]
    pub writes_only: bool,
    /// Bytes that each rank transfers in a round, such as 256MiB
    #[arg(long, default_value = "128MiB", value_parser = size)]
    pub size: u64,
    /// Lengths of a transfer, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1MiB,64KiB,65KiB,47008", value_parser = size)]
    pub transfers: Vec<u64>,
    /// Patterns of transfers, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "segmented,interleaved", value_parser = pattern)]
    pub patterns: Vec<Pattern>,
    /// Interfaces to Weft, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "preload,library")]
    pub interfaces: Vec<Interface>,
    /// Transports of file data, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "descriptor,socket")]
    pub transports: Vec<Transport>,
    /// Number of files that each rank creates, stats and removes in one shared directory; 0 skips this
    #[arg(long, default_value_t = 2000)]
    pub files: u64,
    /// Number of rounds; figures are medians over the rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: u64,
    /// Also measure writes with a sync at the end
    #[arg(long)]
    pub sync: bool,
    /// Let ranks spin while they wait for each other, as MPI ranks do, instead of sleeping
    #[arg(long)]
    pub spin: bool,
    /// Mount point of a running `weft mount`, for the interface `fuse`
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Empty or new directory for the control, on the same device as the targets
    #[arg(long)]
    pub control: Option<PathBuf>,
    /// Print one JSON object per figure instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Pattern of a rank's transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// One shared file in which each rank has a contiguous block (IOR's default, ior-easy with one file).
    Segmented,
    /// One shared file in which the ranks' transfers are interleaved (ior-hard).
    Interleaved,
    /// One file per rank.
    FilePerProcess,
}

impl Pattern {
    /// Name in result rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Segmented => "segmented",
            Self::Interleaved => "interleaved",
            Self::FilePerProcess => "file-per-process",
        }
    }
}

/// An interface to Weft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Interface {
    /// System calls of a program with the preload library.
    Preload,
    /// The client library without another interface.
    Library,
    /// System calls on a mount.
    Fuse,
    /// System calls on the directory of `--path`.
    #[value(skip)]
    Path,
}

/// Transport of file data between the client and the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Transport {
    /// Leased descriptors where possible, otherwise messages.
    Auto,
    /// Leased descriptors only.
    Descriptor,
    /// Messages only.
    Socket,
    /// Not applicable: another file system.
    #[value(skip)]
    None,
}

impl Transport {
    /// Name in result rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Descriptor => "descriptor",
            Self::Socket => "socket",
            Self::None => "-",
        }
    }
}

impl Interface {
    /// Name in result rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Library => "library",
            Self::Fuse => "fuse",
            Self::Path => "path",
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    match weft_config::parse_size(text)?.0 {
        0 => Err("the size must be at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    match text {
        "segmented" => Ok(Pattern::Segmented),
        "interleaved" => Ok(Pattern::Interleaved),
        "file-per-process" => Ok(Pattern::FilePerProcess),
        _ => Err(format!("unknown pattern {text:?}: use segmented, interleaved or file-per-process")),
    }
}

impl BenchArgs {
    /// Whether the control is Weft as well, so that the arm that runs first changes in each round.
    pub(crate) fn compares_weft(&self) -> bool {
        self.against.is_some() || self.integrity
    }
}

/// An error in the options.
fn misuse(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Measures and prints to `out`. Without a `context`, `args.path` names the directory to measure.
///
/// # Errors
/// Fails if the options are invalid, a rank fails, or a comparison finds a wrong byte.
pub fn run(args: &BenchArgs, context: Option<&Context>, out: &mut impl Write) -> io::Result<()> {
    let workload = match &args.workload {
        Some(name) => {
            let mut spec = named::workload(name, &args.set).map_err(misuse)?;
            if let Some(ranks) = args.ranks {
                let own = spec.ranks_mut();
                let own =
                    own.ok_or_else(|| misuse("--ranks: a mix has the ranks of its parts; set them there"))?;
                *own = ranks;
            }
            spec.build().map_err(misuse)?;
            Some(spec)
        }
        None => None,
    };
    let ways = ways(args)?;
    if args.flush && args.workload.is_some() {
        return Err(misuse("--flush: not possible with --workload, whose phases need not be writes"));
    }
    let ranks = args.ranks.unwrap_or(4);
    if ranks == 0 {
        return Err(misuse("--ranks: at least one process is needed"));
    }
    let mut bench = Bench::new(args, ranks, context, out)?;
    let mut measured = Vec::new();
    for (interface, transport) in ways {
        if let Some(spec) = &workload {
            bench.workload_case(interface, transport, spec)?;
            continue;
        }
        for &transfer in &args.transfers {
            for &pattern in &args.patterns {
                bench.data_case(interface, transport, pattern, transfer)?;
            }
        }
        // Metadata operations use messages with every transport, so measure them once per interface.
        if args.files > 0 && !measured.contains(&interface) {
            bench.meta_case(interface, transport)?;
            measured.push(interface);
        }
    }
    Ok(())
}

/// Returns the combinations of interface and transport to measure.
fn ways(args: &BenchArgs) -> io::Result<Vec<(Interface, Transport)>> {
    if args.path.is_some() {
        return Ok(vec![(Interface::Path, Transport::None)]);
    }
    let mut ways = Vec::new();
    for &interface in &args.interfaces {
        if interface == Interface::Fuse && args.mount.is_none() {
            return Err(misuse("the interface fuse needs --mount DIR of a running `weft mount DIR`"));
        }
        for &transport in &args.transports {
            ways.push((interface, transport));
            if interface == Interface::Fuse {
                break; // A mount's transport is set when it is started.
            }
        }
    }
    Ok(ways)
}

//! What to measure, and the order in which it is measured.

use crate::cases::Bench;
use crate::context::Context;
use crate::named;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::path::PathBuf;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Processes that work at the same time; 4, or as many as the workload says.
    #[arg(long)]
    pub ranks: Option<u32>,
    /// A workload instead of the usual cases: a kind, such as `btio`, or a file that describes one.
    #[arg(long, value_name = "KIND|FILE.toml")]
    pub workload: Option<String>,
    /// A parameter of the workload, such as size="65 KiB"; several times.
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "workload")]
    pub set: Vec<String>,
    /// Measure system calls on a directory of any file system instead of Weft.
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Put this cluster beside the measured one instead of the plain local directory; the one that goes first changes
    /// from round to round.
    #[arg(long, value_name = "CLUSTER.toml", conflicts_with_all = ["path", "mount", "control"])]
    pub against: Option<PathBuf>,
    /// Further clusters that are measured in turn with those two, with rows of their own; several times. One that is alike
    /// to that of `--against` shows what chance gives.
    #[arg(long, value_name = "CLUSTER.toml", requires = "against")]
    pub beside: Vec<PathBuf>,
    /// Compare files with checksums at rest to files without, in turns on the same cluster, instead of Weft to the plain
    /// local directory.
    #[arg(long, conflicts_with_all = ["path", "against", "beside", "control"])]
    pub integrity: bool,
    /// Transfers are repeated, all sides in turns, until each side has taken so many seconds in a round.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub at_least: f64,
    /// A write has ended when all its bytes are on the disks: files synced, and SSDs beside disks written back.
    #[arg(long, conflicts_with = "path")]
    pub flush: bool,
    /// Leave reads out; everything written is still read back and compared.
    #[arg(long)]
    pub writes_only: bool,
    /// Bytes that each rank moves in one round, such as 256MiB.
    #[arg(long, default_value = "128MiB", value_parser = size)]
    pub size: u64,
    /// Bytes of one transfer; several with commas.
    #[arg(long, value_delimiter = ',', default_value = "1MiB,64KiB,65KiB,47008", value_parser = size)]
    pub transfers: Vec<u64>,
    /// Where transfers lie; several with commas.
    #[arg(long, value_delimiter = ',', default_value = "segmented,interleaved", value_parser = pattern)]
    pub patterns: Vec<Pattern>,
    /// Ways into Weft; several with commas.
    #[arg(long, value_delimiter = ',', default_value = "preload,library")]
    pub interfaces: Vec<Interface>,
    /// How bytes travel; several with commas.
    #[arg(long, value_delimiter = ',', default_value = "descriptor,socket")]
    pub transports: Vec<Transport>,
    /// Files that each rank makes, stats and removes in one shared directory; 0 for none.
    #[arg(long, default_value_t = 2000)]
    pub files: u64,
    /// Rounds; medians are printed.
    #[arg(long, default_value_t = 3)]
    pub rounds: u64,
    /// Also measure writing with a sync at the end.
    #[arg(long)]
    pub sync: bool,
    /// Ranks keep their processors while they wait for each other, as those of MPI do, instead of sleeping.
    #[arg(long)]
    pub spin: bool,
    /// The mount point of a running `weft mount`, for the interface `fuse`.
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// An empty or new directory for the control, on the same device as the targets.
    #[arg(long)]
    pub control: Option<PathBuf>,
    /// One JSON object per figure instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Where a rank's transfers lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// One shared file, each rank a contiguous block (IOR's default, ior-easy with one file).
    Segmented,
    /// One shared file, transfers of the ranks interleaved (ior-hard).
    Interleaved,
    /// A file per rank.
    FilePerProcess,
}

impl Pattern {
    /// As it stands in rows of results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Segmented => "segmented",
            Self::Interleaved => "interleaved",
            Self::FilePerProcess => "file-per-process",
        }
    }
}

/// A way into Weft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Interface {
    /// System calls of a program with the preload library.
    Preload,
    /// The client library alone.
    Library,
    /// System calls on a mount.
    Fuse,
    /// System calls on the directory of `--path`.
    #[value(skip)]
    Path,
}

/// How bytes travel between client and servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Transport {
    /// Descriptors where possible.
    Auto,
    /// Leased descriptors only.
    Descriptor,
    /// Messages only.
    Socket,
    /// That of another file system.
    #[value(skip)]
    None,
}

impl Transport {
    /// As it stands in rows of results.
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
    /// As it stands in rows of results.
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
        0 => Err("nothing to move: give at least one byte".to_owned()),
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
    /// Whether the control is Weft too, so that the side that goes first changes from round to round.
    pub(crate) fn compares_weft(&self) -> bool {
        self.against.is_some() || self.integrity
    }
}

/// What was asked wrongly.
fn misuse(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Measures and prints to `out`. Without a `context`, `args.path` says where.
///
/// # Errors
/// A workload that makes no sense; when a rank fails or bytes come back wrong, with what and where.
pub fn run(args: &BenchArgs, context: Option<&Context>, out: &mut impl Write) -> io::Result<()> {
    let workload = match &args.workload {
        Some(name) => {
            let mut spec = named::workload(name, &args.set).map_err(misuse)?;
            if let Some(ranks) = args.ranks {
                *spec.ranks_mut().ok_or_else(|| misuse("--ranks: a mix has the ranks of its parts"))? = ranks;
            }
            spec.build().map_err(misuse)?;
            Some(spec)
        }
        None => None,
    };
    let ways = ways(args)?;
    if args.flush && args.workload.is_some() {
        return Err(misuse("--flush: not with --workload, whose phases may be anything"));
    }
    let ranks = args.ranks.unwrap_or(4);
    if ranks == 0 {
        return Err(misuse("--ranks: 0 processes measure nothing"));
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
        // Names travel by messages, whatever the transport of bytes is.
        if args.files > 0 && !measured.contains(&interface) {
            bench.meta_case(interface, transport)?;
            measured.push(interface);
        }
    }
    Ok(())
}

/// The ways into what is measured.
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
                break; // A mount has the transport that it was started with.
            }
        }
    }
    Ok(ways)
}

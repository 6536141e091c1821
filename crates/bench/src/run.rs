//! The measurement: rounds of the same work on Weft and on the control, and the rows that come of them.

use crate::context::{Context, ServerLoad, connect, server_load};
use crate::rank::{DataOp, MetaOp, Phase, Reach};
use crate::ranks::{Outcome, Ranks};
use crate::report::{Row, median, table_head, table_row};
use crate::workload::Pattern;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_client::Client;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Place, ROOT};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Processes that work at the same time.
    #[arg(long, default_value_t = 4)]
    pub ranks: u64,
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

/// A way into Weft.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Interface {
    /// System calls of a program with the preload library.
    Preload,
    /// The client library alone.
    Library,
    /// System calls on a mount.
    Fuse,
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
}

impl From<Transport> for weft_client::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Auto => Self::Auto,
            Transport::Descriptor => Self::Descriptor,
            Transport::Socket => Self::Socket,
        }
    }
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Descriptor => "descriptor",
            Self::Socket => "socket",
        }
    }
}

impl Interface {
    fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Library => "library",
            Self::Fuse => "fuse",
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

/// Measures and prints to `out`.
///
/// # Errors
/// When a rank fails or bytes come back wrong, with what and where.
pub fn run(args: &BenchArgs, context: &Context, out: &mut impl Write) -> io::Result<()> {
    let client = connect(&context.cluster_file, "auto").map_err(io::Error::other)?;
    let control = Control::new(args.control.as_deref())?;
    let mut bench = Bench { args, context, client, control, out, head_done: false };
    for &interface in &args.interfaces {
        for &transport in &args.transports {
            if interface == Interface::Fuse && args.mount.is_none() {
                return Err(io::Error::other(
                    "the interface fuse needs --mount DIR of a running `weft mount DIR`",
                ));
            }
            for &transfer in &args.transfers {
                for &pattern in &args.patterns {
                    bench.data_case(interface, transport, pattern, transfer)?;
                }
            }
            if args.files > 0 && transport == args.transports[0] {
                bench.meta_case(interface, transport)?;
            }
            if interface == Interface::Fuse {
                break; // A mount has the transport that it was started with.
            }
        }
    }
    Ok(())
}

struct Bench<'a, W: Write> {
    args: &'a BenchArgs,
    context: &'a Context,
    client: Client<RealEnv>,
    control: Control,
    out: &'a mut W,
    head_done: bool,
}

/// The figures of one operation over the rounds.
#[derive(Default)]
struct Series {
    weft: Vec<f64>,
    control: Vec<f64>,
    client_cpu_s: f64,
    server: ServerLoad,
    ops: u64,
}

impl Series {
    fn add(&mut self, weft: &Outcome, value: f64, control: f64, before: ServerLoad, after: ServerLoad) {
        self.weft.push(value);
        self.control.push(control);
        self.client_cpu_s += weft.cpu_s;
        self.server.cpu_s += after.cpu_s - before.cpu_s;
        self.server.requests += after.requests.saturating_sub(before.requests);
        self.ops += weft.ops;
    }
}

impl<W: Write> Bench<'_, W> {
    fn start(&self, interface: Interface, transport: Transport) -> io::Result<Ranks> {
        let cluster = self.context.cluster_file.clone();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match interface {
            Interface::Fuse => Ranks::start(self.args.ranks, &Reach::Calls, &[]),
            Interface::Library => {
                let reach = Reach::Library { cluster, transport: transport.name().to_owned() };
                Ranks::start(self.args.ranks, &reach, &[])
            }
            Interface::Preload => Ranks::start(
                self.args.ranks,
                &Reach::Calls,
                &[
                    ("LD_PRELOAD".to_owned(), text(&self.context.preload)),
                    ("WEFT_CLUSTER".to_owned(), text(&cluster)),
                    ("WEFT_TRANSPORT".to_owned(), transport.name().to_owned()),
                ],
            ),
        }
    }

    /// A new directory in Weft, as the interface names it, and as the library does.
    fn fresh_dir(&self, interface: Interface) -> io::Result<(String, String)> {
        let name = format!("bench-{}-{}", std::process::id(), fresh_number());
        block_on(self.client.mkdir(&place(&name), 0o755))
            .map_err(|error| io::Error::other(error.to_string()))?;
        let seen = match interface {
            Interface::Library => name.clone(),
            Interface::Preload => format!("{}/{name}", self.context.prefix),
            Interface::Fuse => {
                let mount = self.args.mount.as_ref().expect("checked at the start");
                format!("{}/{name}", mount.display())
            }
        };
        Ok((seen, name))
    }

    fn remove_dir(&self, name: &str, files: &[String]) {
        for file in files {
            let _ = block_on(self.client.unlink(&place(&format!("{name}/{file}"))));
        }
        let _ = block_on(self.client.rmdir(&place(name)));
    }

    fn data_case(
        &mut self,
        interface: Interface,
        transport: Transport,
        pattern: Pattern,
        transfer: u64,
    ) -> io::Result<()> {
        let count = (self.args.size / transfer).max(1);
        let mut ops = vec![DataOp::Write];
        if self.args.sync {
            ops.push(DataOp::WriteSync);
        }
        ops.push(DataOp::Read);
        let mut series: Vec<(DataOp, Series)> = ops.iter().map(|&op| (op, Series::default())).collect();
        let files: Vec<String> = (0..self.args.ranks).map(|rank| pattern.file_name(rank)).collect();
        for _ in 0..self.args.rounds {
            let mut weft = self.start(interface, transport)?;
            let mut local = Ranks::start(self.args.ranks, &Reach::Calls, &[])?;
            let (dir, name) = self.fresh_dir(interface)?;
            let control_dir = self.control.fresh()?;
            for (op, series) in &mut series {
                let phase = |dir: &str, op| Phase::Data { dir: dir.to_owned(), pattern, transfer, count, op };
                let control = local.phase(&phase(&control_dir, *op))?;
                let before = server_load(&self.client);
                let outcome = weft.phase(&phase(&dir, *op))?;
                series.add(&outcome, outcome.mib_s(), control.mib_s(), before, server_load(&self.client));
            }
            weft.phase(&Phase::Data { dir: dir.clone(), pattern, transfer, count, op: DataOp::Check })?;
            drop((weft, local));
            self.remove_dir(&name, &files);
            std::fs::remove_dir_all(&control_dir)?;
        }
        for (op, series) in series {
            let operation = match op {
                DataOp::Write => "write",
                DataOp::WriteSync => "write+sync",
                DataOp::Read | DataOp::Check => "read",
            };
            let case = format!("ior-{}", pattern.name());
            self.row(case, interface, transport, transfer, operation, "MiB/s", &series)?;
        }
        Ok(())
    }

    fn meta_case(&mut self, interface: Interface, transport: Transport) -> io::Result<()> {
        let ops = [MetaOp::Create, MetaOp::Stat, MetaOp::Remove];
        let mut series: Vec<(MetaOp, Series)> = ops.iter().map(|&op| (op, Series::default())).collect();
        for _ in 0..self.args.rounds {
            let mut weft = self.start(interface, transport)?;
            let mut local = Ranks::start(self.args.ranks, &Reach::Calls, &[])?;
            let (dir, name) = self.fresh_dir(interface)?;
            let control_dir = self.control.fresh()?;
            for (op, series) in &mut series {
                let phase = |dir: &str, op| Phase::Meta { dir: dir.to_owned(), count: self.args.files, op };
                let control = local.phase(&phase(&control_dir, *op))?;
                let before = server_load(&self.client);
                let outcome = weft.phase(&phase(&dir, *op))?;
                series.add(&outcome, outcome.ops_s(), control.ops_s(), before, server_load(&self.client));
            }
            drop((weft, local));
            self.remove_dir(&name, &[]);
            std::fs::remove_dir_all(&control_dir)?;
        }
        for (op, series) in series {
            let operation = match op {
                MetaOp::Create => "create",
                MetaOp::Stat => "stat",
                MetaOp::Remove => "remove",
            };
            self.row("mdtest".to_owned(), interface, transport, 0, operation, "op/s", &series)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a row")]
    fn row(
        &mut self,
        case: String,
        interface: Interface,
        transport: Transport,
        transfer_bytes: u64,
        operation: &str,
        unit: &'static str,
        series: &Series,
    ) -> io::Result<()> {
        let ratios: Vec<f64> = series.weft.iter().zip(&series.control).map(|(w, c)| w / c).collect();
        let per_op = |total: f64| total / series.ops.max(1) as f64;
        let row = Row {
            case,
            interface: interface.name().to_owned(),
            transport: transport.name().to_owned(),
            transfer_bytes,
            operation: operation.to_owned(),
            value: median(&series.weft),
            unit,
            control: median(&series.control),
            ratio: median(&ratios),
            client_cpu_us_per_op: per_op(series.client_cpu_s * 1e6),
            server_cpu_us_per_op: per_op(series.server.cpu_s * 1e6),
            messages_per_op: per_op(series.server.requests as f64),
        };
        if self.args.json {
            writeln!(self.out, "{}", serde_json::to_string(&row)?)?;
        } else {
            if !self.head_done {
                table_head(self.out)?;
                self.head_done = true;
            }
            table_row(self.out, &row)?;
        }
        self.out.flush()
    }
}

/// The plain local directory.
struct Control {
    root: PathBuf,
    made: bool,
}

impl Control {
    fn new(wanted: Option<&Path>) -> io::Result<Self> {
        let root = match wanted {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("weft-bench-control-{}", std::process::id())),
        };
        let made = !root.exists();
        std::fs::create_dir_all(&root)?;
        Ok(Self { root, made })
    }

    fn fresh(&self) -> io::Result<String> {
        let dir = self.root.join(format!("round-{}-{}", std::process::id(), fresh_number()));
        std::fs::create_dir(&dir)?;
        Ok(dir.to_string_lossy().into_owned())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

fn place(path: &str) -> Place {
    Place { base: ROOT, path: path.as_bytes().to_vec(), follow: true }
}

fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

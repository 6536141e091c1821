//! `weft workload`: shows what programs do to files.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use weft_bench::named;
use weft_workload::{FileRef, Op, WorkloadSpec};

/// Shows workloads: what parallel programs do to files.
#[derive(Args)]
#[command(after_long_help = "Examples:
  weft workload list
  weft workload example flash-io > mine.toml
  weft workload show mine.toml --rank 3
  weft workload show btio --set class=A --set subtype=simple | head

docs/reference/workloads.md describes every kind and parameter.")]
pub struct Workload {
    #[command(subcommand)]
    what: WorkloadCommand,
}

#[derive(Subcommand)]
enum WorkloadCommand {
    /// The kinds, with how much each does by default
    List,
    /// Print the description of a kind with its defaults, as TOML
    Example {
        /// The kind
        kind: String,
    },
    /// Print every operation as CSV: rank, phase, operation, file, offset, length
    Show {
        /// A kind, or a file that describes a workload
        #[arg(value_name = "KIND|FILE.toml")]
        workload: String,
        /// A parameter, such as size="65 KiB"; repeatable
        #[arg(long = "set", value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// Only this rank
        #[arg(long)]
        rank: Option<u32>,
        /// Print only the operations and bytes of each phase, summed over all ranks
        #[arg(long, conflicts_with = "rank")]
        sums: bool,
    },
}

impl Workload {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        let failed = |error: String| Failure::misuse("workload", error);
        match self.what {
            WorkloadCommand::List => {
                outln!("{:<12} {:>6} {:>10} {:>12}", "kind", "ranks", "operations", "MiB");
                for spec in WorkloadSpec::all() {
                    let workload = spec.build().map_err(|error| failed(error.to_string()))?;
                    let ranks = workload.ranks();
                    let sum = (0..ranks).flat_map(|rank| workload.ops(rank)).fold(Sum::default(), Sum::and);
                    let mib = sum.bytes as f64 / 1_048_576.0;
                    outln!("{:<12} {ranks:>6} {:>10} {mib:>12.1}", spec.kind(), sum.ops);
                }
            }
            WorkloadCommand::Example { kind } => {
                let spec = WorkloadSpec::of_kind(&kind).ok_or_else(|| {
                    failed(format!("{kind:?} is not a kind of workload; `weft workload list` shows them"))
                })?;
                let text = toml::to_string(&spec).map_err(|error| failed(error.to_string()))?;
                outln!("{}", text.trim_end());
            }
            WorkloadCommand::Show { workload, set, rank, sums } => {
                let spec = named::workload(&workload, &set).map_err(failed)?;
                let workload = spec.build().map_err(|error| failed(error.to_string()))?;
                let ranks = workload.ranks();
                if rank.is_some_and(|rank| rank >= ranks) {
                    return Err(failed(format!("--rank: ranks are numbered 0 to {}", ranks - 1)));
                }
                if sums { show_sums(&*workload) } else { show(&*workload, rank) }
            }
        }
        Ok(0)
    }
}

/// Number of operations and bytes.
#[derive(Clone, Copy, Default)]
struct Sum {
    ops: u64,
    bytes: u64,
}

impl Sum {
    fn and(self, op: Op) -> Self {
        let bytes = if let Op::Read { len, .. } | Op::Write { len, .. } = op { len } else { 0 };
        let counts = !matches!(op, Op::Phase(_) | Op::Barrier | Op::Compute(_));
        Self { ops: self.ops + u64::from(counts), bytes: self.bytes + bytes }
    }
}

fn show_sums(workload: &dyn weft_workload::Workload) {
    let mut phases: std::collections::BTreeMap<u16, Sum> = std::collections::BTreeMap::new();
    for rank in 0..workload.ranks() {
        let mut phase = 0;
        for op in workload.ops(rank) {
            if let Op::Phase(next) = op {
                phase = next;
            }
            let sum = phases.entry(phase).or_default();
            *sum = sum.and(op);
        }
    }
    outln!("phase,operations,bytes");
    for (phase, sum) in phases {
        outln!("{},{},{}", workload.phase(phase), sum.ops, sum.bytes);
    }
}

fn show(workload: &dyn weft_workload::Workload, only: Option<u32>) {
    outln!("rank,phase,operation,file,offset,length");
    let ranks = only.map_or(0..workload.ranks(), |rank| rank..rank + 1);
    for rank in ranks {
        let mut phase = String::new();
        for op in workload.ops(rank) {
            let name = |file: FileRef| workload.name(file);
            let line = |what: &str, file: FileRef, offset: &str, len: &str| {
                outln!("{rank},{phase},{what},{},{offset},{len}", name(file));
            };
            match op {
                Op::Phase(next) => phase = workload.phase(next),
                Op::Barrier => outln!("{rank},{phase},barrier,,,"),
                Op::Compute(time) => outln!("{rank},{phase},compute,,,{}", time.0),
                Op::Open { file, create } => {
                    line(if create { "open-write" } else { "open-read" }, file, "", "")
                }
                Op::Close { file } => line("close", file, "", ""),
                Op::Read { file, offset, len, .. } => {
                    line("read", file, &offset.to_string(), &len.to_string())
                }
                Op::Write { file, offset, len, .. } => {
                    line("write", file, &offset.to_string(), &len.to_string())
                }
                Op::Sync { file } => line("sync", file, "", ""),
                Op::SetLen { file, len } => line("set-length", file, "", &len.to_string()),
                Op::Mkdir { file } => line("mkdir", file, "", ""),
                Op::Create { file } => line("create", file, "", ""),
                Op::Stat { file } => line("stat", file, "", ""),
                Op::Resize { file, len } => line("resize", file, "", &len.to_string()),
                Op::Remove { file } => line("remove", file, "", ""),
                Op::Rmdir { file } => line("rmdir", file, "", ""),
            }
        }
    }
}

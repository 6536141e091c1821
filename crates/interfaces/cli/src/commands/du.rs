//! `weft du`.

use super::bytes;
use super::session::{InexactSizes, Weft};
use crate::failure::Failure;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weft_client::LastKnown;
use weft_core::units::human_bytes;
use weft_wire::meta::FileType;

/// Shows the space that directories take.
#[derive(Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "\
The space is that of datafiles on the targets; holes take none, and compressed files less than their lengths. A file
with several names counts once. Without -h, numbers are KiB.

Examples:
  weft du -sh /weft
  weft du -h --apparent results
  weft du -sh --both results         space and length, to see what compression saves")]
pub struct Du {
    /// Show only the sum of each path
    #[arg(short = 's', long)]
    summarize: bool,
    /// Show sizes such as 1.50 GiB
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show lengths instead of the space taken
    #[arg(long, alias = "apparent-size", conflicts_with = "both")]
    apparent: bool,
    /// Show the space taken, then the length
    #[arg(long)]
    both: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Paths to sum up [default: the root]
    #[arg(value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Du {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let root = [String::new()];
        let paths = if self.paths.is_empty() { &root[..] } else { &self.paths[..] };
        let mut inexact = InexactSizes::default();
        let mut failed = false;
        for path in paths {
            let inside = weft.inside(path)?.trim_end_matches('/');
            let mut seen = BTreeSet::new();
            // Bottom up: the sum of a directory is complete when the walk reaches it.
            let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
            let each = &mut |path: &str, known: &LastKnown| {
                inexact.note(&weft.shown(path), known);
                let attr = &known.attr;
                let fresh = attr.nlink < 2 || attr.kind == FileType::Directory || seen.insert(attr.file);
                let mut total = sums.remove(path).unwrap_or_default();
                if fresh {
                    total = [total[0] + attr.blocks_512 * 512, total[1] + attr.size.0];
                }
                if path == inside || (attr.kind == FileType::Directory && !self.summarize) {
                    self.line(total, &weft.shown(path));
                }
                if path != inside {
                    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                    let sum = sums.entry(above.to_owned()).or_default();
                    *sum = [sum[0] + total[0], sum[1] + total[1]];
                }
                Ok(())
            };
            weft.walk_past(inside, true, each, &mut |_, _, failure| {
                errln!("{failure}");
                failed = true;
                Ok(())
            })?;
        }
        Ok(u8::from(inexact.print() || failed))
    }

    /// Prints the space taken, the length, or both.
    fn line(&self, [space, len]: [u64; 2], path: &str) {
        let size = |bytes: u64| {
            if self.human_readable { human_bytes(bytes) } else { bytes.div_ceil(1024).to_string() }
        };
        match (self.both, self.apparent) {
            (true, _) => outln!("{:<11} {:<11} {path}", size(space), size(len)),
            (false, true) => outln!("{:<11} {path}", size(len)),
            (false, false) => outln!("{:<11} {path}", size(space)),
        }
    }
}

//! `weft du`.

use super::bytes;
use super::session::{Doubts, Weft};
use crate::failure::Failure;
use crate::table::human;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weft_wire::meta::FileType;

/// Shows how much room directories take.
#[derive(Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "\
The room is what datafiles take on the targets; holes take none. A file with several names counts once. Without -h
numbers are KiB.

Examples:
  weft du -sh /weft
  weft du -h --apparent results")]
pub struct Du {
    /// Only the sum of each path
    #[arg(short = 's', long)]
    summarize: bool,
    /// For people, such as 1.50 GiB
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Lengths instead of room taken
    #[arg(long, alias = "apparent-size")]
    apparent: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// What to sum up; the root without any
    #[arg(value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Du {
    /// Sums them up.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let root = [String::new()];
        let paths = if self.paths.is_empty() { &root[..] } else { &self.paths[..] };
        let mut doubts = Doubts::default();
        for path in paths {
            let inside = weft.inside(path).trim_end_matches('/');
            let mut seen = BTreeSet::new();
            // Bottom up: the sums of what a directory holds are complete when it comes.
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            weft.walk(inside, true, &mut |path, known| {
                doubts.note(&weft.shown(path), known);
                let attr = &known.attr;
                let fresh = attr.nlink < 2 || attr.kind == FileType::Directory || seen.insert(attr.file);
                let own = if self.apparent { attr.size.0 } else { attr.blocks_512 * 512 };
                let total = sums.remove(path).unwrap_or(0) + if fresh { own } else { 0 };
                if path == inside || (attr.kind == FileType::Directory && !self.summarize) {
                    self.line(total, &weft.shown(path));
                }
                if path != inside {
                    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                    *sums.entry(above.to_owned()).or_default() += total;
                }
                Ok(())
            })?;
        }
        Ok(u8::from(doubts.tell()))
    }

    fn line(&self, bytes: u64, path: &str) {
        let size = if self.human_readable { human(bytes) } else { bytes.div_ceil(1024).to_string() };
        outln!("{size:<11} {path}");
    }
}

//! `weft flush`.

use super::session::{Weft, why};
use crate::failure::{FAILED, Failure};
use crate::table::human;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use weft_core::TargetId;
use weft_env::real::block_on;

/// So many targets at the most are written back at once.
const AT_ONCE: usize = 64;

const AFTER: &str = "\
A target with an SSD beside its disk (`[server.target.ibridge]`) keeps what small requests write on the SSD until the
disk has nothing else to do. Files are complete and safe all that time; this command is for those who want the bytes on
the disk now: before the SSD is taken out, or before a measurement ends. Everything that was on an SSD alone when the
command began lies on a disk, synced, when it ends. Copies stay on the SSD.

Only administrators may do this: root and the user who runs the servers on the servers' hosts, and holders of an
administrator's key (`weft key admin`).

Exit codes:
  0  everything is on the disks
  1  a target could not be written back, or its server is down
  2  wrong arguments, cluster file or key

Examples:
  weft flush
  weft flush --target 3";

/// Has what lies on SSDs beside disks written to the disks.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Flush {
    /// Only this target; may be repeated
    #[arg(long, value_name = "NUMBER")]
    target: Vec<u32>,
    /// No progress on standard error, and no result
    #[arg(short = 'q', long)]
    quiet: bool,
}

impl Flush {
    /// Flushes all targets at once.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let there: Vec<TargetId> = weft.cluster.map().targets.iter().map(|entry| entry.id).collect();
        let chosen = match self.target.is_empty() {
            true => there,
            false => self.target.iter().map(|&id| known(&there, TargetId(id))).collect::<Result<_, _>>()?,
        };
        let bar = match self.quiet || !std::io::stderr().is_terminal() {
            true => ProgressBar::hidden(),
            false => {
                let style = ProgressStyle::with_template("{spinner} {msg}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                ProgressBar::new_spinner().with_style(style)
            }
        };
        let (mut sum, mut failed) = (0, false);
        let so_far = Mutex::new(BTreeMap::new());
        let flush = &|target: TargetId| {
            block_on(weft.client.flush_target(target, |written, dirty| {
                let mut so_far = so_far.lock().unwrap_or_else(PoisonError::into_inner);
                so_far.insert(target, (written.0, dirty.0));
                let sum = |of: fn(&(u64, u64)) -> u64| human(so_far.values().map(of).sum());
                bar.set_message(format!("{} written back, {} left", sum(|it| it.0), sum(|it| it.1)));
                bar.tick();
            }))
        };
        for some in chosen.chunks(AT_ONCE) {
            let flushed: Vec<_> = std::thread::scope(|scope| {
                let started: Vec<_> =
                    some.iter().map(|&target| scope.spawn(move || (target, flush(target)))).collect();
                started.into_iter().map(|it| it.join().expect("the thread does not panic")).collect()
            });
            for (target, flushed) in flushed {
                match flushed {
                    Ok(written) => sum += written.0,
                    Err(error) => {
                        failed = true;
                        bar.suspend(|| {
                            eprintln!("{}", Failure::new(format!("target {}", target.0), why(&error)));
                        });
                    }
                }
            }
        }
        bar.finish_and_clear();
        if !self.quiet {
            outln!("{} written back", human(sum));
        }
        Ok(if failed { FAILED } else { 0 })
    }
}

fn known(there: &[TargetId], target: TargetId) -> Result<TargetId, Failure> {
    match there.contains(&target) {
        true => Ok(target),
        false => {
            Err(Failure::misuse(format!("target {}", target.0), "the cluster file names no such target")
                .remedy("`weft status` lists them"))
        }
    }
}

//! `weft flush`.

use super::session::{Weft, why};
use crate::failure::{FAILED, Failure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use weft_core::TargetId;
use weft_core::units::human_bytes;
use weft_env::real::block_on;

/// Maximum number of targets that are written back at once.
const AT_ONCE: usize = 64;

const AFTER: &str = "\
A target with an SSD beside its disk (`[server.target.ibridge]`) keeps small writes on the SSD until the disk is idle.
Files are complete and durable all the time. This command brings the bytes to the disk now, for example before the SSD
is removed or a measurement ends. At its end, all bytes that were only on an SSD at its start are synced to a disk.
Copies stay on the SSD.

Only administrators may do this: root and the user that runs the servers, on the servers' hosts, and holders of an
administrator's key (`weft key admin`).

Exit codes:
  0  all bytes are on the disks
  1  a target could not be written back, or its server is down
  2  wrong arguments, cluster file or key

Examples:
  weft flush
  weft flush --target 3";

/// Writes the data on SSDs beside disks back to the disks.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Flush {
    /// Only this target; repeatable
    #[arg(long, value_name = "NUMBER")]
    target: Vec<u32>,
    /// Show no progress and no result
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
                let sum = |of: fn(&(u64, u64)) -> u64| human_bytes(so_far.values().map(of).sum());
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
                            errln!("{}", Failure::new(format!("target {}", target.0), why(&error)));
                        });
                    }
                }
            }
        }
        bar.finish_and_clear();
        if !self.quiet {
            outln!("{} written back", human_bytes(sum));
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

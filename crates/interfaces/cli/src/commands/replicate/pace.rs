//! Rate and progress of a copy.

use crate::commands::agent::print_progress;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use weft_client::Result;
use weft_client::replicas::Pace;
use weft_core::ByteLen;

/// A limit in bytes per second since its creation.
pub struct RateLimit {
    rate: ByteLen,
    begin: Instant,
    copied: u64,
}

impl RateLimit {
    /// Begins with no bytes.
    pub fn new(rate: ByteLen) -> Self {
        Self { rate, begin: Instant::now(), copied: 0 }
    }

    /// Bytes per second.
    pub fn rate(&self) -> ByteLen {
        self.rate
    }

    /// Returns the pause that is due after `bytes` more were copied.
    pub fn pause_after(&mut self, bytes: u64) -> Duration {
        self.copied += bytes;
        let due = Duration::from_secs_f64(self.copied as f64 / self.rate.0 as f64);
        due.saturating_sub(self.begin.elapsed())
    }
}

/// How fast a command copies, and how it shows that.
#[derive(Clone, Copy, Default)]
pub struct Pacing {
    /// Maximum number of bytes per second.
    pub rate: Option<ByteLen>,
    /// Whether it copies only while the disks of Weft's targets are idle.
    pub idle: bool,
    /// Whether it prints copied and total bytes after each window, for the agent, in place of a bar.
    pub report: bool,
}

/// A progress bar, and a limit in bytes per second.
pub struct Progress {
    bar: ProgressBar,
    limit: Option<RateLimit>,
    idle: bool,
    report: bool,
}

impl Progress {
    /// Begins a copy of `total` bytes of the file `path`.
    pub fn new(path: &str, total: u64, pacing: Pacing) -> Self {
        let bar = crate::commands::cp::bar(pacing.report);
        bar.set_length(total);
        bar.set_message(path.to_owned());
        Self { bar, limit: pacing.rate.map(RateLimit::new), idle: pacing.idle, report: pacing.report }
    }

    fn report(&self, is_waiting: bool) {
        if self.report {
            print_progress(self.bar.position(), self.bar.length().unwrap_or(0), is_waiting);
        }
    }

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

impl Pace for Progress {
    async fn copied(&mut self, bytes: u64) -> Result<()> {
        self.bar.inc(bytes);
        self.report(false);
        if let Some(limit) = &mut self.limit {
            std::thread::sleep(limit.pause_after(bytes));
        }
        Ok(())
    }

    fn only_while_idle(&self) -> bool {
        self.idle
    }

    async fn waiting(&mut self) -> Result<()> {
        self.report(true);
        Ok(())
    }
}

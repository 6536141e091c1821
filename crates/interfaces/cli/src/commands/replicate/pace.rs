//! Rate and progress of a copy.

use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use weft_client::Result;
use weft_client::replicas::Pace;
use weft_core::ByteLen;

/// A progress bar, and a limit in bytes per second.
pub struct Progress {
    bar: ProgressBar,
    rate: Option<ByteLen>,
    begin: Instant,
    copied: u64,
}

impl Progress {
    /// Begins a copy of `total` bytes of the file `path`.
    pub fn new(path: &str, total: u64, rate: Option<ByteLen>) -> Self {
        let bar = crate::commands::cp::bar(false);
        bar.set_length(total);
        bar.set_message(path.to_owned());
        Self { bar, rate, begin: Instant::now(), copied: 0 }
    }

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

impl Pace for Progress {
    async fn copied(&mut self, bytes: u64) -> Result<()> {
        self.copied += bytes;
        self.bar.inc(bytes);
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.copied as f64 / rate.0 as f64);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
        }
        Ok(())
    }
}

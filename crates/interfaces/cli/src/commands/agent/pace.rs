//! Rate of a job's copies on mounted file systems: a number of bytes per second, or as much as an idle device takes.

use super::control::JobControl;
use super::progress::{Activity, Reporter};
use crate::commands::replicate::RateLimit;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use weft_client::replicas::Pace;
use weft_client::{Error, Result, idle};
use weft_core::{ByteLen, Nanos};
use weft_env::real::BlockDevice;

/// Bytes per second without `--rate` where the agent cannot see whether the device is idle: network file systems, and
/// file systems without a block device of their own. About a quarter of a disk or of a gigabit network.
const RATE_WITHOUT_DEVICE: ByteLen = ByteLen(32 << 20);

/// Bound of a copy.
pub enum Bound {
    /// Bytes per second.
    Rate(RateLimit),
    /// The copy continues only while the device is idle.
    Idle(IdleDevice),
    /// Nothing.
    None,
}

impl Bound {
    /// Returns the bound for a copy to the file `to`: `rate` if given, else by its device.
    pub fn new(rate: Option<ByteLen>, to: &Path) -> Self {
        if let Some(rate) = rate {
            return Self::Rate(RateLimit::new(rate));
        }
        match IdleDevice::below(to) {
            Some(device) => Self::Idle(device),
            None => Self::Rate(RateLimit::new(RATE_WITHOUT_DEVICE)),
        }
    }

    /// Returns the bytes per second, if they are bounded.
    pub fn rate(&self) -> Option<ByteLen> {
        match self {
            Self::Rate(limit) => Some(limit.rate()),
            Self::Idle(_) | Self::None => None,
        }
    }
}

/// A device that is used only while it is idle.
pub struct IdleDevice {
    device: BlockDevice,
    /// File that the agent writes.
    to: File,
}

impl IdleDevice {
    /// Returns the device of the file `to`. `None` if it has no local block device.
    pub fn below(to: &Path) -> Option<Self> {
        let to = File::open(to).ok()?;
        let device = BlockDevice::of(to.metadata().ok()?.dev())?;
        Some(Self { device, to })
    }

    /// Waits until the device is idle. Returns false if the job shall end.
    pub fn wait(&self, control: &JobControl<'_>, reporter: &mut Reporter) -> bool {
        let mut pauses = idle::Pauses::default();
        let go_on = loop {
            if self.is_idle() {
                break !control.is_ended();
            }
            reporter.set_activity(Activity::WaitingForDevice);
            if !control.wait(Duration::from_nanos(pauses.next_pause().0)) {
                break false;
            }
        };
        reporter.set_activity(Activity::Copying);
        go_on
    }

    fn is_idle(&self) -> bool {
        // Without its own written bytes, all requests that the device still has are those of others. An error is
        // reported by the copy, which syncs the file at its end.
        let _ = self.to.sync_data();
        let Ok(before) = self.device.load() else { return true };
        let begin = std::time::Instant::now();
        std::thread::sleep(Duration::from_nanos(idle::SAMPLE_INTERVAL.0));
        // A device that was removed ends the copy with a better error.
        let Ok(after) = self.device.load() else { return true };
        idle::is_idle(before, after, Nanos(begin.elapsed().as_nanos() as u64))
    }
}

/// Bounds the copies of a job, reports their progress, and ends them.
pub struct JobPace<'a> {
    bound: Bound,
    control: JobControl<'a>,
    reporter: &'a mut Reporter,
}

impl<'a> JobPace<'a> {
    /// Begins a copy of `total` bytes.
    pub fn new(bound: Bound, total: u64, control: JobControl<'a>, reporter: &'a mut Reporter) -> Self {
        reporter.begin(total, bound.rate().map(|rate| rate.0));
        Self { bound, control, reporter }
    }

    /// Waits until the first bytes may be copied.
    ///
    /// # Errors
    /// The job shall end.
    pub fn begin(&mut self) -> Result<()> {
        self.before_next(0)
    }

    fn before_next(&mut self, copied: u64) -> Result<()> {
        let go_on = match &mut self.bound {
            Bound::Rate(limit) => self.control.wait(limit.pause_after(copied)),
            Bound::Idle(device) => device.wait(&self.control, self.reporter),
            Bound::None => !self.control.is_ended(),
        };
        if go_on { Ok(()) } else { Err(Error::Interrupted) }
    }
}

impl Pace for JobPace<'_> {
    async fn copied(&mut self, bytes: u64) -> Result<()> {
        self.reporter.add(bytes);
        self.before_next(bytes)
    }
}

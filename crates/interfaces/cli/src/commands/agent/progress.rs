//! Progress of the running job, which the agent writes for `weft agent status`.

use super::job::JobId;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the file format.
const VERSION: u32 = 1;
/// Shortest time between two writes of the file.
const INTERVAL: Duration = Duration::from_millis(200);

/// Present activity of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It copies bytes.
    Copying,
    /// It waits until the device is idle.
    WaitingForDevice,
}

impl Activity {
    /// State in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::WaitingForDevice => "waits for an idle device",
        }
    }
}

/// Progress of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    version: u32,
    /// Number of the job.
    pub job: u64,
    /// Present activity of the agent.
    pub activity: Activity,
    /// Bytes copied.
    pub done_bytes: u64,
    /// Bytes to copy.
    pub total_bytes: u64,
    /// Start of the copy, in seconds since 1970.
    pub begin_s: f64,
    /// Maximum number of bytes per second, if there is one.
    pub rate_bytes_per_s: Option<u64>,
}

impl Progress {
    /// Returns the time since the start of the copy in seconds.
    pub fn elapsed_s(&self) -> f64 {
        (now_s() - self.begin_s).max(0.0)
    }

    /// Returns the average number of bytes per second since the start of the copy.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let elapsed_s = self.elapsed_s();
        (elapsed_s > 0.0).then(|| self.done_bytes as f64 / elapsed_s)
    }

    /// Reads what the agent with the queue in `dir` has written. `None` if it does no job.
    pub fn read(dir: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path(dir)).ok()?;
        toml::from_str::<Self>(&text).ok().filter(|progress| progress.version == VERSION)
    }
}

/// Seconds since 1970.
fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn path(dir: &Path) -> PathBuf {
    dir.join("progress.toml")
}

/// Writes the progress of a job.
pub struct Reporter {
    dir: PathBuf,
    progress: Progress,
    /// Time of the last write.
    written: Option<Instant>,
}

impl Reporter {
    /// Begins to report about a job.
    pub fn new(dir: &Path, job: JobId) -> Self {
        let progress = Progress {
            version: VERSION,
            job: job.0,
            activity: Activity::Copying,
            done_bytes: 0,
            total_bytes: 0,
            begin_s: now_s(),
            rate_bytes_per_s: None,
        };
        let mut this = Self { dir: dir.to_owned(), progress, written: None };
        this.write();
        this
    }

    /// Begins a copy of `total` bytes, with at most `rate` bytes per second.
    pub fn begin(&mut self, total: u64, rate: Option<u64>) {
        (self.progress.done_bytes, self.progress.total_bytes) = (0, total);
        self.progress.rate_bytes_per_s = rate;
        self.progress.begin_s = now_s();
        self.write();
    }

    /// `done` of `total` bytes are copied.
    pub fn set(&mut self, done: u64, total: u64) {
        (self.progress.done_bytes, self.progress.total_bytes) = (done.min(total), total);
        if self.written.is_none_or(|written| written.elapsed() >= INTERVAL) {
            self.write();
        }
    }

    /// `bytes` more are copied.
    pub fn add(&mut self, bytes: u64) {
        // A file that was changed meanwhile is copied again.
        let done = self.progress.done_bytes.saturating_add(bytes);
        self.set(done, self.progress.total_bytes);
    }

    /// Changes the activity.
    pub fn set_activity(&mut self, activity: Activity) {
        if self.progress.activity != activity {
            self.progress.activity = activity;
            self.write();
        }
    }

    fn write(&mut self) {
        self.written = Some(Instant::now());
        // Only for people: a failure does not stop the job.
        if let Err(failure) = self.replace() {
            errln!("{failure}");
        }
    }

    fn replace(&self) -> Result<(), Failure> {
        let (path, draft) = (path(&self.dir), self.dir.join("progress.tmp"));
        let text = toml::to_string(&self.progress).expect("numbers and text have a TOML form");
        let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|error| Failure::new(path.display(), error))
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // Without the file, the agent does no job. If it stays, it names a job that is done.
        let _ = std::fs::remove_file(path(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_written_read_and_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Progress::read(dir.path()), None);
        let mut reporter = Reporter::new(dir.path(), JobId(3));
        reporter.begin(100, Some(7));
        reporter.written = None;
        reporter.add(60);
        let read = Progress::read(dir.path()).expect("progress");
        assert_eq!(
            (read.job, read.done_bytes, read.total_bytes, read.rate_bytes_per_s),
            (3, 60, 100, Some(7))
        );
        reporter.written = None;
        reporter.add(60);
        reporter.set_activity(Activity::WaitingForDevice);
        let read = Progress::read(dir.path()).expect("progress");
        assert_eq!((read.done_bytes, read.activity), (100, Activity::WaitingForDevice));
        let text = std::fs::read_to_string(path(dir.path())).expect("a file");
        std::fs::write(path(dir.path()), text.replace("version = 1", "version = 2")).expect("written");
        assert_eq!(Progress::read(dir.path()), None);
        drop(reporter);
        assert!(!path(dir.path()).exists());
    }
}

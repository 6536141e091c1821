//! A job of the agent, and its file in the queue.

use crate::commands::bytes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weft_core::ByteLen;

/// Version of the file format.
const VERSION: u32 = 1;
/// Longest file of a job in bytes. A longer file is damaged.
pub const JOB_FILE_LEN_MAX: u64 = 1 << 20;
/// Longest stored error in bytes.
const ERROR_LEN_MAX: usize = 4096;
/// Attempts after which a job is failed.
pub const ATTEMPTS_MAX: u32 = 5;

/// Number of a job, unique for each user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobId(pub u64);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Work of a job. All work can be repeated. Paths are escaped text, see [`bytes`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Copies a file to its replica.
    ReplicateFill {
        /// Path of the file.
        path: String,
    },
    /// Copies written bytes to the file, or a changed file to its replica.
    ReplicateSync {
        /// Path of the file.
        path: String,
    },
    /// Moves a file of Weft, or the files below a directory, to other layouts.
    Migrate {
        /// Path on Weft.
        path: String,
        /// Cluster file.
        cluster: PathBuf,
        /// Key file of the user, if `WEFT_KEY` named one.
        key: Option<PathBuf>,
        /// Options of `weft migrate`.
        options: Vec<String>,
    },
}

impl Work {
    /// Name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReplicateFill { .. } => "replicate-fill",
            Self::ReplicateSync { .. } => "replicate-sync",
            Self::Migrate { .. } => "migrate",
        }
    }

    /// Path of the file or directory.
    pub fn path(&self) -> &str {
        match self {
            Self::ReplicateFill { path } | Self::ReplicateSync { path } | Self::Migrate { path, .. } => path,
        }
    }
}

/// A job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Its work.
    pub work: Work,
    /// Maximum number of bytes copied per second.
    pub rate: Option<ByteLen>,
    /// Number of times that this work was requested. If it grows during the work, the agent repeats the work.
    pub requests: u32,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Time of the next attempt after a failed one, in seconds since 1970.
    pub retry_at_s: Option<u64>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
}

/// File of a job.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFile {
    version: u32,
    kind: String,
    path: String,
    requests: u32,
    attempts: u32,
    rate_bytes_per_s: Option<u64>,
    retry_at_s: Option<u64>,
    last_error: Option<String>,
    cluster: Option<String>,
    key: Option<String>,
    options: Option<Vec<String>>,
}

/// The version of any file, read before the other keys, which may differ.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Job {
    /// Creates a job that was not attempted yet.
    pub fn new(work: Work, rate: Option<ByteLen>) -> Self {
        Self { work, rate, requests: 1, attempts: 0, retry_at_s: None, last_error: None }
    }

    /// Whether the agent has given up.
    pub fn has_failed(&self) -> bool {
        self.attempts >= ATTEMPTS_MAX
    }

    /// Forgets failed attempts, so that the agent tries again at once.
    pub fn reset(&mut self) {
        (self.attempts, self.retry_at_s) = (0, None);
    }

    /// Sets the error of the last attempt.
    pub fn set_error(&mut self, error: &str) {
        let ends = error.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= ERROR_LEN_MAX).last().unwrap_or(0);
        self.last_error = Some(error[..end].to_owned());
    }

    /// Returns the text of the job's file.
    pub fn to_toml(&self) -> String {
        let text = |path: &PathBuf| bytes::text(path.as_os_str().as_encoded_bytes());
        let (cluster, key, options) = match &self.work {
            Work::Migrate { cluster, key, options, .. } => {
                (Some(cluster), key.as_ref(), Some(options.clone()))
            }
            _ => (None, None, None),
        };
        let file = JobFile {
            version: VERSION,
            kind: self.work.kind().to_owned(),
            path: self.work.path().to_owned(),
            requests: self.requests,
            attempts: self.attempts,
            // TOML has signed numbers.
            rate_bytes_per_s: self.rate.map(|rate| rate.0.min(i64::MAX as u64)),
            retry_at_s: self.retry_at_s.map(|time| time.min(i64::MAX as u64)),
            last_error: self.last_error.clone(),
            cluster: cluster.map(text),
            key: key.map(text),
            options,
        };
        toml::to_string(&file).expect("numbers, text and lists of text have a TOML form")
    }

    /// Reads the text of a job's file.
    ///
    /// # Errors
    /// Why the file is no job of this version.
    pub fn of_toml(text: &str) -> Result<Self, String> {
        let said = |error: toml::de::Error| error.message().to_owned();
        let Versioned { version } = toml::from_str(text).map_err(said)?;
        if version != VERSION {
            return Err(format!("it has version {version}, and this Weft reads version {VERSION}"));
        }
        let file: JobFile = toml::from_str(text).map_err(said)?;
        let path = file.path;
        if path.is_empty() {
            return Err("the path is empty".to_owned());
        }
        let is_local = !matches!(file.kind.as_str(), "migrate");
        if is_local && !bytes::local(&path).is_absolute() {
            return Err(format!("the path {path} is not absolute"));
        }
        if is_local && (file.cluster.is_some() || file.key.is_some() || file.options.is_some()) {
            return Err(format!("cluster, key and options are not for kind {}", file.kind));
        }
        let work = match file.kind.as_str() {
            "replicate-fill" => Work::ReplicateFill { path },
            "replicate-sync" => Work::ReplicateSync { path },
            "migrate" => {
                let (Some(cluster), Some(options)) = (file.cluster, file.options) else {
                    return Err("kind migrate needs cluster and options".to_owned());
                };
                let (cluster, key) = (bytes::local(&cluster), file.key.map(|key| bytes::local(&key)));
                if !cluster.is_absolute() || key.as_ref().is_some_and(|key| !key.is_absolute()) {
                    return Err("the path of the cluster file or the key file is not absolute".to_owned());
                }
                crate::commands::migrate::check_queued(&options, &path)?;
                Work::Migrate { path, cluster, key, options }
            }
            other => return Err(format!("unknown kind {other:?}")),
        };
        if file.rate_bytes_per_s == Some(0) {
            return Err("the rate is 0".to_owned());
        }
        if file.attempts > ATTEMPTS_MAX {
            return Err(format!("{} attempts are more than {ATTEMPTS_MAX}", file.attempts));
        }
        Ok(Self {
            work,
            rate: file.rate_bytes_per_s.map(ByteLen),
            requests: file.requests,
            attempts: file.attempts,
            retry_at_s: file.retry_at_s,
            last_error: file.last_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrate(options: &[&str]) -> Job {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let (path, key) = ("/weft/caf\\xe9".to_owned(), Some("/home/me/key".into()));
        Job::new(Work::Migrate { path, cluster: "/etc/weft/cluster.toml".into(), key, options }, None)
    }

    #[test]
    fn jobs_survive_their_file() {
        let path = "/scratch/field \"1\"".to_owned();
        let mut failed = Job::new(Work::ReplicateFill { path: path.clone() }, Some(ByteLen(u64::MAX >> 1)));
        failed.attempts = ATTEMPTS_MAX;
        failed.retry_at_s = Some(1_800_000_000);
        failed.set_error(&format!("disk: no space\nleft, {}", "\u{e9}".repeat(ERROR_LEN_MAX)));
        assert!(failed.last_error.as_ref().is_some_and(|error| error.len() <= ERROR_LEN_MAX));
        for job in [
            failed,
            Job::new(Work::ReplicateSync { path }, None),
            migrate(&["--recursive", "--class=ssd", "--part=ssd=1024@4096"][..2]),
        ] {
            assert_eq!(Job::of_toml(&job.to_toml()), Ok(job.clone()), "{}", job.to_toml());
        }
    }

    #[test]
    fn the_file_of_a_job_is_stable() {
        let job = Job::new(Work::ReplicateFill { path: "/scratch/field".to_owned() }, Some(ByteLen(1024)));
        assert_eq!(
            job.to_toml(),
            "version = 1\nkind = \"replicate-fill\"\npath = \"/scratch/field\"\nrequests = 1\n\
             attempts = 0\nrate_bytes_per_s = 1024\n"
        );
    }

    #[test]
    fn damaged_files_are_refused_with_the_reason() {
        let whole = "version = 1\nkind = \"replicate-fill\"\npath = \"/f\"\nrequests = 1\nattempts = 0\n";
        assert!(Job::of_toml(whole).is_ok());
        let moved = migrate(&["--class=ssd"]).to_toml();
        let refused = |text: String, why: &str| {
            let said = Job::of_toml(&text).expect_err(&text);
            assert!(said.contains(why), "{text}: {said}");
        };
        refused(String::new(), "version");
        refused(whole.replace("version = 1", "version = 7\nnew = 1"), "version 7");
        refused(format!("{whole}more = 1\n"), "more");
        refused(whole.replace("fill", "remove"), "unknown kind");
        refused(whole.replace("/f", "f"), "not absolute");
        refused(whole.replace("/f", ""), "empty");
        refused(whole.replace("attempts = 0", "attempts = 6"), "6 attempts");
        refused(whole.replace("attempts = 0", ""), "attempts");
        refused(format!("{whole}rate_bytes_per_s = 0\n"), "rate");
        refused(format!("{whole}options = []\n"), "not for kind");
        refused(moved.replace("--class=ssd", "--forget"), "--forget");
        refused(moved.replace("--class=ssd", "--status"), "--status");
        refused(moved.replace("--class=ssd", "--cluster=/x"), "--cluster");
        refused(moved.replace("--class=ssd", "--help"), "--help");
        refused(moved.replace("--class=ssd", "/weft/other"), "/weft/other");
        refused(moved.replace("/etc/weft/", ""), "not absolute");
        // A crash may cut a file at any byte, if the file system breaks its promises.
        let cut = (0..moved.len()).filter(|end| Job::of_toml(&moved[..*end]).is_ok()).count();
        assert_eq!(cut, 1, "only the last line break may be missing");
    }
}

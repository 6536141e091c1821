//! A job of the agent, and its file in the queue.

use crate::commands::bytes;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weft_config::Cluster;
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
    /// A command about files of Weft.
    OnWeft(WeftWork),
}

/// Work on files of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeftWork {
    /// Path on Weft.
    pub path: String,
    /// Cluster file.
    pub cluster: PathBuf,
    /// Key file of the user, if `WEFT_KEY` named one.
    pub key: Option<PathBuf>,
    /// The command.
    pub command: WeftCommand,
}

/// A command about files of Weft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WeftCommand {
    /// Moves a file, or the files below a directory, to other layouts. The text are options of `weft migrate`.
    Migrate(Vec<String>),
    /// Creates the replica that a plan has for the file.
    ReplicateApply {
        /// File of the plan.
        plan: PathBuf,
        /// File that the plan has the replica for.
        from: String,
        /// Whether another replica of the file is removed.
        replace: bool,
    },
    /// Copies written bytes to the file.
    ReplicateSync,
}

impl Work {
    /// Work on files of `cluster`, with the key of this process.
    ///
    /// # Errors
    /// Without a working directory.
    pub fn on_weft(cluster: &Cluster, path: String, command: WeftCommand) -> Result<Self, Failure> {
        let key = std::env::var_os("WEFT_KEY").filter(|key| !key.is_empty()).map(PathBuf::from);
        Ok(Self::OnWeft(WeftWork {
            path,
            cluster: super::absolute(&cluster.file)?,
            key: key.as_deref().map(super::absolute).transpose()?,
            command,
        }))
    }

    /// Name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReplicateFill { .. } => "replicate-fill",
            Self::ReplicateSync { .. } => "replicate-sync",
            Self::OnWeft(work) => match work.command {
                WeftCommand::Migrate(_) => "migrate",
                WeftCommand::ReplicateApply { .. } => "replicate-apply",
                WeftCommand::ReplicateSync => "replicate-sync-weft",
            },
        }
    }

    /// Path of the file or directory.
    pub fn path(&self) -> &str {
        match self {
            Self::ReplicateFill { path } | Self::ReplicateSync { path } => path,
            Self::OnWeft(work) => &work.path,
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
    plan: Option<String>,
    from: Option<String>,
    replace: Option<bool>,
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
        let work = match &self.work {
            Work::OnWeft(work) => Some(work),
            Work::ReplicateFill { .. } | Work::ReplicateSync { .. } => None,
        };
        let (mut options, mut plan, mut from, mut replace) = (None, None, None, None);
        match work.map(|work| &work.command) {
            Some(WeftCommand::Migrate(given)) => options = Some(given.clone()),
            Some(WeftCommand::ReplicateApply { plan: file, from: planned, replace: replaces }) => {
                (plan, from, replace) = (Some(text(file)), Some(planned.clone()), Some(*replaces));
            }
            Some(WeftCommand::ReplicateSync) | None => {}
        }
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
            cluster: work.map(|work| text(&work.cluster)),
            key: work.and_then(|work| work.key.as_ref()).map(text),
            options,
            plan,
            from,
            replace,
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
        if file.path.is_empty() {
            return Err("the path is empty".to_owned());
        }
        let work = file.work()?;
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

impl JobFile {
    fn work(&self) -> Result<Work, String> {
        let path = self.path.clone();
        let applied = (&self.plan, &self.from, self.replace);
        let command = match (self.kind.as_str(), &self.options, applied) {
            ("replicate-fill" | "replicate-sync", None, (None, None, None)) => None,
            ("migrate", Some(options), (None, None, None)) => {
                crate::commands::migrate::check_queued(options, &path)?;
                Some(WeftCommand::Migrate(options.clone()))
            }
            ("replicate-apply", None, (Some(plan), Some(from), Some(replace))) => {
                let (plan, from) = (stored_path("plan", plan)?, from.clone());
                Some(WeftCommand::ReplicateApply { plan, from, replace })
            }
            ("replicate-sync-weft", None, (None, None, None)) => Some(WeftCommand::ReplicateSync),
            (
                "replicate-fill" | "replicate-sync" | "migrate" | "replicate-apply" | "replicate-sync-weft",
                ..,
            ) => {
                return Err(format!("a key is missing, or is not for kind {}", self.kind));
            }
            (other, ..) => return Err(format!("unknown kind {other:?}")),
        };
        match (command, &self.cluster) {
            (Some(command), Some(cluster)) => {
                let key = self.key.as_ref().map(|key| stored_path("key file", key)).transpose()?;
                Ok(Work::OnWeft(WeftWork {
                    path,
                    cluster: stored_path("cluster file", cluster)?,
                    key,
                    command,
                }))
            }
            (None, None) if self.key.is_none() => {
                stored_path("file", &path)?;
                Ok(match self.kind.as_str() {
                    "replicate-fill" => Work::ReplicateFill { path },
                    _ => Work::ReplicateSync { path },
                })
            }
            _ => Err(format!("cluster and key are missing, or are not for kind {}", self.kind)),
        }
    }
}

/// Reads an escaped path, which must be absolute.
fn stored_path(what: &str, path: &str) -> Result<PathBuf, String> {
    let local = bytes::local(path);
    if local.is_absolute() {
        Ok(local)
    } else {
        Err(format!("the path {path} of the {what} is not absolute"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_weft(command: WeftCommand) -> Job {
        let (path, key) = ("/weft/caf\\xe9".to_owned(), Some("/home/me/key".into()));
        Job::new(
            Work::OnWeft(WeftWork { path, cluster: "/etc/weft/cluster.toml".into(), key, command }),
            None,
        )
    }

    fn migrate(options: &[&str]) -> Job {
        on_weft(WeftCommand::Migrate(options.iter().map(|option| (*option).to_owned()).collect()))
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
            on_weft(WeftCommand::ReplicateApply {
                plan: "/home/me/a b.toml".into(),
                from: "/weft/other".to_owned(),
                replace: true,
            }),
            on_weft(WeftCommand::ReplicateSync),
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
        refused(format!("{whole}plan = \"/p\"\n"), "not for kind");
        refused(format!("{whole}cluster = \"/c\"\n"), "not for kind");
        let (plan, from) = ("/p".into(), "/weft/f".to_owned());
        let applied = on_weft(WeftCommand::ReplicateApply { plan, from, replace: false }).to_toml();
        refused(applied.replace("\"/p\"", "\"p\""), "not absolute");
        refused(applied.replace("replace = false", ""), "missing");
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

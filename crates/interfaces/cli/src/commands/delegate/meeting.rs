//! How the delegates of a job find each other: files in the job directory, which may be on a file system of all hosts.
//!
//! | file | meaning | written |
//! | --- | --- | --- |
//! | `delegate-3.toml` | delegate 3 has started and will serve at these addresses | before it serves |
//! | `delegate-3.serving` | delegate 3 serves and knows the others | after all `delegate-N.toml` |
//! | `job.toml` | the job can be used | by delegate 0, after all `delegate-N.serving` |

use crate::failure::Failure;
use crate::{job_dir, signals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weft_config::job::{JOB_FILE, Job, replace};
use weft_env::Address;

/// First and last interval between two looks into the directory.
const POLL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// Maximum number of missing delegates that a message names.
const NAMED_MAX: usize = 8;

/// A delegate of the job, as its file describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// Host.
    pub host: String,
    /// Process id on it.
    pub pid: u32,
    /// Addresses.
    pub address: Vec<String>,
    /// Settings, which all delegates of a job share.
    pub settings: String,
}

impl Delegate {
    /// Returns the addresses.
    pub fn addresses(&self) -> Vec<Address> {
        self.address.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// Access of one delegate to the files by which delegates meet.
pub struct Meeting {
    /// Job directory.
    pub dir: PathBuf,
    /// Index of this delegate.
    pub index: u32,
    /// Number of delegates.
    pub count: u32,
    /// Time that the others have.
    pub wait: Duration,
}

impl Meeting {
    /// Announces this delegate and waits for all others. Returns them by index.
    ///
    /// # Errors
    /// Files of former delegates are in the way, a delegate has other settings, or one has not come in time.
    pub fn come(&self, own: &Delegate) -> Result<Vec<Delegate>, Failure> {
        self.check_former(own)?;
        let text = toml::to_string(own).map_err(|error| Failure::new("this delegate's addresses", error))?;
        replace(&self.file(self.index), text.as_bytes())?;
        self.wait_for(|index| self.file(index))?;
        let mut all = Vec::new();
        for index in 0..self.count {
            let found = read(&self.file(index))?;
            if found.settings != own.settings {
                let why = format!(
                    "delegate {index} on {} has other settings ({}) than delegate {} ({})",
                    found.host, found.settings, self.index, own.settings
                );
                return Err(
                    Failure::misuse(self.dir.display(), why).remedy("start all with the same options")
                );
            }
            all.push(found);
        }
        Ok(all)
    }

    /// Announces that this delegate serves. Delegate 0 writes `job.toml` when all serve; the others wait for it.
    ///
    /// # Errors
    /// A delegate does not serve in time.
    pub fn serve(&self, job: &Job) -> Result<(), Failure> {
        replace(&self.serving(self.index), b"")?;
        if self.index == 0 {
            self.wait_for(|index| self.serving(index))?;
            job.write(&self.dir)?;
        } else {
            let began = Instant::now();
            self.poll(
                began,
                || self.dir.join(JOB_FILE).exists(),
                || {
                    let why =
                        format!("delegate 0 has not written {JOB_FILE} within {} s", self.wait.as_secs());
                    Failure::new(self.dir.display(), why).remedy("see its messages and log")
                },
            )?;
        }
        Ok(())
    }

    /// Removes this delegate's files.
    pub fn leave(&self) {
        if self.index == 0 {
            let _ = std::fs::remove_file(self.dir.join(JOB_FILE)); // it may not exist
        }
        for file in [self.serving(self.index), self.file(self.index)] {
            let _ = std::fs::remove_file(file); // it may not exist
        }
    }

    /// Removes this delegate's files, unless they are those of another process.
    pub fn leave_if_own(&self, own: &Delegate) {
        if read(&self.file(self.index)).is_ok_and(|found| found == *own) {
            self.leave();
        }
    }

    fn file(&self, index: u32) -> PathBuf {
        self.dir.join(format!("delegate-{index}.toml"))
    }

    fn serving(&self, index: u32) -> PathBuf {
        self.dir.join(format!("delegate-{index}.serving"))
    }

    /// Refuses a directory that another delegate with this index uses or has left without removing its files.
    fn check_former(&self, own: &Delegate) -> Result<(), Failure> {
        let file = self.file(self.index);
        let is_job = self.dir.join(JOB_FILE).exists();
        if !file.exists() && !is_job {
            return Ok(());
        }
        let shown = self.dir.display();
        let advice = format!("`weft delegate stop --job {shown}` ends it and removes its files");
        let Ok(former) = read(&file) else {
            let why = format!("a job with other delegates is in this directory (it has a {JOB_FILE})");
            return Err(Failure::misuse(shown, why).remedy(advice));
        };
        let is_here = former.host == own.host;
        if is_here && former.pid != own.pid && !signals::exists(former.pid as i32) {
            // It was killed. The file of a whole job is removed only if its delegate 0 starts again.
            self.leave();
            if !self.dir.join(JOB_FILE).exists() {
                return Ok(());
            }
        }
        let why =
            format!("delegate {} was started before (process {} on {})", self.index, former.pid, former.host);
        Err(Failure::misuse(shown, why).remedy(advice))
    }

    /// Waits until each delegate has a file.
    fn wait_for(&self, file: impl Fn(u32) -> PathBuf) -> Result<(), Failure> {
        let missing = || -> BTreeSet<u32> {
            // A listing asks the server of a network file system; lookups of names could use what this host remembers.
            let names: BTreeSet<_> = std::fs::read_dir(&self.dir)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            let is_missing = |index: &u32| file(*index).file_name().is_none_or(|name| !names.contains(name));
            (0..self.count).filter(is_missing).collect()
        };
        self.poll(
            Instant::now(),
            || missing().is_empty(),
            || {
                let absent = missing();
                let named: Vec<_> = absent.iter().take(NAMED_MAX).map(u32::to_string).collect();
                let more = if absent.len() > NAMED_MAX { " and others" } else { "" };
                let why = format!(
                    "delegate {}{more} of {} has not come within {} s",
                    named.join(", "),
                    self.count,
                    self.wait.as_secs()
                );
                Failure::new(self.dir.display(), why)
                    .remedy("start all delegates with the same --job, or give their number with --of N")
            },
        )
    }

    fn poll(
        &self,
        began: Instant,
        is_done: impl Fn() -> bool,
        late: impl Fn() -> Failure,
    ) -> Result<(), Failure> {
        let mut pause = POLL.0;
        while !is_done() {
            if signals::end_is_pending() {
                let why = "ended by a signal while it waited for the other delegates";
                return Err(Failure::new(format!("delegate {}", self.index), why));
            }
            if began.elapsed() > self.wait {
                return Err(late());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL.1);
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Delegate, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::new(file.display(), error))?;
    toml::from_str(&text).map_err(|error| Failure::new(file.display(), error.message()))
}

/// Returns the delegates whose files are in a job directory, by index, for jobs that are not complete.
pub fn announced(dir: &Path) -> Vec<(u32, Delegate)> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let index = |name: std::ffi::OsString| {
        name.to_str()?.strip_prefix("delegate-")?.strip_suffix(".toml")?.parse::<u32>().ok()
    };
    let mut found: Vec<_> = names
        .filter_map(index)
        .filter_map(|index| Some((index, read(&dir.join(format!("delegate-{index}.toml"))).ok()?)))
        .collect();
    found.sort_by_key(|(index, _)| *index);
    found
}

/// Removes the files of all delegates of a job, which no longer run.
pub fn remove_all(dir: &Path) {
    for (index, _) in announced(dir) {
        Meeting { dir: dir.to_owned(), index, count: 0, wait: Duration::ZERO }.leave();
    }
    let _ = std::fs::remove_file(dir.join(JOB_FILE)); // it may not exist
    // A directory that `weft run` made contains nothing of the user.
    let _ = job_dir::remove(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(dir: &Path, index: u32, count: u32, wait: Duration) -> Meeting {
        Meeting { dir: dir.to_owned(), index, count, wait }
    }

    fn delegate(index: u32, settings: &str) -> Delegate {
        let address = vec![format!("tcp:node{index}:4000")];
        Delegate { host: "node".into(), pid: std::process::id(), address, settings: settings.into() }
    }

    fn private() -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("set");
        dir
    }

    #[test]
    fn delegates_meet_and_the_job_appears_when_all_serve() {
        let dir = private();
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            for index in [2, 0, 1] {
                let dir = dir.path();
                scope.spawn(move || {
                    let meeting = meeting(dir, index, 3, long);
                    let all = meeting.come(&delegate(index, "a")).expect("all come");
                    assert_eq!(all.len(), 3);
                    let addresses: Vec<_> = all.iter().map(Delegate::addresses).collect();
                    assert_eq!(addresses[1], ["tcp:node1:4000".parse().expect("an address")]);
                    assert!(!dir.join(JOB_FILE).exists() || index != 0);
                    meeting.serve(&Job::new(dir, "j".into(), addresses, Vec::new())).expect("all serve");
                    assert_eq!(Job::load(dir).expect("the job").delegates.len(), 3);
                });
            }
        });
        assert_eq!(announced(dir.path()).len(), 3);
        remove_all(dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn the_missing_delegates_are_named() {
        let dir = private();
        let meeting = meeting(dir.path(), 1, 4, Duration::from_millis(20));
        let error = meeting.come(&delegate(1, "a")).expect_err("alone").to_string();
        assert!(error.contains("delegate 0, 2, 3 of 4 has not come"), "{error}");
    }

    #[test]
    fn other_settings_are_refused() {
        let dir = private();
        let long = Duration::from_secs(60);
        std::thread::scope(|scope| {
            for index in [0, 1] {
                let dir = dir.path();
                scope.spawn(move || {
                    let settings = ["hashed", "first-touch"][index as usize];
                    let error = meeting(dir, index, 2, long).come(&delegate(index, settings));
                    assert!(error.expect_err("refused").to_string().contains("other settings"));
                });
            }
        });
    }

    #[test]
    fn a_directory_in_use_is_refused_and_one_of_a_killed_delegate_is_taken() {
        let dir = private();
        let first = meeting(dir.path(), 0, 1, Duration::from_secs(60));
        let mut own = delegate(0, "a");
        first.come(&own).expect("alone is all");
        let error = first.come(&own).expect_err("in use").to_string();
        assert!(error.contains("started before") && error.contains("weft delegate stop"), "{error}");
        // A process that has ended: its id cannot be in use while it has not been waited for.
        let mut ended = std::process::Command::new("true").spawn().expect("true starts");
        ended.wait().expect("it ends");
        own.pid = ended.id();
        replace(&dir.path().join("delegate-0.toml"), toml::to_string(&own).expect("text").as_bytes())
            .expect("written");
        first.come(&delegate(0, "a")).expect("the former one has ended");
    }
}

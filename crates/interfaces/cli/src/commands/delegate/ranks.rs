//! Files about the ranks that delegates have started, in the job directory.
//!
//! | file | meaning | written |
//! | --- | --- | --- |
//! | `rank-3.started` | host and process of the `weft run` that runs rank 3 | by it, before the program starts |
//! | `rank-3.ended` | exit code of rank 3 | by it, after the program has ended, or by a delegate on its host if it was killed |
//! | `ranks.ending` | the other ranks must end, because one has failed | by delegate 0 |
//!
//! The process of a rank stays until delegate 0 removes `rank-3.started`: a launcher kills the whole job, delegates
//! included, if the process of a rank ends without MPI_Finalize. Delegates first write all bytes.

use crate::failure::Failure;
use crate::launcher::Position;
use crate::{job_dir, signals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use weft_config::job::replace;

/// Interval between two looks into the directory.
pub const POLL: Duration = Duration::from_millis(100);
/// Time that a program has to end after SIGTERM.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// Exit code of a rank whose process was killed.
const KILLED: u8 = 128 + libc::SIGKILL as u8;
/// File that asks all ranks to end.
const ENDING: &str = "ranks.ending";

/// Process of a rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Started {
    host: String,
    pid: u32,
}

/// End of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Exit code of the program, 128 + N after signal N.
    pub code: u8,
    /// Whether the process that ran the program was killed, too.
    pub was_lost: bool,
}

impl Ended {
    /// Describes the end.
    pub fn text(self) -> String {
        match self.code {
            _ if self.was_lost => "its process was killed".to_owned(),
            code @ 129..=192 => format!("exit code {code} (128 + signal {})", code - 128),
            code => format!("exit code {code}"),
        }
    }
}

fn write<T: Serialize>(file: &Path, value: &T) -> Result<(), Failure> {
    let text = toml::to_string(value).map_err(|error| Failure::new(file.display(), error))?;
    Ok(replace(file, text.as_bytes())?)
}

fn read<T: for<'a> Deserialize<'a>>(file: &Path) -> Option<T> {
    toml::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

fn started(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("rank-{rank}.started"))
}

fn ended(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("rank-{rank}.ended"))
}

/// Lets the system kill a rank's program when the process that runs it is killed. A launcher waits for all programs that
/// have its pipes open.
pub fn end_with_this_process(command: &mut Command) {
    // SAFETY: prctl is safe between fork and exec, and this option has no memory effects.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// Asks all ranks to end.
pub fn end_all(dir: &Path) -> Result<(), Failure> {
    Ok(replace(&dir.join(ENDING), b"")?)
}

/// Removes the files of all ranks, whose processes then end.
pub fn remove_all(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        // Drafts of killed processes begin in the same way.
        if name.starts_with(ENDING) || name.starts_with("rank-") {
            let _ = std::fs::remove_file(entry.path()); // another delegate may have removed it
        }
    }
}

/// Returns the rank of a file and whether it has ended.
fn rank_of(name: &str) -> Option<(u32, bool)> {
    let (rank, kind) = name.strip_prefix("rank-")?.split_once('.')?;
    let is_ended = match kind {
        "started" => false,
        "ended" => true,
        _ => return None,
    };
    Some((rank.parse().ok()?, is_ended))
}

/// The process of one rank.
pub struct Rank {
    dir: PathBuf,
    rank: u32,
    has_ended: Arc<AtomicBool>,
}

impl Rank {
    /// Announces this process.
    ///
    /// # Errors
    /// The launcher's variables name no rank, or the job directory cannot be written.
    pub fn begin(dir: &Path) -> Result<Self, Failure> {
        let rank = Position::from_env().index.ok_or_else(|| {
            Failure::misuse("--spawned", "the launcher has set no variable with the rank of this process")
        })?;
        let own = Started { host: job_dir::host_name(), pid: std::process::id() };
        write(&started(dir, rank), &own)?;
        Ok(Self { dir: dir.to_owned(), rank, has_ended: Arc::default() })
    }

    /// Ends the program when another rank has failed.
    pub fn watch(&self, program: u32) {
        let (ending, has_ended) = (self.dir.join(ENDING), Arc::clone(&self.has_ended));
        std::thread::spawn(move || {
            let mut asked: Option<Instant> = None;
            while !has_ended.load(Ordering::SeqCst) {
                match asked {
                    None if ending.exists() => {
                        let _ = signals::send(program as i32, libc::SIGTERM);
                        asked = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > KILL_AFTER => {
                        let _ = signals::send(program as i32, libc::SIGKILL);
                        return;
                    }
                    _ => {}
                }
                std::thread::sleep(POLL);
            }
        });
    }

    /// Notes that the program has ended.
    pub fn program_has_ended(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Records the exit code and waits until delegate 0 releases this process, or a signal ends it.
    ///
    /// # Errors
    /// The job directory cannot be written.
    pub fn end(&self, result: Result<u8, Failure>) -> Result<u8, Failure> {
        let code = result.unwrap_or_else(|failure| {
            errln!("{failure}");
            failure.exit_code()
        });
        write(&ended(&self.dir, self.rank), &Ended { code, was_lost: false })?;
        let file = started(&self.dir, self.rank);
        while file.exists() && !signals::end_is_pending() {
            std::thread::sleep(POLL);
        }
        // The launcher would end delegates that still write if this were another code.
        Ok(0)
    }
}

/// Ranks whose files a delegate has seen.
pub struct Ranks {
    dir: PathBuf,
    host: String,
    started: BTreeMap<u32, Option<Started>>,
    ended: BTreeMap<u32, (SystemTime, Ended)>,
}

impl Ranks {
    /// Knows no rank yet.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            host: job_dir::host_name(),
            started: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Reads the new files, and records ranks of this host whose process has ended without recording the exit code.
    ///
    /// # Errors
    /// The job directory cannot be read or written.
    pub fn look(&mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(self.dir.display(), error);
        let mut new = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some((rank, is_ended)) = entry.file_name().to_str().and_then(rank_of) {
                new.push((rank, is_ended, entry));
            }
        }
        for (rank, is_ended, entry) in new {
            if !is_ended {
                self.started.entry(rank).or_insert_with(|| read(&entry.path()));
            } else if !self.ended.contains_key(&rank)
                && let Some(found) = read(&entry.path())
            {
                let when = entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::now());
                self.ended.insert(rank, (when, found));
            }
        }
        for (rank, process) in &self.started {
            let Some(process) = process.as_ref().filter(|process| process.host == self.host) else {
                continue;
            };
            let file = ended(&self.dir, *rank);
            // In this order: the process writes the file before it ends.
            let is_gone = !signals::exists(process.pid as i32);
            if is_gone
                && !self.ended.contains_key(rank)
                && !file.exists()
                && started(&self.dir, *rank).exists()
            {
                write(&file, &Ended { code: KILLED, was_lost: true })?;
            }
        }
        Ok(())
    }

    /// Returns the number of ranks that have ended.
    pub fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Whether each rank that has started has ended.
    pub fn all_started_ended(&self) -> bool {
        self.started.keys().all(|rank| self.ended.contains_key(rank))
    }

    /// Returns the rank that failed first.
    pub fn failed(&self) -> Option<(u32, Ended)> {
        let failed = self.ended.iter().filter(|(_, (_, end))| end.code != 0);
        failed.min_by_key(|(_, (when, _))| *when).map(|(rank, (_, end))| (*rank, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_failed_or_was_killed_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let own = Started { host: job_dir::host_name(), pid: std::process::id() };
        let mut process = std::process::Command::new("true").spawn().expect("true starts");
        process.wait().expect("it ends");
        write(&started(dir, 0), &own).expect("written");
        write(&started(dir, 1), &Started { pid: process.id(), ..own.clone() }).expect("written");
        write(&started(dir, 2), &Started { host: "elsewhere".into(), pid: process.id() }).expect("written");
        let mut ranks = Ranks::new(dir);
        ranks.look().expect("read");
        ranks.look().expect("read");
        assert_eq!((ranks.ended(), ranks.all_started_ended()), (1, false));
        let (rank, end) = ranks.failed().expect("one was killed");
        assert_eq!((rank, end.code, end.text().as_str()), (1, 137, "its process was killed"));
        for (rank, code) in [(2, 3), (0, 0)] {
            write(&ended(dir, rank), &Ended { code, was_lost: false }).expect("written");
        }
        ranks.look().expect("read");
        assert!(ranks.all_started_ended());
        assert_eq!(ranks.failed().expect("the first").0, 1);
        end_all(dir).expect("written");
        remove_all(dir);
        assert_eq!(std::fs::read_dir(dir).expect("listed").count(), 0);
    }

    #[test]
    fn ends_are_described_with_the_signal() {
        let text = |code| Ended { code, was_lost: false }.text();
        assert_eq!((text(3).as_str(), text(137).as_str()), ("exit code 3", "exit code 137 (128 + signal 9)"));
    }
}

//! The I/O delegates of `weft run`: starting them before the program, and ending them after it.

use super::auto::{Evidence, Verdict};
use crate::commands::delegate::settings::{self, Settings};
use crate::commands::delegate::{directories, policy};
use crate::failure::Failure;
use crate::launcher;
use crate::{job_dir, signals};
use clap::Args;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weft_config::job::{DELEGATES_MAX, DELEGATES_VARIABLE, Job, OVER_VARIABLE};
use weft_core::ByteLen;
use weft_core::delegates::assignment::DelegateCount;
use weft_core::delegates::ownership::Policy;

/// Time after which `weft run` says that delegates still write.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// Interval between two looks whether a delegate has ended.
const POLL: Duration = Duration::from_millis(2);

/// Options about delegates.
#[derive(Args)]
pub struct Options {
    /// Start this number of I/O delegates, or a percentage of the ranks, such as 5%, or decide by a trace (auto)
    #[arg(long, value_name = "N|P%|auto", value_parser = count, conflicts_with = "job")]
    delegates: Option<Wanted>,
    /// Trace of the program, for --delegates auto
    #[arg(long, value_name = "TRACE", requires = "delegates")]
    plan: Option<PathBuf>,
    /// Use the delegates of this job directory, which run already
    #[arg(long, value_name = "DIR")]
    job: Option<PathBuf>,
    /// Serve this directory through delegates under its own path; repeatable
    #[arg(long, value_name = "DIR")]
    over: Vec<PathBuf>,
    /// Rule by which a page gets its owner: hashed (default), or first-touch as in the paper
    #[arg(long, value_name = "POLICY", value_parser = policy, requires = "delegates")]
    delegate_policy: Option<Policy>,
    /// Memory of each delegate for pages [default: a quarter of the host's memory for all, at most 1 GiB each]
    #[arg(long, value_name = "SIZE", value_parser = settings::memory, requires = "delegates")]
    delegate_memory: Option<ByteLen>,
    /// Length of the delegates' pages [default: lock or stripe size of the file system, else 512 KiB]
    #[arg(long, value_name = "SIZE", value_parser = settings::page_len, requires = "delegates")]
    page_size: Option<u64>,
    /// Write dirty bytes during the run (on, the default), or at sync and close only (off)
    #[arg(long, value_name = "on|off", value_parser = settings::on_off, requires = "delegates")]
    delegate_write_behind: Option<bool>,
}

/// Delegates that the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// As the trace says.
    Auto,
    /// A number.
    Count(DelegateCount),
}

fn count(text: &str) -> Result<Wanted, String> {
    if text == "auto" {
        return Ok(Wanted::Auto);
    }
    text.parse()
        .map(Wanted::Count)
        .map_err(|error: weft_core::delegates::assignment::DelegateCountError| error.to_string())
}

/// Delegates to start or to use.
pub enum Plan {
    /// None, or running delegates that the environment names.
    None {
        /// Whether the environment names directories.
        has_directories: bool,
    },
    /// Running delegates of a job directory.
    Join(PathBuf, Job),
    /// New delegates.
    Start {
        /// Number.
        count: u32,
        /// Settings.
        settings: Settings,
        /// Directories served.
        over: Vec<PathBuf>,
    },
}

impl Options {
    /// Returns the job directory.
    pub fn job(&self) -> Option<&Path> {
        self.job.as_deref()
    }

    /// Checks the options and waits for the delegates of a job directory.
    pub fn plan(&self, program: &[OsString]) -> Result<Plan, Failure> {
        let over = directories(&self.over)?;
        if let Some(dir) = &self.job {
            let dir = std::path::absolute(dir).map_err(|error| Failure::misuse(dir.display(), error))?;
            let mut job = Job::wait(&dir, weft_config::job::WAIT)?;
            match over.iter().find(|dir| !job.over.is_empty() && !job.over.contains(dir)) {
                Some(missing) => {
                    let why = "the job's delegates were started without it";
                    return Err(Failure::misuse(format!("--over {}", missing.display()), why)
                        .remedy("start them with the same --over"));
                }
                None if job.over.is_empty() => job.over = over,
                None => {}
            }
            return Ok(Plan::Join(dir, job));
        }
        let Some(wanted) = self.delegates else {
            return match std::env::var_os(DELEGATES_VARIABLE).filter(|value| !value.is_empty()) {
                Some(_) => {
                    let job = Job::from_env()?;
                    let has_directories = job.is_some_and(|job| !job.over.is_empty()) || !over.is_empty();
                    Ok(Plan::None { has_directories })
                }
                None if over.is_empty() => Ok(Plan::None { has_directories: false }),
                None => {
                    Err(Failure::misuse("--over", "files are served through delegates, and there are none")
                        .remedy("add --delegates N, or --job DIR"))
                }
            };
        };
        if let Some(variable) = launcher::rank_variable() {
            let why = format!("each rank would start its own delegates ({variable} is set)");
            return Err(Failure::misuse("--delegates", why).remedy(
                "write weft run before the launcher, or start `weft delegate` and give each rank --job DIR",
            ));
        }
        let settings = Settings {
            policy: self.delegate_policy.unwrap_or(Policy::Hashed),
            memory: self.delegate_memory,
            page_len: self.page_size,
            write_behind: self.delegate_write_behind.unwrap_or(true),
        };
        settings.check()?;
        let ranks = launcher::ranks(program);
        let count = match (wanted, &self.plan) {
            (Wanted::Count(wanted), None) => number(wanted, ranks)?,
            (Wanted::Auto, Some(trace)) => {
                let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                match Evidence::read(trace)?.verdict(ranks, processors) {
                    Verdict::On(count, why) => {
                        errln!("weft: delegates: {count}: {why}");
                        count
                    }
                    Verdict::Off(why) => {
                        errln!("weft: delegates: off: {why}");
                        return Ok(Plan::None { has_directories: !over.is_empty() });
                    }
                }
            }
            (Wanted::Auto, None) => {
                return Err(Failure::misuse("--delegates auto", "it decides by a trace")
                    .remedy("record one with --trace app.wtrace and name it with --plan app.wtrace"));
            }
            (Wanted::Count(_), Some(_)) => {
                return Err(Failure::misuse("--plan", "the number of delegates is given")
                    .remedy("write --delegates auto"));
            }
        };
        Ok(Plan::Start { count, settings, over })
    }
}

/// Returns the number of delegates for a number of ranks, if that is known.
fn number(wanted: DelegateCount, ranks: Option<u32>) -> Result<u32, Failure> {
    let number = match (wanted, ranks) {
        (DelegateCount::Number(number), _) => number,
        (DelegateCount::Percent(_), Some(ranks)) => wanted.of(ranks),
        (DelegateCount::Percent(percent), None) => {
            return Err(Failure::misuse(
                format!("--delegates {percent}%"),
                "the command line contains no launcher with a number of ranks (mpiexec -n N)",
            )
            .remedy("give the number of delegates"));
        }
    };
    if number as usize > DELEGATES_MAX {
        let why = format!("a job has at most {DELEGATES_MAX} delegates");
        return Err(Failure::misuse(format!("--delegates {number}"), why));
    }
    Ok(number)
}

impl Plan {
    /// Whether files of other file systems are served, so that no cluster is needed.
    pub fn has_directories(&self) -> bool {
        match self {
            Self::None { has_directories } => *has_directories,
            Self::Join(_, job) => !job.over.is_empty(),
            Self::Start { over, .. } => !over.is_empty(),
        }
    }

    /// Starts delegates, which serve files of Weft if there is a cluster file, and waits until they serve.
    pub fn start(self, cluster: Option<&Path>) -> Result<Delegates, Failure> {
        match self {
            Self::None { .. } => Ok(Delegates::new(None)),
            Self::Join(dir, job) => Ok(Delegates::new(Some((dir, job.over, false)))),
            Self::Start { count, settings, over } => {
                let dir = job_dir::create()?;
                let mut delegates = Delegates::new(Some((dir, over, true)));
                // Dropping them ends those that have started.
                for index in 0..count {
                    delegates.start(index, count, &settings, cluster)?;
                }
                delegates.wait_ready()?;
                Ok(delegates)
            }
        }
    }
}

/// Delegates that the program uses. Dropping them ends those that `weft run` has started.
pub struct Delegates {
    /// Directory, directories served, and whether `weft run` made the first.
    job: Option<(PathBuf, Vec<PathBuf>, bool)>,
    started: Vec<Started>,
    /// Whether the program could have used them.
    have_served: bool,
}

/// A process of a delegate.
struct Started {
    index: u32,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Delegates {
    fn new(job: Option<(PathBuf, Vec<PathBuf>, bool)>) -> Self {
        Self { job, started: Vec::new(), have_served: false }
    }

    /// Sets the variables by which the program finds the delegates.
    pub fn environment(&self, command: &mut Command) {
        let Some((dir, over, _)) = &self.job else { return };
        command.env(DELEGATES_VARIABLE, dir);
        let mut joined = OsString::new();
        for dir in over {
            if !joined.is_empty() {
                joined.push(":");
            }
            joined.push(std::ffi::OsStr::from_bytes(dir.as_os_str().as_bytes()));
        }
        match joined.is_empty() {
            true => command.env_remove(OVER_VARIABLE),
            false => command.env(OVER_VARIABLE, joined),
        };
    }

    fn start(
        &mut self,
        index: u32,
        count: u32,
        settings: &Settings,
        cluster: Option<&Path>,
    ) -> Result<(), Failure> {
        let Some((dir, over, _)) = &self.job else { unreachable!("delegates start in a job directory") };
        let failed = |error: std::io::Error| Failure::new(format!("starting delegate {index}"), error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        match cluster {
            Some(file) => command.arg("--cluster").arg(file).arg("delegate"),
            None => command.args(["delegate", "--no-cluster"]),
        };
        command.arg("--job").arg(dir).arg("--child-of").arg(dir).arg("--announce");
        command.args(["--index", &index.to_string(), "--of", &count.to_string()]).args(settings.arguments());
        for dir in over {
            command.arg("--over").arg(dir);
        }
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        for name in ["LD_PRELOAD", DELEGATES_VARIABLE, OVER_VARIABLE] {
            command.env_remove(name);
        }
        // SAFETY: both calls are safe between fork and exec. Signals of the terminal are for the program; the delegates
        // end after it. Descriptors of the caller must not stay open in a delegate.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
                Ok(())
            });
        }
        let child = command.spawn().map_err(failed)?;
        self.started.push(Started { index, child, ended: None });
        Ok(())
    }

    /// Waits until all delegates serve.
    fn wait_ready(&mut self) -> Result<(), Failure> {
        for delegate in &mut self.started {
            let Some(out) = delegate.child.stdout.take() else { unreachable!("stdout is piped") };
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line); // an end without the word is handled below
            if line.trim() != "ready" {
                let why = "it ended before it served";
                return Err(
                    Failure::new(format!("delegate {}", delegate.index), why).remedy("see its message above")
                );
            }
        }
        self.have_served = true;
        Ok(())
    }

    /// Reports delegates that have ended before the program.
    pub fn report_ended(&mut self) {
        if !self.have_served {
            return; // the command ends with the reason
        }
        for delegate in self.running() {
            if let Ok(Some(status)) = delegate.child.try_wait() {
                delegate.ended = Some(status);
                let why = format!("it ended before the program ({})", of_status(status));
                let remedy = "files whose bytes it held are incomplete, and requests for them fail with EIO";
                errln!("{}", Failure::new(format!("delegate {}", delegate.index), why).remedy(remedy));
            }
        }
    }

    /// Ends the delegates, which first write all bytes to the files, and removes the job directory.
    pub fn end(self) {
        drop(self);
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Started> {
        self.started.iter_mut().filter(|delegate| delegate.ended.is_none())
    }

    fn finish(&mut self) {
        let have_served = self.have_served;
        self.report_ended();
        for delegate in self.running() {
            let _ = signals::send(delegate.child.id() as i32, libc::SIGTERM);
        }
        let began = Instant::now();
        let (mut is_told, mut is_killed) = (false, false);
        while self.running().next().is_some() {
            for delegate in self.running() {
                let Some(status) = delegate.child.try_wait().unwrap_or(Some(ExitStatus::from_raw(0))) else {
                    continue;
                };
                delegate.ended = Some(status);
                if status.code().is_none() && have_served {
                    let why = format!("{}; bytes that it held are lost", of_status(status));
                    errln!("{}", Failure::new(format!("delegate {}", delegate.index), why));
                }
            }
            if signals::is_pending(&[libc::SIGQUIT]) && !std::mem::replace(&mut is_killed, true) {
                for delegate in self.running() {
                    let _ = delegate.child.kill(); // it may have ended
                }
            }
            if began.elapsed() > NOTICE_AFTER && !std::mem::replace(&mut is_told, true) {
                errln!(
                    "weft: the delegates are writing the rest of the program's bytes; SIGQUIT discards it"
                );
            }
            std::thread::sleep(POLL);
        }
        if let Some((dir, _, true)) = &self.job
            && let Err(failure) = job_dir::remove(dir)
        {
            errln!("{failure}");
        }
    }
}

impl Drop for Delegates {
    fn drop(&mut self) {
        self.finish();
    }
}

fn of_status(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit code {}", status.code().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_need_a_known_number_of_ranks() {
        assert_eq!(count("auto"), Ok(Wanted::Auto));
        let of = |text: &str, ranks| number(text.parse().expect("a count"), ranks);
        assert_eq!(of("3", None).expect("known"), 3);
        assert_eq!(of("5%", Some(64)).expect("known"), 3);
        assert_eq!(of("1%", Some(4)).expect("known"), 1);
        let error = of("5%", None).expect_err("unknown");
        assert_eq!(error.exit_code(), crate::failure::MISUSED);
        assert!(error.text().contains("mpiexec -n N"), "{}", error.text());
        assert!(of("5000", None).is_err());
    }
}

//! Jobs about files of Weft: `weft migrate` and `weft replicate` in a process of its own.

use super::control::{JobControl, LOOK_INTERVAL};
use super::job::{WeftCommand, WeftWork};
use super::progress::{Activity, Reporter};
use super::worker::Outcome;
use crate::commands::bytes;
use crate::commands::migrate::INTERRUPTED;
use crate::commands::replicate::IN_USE;
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use weft_core::ByteLen;

/// Longest error that is kept of a process, in bytes from its end.
const ERROR_LEN_MAX: usize = 4096;

impl WeftWork {
    /// The command in words.
    fn name(&self) -> &'static str {
        match self.command {
            WeftCommand::Migrate(_) => "weft migrate",
            WeftCommand::ReplicateApply { .. } => "weft replicate apply",
            WeftCommand::ReplicateSync => "weft replicate sync",
        }
    }

    fn command(&self, weft: &Path, rate: Option<ByteLen>) -> Command {
        let mut command = Command::new(weft);
        command.arg("--cluster").arg(&self.cluster);
        let rate = rate.map_or_else(|| "--idle".to_owned(), |rate| format!("--rate={}", rate.0));
        let path = bytes::local(&self.path);
        match &self.command {
            WeftCommand::Migrate(options) => {
                command.args(["migrate", "--quiet", "--report"]);
                command.args(options.iter().map(|option| bytes::local(option)));
                command.arg(rate).arg("--").arg(path);
            }
            WeftCommand::ReplicateApply { plan, from, replace } => {
                command.args(["replicate", "apply", "--report"]);
                command.args(replace.then_some("--replace")).arg(rate);
                command.arg("--only").arg(from).arg("--to").arg(path).arg("--").arg(plan);
            }
            WeftCommand::ReplicateSync => {
                command.args(["replicate", "sync", "--report"]).arg(rate).arg("--").arg(path);
            }
        }
        match &self.key {
            Some(key) => command.env("WEFT_KEY", key),
            None => command.env_remove("WEFT_KEY"),
        };
        command
    }

    /// Outcome of a command that has ended with `code` and printed `errors`.
    fn outcome(&self, code: Option<i32>, errors: &str, is_asked: bool) -> Option<Outcome> {
        let is_move = matches!(self.command, WeftCommand::Migrate(_));
        match code {
            Some(0) => Some(Outcome::Done(match self.command {
                WeftCommand::Migrate(_) => "has its layout".to_owned(),
                WeftCommand::ReplicateApply { .. } => "has its replica".to_owned(),
                WeftCommand::ReplicateSync => "is synchronized".to_owned(),
            })),
            _ if is_asked => Some(Outcome::Stopped),
            Some(code) if is_move && code == i32::from(INTERRUPTED) => Some(Outcome::Stopped),
            Some(code) if !is_move && code == i32::from(IN_USE) => Some(Outcome::InUse(errors.to_owned())),
            _ => None,
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// Errors of the command.
    pub fn run(
        &self,
        rate: Option<ByteLen>,
        signals: &Blocked,
        control: &JobControl<'_>,
        reporter: &mut Reporter,
    ) -> Result<Outcome, Failure> {
        let failed = |error: std::io::Error| Failure::new(self.name(), error);
        let mut command = self.command(&std::env::current_exe().map_err(failed)?, rate);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl is safe between fork and exec, and this option has no memory effects.
        unsafe {
            command.pre_exec(|| {
                // The command ends when the agent is killed, a move at a safe point.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let mut child = signals.spawn(&mut command).map_err(failed)?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            unreachable!("both are piped")
        };
        reporter.begin(0, rate.map(|rate| rate.0));
        let (sender, reports) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            // Ends with the process; the agent receives all reports until then.
            lines.filter_map(|line| Report::parse(&line)).try_for_each(|report| sender.send(report))
        });
        let errors = std::thread::spawn(move || end_of(err));
        let mut is_asked = false;
        loop {
            match reports.recv_timeout(LOOK_INTERVAL) {
                Ok(Report { done, total, activity }) => {
                    reporter.set_activity(activity);
                    reporter.set(done, total);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !is_asked && control.is_ended() {
                is_asked = true;
                let _ = signals::send(child.id() as i32, libc::SIGTERM);
            }
        }
        let status = child.wait().map_err(failed)?;
        let errors = errors.join().unwrap_or_default();
        let errors = errors.trim();
        let errors = errors.strip_prefix("weft: ").unwrap_or(errors);
        match self.outcome(status.code(), errors, is_asked) {
            Some(outcome) => Ok(outcome),
            None if errors.is_empty() => Err(Failure::new(self.name(), status)),
            None => Err(Failure::said(errors)),
        }
    }
}

/// Last word of a line of `--report` while the copy waits.
const WAITING: &str = "waiting";

/// Prints a line of `--report`.
pub fn print_progress(done: u64, total: u64, is_waiting: bool) {
    let state = if is_waiting { WAITING } else { "copying" };
    outln!("{done} {total} {state}");
}

/// A line of `--report`.
#[derive(PartialEq, Debug)]
struct Report {
    done: u64,
    total: u64,
    activity: Activity,
}

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (done, total, state) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
        let activity = if state == WAITING { Activity::WaitingForDevice } else { Activity::Copying };
        Some(Self { done, total, activity })
    }
}

/// Reads everything and returns the end.
fn end_of(mut from: impl Read) -> String {
    let (mut end, mut piece) = (Vec::new(), [0; ERROR_LEN_MAX]);
    while let Ok(len @ 1..) = from.read(&mut piece) {
        end.extend_from_slice(&piece[..len]);
        end.drain(..end.len().saturating_sub(ERROR_LEN_MAX));
    }
    String::from_utf8_lossy(&end).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn names_and_options_are_given_by_their_bytes() {
        let options = ["--recursive".to_owned(), bytes::text(b"--plan=/caf\xe9")];
        let path = bytes::text(b"/weft/caf\xe9");
        let mut job = WeftWork {
            path,
            cluster: "/c.toml".into(),
            key: None,
            command: WeftCommand::Migrate(options.to_vec()),
        };
        let arguments = |job: &WeftWork| {
            let command = job.command("weft".as_ref(), Some(ByteLen(5)));
            command.get_args().skip(2).map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>().join(&b' ')
        };
        assert_eq!(
            arguments(&job),
            b"migrate --quiet --report --recursive --plan=/caf\xe9 --rate=5 -- /weft/caf\xe9"
        );
        let (plan, from) = ("/p.toml".into(), "/weft/a".to_owned());
        job.command = WeftCommand::ReplicateApply { plan, from, replace: true };
        assert_eq!(
            arguments(&job),
            b"replicate apply --report --replace --rate=5 --only /weft/a --to /weft/caf\xe9 -- /p.toml"
        );
        job.command = WeftCommand::ReplicateSync;
        assert_eq!(arguments(&job), b"replicate sync --report --rate=5 -- /weft/caf\xe9");
        let unbounded = job.command("weft".as_ref(), None);
        assert!(unbounded.get_args().any(|word| word == "--idle"), "{unbounded:?}");
    }

    #[test]
    fn a_file_in_use_waits_and_a_stopped_command_stays_in_the_queue() {
        let of = |command| WeftWork { path: "/weft/f".to_owned(), cluster: "/c".into(), key: None, command };
        let (sync, moves) = (of(WeftCommand::ReplicateSync), of(WeftCommand::Migrate(Vec::new())));
        let in_use = Some(i32::from(IN_USE));
        assert!(matches!(sync.outcome(in_use, "why", false), Some(Outcome::InUse(why)) if why == "why"));
        assert!(moves.outcome(in_use, "", false).is_none());
        assert!(matches!(moves.outcome(Some(i32::from(INTERRUPTED)), "", false), Some(Outcome::Stopped)));
        assert!(matches!(sync.outcome(None, "", true), Some(Outcome::Stopped)), "ended by a signal");
        assert!(sync.outcome(Some(1), "", false).is_none());
        assert!(matches!(sync.outcome(Some(0), "", true), Some(Outcome::Done(_))));
    }

    #[test]
    fn reports_and_ends_are_read() {
        let parsed = |activity| Some(Report { done: 5, total: 17, activity });
        assert_eq!(Report::parse("5 17 copying"), parsed(Activity::Copying));
        assert_eq!(Report::parse("5 17 waiting"), parsed(Activity::WaitingForDevice));
        assert_eq!(Report::parse("moved 1 file"), None);
        let long = [vec![b'a'; 3 * ERROR_LEN_MAX], b"end".to_vec()].concat();
        let end = end_of(&long[..]);
        assert!(end.len() == ERROR_LEN_MAX && end.ends_with("aend"), "{}", end.len());
    }
}

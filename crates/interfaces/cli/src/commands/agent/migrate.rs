//! Jobs that move files of Weft: `weft migrate` in a process of its own.

use super::control::{JobControl, LOOK_INTERVAL};
use super::pace::RATE_WITHOUT_DEVICE;
use super::progress::Reporter;
use super::worker::Outcome;
use crate::commands::bytes;
use crate::commands::migrate::INTERRUPTED;
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

/// A move.
pub struct Move<'a> {
    /// Path on Weft.
    pub path: &'a str,
    /// Cluster file.
    pub cluster: &'a Path,
    /// Key file of the user.
    pub key: Option<&'a Path>,
    /// Options of `weft migrate`.
    pub options: &'a [String],
}

impl Move<'_> {
    fn command(&self, weft: &Path, rate: Option<ByteLen>) -> Command {
        let mut command = Command::new(weft);
        command.arg("--cluster").arg(self.cluster).args(["migrate", "--quiet", "--report"]);
        command.args(self.options.iter().map(|option| bytes::local(option)));
        command.arg(format!("--rate={}", rate.unwrap_or(RATE_WITHOUT_DEVICE).0));
        command.arg("--").arg(bytes::local(self.path));
        match self.key {
            Some(key) => command.env("WEFT_KEY", key),
            None => command.env_remove("WEFT_KEY"),
        };
        command
    }

    /// Moves the files.
    ///
    /// # Errors
    /// Errors of `weft migrate`.
    pub fn run(
        &self,
        rate: Option<ByteLen>,
        signals: &Blocked,
        control: &JobControl<'_>,
        reporter: &mut Reporter,
    ) -> Result<Outcome, Failure> {
        let failed = |error: std::io::Error| Failure::new("weft migrate", error);
        let mut command = self.command(&std::env::current_exe().map_err(failed)?, rate);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl is safe between fork and exec, and this option has no memory effects.
        unsafe {
            command.pre_exec(|| {
                // A move stops at a safe point when the agent is killed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let mut child = signals.spawn(&mut command).map_err(failed)?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            unreachable!("both are piped")
        };
        reporter.begin(0, Some(rate.unwrap_or(RATE_WITHOUT_DEVICE).0));
        let (sender, reports) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            // Ends with the process; the agent receives all reports until then.
            lines.filter_map(|line| report(&line)).try_for_each(|report| sender.send(report))
        });
        let errors = std::thread::spawn(move || end_of(err));
        let mut is_asked = false;
        loop {
            match reports.recv_timeout(LOOK_INTERVAL) {
                Ok((done, total)) => reporter.set(done, total),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !is_asked && control.is_ended() {
                is_asked = true;
                signals::send(child.id() as i32, libc::SIGTERM);
            }
        }
        let status = child.wait().map_err(failed)?;
        let errors = errors.join().unwrap_or_default();
        let errors = errors.trim();
        match status.code() {
            Some(0) => Ok(Outcome::Done("has its layout".to_owned())),
            Some(code) if code == i32::from(INTERRUPTED) || is_asked => Ok(Outcome::Stopped),
            _ if errors.is_empty() => Err(Failure::new("weft migrate", status)),
            _ => Err(Failure::said(errors.strip_prefix("weft: ").unwrap_or(errors))),
        }
    }
}

/// Reads a line of `weft migrate --report`.
fn report(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.split_once(' ')?;
    Some((done.parse().ok()?, total.parse().ok()?))
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
        let job = Move { path: &path, cluster: "/c.toml".as_ref(), key: None, options: &options };
        let command = job.command("weft".as_ref(), Some(ByteLen(5)));
        let arguments: Vec<_> = command.get_args().map(OsStrExt::as_bytes).collect();
        assert_eq!(
            arguments[2..],
            [
                &b"migrate"[..],
                b"--quiet",
                b"--report",
                b"--recursive",
                b"--plan=/caf\xe9",
                b"--rate=5",
                b"--",
                b"/weft/caf\xe9"
            ]
        );
    }

    #[test]
    fn reports_and_ends_are_read() {
        assert_eq!(report("5 17"), Some((5, 17)));
        assert_eq!(report("moved 1 file"), None);
        let long = [vec![b'a'; 3 * ERROR_LEN_MAX], b"end".to_vec()].concat();
        let end = end_of(&long[..]);
        assert!(end.len() == ERROR_LEN_MAX && end.ends_with("aend"), "{}", end.len());
    }
}

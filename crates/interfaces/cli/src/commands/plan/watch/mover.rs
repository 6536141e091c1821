//! Runs `weft migrate` beside a watching command, one at a time.

use crate::commands::bytes;
use crate::commands::session::Weft;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use weft_core::ByteLen;

/// Moves files in a separate process, so that watching continues.
pub struct Mover {
    cluster: PathBuf,
    directory: String,
    rate: Option<ByteLen>,
    running: Option<Child>,
    /// The plan to carry out after the current one.
    next: Option<PathBuf>,
}

impl Mover {
    /// Creates a mover for files below a directory, with at most `rate` bytes per second.
    pub fn new(weft: &Weft, below: &str, rate: Option<ByteLen>) -> Self {
        let (cluster, directory) = (weft.cluster.file.clone(), weft.shown(below));
        Self { cluster, directory, rate, running: None, next: None }
    }

    /// Carries out a plan, after the current one if there is one.
    pub fn begin(&mut self, plan: &Path) -> Result<(), Failure> {
        if self.running.is_some() {
            self.next = Some(plan.to_owned());
            return Ok(());
        }
        let failed = |error: std::io::Error| Failure::new("weft migrate", error);
        let mut command = self.command(std::env::current_exe().map_err(failed)?, plan);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.running = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    fn command(&self, weft: PathBuf, plan: &Path) -> Command {
        let mut command = Command::new(weft);
        command.arg("--cluster").arg(&self.cluster).args(["migrate", "-r", "-q"]).arg("--plan").arg(plan);
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.0.to_string()]);
        }
        // Pass the bytes of the name, not their text form.
        command.arg("--").arg(bytes::local(&self.directory));
        command
    }

    /// Returns how a process ended since the last call, and starts the next one.
    pub fn look(&mut self) -> Result<Option<String>, Failure> {
        let ended = match &mut self.running {
            None => return Ok(None),
            Some(child) => child.try_wait().map_err(|error| Failure::new("weft migrate", error))?,
        };
        let Some(status) = ended else { return Ok(None) };
        self.running = None;
        if let Some(plan) = self.next.take() {
            self.begin(&plan)?;
        }
        Ok(Some(describe(status)))
    }

    /// Waits for the current process and returns how it ended.
    pub fn wait(mut self) -> Result<Option<String>, Failure> {
        let Some(mut child) = self.running.take() else { return Ok(None) };
        let status = child.wait().map_err(|error| Failure::new("weft migrate", error))?;
        Ok(Some(describe(status)))
    }
}

fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(0) => "existing files have their layouts".to_owned(),
        Some(_) => "some files keep their layout, see above".to_owned(),
        None => format!("weft migrate: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn directories_of_any_name_are_given_by_their_bytes() {
        let name = b"/weft/caf\xe9";
        let (cluster, directory) = ("cluster.toml".into(), bytes::text(name));
        let mover = Mover { cluster, directory, rate: Some(ByteLen(5)), running: None, next: None };
        let command = mover.command("weft".into(), "plan.toml".as_ref());
        let arguments: Vec<_> = command.get_args().map(OsStrExt::as_bytes).collect();
        assert_eq!(arguments[..2], [&b"--cluster"[..], b"cluster.toml"]);
        assert_eq!(arguments[arguments.len() - 4..], [&b"--rate"[..], b"5", b"--", name]);
    }
}

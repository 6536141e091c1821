//! The parent's side: starts the process that reads a log, and makes whatever becomes of it a record or an error.

use super::counters::LogSummary;
use super::serve::{Mode, NOTICE, PREFIX, Refusal};
use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::open::{AnyStream, OpenOptions};
use crate::record::Record;
use crate::stream::{Info, RecordStream};
use crate::wtrace::{Reader, Tail};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A program that calls [`super::serve`] with the mode and the path that it is given after its arguments.
#[derive(Clone, Debug)]
pub struct Helper {
    program: Option<PathBuf>,
    args: Vec<OsString>,
}

impl Default for Helper {
    /// This program itself, with the argument `darshan-reader`.
    fn default() -> Self {
        Self { program: None, args: vec!["darshan-reader".into()] }
    }
}

impl Helper {
    /// Another program.
    pub fn program(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: Some(program.into()), args: args.into_iter().collect() }
    }

    fn start(&self, mode: Mode, path: &Path) -> Result<Running> {
        let failed = |error| TraceError::io(path, error);
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(failed)?,
        };
        let said = tempfile::tempfile().map_err(failed)?;
        let mut child = Command::new(program)
            .args(&self.args)
            .arg(mode.name())
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let out = child.stdout.take().expect("piped");
        Ok(Running { path: path.to_owned(), child, out: Some(out), said, ended: false })
    }
}

/// Says once in this process's life which parts of the sandbox were missing.
fn tell_of_sandbox(path: &Path, said: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    for missing in said.lines().filter_map(|line| line.strip_prefix(NOTICE)) {
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!(
                "weft: {}: Darshan's library read this log without a whole sandbox: {missing}; read logs that you do not \
                 trust on a newer kernel",
                path.display()
            );
        }
    }
}

struct Running {
    path: PathBuf,
    child: Child,
    out: Option<ChildStdout>,
    said: File,
    ended: bool,
}

impl Running {
    /// Waits for the end; what was wrong, if anything was.
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        let status = self.child.wait().map_err(|error| TraceError::io(&self.path, error))?;
        let mut text = Vec::new();
        // What it said is a word for people: if it cannot be had, the status alone must do.
        let _ = self.said.rewind();
        let _ = (&mut self.said).take(1 << 20).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        tell_of_sandbox(&self.path, &text);
        if status.success() {
            return Ok(());
        }
        let refusal = text.lines().rev().find_map(|line| line.strip_prefix(PREFIX));
        let is_own = |line: &str| line.starts_with(PREFIX) || line.starts_with(NOTICE);
        let library = text.lines().find(|line| !line.trim().is_empty() && !is_own(line));
        let library = library.map(|line| format!(" (libdarshan-util: {})", line.trim())).unwrap_or_default();
        let path = self.path.clone();
        Err(match refusal.and_then(|json| serde_json::from_str(json).ok()) {
            Some(Refusal::NoLibrary { tried }) => {
                TraceError::NoLibrary { tried, remedy: super::library::REMEDY }
            }
            Some(Refusal::NoDxt { modules }) => TraceError::NoDxt { path, modules },
            Some(Refusal::Other(what)) => TraceError::Darshan {
                path,
                what: format!("{what}{library}: the log is damaged or of a kind that Darshan does not read"),
            },
            None => {
                let how = match status.signal() {
                    Some(libc::SIGXCPU | libc::SIGKILL) => {
                        "took more time or memory than any sound log needs".into()
                    }
                    Some(signal) => format!("was ended by signal {signal}"),
                    None => format!("ended with {status}"),
                };
                let what =
                    format!("Darshan's library {how} while it read this log{library}: the log is damaged");
                TraceError::Darshan { path, what }
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // Its reader has lost interest. A process that is gone already is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a log has besides operations.
///
/// # Errors
/// A log that cannot be read; no library.
pub fn summary(path: &Path, helper: &Helper) -> Result<LogSummary> {
    let mut running = helper.start(Mode::Summary, path)?;
    let mut json = Vec::new();
    let out = running.out.take().expect("just started");
    let read = out.take(64 << 20).read_to_end(&mut json);
    running.end()?;
    read.map_err(|error| TraceError::io(path, error))?;
    serde_json::from_slice(&json).map_err(|_| TraceError::Darshan {
        path: path.to_owned(),
        what: "the process that reads Darshan logs gave no sense; is it of this version?".into(),
    })
}

/// A stream over a log.
///
/// # Errors
/// A log that cannot be read or has no operations; no library.
pub fn open(path: &Path, options: &OpenOptions) -> Result<AnyStream> {
    match stream(path, options, Mode::Dxt) {
        Err(TraceError::NoDxt { .. }) if options.reconstruct => {
            Ok(Box::new(stream(path, options, Mode::Reconstruct)?))
        }
        other => Ok(Box::new(other?)),
    }
}

fn stream(path: &Path, options: &OpenOptions, mode: Mode) -> Result<Stream> {
    let mut running = options.helper.start(mode, path)?;
    let out = running.out.take().expect("just started");
    match Reader::new(path, BufReader::new(out), 0) {
        Ok(reader) => Ok(Stream { running, reader, done: false }),
        Err(error) => {
            // It said nothing, and why is a better answer than that.
            running.end()?;
            Err(error)
        }
    }
}

struct Stream {
    running: Running,
    reader: Reader<BufReader<ChildStdout>>,
    done: bool,
}

impl Iterator for Stream {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.reader.next();
        if let Some(Ok(_)) = next {
            return next;
        }
        self.done = true;
        if next.is_some() && !self.running.ended {
            // It goes on writing to nobody otherwise.
            let _ = self.running.child.kill();
        }
        let ended = self.running.end();
        match (next, ended, self.reader.tail()) {
            (_, Err(error), _) => Some(Err(error)),
            (None, Ok(()), Tail::Finished) => None,
            (Some(Err(error)), ..) => Some(Err(error)),
            _ => Some(Err(TraceError::Darshan {
                path: self.running.path.clone(),
                what: "the process that reads Darshan logs ended before it was done".into(),
            })),
        }
    }
}

impl RecordStream for Stream {
    fn info(&self) -> &Info {
        self.reader.info()
    }

    fn names(&self) -> &Names {
        self.reader.names()
    }

    fn progress(&self) -> (u64, u64) {
        self.reader.progress()
    }
}

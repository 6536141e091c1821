//! Starts the process that reads a log, and turns its output into records or an error.

use super::counters::LogSummary;
use super::serve::{Mode, NOTICE, PREFIX, Refusal};
use crate::error::{Result, TraceError};
use crate::names::Names;
use crate::open::{AnyStream, OpenOptions};
use crate::record::Record;
use crate::stream::{Info, RecordStream};
use crate::wtrace::{Reader, TraceEnd};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A command that calls [`super::serve`] with the mode and the path appended to its arguments.
#[derive(Clone, Debug)]
pub struct Helper {
    program: Option<PathBuf>,
    args: Vec<OsString>,
}

impl Default for Helper {
    /// Returns this program itself with the argument `darshan-reader`.
    fn default() -> Self {
        Self { program: None, args: vec!["darshan-reader".into()] }
    }
}

impl Helper {
    /// Uses another program.
    pub fn program(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: Some(program.into()), args: args.into_iter().collect() }
    }

    fn start(&self, mode: Mode, path: &Path) -> Result<Running> {
        let failed = |error| TraceError::io(path, error);
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(failed)?,
        };
        let stderr = tempfile::tempfile().map_err(failed)?;
        let mut child = Command::new(program)
            .args(&self.args)
            .arg(mode.name())
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let out = child.stdout.take().expect("piped");
        Ok(Running { path: path.to_owned(), child, out: Some(out), stderr, ended: false })
    }
}

/// Prints, once per process, which layers of the sandbox are missing.
fn report_sandbox(path: &Path, stderr: &str) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    for missing in stderr.lines().filter_map(|line| line.strip_prefix(NOTICE)) {
        if !REPORTED.swap(true, Ordering::Relaxed) {
            eprintln!(
                "weft: {}: Darshan's library read this log with an incomplete sandbox: {missing}; read untrusted \
                 logs on a newer kernel",
                path.display()
            );
        }
    }
}

struct Running {
    path: PathBuf,
    child: Child,
    out: Option<ChildStdout>,
    stderr: File,
    ended: bool,
}

impl Running {
    /// Waits for the process to exit, and returns the reason if it failed.
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        let status = self.child.wait().map_err(|error| TraceError::io(&self.path, error))?;
        let mut text = Vec::new();
        // The output only improves the message: if it cannot be read, the exit status is used alone.
        let _ = self.stderr.rewind();
        let _ = (&mut self.stderr).take(1 << 20).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        report_sandbox(&self.path, &text);
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
                what: format!("{what}{library}: the log is damaged or of a version that Darshan cannot read"),
            },
            None => {
                let how = match status.signal() {
                    Some(libc::SIGXCPU | libc::SIGKILL) => {
                        "took more time or memory than any valid log needs".into()
                    }
                    Some(signal) => format!("was killed by signal {signal}"),
                    None => format!("ended with {status}"),
                };
                let what =
                    format!("Darshan's library {how} while reading this log{library}: the log is damaged");
                TraceError::Darshan { path, what }
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // The stream was dropped early. Killing a process that has already exited does no harm.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads a log's summary.
///
/// # Errors
/// Fails if the log cannot be read or libdarshan-util is not installed.
pub fn summary(path: &Path, helper: &Helper) -> Result<LogSummary> {
    let mut running = helper.start(Mode::Summary, path)?;
    let mut json = Vec::new();
    let out = running.out.take().expect("just started");
    let read = out.take(64 << 20).read_to_end(&mut json);
    running.end()?;
    read.map_err(|error| TraceError::io(path, error))?;
    serde_json::from_slice(&json).map_err(|_| TraceError::Darshan {
        path: path.to_owned(),
        what: "the process that reads Darshan logs returned invalid data; is it of this version?".into(),
    })
}

/// Opens a log as a record stream.
///
/// # Errors
/// Fails if the log cannot be read or has no operations, or if libdarshan-util is not installed.
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
            // The process wrote no header. Its exit status explains why, so report that first.
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
            // Otherwise the process would keep writing to a pipe that is no longer read.
            let _ = self.running.child.kill();
        }
        let ended = self.running.end();
        match (next, ended, self.reader.end()) {
            (_, Err(error), _) => Some(Err(error)),
            (None, Ok(()), TraceEnd::Finished) => None,
            (Some(Err(error)), ..) => Some(Err(error)),
            _ => Some(Err(TraceError::Darshan {
                path: self.running.path.clone(),
                what: "the process that reads Darshan logs exited before the end of the log".into(),
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

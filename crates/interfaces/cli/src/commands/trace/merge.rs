//! `weft trace merge`: merges the files of a traced program's processes into one trace. Also the part of `weft run
//! --trace` around the program.

use super::bar;
use crate::atomic_file::AtomicFile;
use crate::commands::quoted_path;
use crate::failure::Failure;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_trace::merge::{Merged, has_parts, merge};

/// Merges a trace directory into one trace.
#[derive(Args)]
pub struct Merge {
    /// The directory with the files of all processes
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The trace to write
    #[arg(long, short, value_name = "FILE.wtrace")]
    output: PathBuf,
    /// The traced command, as information for readers
    #[arg(long, value_name = "COMMAND", default_value = "")]
    program: String,
}

impl Merge {
    pub fn run(self) -> Result<u8, Failure> {
        if !has_parts(&self.dir)? {
            return Err(Failure::new(self.dir.display(), "no process has recorded anything here").remedy(
                "name the directory that WEFT_TRACE named, FILE.wtrace.parts after `weft run --trace`",
            ));
        }
        print_summary(&merged(&self.dir, &self.output, &self.program)?, &self.output);
        Ok(0)
    }
}

/// Merges and shows a progress bar.
fn merged(dir: &Path, out: &Path, program: &str) -> weft_trace::Result<Merged> {
    let bar = bar();
    let merged = merge(dir, out, program, |at, of| {
        bar.set_length(of);
        bar.set_position(at);
    });
    bar.finish_and_clear();
    merged
}

/// Prints a summary, notes and the next command.
fn print_summary(merged: &Merged, out: &Path) {
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let bytes = weft_core::units::human_bytes;
    let next = quoted_path(out);
    let out = out.display();
    errln!(
        "weft: {out}: {}, {}, {}, {} read, {} written",
        counted(u64::from(merged.ranks), "rank"),
        counted(u64::from(merged.files), "file"),
        counted(merged.records, "record"),
        bytes(merged.read_bytes),
        bytes(merged.written_bytes),
    );
    for note in &merged.notes {
        errln!("weft: {note}");
    }
    if merged.records == 0 {
        errln!(
            "weft: nothing was recorded: programs without the C library are not seen, nor are files in system \
             directories; --trace-paths names what to trace"
        );
    } else {
        errln!("next: weft trace show {next}");
    }
}

/// Returns the files behind this process's standard descriptors, which the program inherits.
fn standard_files() -> String {
    let file = |fd: i32| {
        // SAFETY: all zeros is a valid `stat`, which the call fills.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is valid and writable.
        let known = unsafe { libc::fstat(fd, &mut stat) } == 0;
        (known && stat.st_mode & libc::S_IFMT == libc::S_IFREG)
            .then(|| format!("{}:{}", stat.st_dev, stat.st_ino))
    };
    (0..3).filter_map(file).collect::<Vec<_>>().join(",")
}

/// Returns the value of `--trace-paths` in the form that programs read.
pub fn paths(paths: &[PathBuf]) -> Result<Option<OsString>, Failure> {
    if paths.is_empty() {
        return Ok(None);
    }
    let mut list = OsString::new();
    for path in paths {
        // Without symbolic links, as the kernel reports the paths of descriptors.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path));
        let path = path.map_err(|error| Failure::new("--trace-paths", error))?;
        if path.as_os_str().as_encoded_bytes().contains(&b':') {
            return Err(Failure::misuse(path.display(), "a path with a colon cannot be chosen"));
        }
        if !list.is_empty() {
            list.push(":");
        }
        list.push(path);
    }
    Ok(Some(list))
}

/// A trace directory while a program runs.
pub struct Parts {
    dir: PathBuf,
    out: PathBuf,
    program: String,
}

impl Parts {
    /// Creates the directory beside `out`, and checks that `out` can be written.
    pub fn new(out: &Path, program: &[OsString]) -> Result<Self, Failure> {
        let failed = |path: &Path, error| Failure::new(path.display(), error);
        let out = std::path::absolute(out).map_err(|error| failed(out, error))?;
        let mut dir = out.clone().into_os_string();
        dir.push(".parts");
        let dir = PathBuf::from(dir);
        if dir.exists() {
            return Err(Failure::new(dir.display(), "parts of an earlier trace are still there").remedy(
                format!(
                    "`weft trace merge {} -o FILE` makes a trace of them; remove the directory then",
                    quoted_path(&dir)
                ),
            ));
        }
        // An existing trace stays until the new one is complete.
        AtomicFile::new(&out).map_err(|failure| {
            failure.remedy("a trace needs an existing directory on a file system of this host")
        })?;
        std::fs::create_dir(&dir).map_err(|error| failed(&dir, error))?;
        // The clock of the trace starts here.
        weft_recorder::clock::Anchor::of_host(&dir).map_err(|error| failed(&dir, error))?;
        let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        Ok(Self { dir, out, program: words.join(" ") })
    }

    /// Makes the program record a trace, only below the paths from [`paths`].
    pub fn trace(&self, command: &mut Command, paths: Option<OsString>) {
        command.env("WEFT_TRACE", &self.dir);
        command.env_remove("WEFT_TRACE_PATHS").env("WEFT_TRACE_NOT", standard_files());
        command.envs(paths.map(|paths| ("WEFT_TRACE_PATHS", paths)));
    }

    /// Removes the directory if the program did not start. An existing trace stays.
    pub fn give_up(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            errln!("{}", Failure::new(self.dir.display(), error));
        }
    }

    /// Merges the trace after the program's end. A failure is printed and does not change the program's exit code.
    pub fn finish(self) {
        match merged(&self.dir, &self.out, &self.program) {
            Ok(merged) => {
                print_summary(&merged, &self.out);
                if merged.damaged {
                    errln!("weft: {}: kept, because they are damaged", self.dir.display());
                } else if let Err(error) = std::fs::remove_dir_all(&self.dir) {
                    errln!("{}", Failure::new(self.dir.display(), error));
                }
            }
            Err(error) if !self.dir.exists() => errln!("{}", Failure::from(error)),
            Err(error) => {
                let dir = quoted_path(&self.dir);
                let again = format!(
                    "its parts are kept: `weft trace merge {dir} -o FILE.wtrace` makes a trace of them elsewhere"
                );
                errln!("{}", Failure::from(error).remedy(again));
            }
        }
    }
}

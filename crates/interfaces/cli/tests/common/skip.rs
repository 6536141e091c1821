//! Reports of skipped tests, in the one form that `scripts/test.py` counts.
//!
//! A test that cannot run, or only in part, calls a function of this module and returns. The line goes past the capture
//! of the test harness, which shows the output of failed tests only.

use std::fmt::Display;
use std::io::Write;

/// Skips the test for a reason that root on Debian 12 removes: rights, packages, devices, variables. CI fails then.
pub fn skip(reason: impl Display) {
    report("setup", &reason.to_string());
}

/// Skips the test for a property of the machine: its kernel, file systems or processors. CI accepts it.
pub fn skip_on_this_machine(reason: impl Display) {
    report("machine", &reason.to_string());
}

/// Returns whether this process is root. Otherwise skips the test: `what` needs root.
pub fn unless_root(what: &str) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let is_root = unsafe { libc::geteuid() == 0 };
    if !is_root {
        skip(format_args!("{what}: only root may; run the tests as root"));
    }
    is_root
}

/// Returns whether the MPI compiler is installed. Otherwise skips the test.
pub fn without(compiler: &str) -> bool {
    let is_missing = std::process::Command::new(compiler).arg("-show").output().is_err();
    if is_missing {
        skip(format_args!("{compiler} is not installed; run make deps"));
    }
    is_missing
}

/// Returns whether the variable `name` (WEFT_SKIP_…) is set, and skips the test in that case.
pub fn requested(name: &str) -> bool {
    let is_set = std::env::var_os(name).is_some_and(|set| !set.is_empty());
    if is_set {
        skip(format_args!("{name} is set"));
    }
    is_set
}

fn report(kind: &str, reason: &str) {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let program = program.unwrap_or_default();
    // Cargo adds a hash to the names of test programs.
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    // The harness names the thread of a test after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    // One write each, so that lines of concurrent tests do not mix. `eprintln!` would be captured.
    let _ = std::io::stderr().write_all(format!("weft: skipped: {program} {test}: {reason}\n").as_bytes());
    if let Some(path) = std::env::var_os("WEFT_TEST_SKIPPED") {
        let line = format!("{kind}\t{program}\t{test}\t{reason}\n");
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of skipped tests");
    }
}

//! Clusters for tests. Each has a state directory of its own, which is removed with the test.
#![allow(dead_code, missing_docs)] // Each test file uses a part.

pub mod accounts;
pub mod actors;
pub mod hosts;
pub mod isolate;
pub mod load;
pub mod mounts;
pub mod servers;
pub mod shared_cluster;
pub mod skip;

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};
use weft_core::random::SplitMix64;

/// The command under test.
pub const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// The `weft` command on the cluster of a file.
pub struct Weft {
    file: PathBuf,
}

impl Weft {
    /// Returns the cluster file.
    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// Builds `weft ARGS` on this cluster.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = undisturbed();
        command.arg("--cluster").arg(&self.file).args(args);
        // The time of the file counts.
        if std::fs::read_to_string(&self.file).is_ok_and(|text| text.contains("retry_for")) {
            command.env_remove("WEFT_RETRY_FOR");
        }
        command
    }

    /// Runs `weft ARGS`, which must succeed, and returns its standard output.
    #[track_caller]
    pub fn weft<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        succeeded(&mut self.command(args))
    }

    /// Runs `weft ARGS`, which must fail with `code`, and returns its standard error.
    #[track_caller]
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, args: impl IntoIterator<Item = S>) -> String {
        let output = self.command(args).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(code), "{}", shown(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Returns the `weft status --json` entry of each server, including servers that are down.
    pub fn status(&self) -> Vec<serde_json::Value> {
        let output = self.command(["status", "--json"]).output().expect("weft starts");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["servers"].as_array().expect("servers").iter().map(|server| server["status"].clone()).collect()
    }
}

/// An embedded cluster.
pub struct Embedded {
    dir: tempfile::TempDir,
    weft: Weft,
}

impl Deref for Embedded {
    type Target = Weft;

    fn deref(&self) -> &Weft {
        &self.weft
    }
}

impl Embedded {
    /// Creates a cluster that is not started yet.
    pub fn new() -> Self {
        built();
        let dir = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a directory");
        let weft = Weft { file: dir.path().join("state/cluster.toml") };
        Self { dir, weft }
    }

    /// Creates a cluster and starts its servers.
    pub fn started() -> Self {
        let cluster = Self::new();
        cluster.run(["true"]);
        cluster
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Returns a path for a local file.
    pub fn local(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Builds `weft run -- PROGRAM ARGS`.
    pub fn running<S: AsRef<OsStr>>(&self, program: impl IntoIterator<Item = S>) -> Command {
        let mut command = undisturbed();
        command.arg("run").arg("--state").arg(self.state()).arg("--").args(program);
        command
    }

    /// Runs `weft run -- PROGRAM ARGS`, which must succeed, and returns its standard output.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, program: impl IntoIterator<Item = S>) -> String {
        succeeded(&mut self.running(program))
    }

    /// Returns the process id of each server, `None` for servers that are down.
    pub fn pids(&self) -> Vec<Option<i32>> {
        self.status().iter().map(|status| status["pid"].as_i64().map(|pid| pid as i32)).collect()
    }
}

/// Builds `weft` without the environment of the test run.
pub fn undisturbed() -> Command {
    let mut command = isolated(WEFT);
    command.stdin(Stdio::null());
    command
}

/// Builds a program in the environment of this test (see [`isolate::isolate`]).
pub fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    isolate::isolate(&mut command);
    command
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let stopped = self.file().exists().then(|| self.command(["stop", "--kill"]).output());
        let left = servers::running(&self.file());
        for pid in &left {
            // SAFETY: a server of this cluster.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        if std::thread::panicking() {
            for log in std::fs::read_dir(self.state().join("log")).into_iter().flatten().flatten() {
                end_of(&log.path());
            }
        } else {
            assert!(left.is_empty(), "servers {left:?} would be left behind: {stopped:?}");
        }
    }
}

/// Prints the last lines of a log.
fn end_of(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    eprintln!("--- {}", log.display());
    lines[lines.len().saturating_sub(20)..].iter().for_each(|line| eprintln!("{line}"));
}

pub fn shown(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n--- output\n{}--- errors\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

#[track_caller]
pub fn succeeded(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds the preload library beside the command, because `cargo test -p weft-cli` alone does not build it.
pub fn built() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "weft-preload"]).current_dir(root());
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let target = Path::new(WEFT).parent().and_then(Path::parent).expect("a target directory");
        succeeded(cargo.arg("--target-dir").arg(target));
    });
}

/// Returns the root of the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the source tree")
}

/// Fails the test if `program` is not installed; `make deps` installs all programs.
#[track_caller]
pub fn needs(program: &str) {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = path.split(':').any(|dir| Path::new(dir).join(program).exists());
    assert!(found, "{program} is not installed: run `make deps`");
}

/// A small generator with a printed seed. WEFT_TEST_SEED repeats a failure.
pub struct Random(SplitMix64);

impl Random {
    pub fn seeded() -> (Self, u64) {
        let given = std::env::var("WEFT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            now.as_nanos() as u64
        });
        println!("seed {seed} (repeat with WEFT_TEST_SEED={seed})");
        (Self::new(seed), seed)
    }

    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns whether WEFT_SKIP_DARSHAN skips the tests of Darshan logs.
pub fn without_darshan() -> bool {
    skip::requested("WEFT_SKIP_DARSHAN")
}

/// Polls `check` until it returns a value, for `limit` at most.
#[track_caller]
pub fn until<T>(limit: Duration, condition: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {} s: {condition}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

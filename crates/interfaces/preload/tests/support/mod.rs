//! Runs real programs twice: on a plain directory without the library, and under the mount with it.
//!
//! [`library`] documents the origin of the library under test.
#![allow(dead_code)] // Each test program uses a part.

#[path = "../../../cli/tests/common/isolate.rs"]
pub mod isolate;
#[path = "../../../cli/tests/common/skip.rs"]
pub mod skip;

use isolate::isolate;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Mount prefix of the tests. No real directory has this name.
pub const MOUNT: &str = "/weft";

/// Returns the directory of cargo's output in the profile of this test program.
fn profile() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a path");
    own.ancestors().nth(2).expect("target/<profile>/deps/<test>").to_owned()
}

/// Builds an example of this package.
pub fn build_example(name: &str) -> PathBuf {
    build(&["--package", "weft-preload", "--example", name]);
    profile().join("examples").join(name)
}

/// Builds a package with cargo, into the target directory and profile of this test program.
fn build(what: &[&str]) {
    let profile = profile();
    let name = profile.file_name().expect("a profile").to_str().expect("plain text");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(what).arg("--profile");
    cargo.arg(if name == "debug" { "dev" } else { name });
    cargo.arg("--target-dir").arg(profile.parent().expect("target")).current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = cargo.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Returns the library under test. Cargo builds no `cdylib` for the tests of its package, so the first test requests
/// it.
pub fn library() -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| build(&["--package", "weft-preload"]));
    profile().join("libweft_preload.so")
}

/// Returns the command line tool, which starts and stops servers.
pub fn weft() -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| build(&["--package", "weft-cli"]));
    profile().join("weft")
}

/// Returns the path of a file beside this one.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Compiles a C program.
pub fn compile(name: &str, to: &Path) -> PathBuf {
    compile_with("cc", name, to)
}

/// Compiles with another compiler.
pub fn compile_with(compiler: &str, name: &str, to: &Path) -> PathBuf {
    compiled(compiler, name, to, &[], &[])
}

/// Compiles with additional options, and libraries after the source.
pub fn compile_linked(name: &str, to: &Path, options: &[&str], libraries: &[&str]) -> PathBuf {
    compiled("cc", name, to, options, libraries)
}

fn compiled(compiler: &str, name: &str, to: &Path, options: &[&str], libraries: &[&str]) -> PathBuf {
    let program = to.join(name.trim_end_matches(".c"));
    let built = Command::new(compiler)
        .args(["-g", "-O1", "-Wall", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(source("c").join(name))
        .args(libraries)
        .output()
        .expect("a C compiler (Debian: gcc)");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Four servers on this machine, which serve the mount in a test.
pub struct World(tempfile::TempDir);

impl World {
    pub fn new() -> Self {
        let state = tempfile::tempdir().expect("space for a test");
        // If this test is killed, its servers exit by themselves.
        let started = isolate(&mut Command::new(weft()))
            .args(["run", "--idle-exit", "60s", "--state"])
            .arg(state.path())
            .args(["--", "true"])
            .env("WEFT_PRELOAD", library())
            .output()
            .expect("weft runs");
        assert!(started.status.success(), "{}", text(&started));
        Self(state)
    }

    fn cluster_file(&self) -> PathBuf {
        self.0.path().join("cluster.toml")
    }

    /// Sets the environment of `command` so that it loads the library.
    pub fn serve<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        isolate(command)
            .env("LD_PRELOAD", library())
            .env("WEFT_TEST_SERVED", "1")
            .env("WEFT_CLUSTER", self.cluster_file())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let stopped = isolate(&mut Command::new(weft()))
            .args(["stop", "--kill"])
            .env("WEFT_CLUSTER", self.cluster_file())
            .output();
        if !std::thread::panicking() {
            let stopped = stopped.expect("weft runs");
            assert!(stopped.status.success(), "{}", text(&stopped));
        }
    }
}

/// Returns `weft run`, on the servers of a test or without any, to which the caller adds `--delegates` and a program.
pub fn delegated(world: Option<&World>) -> Command {
    let mut command = Command::new(weft());
    isolate(&mut command).arg("run").env("WEFT_PRELOAD", library());
    if let Some(world) = world {
        command.arg("--state").arg(world.0.path()).env("WEFT_TEST_SERVED", "1");
    }
    command
}

/// Runs a command to its end, at most two minutes; kills a hanging program and shows its output.
pub fn run(command: &mut Command) -> Output {
    let out = tempfile::tempfile().expect("space for output");
    let err = tempfile::tempfile().expect("space for output");
    command.stdin(Stdio::null());
    command.stdout(out.try_clone().expect("a descriptor")).stderr(err.try_clone().expect("a descriptor"));
    let mut child = command.spawn().expect("the program starts");
    let end = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if Instant::now() > end {
            child.kill().expect("our own child");
            break child.wait().expect("our own child");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |mut file: std::fs::File| {
        use std::io::{Read, Seek};
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("what was written");
        bytes
    };
    Output { status, stdout: read(out), stderr: read(err) }
}

pub fn text(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs a C program on both sides; both must succeed.
pub fn both_succeed(world: &World, name: &str, env: &[(&str, &str)]) {
    let room = tempfile::tempdir().expect("space for a test");
    let program = compile(name, room.path());
    let plain_dir = room.path().join("plain");
    std::fs::create_dir(&plain_dir).expect("an empty directory");
    let plain_dir = plain_dir.canonicalize().expect("the directory exists");
    let plain = run(Command::new(&program).arg(&plain_dir));
    assert!(plain.status.success(), "without the library: {}", text(&plain));
    let served_dir = fresh_directory(world, name);
    let served = run(world.serve(&mut Command::new(&program)).arg(served_dir).envs(env.iter().copied()));
    assert!(served.status.success(), "with the library: {}", text(&served));
}

/// Creates a directory on the mount.
pub fn fresh_directory(world: &World, name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let dir = format!("{MOUNT}/{name}.{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let made = run(world.serve(&mut Command::new("mkdir")).arg(&dir));
    assert!(made.status.success(), "{}", text(&made));
    dir
}

/// Runs a script on both sides: the outputs must be equal except for the directory's name, and not empty.
pub fn same_output(world: &World, shell: &str, script: &str) {
    let room = tempfile::tempdir().expect("space for a test");
    let plain_dir = room.path().canonicalize().expect("the directory exists").join("plain");
    std::fs::create_dir(&plain_dir).expect("an empty directory");
    let path = source("scripts").join(script);
    let plain = run(Command::new(shell).arg(&path).arg(&plain_dir));
    assert!(plain.status.success(), "without the library: {}", text(&plain));
    let served_dir = fresh_directory(world, script);
    let served = run(world.serve(&mut Command::new(shell)).arg(&path).arg(&served_dir));
    assert!(served.status.success(), "with the library: {}", text(&served));
    let plain =
        String::from_utf8_lossy(&plain.stdout).replace(plain_dir.to_str().expect("plain text"), &served_dir);
    assert!(!plain.is_empty(), "a script without output proves nothing");
    assert_eq!(plain, String::from_utf8_lossy(&served.stdout), "plain on the left, served on the right");
}

//! Random file calls, valid and invalid ones, on a local directory and on Weft: results, errors, positions, attributes and
//! bytes must be equal. The program is `crates/checks/fuzz/posix`; `docs/reference/fuzzing.md` describes it.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, shown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls of each test unless `WEFT_TEST_POSIX_OPS` says otherwise.
const OPERATIONS: u64 = 15_000;

/// Compiles the program into `dir`.
fn program(dir: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../checks/fuzz/posix");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .expect("the program's sources")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    let program = dir.join("posix-fuzz");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(files)
        .output()
        .expect("a C compiler (Debian: gcc)");
    assert!(built.status.success(), "{}", shown(&built));
    program
}

/// A directory in memory, where the kernel is fastest, or else the temporary directory.
fn local(cluster: &Embedded, name: &str) -> (PathBuf, Option<tempfile::TempDir>) {
    match tempfile::Builder::new().prefix("weft-test-").tempdir_in("/dev/shm") {
        Ok(dir) => (dir.path().to_owned(), Some(dir)),
        Err(_) => (cluster.local(name), None),
    }
}

/// Adds seed and number of calls. A failure prints both, and the calls that are needed to repeat it.
fn settings(command: &mut Command) -> &mut Command {
    let operations =
        std::env::var("WEFT_TEST_POSIX_OPS").map_or(OPERATIONS, |text| text.parse().expect("a number"));
    let seed = match std::env::var("WEFT_TEST_POSIX_SEED") {
        Ok(text) if text == "fresh" => u64::from(std::process::id()) ^ seconds(),
        Ok(text) => text.parse().expect("a number, or `fresh`"),
        Err(_) => 1,
    };
    command.args(["--seed", &seed.to_string(), "--ops", &operations.to_string()])
}

fn seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() << 16
}

#[track_caller]
fn equal(command: &mut Command) {
    let output = settings(command).output().expect("started");
    assert!(output.status.success(), "{}", shown(&output));
}

#[test]
fn under_weft_run_calls_do_what_the_kernel_does() {
    let cluster = Embedded::started();
    let program = program(&cluster.local(""));
    let (local, _kept) = local(&cluster, "kernel");
    let mut command = cluster.running([&program]);
    command.arg(local).arg("/weft/posix");
    // Without `/dev/fuse`, such mappings are refused.
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        command.args(["--mask", "shared-maps"]);
    }
    equal(&mut command);
}

#[test]
fn on_a_mount_calls_do_what_the_kernel_does() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let program = program(&cluster.local(""));
    let mount = Mounted::new(&cluster, "mount");
    let (local, _kept) = local(&cluster, "kernel");
    equal(Command::new(program).arg(local).arg(mount.at("posix")).arg("--mount"));
}

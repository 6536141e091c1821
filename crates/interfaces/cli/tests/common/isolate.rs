//! The environment of programs that a test starts: without the user's settings and without files of other tests.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

thread_local! {
    /// Home directory of the test that runs on this thread. The test harness joins the thread of each test, which
    /// removes the directory.
    static HOME: tempfile::TempDir =
        tempfile::Builder::new().prefix("weft-home-").tempdir().expect("a home directory");
}

/// Gives `command` the home, XDG and runtime directories of this test, and removes Weft's variables and preloaded
/// libraries. These directories determine the location of an embedded cluster (`weft run` without `--state`).
pub fn isolate(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"WEFT_")) {
        command.env_remove(name);
    }
    // Tests of servers that do not return look at the error, not at the pause.
    command.env("WEFT_RETRY_FOR", "5s");
    if let Some(darshan) = darshan() {
        command.env("WEFT_DARSHAN_LIB", darshan);
    }
    HOME.with(|home| {
        let home = home.path();
        command.env_remove("LD_PRELOAD").env_remove("SLURM_JOB_ID").env("HOME", home);
        for (name, dir) in [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
            ("XDG_CACHE_HOME", ".cache"),
        ] {
            command.env(name, home.join(dir));
        }
        command.env("XDG_RUNTIME_DIR", runtime_dir(home))
    })
}

/// Creates the directory for sockets below `home`, which only its owner may enter.
fn runtime_dir(home: &Path) -> PathBuf {
    let dir = home.join("run");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).expect("a runtime directory");
    dir
}

/// Returns the directory where `scripts/deps.sh` installed Darshan's library. It is below the home of the user, which
/// tests do not see otherwise.
fn darshan() -> Option<OsString> {
    if let Some(named) = std::env::var_os("WEFT_DARSHAN_LIB").filter(|named| !named.is_empty()) {
        return Some(named);
    }
    let dir = data()?.join("weft/darshan");
    dir.is_dir().then(|| dir.into_os_string())
}

/// Returns the directory where `scripts/deps.sh` installed MPICH with the standard ABI.
pub fn mpich() -> Option<PathBuf> {
    // `scripts/isolated.py` changes the home directory.
    let named = std::env::var_os("WEFT_TEST_MPICH").map(PathBuf::from);
    named.or_else(|| Some(data()?.join("weft/mpich"))).filter(|dir| dir.is_dir())
}

/// Returns the user's directory for data.
fn data() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))
}

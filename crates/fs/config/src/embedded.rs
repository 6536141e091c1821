//! The embedded cluster: four servers on this machine, which `weft run` creates when no other cluster is configured.

use crate::error::ConfigError;
use crate::find::variable;
use crate::key::{ClusterKey, Key};
use crate::model::Cluster;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use weft_core::Nanos;

/// Maximum length of a Unix socket's path in bytes, without the terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// First line of an embedded cluster's file.
const MARK: &str = "# Written by `weft run`";

/// Name of the file in the state directory that marks a new cluster. It exists until all servers have run once; until
/// then they may format blank directories.
pub const FORMING: &str = "forming";

/// Returns the path of the marker file of a new embedded cluster.
pub fn forming(state: &Path) -> PathBuf {
    state.join(FORMING)
}

/// Returns the state directory of the embedded cluster that has this file.
pub(crate) fn state_of(file: &Path, text: &str) -> Option<PathBuf> {
    if !text.starts_with(MARK) {
        return None;
    }
    std::path::absolute(file).ok()?.parent().map(Path::to_owned)
}

/// Options of an embedded cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbeddedOptions {
    /// State directory: an absolute UTF-8 path without `..`.
    pub state: PathBuf,
    /// Class of each target; each server has one target.
    pub classes: Vec<String>,
    /// Time without connections after which servers exit.
    pub idle_exit: Nanos,
}

impl EmbeddedOptions {
    /// Returns options with two `hdd` and two `ssd` targets under `state`, whose servers exit after ten idle minutes.
    pub fn new(state: PathBuf) -> Self {
        let classes = ["hdd", "hdd", "ssd", "ssd"].map(str::to_owned).to_vec();
        Self { state, classes, idle_exit: Nanos::from_s(600) }
    }
}

/// Returns the state directory of the embedded cluster: `WEFT_STATE`, else `$XDG_STATE_HOME/weft/default`, else
/// `~/.local/state/weft/default`. `None` without a home directory.
pub fn default_state_dir() -> Option<PathBuf> {
    if let Some(state) = variable("WEFT_STATE") {
        return Some(state.into());
    }
    Some(user_state_dir()?.join("default"))
}

/// Returns the directory of the user's state: `$XDG_STATE_HOME/weft`, else `~/.local/state/weft`. `None` without a home
/// directory.
pub(crate) fn user_state_dir() -> Option<PathBuf> {
    let base = variable("XDG_STATE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/state")))?;
    Some(base.join("weft"))
}

/// Returns the directory of the sockets. It lies in the state directory, or for a long path in a private directory
/// under `/tmp`, because a socket's path has at most 107 bytes.
fn socket_dir(state: &Path) -> PathBuf {
    let inside = state.join("run");
    if inside.as_os_str().len() + "/s00.sock".len() <= SOCKET_PATH_MAX {
        return inside;
    }
    // The name is a hash of the state directory, so that the same state directory leads to the same sockets.
    let sum = state.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    PathBuf::from(format!("/tmp/weft-{uid}-{sum:016x}"))
}

/// Returns the cluster file of an embedded cluster.
pub fn embedded_toml(options: &EmbeddedOptions) -> String {
    let state = options.state.display();
    let run = socket_dir(&options.state);
    let mut out = format!(
        "{MARK}: an embedded cluster with {} servers on this machine.\n# `weft run --fresh` deletes and recreates \
         it.\n\n[cluster]\nname = \"embedded\"\nkey_file = {}\nidle_exit = {}\n",
        options.classes.len(),
        quoted(&format!("{state}/cluster.key")),
        quoted(&crate::format_duration(options.idle_exit)),
    );
    for (index, class) in options.classes.iter().enumerate() {
        let address = format!("unix:{}/s{index}.sock", run.display());
        let _ = write!(
            out,
            "\n[[server]]\nname = \"s{index}\"\naddress = {}\nlog = {}\n",
            quoted(&address),
            quoted(&format!("{state}/log/s{index}.log")),
        ); // writing to a String succeeds
        if index == 0 {
            let _ = write!(out, "\n[server.metadata]\npath = {}\n", quoted(&format!("{state}/metadata")));
        }
        let _ = write!(
            out,
            "\n[[server.target]]\nid = {index}\nclass = {}\npath = {}\n",
            quoted(class),
            quoted(&format!("{state}/targets/{class}{index}")),
        );
    }
    out
}

/// Quotes a TOML string. Rust's own quoting differs for unprintable characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            c if c.is_control() => write!(out, "\\u{:04X}", c as u32),
            c => write!(out, "{c}"),
        }; // writing to a String succeeds
    }
    out.push('"');
    out
}

/// Creates missing directories, the key and the cluster file of an embedded cluster, and loads it.
///
/// # Errors
/// If a directory or file cannot be created, or an existing cluster file is invalid.
pub fn write_embedded(options: &EmbeddedOptions) -> Result<Cluster, ConfigError> {
    let file = options.state.join("cluster.toml");
    let failed = |what: &Path, error: &dyn std::fmt::Display| {
        let remedy = "choose another place with --state DIR or WEFT_STATE";
        ConfigError::whole(what, format!("cannot be created: {error}"), remedy)
    };
    if options.state.to_str().is_none() {
        return Err(failed(&options.state, &"its name is not UTF-8, which a cluster file requires"));
    }
    if options.state.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(failed(&options.state, &"it contains .., which a cluster file does not allow"));
    }
    let make = |dir: &Path| {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| failed(dir, &error))
    };
    make(&options.state)?;
    crate::check_private_dir(&options.state)?;
    let key_file = options.state.join("cluster.key");
    if !key_file.exists() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let key = ClusterKey::make(now.as_secs()).map_err(|error| failed(&key_file, &error))?;
        Key::Cluster(key).write_new(&key_file).map_err(|error| failed(&key_file, &error))?;
    }
    if !file.exists() {
        let mark = forming(&options.state);
        std::fs::write(&mark, "").map_err(|error| failed(&mark, &error))?;
        // Rename a complete file, so that a reader never sees half of it.
        let draft = options.state.join("cluster.toml.new");
        std::fs::write(&draft, embedded_toml(options)).map_err(|error| failed(&draft, &error))?;
        std::fs::rename(&draft, &file).map_err(|error| failed(&file, &error))?;
    }
    let cluster = Cluster::load(&file)?;
    for server in &cluster.servers {
        let logs = server.log.iter().filter_map(|log| log.parent());
        let sockets = server.addresses.iter().filter_map(|address| match address {
            weft_env::Address::Unix(path) => path.parent(),
            weft_env::Address::Tcp(..) => None,
        });
        let metadata = server.metadata.iter().map(|metadata| metadata.path.as_path());
        let targets = server.targets.iter().map(|target| target.path.as_path());
        logs.chain(sockets).chain(metadata).chain(targets).try_for_each(make)?;
    }
    private(&socket_dir(&options.state), &failed)?;
    Ok(cluster)
}

/// Checks that a socket directory belongs to this user and is private: under `/tmp` another user may have created it.
fn private(
    dir: &Path,
    failed: &dyn Fn(&Path, &dyn std::fmt::Display) -> ConfigError,
) -> Result<(), ConfigError> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(dir).map_err(|error| failed(dir, &error))?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        return Err(failed(dir, &"it exists, but not as a directory that only this user can enter"));
    }
    Ok(())
}

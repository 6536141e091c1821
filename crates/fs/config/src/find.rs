//! Default locations of the cluster file and the key.

use crate::embedded::default_state_dir;
use crate::error::ConfigError;
use crate::key::{Key, KeyError, read_key};
use crate::model::Cluster;
use crate::scheduled;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

impl Cluster {
    /// Loads the cluster file from its default locations: `WEFT_CLUSTER`, else that of the batch job, else
    /// `~/.config/weft/cluster.toml`, else `/etc/weft/cluster.toml`, else the file of the embedded cluster, if `weft run`
    /// has created one.
    ///
    /// # Errors
    /// If there is none, or it is invalid. A file that `WEFT_CLUSTER` names must exist.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::load(&Self::find()?)
    }

    /// Returns the file that [`Cluster::from_env`] loads.
    ///
    /// # Errors
    /// If there is none.
    pub fn find() -> Result<PathBuf, ConfigError> {
        // A file that this user may not see is tried, so that the error says so.
        let is_there = |file: &PathBuf| file.try_exists().unwrap_or(true);
        let embedded = || default_state_dir().map(|state| state.join("cluster.toml")).filter(is_there);
        Self::configured().or_else(embedded).ok_or_else(|| {
            ConfigError::whole(
                Path::new("cluster.toml"),
                "no cluster found: neither WEFT_CLUSTER, ~/.config/weft/cluster.toml, /etc/weft/cluster.toml nor an \
                 embedded cluster",
                "start one on this machine with `weft run -- PROGRAM`, or name a cluster file with WEFT_CLUSTER",
            )
        })
    }

    /// Returns the configured cluster file, ignoring an embedded cluster.
    pub fn configured() -> Option<PathBuf> {
        if let Some(file) = variable("WEFT_CLUSTER") {
            return Some(file.into());
        }
        if let Some(file) = scheduled::cluster_file() {
            return Some(file);
        }
        let places = [user_file("cluster.toml"), Some("/etc/weft/cluster.toml".into())];
        places.into_iter().flatten().find(|file| file.exists())
    }

    /// Returns the key that authenticates this process on the network, or why there is none although no server needs one.
    /// The first of these files that exists is read:
    ///
    /// 1. the file that `WEFT_KEY` names
    /// 2. `~/.config/weft/key`, except in a batch job with a cluster of its own, which that key is not for
    /// 3. the cluster key
    /// 4. `host.key` beside the cluster file
    ///
    /// # Errors
    /// If a key is needed and cannot be used.
    pub fn client_key(&self) -> Result<Result<Key, KeyError>, KeyError> {
        if let Some(file) = variable("WEFT_KEY") {
            return read_key(Path::new(&file)).map(Ok);
        }
        if let Some(file) = user_file("key").filter(|file| file.exists() && !scheduled::is_of_job(&self.file))
        {
            return read_key(&file).map(Ok);
        }
        let host_key = self.file.with_file_name("host.key");
        let is_host_key = !self.key_file.exists() && host_key.exists();
        match read_key(if is_host_key { &host_key } else { &self.key_file }) {
            Err(error) if self.needs_key() => Err(error),
            read => Ok(read),
        }
    }
}

fn user_file(name: &str) -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))?;
    Some(config.join("weft").join(name))
}

/// Returns an environment variable; an empty one counts as unset.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

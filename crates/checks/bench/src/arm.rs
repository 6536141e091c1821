//! The arms of a comparison: each does the same work, in turn.

use crate::context::{ServerLoad, connect};
use crate::work_dir::{WorkDir, fresh_in_weft, remove_in_weft};
use std::io;
use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_core::Integrity;
use weft_env::real::RealEnv;

/// One arm of a comparison.
pub enum Arm {
    /// A directory that is accessed with system calls.
    Directory(WorkDir),
    /// A Weft cluster.
    Cluster {
        /// The cluster file.
        file: PathBuf,
        /// Client for setup and cleanup, outside of the measurement.
        client: Client<RealEnv>,
        /// Setting of checksums at rest in this arm's directories; `None` uses the cluster's default.
        integrity: Option<Integrity>,
    },
}

impl Arm {
    /// Creates an arm on the cluster of `file`.
    ///
    /// # Errors
    /// Fails if the cluster file is invalid.
    pub fn cluster(file: &Path) -> io::Result<Self> {
        let client = connect(file, "auto").map_err(io::Error::other)?;
        Ok(Self::Cluster { file: file.to_owned(), client, integrity: None })
    }

    /// Creates an arm on the cluster of `file`, in directories with the given setting of checksums at rest.
    ///
    /// # Errors
    /// Fails if the cluster file is invalid.
    pub fn with_integrity(file: &Path, integrity: Integrity) -> io::Result<Self> {
        let client = connect(file, "auto").map_err(io::Error::other)?;
        Ok(Self::Cluster { file: file.to_owned(), client, integrity: Some(integrity) })
    }

    /// Creates a fresh directory. Returns its path, or its name below the root of a cluster.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn fresh_dir(&self) -> io::Result<String> {
        match self {
            Self::Directory(work_dir) => work_dir.fresh_dir(),
            Self::Cluster { client, integrity, .. } => fresh_in_weft(client, *integrity),
        }
    }

    /// Removes a directory that [`fresh_dir`](Self::fresh_dir) created, with its contents.
    ///
    /// # Errors
    /// Fails if a local directory cannot be removed. Errors of a cluster are ignored.
    pub fn remove(&self, fresh: &str) -> io::Result<()> {
        match self {
            Self::Directory(_) => std::fs::remove_dir_all(fresh),
            Self::Cluster { client, .. } => {
                remove_in_weft(client, fresh);
                Ok(())
            }
        }
    }

    /// The client of a cluster; `None` for a local directory.
    pub fn client(&self) -> Option<&Client<RealEnv>> {
        match self {
            Self::Directory(_) => None,
            Self::Cluster { client, .. } => Some(client),
        }
    }

    /// Name of the cluster, or the setting of checksums at rest that distinguishes arms on one cluster.
    pub fn name(&self) -> String {
        if let Self::Cluster { integrity: Some(integrity), .. } = self {
            return integrity.word().to_owned();
        }
        self.client().map_or_else(String::new, |client| client.map().name.clone())
    }

    /// Runs `work` and returns its result with the load that it caused on the servers.
    ///
    /// # Errors
    /// Returns the error of `work`.
    pub fn measured<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, ServerLoad)> {
        let Some(client) = self.client() else { return Ok((work()?, ServerLoad::default())) };
        let before = ServerLoad::snapshot(client);
        let done = work()?;
        Ok((done, before.load_since(client)))
    }
}

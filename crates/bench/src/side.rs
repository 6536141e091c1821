//! Who takes turns: what is measured, what stands beside it, and what all others are compared with.

use crate::context::{ServerLoad, connect};
use crate::ground::{Plain, fresh_in_weft, remove_in_weft};
use std::io;
use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_core::Integrity;
use weft_env::real::RealEnv;

/// One of those that do the same work in turns.
pub enum Side {
    /// A plain directory.
    Plain(Plain),
    /// A cluster.
    Cluster {
        /// Its file.
        file: PathBuf,
        /// For what is not measured.
        client: Client<RealEnv>,
        /// Setting of checksums at rest of its directories; `None` leaves it to the cluster.
        integrity: Option<Integrity>,
    },
}

impl Side {
    /// The cluster of `file`.
    ///
    /// # Errors
    /// A bad cluster file.
    pub fn cluster(file: &Path) -> io::Result<Self> {
        let client = connect(file, "auto").map_err(io::Error::other)?;
        Ok(Self::Cluster { file: file.to_owned(), client, integrity: None })
    }

    /// The cluster of `file`, in directories whose files have or lack checksums at rest.
    ///
    /// # Errors
    /// A bad cluster file.
    pub fn with_integrity(file: &Path, integrity: Integrity) -> io::Result<Self> {
        let client = connect(file, "auto").map_err(io::Error::other)?;
        Ok(Self::Cluster { file: file.to_owned(), client, integrity: Some(integrity) })
    }

    /// A new directory of it; its path, or its name below the root of a cluster.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn fresh(&self) -> io::Result<String> {
        match self {
            Self::Plain(plain) => plain.fresh(),
            Self::Cluster { client, integrity, .. } => fresh_in_weft(client, *integrity),
        }
    }

    /// Removes what [`fresh`](Self::fresh) has made, and all that it holds.
    ///
    /// # Errors
    /// Of the plain directory.
    pub fn remove(&self, fresh: &str) -> io::Result<()> {
        match self {
            Self::Plain(_) => std::fs::remove_dir_all(fresh),
            Self::Cluster { client, .. } => {
                remove_in_weft(client, fresh);
                Ok(())
            }
        }
    }

    /// Of a cluster.
    pub fn client(&self) -> Option<&Client<RealEnv>> {
        match self {
            Self::Plain(_) => None,
            Self::Cluster { client, .. } => Some(client),
        }
    }

    /// A cluster's own name, or the setting of checksums at rest by which sides on one cluster differ.
    pub fn name(&self) -> &str {
        if let Self::Cluster { integrity: Some(integrity), .. } = self {
            return integrity.word();
        }
        self.client().map_or("", |client| &client.map().name)
    }

    /// Does `work`: what came of it, and what its servers did meanwhile.
    ///
    /// # Errors
    /// Those of the work.
    pub fn observed<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, ServerLoad)> {
        let Some(client) = self.client() else { return Ok((work()?, ServerLoad::default())) };
        let before = ServerLoad::before(client);
        let done = work()?;
        Ok((done, before.until_now(client)))
    }
}

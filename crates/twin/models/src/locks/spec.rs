//! Parameters of locking file systems.

use serde::{Deserialize, Serialize};

/// Lock protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Extent locks of stripe objects, Lustre-like.
    Extents,
    /// Byte-range tokens of files, GPFS-like.
    Tokens,
}

/// Parameters of a locking file system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSpec {
    /// Lock protocol.
    pub kind: LockKind,
    /// Latency of a message in one direction, in microseconds.
    pub latency_us: f64,
    /// Microseconds that a server spends on a request, one after another.
    pub server_us: f64,
    /// Number of lock or token servers. An object belongs to one of them by its number.
    pub servers: u32,
    /// Granularity of locks in KiB.
    pub block_kib: u64,
    /// Fixed cost of a write-back in microseconds.
    pub flush_us: f64,
    /// Speed of a write-back in 10^6 bytes per second.
    pub flush_mb_s: f64,
    /// Extents: number of conflicting locks from which on an object is contended, and grants grow less.
    pub contended: u32,
    /// Extents: growth of grants on a contended object in MiB.
    pub contended_growth_mib: u64,
    /// Extents: milliseconds for which a client that lost a lock is expected to want it back. Meanwhile, other clients'
    /// grants do not extend over the place that it used.
    pub remember_ms: f64,
}

/// Error of a lock model's parameters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// No lock model has this name.
    #[error("there is no locking file system named {name:?}: use one of {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
}

/// Returns the names of the built-in lock models, sorted.
pub fn names() -> Vec<&'static str> {
    vec!["gpfs", "lustre"]
}

impl LockSpec {
    /// Returns a built-in lock model.
    ///
    /// | Name | Parameters | Source |
    /// | --- | --- | --- |
    /// | `lustre` | extents, 4 KiB, 16 servers (one for each of 16 stripe objects) | stripe count of IODC |
    /// | `lustre` | contended at 32 locks, then growth by 32 MiB | `ldlm_extent.c` |
    /// | `gpfs` | tokens, 512 KiB, one token server | page of IODC |
    ///
    /// For both, a message takes 50 us and a server 10 us. Write-back takes 500 us and then runs at 100 MB/s, as on a
    /// disk server of that time. Override what you know better.
    ///
    /// # Errors
    /// Fails if there is no model of this name. The message lists the names.
    pub fn by_name(name: &str) -> Result<Self, LockError> {
        let (kind, servers, block_kib) = match name {
            "lustre" => (LockKind::Extents, 16, 4),
            "gpfs" => (LockKind::Tokens, 1, 512),
            _ => return Err(LockError::Unknown { name: name.to_owned() }),
        };
        Ok(Self {
            kind,
            latency_us: 50.0,
            server_us: 10.0,
            servers,
            block_kib,
            flush_us: 500.0,
            flush_mb_s: 100.0,
            contended: 32,
            contended_growth_mib: 32,
            remember_ms: 100.0,
        })
    }
}

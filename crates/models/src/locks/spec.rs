//! The figures of file systems that lock.

use serde::{Deserialize, Serialize};

/// How a file system locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Extent locks of stripe objects, Lustre-like.
    Extents,
    /// Byte-range tokens of files, GPFS-like.
    Tokens,
}

/// The figures of a file system that locks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSpec {
    /// How it locks.
    pub kind: LockKind,
    /// A message one way, microseconds.
    pub latency_us: f64,
    /// What a server spends on a request, one after another, microseconds.
    pub server_us: f64,
    /// Lock or token servers; an object belongs to the one of its number.
    pub servers: u32,
    /// What locks are rounded to, KiB.
    pub block_kib: u64,
    /// Writing back begins with this, microseconds.
    pub flush_us: f64,
    /// Writing back, 10^6 bytes per second.
    pub flush_mb_s: f64,
    /// Extents: with so many conflicting locks on an object a grant grows less.
    pub contended: u32,
    /// Extents: by so much then, MiB.
    pub contended_growth_mib: u64,
    /// Extents: a client that has lost a lock is taken to want it back for so long, milliseconds; meanwhile locks of
    /// others do not grow over where it worked.
    pub remember_ms: f64,
}

/// Why a lock model cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// No lock model has this name.
    #[error("there is no locking file system named {name:?}: use one of {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
}

/// The names of the lock models that come with Weft, sorted.
pub fn names() -> Vec<&'static str> {
    vec!["gpfs", "lustre"]
}

impl LockSpec {
    /// `lustre`: extent locks in pages of 4 KiB, one lock server for each of 16 stripe objects (IODC's stripe count), 32
    /// conflicting locks make an object a contended one and 32 MiB is what a lock grows by then, as in Lustre's sources
    /// (`ldlm_extent.c`). `gpfs`: tokens in blocks of 512 KiB (IODC's page), one token server.
    ///
    /// Messages take 50 us and a server 10 us for each; what is written back goes at 100 MB/s after 500 us, as a disk
    /// server of their time had it. Change what is known better.
    ///
    /// # Errors
    /// When there is none of this name; the message lists those that there are.
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

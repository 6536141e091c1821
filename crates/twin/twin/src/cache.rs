//! Description of the read and write cache on an SSD beside a target's disk.

use crate::device;
use crate::ibridge::{IbridgeSpec, LogFields, text};
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::ServiceCurve;
use weft_core::{ByteLen, CacheShare, Nanos};
use weft_models::Profile;
use weft_server::{CacheConfig, LogConfig};
use weft_store::fragments::LogSpec;
use weft_workload::Size;

/// Read and write cache on an SSD beside each disk of a group of targets. With iBridge on, both use its SSD, and the
/// fields from `profile` on have no effect.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSpec {
    /// `off`, `read`, `write-through` or `write-back`.
    #[serde(with = "text")]
    pub mode: CacheMode,
    /// Order in which blocks leave: `s3-fifo` or `lru`.
    #[serde(with = "text")]
    pub policy: EvictionPolicy,
    /// Share of the SSD if iBridge uses it too: a percentage such as `50 %`, or `adaptive`.
    #[serde(with = "text")]
    pub share: CacheShare,
    /// Maximum length that is read ahead; 0 for none.
    pub prefetch: Size,
    /// Profile of the SSD.
    pub profile: String,
    /// Capacity of the SSD for data.
    pub size: Size,
    /// Milliseconds without a request to the disk after which dirty bytes are written back.
    pub idle_ms: u64,
    /// Dirty bytes above which write-back runs even while the disk is busy. Default: three quarters of `size`.
    pub dirty_high: Option<Size>,
    /// Dirty bytes at which that write-back stops. Default: half of `size`.
    pub dirty_low: Option<Size>,
    /// Bytes of log for each entry that the log has memory for.
    pub entry_size: Size,
}

impl Default for CacheSpec {
    fn default() -> Self {
        Self {
            mode: CacheMode::WriteBack,
            policy: EvictionPolicy::default(),
            share: CacheShare::default(),
            prefetch: Size(0),
            profile: device::SIMPLE.to_owned(),
            size: Size::gib(10),
            idle_ms: 10,
            dirty_high: None,
            dirty_low: None,
            entry_size: Size(LogSpec::ENTRY_LEN.0),
        }
    }
}

impl CacheSpec {
    /// Whether any request can go to the cache.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != CacheMode::Off
    }

    pub(crate) fn check(&self, at: &str, own: &[Profile], seed: u64) -> Result<(), SpecError> {
        self.log().check(at, own, seed)
    }

    fn log(&self) -> LogFields<'_> {
        LogFields {
            profile: &self.profile,
            size: self.size,
            dirty_high: self.dirty_high,
            dirty_low: self.dirty_low,
            entry_size: self.entry_size,
        }
    }

    /// Returns the server's configuration for a target whose disk has the given curve. The log is at `path`, unless the
    /// cache uses the log of `ibridge`.
    pub(crate) fn config(
        &self,
        path: PathBuf,
        curve: ServiceCurve,
        ibridge: Option<&IbridgeSpec>,
    ) -> CacheConfig {
        let base = match ibridge {
            Some(_) => CacheConfig { share: self.share, ..CacheConfig::shared(self.mode) },
            None => {
                let alone = CacheConfig::new(self.mode, path, ByteLen(self.size.0), curve);
                let (dirty_high, dirty_low) = self.log().marks();
                let log = alone.log.map(|log| LogConfig {
                    idle: Nanos::from_ms(self.idle_ms),
                    dirty_high,
                    dirty_low,
                    entry_len: ByteLen(self.entry_size.0),
                    ..log
                });
                CacheConfig { log, ..alone }
            }
        };
        CacheConfig { eviction: self.policy, prefetch: ByteLen(self.prefetch.0), ..base }
    }
}

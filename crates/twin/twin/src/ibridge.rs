//! Description of the SSD beside a target's disk.

use crate::device;
use crate::spec::{SpecError, positive};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use weft_core::ibridge::{Policy, ServiceCurve, Thresholds, Weight};
use weft_core::{ByteLen, Nanos};
use weft_models::Profile;
use weft_server::IbridgeConfig;
use weft_store::fragments::LogSpec;
use weft_workload::Size;

/// An SSD beside each disk of a group of targets, and the requests that go to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IbridgeSpec {
    /// Profile of the SSD.
    pub profile: String,
    /// Capacity of the SSD for data.
    pub size: Size,
    /// Admission policy: `off` (no SSD), `ibridge`, `threshold`, `static(1:2)` or `detour`.
    #[serde(with = "text")]
    pub policy: Policy,
    /// Length in bytes below which a piece of a larger request counts as a fragment.
    pub fragments_below: Size,
    /// Length in bytes below which a request of one piece counts as small.
    pub random_below: Size,
    /// Weight of a new request in the moving average of the disk's service time.
    #[serde(with = "text")]
    pub weight: Weight,
    /// Interval in milliseconds at which servers exchange their average service times.
    pub exchange_ms: u64,
    /// Milliseconds after which another server's report expires.
    pub stale_ms: u64,
    /// Milliseconds without a request to the disk after which dirty bytes are written back.
    pub idle_ms: u64,
    /// Dirty bytes above which write-back runs even while the disk is busy. Default: three quarters of `size`.
    pub dirty_high: Option<Size>,
    /// Dirty bytes at which that write-back stops. Default: half of `size`.
    pub dirty_low: Option<Size>,
    /// Whether reads that would have benefited from the SSD are copied to it while it is idle.
    pub preload: bool,
    /// Bytes of log for each entry that the log has memory for.
    pub entry_size: Size,
}

impl Default for IbridgeSpec {
    fn default() -> Self {
        let Thresholds { fragments_below, random_below } = Thresholds::default();
        Self {
            profile: device::SIMPLE.to_owned(),
            size: Size::gib(10),
            policy: Policy::Ibridge,
            fragments_below: Size(fragments_below.0),
            random_below: Size(random_below.0),
            weight: Weight::default(),
            exchange_ms: 1000,
            stale_ms: 5000,
            idle_ms: 10,
            dirty_high: None,
            dirty_low: None,
            preload: true,
            entry_size: Size(LogSpec::ENTRY_LEN.0),
        }
    }
}

/// Serializes values as text through `Display` and `FromStr`.
pub(crate) mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Fields that describe the log on an SSD, of iBridge or of a cache.
pub(crate) struct LogFields<'a> {
    pub profile: &'a str,
    pub size: Size,
    pub dirty_high: Option<Size>,
    pub dirty_low: Option<Size>,
    pub entry_size: Size,
}

impl LogFields<'_> {
    pub fn check(&self, at: &str, own: &[Profile], seed: u64) -> Result<(), SpecError> {
        device::disk(own, self.profile, seed)
            .map_err(|error| SpecError::new(format!("{at}.profile"), error.why))?;
        positive(format!("{at}.size"), self.size.0)?;
        positive(format!("{at}.entry_size"), self.entry_size.0)?;
        let (high, low) = self.marks();
        if low > high || high.0 > self.size.0 {
            let why = "dirty_low must not exceed dirty_high, and dirty_high must not exceed size";
            return Err(SpecError::new(format!("{at}.dirty_high"), why));
        }
        Ok(())
    }

    /// Returns the dirty bytes above which write-back runs while the disk is busy, and those at which it stops.
    pub fn marks(&self) -> (ByteLen, ByteLen) {
        let high = self.dirty_high.map_or(self.size.0 / 4 * 3, |size| size.0);
        (ByteLen(high), ByteLen(self.dirty_low.map_or(high.min(self.size.0 / 2), |size| size.0)))
    }
}

impl IbridgeSpec {
    /// Whether any request can go to the SSD.
    pub(crate) fn is_on(&self) -> bool {
        self.policy != Policy::Off
    }

    pub(crate) fn check(&self, at: &str, own: &[Profile], seed: u64) -> Result<(), SpecError> {
        self.log().check(at, own, seed)?;
        positive(format!("{at}.exchange_ms"), self.exchange_ms)?;
        positive(format!("{at}.stale_ms"), self.stale_ms)
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

    /// Returns the server's configuration for a target whose disk has the given curve, with the log at `path`.
    pub(crate) fn config(&self, path: PathBuf, curve: ServiceCurve) -> IbridgeConfig {
        let (dirty_high, dirty_low) = self.log().marks();
        IbridgeConfig {
            policy: self.policy,
            thresholds: Thresholds {
                fragments_below: ByteLen(self.fragments_below.0),
                random_below: ByteLen(self.random_below.0),
            },
            weight: self.weight,
            exchange: Nanos::from_ms(self.exchange_ms),
            stale: Nanos::from_ms(self.stale_ms),
            idle: Nanos::from_ms(self.idle_ms),
            dirty_high,
            dirty_low,
            preload: self.preload,
            entry_len: ByteLen(self.entry_size.0),
            ..IbridgeConfig::new(path, ByteLen(self.size.0), curve)
        }
    }
}

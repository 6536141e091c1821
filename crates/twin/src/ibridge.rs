//! The SSD beside a target's disk, as data.

use crate::device;
use crate::spec::SpecError;
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

/// An SSD beside each disk of a group of targets, and which requests go to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IbridgeSpec {
    /// Profile of the SSD.
    pub profile: String,
    /// Room for bytes on it.
    pub size: Size,
    /// Which requests go there: `off` (as if there were none), `ibridge`, `threshold`, `static(1:2)`, `detour`.
    #[serde(with = "text")]
    pub policy: Policy,
    /// Pieces of larger requests are small below this.
    pub fragments_below: Size,
    /// Requests of one piece are small below this.
    pub random_below: Size,
    /// What a new request weighs in the disk's average service time.
    #[serde(with = "text")]
    pub weight: Weight,
    /// How often servers tell each other their average service times, milliseconds.
    pub exchange_ms: u64,
    /// How long a report of another server holds, milliseconds.
    pub stale_ms: u64,
    /// Bytes are written back when the disk had no request for so long, milliseconds.
    pub idle_ms: u64,
    /// Dirty bytes above which they are written back whatever the disk does; three quarters of `size` when missing.
    pub dirty_high: Option<Size>,
    /// Dirty bytes down to which that goes on; half of `size` when missing.
    pub dirty_low: Option<Size>,
    /// Whether reads that would have been worth it are copied to the SSD when it is idle.
    pub preload: bool,
    /// The log has memory for one entry for each so many bytes of its size.
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

/// Values that are texts in a file.
mod text {
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

impl IbridgeSpec {
    /// Whether requests go there at all.
    pub(crate) fn is_on(&self) -> bool {
        self.policy != Policy::Off
    }

    pub(crate) fn check(&self, at: &str, own: &[Profile], seed: u64) -> Result<(), SpecError> {
        device::disk(own, &self.profile, seed)
            .map_err(|error| SpecError::new(format!("{at}.profile"), error.why))?;
        let values = [
            ("size", self.size.0),
            ("exchange_ms", self.exchange_ms),
            ("stale_ms", self.stale_ms),
            ("entry_size", self.entry_size.0),
        ];
        for (name, value) in values {
            if value == 0 {
                return Err(SpecError::new(format!("{at}.{name}"), "give at least 1"));
            }
        }
        let (high, low) = self.marks();
        if low > high || high > self.size.0 {
            let why = "dirty_low is at most dirty_high, and that at most size";
            return Err(SpecError::new(format!("{at}.dirty_high"), why));
        }
        Ok(())
    }

    fn marks(&self) -> (u64, u64) {
        let high = self.dirty_high.map_or(self.size.0 / 4 * 3, |size| size.0);
        (high, self.dirty_low.map_or(high.min(self.size.0 / 2), |size| size.0))
    }

    /// What the server of a target is told whose disk has this curve, with its log at `path`.
    pub(crate) fn config(&self, path: PathBuf, curve: ServiceCurve) -> IbridgeConfig {
        let (high, low) = self.marks();
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
            dirty_high: ByteLen(high),
            dirty_low: ByteLen(low),
            preload: self.preload,
            entry_len: ByteLen(self.entry_size.0),
            ..IbridgeConfig::new(path, ByteLen(self.size.0), curve)
        }
    }
}

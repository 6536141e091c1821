//! Profiles: parameters of a device and of the operating system in front of it, built in or from a file.

use crate::block::{BlockSpec, Elevator};
use crate::disk::Disk;
use crate::drive::Drive;
use crate::files::FilesSpec;
use crate::hdd::{Hdd, HddSpec};
use crate::ssd::{Ssd, SsdSpec};
use serde::{Deserialize, Serialize};
use weft_env::device::DeviceModel;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// The built-in profiles.
const BUILT_IN: &[(&str, &str)] = built_in![
    "ceda-hdd",
    "ceda-ssd",
    "hdd-7200",
    "hdd-nearline",
    "ibridge-hdd",
    "ibridge-ssd",
    "nvme",
    "psa-hdd",
    "psa-ssd",
    "sata-ssd",
    "thesis-hdd",
    "thesis-hdd-barrier",
    "thesis-ssd",
    "thesis-ssd-barrier",
];

/// A device and the operating system in front of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Description of the device.
    pub about: String,
    /// Source of the parameters.
    #[serde(default)]
    pub source: String,
    /// Parameters of a hard disk. Exactly one of `hdd` and `ssd` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hdd: Option<HddSpec>,
    /// Parameters of an SSD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd: Option<SsdSpec>,
    /// The queue in front of the device.
    #[serde(default)]
    pub block: BlockSpec,
    /// The local file system.
    #[serde(default)]
    pub files: FilesSpec,
}

/// Error of a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile has this name.
    #[error("there is no profile named {name:?}: use one of {}, or the path of a profile that `weft profile` wrote", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The text does not parse.
    #[error("not a valid profile: {0}")]
    Syntax(String),
    /// A parameter is out of bounds.
    #[error("profile {profile:?}: {what} must {wanted}")]
    Figure {
        /// The profile's name.
        profile: String,
        /// Name of the parameter.
        what: &'static str,
        /// Description of valid values.
        wanted: &'static str,
    },
}

/// Returns the names of the built-in profiles, sorted.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Profile {
    /// Returns a built-in profile.
    ///
    /// # Errors
    /// Fails if there is no profile of this name. The message lists the names.
    pub fn by_name(name: &str) -> Result<Self, ProfileError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
        Self::from_toml(text)
    }

    /// Parses and checks a profile.
    ///
    /// # Errors
    /// Fails if the text does not parse or a parameter is out of bounds.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    /// Serializes the profile as text that [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile has no figure that TOML cannot hold")
    }

    /// Checks all parameters.
    ///
    /// # Errors
    /// The first parameter that is out of bounds.
    pub fn check(&self) -> Result<(), ProfileError> {
        let refuse = |what, wanted| Err(ProfileError::Figure { profile: self.name.clone(), what, wanted });
        let is_speed = |value: f64| (0.1..=1e6).contains(&value);
        let is_time = |value: f64| (0.0..=1e10).contains(&value);
        match (&self.hdd, &self.ssd) {
            (Some(hdd), None) => {
                let orders =
                    hdd.seek_track_us <= hdd.seek_average_us && hdd.seek_average_us <= hdd.seek_full_us;
                if !(1.0..=1e6).contains(&hdd.capacity_gb) {
                    return refuse("capacity_gb", "lie between 1 and 1,000,000");
                } else if !(60..=100_000).contains(&hdd.rpm) {
                    return refuse("rpm", "lie between 60 and 100,000");
                } else if !(1..=64).contains(&hdd.heads) || !(1..=1000).contains(&hdd.zones) {
                    return refuse("heads and zones", "be at least 1, and at most 64 and 1,000");
                } else if !is_speed(hdd.outer_mb_s)
                    || !is_speed(hdd.inner_mb_s)
                    || !is_speed(hdd.interface_mb_s)
                {
                    return refuse(
                        "outer_mb_s, inner_mb_s and interface_mb_s",
                        "lie between 0.1 and 1,000,000",
                    );
                } else if hdd.inner_mb_s > hdd.outer_mb_s {
                    return refuse("inner_mb_s", "be at most outer_mb_s");
                } else if !orders || !is_time(hdd.seek_track_us) || !is_time(hdd.seek_full_us) {
                    return refuse("seek_track_us, seek_average_us, seek_full_us", "be in ascending order");
                }
                let others = [
                    hdd.head_switch_us,
                    hdd.cylinder_switch_us,
                    hdd.write_settle_us,
                    hdd.command_us,
                    hdd.queue_age_ms,
                ];
                if !others.into_iter().all(is_time) {
                    return refuse("its times", "be 0 or more, and no more than 10^10");
                }
            }
            (None, Some(ssd)) => {
                if !(0.1..=1e6).contains(&ssd.capacity_gb) {
                    return refuse("capacity_gb", "lie between 0.1 and 1,000,000");
                } else if !(0.01..=10.0).contains(&ssd.spare) {
                    return refuse("spare", "lie between 0.01 and 10");
                } else if !(0.0..=1.0).contains(&ssd.used) {
                    return refuse("used", "lie between 0 and 1");
                } else if !(1..=256).contains(&ssd.channels) || !(1..=256).contains(&ssd.dies_per_channel) {
                    return refuse("channels and dies_per_channel", "lie between 1 and 256");
                } else if ssd.page_kib == 0 || ssd.page_kib % 4 != 0 || ssd.page_kib > 1024 {
                    return refuse("page_kib", "be a multiple of 4, and at most 1,024");
                } else if ssd.map_kib == 0 || ssd.map_kib % 4 != 0 || ssd.page_kib % ssd.map_kib != 0 {
                    return refuse("map_kib", "be a multiple of 4 that divides page_kib");
                } else if !(1..=65_536).contains(&ssd.pages_per_block) {
                    return refuse("pages_per_block", "lie between 1 and 65,536");
                } else if !is_speed(ssd.channel_mb_s) || !is_speed(ssd.interface_mb_s) {
                    return refuse("channel_mb_s and interface_mb_s", "lie between 0.1 and 1,000,000");
                }
                let others = [
                    ssd.read_us,
                    ssd.program_us,
                    ssd.erase_us,
                    ssd.suspend_us,
                    ssd.command_us,
                    ssd.latency_us,
                    ssd.flush_us,
                ];
                if !others.into_iter().all(is_time) {
                    return refuse("its times", "be 0 or more, and no more than 10^10");
                }
                let (_, blocks) = ssd.sizes();
                if blocks.saturating_mul(ssd.block_units().1) >= u64::from(u32::MAX) {
                    return refuse(
                        "capacity_gb",
                        "have fewer than 2^32 units of map_kib, spare units included",
                    );
                }
            }
            _ => return refuse("a profile", "have one of the sections [hdd] and [ssd]"),
        }
        let block = &self.block;
        if !(4..=1 << 20).contains(&block.request_kib) || !block.request_kib.is_multiple_of(4) {
            return refuse("block.request_kib", "be a multiple of 4, and at most 1,048,576");
        }
        let times = [block.read_deadline_ms, block.write_deadline_ms, block.plug_us, block.anticipation_us];
        let files = &self.files;
        let more = [files.write_back_ms, files.call_us, files.name_us];
        if !times.into_iter().chain(more).all(is_time) {
            return refuse("the times of block and files", "be 0 or more, and no more than 10^10");
        } else if !is_speed(files.copy_mb_s) {
            return refuse("files.copy_mb_s", "lie between 0.1 and 1,000,000");
        } else if !(0.0..=1.0).contains(&files.journal_at) {
            return refuse("files.journal_at", "lie between 0 and 1");
        } else if files.stretch_mib == 0 || files.journal_mib == 0 {
            return refuse("files.stretch_mib and files.journal_mib", "be at least 1");
        }
        Ok(())
    }

    /// Whether the device is a hard disk.
    pub fn is_hard_disk(&self) -> bool {
        self.hdd.is_some()
    }

    /// Builds a device. Devices with different seeds differ in the initial angle of their platters.
    ///
    /// # Panics
    /// If the profile was not [checked](Self::check).
    pub fn build(&self, seed: u64) -> Box<dyn DeviceModel> {
        Box::new(self.disk(seed))
    }

    /// Builds a device as its concrete type.
    ///
    /// # Panics
    /// If the profile was not [checked](Self::check).
    pub fn disk(&self, seed: u64) -> Disk {
        let drive: Box<dyn Drive> = match (&self.hdd, &self.ssd) {
            (Some(hdd), _) => Box::new(Hdd::new(hdd, seed)),
            (None, Some(ssd)) => Box::new(Ssd::new(ssd)),
            (None, None) => panic!("profile {:?} was not checked", self.name),
        };
        Disk::new(&self.files, &self.block, drive)
    }

    /// Returns this profile without page cache and elevator, so that requests reach the device in order of arrival.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.files.page_cache_mib = 0;
        self.block.elevator = Elevator::Noop;
        self
    }
}

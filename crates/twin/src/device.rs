//! Models of disks and networks by the names of their profiles.

use crate::spec::SpecError;
use weft_env::device::DeviceModel;
use weft_env::sim::{NetworkModel, SimpleDisk, SimpleNetwork};

/// The simplest disk or network: a fixed time per request and a time per byte.
pub(crate) const SIMPLE: &str = "simple";

/// A new disk of this profile.
pub(crate) fn disk(profile: &str, _seed: u64) -> Result<Box<dyn DeviceModel>, SpecError> {
    match profile {
        SIMPLE => Ok(Box::new(SimpleDisk::default())),
        _ => Err(SpecError::new(
            "profile",
            format!("no disk has the profile {profile:?}; there is {SIMPLE:?}"),
        )),
    }
}

/// A new network of this profile.
pub(crate) fn network(profile: &str) -> Result<Box<dyn NetworkModel>, SpecError> {
    match profile {
        SIMPLE => Ok(Box::new(SimpleNetwork::default())),
        _ => Err(SpecError::new(
            "network",
            format!("no network has the profile {profile:?}; there is {SIMPLE:?}"),
        )),
    }
}

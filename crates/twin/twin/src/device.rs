//! Models of disks and networks by profile name.

use crate::spec::SpecError;
use weft_core::ibridge::ServiceCurve;
use weft_core::{ByteLen, Nanos};
use weft_env::device::DeviceModel;
use weft_env::sim::{NetworkModel, SimpleDisk, SimpleNetwork};
use weft_models::{NetworkSpec, Profile};

/// Profile name of the simplest disk and network: a fixed time per request plus a time per byte.
pub(crate) const SIMPLE: &str = "simple";

/// Builds a new disk from a profile of `own`, or else from a built-in profile.
pub(crate) fn disk(own: &[Profile], profile: &str, seed: u64) -> Result<Box<dyn DeviceModel>, SpecError> {
    if profile == SIMPLE {
        return Ok(Box::new(SimpleDisk::default()));
    }
    if let Some(found) = own.iter().find(|own| own.name == profile) {
        found.check().map_err(|error| SpecError::new("profiles", error.to_string()))?;
        return Ok(found.build(seed));
    }
    match Profile::by_name(profile) {
        Ok(profile) => Ok(profile.build(seed)),
        Err(error) => Err(SpecError::new("profile", format!("{error}; or {SIMPLE:?}"))),
    }
}

/// Builds a new network from a built-in profile.
pub(crate) fn network(profile: &str) -> Result<Box<dyn NetworkModel>, SpecError> {
    if profile == SIMPLE {
        return Ok(Box::new(SimpleNetwork::default()));
    }
    match NetworkSpec::by_name(profile) {
        Ok(network) => Ok(network.build()),
        Err(error) => Err(SpecError::new("network", format!("{error}; or {SIMPLE:?}"))),
    }
}

/// Returns the service-time curve that the iBridge admission decision uses for a disk of this profile.
pub(crate) fn curve(own: &[Profile], profile: &str) -> ServiceCurve {
    let simple = || {
        let start = vec![(ByteLen::ZERO, Nanos::ZERO)];
        ServiceCurve::new(start, Nanos(50_000), 2_000_000_000, 2_000_000_000, ByteLen::ZERO)
            .expect("a device")
    };
    let own = own.iter().find(|own| own.name == profile).cloned();
    own.or_else(|| Profile::by_name(profile).ok()).map_or_else(simple, |profile| profile.service_curve())
}

//! Figures of a cluster, from the device model of each class.

use crate::bench::{Bench, StreamSchedule};
use std::collections::BTreeMap;
use weft_env::device::DeviceModel;
use weft_env::sim::SimpleDisk;
use weft_models::{NetworkSpec, Profile};
use weft_planner::figures::{Class, Network};
use weft_planner::{Bytes, Figures};
use weft_twin::{ClusterSpec, Module};

/// Profile of a disk or network with fixed figures, which the twin has in addition to those of weft-models.
const SIMPLE: &str = "simple";
/// Minimum bytes of a device that are used for measuring.
const SPAN_MIN: u64 = 64 << 20;
/// Maximum bytes of a device that are used for measuring.
const SPAN_MAX: u64 = 64 << 30;
/// Capacity from which on a target counts as unlimited: the twin's default.
const CAPACITY_MAX: u64 = 1 << 44;

/// A class of targets and its device profile.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassDevice {
    /// Class name.
    pub class: String,
    /// Number of targets.
    pub targets: u32,
    /// Device profile of each target.
    pub profile: String,
    /// Whether requests bypass the page cache.
    pub direct: bool,
    /// Capacity of each target, bytes.
    pub capacity: Option<u64>,
}

/// Why figures cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EstimateError {
    /// Targets of one class have different profiles.
    #[error(
        "class {class:?} has targets with profile {first:?} and with {other:?}: put them into different classes"
    )]
    MixedProfiles {
        /// The class.
        class: String,
        /// One profile.
        first: String,
        /// Another profile.
        other: String,
    },
    /// A profile is unknown or invalid.
    #[error("class {class:?}: {why}")]
    Profile {
        /// The class.
        class: String,
        /// The reason.
        why: String,
    },
    /// The network is unknown.
    #[error("network: {0}")]
    Network(String),
    /// A capacity is given for an unknown class.
    #[error("there is no class {class:?}; there are {known}")]
    UnknownClass {
        /// The class.
        class: String,
        /// The known classes.
        known: String,
    },
}

/// Figures of a twin's cluster. `bytes` is the total length of the planned files. `capacities` overrides the capacity
/// of classes.
///
/// # Errors
/// Mixed classes, or unknown profiles.
pub fn of_twin(
    spec: &ClusterSpec,
    capacities: &BTreeMap<String, u64>,
    bytes: u64,
) -> Result<Figures, EstimateError> {
    of_twin_by(spec, capacities, bytes, StreamSchedule::default())
}

/// Like [`of_twin`], with a choice of the stream schedule.
///
/// # Errors
/// See [`of_twin`].
pub fn of_twin_by(
    spec: &ClusterSpec,
    capacities: &BTreeMap<String, u64>,
    bytes: u64,
    schedule: StreamSchedule,
) -> Result<Figures, EstimateError> {
    let mut sites: Vec<ClassDevice> = Vec::new();
    for target in spec.data_servers().flat_map(|server| &server.targets) {
        let capacity = Some(target.capacity.0).filter(|capacity| *capacity < CAPACITY_MAX);
        match sites.iter_mut().find(|site| site.class == target.class) {
            Some(site) if site.profile != target.profile => {
                return Err(EstimateError::MixedProfiles {
                    class: target.class.clone(),
                    first: site.profile.clone(),
                    other: target.profile.clone(),
                });
            }
            Some(site) => {
                site.targets += 1;
                site.capacity = site.capacity.into_iter().chain(capacity).min();
            }
            None => sites.push(ClassDevice {
                class: target.class.clone(),
                targets: 1,
                profile: target.profile.clone(),
                direct: target.module == Module::Direct,
                capacity,
            }),
        }
    }
    let network = match &spec.network_figures {
        Some(network) => of_network(network),
        None => network(&spec.network)?,
    };
    let mut figures = figures_by(&sites, &spec.profiles, network, capacities, bytes, schedule)?;
    figures.processes_per_node = spec.processes_per_node;
    figures.call_us = spec.client.pause_us;
    Ok(figures)
}

/// Figures of any cluster. `own` are profiles in addition to those of Weft.
///
/// # Errors
/// See [`of_twin`].
pub fn figures(
    sites: &[ClassDevice],
    own: &[Profile],
    network: Network,
    capacities: &BTreeMap<String, u64>,
    bytes: u64,
) -> Result<Figures, EstimateError> {
    figures_by(sites, own, network, capacities, bytes, StreamSchedule::default())
}

fn figures_by(
    sites: &[ClassDevice],
    own: &[Profile],
    network: Network,
    capacities: &BTreeMap<String, u64>,
    bytes: u64,
    schedule: StreamSchedule,
) -> Result<Figures, EstimateError> {
    if let Some(class) = capacities.keys().find(|class| !sites.iter().any(|site| site.class == **class)) {
        let known: Vec<&str> = sites.iter().map(|site| site.class.as_str()).collect();
        return Err(EstimateError::UnknownClass { class: class.clone(), known: known.join(", ") });
    }
    let targets: u64 = sites.iter().map(|site| u64::from(site.targets)).sum();
    let mut classes = Vec::new();
    for site in sites {
        let capacity = capacities.get(&site.class).copied().or(site.capacity);
        let span = (bytes / targets.max(1)).min(capacity.unwrap_or(u64::MAX)).clamp(SPAN_MIN, SPAN_MAX);
        let (device, memory) = device(site, own)?;
        let bench = Bench {
            device: &*device,
            direct: site.direct,
            span,
            write_buffer: memory.write_buffer,
            write_back_threshold: memory.write_back_threshold,
            schedule,
            queue_depth: memory.queue_depth,
            read_ahead: memory.read_ahead,
        };
        classes.push(Class {
            name: site.class.clone(),
            targets: site.targets,
            capacity: capacity.map(Bytes),
            memory: Bytes(if site.direct { 0 } else { memory.page_cache }),
            error: None,
            devices: None,
            read: bench.reads(),
            write: bench.writes(),
        });
    }
    Ok(Figures { processes_per_node: 1, call_us: 0.0, measured: false, network, processor: None, classes })
}

/// Creates a device of a class.
type Device = Box<dyn Fn() -> Box<dyn DeviceModel>>;

/// Page cache and queue of a target's operating system.
struct SystemMemory {
    /// Dirty bytes before writers block.
    write_buffer: u64,
    /// Dirty bytes at which write-back begins.
    write_back_threshold: u64,
    /// Size of the page cache.
    page_cache: u64,
    /// Read-ahead, bytes.
    read_ahead: u64,
    /// Device queue depth.
    queue_depth: u32,
}

/// The device of a class, and the page cache of its operating system.
fn device(site: &ClassDevice, own: &[Profile]) -> Result<(Device, SystemMemory), EstimateError> {
    if site.profile == SIMPLE {
        // An unlimited write buffer that answers no reads.
        let memory = SystemMemory {
            write_buffer: 1 << 40,
            write_back_threshold: 1 << 40,
            page_cache: 0,
            read_ahead: 0,
            queue_depth: 1,
        };
        return Ok((Box::new(|| Box::new(SimpleDisk::default())), memory));
    }
    let failed = |error: weft_models::ProfileError| EstimateError::Profile {
        class: site.class.clone(),
        why: format!("{error}; or {SIMPLE:?}"),
    };
    let profile = match own.iter().find(|own| own.name == site.profile) {
        Some(profile) => profile.clone(),
        None => Profile::by_name(&site.profile).map_err(failed)?,
    };
    profile.check().map_err(failed)?;
    let files = &profile.files;
    let [write_buffer, write_back_threshold, page_cache] =
        [files.dirty_limit_mib, files.dirty_background_mib, files.page_cache_mib].map(|mib| mib << 20);
    let (read_ahead, queue_depth) = (files.read_ahead_kib << 10, profile.block.device_depth);
    let memory = SystemMemory { write_buffer, write_back_threshold, page_cache, read_ahead, queue_depth };
    Ok((Box::new(move || profile.build(1)), memory))
}

/// A network by name.
///
/// # Errors
/// If the name is unknown.
pub(crate) fn network(name: &str) -> Result<Network, EstimateError> {
    if name == SIMPLE {
        return Ok(Network::new(20.0, 12_500.0));
    }
    let spec = NetworkSpec::by_name(name).map_err(|error| EstimateError::Network(error.to_string()))?;
    Ok(of_network(&spec))
}

/// Converts a network of the models.
pub(crate) fn of_network(spec: &NetworkSpec) -> Network {
    Network::new(spec.latency_us + 2.0 * spec.message_us, spec.link_mb_s)
}

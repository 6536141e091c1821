//! The planner's figures of a cluster, by measuring a device of each class.

use crate::bench::{Bench, Turns};
use std::collections::BTreeMap;
use weft_env::device::DeviceModel;
use weft_env::sim::SimpleDisk;
use weft_models::{NetworkSpec, Profile};
use weft_planner::figures::{Class, Network};
use weft_planner::{Bytes, Figures};
use weft_twin::{ClusterSpec, Module};

/// The profile that the twin has besides those of the models: a disk or network of fixed figures.
const SIMPLE: &str = "simple";
/// The least of a device that is measured over, bytes.
const SPAN_MIN: u64 = 64 << 20;
/// The most, bytes.
const SPAN_MAX: u64 = 64 << 30;
/// A capacity from here on is room enough for any plan: the twin's default.
const CAPACITY_MAX: u64 = 1 << 44;

/// A class of targets and a device that stands for each.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Its name.
    pub class: String,
    /// How many targets.
    pub targets: u32,
    /// Profile of each.
    pub profile: String,
    /// Whether requests go past memory.
    pub direct: bool,
    /// Room on each, bytes.
    pub room: Option<u64>,
}

/// Why there are no figures.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EstimateError {
    /// A class has targets of different kinds.
    #[error(
        "class {class:?} has targets with profile {first:?} and with {other:?}: give them classes of their own"
    )]
    Unlike {
        /// The class.
        class: String,
        /// One.
        first: String,
        /// Another.
        other: String,
    },
    /// A profile that there is not.
    #[error("class {class:?}: {why}")]
    Profile {
        /// The class.
        class: String,
        /// What is wrong.
        why: String,
    },
    /// A network that there is not.
    #[error("network: {0}")]
    Network(String),
    /// Room for a class that there is not.
    #[error("there is no class {class:?}; there are {known}")]
    NoClass {
        /// The class.
        class: String,
        /// Those that there are.
        known: String,
    },
}

/// The figures of a cluster of the twin. `bytes` is how much the files that are planned for take together; `rooms` is room
/// by class beside what the description says.
///
/// # Errors
/// Classes that are no classes; profiles that are none.
pub fn of_twin(
    spec: &ClusterSpec,
    rooms: &BTreeMap<String, u64>,
    bytes: u64,
) -> Result<Figures, EstimateError> {
    of_twin_by(spec, rooms, bytes, Turns::default())
}

/// The same, with streams that take such turns.
///
/// # Errors
/// As [`of_twin`].
pub fn of_twin_by(
    spec: &ClusterSpec,
    rooms: &BTreeMap<String, u64>,
    bytes: u64,
    turns: Turns,
) -> Result<Figures, EstimateError> {
    let mut sites: Vec<Site> = Vec::new();
    for target in spec.data_servers().flat_map(|server| &server.targets) {
        let room = Some(target.capacity.0).filter(|room| *room < CAPACITY_MAX);
        match sites.iter_mut().find(|site| site.class == target.class) {
            Some(site) if site.profile != target.profile => {
                return Err(EstimateError::Unlike {
                    class: target.class.clone(),
                    first: site.profile.clone(),
                    other: target.profile.clone(),
                });
            }
            Some(site) => {
                site.targets += 1;
                site.room = site.room.into_iter().chain(room).min();
            }
            None => sites.push(Site {
                class: target.class.clone(),
                targets: 1,
                profile: target.profile.clone(),
                direct: target.module == Module::Direct,
                room,
            }),
        }
    }
    let network = match &spec.network_figures {
        Some(network) => of_network(network),
        None => network(&spec.network)?,
    };
    let mut figures = figures_by(&sites, &spec.profiles, network, rooms, bytes, turns)?;
    figures.processes_per_node = spec.processes_per_node;
    figures.call_us = spec.client.pause_us;
    Ok(figures)
}

/// The figures of any cluster; `own` are profiles beside those that come with Weft.
///
/// # Errors
/// As [`of_twin`].
pub fn figures(
    sites: &[Site],
    own: &[Profile],
    network: Network,
    rooms: &BTreeMap<String, u64>,
    bytes: u64,
) -> Result<Figures, EstimateError> {
    figures_by(sites, own, network, rooms, bytes, Turns::default())
}

fn figures_by(
    sites: &[Site],
    own: &[Profile],
    network: Network,
    rooms: &BTreeMap<String, u64>,
    bytes: u64,
    turns: Turns,
) -> Result<Figures, EstimateError> {
    if let Some(class) = rooms.keys().find(|class| !sites.iter().any(|site| site.class == **class)) {
        let known: Vec<&str> = sites.iter().map(|site| site.class.as_str()).collect();
        return Err(EstimateError::NoClass { class: class.clone(), known: known.join(", ") });
    }
    let targets: u64 = sites.iter().map(|site| u64::from(site.targets)).sum();
    let mut classes = Vec::new();
    for site in sites {
        let room = rooms.get(&site.class).copied().or(site.room);
        let span = (bytes / targets.max(1)).min(room.unwrap_or(u64::MAX)).clamp(SPAN_MIN, SPAN_MAX);
        let (device, memory) = device(site, own)?;
        let bench = Bench {
            device: &*device,
            direct: site.direct,
            span,
            behind: memory.behind,
            gathers: memory.gathers,
            turns,
            takes: memory.takes,
            ahead: memory.ahead,
        };
        classes.push(Class {
            name: site.class.clone(),
            targets: site.targets,
            room: room.map(Bytes),
            memory: Bytes(if site.direct { 0 } else { memory.holds }),
            read: bench.reads(),
            write: bench.writes(),
        });
    }
    Ok(Figures { processes_per_node: 1, call_us: 0.0, network, classes })
}

/// Makes devices of a class.
type Device = Box<dyn Fn() -> Box<dyn DeviceModel>>;

/// The system of a site: its memory in bytes, its queue.
struct Memory {
    /// What it takes before writers wait.
    behind: u64,
    /// What it gathers before it writes back.
    gathers: u64,
    /// What it holds of what was read or written.
    holds: u64,
    /// How far it reads ahead.
    ahead: u64,
    /// Requests that it gives the device at a time.
    takes: u32,
}

/// A device of a site, and its system's memory.
fn device(site: &Site, own: &[Profile]) -> Result<(Device, Memory), EstimateError> {
    if site.profile == SIMPLE {
        // Its memory for writes has no bound, and answers no reads.
        let memory = Memory { behind: 1 << 40, gathers: 1 << 40, holds: 0, ahead: 0, takes: 1 };
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
    let [behind, gathers, holds] =
        [files.dirty_limit_mib, files.dirty_background_mib, files.page_cache_mib].map(|mib| mib << 20);
    let (ahead, takes) = (files.read_ahead_kib << 10, profile.block.device_depth);
    Ok((Box::new(move || profile.build(1)), Memory { behind, gathers, holds, ahead, takes }))
}

/// A network by its name.
///
/// # Errors
/// When there is none.
pub(crate) fn network(name: &str) -> Result<Network, EstimateError> {
    if name == SIMPLE {
        return Ok(Network::new(20.0, 12_500.0));
    }
    let spec = NetworkSpec::by_name(name).map_err(|error| EstimateError::Network(error.to_string()))?;
    Ok(of_network(&spec))
}

/// What a message and a byte cost.
pub(crate) fn of_network(spec: &NetworkSpec) -> Network {
    Network::new(spec.latency_us + 2.0 * spec.message_us, spec.link_mb_s)
}

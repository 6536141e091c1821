//! A cluster as data.

use crate::device;
use crate::ibridge::IbridgeSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_core::{Nanos, TargetId};
use weft_workload::Size;

/// The most servers of a cluster.
const SERVERS_MAX: u32 = 10_000;
/// The most processes of a node.
const PROCESSES_MAX: u32 = 1 << 20;

/// A cluster and how it is simulated. What is left out has a default: eight servers with one simple disk each, and one
/// more for metadata.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSpec {
    /// Decides everything that is open: session numbers, boot times of machines, the order of what happens at once if
    /// `shuffle` says so.
    pub seed: u64,
    /// Whether payloads are bytes, or lengths only: much faster, with the same times.
    pub payload: Payload,
    /// Whether what can happen at the same instant happens in an order of the seed instead of first come, first
    /// served.
    pub shuffle: bool,
    /// Profile of the network.
    pub network: String,
    /// Figures of the network, instead of the profile.
    pub network_figures: Option<weft_models::NetworkSpec>,
    /// Profiles beside those that come with Weft, such as `weft profile` writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<weft_models::Profile>,
    /// Client processes on each compute node.
    pub processes_per_node: u32,
    /// The data servers.
    pub servers: Vec<ServerSpec>,
    /// Where metadata is.
    pub metadata: MetadataSpec,
    /// How files are laid out.
    pub layout: LayoutSpec,
    /// How clients behave.
    pub client: ClientSpec,
}

impl Default for ClusterSpec {
    fn default() -> Self {
        Self {
            seed: 1,
            payload: Payload::Lengths,
            shuffle: false,
            network: device::SIMPLE.to_owned(),
            network_figures: None,
            profiles: Vec::new(),
            processes_per_node: 8,
            servers: vec![ServerSpec::default()],
            metadata: MetadataSpec::default(),
            layout: LayoutSpec::default(),
            client: ClientSpec::default(),
        }
    }
}

/// What a simulated payload is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Its length.
    #[default]
    Lengths,
    /// Its bytes.
    Bytes,
}

/// Servers that are equal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSpec {
    /// How many.
    pub count: u32,
    /// The targets of each, every one on a disk of its own.
    pub targets: Vec<TargetSpec>,
    /// Most memory for payloads in passing.
    pub payload_memory: Size,
    /// Most datafiles held open on each target.
    pub open_datafiles: u32,
}

impl Default for ServerSpec {
    fn default() -> Self {
        Self {
            count: 8,
            targets: vec![TargetSpec::default()],
            payload_memory: Size::mib(256),
            open_datafiles: 1024,
        }
    }
}

/// One target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSpec {
    /// Its class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
    /// Profile of its disk.
    pub profile: String,
    /// How its datafiles are read and written.
    pub module: Module,
    /// Most requests that run on it at once.
    pub queue_depth: u32,
    /// Room on its disk.
    pub capacity: Size,
    /// An SSD beside the disk for small requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibridge: Option<IbridgeSpec>,
}

impl Default for TargetSpec {
    fn default() -> Self {
        Self {
            class: "hdd".to_owned(),
            profile: device::SIMPLE.to_owned(),
            module: Module::Buffered,
            queue_depth: 64,
            capacity: Size(1 << 44),
            ibridge: None,
        }
    }
}

/// How datafiles are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Module {
    /// Through the memory of the system.
    #[default]
    Buffered,
    /// Past it.
    Direct,
    /// Not at all: writes vanish, reads give zeros.
    Null,
}

/// Where metadata is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataSpec {
    /// Number of the data server that also serves metadata; without it a server of its own does.
    pub server: Option<u32>,
    /// Profile of the disk that holds only metadata. Without it the database lies on the disk of that server's first
    /// target.
    pub profile: Option<String>,
}

impl Default for MetadataSpec {
    fn default() -> Self {
        Self { server: None, profile: Some(device::SIMPLE.to_owned()) }
    }
}

/// How files are laid out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayoutSpec {
    /// Stripe size.
    pub stripe_size: Size,
    /// How many targets a file has; none is all.
    pub stripe_count: Option<u32>,
    /// Only targets of this class.
    pub class: Option<String>,
    /// Stripe size by class over all targets, instead of the three above; a class of size 0 or without one gets
    /// nothing.
    pub stripe_sizes: BTreeMap<String, Size>,
    /// What comes after the part of the file for which the targets of `stripe_sizes` have room.
    pub tail: Option<TailSpec>,
    /// What comes after `tail`, each from its offset on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<TailSpec>,
}

/// The rest of a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailSpec {
    /// Where it begins.
    pub from: Size,
    /// Stripe size by class, as in the first part.
    pub stripe_sizes: BTreeMap<String, Size>,
}

impl Default for LayoutSpec {
    fn default() -> Self {
        Self {
            stripe_size: Size::kib(64),
            stripe_count: None,
            class: None,
            stripe_sizes: BTreeMap::new(),
            tail: None,
            tails: Vec::new(),
        }
    }
}

/// How clients behave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSpec {
    /// Sub-requests below this are marked as fragments, requests below it as small; 0 marks none.
    pub fragments_below: Size,
    /// Whether payloads carry checksums between machines. Not with payloads of lengths only.
    pub checksums: bool,
    /// How long a server may be silent in the middle of a request. Longer than in real life, so that an overloaded
    /// cluster shows as slow and not as broken.
    pub request_timeout_s: u64,
    /// Processor time of one hop of a barrier, in nanoseconds: all ranks leave a barrier that many times the
    /// logarithm of their number after the last has come.
    pub barrier_hop_ns: u64,
    /// What a process spends on its own before each operation, in microseconds: so much on average, each time as much
    /// as chance says (exponentially distributed). Without it processes that do the same stay in step for ever, which
    /// no real ones do.
    pub pause_us: f64,
}

impl Default for ClientSpec {
    fn default() -> Self {
        Self {
            fragments_below: Size::kib(20),
            checksums: false,
            request_timeout_s: 3600,
            barrier_hop_ns: 10_000,
            pause_us: 0.0,
        }
    }
}

/// Why a description is no cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cluster: {field}: {why}")]
pub struct SpecError {
    /// Which field, as it stands in a file.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}

impl SpecError {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

fn positive(field: impl Into<String>, value: u64) -> Result<(), SpecError> {
    if value == 0 { Err(SpecError::new(field, "give at least 1")) } else { Ok(()) }
}

impl ClusterSpec {
    /// Data servers, in the order of their numbers.
    pub fn data_servers(&self) -> impl Iterator<Item = &ServerSpec> {
        self.servers.iter().flat_map(|group| std::iter::repeat_n(group, group.count as usize))
    }

    /// The time of a barrier of `ranks` after the last has come.
    pub fn barrier_cost(&self, ranks: u32) -> Nanos {
        Nanos(self.client.barrier_hop_ns * u64::from(u32::BITS - ranks.saturating_sub(1).leading_zeros()))
    }

    /// The seed of the disk under a target: each has one of its own, since equal ones would turn in step.
    pub fn disk_seed(&self, target: TargetId) -> u64 {
        self.seed ^ (u64::from(target.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Looks whether this is a cluster that can be built.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        device::network(&self.network)?;
        positive("processes_per_node", self.processes_per_node.into())?;
        if self.processes_per_node > PROCESSES_MAX {
            return Err(SpecError::new("processes_per_node", format!("at most {PROCESSES_MAX}")));
        }
        positive("servers", self.servers.len() as u64)?;
        let servers: u64 = self.servers.iter().map(|group| u64::from(group.count)).sum();
        if servers > SERVERS_MAX.into() {
            return Err(SpecError::new("servers", format!("{servers} are more than {SERVERS_MAX}")));
        }
        for (index, group) in self.servers.iter().enumerate() {
            self.check_group(&format!("servers[{index}]"), group)?;
        }
        self.check_metadata(servers)?;
        self.check_layout()?;
        if self.client.checksums && self.payload == Payload::Lengths {
            let why = "payloads of lengths only have no bytes to check: write false, or payload = \"bytes\"";
            return Err(SpecError::new("client.checksums", why));
        }
        if !(0.0..=1e9).contains(&self.client.pause_us) {
            return Err(SpecError::new("client.pause_us", "give 0 to 10^9"));
        }
        positive("client.request_timeout_s", self.client.request_timeout_s)
    }

    fn check_group(&self, at: &str, group: &ServerSpec) -> Result<(), SpecError> {
        positive(format!("{at}.count"), group.count.into())?;
        positive(format!("{at}.targets"), group.targets.len() as u64)?;
        positive(format!("{at}.open_datafiles"), group.open_datafiles.into())?;
        for (index, target) in group.targets.iter().enumerate() {
            let at = format!("{at}.targets[{index}]");
            if target.class.is_empty() {
                return Err(SpecError::new(format!("{at}.class"), "give a name, such as \"hdd\""));
            }
            device::disk(&self.profiles, &target.profile, self.seed)
                .map_err(|error| SpecError::new(format!("{at}.profile"), error.why))?;
            positive(format!("{at}.queue_depth"), target.queue_depth.into())?;
            positive(format!("{at}.capacity"), target.capacity.0)?;
            if let Some(ibridge) = &target.ibridge {
                ibridge.check(&format!("{at}.ibridge"), &self.profiles, self.seed)?;
            }
        }
        Ok(())
    }

    fn check_metadata(&self, servers: u64) -> Result<(), SpecError> {
        match (self.metadata.server, &self.metadata.profile) {
            (Some(server), _) if u64::from(server) >= servers => {
                let why = format!("there are only {servers} servers, counted from 0");
                return Err(SpecError::new("metadata.server", why));
            }
            (None, None) => {
                let why =
                    "a server of its own needs a disk: name a profile, or a server whose disk it shares";
                return Err(SpecError::new("metadata.profile", why));
            }
            (_, Some(profile)) => {
                device::disk(&self.profiles, profile, self.seed)
                    .map_err(|error| SpecError::new("metadata.profile", error.why))?;
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    fn check_layout(&self) -> Result<(), SpecError> {
        let classes: Vec<&str> = self
            .servers
            .iter()
            .flat_map(|group| &group.targets)
            .map(|target| target.class.as_str())
            .collect();
        let known = |class: &str| classes.contains(&class);
        let mut names = classes.clone();
        names.sort_unstable();
        names.dedup();
        let unknown = |field: &str, class: &str| {
            let why = format!("no target is of class {class:?}; there are {}", names.join(", "));
            SpecError::new(field, why)
        };
        if let Some(class) = self.layout.class.as_deref().filter(|class| !known(class)) {
            return Err(unknown("layout.class", class));
        }
        if let Some(class) = self.layout.stripe_sizes.keys().find(|class| !known(class)) {
            return Err(unknown("layout.stripe_sizes", class));
        }
        let nothing = |sizes: &BTreeMap<String, Size>| sizes.values().all(|size| size.0 == 0);
        if !self.layout.stripe_sizes.is_empty() && nothing(&self.layout.stripe_sizes) {
            return Err(SpecError::new("layout.stripe_sizes", "one class at least needs more than 0 bytes"));
        }
        if self.layout.tail.is_none() && !self.layout.tails.is_empty() {
            return Err(SpecError::new("layout.tails", "they follow `tail`: say this, too"));
        }
        let mut before = 0;
        for tail in self.layout.tail.iter().chain(&self.layout.tails) {
            positive("layout.tail.from", tail.from.0)?;
            if tail.from.0 <= before {
                let why = "each begins behind the one before it";
                return Err(SpecError::new("layout.tails", why));
            }
            before = tail.from.0;
            if self.layout.stripe_sizes.is_empty() {
                let why = "it follows `stripe_sizes`: say these, too";
                return Err(SpecError::new("layout.tail", why));
            }
            if let Some(class) = tail.stripe_sizes.keys().find(|class| !known(class)) {
                return Err(unknown("layout.tail.stripe_sizes", class));
            }
            if nothing(&tail.stripe_sizes) {
                let why = "one class at least needs more than 0 bytes";
                return Err(SpecError::new("layout.tail.stripe_sizes", why));
            }
        }
        positive("layout.stripe_size", self.layout.stripe_size.0)
    }
}

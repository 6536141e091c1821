//! Description of a cluster.

use crate::cache::CacheSpec;
use crate::device;
use crate::ibridge::IbridgeSpec;
use crate::locking::{DelegatesSpec, LockingSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use weft_core::Module;
use weft_core::{CompressionSetting, Nanos, TargetId};
use weft_env::Coding;
use weft_workload::Size;

/// Maximum number of servers in a cluster.
const SERVERS_MAX: u32 = 10_000;
/// Maximum number of processes on a compute node.
const PROCESSES_MAX: u32 = 1 << 20;

/// Description of a cluster and its simulation. Every field has a default: eight servers with one simple disk each, and
/// a separate metadata server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSpec {
    /// Seed of everything the description leaves open: session numbers, boot times of machines and, with `shuffle`, the
    /// order of simultaneous events.
    pub seed: u64,
    /// Whether payloads are simulated as bytes or as lengths only. Lengths are much faster and give the same times.
    pub payload: Payload,
    /// Whether simultaneous events run in a random order that the seed determines, instead of first come, first served.
    pub shuffle: bool,
    /// Profile name of the network.
    pub network: String,
    /// Network parameters that replace the profile.
    pub network_figures: Option<weft_models::NetworkSpec>,
    /// Additional device profiles, such as those that `weft profile` writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<weft_models::Profile>,
    /// Number of client processes on each compute node.
    pub processes_per_node: u32,
    /// Groups of data servers.
    pub servers: Vec<ServerSpec>,
    /// Location of the metadata.
    pub metadata: MetadataSpec,
    /// Layout of new files.
    pub layout: LayoutSpec,
    /// Compression of new files.
    pub compression: CompressionSpec,
    /// Options of the clients.
    pub client: ClientSpec,
    /// A modelled locking file system in the place of Weft's servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locking: Option<LockingSpec>,
    /// Delegates between the ranks and the locking file system.
    #[serde(skip_serializing_if = "DelegatesSpec::is_off")]
    pub delegates: DelegatesSpec,
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
            compression: CompressionSpec::default(),
            client: ClientSpec::default(),
            locking: None,
            delegates: DelegatesSpec::default(),
        }
    }
}

/// Representation of payloads in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Lengths only.
    #[default]
    Lengths,
    /// Real bytes.
    Bytes,
}

/// A group of equal servers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSpec {
    /// Number of servers in the group.
    pub count: u32,
    /// Targets of each server, each on a separate disk.
    pub targets: Vec<TargetSpec>,
    /// Maximum memory for payloads in transit.
    pub payload_memory: Size,
    /// Maximum number of datafiles that a target holds open.
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
    /// Class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
    /// Profile name of the disk.
    pub profile: String,
    /// I/O module of the target.
    pub module: Module,
    /// Maximum number of requests that run on the target at once.
    pub queue_depth: u32,
    /// Capacity of the disk.
    pub capacity: Size,
    /// An SSD beside the disk for small requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibridge: Option<IbridgeSpec>,
    /// A read and write cache on an SSD beside the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSpec>,
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
            cache: None,
        }
    }
}

impl TargetSpec {
    /// Returns the description of iBridge if any request can go to its SSD.
    pub(crate) fn ibridge_in_use(&self) -> Option<&IbridgeSpec> {
        self.ibridge.as_ref().filter(|ibridge| ibridge.is_on())
    }

    /// Returns the profile of the SSD that iBridge and the cache use; `None` if both are off.
    pub(crate) fn ssd_profile(&self) -> Option<&str> {
        let of_cache =
            || self.cache.as_ref().filter(|cache| cache.is_on()).map(|cache| cache.profile.as_str());
        self.ibridge_in_use().map(|ibridge| ibridge.profile.as_str()).or_else(of_cache)
    }
}

/// Location of the metadata.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataSpec {
    /// Number of the data server that also serves metadata. `None` adds a separate metadata server.
    pub server: Option<u32>,
    /// Profile name of a separate metadata disk. `None` keeps the database on the disk of the server's first target.
    pub profile: Option<String>,
}

impl Default for MetadataSpec {
    fn default() -> Self {
        Self { server: None, profile: Some(device::SIMPLE.to_owned()) }
    }
}

/// Layout of new files.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayoutSpec {
    /// Stripe size.
    pub stripe_size: Size,
    /// Number of targets of a file. `None` means all.
    pub stripe_count: Option<u32>,
    /// Class to which the targets are limited.
    pub class: Option<String>,
    /// Stripe size by class over all targets, instead of the three fields above. A class that is missing or has size 0
    /// gets no bytes.
    pub stripe_sizes: BTreeMap<String, Size>,
    /// Layout of the range after the part that `stripe_sizes` describes.
    pub tail: Option<TailSpec>,
    /// Layouts of further ranges after `tail`, each from its offset on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<TailSpec>,
}

/// Layout of the rest of a file from an offset on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailSpec {
    /// Offset at which this range begins.
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

/// Compression of new files. Payloads are lengths, so their ratio is given.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressionSpec {
    /// Setting, as of `weft setstripe --compress`.
    pub setting: String,
    /// Stored bytes per byte, from 0 for zeros to 1 for incompressible bytes.
    pub ratio: f64,
    /// Speed of the servers' processors, in multiples of the one that the codecs were measured on.
    pub speed: f64,
}

impl Default for CompressionSpec {
    fn default() -> Self {
        Self { setting: "off".to_owned(), ratio: 0.5, speed: 1.0 }
    }
}

impl CompressionSpec {
    /// Returns the setting.
    ///
    /// # Errors
    /// An unknown setting.
    pub fn setting(&self) -> Result<CompressionSetting, SpecError> {
        self.setting.parse().map_err(|why: String| SpecError::new("compression.setting", why))
    }

    /// Returns the model of the servers' codecs.
    pub fn coding(&self) -> Coding {
        Coding { ratio: self.ratio, speed: self.speed }
    }
}

/// Options of the clients.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSpec {
    /// Length in bytes below which sub-requests are marked as fragments and requests as small. 0 marks none.
    pub fragments_below: Size,
    /// Whether messages carry payload checksums. Needs `payload = "bytes"`.
    pub checksums: bool,
    /// Seconds that a server may be silent during a request. The default is far longer than in a real cluster, so that
    /// an overloaded cluster appears slow instead of broken.
    pub request_timeout_s: u64,
    /// Nanoseconds of processor time per hop of a barrier. A barrier of n ranks costs this times the binary logarithm
    /// of n, rounded up.
    pub barrier_hop_ns: u64,
    /// Mean microseconds that a process computes before each operation. Each pause is exponentially distributed. With
    /// 0, identical processes stay in lockstep forever, which real processes never do.
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

/// Error in the description of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cluster: {field}: {why}")]
pub struct SpecError {
    /// Path of the field in the description.
    pub field: String,
    /// Description of the error, and a valid alternative.
    pub why: String,
}

impl SpecError {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

pub(crate) fn positive(field: impl Into<String>, value: u64) -> Result<(), SpecError> {
    if value == 0 { Err(SpecError::new(field, "give at least 1")) } else { Ok(()) }
}

impl ClusterSpec {
    /// Returns the data servers in the order of their numbers.
    pub fn data_servers(&self) -> impl Iterator<Item = &ServerSpec> {
        self.servers.iter().flat_map(|group| std::iter::repeat_n(group, group.count as usize))
    }

    /// Returns the time that a barrier of `ranks` takes after the last rank has arrived.
    pub fn barrier_cost(&self, ranks: u32) -> Nanos {
        Nanos(self.client.barrier_hop_ns * u64::from(u32::BITS - ranks.saturating_sub(1).leading_zeros()))
    }

    /// Returns the seed of a target's disk. Seeds differ because disks with equal seeds would rotate in step.
    pub fn disk_seed(&self, target: TargetId) -> u64 {
        self.seed ^ (u64::from(target.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Checks that this describes a cluster that can be built.
    ///
    /// # Errors
    /// The first invalid field.
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
        self.check_compression()?;
        self.check_locking()?;
        if self.client.checksums && self.payload == Payload::Lengths {
            let why = "payloads of lengths only have no bytes to verify: write false, or payload = \"bytes\"";
            return Err(SpecError::new("client.checksums", why));
        }
        if !(0.0..=1e9).contains(&self.client.pause_us) {
            return Err(SpecError::new("client.pause_us", "give a number from 0 to 10^9"));
        }
        positive("client.request_timeout_s", self.client.request_timeout_s)
    }

    fn check_locking(&self) -> Result<(), SpecError> {
        self.delegates.check()?;
        match &self.locking {
            Some(_) if self.payload == Payload::Bytes => {
                Err(SpecError::new("locking", "its files have lengths only: write payload = \"lengths\""))
            }
            Some(locking) => locking.check(&self.profiles),
            None if self.delegates.count > 0 => {
                Err(SpecError::new("delegates.count", "delegates need a locking file system: add `locking`"))
            }
            None => Ok(()),
        }
    }

    fn check_compression(&self) -> Result<(), SpecError> {
        let CompressionSpec { ratio, speed, .. } = self.compression;
        if self.compression.setting()? != CompressionSetting::Off && self.payload == Payload::Bytes {
            let why =
                "the bytes that ranks write are zeros: write payload = \"lengths\", or setting = \"off\"";
            return Err(SpecError::new("compression.setting", why));
        }
        if !(0.0..=1.0).contains(&ratio) {
            return Err(SpecError::new("compression.ratio", "give a number from 0 to 1"));
        }
        if !(1e-6..=1e6).contains(&speed) {
            return Err(SpecError::new("compression.speed", "give a number from 10^-6 to 10^6"));
        }
        Ok(())
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
            if let Some(cache) = &target.cache {
                cache.check(&format!("{at}.cache"), &self.profiles, self.seed)?;
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
                let why = "a separate server needs a disk: name a profile, or a server whose disk it shares";
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
            return Err(SpecError::new("layout.stripe_sizes", "give at least one class more than 0 bytes"));
        }
        if self.layout.tail.is_none() && !self.layout.tails.is_empty() {
            return Err(SpecError::new("layout.tails", "`tails` follow `tail`: add `tail`"));
        }
        let mut before = 0;
        for tail in self.layout.tail.iter().chain(&self.layout.tails) {
            positive("layout.tail.from", tail.from.0)?;
            if tail.from.0 <= before {
                let why = "offsets must increase: give each tail a larger `from` than the one before";
                return Err(SpecError::new("layout.tails", why));
            }
            before = tail.from.0;
            if self.layout.stripe_sizes.is_empty() {
                let why = "a tail follows `stripe_sizes`: add `stripe_sizes`";
                return Err(SpecError::new("layout.tail", why));
            }
            if let Some(class) = tail.stripe_sizes.keys().find(|class| !known(class)) {
                return Err(unknown("layout.tail.stripe_sizes", class));
            }
            if nothing(&tail.stripe_sizes) {
                let why = "give at least one class more than 0 bytes";
                return Err(SpecError::new("layout.tail.stripe_sizes", why));
            }
        }
        positive("layout.stripe_size", self.layout.stripe_size.0)
    }
}

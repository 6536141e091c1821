//! The cluster for which a plan is made.

use super::capacity;
use super::present::InForce;
use crate::commands::profile::{cluster as measured, devices, now_s};
use crate::commands::twin;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_config::Cluster;
use weft_core::placement::{ClassFilter, Factor, Placement};
use weft_estimate::EstimateError;
use weft_estimate::measure::{ERROR_OF_MODEL, Missing, Report};
use weft_models::{NetworkSpec, Profile};
use weft_planner::figures::Class;
use weft_planner::{Bytes, Figures, Plan};
use weft_twin::{ClusterSpec, LayoutSpec, ServerSpec, TargetSpec};
use weft_workload::Size;

/// A cluster in the form that the planner and the twin use.
pub struct Target {
    /// Parameters of the cluster.
    pub figures: Figures,
    /// The cluster on the twin, if its devices are known.
    pub twin: Option<ClusterSpec>,
    /// Assumptions.
    pub notes: Vec<String>,
    /// Where the present layouts are known; `None` for a description of a cluster.
    pub in_force: Option<InForce>,
}

impl From<EstimateError> for Failure {
    fn from(error: EstimateError) -> Self {
        Self::misuse("--cluster", error)
    }
}

impl Target {
    /// Reads a description of any kind. `bytes` is the total size of the planned files. The capacity of a running
    /// cluster is the capacity that it has for the files `traced`; without these, no server is asked.
    pub fn read(
        file: Option<PathBuf>,
        profiles: &[(String, String)],
        network: Option<&str>,
        capacities: &BTreeMap<String, u64>,
        bytes: u64,
        traced: Option<&[String]>,
    ) -> Result<Self, Failure> {
        let file = match file {
            Some(file) => file,
            None => Cluster::find()?,
        };
        let text = std::fs::read_to_string(&file).map_err(|error| {
            Failure::misuse(file.display(), error).remedy("--cluster names the cluster that is planned for")
        })?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| Failure::misuse(file.display(), error))?;
        let is_real = table.contains_key("server") || table.contains_key("cluster");
        let is_figures = ["figures", "classes", "rules"].iter().any(|key| table.contains_key(*key));
        for (option, given) in [("--profile", !profiles.is_empty()), ("--network", network.is_some())] {
            if given && (is_figures || !is_real) {
                let why = format!("{} already describes its devices and network", file.display());
                return Err(Failure::misuse(option, why).remedy("this option is for cluster files"));
            }
        }
        if table.contains_key("figures") {
            let report = Report::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(report.figures, capacities);
        }
        if table.contains_key("classes") {
            let figures = Figures::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(figures, capacities);
        }
        if table.contains_key("rules") {
            let plan = Plan::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(plan.cluster, capacities);
        }
        if is_real {
            return Self::real(&file, profiles, network, capacities, bytes, traced);
        }
        let spec = twin::cluster::read(&file)?;
        spec.check().map_err(|error| Failure::misuse(file.display(), error))?;
        let figures = weft_estimate::of_twin(&spec, capacities, bytes)?;
        Ok(Self { figures, twin: Some(spec), notes: Vec::new(), in_force: None })
    }

    /// The cluster on which alternatives are tried.
    ///
    /// # Errors
    /// There is none.
    pub fn twin(&self) -> Result<&ClusterSpec, Failure> {
        self.twin.as_ref().ok_or_else(|| {
            Failure::misuse("--verify", "a file of figures is not a cluster")
                .remedy("plan for a cluster of the twin or a cluster file")
        })
    }

    /// The cluster on which SSDs are tried, and further assumptions. A file of figures is taken as a cluster with the
    /// usual device of each class.
    ///
    /// # Errors
    /// The figures do not show the kind of device of a class.
    pub fn twin_or_usual(&self) -> Result<(ClusterSpec, Vec<String>), Failure> {
        if let Some(twin) = &self.twin {
            return Ok((twin.clone(), Vec::new()));
        }
        let mut spec = ClusterSpec {
            network_figures: Some(network_of(&self.figures.network)?),
            processes_per_node: self.figures.processes_per_node,
            layout: layout(&Placement::default()),
            servers: Vec::new(),
            ..ClusterSpec::default()
        };
        let mut notes = Vec::new();
        for class in &self.figures.classes {
            let profile = usual(&class.name, Some(class))?;
            notes.push(format!("targets of class {} are assumed to be like {profile}", class.name));
            let target = TargetSpec {
                class: class.name.clone(),
                profile: profile.to_owned(),
                ..TargetSpec::default()
            };
            spec.servers.push(ServerSpec {
                count: class.targets,
                targets: vec![target],
                ..ServerSpec::default()
            });
        }
        spec.check().map_err(|error| Failure::misuse("--cluster", error))?;
        Ok((spec, notes))
    }

    /// A file system on one disk, for replicas of files outside of Weft. `profile` is the disk's profile.
    pub fn disk(profile: Option<&str>, bytes: u64) -> Result<Self, Failure> {
        let profile = profile.unwrap_or("hdd-7200");
        Profile::by_name(profile).map_err(|why| Failure::misuse("--profile", why))?;
        let target =
            TargetSpec { class: "hdd".to_owned(), profile: profile.to_owned(), ..TargetSpec::default() };
        let server = ServerSpec { count: 1, targets: vec![target], ..ServerSpec::default() };
        let spec =
            ClusterSpec { network: "simple".to_owned(), servers: vec![server], ..ClusterSpec::default() };
        let figures = weft_estimate::of_twin(&spec, &BTreeMap::new(), bytes)?;
        let note = format!(
            "no cluster is configured: the file system is assumed to be one {profile}; --profile hdd=NAME names another \
             disk, --cluster FILE describes servers"
        );
        Ok(Self { figures, twin: Some(spec), notes: vec![note], in_force: None })
    }

    fn figures(mut figures: Figures, capacities: &BTreeMap<String, u64>) -> Result<Self, Failure> {
        for (class, capacity) in capacities {
            let found = figures.classes.iter_mut().find(|known| known.name == *class);
            let found =
                found.ok_or_else(|| Failure::misuse("--capacity", format!("there is no class {class:?}")))?;
            found.capacity = Some(Bytes(*capacity));
        }
        Ok(Self { figures, twin: None, notes: Vec::new(), in_force: None })
    }

    /// Converts a cluster file to a cluster of the twin, with emulated devices or the usual device of each class.
    fn real(
        file: &Path,
        profiles: &[(String, String)],
        network: Option<&str>,
        capacities: &BTreeMap<String, u64>,
        bytes: u64,
        traced: Option<&[String]>,
    ) -> Result<Self, Failure> {
        let cluster = Cluster::load(file)?;
        if let Some(name) = network.filter(|name| *name != "simple") {
            NetworkSpec::by_name(name).map_err(|why| Failure::misuse("--network", why))?;
        }
        for (class, profile) in profiles {
            let option = format!("--profile {class}={profile}");
            if !cluster.map().targets.iter().any(|target| target.class == *class) {
                return Err(Failure::misuse(option, "no target has this class"));
            }
            if !profile.contains('/') {
                Profile::by_name(profile).map_err(|why| Failure::misuse(option, why))?;
            }
        }
        let mut notes = Vec::new();
        let measured = measured::figures(&cluster)?;
        let mut spec = ClusterSpec {
            network: network.unwrap_or(NETWORK).to_owned(),
            servers: Vec::new(),
            layout: layout(&cluster.placement),
            ..ClusterSpec::default()
        };
        // Without a link there is no measured network.
        let has_network = |report: &&Report| network.is_none() && !report.network.is_empty();
        match measured.as_ref().filter(has_network) {
            Some(report) => spec.network_figures = Some(network_of(&report.figures.network)?),
            None => notes.push(format!("the network is assumed to be {}", spec.network)),
        }
        for server in &cluster.servers {
            let mut targets = Vec::new();
            for target in &server.targets {
                let named =
                    profiles.iter().find(|(class, _)| *class == target.class).map(|(_, name)| name.clone());
                let named = named.or_else(|| target.emulate.as_ref().map(ToString::to_string));
                let profile = match named {
                    Some(profile) => profile,
                    None => {
                        let mut classes = measured.iter().flat_map(|report| &report.figures.classes);
                        let found = classes.find(|class| class.name == target.class);
                        let usual = usual(&target.class, found)?;
                        let note =
                            format!("targets of class {} are assumed to be like {usual}", target.class);
                        // The planner uses measured values. The twin needs a device.
                        let note = match found {
                            Some(_) => format!("on the twin {note}"),
                            None => format!("{note}; `weft profile --quick` measures them in about 8 s"),
                        };
                        if !notes.contains(&note) {
                            notes.push(note);
                        }
                        usual.to_owned()
                    }
                };
                add_profile(&mut spec, &profile)?;
                targets.push(TargetSpec { class: target.class.clone(), profile, ..TargetSpec::default() });
            }
            if !targets.is_empty() {
                spec.servers.push(ServerSpec { count: 1, targets, ..ServerSpec::default() });
            }
        }
        spec.check().map_err(|error| Failure::misuse(file.display(), error))?;
        let mut limits = limited(&cluster);
        let mut weft = None;
        if let Some(traced) = traced {
            let left = capacity::left(&cluster, traced, bytes);
            limits.extend(left.capacities);
            let is_open = |class: &String| !capacities.contains_key(class);
            weft = left.weft;
            notes.extend(left.notes.into_iter().filter(|(class, _)| is_open(class)).map(|(_, note)| note));
        }
        limits.extend(capacities.iter().map(|(class, capacity)| (class.clone(), *capacity)));
        let capacities = &limits;
        let mut figures = weft_estimate::of_twin(&spec, capacities, bytes)?;
        if let Some(report) = &measured {
            let is_configured = |class: &str| profiles.iter().any(|(named, _)| named == class);
            take(&mut figures, report, &cluster, &is_configured, &mut notes);
            figures.processor = report.figures.processor.filter(|_| network.is_none());
        }
        if profiles.is_empty() {
            let known = measured.as_ref().map(|report| report.figures.classes.as_slice()).unwrap_or_default();
            devices::take(&mut figures.classes, &cluster, known);
        }
        state_errors(&mut figures, &cluster, profiles);
        Ok(Self { figures, twin: Some(spec), notes, in_force: Some(InForce { cluster, weft }) })
    }
}

/// Returns the capacity of each class as limited by the cluster file. If targets differ, the least.
fn limited(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut capacities: BTreeMap<String, u64> = BTreeMap::new();
    for target in cluster.servers.iter().flat_map(|server| &server.targets) {
        if let Some(capacity) = target.capacity {
            let least = capacities.entry(target.class.clone()).or_insert(capacity.0);
            *least = capacity.0.min(*least);
        }
    }
    capacities
}

/// Default network.
const NETWORK: &str = "100gbe";

/// Replaces parameters of models by measured ones, except for classes that options configure.
fn take(
    figures: &mut Figures,
    report: &Report,
    cluster: &Cluster,
    is_configured: &dyn Fn(&str) -> bool,
    notes: &mut Vec<String>,
) {
    let when = |class| match now_s().saturating_sub(report.measured_s(class)) / 86_400 {
        0 => "today".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    };
    let mut count = 0;
    for class in figures.classes.iter_mut().filter(|class| !is_configured(&class.name)) {
        let Some(found) = report.class(&class.name) else {
            notes.push(format!("class {} was not measured: run `weft profile`", class.name));
            continue;
        };
        let mut targets = cluster.servers.iter().flat_map(|server| &server.targets);
        let target = targets.find(|target| target.class == class.name);
        if target.is_none_or(|target| measured::of_target(report, target).is_none()) {
            notes.push(format!(
                "class {} was measured when its targets were {}: measure again with `weft profile`",
                class.name, found.device
            ));
            continue;
        }
        let known = report.figures.classes.iter().find(|known| known.name == class.name);
        if let Some(known) = known {
            let sync_us = class.write.sync_us;
            (class.read, class.write) = (known.read.clone(), known.write.clone());
            class.error = Some(known.error.unwrap_or(ERROR_OF_MODEL));
            // Figures that are missing keep the values of the model.
            if report.lacks(&class.name, Missing::SYNC) {
                class.write.sync_us = sync_us;
            }
            if !report.lacks(&class.name, Missing::MEMORY) {
                class.memory = known.memory;
            }
            count += 1;
            let samples = found.samples;
            let unreliable = match found.unreliable() {
                (0, _) => String::new(),
                (count, all) => format!("; {count} of {all} lines are unreliable: run `weft profile` again"),
            };
            notes.push(format!(
                "class {} was measured {}, by {samples} requests{unreliable}",
                class.name,
                when(found)
            ));
        }
    }
    figures.measured = count == figures.classes.len();
}

/// Relative error for a device that is emulated, or named by an option: the planner's model of another model.
const ERROR_MODELED: f64 = 0.15;
/// Relative error for a device that is only assumed by the name of its class.
const ERROR_ASSUMED: f64 = 0.5;
/// Relative error if assumed targets share a device, too: how they slow each other down is not known.
const ERROR_SHARED: f64 = 1.0;

/// States the model's error for classes that were not measured.
fn state_errors(figures: &mut Figures, cluster: &Cluster, profiles: &[(String, String)]) {
    let assumed = if figures.shares_devices() { ERROR_SHARED } else { ERROR_ASSUMED };
    for class in figures.classes.iter_mut().filter(|class| class.error.is_none()) {
        let mut targets = cluster.servers.iter().flat_map(|server| &server.targets);
        let is_emulated = targets.any(|target| target.class == class.name && target.emulate.is_some());
        let is_named = profiles.iter().any(|(named, _)| *named == class.name);
        class.error = Some(if is_emulated || is_named { ERROR_MODELED } else { assumed });
    }
}

/// Builds a network of the twin from measured parameters.
fn network_of(measured: &weft_planner::figures::Network) -> Result<NetworkSpec, Failure> {
    let spec = NetworkSpec::by_name(NETWORK).map_err(|error| Failure::misuse("--network", error))?;
    // The planner's message time includes the latency and the processors of both ends.
    let latency_us = (measured.connect_us - 2.0 * spec.message_us).max(0.0);
    Ok(NetworkSpec { name: "measured".into(), latency_us, link_mb_s: measured.mb_s, ..spec })
}

/// Returns the usual device of a class with this name, or else of one with these figures.
fn usual(name: &str, figures: Option<&Class>) -> Result<&'static str, Failure> {
    match name {
        "hdd" => Ok("hdd-7200"),
        "ssd" | "sata-ssd" => Ok("sata-ssd"),
        "nvme" => Ok("nvme"),
        other => match figures {
            Some(figures) => Ok(if figures.read.seeks() { "hdd-7200" } else { "sata-ssd" }),
            None => Err(Failure::misuse(format!("class {other:?}"), "its targets are unknown")
                .remedy(format!("measure it with `weft profile`, or give --profile {other}=PROFILE"))),
        },
    }
}

/// Adds the profile to the cluster if `profile` is the path of a file.
pub(super) fn add_profile(spec: &mut ClusterSpec, profile: &str) -> Result<(), Failure> {
    if profile.contains('/') && !spec.profiles.iter().any(|own| own.name == profile) {
        let text = std::fs::read_to_string(profile).map_err(|error| Failure::new(profile, error))?;
        let own = Profile::from_toml(&text).map_err(|error| Failure::misuse(profile, error))?;
        spec.profiles.push(Profile { name: profile.to_owned(), ..own });
    }
    Ok(())
}

/// Returns the layout of new files in the twin's description.
fn layout(placement: &Placement) -> LayoutSpec {
    let stripe_size = Size(placement.stripe_size.0);
    let stripe_count = match placement.factor {
        Factor::All => None,
        Factor::AtMost(count) => Some(count.get().into()),
    };
    let mut layout = LayoutSpec { stripe_size, stripe_count, ..LayoutSpec::default() };
    match &placement.class {
        ClassFilter::Any => {}
        ClassFilter::Only(classes) if classes.len() == 1 => layout.class = classes.first().cloned(),
        // The twin takes several classes with all of their targets.
        ClassFilter::Only(classes) => {
            layout.stripe_sizes = classes.iter().map(|class| (class.clone(), stripe_size)).collect();
        }
    }
    layout
}

//! For which cluster is planned.

use super::room;
use crate::commands::profile::{cluster as measured, now_s};
use crate::commands::twin;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_config::Cluster;
use weft_estimate::EstimateError;
use weft_estimate::measure::{ClassReport, Report};
use weft_models::{NetworkSpec, Profile};
use weft_planner::{Bytes, Figures, Plan};
use weft_twin::{ClusterSpec, ServerSpec, TargetSpec};

/// A cluster, as the planner and the twin see it.
pub struct Target {
    /// Its figures.
    pub figures: Figures,
    /// The same on the twin, where devices are known.
    pub twin: Option<ClusterSpec>,
    /// What was assumed.
    pub notes: Vec<String>,
}

impl From<EstimateError> for Failure {
    fn from(error: EstimateError) -> Self {
        Self::misuse("--cluster", error)
    }
}

impl Target {
    /// Reads a description of any kind; `bytes` is what the files take that are planned for. Of a cluster that runs, room
    /// is what it has for the files `traced`; without these nobody is asked.
    pub fn read(
        file: Option<PathBuf>,
        profiles: &[(String, String)],
        network: Option<&str>,
        rooms: &BTreeMap<String, u64>,
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
                let why = format!("{} says itself what its devices and network are like", file.display());
                return Err(Failure::misuse(option, why).remedy("this option is for cluster files"));
            }
        }
        if table.contains_key("figures") {
            let report = Report::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(report.figures, rooms);
        }
        if table.contains_key("classes") {
            let figures = Figures::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(figures, rooms);
        }
        if table.contains_key("rules") {
            let plan = Plan::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(plan.cluster, rooms);
        }
        if is_real {
            return Self::real(&file, profiles, network, rooms, bytes, traced);
        }
        let spec = twin::cluster::read(&file)?;
        spec.check().map_err(|error| Failure::misuse(file.display(), error))?;
        let figures = weft_estimate::of_twin(&spec, rooms, bytes)?;
        Ok(Self { figures, twin: Some(spec), notes: Vec::new() })
    }

    fn figures(mut figures: Figures, rooms: &BTreeMap<String, u64>) -> Result<Self, Failure> {
        for (class, room) in rooms {
            let found = figures.classes.iter_mut().find(|known| known.name == *class);
            let found =
                found.ok_or_else(|| Failure::misuse("--room", format!("there is no class {class:?}")))?;
            found.room = Some(Bytes(*room));
        }
        Ok(Self { figures, twin: None, notes: Vec::new() })
    }

    /// A cluster file: as many servers of the twin, with the devices that are emulated or usual for a class.
    fn real(
        file: &Path,
        profiles: &[(String, String)],
        network: Option<&str>,
        rooms: &BTreeMap<String, u64>,
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
            ..ClusterSpec::default()
        };
        match measured.as_ref().filter(|_| network.is_none()) {
            Some(report) => spec.network_figures = Some(network_of(&report.figures.network)?),
            None => notes.push(format!("the network is taken to be {}", spec.network)),
        }
        for server in &cluster.servers {
            let mut targets = Vec::new();
            for target in &server.targets {
                let told =
                    profiles.iter().find(|(class, _)| *class == target.class).map(|(_, name)| name.clone());
                let told = told.or_else(|| target.emulate.as_ref().map(ToString::to_string));
                let profile = match told {
                    Some(profile) => profile,
                    None => {
                        let found = measured.as_ref().and_then(|report| report.class(&target.class));
                        let usual = usual(&target.class, found)?;
                        let note = format!("targets of class {} are taken to be like {usual}", target.class);
                        // What was measured is better for the planner; the twin needs a device.
                        let note = match found {
                            Some(_) => format!("on the twin {note}"),
                            None => note,
                        };
                        if !notes.contains(&note) {
                            notes.push(note);
                        }
                        usual.to_owned()
                    }
                };
                if profile.contains('/') && !spec.profiles.iter().any(|own| own.name == profile) {
                    let text =
                        std::fs::read_to_string(&profile).map_err(|error| Failure::new(&profile, error))?;
                    let own = Profile::from_toml(&text).map_err(|error| Failure::misuse(&profile, error))?;
                    spec.profiles.push(Profile { name: profile.clone(), ..own });
                }
                targets.push(TargetSpec { class: target.class.clone(), profile, ..TargetSpec::default() });
            }
            if !targets.is_empty() {
                spec.servers.push(ServerSpec { count: 1, targets, ..ServerSpec::default() });
            }
        }
        spec.check().map_err(|error| Failure::misuse(file.display(), error))?;
        let mut limits = limited(&cluster);
        if let Some(traced) = traced {
            let left = room::left(&cluster, traced, bytes);
            limits.extend(left.rooms);
            let told = |class: &String| !rooms.contains_key(class);
            notes.extend(left.notes.into_iter().filter(|(class, _)| told(class)).map(|(_, note)| note));
        }
        limits.extend(rooms.iter().map(|(class, room)| (class.clone(), *room)));
        let rooms = &limits;
        let mut figures = weft_estimate::of_twin(&spec, rooms, bytes)?;
        if let Some(report) = &measured {
            let told = |class: &str| profiles.iter().any(|(told, _)| told == class);
            take(&mut figures, report, &cluster, &told, &mut notes);
        }
        Ok(Self { figures, twin: Some(spec), notes })
    }
}

/// Room of each class as the cluster file limits it; where targets differ, the least.
fn limited(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut rooms: BTreeMap<String, u64> = BTreeMap::new();
    for target in cluster.servers.iter().flat_map(|server| &server.targets) {
        if let Some(room) = target.room {
            let least = rooms.entry(target.class.clone()).or_insert(room.0);
            *least = room.0.min(*least);
        }
    }
    rooms
}

/// The network where nothing is known of it.
const NETWORK: &str = "100gbe";

/// Replaces figures of models by those that were measured, but for classes of which something was told.
fn take(
    figures: &mut Figures,
    report: &Report,
    cluster: &Cluster,
    told: &dyn Fn(&str) -> bool,
    notes: &mut Vec<String>,
) {
    let when = |class| match now_s().saturating_sub(report.measured_s(class)) / 86_400 {
        0 => "today".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    };
    for class in figures.classes.iter_mut().filter(|class| !told(&class.name)) {
        let Some(found) = report.class(&class.name) else {
            notes.push(format!("class {} was not measured: `weft profile` does", class.name));
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
            (class.read, class.write) = (known.read.clone(), known.write.clone());
            let count = found.samples;
            notes.push(format!("class {} was measured {}, by {count} requests", class.name, when(found)));
        }
    }
}

/// A network of the twin with figures that were measured.
fn network_of(measured: &weft_planner::figures::Network) -> Result<NetworkSpec, Failure> {
    let spec = NetworkSpec::by_name(NETWORK).map_err(|error| Failure::misuse("--network", error))?;
    // The planner's message is the wire's latency and both ends' processors.
    let latency_us = (measured.connect_us - 2.0 * spec.message_us).max(0.0);
    Ok(NetworkSpec { name: "measured".into(), latency_us, link_mb_s: measured.mb_s, ..spec })
}

/// Small reads anywhere that take longer are seeks, microseconds.
const SEEKS_US: f64 = 2_000.0;

/// What a class of this name usually is, or one that was measured.
fn usual(class: &str, measured: Option<&ClassReport>) -> Result<&'static str, Failure> {
    match class {
        "hdd" => Ok("hdd-7200"),
        "ssd" | "sata-ssd" => Ok("sata-ssd"),
        "nvme" => Ok("nvme"),
        other => match measured {
            Some(found) => {
                let seeks = found.read.random.first().is_some_and(|depth| depth.line.startup_us > SEEKS_US);
                Ok(if seeks { "hdd-7200" } else { "sata-ssd" })
            }
            None => Err(Failure::misuse(format!("class {other:?}"), "nothing is known of its targets")
                .remedy(format!("measure it with `weft profile`, or give --profile {other}=PROFILE"))),
        },
    }
}

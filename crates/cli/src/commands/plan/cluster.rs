//! For which cluster is planned.

use crate::commands::twin;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_config::Cluster;
use weft_estimate::EstimateError;
use weft_models::Profile;
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
    /// Reads a description of any kind; `bytes` is what the files take that are planned for.
    pub fn read(
        file: Option<PathBuf>,
        profiles: &[(String, String)],
        network: &str,
        rooms: &BTreeMap<String, u64>,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let Some(file) = file.or_else(Cluster::configured) else {
            return Err(Failure::misuse("--cluster", "there is no configured cluster")
                .remedy("name one, such as what `weft twin example` prints"));
        };
        let text = std::fs::read_to_string(&file).map_err(|error| Failure::new(file.display(), error))?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| Failure::misuse(file.display(), error))?;
        if table.contains_key("classes") {
            let figures = Figures::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(figures, rooms);
        }
        if table.contains_key("rules") {
            let plan = Plan::from_toml(&text).map_err(|why| Failure::misuse(file.display(), why))?;
            return Self::figures(plan.cluster, rooms);
        }
        if table.contains_key("server") || table.contains_key("cluster") {
            return Self::real(&file, profiles, network, rooms, bytes);
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
        network: &str,
        rooms: &BTreeMap<String, u64>,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let cluster = Cluster::load(file)?;
        let mut notes = Vec::new();
        let mut spec =
            ClusterSpec { network: network.to_owned(), servers: Vec::new(), ..ClusterSpec::default() };
        notes.push(format!("the network is taken to be {network}"));
        for server in &cluster.servers {
            let mut targets = Vec::new();
            for target in &server.targets {
                let told =
                    profiles.iter().find(|(class, _)| *class == target.class).map(|(_, name)| name.clone());
                let told = told.or_else(|| target.emulate.as_ref().map(ToString::to_string));
                let profile = match told {
                    Some(profile) => profile,
                    None => {
                        let usual = usual(&target.class)?;
                        let note = format!("targets of class {} are taken to be like {usual}", target.class);
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
        let rooms = &limited(&cluster, rooms);
        let figures = weft_estimate::of_twin(&spec, rooms, bytes)?;
        Ok(Self { figures, twin: Some(spec), notes })
    }
}

/// Room of each class as the cluster file limits it (where targets differ, the least), and as was said instead.
fn limited(cluster: &Cluster, said: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut rooms: BTreeMap<String, u64> = BTreeMap::new();
    for target in cluster.servers.iter().flat_map(|server| &server.targets) {
        if let Some(room) = target.room {
            let least = rooms.entry(target.class.clone()).or_insert(room.0);
            *least = room.0.min(*least);
        }
    }
    rooms.extend(said.iter().map(|(class, room)| (class.clone(), *room)));
    rooms
}

/// What a class of this name usually is.
fn usual(class: &str) -> Result<&'static str, Failure> {
    match class {
        "hdd" => Ok("hdd-7200"),
        "ssd" | "sata-ssd" => Ok("sata-ssd"),
        "nvme" => Ok("nvme"),
        other => Err(Failure::misuse(format!("class {other:?}"), "nothing is known of its targets")
            .remedy(format!("give --profile {other}=PROFILE; `weft profile` writes one"))),
    }
}

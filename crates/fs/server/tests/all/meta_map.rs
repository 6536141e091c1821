//! The cluster map on record: random administration, starts of servers and restarts of the service, against what was
//! acknowledged.

use crate::meta_support::{Removed, cluster, config, start, user};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::random::SplitMix64;
use weft_core::{AttachToken, ByteLen, Nanos, ServerId, TargetId, TargetSettings, TargetState, TargetUuid};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Address, Env};
use weft_server::metadata::{ConnectionContext, Service};
use weft_wire::cluster::{ServerChange, ServerEntry, TargetEntry, TargetPlace};
use weft_wire::hello::SessionId;
use weft_wire::meta::*;
use weft_wire::{ClusterMap, Errno, Level, Levels};

const NAMES: u64 = 7;
const TARGETS: u64 = 10;
const STEPS: u32 = 150;
const SEEDS: u64 = 25;

/// State that the service has acknowledged.
#[derive(Default)]
struct Known {
    /// Number of each server that was ever seen in a map or a reply.
    numbers: BTreeMap<String, ServerId>,
    /// Addresses of the servers that have registered and were not removed.
    registered: BTreeMap<String, Vec<Address>>,
    /// Servers that may register for the first time.
    expected: BTreeSet<String>,
    removed: BTreeSet<String>,
    /// Server and class of the latest attach of targets that may hold data.
    attached: BTreeMap<TargetId, (String, String)>,
    tokens: BTreeMap<TargetId, AttachToken>,
    states: BTreeMap<TargetId, TargetState>,
}

struct World {
    env: SimEnv,
    service: Arc<Service<SimEnv>>,
    /// A server, run by root.
    as_server: ConnectionContext,
    known: Known,
    random: SplitMix64,
    before: Option<ClusterMap>,
}

fn name(number: u64) -> String {
    format!("s{number}")
}

/// A cluster file: the metadata server `s0`, and any others, in any order, each with some targets.
fn random_file(random: &mut SplitMix64) -> ClusterMap {
    let mut names: Vec<u64> = (1..NAMES).filter(|_| random.below(2) == 0).collect();
    names.insert(random.below(names.len() as u64 + 1) as usize, 0);
    let servers: Vec<ServerEntry> = names
        .iter()
        .map(|number| ServerEntry {
            name: name(*number),
            addresses: vec![Address::Tcp(format!("file{}", random.below(3)), 1)],
        })
        .collect();
    let mut targets = Vec::new();
    for id in 0..TARGETS {
        if random.below(3) == 0 {
            let server = ServerId(random.below(names.len() as u64) as u32);
            targets.push(TargetEntry { id: TargetId(id as u32), server, class: "file".into() });
        }
    }
    let metadata = names.iter().position(|number| *number == 0).expect("there") as u32;
    ClusterMap { servers, targets, metadata: ServerId(metadata), ..cluster() }
}

async fn started(env: &SimEnv, file: ClusterMap) -> Arc<Service<SimEnv>> {
    let mut config = config(PathBuf::from("/"));
    config.cluster = file;
    config.options.keeps_map = true;
    config.options.without_registry = false;
    start(env, config, &Removed::default()).await
}

fn connected(service: &Arc<Service<SimEnv>>) -> ConnectionContext {
    service.connected(SessionId(9), 0, user(0), 1, true)
}

impl World {
    async fn ask(&self, request: MetaRequest) -> MetaReply {
        self.service.call(&self.as_server, MetaCall { seq: 0, on_behalf: None, request }).await
    }

    async fn step(&mut self) {
        self.env.sleep(Nanos::from_ms(self.random.below(1500))).await;
        match self.random.below(10) {
            0..4 => self.start_server().await,
            4 => self.change_server(ServerChange::Add).await,
            5 => self.change_server(ServerChange::Remove).await,
            6..9 => self.change_target().await,
            _ => self.restart().await,
        }
        self.check().await;
    }

    async fn start_server(&mut self) {
        let name = name(self.random.below(NAMES));
        let addresses = vec![Address::Tcp(format!("host{}", self.random.below(4)), 7411)];
        let own =
            |(target, (server, _)): (&TargetId, &(String, String))| (*server == name).then_some(*target);
        let own: BTreeSet<TargetId> = self.known.attached.iter().filter_map(own).collect();
        let mut targets: BTreeSet<TargetId> = own.clone();
        targets.retain(|_| self.random.below(10) > 0);
        targets.extend((0..self.random.below(3)).map(|_| TargetId(self.random.below(TARGETS) as u32)));
        let format = self.random.below(8) == 0;
        let reply = self
            .ask(MetaRequest::RegisterServer {
                name: name.clone(),
                addresses: addresses.clone(),
                targets: targets.iter().copied().collect(),
                format,
                levels: Levels::KNOWN,
            })
            .await;
        let is_known = self.known.numbers.contains_key(&name) || self.known.expected.contains(&name);
        let server = match reply {
            MetaReply::Registered { server, level } => {
                assert_eq!(level, Level::LATEST);
                assert!(!self.known.removed.contains(&name), "{name} was removed");
                assert!(is_known || format, "{name} is unknown");
                assert!(own.is_subset(&targets), "{name} omits some of {own:?}");
                server
            }
            MetaReply::Failed(error) if error.errno == Errno::EINVAL => {
                assert!(!own.is_subset(&targets), "{error}");
                return;
            }
            MetaReply::Failed(error) => {
                assert_eq!(error.errno, Errno::EPERM, "{error}");
                assert!(self.known.removed.contains(&name) || !is_known, "{error}");
                return;
            }
            other => panic!("{other:?}"),
        };
        self.known.numbers.entry(name.clone()).or_insert(server);
        assert_eq!(self.known.numbers[&name], server, "{name} has another number");
        self.known.expected.remove(&name);
        self.known.registered.insert(name.clone(), addresses);
        for target in targets {
            self.attach(&name, server, target).await;
        }
    }

    /// Attaches a target as a server does that has its disk.
    async fn attach(&mut self, name: &str, server: ServerId, target: TargetId) {
        let class = format!("class{}", self.random.below(3));
        let from = self.known.tokens.get(&target).copied();
        let to = AttachToken { counter: from.map_or(1, |token| token.counter + 1), nonce: 1 };
        let settings = TargetSettings::with_capacity(ByteLen(self.random.below(1000)));
        let place = Some(TargetPlace { server, class: class.clone(), settings });
        let uuid = TargetUuid(u128::from(target.0) + 1);
        let judge = MetaRequest::JudgeTarget { target, claim: TargetClaim::Blank, format: false };
        // A disk joins where that was permitted, and attaches where it has joined.
        match (self.ask(judge).await, from) {
            (MetaReply::TargetVerdict(TargetVerdict::Join), None) => {}
            (MetaReply::TargetVerdict(TargetVerdict::Refused(TargetRefusal::Blank)), Some(_)) => {}
            (MetaReply::TargetVerdict(TargetVerdict::Refused(_)), _) => return,
            (other, from) => panic!("{target}: {other:?}, {from:?}"),
        }
        let reply = self.ask(MetaRequest::AttachTarget { target, uuid, from, to, place }).await;
        assert!(matches!(reply, MetaReply::Attached { .. }), "{target}: {reply:?}");
        self.known.tokens.insert(target, to);
        self.known.states.entry(target).or_insert(TargetState::Active);
        self.known.attached.insert(target, (name.to_owned(), class));
    }

    async fn change_server(&mut self, change: ServerChange) {
        let name = name(self.random.below(NAMES));
        let reply = self.ask(MetaRequest::ChangeServer { name: name.clone(), change }).await;
        match (change, reply) {
            (ServerChange::Add, MetaReply::ClusterMap(_)) => {
                if self.known.removed.remove(&name) {
                    self.known.registered.remove(&name);
                }
                self.known.expected.insert(name);
            }
            (ServerChange::Remove, MetaReply::ClusterMap(map)) => {
                assert_ne!(name, "s0", "the metadata server");
                assert!(self.known.attached.values().all(|(server, _)| *server != name), "{name} has data");
                assert_eq!(map.number_of(&name), None);
                self.known.registered.remove(&name);
                self.known.expected.remove(&name);
                self.known.removed.insert(name);
            }
            (ServerChange::Remove, MetaReply::Failed(error)) => {
                let has_data = self.known.attached.values().any(|(server, _)| *server == name);
                let is_unknown =
                    !self.known.numbers.contains_key(&name) && !self.known.expected.contains(&name);
                assert!(has_data || is_unknown || name == "s0", "{name}: {error}");
            }
            (_, other) => panic!("{name}: {other:?}"),
        }
    }

    async fn change_target(&mut self) {
        let target = TargetId(self.random.below(TARGETS) as u32);
        let changes = [TargetChange::Add, TargetChange::Drain, TargetChange::Activate, TargetChange::Remove];
        let change = changes[self.random.below(4) as usize];
        let reply = self.ask(MetaRequest::ChangeTarget { target, change }).await;
        if let MetaReply::Targets { targets, .. } = reply {
            let record = targets.iter().find(|record| record.target == target).expect("it is on record");
            if record.state == TargetState::Retired {
                self.known.attached.remove(&target);
            }
            if self.known.tokens.contains_key(&target) {
                self.known.states.insert(target, record.state);
            }
        }
    }

    async fn restart(&mut self) {
        self.service.disconnected(self.as_server.clone()).await;
        self.service.shutdown().await;
        let file = random_file(&mut self.random);
        self.service = started(&self.env, file).await;
        self.as_server = connected(&self.service);
        // The file may add servers and targets to the map.
        let MetaReply::ClusterMap(map) = self.ask(MetaRequest::ClusterMap).await else { panic!("a map") };
        let before = self.before.as_ref().expect("there was a map");
        for (number, entry) in before.numbered() {
            assert_eq!(map.server(number).name, entry.name, "it went with the restart");
        }
    }

    /// Compares the map with the acknowledged state.
    async fn check(&mut self) {
        let MetaReply::ClusterMap(map) = self.ask(MetaRequest::ClusterMap).await else { panic!("a map") };
        for (number, entry) in map.numbered() {
            let known = self.known.numbers.entry(entry.name.clone()).or_insert(number);
            assert_eq!(*known, number, "{} has another number", entry.name);
            assert!(!self.known.removed.contains(&entry.name), "{} was removed", entry.name);
        }
        for (name, addresses) in &self.known.registered {
            let entry = map.server(self.known.numbers[name]);
            assert_eq!((&entry.name, &entry.addresses), (name, addresses));
        }
        for (target, (server, class)) in &self.known.attached {
            let place = map.targets.iter().find(|entry| entry.id == *target).expect("it may hold data");
            assert_eq!((map.server(place.server).name.as_str(), &place.class), (server.as_str(), class));
        }
        for (target, _) in self.known.states.iter().filter(|(_, state)| **state == TargetState::Retired) {
            assert_eq!(map.server_of(*target), None, "{target} was removed");
        }
        assert_eq!(map.server(map.metadata).name, "s0");
        let before = self.before.replace((*map).clone());
        if let Some(before) = before {
            let is_same =
                ClusterMap { version: 0, ..before.clone() } == ClusterMap { version: 0, ..*map.clone() };
            assert!(map.version >= before.version && (is_same || map.version > before.version));
        }
    }
}

#[test]
fn the_map_says_what_was_acknowledged_whatever_the_cluster_files_say() {
    for seed in 0..SEEDS {
        let mut sim = Sim::with_seed(seed);
        let node = sim.node("mds");
        let env = node.clone();
        sim.block_on(&node, async move {
            let mut random = SplitMix64::new(seed);
            let service = started(&env, random_file(&mut random)).await;
            let as_server = connected(&service);
            let known = Known::default();
            let mut world = World { env, service, as_server, known, random, before: None };
            world.check().await;
            for _ in 0..STEPS {
                world.step().await;
            }
            world.service.disconnected(world.as_server).await;
            world.service.shutdown().await;
        });
    }
}

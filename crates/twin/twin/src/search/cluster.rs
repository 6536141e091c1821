//! The cluster of a fault search: machines, servers that can be restarted, and clients.

use super::judge::Judge;
use super::plan::{CachePlan, Plan, Ssd};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_client::{Client, ClientOptions, ClusterMap, Credentials, Key};
use weft_core::ibridge::Thresholds;
use weft_core::{
    ByteLen, ClassLayout, ClassPart, Component, FileId, Integrity, Layout, Nanos, ServerId, Strip, TargetId,
    TargetSettings,
};
use weft_env::sim::{Control, Sim, SimEnv};
use weft_env::{Address, Env};
use weft_models::Profile;
use weft_server::{
    CacheConfig, Hooks, IbridgeConfig, Join, Limits, LogConfig, Server, ServerConfig, ServerHandle,
    TargetConfig, metadata,
};
use weft_wire::cluster::{ServerEntry, TargetEntry};
use weft_wire::hello::Security;
use weft_wire::{ClusterSecret, SessionOwner, WalkProof};

/// User id of all processes.
const USER: u32 = 1000;
/// Pause before the next attempt to start a server.
const RESTART_PAUSE: Nanos = Nanos::from_ms(300);

/// Handle of a running server.
type Running = Arc<Mutex<Option<ServerHandle<SimEnv>>>>;

/// Counts of the starts of one server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Starts {
    /// Successful starts.
    pub done: u64,
    /// Starts in which the server refused a disk: it ran without a target, or not at all.
    pub refused: u64,
}

struct Process {
    env: SimEnv,
    running: Running,
}

/// The cluster of a fault search.
pub struct Cluster {
    /// The drawn plan.
    pub plan: Plan,
    /// Control of the simulated world.
    pub control: Control,
    judge: Judge,
    map: ClusterMap,
    /// An idle process on each machine, used to identify the machine.
    pub machines: Vec<SimEnv>,
    servers: Mutex<Vec<Process>>,
    starts: Arc<Mutex<Vec<Starts>>>,
}

fn secret() -> ClusterSecret {
    ClusterSecret::new(&[7; 32])
}

/// Returns the proof that `client` may open an inode by number. Programs use it to open files that others found.
pub fn walk_proof(client: &Client<SimEnv>, file: FileId) -> WalkProof {
    secret().prove_walk(file, client.session().bound_to(SessionOwner { uid: USER, is_server: false }))
}

/// Mount path of a target.
pub fn target_path(target: usize) -> PathBuf {
    format!("/t{target}").into()
}

/// Mount path of the SSD beside a target.
pub fn ssd_path(target: usize) -> PathBuf {
    format!("/ssd{target}").into()
}

/// Mount path of the metadata.
pub const METADATA: &str = "/meta";

fn ibridge(id: usize, ssd: &Ssd) -> IbridgeConfig {
    let curve = Profile::by_name("hdd-7200").expect("one of ours").service_curve();
    let below = ByteLen(ssd.below);
    IbridgeConfig {
        policy: ssd.policy,
        thresholds: Thresholds { fragments_below: below, random_below: below },
        idle: ssd.idle,
        dirty_high: ByteLen(ssd.dirty.0),
        dirty_low: ByteLen(ssd.dirty.1),
        preload: ssd.preload,
        ..IbridgeConfig::new(ssd_path(id), ByteLen(ssd.size), curve)
    }
}

fn cache(id: usize, ssd: &Ssd) -> Option<CacheConfig> {
    let CachePlan { mode, eviction, share, prefetch } = ssd.cache?;
    let config = match share {
        Some(share) => CacheConfig { share, ..CacheConfig::shared(mode) },
        None => {
            let IbridgeConfig { path, size, curve, idle, dirty_high, dirty_low, .. } = ibridge(id, ssd);
            let alone = CacheConfig::new(mode, path, size, curve);
            let log = alone.log.map(|log| LogConfig { idle, dirty_high, dirty_low, ..log });
            CacheConfig { log, ..alone }
        }
    };
    Some(CacheConfig { eviction, prefetch: ByteLen(prefetch), ..config })
}

impl Cluster {
    /// Builds the machines and disks. No server runs yet.
    pub fn new(sim: &Sim, plan: Plan, judge: Judge) -> Self {
        let control = sim.control();
        let machines: Vec<SimEnv> =
            (0..plan.machines).map(|machine| sim.node(&format!("m{machine}"))).collect();
        let disk = || Box::new(weft_env::sim::SimpleDisk::default());
        for target in 0..plan.targets() {
            let machine = &machines[plan.servers[plan.server_of(target)]];
            control.add_disk(machine, &target_path(target), disk());
            if plan.ssds[target].is_some() {
                control.add_disk(machine, &ssd_path(target), disk());
            }
        }
        control.add_disk(&machines[plan.servers[0]], Path::new(METADATA), disk());
        let addresses = |server: usize, machine: usize| {
            // Clients on the server's machine use the socket, all others the network.
            let host = format!("m{machine}");
            vec![Address::Unix(format!("/s{server}").into()), Address::Tcp(host, 4000 + server as u16)]
        };
        let servers = plan.servers.iter().enumerate();
        let map = ClusterMap {
            domains: Vec::new(),
            name: "search".into(),
            version: 0,
            servers: servers
                .map(|(id, &machine)| ServerEntry {
                    name: format!("s{id}"),
                    addresses: addresses(id, machine),
                })
                .collect(),
            targets: (0..plan.targets())
                .map(|id| TargetEntry {
                    id: TargetId(id as u32),
                    server: ServerId(plan.server_of(id) as u32),
                    class: plan.class(id).into(),
                })
                .collect(),
            metadata: ServerId(0),
        };
        let processes = plan.servers.iter().enumerate().map(|(id, &machine)| Process {
            env: control.process(&machines[machine], &format!("s{id}"), USER, USER),
            running: Running::default(),
        });
        let servers = Mutex::new(processes.collect());
        let starts = Arc::new(Mutex::new(vec![Starts::default(); plan.servers.len()]));
        Self { plan, control, judge, map, machines, servers, starts }
    }

    /// Number of servers.
    pub fn len(&self) -> usize {
        self.plan.servers.len()
    }

    /// Returns the targets on a machine.
    pub fn targets_on(&self, machine: usize) -> Vec<TargetId> {
        let plan = &self.plan;
        let is_there = |target: &usize| plan.servers[plan.server_of(*target)] == machine;
        (0..plan.targets()).filter(is_there).map(|id| TargetId(id as u32)).collect()
    }

    /// Whether `layout` may result from `wish` for some amount of free capacity: each component has the classes and
    /// stripe sizes of a part of `wish`.
    pub fn is_by_class(&self, layout: &Layout, wish: &ClassLayout) -> bool {
        let has = |part: &ClassPart, strip: &Strip| {
            let class = self.plan.class(strip.target.0 as usize);
            part.stripes.iter().any(|(of, stripe)| of == class && *stripe == strip.stripe_size)
        };
        let is_of = |component: &Component, part: &ClassPart| {
            let ends = match (component.end, part.end) {
                (Some(end), Some(most)) => end <= most,
                (end, most) => end.is_none() && most.is_none(),
            };
            ends && component.strips.iter().all(|strip| has(part, strip))
        };
        let mut of_wish = |component| wish.parts().iter().any(|part| is_of(component, part));
        layout.components().iter().all(&mut of_wish)
    }

    fn config(&self, id: usize) -> ServerConfig {
        let plan = &self.plan;
        let entry = &self.map.servers[id];
        let judge = self.judge.clone();
        let name = entry.name.clone();
        let starts = Arc::clone(&self.starts);
        let log = move |line: &str| {
            judge.say(|| format!("server {name}: {line}"));
            if line.contains("is refused: ") {
                starts.lock()[id].refused += 1;
            }
            if line.contains("a bug in the server") {
                judge.violated("no panic", format!("server {name}: {line}"));
            }
        };
        ServerConfig {
            server: ServerId(id as u32),
            name: entry.name.clone(),
            cluster: self.map.name.clone(),
            addresses: entry.addresses.clone(),
            secret: secret(),
            targets: plan
                .targets_of(id)
                .map(|target| TargetConfig {
                    id: TargetId(target as u32),
                    settings: weft_core::TargetSettings::default(),
                    class: plan.class(target).into(),
                    path: target_path(target),
                    module: plan.modules[target],
                    queue_depth: plan.queue_depths[target],
                    leases: plan.leases,
                    integrity: if plan.integrity { Integrity::Crc32c } else { Integrity::Off },
                    emulate: None,
                    ibridge: plan.ssds[target].filter(Ssd::has_ibridge).map(|ssd| ibridge(target, &ssd)),
                    cache: plan.ssds[target].and_then(|ssd| cache(target, &ssd)),
                })
                .collect(),
            metadata: (id == 0).then(|| {
                let mut config = metadata::Config::new(METADATA.into(), self.map.clone());
                config.options.capability_life = plan.capability_life;
                // The model of names takes each reply for durable. Earlier ones are tested in `weft-server`.
                config.options.syncs_all_names = true;
                config.options.inline_max = ByteLen(plan.inline_max);
                let limited = (0..)
                    .zip(&plan.capacities)
                    .filter_map(|(id, capacity)| Some((TargetId(id), (*capacity)?)));
                let settings = |capacity| TargetSettings::with_capacity(ByteLen(capacity));
                config.options.targets =
                    limited.map(|(target, capacity)| (target, settings(capacity))).collect();
                let by_default = plan.compression.filter(|it| it.by_default);
                config.options.compression = by_default.map(|it| it.setting);
                config.options.journal.log_len = ByteLen(plan.log_len);
                config.options.journal.cache_len = ByteLen(1 << 20);
                config
            }),
            metadata_server: Some(self.map.server(self.map.metadata).clone()),
            limits: Limits {
                open_datafiles_max: plan.open_datafiles,
                payload_memory_max: ByteLen::from_mib(4),
                ..Limits::default()
            },
            security: Security::Mac,
            idle_exit: None,
            levels: weft_wire::Levels::KNOWN,
            sample: None,
            // As an administrator does it: the first start formats the cluster.
            registers: false,
            join: if self.starts(id).done == 0 { Join::Format } else { Join::Known },
            hooks: Hooks { memory: || ByteLen(1), log: Arc::new(log), pid: 1, uid: USER, ..Hooks::none() },
        }
    }

    /// Starts a server in its process and retries until the server runs or the process dies.
    pub fn start(&self, id: usize) {
        let (env, running) = {
            let servers = self.servers.lock();
            (servers[id].env.clone(), Arc::clone(&servers[id].running))
        };
        let config = self.config(id);
        let judge = self.judge.clone();
        let starts = Arc::clone(&self.starts);
        let starter = env.clone();
        let start = move || async move {
            loop {
                match Server::start(starter.clone(), config.clone()).await {
                    Ok(handle) => {
                        judge.say(|| format!("server s{id} runs"));
                        *running.lock() = Some(handle);
                        starts.lock()[id].done += 1;
                        return;
                    }
                    Err(error) => {
                        judge.say(|| format!("server s{id} does not start: {error}"));
                        judge.hit("fault: a server did not start at once");
                        starts.lock()[id].refused += 1;
                        // A metadata server whose log has failed is restarted when all faults are healed. Until then no
                        // server can start, which is a fault of its own: operations wait for these servers.
                        if error.to_string().contains("metadata log ") {
                            judge.hit("fault: a server waits for a metadata server with a failed log");
                            judge.instant_fault();
                        } else if !judge.tolerates_errors() {
                            judge.violated("a server starts", error.to_string());
                            return;
                        }
                    }
                }
                starter.sleep(RESTART_PAUSE).await;
            }
        };
        // A process that has died since is restarted by the nemesis.
        let _ = env.spawn("start", start);
    }

    /// Returns the counts of a server's starts.
    pub fn starts(&self, id: usize) -> Starts {
        self.starts.lock()[id]
    }

    /// Whether a server's process is alive and its server runs.
    pub fn runs(&self, id: usize) -> bool {
        let servers = self.servers.lock();
        self.control.is_alive(&servers[id].env) && servers[id].running.lock().is_some()
    }

    /// Whether a server's process is alive.
    pub fn lives(&self, id: usize) -> bool {
        self.control.is_alive(&self.servers.lock()[id].env)
    }

    /// Kills a server's process.
    pub fn kill(&self, id: usize) {
        let servers = self.servers.lock();
        self.control.kill(&servers[id].env);
        *servers[id].running.lock() = None;
    }

    /// Restarts a server's process, and powers its machine on if it is off.
    pub fn restart(&self, id: usize) {
        {
            let mut servers = self.servers.lock();
            let env = self.control.restart(&servers[id].env);
            servers[id] = Process { env, running: Running::default() };
        }
        self.start(id);
    }

    /// Creates client process `number` on `machine`.
    pub fn client(&self, machine: usize, number: u32, which: usize) -> Client<SimEnv> {
        let env = self.control.process(&self.machines[machine], &format!("c{number}"), USER, USER);
        let plan = &self.plan;
        let options = ClientOptions {
            transport: plan.transports[which % plan.transports.len()],
            connect_timeout: Nanos::from_ms(500),
            request_timeout: plan.request_timeout,
            retry_for: plan.retry_for,
            lease_after_uses: plan.lease_after_uses,
            shared_payload_min: plan.shared_min,
            leases_max: 4,
            pid: number,
            ranks: Some(1 + which as u32 % 2),
            ..ClientOptions::default()
        };
        let credentials = Credentials::user(USER, USER, vec![]).with_key(Key::Cluster(Box::new(secret())));
        Client::new(env, self.map.clone(), options, credentials)
    }
}

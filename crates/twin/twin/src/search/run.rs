//! Runs one seed from start to end.

use super::actor::Actor;
use super::cluster::Cluster;
use super::coverage::Coverage;
use super::jobs;
use super::judge::{Judge, Violation};
use super::nemesis::Nemesis;
use super::plan::{Plan, Profile};
use super::verify::verify;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use weft_client::Client;
use weft_core::{Nanos, ServerId};
use weft_env::Env;
use weft_env::mutants::{AVAILABLE, Mutant};
use weft_env::sim::{Rng, Sim, SimEnv};

/// Interval at which faults and deadlines are checked.
const POLL_INTERVAL: Nanos = Nanos::from_ms(2);
/// Time after the last fault by which its effects have ended: silent connections are dropped, servers marked as dead
/// are tried again, leases have expired, and removed files are deleted.
const QUIESCE_TIME: Nanos = Nanos::from_s(100);
/// Maximum virtual time of the part with faults.
const RUN_TIME_MAX: Nanos = Nanos::from_s(3_000);

/// Options of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Length of the run.
    pub profile: Profile,
    /// Whether disks have SSDs beside them. `None`: the seed decides.
    pub ibridge: Option<bool>,
    /// Whether disks have caches on SSDs, with or without iBridge. `None`: the seed decides.
    pub cache: Option<bool>,
    /// Whether programs move files to other layouts. `None`: the seed decides.
    pub moves: Option<bool>,
    /// Whether programs change layout rules. `None`: the seed decides.
    pub rules: Option<bool>,
    /// Whether SSDs, where there are any, are smaller than the data written. `None`: the seed decides.
    pub churn: Option<bool>,
    /// Whether files have several components, some on targets with limited capacity. `None`: the seed decides.
    pub parts: Option<bool>,
    /// Whether moves are divided into pieces and may stop at any of them. `None`: the seed decides.
    pub stops: Option<bool>,
    /// Whether each server has two targets. `None`: the seed decides.
    pub pairs: Option<bool>,
    /// Whether programs punch holes into files. `None`: the seed decides.
    pub holes: Option<bool>,
    /// Whether files stay in the metadata while they are small. `None`: the seed decides.
    pub inline: Option<bool>,
    /// Whether programs create, synchronize and drop replicas of files. `None`: the seed decides.
    pub replicas: Option<bool>,
    /// Whether a program that has created a replica uses the file alone for a while. `None`: the seed decides.
    pub replica_use: Option<bool>,
    /// Whether targets keep checksums of all bytes. `None`: the seed decides.
    pub integrity: Option<bool>,
    /// Whether some files are compressed. `None`: the seed decides.
    pub compression: Option<bool>,
    /// Whether datafiles of stopped servers are removed, truncated or, with checksums, get flipped bits. `None`: no.
    pub damage: Option<bool>,
    /// Whether an administrator swaps disks of stopped servers by mistake, and later puts the right ones back. `None`:
    /// the seed decides.
    pub disks: Option<bool>,
    /// Whether a disk is lost at the end, given up, and replaced by a blank one. `None`: the seed decides.
    pub loses: Option<bool>,
    /// Whether to search a job with I/O delegates instead of a cluster.
    pub delegates: bool,
    /// Whether to keep the history of all operations.
    pub verbose: bool,
    /// Maximum number of operations of each program.
    pub steps_max: Option<u32>,
    /// Maximum number of faults.
    pub faults_max: Option<u32>,
    /// Seeded mutant to enable, in a build that has them.
    pub mutant: Option<Mutant>,
}

/// Result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash over all events. Equal for equal seeds and options.
    pub event_hash: u64,
    /// Virtual time of the whole run.
    pub elapsed: Nanos,
    /// Longest virtual time of a single operation.
    pub longest: Nanos,
    /// Counters of operations, faults and checks.
    pub coverage: Coverage,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// The history, with [`Options::verbose`].
    pub lines: Vec<String>,
}

/// A client process and its programs.
struct ClientProcess {
    number: u32,
    which: usize,
    machine: usize,
    env: SimEnv,
    /// Operations assigned to each of its programs.
    steps: u32,
    /// Programs that have ended, with their open files.
    ended: Arc<Mutex<Vec<Actor>>>,
    programs: usize,
}

/// Runs a seed.
pub fn run(seed: u64, options: Options) -> Report {
    #[cfg(feature = "mutants")]
    weft_env::mutants::seed(options.mutant);
    assert!(options.mutant.is_none() || AVAILABLE, "this build has no mutants: enable the feature `mutants`");
    let mut sim = Sim::with_seed(seed);
    let judge = Judge::new(sim.control(), options.verbose);
    let ran = catch_unwind(AssertUnwindSafe(|| match options.delegates {
        true => jobs::run_in(&mut sim, seed, options, &judge),
        false => run_in(&mut sim, seed, options, &judge),
    }));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        judge.violated("no panic", text.to_owned());
    }
    let mut coverage = judge.now(|state, _| state.coverage.clone());
    let (gave_up, states) = judge.now(|state, _| (state.names.gave_up, state.names.states_max));
    coverage.add("names: gave up", u64::from(gave_up));
    coverage.add("names: more than ten states", u64::from(states > 10));
    Report {
        seed,
        event_hash: sim.event_hash(),
        elapsed: sim.elapsed(),
        longest: judge.longest(),
        coverage,
        violation: judge.violation(),
        lines: judge.lines(),
    }
}

fn run_in(sim: &mut Sim, seed: u64, options: Options, judge: &Judge) {
    let mut rng = Rng::new(seed ^ 0x005e_ed0f_fa01);
    let mut plan = Plan::draw(&mut rng, options);
    plan.steps = plan.steps.min(options.steps_max.unwrap_or(u32::MAX));
    plan.faults_max = plan.faults_max.min(options.faults_max.unwrap_or(u32::MAX));
    judge.say(|| format!("{plan:#?}"));
    let cluster = Arc::new(Cluster::new(sim, plan, judge.clone()));
    let watcher = sim.node("judge");
    let task = SearchRun {
        cluster,
        judge: judge.clone(),
        env: watcher.clone(),
        rng,
        processes: Vec::new(),
        waiting: Vec::new(),
        clients: 0,
    };
    sim.block_on(&watcher, task.execute());
}

/// Counts what targets and their SSDs have done since the last start of their servers.
async fn count_work(judge: &Judge, client: &Client<SimEnv>) {
    for server in (0..).zip(&client.map().servers).map(|(id, _)| ServerId(id)) {
        let Ok(status) = client.status(server).await else { continue };
        for target in &status.targets {
            let (compressed, stored) = (target.bytes_compressed, target.bytes_stored);
            judge.now(|state, _| {
                state.coverage.add("compression: bytes compressed", compressed);
                state.coverage.add("compression: bytes saved", compressed.saturating_sub(stored));
            });
        }
        for ssd in status.targets.iter().filter_map(|target| target.ssd.as_ref()) {
            judge.now(|state, _| {
                for (what, count) in [
                    ("ssd: bytes written", ssd.bytes_written.0),
                    ("ssd: bytes written back", ssd.bytes_written_back.0),
                    ("ssd: bytes preloaded", ssd.bytes_preloaded.0),
                    ("ssd: bytes moved by cleaning", ssd.bytes_moved.0),
                    ("ssd: reads", ssd.read_hits + ssd.read_partial_hits),
                    ("cache: bytes hit", ssd.cache.as_ref().map_or(0, |cache| cache.bytes_hit.0)),
                    ("cache: bytes evicted", ssd.cache.as_ref().map_or(0, |cache| cache.bytes_evicted.0)),
                    ("ssd: failed", u64::from(ssd.failed.is_some())),
                ] {
                    state.coverage.add(what, count);
                }
            });
        }
    }
}

/// Time after which all capabilities have expired.
const CAPABILITIES_EXPIRED: Nanos = Nanos::from_s(7200);

struct SearchRun {
    cluster: Arc<Cluster>,
    judge: Judge,
    env: SimEnv,
    rng: Rng,
    processes: Vec<ClientProcess>,
    /// Clients to start when their machine is up: index in the plan, machine, steps.
    waiting: Vec<(usize, usize, u32)>,
    clients: u32,
}

impl SearchRun {
    async fn execute(mut self) {
        let cluster = Arc::clone(&self.cluster);
        (0..cluster.len()).for_each(|server| cluster.start(server));
        let mut nemesis = Nemesis::new(Arc::clone(&cluster), self.judge.clone(), self.rng.fork());
        nemesis.heal_all(&self.env).await;
        for which in 0..cluster.plan.clients.len() {
            let steps = cluster.plan.steps;
            self.start_client(which, cluster.plan.clients[which], steps);
        }
        self.run_with_faults(&mut nemesis).await;
        if self.judge.violation().is_some() {
            return;
        }
        nemesis.heal_all(&self.env).await;
        self.wait_for_programs(&mut nemesis).await;
        self.env.sleep(QUIESCE_TIME).await;
        self.judge.quiesced();
        self.judge.say(|| "all faults are healed and no operation is pending".into());
        if self.judge.violation().is_some() {
            return;
        }
        // Open files must still work. Run a few more operations without faults.
        for at in 0..self.processes.len() {
            if !cluster.control.is_alive(&self.processes[at].env) {
                continue;
            }
            let actors = std::mem::take(&mut *self.processes[at].ended.lock());
            self.run_programs(at, actors, 5, true);
        }
        self.wait_for_programs(&mut nemesis).await;
        if self.judge.violation().is_some() {
            return;
        }
        // Programs still have their files open, so that the lengths of some datafiles are not on record.
        if cluster.plan.loses {
            nemesis.lose_target(&self.env).await;
            self.env.sleep(QUIESCE_TIME).await;
            if self.judge.violation().is_some() {
                return;
            }
        }
        self.processes.clear();
        self.env.sleep(Nanos::from_s(60)).await;
        if cluster.plan.damage {
            // `final_check` asks for all sizes, which makes the metadata server record the lengths of all datafiles. It
            // only does so when no session that it has lost track of can write or truncate them.
            self.env.sleep(CAPABILITIES_EXPIRED).await;
            self.final_check().await;
            if self.judge.violation().is_some() {
                return;
            }
            nemesis.damage();
            nemesis.heal_all(&self.env).await;
            self.env.sleep(QUIESCE_TIME).await;
        }
        self.final_check().await;
    }

    async fn final_check(&mut self) {
        self.clients += 1;
        let client = self.cluster.client(0, self.clients, 0);
        let env = client.env().clone();
        let rng = self.rng.fork();
        let mut actor = Actor::new(Arc::clone(&self.cluster), self.judge.clone(), client, self.clients, rng);
        let done = Arc::new(Mutex::new(false));
        let is_done = Arc::clone(&done);
        let (cluster, judge) = (Arc::clone(&self.cluster), self.judge.clone());
        let task = move || async move {
            verify(&cluster, &judge, &mut actor).await;
            count_work(&judge, actor.client()).await;
            *is_done.lock() = true;
        };
        env.spawn("verify", task).expect("a new process");
        while !*done.lock() && self.judge.violation().is_none() {
            self.judge.check_liveness();
            self.env.sleep(Nanos::from_ms(10)).await;
        }
    }

    /// Runs programs and injects faults until all programs have ended.
    async fn run_with_faults(&mut self, nemesis: &mut Nemesis) {
        let plan = self.cluster.plan.clone();
        let mut faults = 0;
        let mut next = self.pause();
        while self.judge.violation().is_none() && self.are_busy() {
            if self.env_elapsed() > RUN_TIME_MAX {
                return self.judge.violated("no hang", "the programs do not end".into());
            }
            self.env.sleep(POLL_INTERVAL).await;
            nemesis.poll();
            self.judge.check_liveness();
            if faults < plan.faults_max && self.env_elapsed() >= next {
                faults += 1;
                next = self.env_elapsed().saturating_add(self.pause());
                nemesis.inject(|rng| self.kill_client(rng));
            }
            self.replace_dead_clients();
        }
    }

    fn env_elapsed(&self) -> Nanos {
        self.cluster.control.elapsed()
    }

    fn pause(&mut self) -> Nanos {
        Nanos(1 + self.rng.below(self.cluster.plan.fault_pause.0))
    }

    async fn wait_for_programs(&mut self, nemesis: &mut Nemesis) {
        while self.judge.violation().is_none() && self.are_busy() {
            self.env.sleep(POLL_INTERVAL).await;
            nemesis.poll();
            self.judge.check_liveness();
            self.replace_dead_clients();
        }
    }

    fn are_busy(&self) -> bool {
        let busy = |client: &ClientProcess| client.ended.lock().len() < client.programs;
        !self.waiting.is_empty() || self.processes.iter().any(busy)
    }

    fn start_client(&mut self, which: usize, machine: usize, steps: u32) {
        self.clients += 1;
        let number = self.clients;
        let client = self.cluster.client(machine, number, which);
        let env = client.env().clone();
        let programs = self.cluster.plan.tasks;
        self.processes.push(ClientProcess {
            number,
            which,
            machine,
            env,
            steps,
            ended: Arc::default(),
            programs,
        });
        let actors = (0..programs)
            .map(|_| {
                let rng = self.rng.fork();
                Actor::new(Arc::clone(&self.cluster), self.judge.clone(), client.clone(), number, rng)
            })
            .collect();
        self.run_programs(self.processes.len() - 1, actors, steps, false);
    }

    fn run_programs(&self, at: usize, actors: Vec<Actor>, steps: u32, finish: bool) {
        let client = &self.processes[at];
        for mut actor in actors {
            let ended = Arc::clone(&client.ended);
            let program = move || async move {
                actor.run(steps).await;
                if finish {
                    actor.finish().await;
                }
                ended.lock().push(actor);
            };
            client.env.spawn("program", program).expect("a living process");
        }
    }

    fn kill_client(&self, rng: &mut Rng) {
        if self.processes.is_empty() {
            return;
        }
        let client = &self.processes[rng.below(self.processes.len() as u64) as usize];
        self.judge.hit("fault: kill a client");
        self.judge.say(|| format!("FAULT: client {} is killed", client.number));
        self.cluster.control.kill(&client.env);
    }

    /// Replaces each client that has died by another one with half the steps.
    fn replace_dead_clients(&mut self) {
        while let Some(at) =
            self.processes.iter().position(|client| !self.cluster.control.is_alive(&client.env))
        {
            let dead = self.processes.swap_remove(at);
            self.judge.client_died(dead.number);
            self.judge.instant_fault();
            if dead.steps > 4 {
                self.waiting.push((dead.which, dead.machine, dead.steps / 2));
            }
        }
        // A machine without power starts no process.
        for (which, machine, steps) in std::mem::take(&mut self.waiting) {
            let mut servers =
                (0..self.cluster.len()).filter(|server| self.cluster.plan.servers[*server] == machine);
            let runs_none = self.cluster.plan.servers.iter().all(|on| *on != machine);
            if runs_none || servers.any(|server| self.cluster.lives(server)) {
                self.start_client(which, machine, steps);
            } else {
                self.waiting.push((which, machine, steps));
            }
        }
    }
}

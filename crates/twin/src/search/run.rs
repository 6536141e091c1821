//! One seed from its beginning to its end.

use super::actor::Actor;
use super::cluster::Cluster;
use super::coverage::Coverage;
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
use weft_env::plants::{AVAILABLE, Plant};
use weft_env::sim::{Rng, Sim, SimEnv};

/// How often the faults are looked after.
const LOOK: Nanos = Nanos::from_ms(2);
/// All that was under way when the last fault ended has ended after this long: connections that heard nothing are
/// given up, servers taken for dead tried again, leases over, removed files reaped.
const QUIET_AFTER: Nanos = Nanos::from_s(100);
/// A search ends after this long whatever happens.
const END: Nanos = Nanos::from_s(3_000);

/// How to run a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// How thorough.
    pub profile: Profile,
    /// Whether there are SSDs beside the disks; each seed decides when missing.
    pub ibridge: Option<bool>,
    /// Whether files are moved to other layouts; each seed decides when missing.
    pub moves: Option<bool>,
    /// Whether rules of directories are changed; each seed decides when missing.
    pub rules: Option<bool>,
    /// Whether what is written goes through SSDs that are too small for it, where there are any; each seed decides when
    /// missing.
    pub churn: Option<bool>,
    /// Whether files have parts, of which some lie on targets with limited room; each seed decides when missing.
    pub parts: Option<bool>,
    /// Whether moves go piece by piece and stop anywhere, where files are moved; each seed decides when missing.
    pub stops: Option<bool>,
    /// Whether each server has two targets; each seed decides when missing.
    pub pairs: Option<bool>,
    /// Whether programs make holes in files; each seed decides when missing.
    pub holes: Option<bool>,
    /// Whether targets keep checksums of all bytes; each seed decides when missing.
    pub integrity: Option<bool>,
    /// Whether datafiles below stopped servers are removed, cut or, where there are checksums, get other bits; not when
    /// missing.
    pub damage: Option<bool>,
    /// Whether an administrator takes disks of stopped servers for others, and puts the right ones back later; each seed
    /// decides when missing.
    pub disks: Option<bool>,
    /// Keep the history.
    pub verbose: bool,
    /// At most so many steps of each program.
    pub steps_max: Option<u32>,
    /// At most so many faults.
    pub faults_max: Option<u32>,
    /// A bug that it must find, in a build that has them.
    pub plant: Option<Plant>,
}

/// What came of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// It.
    pub seed: u64,
    /// Same seed, same number.
    pub event_hash: u64,
    /// Virtual time.
    pub elapsed: Nanos,
    /// The longest that any operation took, in virtual time.
    pub longest: Nanos,
    /// What was reached.
    pub coverage: Coverage,
    /// What does not hold, if anything.
    pub violation: Option<Violation>,
    /// The history, when asked for.
    pub lines: Vec<String>,
}

/// A client and its programs.
struct Living {
    number: u32,
    which: usize,
    machine: usize,
    env: SimEnv,
    /// Steps that its programs have not been told to do.
    steps: u32,
    /// Programs that have ended, with what they have open.
    ended: Arc<Mutex<Vec<Actor>>>,
    programs: usize,
}

/// Runs a seed.
pub fn run(seed: u64, options: Options) -> Report {
    #[cfg(feature = "plants")]
    weft_env::plants::plant(options.plant);
    assert!(
        options.plant.is_none() || AVAILABLE,
        "this build has no planted bugs: the feature `plants` gives them"
    );
    let mut sim = Sim::with_seed(seed);
    let judge = Judge::new(sim.control(), options.verbose);
    let ran = catch_unwind(AssertUnwindSafe(|| run_in(&mut sim, seed, options, &judge)));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        judge.violated("no panic", text.to_owned());
    }
    let mut coverage = judge.now(|state, _| state.coverage.clone());
    let (gave_up, states) = judge.now(|state, _| (state.names.gave_up, state.names.states_max));
    coverage.add("names: gave up following", u64::from(gave_up));
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
    let task = Course {
        cluster,
        judge: judge.clone(),
        env: watcher.clone(),
        rng,
        living: Vec::new(),
        waiting: Vec::new(),
        clients: 0,
    };
    sim.block_on(&watcher, task.go());
}

/// What the SSDs have done since their servers started last.
async fn count_ssds(judge: &Judge, client: &Client<SimEnv>) {
    for server in (0..).zip(&client.map().servers).map(|(id, _)| ServerId(id)) {
        let Ok(status) = client.status(server).await else { continue };
        for ssd in status.targets.iter().filter_map(|target| target.ibridge.as_ref()) {
            judge.now(|state, _| {
                for (what, count) in [
                    ("ssd: bytes written", ssd.bytes_written.0),
                    ("ssd: bytes written back", ssd.bytes_written_back.0),
                    ("ssd: bytes preloaded", ssd.bytes_preloaded.0),
                    ("ssd: bytes moved by cleaning", ssd.bytes_moved.0),
                    ("ssd: reads", ssd.read_hits + ssd.read_partial_hits),
                    ("ssd: failed", u64::from(ssd.failed.is_some())),
                ] {
                    state.coverage.add(what, count);
                }
            });
        }
    }
}

/// Capabilities have ended after this long.
const CAPABILITIES_OVER: Nanos = Nanos::from_s(7200);

struct Course {
    cluster: Arc<Cluster>,
    judge: Judge,
    env: SimEnv,
    rng: Rng,
    living: Vec<Living>,
    /// Clients to be started when their machine is up: which, where, with how many steps.
    waiting: Vec<(usize, usize, u32)>,
    clients: u32,
}

impl Course {
    async fn go(mut self) {
        let cluster = Arc::clone(&self.cluster);
        (0..cluster.len()).for_each(|server| cluster.start(server));
        let mut nemesis = Nemesis::new(Arc::clone(&cluster), self.judge.clone(), self.rng.fork());
        nemesis.mend_all(&self.env).await;
        for which in 0..cluster.plan.clients.len() {
            let steps = cluster.plan.steps;
            self.start_client(which, cluster.plan.clients[which], steps);
        }
        self.trouble(&mut nemesis).await;
        if self.judge.violation().is_some() {
            return;
        }
        nemesis.mend_all(&self.env).await;
        self.wait_for_programs(&mut nemesis).await;
        self.env.sleep(QUIET_AFTER).await;
        self.judge.quiet();
        self.judge.say(|| "all is mended and quiet".into());
        if self.judge.violation().is_some() {
            return;
        }
        // What is left open must still work, and more of the same without faults.
        for at in 0..self.living.len() {
            if !cluster.control.is_alive(&self.living[at].env) {
                continue;
            }
            let actors = std::mem::take(&mut *self.living[at].ended.lock());
            self.run_programs(at, actors, 5, true);
        }
        self.wait_for_programs(&mut nemesis).await;
        if self.judge.violation().is_some() {
            return;
        }
        self.living.clear();
        self.env.sleep(Nanos::from_s(60)).await;
        if cluster.plan.damage {
            // Whoever asks for a size then has the lengths of all datafiles recorded, as soon as no session that the metadata
            // service has lost sight of can write or cut them any more.
            self.env.sleep(CAPABILITIES_OVER).await;
            self.last_look().await;
            if self.judge.violation().is_some() {
                return;
            }
            nemesis.damage();
            nemesis.mend_all(&self.env).await;
            self.env.sleep(QUIET_AFTER).await;
        }
        self.last_look().await;
    }

    async fn last_look(&mut self) {
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
            count_ssds(&judge, actor.client()).await;
            *is_done.lock() = true;
        };
        env.spawn("verify", task).expect("a new process");
        while !*done.lock() && self.judge.violation().is_none() {
            self.judge.check_liveness();
            self.env.sleep(Nanos::from_ms(10)).await;
        }
    }

    /// Programs run and things go wrong until all programs have ended.
    async fn trouble(&mut self, nemesis: &mut Nemesis) {
        let plan = self.cluster.plan.clone();
        let mut faults = 0;
        let mut next = self.pause();
        while self.judge.violation().is_none() && self.are_busy() {
            if self.env_elapsed() > END {
                return self.judge.violated("no hang", "the programs do not end".into());
            }
            self.env.sleep(LOOK).await;
            nemesis.look();
            self.judge.check_liveness();
            if faults < plan.faults_max && self.env_elapsed() >= next {
                faults += 1;
                next = self.env_elapsed().saturating_add(self.pause());
                nemesis.strike(|rng| self.kill_client(rng));
            }
            self.replace_the_dead();
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
            self.env.sleep(LOOK).await;
            nemesis.look();
            self.judge.check_liveness();
            self.replace_the_dead();
        }
    }

    fn are_busy(&self) -> bool {
        let busy = |client: &Living| client.ended.lock().len() < client.programs;
        !self.waiting.is_empty() || self.living.iter().any(busy)
    }

    fn start_client(&mut self, which: usize, machine: usize, steps: u32) {
        self.clients += 1;
        let number = self.clients;
        let client = self.cluster.client(machine, number, which);
        let env = client.env().clone();
        let programs = self.cluster.plan.tasks;
        self.living.push(Living { number, which, machine, env, steps, ended: Arc::default(), programs });
        let actors = (0..programs)
            .map(|_| {
                let rng = self.rng.fork();
                Actor::new(Arc::clone(&self.cluster), self.judge.clone(), client.clone(), number, rng)
            })
            .collect();
        self.run_programs(self.living.len() - 1, actors, steps, false);
    }

    fn run_programs(&self, at: usize, actors: Vec<Actor>, steps: u32, finish: bool) {
        let client = &self.living[at];
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
        if self.living.is_empty() {
            return;
        }
        let client = &self.living[rng.below(self.living.len() as u64) as usize];
        self.judge.hit("fault: kill a client");
        self.judge.say(|| format!("FAULT: client {} is killed", client.number));
        self.cluster.control.kill(&client.env);
    }

    /// A client that died is followed by another one, with fewer steps.
    fn replace_the_dead(&mut self) {
        while let Some(at) = self.living.iter().position(|client| !self.cluster.control.is_alive(&client.env))
        {
            let dead = self.living.swap_remove(at);
            self.judge.client_died(dead.number);
            self.judge.fault();
            if dead.steps > 4 {
                self.waiting.push((dead.which, dead.machine, dead.steps / 2));
            }
        }
        // A machine without power starts nothing.
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

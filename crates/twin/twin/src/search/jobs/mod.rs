//! Fault search of jobs with I/O delegates: ranks with random operations on one file, real delegates, and random faults.
//!
//! | Drawn | Values |
//! | --- | --- |
//! | Job | 1 to 5 delegates, 1 to 6 ranks, policy, page length, memory, write-behind, direct requests |
//! | Machines | all processes on one machine with sockets and descriptors, or 1 to 4 machines over TCP |
//! | Faults | none, one kind, or about a third of the kinds of [`plan::JobFault`] |
//!
//! The models of files are those of the search of clusters. A delegate that is killed, and a write to the underlying
//! file that fails, may lose bytes as a loss of power does, in the ranges that they concern.
//!
//! | When | Check |
//! | --- | --- |
//! | Each read | the newest byte, or one that a fault explains; the size |
//! | Each sync or close | the underlying file has all acknowledged bytes; failed writes are reported once |
//! | Each error | a fault explains it; a dead delegate is named within 3 s |
//! | Every 2 ms | no operation exceeds its deadline |
//! | At the end | the underlying file has the newest bytes, also after a loss of power |

mod job;
mod nemesis;
mod plan;
mod rank;

use super::judge::Judge;
use super::run::Options;
use job::{FILE, Job, read_below};
use nemesis::Nemesis;
use parking_lot::Mutex;
use plan::JobPlan;
use rank::{Rank, check_bytes};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::Env;
use weft_env::sim::{Rng, Sim, SimEnv};

/// Numbers of the ranks that have finished, and whether each has synced its file.
type Finished = Arc<Mutex<Vec<(usize, bool)>>>;

/// Interval at which faults and deadlines are checked.
const POLL_INTERVAL: Nanos = Nanos::from_ms(2);
/// Maximum virtual time of the part with faults.
const RUN_TIME_MAX: Nanos = Nanos::from_s(3_000);
/// Time after the last fault by which its effects have ended: requests have timed out, and sessions have ended.
const QUIESCE_TIME: Nanos = Nanos::from_s(100);
/// Steps of each rank after the last fault.
const LAST_STEPS: u32 = 5;

/// Runs a seed.
pub fn run_in(sim: &mut Sim, seed: u64, options: Options, judge: &Judge) {
    let mut rng = Rng::new(seed ^ 0x0000_de1e_6a7e);
    let plan = JobPlan::draw(&mut rng, options);
    judge.say(|| format!("{plan:#?}"));
    let (watcher, control) = (sim.node("judge"), sim.control());
    let (env, judge) = (watcher.clone(), judge.clone());
    sim.block_on(&watcher, async move {
        let job = Arc::new(Job::start(&control, plan, &judge).await);
        JobRun { job, judge, env, rng, ranks: Vec::new() }.execute().await;
    });
}

/// Ranks that have ended their steps: `None` for one that could not start.
type Ended = Arc<Mutex<Vec<(usize, Option<Rank>)>>>;

struct JobRun {
    job: Arc<Job>,
    judge: Judge,
    env: SimEnv,
    rng: Rng,
    ranks: Vec<SimEnv>,
}

impl JobRun {
    async fn execute(mut self) {
        let mut nemesis = Nemesis::new(Arc::clone(&self.job), self.rng.fork());
        let ended = self.start_ranks();
        self.wait(&mut nemesis, true, |run| run.are_ended(&ended)).await;
        nemesis.heal_all();
        if self.judge.violation().is_some() {
            return;
        }
        self.env.sleep(QUIESCE_TIME).await;
        self.judge.quiesced();
        self.judge.say(|| "all faults are healed and no operation is pending".into());
        let ranks = std::mem::take(&mut *ended.lock());
        let ended = self.continue_ranks(ranks);
        self.wait(&mut nemesis, false, |run| run.are_ended(&ended)).await;
        let ranks = std::mem::take(&mut *ended.lock());
        let are_synced = self.finish_ranks(ranks);
        self.wait(&mut nemesis, false, |run| run.are_finished(are_synced.0, &are_synced.1)).await;
        if self.judge.violation().is_some() {
            return;
        }
        // Sessions of dead ranks have ended by now, and their bytes are written.
        self.env.sleep(Nanos::from_s(40)).await;
        let is_synced = are_synced.1.lock().iter().any(|(_, is_synced)| *is_synced);
        self.check_file(is_synced).await;
    }

    fn start_ranks(&mut self) -> Ended {
        let ended = Ended::default();
        for rank in 0..self.job.plan.ranks {
            let env = self.job.rank_process(rank);
            self.ranks.push(env.clone());
            let (job, ended, rng) = (Arc::clone(&self.job), Arc::clone(&ended), self.rng.fork());
            let steps = job.plan.steps;
            let process = env.clone();
            let program = move || async move {
                let mut started = Rank::start(job, env, rank, rng).await;
                if let Some(rank) = &mut started {
                    rank.run(steps).await;
                }
                ended.lock().push((rank as usize, started));
            };
            process.spawn("rank", program).expect("a new process");
        }
        ended
    }

    fn continue_ranks(&self, ranks: Vec<(usize, Option<Rank>)>) -> Ended {
        let ended = Ended::default();
        for (number, rank) in ranks {
            if !self.job.control.is_alive(&self.ranks[number]) {
                continue;
            }
            let ended = Arc::clone(&ended);
            let program = move || async move {
                let mut rank = rank;
                if let Some(rank) = &mut rank {
                    rank.run(LAST_STEPS).await;
                }
                ended.lock().push((number, rank));
            };
            self.ranks[number].spawn("rank", program).expect("a living process");
        }
        ended
    }

    fn finish_ranks(&self, ranks: Vec<(usize, Option<Rank>)>) -> (usize, Finished) {
        let finished = Finished::default();
        let mut count = 0;
        for (number, rank) in ranks {
            let Some(rank) = rank else { continue };
            count += 1;
            let finished = Arc::clone(&finished);
            let program = move || async move {
                let is_synced = rank.finish().await;
                finished.lock().push((number, is_synced));
            };
            self.ranks[number].spawn("rank", program).expect("a living process");
        }
        (count, finished)
    }

    fn are_finished(&self, count: usize, finished: &Mutex<Vec<(usize, bool)>>) -> bool {
        finished.lock().len() == count
    }

    /// Whether every rank has ended its steps or is dead.
    fn are_ended(&self, ended: &Ended) -> bool {
        let ended = ended.lock();
        let is_ended = |rank: usize| ended.iter().any(|(number, _)| *number == rank);
        let is_dead = |rank: usize| !self.job.control.is_alive(&self.ranks[rank]);
        (0..self.ranks.len()).all(|rank| is_dead(rank) || is_ended(rank))
    }

    /// Waits until `is_over`, and injects faults meanwhile.
    async fn wait(&mut self, nemesis: &mut Nemesis, has_faults: bool, is_over: impl Fn(&Self) -> bool) {
        let plan = self.job.plan.clone();
        let start = self.job.control.elapsed();
        let mut faults = if has_faults { 0 } else { plan.faults_max };
        let mut next = start.saturating_add(self.pause());
        while self.judge.violation().is_none() && !is_over(self) {
            let now = self.job.control.elapsed();
            if now.saturating_sub(start) > RUN_TIME_MAX {
                return self.judge.violated("no hang", "the ranks do not end".into());
            }
            self.env.sleep(POLL_INTERVAL).await;
            nemesis.poll();
            self.judge.check_liveness();
            if faults < plan.faults_max && now >= next {
                faults += 1;
                next = now.saturating_add(self.pause());
                nemesis.inject(&self.env, &self.ranks);
            }
        }
    }

    fn pause(&mut self) -> Nanos {
        Nanos(1 + self.rng.below(self.job.plan.fault_pause.0))
    }

    /// Checks the underlying file at the end, and after a loss of power if a rank has synced everything.
    async fn check_file(&self, is_synced: bool) {
        let began = self.judge.begin_read(FILE);
        match self.job.below().await {
            Ok(bytes) => check_bytes(&self.judge, "at the end", began, &bytes),
            Err(error) => self.judge.violated("errors come from faults only", error.to_string()),
        }
        if !is_synced || self.judge.violation().is_some() {
            return;
        }
        self.judge.hit("check: loss of power after a sync");
        let control = &self.job.control;
        control.power_cut(&self.job.disk);
        self.judge.say(|| "FAULT: the machine with the disk loses power".into());
        let began = self.judge.file(FILE, |model, now| {
            model.lost_bytes(0, u64::MAX, now);
            now
        });
        let disk = control.restart(&self.job.disk);
        match read_below(&disk).await {
            Ok(bytes) => check_bytes(&self.judge, "after a loss of power", began, &bytes),
            Err(error) => self.judge.violated("errors come from faults only", error.to_string()),
        }
    }
}

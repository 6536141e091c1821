//! Injects faults into a job and heals them.

use super::job::{DATA, Job};
use super::plan::JobFault;
use crate::search::judge::Judge;
use crate::search::plan::pick;
use std::path::Path;
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::sim::{DiskFaults, NetworkFaults, Rng, SimEnv};

/// A fault that lasts until it is healed.
enum Ongoing {
    Partitioned(usize, usize),
    Network,
    Disk,
}

/// Injects faults and heals them.
pub struct Nemesis {
    job: Arc<Job>,
    judge: Judge,
    rng: Rng,
    ongoing: Vec<(Nanos, Ongoing)>,
}

impl Nemesis {
    /// Creates a nemesis for a job.
    pub fn new(job: Arc<Job>, rng: Rng) -> Self {
        let judge = job.judge.clone();
        Self { job, judge, rng, ongoing: Vec::new() }
    }

    /// Injects one fault. `env` is the process of the judge, and `ranks` are those of the ranks.
    pub fn inject(&mut self, env: &SimEnv, ranks: &[SimEnv]) {
        let job = Arc::clone(&self.job);
        if job.plan.faults.is_empty() {
            return;
        }
        let index = self.rng.below(u64::from(job.plan.delegates)) as u32;
        let machines = job.machines.len() as u64;
        let (a, b) = (self.rng.below(machines) as usize, self.rng.below(machines) as usize);
        match pick(&mut self.rng, &job.plan.faults) {
            JobFault::KillDelegate if job.is_alive(index) => {
                self.begins("fault: kill a delegate", || format!("delegate {index} is killed"));
                // It stays away: an error from now on may come from it.
                self.judge.begin_fault();
                job.kill(index);
            }
            JobFault::StopDelegate if !job.gone().contains(&index) => {
                self.begins("fault: stop a delegate", || format!("delegate {index} is asked to end"));
                self.judge.begin_fault();
                job.stop(index, env);
            }
            JobFault::KillRank => {
                let rank = self.rng.below(ranks.len() as u64) as usize;
                if job.control.is_alive(&ranks[rank]) {
                    self.begins("fault: kill a rank", || format!("rank {rank} is killed"));
                    job.control.kill(&ranks[rank]);
                    self.judge.client_died(rank as u32);
                    self.judge.instant_fault();
                }
            }
            JobFault::Partition if a != b => {
                self.begins("fault: partition", || format!("m{a} and m{b} cannot reach each other"));
                job.control.partition(&job.machines[a], &job.machines[b]);
                self.lasts(Ongoing::Partitioned(a, b), &[100, 2_000, 10_000]);
            }
            JobFault::Reset if a != b => {
                self.begins("fault: reset", || format!("connections between m{a} and m{b} are reset"));
                job.control.reset_connections(&job.machines[a], &job.machines[b]);
                job.disturb(true);
                job.disturb(false);
                self.judge.instant_fault();
            }
            JobFault::Network if machines > 1 => {
                let faults = NetworkFaults {
                    losses_per_million: pick(&mut self.rng, &[0, 10_000, 100_000]),
                    jitter: Nanos(pick(&mut self.rng, &[0, 100_000, 20_000_000])),
                    resets_per_million: pick(&mut self.rng, &[0, 1000, 30_000]),
                };
                self.begins("fault: network", || format!("{faults:?}"));
                job.control.set_network_faults(faults);
                self.lasts(Ongoing::Network, &[500, 5_000]);
            }
            JobFault::DiskErrors => {
                let some = [0, 0, 20_000, 300_000];
                let faults = DiskFaults {
                    read_errors_per_million: pick(&mut self.rng, &some),
                    write_errors_per_million: pick(&mut self.rng, &some),
                    ..DiskFaults::default()
                };
                self.disk("fault: disk errors", faults);
            }
            JobFault::SlowDisk => {
                let slowness_percent = pick(&mut self.rng, &[1_000, 20_000, 100_000]);
                self.disk("fault: slow disk", DiskFaults { slowness_percent, ..DiskFaults::default() });
            }
            JobFault::FullDisk => {
                let capacity_bytes = pick(&mut self.rng, &[0, 20_000, 60_000]);
                self.disk("fault: full disk", DiskFaults { capacity_bytes, ..DiskFaults::default() });
            }
            _ => {}
        }
    }

    fn begins(&self, kind: &'static str, what: impl FnOnce() -> String) {
        self.judge.hit(kind);
        self.judge.say(|| format!("FAULT: {}", what()));
    }

    fn disk(&mut self, kind: &'static str, faults: DiskFaults) {
        self.begins(kind, || format!("{faults:?}"));
        self.job.control.set_disk_faults(&self.job.disk, Path::new(DATA), faults);
        self.lasts(Ongoing::Disk, &[50, 500, 5_000]);
    }

    fn lasts(&mut self, what: Ongoing, choices: &[u64]) {
        let ms = pick(&mut self.rng, choices);
        let until = self.job.control.elapsed().saturating_add(Nanos::from_ms(1 + self.rng.below(ms)));
        self.judge.begin_fault();
        self.job.disturb(true);
        self.ongoing.push((until, what));
    }

    /// Heals faults whose time is over.
    pub fn poll(&mut self) {
        let now = self.job.control.elapsed();
        while let Some(at) = self.ongoing.iter().position(|(until, _)| *until <= now) {
            let (_, what) = self.ongoing.swap_remove(at);
            self.heal(&what);
        }
    }

    /// Heals all faults.
    pub fn heal_all(&mut self) {
        for (_, what) in std::mem::take(&mut self.ongoing) {
            self.heal(&what);
        }
    }

    fn heal(&mut self, what: &Ongoing) {
        let job = &self.job;
        match what {
            Ongoing::Partitioned(a, b) => job.control.heal(&job.machines[*a], &job.machines[*b]),
            Ongoing::Network => job.control.set_network_faults(NetworkFaults::default()),
            Ongoing::Disk => job.control.set_disk_faults(&job.disk, Path::new(DATA), DiskFaults::default()),
        }
        self.judge.say(|| "HEALED: a fault is over".to_owned());
        self.judge.end_fault();
        job.disturb(false);
    }
}

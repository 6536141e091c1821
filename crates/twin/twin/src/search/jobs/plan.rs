//! Everything that a seed determines before the run of a job.

use crate::search::plan::{Profile, pick};
use crate::search::run::Options;
use weft_core::delegates::ownership::Policy;
use weft_core::{ByteLen, Nanos};
use weft_env::sim::Rng;
use weft_wire::delegate::JobSettings;

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobFault {
    /// A delegate is killed.
    KillDelegate,
    /// A delegate is asked to end.
    StopDelegate,
    /// A rank is killed.
    KillRank,
    /// Two machines cannot reach each other.
    Partition,
    /// Connections between two machines are reset.
    Reset,
    /// The network delays, loses and reorders messages.
    Network,
    /// Reads and writes of the underlying file fail with `EIO`.
    DiskErrors,
    /// The disk below is slow.
    SlowDisk,
    /// The disk below is full.
    FullDisk,
}

impl JobFault {
    const ALL: [Self; 9] = [
        Self::KillDelegate,
        Self::StopDelegate,
        Self::KillRank,
        Self::Partition,
        Self::Reset,
        Self::Network,
        Self::DiskErrors,
        Self::SlowDisk,
        Self::FullDisk,
    ];
}

/// A drawn job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Rule by which pages get their owners.
    pub policy: Policy,
    /// Number of delegates.
    pub delegates: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Machines beside the one with the disk. Without any, all processes run on that one, and delegates get descriptors.
    pub machines: usize,
    /// Whether processes of one machine use its sockets, if there are several machines.
    pub has_sockets: bool,
    /// Length of a page.
    pub page_len: u64,
    /// Memory of each delegate, in pages.
    pub memory_pages: u64,
    /// Consecutive pages with the same owner.
    pub group_pages: u64,
    /// Whether dirty bytes are written before a sync or close.
    pub write_behind: bool,
    /// Length of a request, in pages, from which ranks use the underlying file.
    pub direct_pages: Option<u64>,
    /// Steps of each rank.
    pub steps: u32,
    /// Longest pause between two steps.
    pub step_pause: Nanos,
    /// Possible faults.
    pub faults: Vec<JobFault>,
    /// Longest pause between two faults.
    pub fault_pause: Nanos,
    /// Maximum number of faults.
    pub faults_max: u32,
}

impl JobPlan {
    /// Draws a plan.
    pub fn draw(rng: &mut Rng, options: Options) -> Self {
        let faults = match rng.below(6) {
            0 => Vec::new(),
            1 | 2 => vec![pick(rng, &JobFault::ALL)],
            _ => JobFault::ALL.into_iter().filter(|_| rng.below(3) == 0).collect(),
        };
        let long = if options.profile == Profile::Long { 6 } else { 1 };
        let plan = Self {
            policy: pick(rng, &[Policy::Hashed, Policy::FirstTouch]),
            delegates: 1 + rng.below(5) as u32,
            ranks: 1 + rng.below(6) as u32,
            machines: pick(rng, &[0, 0, 1, 2, 3, 4]),
            has_sockets: rng.below(2) == 0,
            page_len: pick(rng, &[512, 1024, 4096]),
            memory_pages: 2 + rng.below(20),
            group_pages: pick(rng, &[1, 1, 2, 5]),
            write_behind: rng.below(3) > 0,
            direct_pages: pick(rng, &[None, Some(1), Some(4)]),
            steps: (15 + rng.below(30) as u32) * long,
            step_pause: Nanos::from_ms(pick(rng, &[1, 10, 100])),
            faults,
            fault_pause: Nanos::from_ms(pick(rng, &[20, 200, 2_000])),
            faults_max: (1 + rng.below(8) as u32) * long,
        };
        Self {
            steps: plan.steps.min(options.steps_max.unwrap_or(u32::MAX)),
            faults_max: plan.faults_max.min(options.faults_max.unwrap_or(u32::MAX)),
            ..plan
        }
    }

    /// Settings of a delegate.
    pub fn settings(&self, index: u32) -> JobSettings {
        JobSettings {
            delegates: self.delegates,
            index,
            policy: self.policy,
            group_pages: self.group_pages,
            page_len: Some(self.page_len),
            memory: ByteLen(self.memory_pages * self.page_len),
            write_behind: self.write_behind,
            direct_min: self.direct_pages.map(|pages| pages * self.page_len),
        }
    }

    /// Whether all processes run on the machine with the disk.
    pub const fn is_local(&self) -> bool {
        self.machines == 0
    }
}

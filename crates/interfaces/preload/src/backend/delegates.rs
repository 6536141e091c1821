//! The delegates of this process's job, joined at the first use of a file that they serve.

use super::RealEnv;
use crate::config::{self, variable};
use crate::errno::{Fail, Res};
use crate::lock::Lock;
use crate::{placeholder, sys};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use weft_client::{ClientOptions, Delegates, RankOf};
use weft_config::job::Job;
use weft_core::delegates::ownership::FileNumber;
use weft_env::real::block_on;
use weft_wire::hello::JobNumber;

/// Pairs of variables in which launchers pass rank and number of ranks to a process.
const RANKS: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMIX_RANK", "PMIX_SIZE"),
];

static JOINED: AtomicPtr<Delegates<RealEnv>> = AtomicPtr::new(null_mut());
static JOINING: Lock<()> = Lock::new(());

/// Whether bytes of files go through delegates.
pub fn has_delegates() -> bool {
    config::ready().is_some_and(|config| config.delegates)
}

/// Whether this process has joined the delegates.
pub fn has_joined() -> bool {
    !JOINED.load(Ordering::Relaxed).is_null()
}

/// Returns the delegates, joined at the first call.
pub fn delegates() -> Res<&'static Delegates<RealEnv>> {
    // SAFETY: once stored it is never freed.
    if let Some(joined) = unsafe { JOINED.load(Ordering::Acquire).as_ref() } {
        return Ok(joined);
    }
    let _joining = JOINING.lock();
    // SAFETY: as above.
    if let Some(joined) = unsafe { JOINED.load(Ordering::Acquire).as_ref() } {
        return Ok(joined);
    }
    let joined = Box::leak(Box::new(join()?));
    JOINED.store(joined, Ordering::Release);
    crate::lifecycle::watch_forks();
    Ok(joined)
}

fn told(error: &dyn std::fmt::Display) -> Fail {
    sys::complain(&error.to_string());
    Fail::Errno(libc::EIO)
}

/// Returns the job of this process, once its delegates serve.
fn job() -> Res<Job> {
    Ok(Job::from_env().map_err(|error| told(&error))?.ok_or(libc::EIO)?)
}

/// Returns the number of the job whose delegates transfer the bytes of this process's files.
pub fn job_number() -> Res<Option<JobNumber>> {
    has_delegates().then(|| Ok(JobNumber::of_name(&job()?.name))).transpose()
}

fn join() -> Res<Delegates<RealEnv>> {
    weft_client::set_log(sys::complain);
    let job = job()?;
    let credentials = job.credentials().map_err(|error| told(&error))?;
    let env = RealEnv::with_fd_floor(placeholder::floor());
    let options = ClientOptions { pid: std::process::id(), ..ClientOptions::default() };
    block_on(Delegates::join(env, job.map(), options, credentials, rank())).map_err(|error| told(&error))
}

/// Returns the rank of this process, if a launcher has given it one.
fn rank() -> Option<RankOf> {
    let number = |name| std::str::from_utf8(variable(name)?).ok()?.trim().parse().ok();
    RANKS
        .iter()
        .filter_map(|(rank, ranks)| Some(RankOf { rank: number(rank)?, ranks: number(ranks)? }))
        .find(|of| of.rank < of.ranks)
}

/// Returns one past the last byte that delegates hold of a file and the underlying file system does not have yet.
pub fn unwritten_end(number: FileNumber) -> Res<Option<u64>> {
    Ok(block_on(delegates()?.unwritten_end(number))?)
}

/// Replaces the connections in a forked child. The parent's stay unchanged.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process; the lock guards no data.
    unsafe { JOINING.reset() };
    // SAFETY: never freed.
    if let Some(old) = unsafe { JOINED.load(Ordering::Acquire).as_ref() } {
        JOINED.store(Box::leak(Box::new(old.after_fork_in_child())), Ordering::Release);
    }
}

//! The delegates of this process's job, joined at the first use of a file that they serve.

use super::RealEnv;
use crate::config;
use crate::errno::{Fail, Res};
use crate::lock::Lock;
use crate::{placeholder, sys};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use weft_client::{Delegates, Error};
use weft_config::job::Job;
use weft_core::delegates::ownership::FileNumber;
use weft_env::real::block_on;
use weft_wire::Errno;
use weft_wire::hello::JobNumber;

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
    has_delegates().then(|| Ok(job()?.number())).transpose()
}

/// Returns the delegates for [`DelegatedFs::join`](weft_client::DelegatedFs::join). The reason of a failure is on standard
/// error already.
pub(super) fn joined<'a>() -> weft_client::Result<&'a Delegates<RealEnv>> {
    const WHY: &str = "the delegates of the job cannot be joined";
    delegates().map_err(|fail| Error::Misuse { errno: Errno(fail.errno()), why: WHY })
}

fn join() -> Res<Delegates<RealEnv>> {
    super::prepare_clients();
    block_on(job()?.join(RealEnv::with_fd_floor(placeholder::floor()))).map_err(|error| told(&error))
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

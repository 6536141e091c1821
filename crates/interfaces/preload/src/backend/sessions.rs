//! The sessions of this process: one for each user that it was.
//!
//! The servers know the user of a session from its connections, so a process that changes its user continues in another
//! session. Open files stay in theirs, with their rights. The session of a former user connects as that user, as long as
//! the process can still become it; before it cannot any more, the session connects to all servers.

use super::{Backend, delegates, identity};
use crate::errno::Res;
use crate::lock::Lock;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use weft_env::real::block_on;
use weft_wire::hello::{Identity, SessionId};

/// The file system of the first user.
static FIRST: AtomicPtr<Backend> = AtomicPtr::new(null_mut());
/// All file systems of this process. Never freed, because open files may use them.
static ALL: Lock<Vec<&'static Backend>> = Lock::new(Vec::new());
/// Incremented in each forked child, so that files opened earlier know that their connections belong to the parent.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the file system of the calling thread's user, created at the first call.
pub fn backend() -> Res<&'static Backend> {
    if identity::has_changed() {
        return of_user(&identity::effective());
    }
    // SAFETY: once stored it is never freed.
    if let Some(made) = unsafe { FIRST.load(Ordering::Acquire).as_ref() } {
        return Ok(made);
    }
    of_user(&identity::effective())
}

/// Returns the file system of the calling thread's real user, for `access`.
pub fn of_real_user() -> Res<&'static Backend> {
    if identity::has_changed() { of_user(&identity::real()) } else { backend() }
}

fn of_user(user: &Identity) -> Res<&'static Backend> {
    let mut all = ALL.lock();
    if let Some(made) = found(&all, user) {
        return Ok(made);
    }
    let made = match all.first() {
        // The new user may not be able to read the cluster file.
        Some(first) => Backend::of_user(first.cluster.clone(), user.clone())?,
        None => Backend::new()?,
    };
    let made = Box::leak(Box::new(made));
    if all.is_empty() {
        FIRST.store(made, Ordering::Release);
    }
    all.push(made);
    drop(all);
    crate::lifecycle::watch_forks();
    Ok(made)
}

/// Returns the session of `user`. An abandoned one is of no use for a process that becomes its user again, which root may
/// do by a capability or in another thread.
fn found(all: &[&'static Backend], user: &Identity) -> Option<&'static Backend> {
    all.iter().find(|made| made.identity == *user && !made.client.is_abandoned()).copied()
}

/// Returns the file system with this session. In a forked child, that of the same user.
pub fn session(id: SessionId) -> Option<&'static Backend> {
    ALL.lock().iter().find(|made| made.sessions.contains(&id)).copied()
}

/// Before the process changes its user, perhaps for good: connects the session of the user to all servers, so that open
/// files can still be used.
pub fn before_change() {
    if !in_use() || !crate::table::any() {
        return;
    }
    // No session is made for a user that has used no file.
    let current = found(&ALL.lock(), &identity::effective());
    if let Some(backend) = current {
        // A server that is down now may be needed later; the error comes then.
        let _ = block_on(backend.client.connect_all());
    }
}

/// After the process may have changed its user.
pub fn after_change() {
    identity::note_change();
    let has_files = crate::route::cwd().is_some() || !crate::table::all(0, u32::MAX).is_empty();
    for made in ALL.lock().iter() {
        if identity::can_be(&made.identity) {
            continue;
        }
        if has_files {
            made.client.keep_connections();
        } else {
            // No connection with the rights of the former user remains in this process.
            made.client.abandon();
        }
    }
}

/// Whether this process has used Weft or delegates.
pub fn in_use() -> bool {
    !FIRST.load(Ordering::Relaxed).is_null() || delegates::has_joined()
}

/// Returns the number of forks between the first process and this one.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Creates separate file systems in a forked child. The parent's stay unchanged, with their connections.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Release);
    // SAFETY: the holder does not exist in this process. A list left in the middle of a change is complete up to its
    // length.
    unsafe { ALL.reset() };
    let mut all = ALL.lock();
    for (number, made) in all.iter_mut().enumerate() {
        *made = Box::leak(Box::new(made.after_fork_in_child()));
        if number == 0 {
            FIRST.store(std::ptr::from_ref(*made).cast_mut(), Ordering::Release);
        }
    }
    drop(all);
    delegates::after_fork_in_child();
}

//! What the hooks ask of a file system: the client of Weft, in the terms of the C library.
//!
//! ```text
//! names   by path            file      by open file
//! connect what it is made of convert   places, `stat`, links that lead out of the mount
//! ```

mod connect;
mod convert;
mod file;
mod lock_session;
mod names;

pub use file::File;
pub use lock_session::LockSession;

use crate::errno::{Fail, Res};
use crate::lock::Lock;
use crate::sys;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use weft_client::{Client, LayoutSpec, OpenFlags};
use weft_config::Cluster;
use weft_env::real::RealEnv;

/// How to open.
#[derive(Clone, Default, Debug)]
pub struct How {
    /// For what, and what is made or cut.
    pub flags: OpenFlags,
    /// A symbolic link at the end is an error.
    pub nofollow: bool,
    /// Permission bits of a new file, the umask taken off.
    pub mode: u32,
    /// Layout of a new file.
    pub spec: LayoutSpec,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode number.
    pub inode: u64,
    /// `DT_REG` and its relatives.
    pub kind: u8,
}

/// Tells whether a wait should end because a signal came.
pub type Interrupted<'a> = &'a mut dyn FnMut() -> bool;

/// A file system, by names.
pub struct Backend {
    client: Client<RealEnv>,
    cluster: Cluster,
}

impl Backend {
    /// By the cluster file that the environment means. Connects when first needed.
    fn new() -> Res<Self> {
        weft_client::set_log(sys::complain);
        let cluster = Cluster::from_env().map_err(|error| {
            sys::complain(&error.to_string());
            Fail::Errno(libc::ENOENT)
        })?;
        Ok(Self { client: connect::client(&cluster)?, cluster })
    }
}

static BACKEND: AtomicPtr<Backend> = AtomicPtr::new(null_mut());
static MAKING: Lock<()> = Lock::new(());
/// Grows in each forked child, so that files opened before know that their connections are the parent's.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The file system of this process, made at the first call that needs it.
pub fn backend() -> Res<&'static Backend> {
    // SAFETY: once stored it is never freed.
    if let Some(made) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        return Ok(made);
    }
    let _making = MAKING.lock();
    // SAFETY: as above.
    if let Some(made) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        return Ok(made);
    }
    let made = Box::leak(Box::new(Backend::new()?));
    BACKEND.store(made, Ordering::Release);
    crate::lifecycle::watch_forks();
    Ok(made)
}

/// Whether anything of ours has been used in this process.
pub fn in_use() -> bool {
    !BACKEND.load(Ordering::Relaxed).is_null()
}

/// Which fork of the process this is.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// In a forked child: a file system of its own. The parent's is left as it is, with its connections.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process; the lock guards no data.
    unsafe { MAKING.reset() };
    // SAFETY: never freed.
    if let Some(old) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        BACKEND.store(Box::leak(Box::new(old.after_fork_in_child())), Ordering::Release);
    }
    GENERATION.fetch_add(1, Ordering::Release);
}

//! File system operations for the hooks: the client of Weft and the delegates, with the types of the C library.
//!
//! ```text
//! names    operations by path          file       operations on an open file
//! connect  creation of the client      delegates  delegates of the job
//! convert  places, `stat`, links that lead out of the mount
//! ```

mod connect;
mod convert;
mod delegates;
mod file;
mod lock_session;
mod names;

pub use delegates::{delegates, has_delegates, unwritten_end};
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

/// Parameters of an open.
#[derive(Clone, Default, Debug)]
pub struct OpenRequest {
    /// Access mode and flags.
    pub flags: OpenFlags,
    /// Whether a symbolic link in the last component is an error.
    pub nofollow: bool,
    /// Permission bits of a new file, after the umask.
    pub mode: u32,
    /// Layout of a new file.
    pub spec: LayoutSpec,
}

/// Name in a directory.
#[derive(Clone, Debug)]
pub struct Name {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Type as in `d_type`, such as `DT_REG`.
    pub kind: u8,
}

/// Callback that returns true if a signal must end the wait.
pub type Interrupted<'a> = &'a mut dyn FnMut() -> bool;

/// File system, by names.
pub struct Backend {
    client: Client<RealEnv>,
    cluster: Cluster,
}

impl Backend {
    /// Creates it from the default cluster file. Connects at its first use.
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
/// Incremented in each forked child, so that files opened earlier know that their connections belong to the parent.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the file system of this process, created at the first call.
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

/// Whether this process has used Weft or delegates.
pub fn in_use() -> bool {
    !BACKEND.load(Ordering::Relaxed).is_null() || delegates::has_joined()
}

/// Returns the number of forks between the first process and this one.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Creates a separate file system in a forked child. The parent's stays unchanged, with its connections.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process; the lock guards no data.
    unsafe { MAKING.reset() };
    // SAFETY: never freed.
    if let Some(old) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        BACKEND.store(Box::leak(Box::new(old.after_fork_in_child())), Ordering::Release);
    }
    delegates::after_fork_in_child();
    GENERATION.fetch_add(1, Ordering::Release);
}

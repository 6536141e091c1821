//! What the hooks ask of a file system: the client in earnest, a local directory where only the hooks are tested.

mod local;
mod weft;

use crate::config::config;
use crate::errno::Res;
use crate::lock::Lock;
use crate::route::Spot;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use weft_core::Layout;
use weft_wire::meta::{HeldLock, LayoutSpec, LockKind, LockRange, LockSpace, SetAttr};

/// Made-up device number, so that programs see another file system.
const DEVICE: u64 = 0x7765_6674;

/// How to open.
#[derive(Clone, Default, Debug)]
pub struct How {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it when missing.
    pub create: bool,
    /// It must be missing.
    pub exclusive: bool,
    /// Cut to nothing.
    pub truncate: bool,
    /// It must be a directory.
    pub directory: bool,
    /// A symbolic link at the end is an error.
    pub nofollow: bool,
    /// Permission bits of a new file, the umask taken off.
    pub mode: u32,
    /// Layout of a new file.
    #[allow(dead_code)] // A local directory has no layouts.
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
pub trait Backend: Send + Sync {
    fn stat(&self, at: &Spot, follow: bool) -> Res<libc::stat>;
    fn open(&self, at: &Spot, how: &How) -> Res<Box<dyn File>>;
    /// Makes a node of the type in `mode` (`S_IFIFO`, `S_IFREG`, ...), the umask taken off.
    fn mknod(&self, at: &Spot, mode: u32, device: u64) -> Res<()>;
    fn mkdir(&self, at: &Spot, mode: u32) -> Res<()>;
    fn symlink(&self, at: &Spot, target: &[u8]) -> Res<()>;
    fn link(&self, from: &Spot, to: &Spot, follow: bool) -> Res<()>;
    fn unlink(&self, at: &Spot) -> Res<()>;
    fn rmdir(&self, at: &Spot) -> Res<()>;
    fn rename(&self, from: &Spot, to: &Spot, no_replace: bool, exchange: bool) -> Res<()>;
    fn readlink(&self, at: &Spot) -> Res<Vec<u8>>;
    fn set_attr(&self, at: &Spot, follow: bool, set: &SetAttr) -> Res<()>;
    fn truncate(&self, at: &Spot, size: u64) -> Res<()>;
    /// Names after `after` in the order of their bytes, without `.` and `..`, and whether there are more.
    fn list(&self, at: &Spot, after: &[u8]) -> Res<(Vec<Name>, bool)>;
    fn access(&self, at: &Spot, mask: u32, follow: bool) -> Res<()>;
    fn get_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<Vec<u8>>;
    fn set_xattr(&self, at: &Spot, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()>;
    fn list_xattr(&self, at: &Spot, follow: bool) -> Res<Vec<String>>;
    fn remove_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<()>;
    fn statfs(&self) -> Res<libc::statfs>;
    fn layout(&self, at: &Spot) -> Res<Option<Layout>>;
    /// Opens what another process described by [`File::token`].
    fn adopt(&self, token: &[u8]) -> Res<Box<dyn File>>;
    /// The file system for a forked child, which must not use the parent's connections.
    fn after_fork_in_child(&self) -> Box<dyn Backend>;
}

/// An open file or directory. Dropping it closes it.
pub trait File: Send + Sync {
    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize>;
    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize>;
    /// Writes at the end; where that was, and how much.
    fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)>;
    fn size(&self) -> Res<u64>;
    fn stat(&self) -> Res<libc::stat>;
    fn truncate(&self, size: u64) -> Res<()>;
    fn sync(&self) -> Res<()>;
    /// Takes a lock (`None` gives up) for the process or for this open file; waits when `wait` is given.
    fn lock(
        &self,
        space: LockSpace,
        by_handle: bool,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<Interrupted<'_>>,
    ) -> Res<()>;
    /// The first lock in the way.
    fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>>;
    /// The file by its inode, for what has no call on an open file.
    fn spot(&self) -> Spot;
    /// Its inode number.
    fn inode(&self) -> u64;
    fn is_directory(&self) -> bool;
    /// What another process needs to open it again.
    fn token(&self) -> Vec<u8>;
}

static BACKEND: AtomicPtr<Box<dyn Backend>> = AtomicPtr::new(null_mut());
static MAKING: Lock<()> = Lock::new(());
/// Grows in each forked child, so that files opened before know that their connections are the parent's.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The file system of this process, made at the first call that needs it.
pub fn backend() -> Res<&'static dyn Backend> {
    // SAFETY: once stored it is never freed.
    if let Some(made) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        return Ok(&**made);
    }
    let _making = MAKING.lock();
    // SAFETY: as above.
    if let Some(made) = unsafe { BACKEND.load(Ordering::Acquire).as_ref() } {
        return Ok(&**made);
    }
    let made: Box<dyn Backend> = match &config().local_root {
        Some(root) => Box::new(local::Local::new(root)),
        None => Box::new(weft::Weft::new()?),
    };
    let made = Box::leak(Box::new(made));
    BACKEND.store(made, Ordering::Release);
    crate::lifecycle::watch_forks();
    Ok(&**made)
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

//! Record locks of the process, which closing any descriptor of a file releases.

use super::Open;
use crate::guard;
use crate::lock::Lock;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_wire::meta::{LockRange, LockSpace};

// Inodes on which this process has acquired record locks. A close checks this set before it sends a request.
static LOCKED: Lock<BTreeSet<u64>> = Lock::new(BTreeSet::new());
static ANY_LOCKED: AtomicBool = AtomicBool::new(false);

/// Records that the process has a record lock on `inode`.
pub fn note_lock(inode: u64) {
    LOCKED.lock().insert(inode);
    ANY_LOCKED.store(true, Ordering::Release);
}

/// Whether the process has record locks.
pub fn has_record_locks() -> bool {
    ANY_LOCKED.load(Ordering::Acquire) && !LOCKED.lock().is_empty()
}

/// Releases all record locks of the process on the file, at the close of a descriptor; the kernel does that for a file
/// of the host. A descriptor that only names a file (`O_PATH`) releases none.
pub fn release_locks(open: &Open) {
    if !ANY_LOCKED.load(Ordering::Acquire) || open.is_host() || open.is_opened().is_err() {
        return;
    }
    let _inside = guard::enter();
    if let Ok(file) = open.file()
        && let Ok(inode) = file.inode()
        && LOCKED.lock().remove(&inode)
    {
        let _ = file.lock(LockSpace::Record, false, None, LockRange { start: 0, end: u64::MAX }, None);
    }
}

/// In a forked child, record locks stay with the parent.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process, and the value is replaced without a look at it.
    unsafe {
        LOCKED.reset();
        std::ptr::write(&mut *LOCKED.lock(), BTreeSet::new());
    }
    ANY_LOCKED.store(false, Ordering::Release);
}

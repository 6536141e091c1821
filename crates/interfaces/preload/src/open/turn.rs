//! Turns at a description: one call at a time uses its file position, and its flags for appending.
//!
//! Linux holds a lock of the description (`f_pos_lock`) during each read, write and seek. So two calls neither read the
//! same bytes nor skip any, in threads as in processes that share the description after a fork or an exec.
//!
//! Threads take turns by a lock of [`Open`]. Processes take turns by a lock of the kernel on one byte of the memory file
//! behind the placeholder, which only descriptions that another process may have need. Each process locks it through a
//! description of its own, because one description would share the lock. The kernel releases the lock of a process that
//! dies. Files of the host have no placeholder; their bytes lie in a memory file that programs inherit.

use super::{Open, flocks};
use crate::errno::Res;
use crate::lock::{Held, Lock};
use crate::{placeholder, sys};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::Ordering;
use weft_env::real::{RealEnv, RealFile};

/// This process's own descriptions of memory files behind placeholders, with their inode numbers. There is one for each
/// program image whose descriptors this process has.
static FILES: Lock<Vec<(u64, RealFile)>> = Lock::new(Vec::new());

/// Value of `Open::turn_fd` before its memory file is known.
pub const UNKNOWN: c_int = -1;
/// Value of `Open::turn_fd` if processes cannot take turns.
const NONE: c_int = -2;

/// Turn of the calling thread, which ends when dropped.
pub struct Turn<'a> {
    kernel: Option<(c_int, u64)>,
    _threads: Held<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some((fd, byte)) = self.kernel {
            let _ = sys::lock_range(fd, libc::F_OFD_SETLK, libc::F_UNLCK, byte, 1);
        }
    }
}

impl Open {
    /// Waits for the turn of this thread at the description of `fd`.
    pub fn take_turn(&self, fd: c_int) -> Turn<'_> {
        let threads = self.turn.lock();
        let kernel = if self.description.is_shared() { self.take_kernel_turn(fd) } else { None };
        Turn { kernel, _threads: threads }
    }

    #[cold]
    fn take_kernel_turn(&self, fd: c_int) -> Option<(c_int, u64)> {
        let mut own = self.turn_fd.load(Ordering::Relaxed);
        if own == UNKNOWN {
            own = self.turn_file(fd).unwrap_or_else(|_| {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    sys::complain(
                        "read: processes that share a file position do not wait for each other: no descriptor is left, \
                         or /proc is not mounted; raise `ulimit -n`",
                    );
                });
                NONE
            });
            self.turn_fd.store(own, Ordering::Relaxed);
        }
        if own == NONE {
            return None;
        }
        let byte = self.turn_byte();
        // As in the kernel, a signal does not end this wait.
        while let Err(libc::EINTR) = sys::lock_range(own, libc::F_OFD_SETLKW, libc::F_WRLCK, byte, 1) {}
        Some((own, byte))
    }

    /// Returns the byte that a process locks during its turn. A program that inherits a file of the host does not know
    /// which descriptors are of one description, so all of the file have one byte.
    fn turn_byte(&self) -> u64 {
        /// Begin of the bytes of files of the host.
        const HOST: u64 = 1 << 61;
        match self.host {
            None => self.description.turn_byte(),
            Some(number) => {
                use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
                // Files with the same byte only wait for each other.
                HOST | BuildHasherDefault::<DefaultHasher>::default().hash_one(number) & (HOST - 1)
            }
        }
    }

    /// Returns this process's description of the memory file in which the bytes of this description lie.
    fn turn_file(&self, fd: c_int) -> Res<c_int> {
        let behind = if self.is_host() { placeholder::turns()? } else { fd };
        let inode = sys::fstatat(behind, c"", libc::AT_EMPTY_PATH)?.st_ino;
        let mut files = FILES.lock();
        if let Some((_, file)) = files.iter().find(|(known, _)| *known == inode) {
            return Ok(file.as_raw_fd());
        }
        // SAFETY: just opened, and owned by nobody else.
        let own = unsafe { OwnedFd::from_raw_fd(placeholder::again(behind)?) };
        let file = RealEnv::with_fd_floor(placeholder::floor()).file(own);
        let number = file.as_raw_fd();
        files.push((inode, file));
        Ok(number)
    }

    /// Resets the turn in a forked child.
    ///
    /// # Safety
    /// See [`Lock::reset`].
    pub unsafe fn reset_turn(&self) {
        // SAFETY: the holders do not exist in this process, and the lock guards no data.
        unsafe { self.turn.reset() };
        self.turn_fd.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Takes the turns at two descriptions, always in the same order.
pub fn take_turns<'a>(one: (&'a Open, c_int), two: (&'a Open, c_int)) -> (Turn<'a>, Option<Turn<'a>>) {
    let place = |(open, _): (&Open, c_int)| (open.turn_byte(), std::ptr::from_ref(open).addr());
    if std::ptr::eq(one.0, two.0) {
        return (one.0.take_turn(one.1), None);
    }
    let (first, second) = if place(one) < place(two) { (one, two) } else { (two, one) };
    (first.0.take_turn(first.1), Some(second.0.take_turn(second.1)))
}

/// In a forked child: closes the parent's descriptions, which would share its locks.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process. A list that was left in the middle of a change is forgotten.
    unsafe {
        FILES.reset();
        let parents = std::mem::take(&mut *FILES.lock());
        drop(parents);
    }
}

const _: () = assert!(flocks::TURN < flocks::BYTES);

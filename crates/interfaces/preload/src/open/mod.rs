//! Open file description of Weft: the state shared by all descriptors that were duplicated from one open.

mod flocks;
mod listing;
mod opening;
mod record_locks;

pub use flocks::{Description, before_sharing, flock};
pub use listing::Listing;
pub use opening::{close, install, open, with_layout};
pub use record_locks::{has_record_locks, note_lock, release_locks};

use crate::backend::{self, File, backend};
use crate::errno::Res;
use crate::lock::Lock;
use crate::route::{Base, WeftPath};
use crate::{guard, limits, sys};
use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use weft_core::Timestamp;

/// Flags of `open` that `fcntl(F_SETFL)` may change.
const CHANGEABLE: c_int =
    libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;
/// Flags of `open` that `fcntl(F_GETFL)` returns.
const REPORTED: c_int =
    libc::O_ACCMODE | CHANGEABLE | libc::O_SYNC | libc::O_DIRECTORY | libc::O_TMPFILE | libc::O_PATH;

/// Description: the file, its flags, and the lock for changes of the position.
pub struct Open {
    // Null until an inherited file is first used. Replaced in a forked child; the old value is not freed, because
    // freeing would close it on the parent's connection.
    file: AtomicPtr<File>,
    generation: AtomicU32,
    token: Lock<Option<Vec<u8>>>,
    text: Vec<u8>,
    flags: AtomicI32,
    directory: bool,
    /// Held while the position changes.
    turn: Lock<()>,
    /// Rest of the names for `getdents64`.
    pub listing: Lock<Option<Listing>>,
    wrote: AtomicBool,
    /// State of its `flock`.
    description: Description,
}

impl Open {
    fn new(file: File, text: Vec<u8>, flags: c_int) -> Self {
        let directory = file.is_directory();
        let open = Self::with(None, text, flags, directory, Description::fresh());
        open.file.store(Box::into_raw(Box::new(file)), Ordering::Release);
        open
    }

    /// Creates a description that another process opened; the file is opened at its first use.
    pub fn inherited(token: Vec<u8>, text: Vec<u8>, flags: c_int, directory: bool, lock_byte: u64) -> Self {
        Self::with(Some(token), text, flags, directory, Description::inherited(lock_byte))
    }

    fn with(
        token: Option<Vec<u8>>,
        text: Vec<u8>,
        flags: c_int,
        directory: bool,
        description: Description,
    ) -> Self {
        Self {
            file: AtomicPtr::new(null_mut()),
            generation: AtomicU32::new(backend::generation()),
            token: Lock::new(token),
            text,
            flags: AtomicI32::new(flags & REPORTED),
            directory,
            turn: Lock::new(()),
            listing: Lock::new(None),
            wrote: AtomicBool::new(false),
            description,
        }
    }

    /// Returns the file. Reopens it first if another process before a fork or exec opened it.
    pub fn file(&self) -> Res<&File> {
        let file = self.file.load(Ordering::Acquire);
        if !file.is_null() && self.generation.load(Ordering::Acquire) == backend::generation() {
            // SAFETY: freed only when the description is dropped.
            return Ok(unsafe { &*file });
        }
        self.adopt()
    }

    #[cold]
    fn adopt(&self) -> Res<&File> {
        let mut token = self.token.lock();
        let file = self.file.load(Ordering::Acquire);
        if file.is_null() || self.generation.load(Ordering::Acquire) != backend::generation() {
            if token.is_none() {
                // SAFETY: not null here (an inherited description has a token), and never freed before the drop.
                *token = unsafe { file.as_ref() }.map(File::token);
            }
            let fresh = backend()?.adopt(token.as_deref().ok_or(libc::EBADF)?)?;
            *token = None;
            self.file.store(Box::into_raw(Box::new(fresh)), Ordering::Release);
            self.generation.store(backend::generation(), Ordering::Release);
        }
        // SAFETY: just seen or stored.
        Ok(unsafe { &*self.file.load(Ordering::Acquire) })
    }

    /// Returns the data with which another process can open the file.
    pub fn token(&self) -> Option<Vec<u8>> {
        let token = self.token.lock();
        // SAFETY: never freed before the drop.
        token.clone().or_else(|| unsafe { self.file.load(Ordering::Acquire).as_ref() }.map(File::token))
    }

    /// Returns the first byte of the description in the placeholder's memory file, for locks that processes share.
    pub fn lock_byte(&self) -> u64 {
        self.description.first_byte()
    }

    /// Whether this process inherited the description.
    pub fn is_inherited(&self) -> bool {
        self.description.is_inherited()
    }

    /// Returns the path from the root of the mount used at the open.
    pub fn path(&self) -> Vec<u8> {
        self.text.clone()
    }

    /// Returns the inode from which relative paths are walked, for a directory.
    pub fn directory_base(&self) -> Option<Base> {
        let _inside = guard::enter();
        if self.directory { self.file().ok().map(File::base) } else { None }
    }

    pub fn is_directory(&self) -> bool {
        self.directory
    }

    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed)
    }

    pub fn set_flags(&self, flags: c_int) {
        self.flags.store(self.flags() & !CHANGEABLE | flags & CHANGEABLE, Ordering::Relaxed);
    }

    fn may(&self, write: bool) -> Res<()> {
        let flags = self.flags();
        let refused = if write { libc::O_RDONLY } else { libc::O_WRONLY };
        if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == refused {
            return Err(libc::EBADF.into());
        }
        if self.directory {
            return Err(libc::EISDIR.into());
        }
        self.description.check()
    }

    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: i64) -> Res<usize> {
        self.may(false)?;
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
        self.file()?.read_at(bufs, offset)
    }

    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: i64) -> Res<usize> {
        self.may(true)?;
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
        self.wrote.store(true, Ordering::Relaxed);
        let file = self.file()?;
        // Linux appends even if an offset is given.
        let done = if self.flags() & libc::O_APPEND != 0 {
            self.within_limit(bufs, || file.size(), |bufs| file.append(bufs).map(|(_, done)| done))?
        } else {
            self.within_limit(bufs, || Ok(offset), |bufs| file.write_at(bufs, offset))?
        };
        self.sync_when_asked()?;
        Ok(done)
    }

    /// Writes as much of `bufs` as the limit on file sizes allows at the offset `place()`.
    fn within_limit(
        &self,
        bufs: &[IoSlice<'_>],
        place: impl FnOnce() -> Res<u64>,
        write: impl FnOnce(&[IoSlice<'_>]) -> Res<usize>,
    ) -> Res<usize> {
        if limits::file_size().is_none() {
            return write(bufs);
        }
        let wanted = bufs.iter().map(|buf| buf.len()).sum();
        let mut writable = limits::writable_len(place()?, wanted)?;
        let fitting: Vec<IoSlice<'_>> = bufs
            .iter()
            .map(|buf| {
                let len = buf.len().min(writable);
                writable -= len;
                IoSlice::new(&buf[..len])
            })
            .collect();
        write(&fitting)
    }

    fn sync_when_asked(&self) -> Res<()> {
        if self.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0 { self.file()?.sync() } else { Ok(()) }
    }

    pub fn read(&self, fd: c_int, bufs: &mut [IoSliceMut<'_>]) -> Res<usize> {
        self.may(false)?;
        let file = self.file()?;
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let _turn = self.turn.lock();
        let at = sys::lseek(fd, 0, libc::SEEK_CUR)?;
        let got = file.read_at(bufs, at as u64)?;
        debug_assert!(got <= wanted);
        if got > 0 {
            sys::lseek(fd, got as i64, libc::SEEK_CUR)?;
        }
        Ok(got)
    }

    pub fn write(&self, fd: c_int, bufs: &[IoSlice<'_>]) -> Res<usize> {
        self.may(true)?;
        let file = self.file()?;
        self.wrote.store(true, Ordering::Relaxed);
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let _turn = self.turn.lock();
        let done = if self.flags() & libc::O_APPEND != 0 {
            let append = |bufs: &[IoSlice<'_>]| {
                let (at, done) = file.append(bufs)?;
                sys::lseek(fd, at as i64 + done as i64, libc::SEEK_SET)?;
                Ok(done)
            };
            self.within_limit(bufs, || file.size(), append)?
        } else {
            // Reserve the range before writing it, so that processes that share the offset never overlap.
            let end = sys::lseek(fd, wanted as i64, libc::SEEK_CUR).map_err(|_| libc::EFBIG)?;
            let at = (end - wanted as i64) as u64;
            let result = self.within_limit(bufs, || Ok(at), |bufs| file.write_at(bufs, at));
            let missing = wanted - *result.as_ref().unwrap_or(&0);
            if missing > 0 {
                sys::lseek(fd, -(missing as i64), libc::SEEK_CUR)?;
            }
            result?
        };
        self.sync_when_asked()?;
        Ok(done)
    }

    pub fn seek(&self, fd: c_int, offset: i64, whence: c_int) -> Res<i64> {
        if self.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        let _turn = self.turn.lock();
        if self.directory && whence == libc::SEEK_SET && offset == 0 {
            // A rewind must show names created and removed since.
            *self.listing.lock() = None;
        }
        match whence {
            libc::SEEK_SET | libc::SEEK_CUR => Ok(sys::lseek(fd, offset, whence)?),
            libc::SEEK_END => {
                let target = (self.file()?.size()? as i64).checked_add(offset).ok_or(libc::EOVERFLOW)?;
                Ok(sys::lseek(fd, target, libc::SEEK_SET)?)
            }
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let (file, from) = (self.file()?, u64::try_from(offset).map_err(|_| libc::ENXIO)?);
                let found =
                    if whence == libc::SEEK_DATA { file.seek_data(from) } else { file.seek_hole(from) };
                Ok(sys::lseek(fd, found?.ok_or(libc::ENXIO)? as i64, libc::SEEK_SET)?)
            }
            _ => Err(libc::EINVAL.into()),
        }
    }

    pub fn truncate(&self, size: i64) -> Res<()> {
        let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
        match self.may(true).map_err(|fail| fail.errno()) {
            Ok(()) => {}
            Err(libc::EIO) => return Err(libc::EIO.into()),
            Err(_) => return Err(libc::EINVAL.into()),
        }
        self.wrote.store(true, Ordering::Relaxed);
        let file = self.file()?;
        limits::may_become(size, || file.size())?;
        file.truncate(size)
    }

    /// Allocates `[offset, offset + len)`, or punches a hole there. Weft reserves no space, so that allocation only
    /// changes the length.
    pub fn allocate(&self, mode: c_int, offset: i64, len: i64) -> Res<()> {
        if offset < 0 || len <= 0 {
            return Err(libc::EINVAL.into());
        }
        self.may(true).map_err(|fail| if fail.errno() == libc::EIO { libc::EIO } else { libc::EBADF })?;
        let end = offset.checked_add(len).ok_or(libc::EFBIG)?;
        let file = self.file()?;
        let grow = || {
            if file.size()? >= end as u64 {
                return Ok(());
            }
            limits::may_become(end as u64, || Ok(0))?;
            file.truncate(end as u64)
        };
        const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_IN: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 => grow(),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            PUNCH | ZERO_IN | libc::FALLOC_FL_ZERO_RANGE => {
                self.wrote.store(true, Ordering::Relaxed);
                if mode == libc::FALLOC_FL_ZERO_RANGE {
                    grow()?;
                }
                file.punch(offset as u64, len as u64)
            }
            _ => Err(libc::EOPNOTSUPP.into()),
        }
    }

    pub fn sync(&self) -> Res<()> {
        if self.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        self.file()?.sync()
    }

    pub fn stat(&self) -> Res<libc::stat> {
        self.file()?.stat()
    }

    /// Returns the file by its inode.
    pub fn weft_path(&self) -> Res<WeftPath> {
        Ok(self.file()?.weft_path())
    }

    /// Resets locks in a forked child: their holders do not exist there.
    pub fn after_fork_in_child(&self) {
        // SAFETY: the holders do not exist in this process. The turn guards no data, the token is replaced as a whole,
        // and a listing that was left in the middle of a change is forgotten.
        unsafe {
            self.turn.reset();
            self.token.reset();
            self.listing.reset();
            self.description.after_fork_in_child();
            std::ptr::write(&mut *self.listing.lock(), None);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = crate::serve::inside(|| {
            self.description.end();
            Ok(())
        });
        let file = *self.file.get_mut();
        if file.is_null() || *self.generation.get_mut() != backend::generation() {
            return;
        }
        let _ = crate::serve::inside(|| {
            // SAFETY: the last reference; made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(file) });
            Ok(())
        });
    }
}

/// Prepares a forked child: record locks stay with the parent, and descriptions may be shared.
pub fn after_fork_in_child() {
    record_locks::after_fork_in_child();
    flocks::after_fork_in_child();
}

/// Returns the seconds and nanoseconds of a time.
pub fn parts(at: Timestamp) -> (i64, i64) {
    let (seconds, nanos) = at.parts();
    (seconds, i64::from(nanos))
}

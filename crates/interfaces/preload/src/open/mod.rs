//! Open file description of Weft: the state shared by all descriptors that were duplicated from one open.

mod flocks;
mod gather;
mod io;
mod keeper;
mod listing;
mod nameless;
mod opening;
mod origin;
mod record_locks;
mod turn;

pub use flocks::{Description, before_sharing, flock};
pub use gather::{Memory, gather, settle};
pub use listing::Listing;
pub use nameless::{keep_inherited, note_removed};
pub use opening::{
    LARGE, close, install, open, open_as, open_place, page_len_hint, with_layout, with_page_len,
};
pub use origin::{Access, HostDescriptor};
pub use record_locks::{has_record_locks, note_lock, release_locks};
pub use turn::take_turns;

use crate::backend::{self, File, backend};
use crate::errno::{Fail, Res};
use crate::lock::Lock;
use crate::route::{self, Base, WeftPath};
use crate::{placeholder, sys};
use origin::Origin;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use weft_core::Timestamp;
use weft_core::delegates::ownership::FileNumber;

/// Flags of `open` that `fcntl(F_SETFL)` may change.
const CHANGEABLE: c_int =
    libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;
/// Flags of `open` that `fcntl(F_GETFL)` returns.
const REPORTED: c_int = libc::O_ACCMODE
    | CHANGEABLE
    | libc::O_SYNC
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_TMPFILE
    | libc::O_PATH
    | opening::LARGE;

/// Description: the file, its flags, and the lock for changes of the position.
pub struct Open {
    // Null until an inherited file is first used. Replaced in a forked child; the old value is not freed, because
    // freeing would close it on the parent's connection.
    file: AtomicPtr<File>,
    generation: AtomicU32,
    origin: Lock<Origin>,
    /// Number of a file of the host, at the delegates.
    host: Option<FileNumber>,
    /// Whether the file has a replica.
    replicated: bool,
    text: Vec<u8>,
    flags: AtomicI32,
    directory: bool,
    /// Held by the thread that uses the position.
    turn: Lock<()>,
    /// Descriptor on which processes lock the position.
    turn_fd: AtomicI32,
    /// Rest of the names for `getdents64`.
    pub listing: Lock<Option<Listing>>,
    wrote: AtomicBool,
    /// State of its `flock`.
    description: Description,
    nameless: nameless::Nameless,
}

impl Open {
    fn new(file: File, text: Vec<u8>, flags: c_int) -> Self {
        let directory = file.is_directory();
        let open = Self::with(Origin::Weft(None), text, flags, directory, Description::fresh());
        open.file.store(Box::into_raw(Box::new(file)), Ordering::Release);
        open
    }

    /// Creates a description that another process opened; the file is opened at its first use.
    pub fn inherited(token: Vec<u8>, text: Vec<u8>, flags: c_int, directory: bool, lock_byte: u64) -> Self {
        Self::with(Origin::Weft(Some(token)), text, flags, directory, Description::inherited(lock_byte))
    }

    /// Creates the working directory of another program image; without a token, from its path. It is opened at its first
    /// use.
    pub fn inherited_place(token: Option<Vec<u8>>, text: Vec<u8>) -> Self {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        Self::with(Origin::Weft(token), text, flags, true, Description::inherited(0))
    }

    /// Creates the description of a file of the host whose bytes go through delegates. They are joined at its first use.
    pub fn of_host(descriptor: HostDescriptor, flags: c_int) -> Self {
        Self::of_host_with(descriptor, flags, Description::fresh())
    }

    /// Creates the description of a file of the host that another program image opened.
    pub fn inherited_host(descriptor: HostDescriptor, flags: c_int) -> Self {
        Self::of_host_with(descriptor, flags, Description::inherited(0))
    }

    fn of_host_with(descriptor: HostDescriptor, flags: c_int, description: Description) -> Self {
        let path = descriptor.id.path.clone();
        Self::with(Origin::Host(descriptor), path, flags, false, description)
    }

    fn with(origin: Origin, text: Vec<u8>, flags: c_int, directory: bool, description: Description) -> Self {
        let (host, replicated) = match &origin {
            Origin::Weft(_) => (None, false),
            Origin::Host(descriptor) => (Some(descriptor.id.number), descriptor.id.replica.is_some()),
        };
        Self {
            file: AtomicPtr::new(null_mut()),
            generation: AtomicU32::new(backend::generation()),
            origin: Lock::new(origin),
            host,
            replicated,
            text,
            flags: AtomicI32::new(flags & REPORTED),
            directory,
            turn: Lock::new(()),
            turn_fd: AtomicI32::new(turn::UNKNOWN),
            listing: Lock::new(None),
            wrote: AtomicBool::new(false),
            description,
            nameless: nameless::Nameless::default(),
        }
    }

    /// Whether this process has opened the file itself, or again after a fork or exec.
    fn is_open_here(&self) -> bool {
        !self.file.load(Ordering::Acquire).is_null()
            && self.generation.load(Ordering::Acquire) == backend::generation()
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
        let mut origin = self.origin.lock();
        let file = self.file.load(Ordering::Acquire);
        if file.is_null() || self.generation.load(Ordering::Acquire) != backend::generation() {
            // SAFETY: null, or not freed before the drop.
            let fresh = origin.open(unsafe { file.as_ref() }, self)?;
            self.file.store(Box::into_raw(Box::new(fresh)), Ordering::Release);
            self.generation.store(backend::generation(), Ordering::Release);
        }
        // SAFETY: just seen or stored.
        Ok(unsafe { &*self.file.load(Ordering::Acquire) })
    }

    /// Returns the file system in which the file can be opened again.
    fn session(&self) -> Res<&'static backend::Backend> {
        origin::session_for(Some(self.file()?))
    }

    /// Returns the data with which another process can open the file; `None` for a file of the host.
    pub fn token(&self) -> Option<Vec<u8>> {
        let Origin::Weft(token) = &*self.origin.lock() else { return None };
        // SAFETY: never freed before the drop.
        token.clone().or_else(|| unsafe { self.file.load(Ordering::Acquire).as_ref() }.and_then(File::token))
    }

    /// Whether the kernel has the names, attributes and locks of the file, and delegates its bytes.
    #[inline]
    pub fn is_host(&self) -> bool {
        self.host.is_some()
    }

    /// Whether the file has a replica.
    pub fn has_replica(&self) -> bool {
        self.replicated
    }

    /// Returns the number of a file of the host at the delegates.
    pub fn host_number(&self) -> Option<FileNumber> {
        self.host
    }

    /// Returns the first byte of the description in the placeholder's memory file, for locks that processes share.
    pub fn lock_byte(&self) -> u64 {
        self.description.first_byte()
    }

    /// Whether this process inherited the description.
    pub fn is_inherited(&self) -> bool {
        self.description.is_inherited()
    }

    /// Whether both descriptions refer to the same file.
    pub fn is_same_file(&self, other: &Self) -> Res<bool> {
        Ok(match (self.host, other.host) {
            (None, None) => self.file()?.inode()? == other.file()?.inode()?,
            (one, other) => one == other,
        })
    }

    /// Returns the path from the root of the mount used at the open; of a file of the host, its path.
    pub fn path(&self) -> Vec<u8> {
        self.text.clone()
    }

    /// Returns the path as the program names it.
    pub fn full_path(&self) -> Vec<u8> {
        if self.is_host() { self.path() } else { route::full(&self.text) }
    }

    /// Returns the inode from which relative paths are walked.
    pub fn directory_base(&self) -> Res<Base> {
        if !self.directory {
            return Err(libc::ENOTDIR.into());
        }
        crate::serve::inside(|| self.file()?.base())
    }

    /// Returns the target of the link that `O_PATH` opened. Of another file the name is empty, as for Linux.
    pub fn read_link(&self) -> Res<Vec<u8>> {
        let itself = WeftPath::from_base(self.file()?.base()?, self.text.clone(), self.text.len());
        match backend()?.readlink(&itself) {
            Err(Fail::Errno(libc::EINVAL)) => Err(libc::ENOENT.into()),
            other => other,
        }
    }

    pub fn is_directory(&self) -> bool {
        self.directory
    }

    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes the flags of the description of `fd`.
    pub fn set_flags(&self, fd: c_int, flags: c_int) -> Res<()> {
        let omits_times = !self.is_host() && flags & !self.flags() & libc::O_NOATIME != 0;
        if omits_times && !crate::backend::identity::owns(self.stat()?.st_uid) {
            return Err(libc::EPERM.into());
        }
        if self.is_host() {
            // The kernel's flags reach other processes, but must not reach the delegates.
            let apart = if self.is_with_delegates() { libc::O_APPEND | libc::O_DIRECT } else { 0 };
            sys::fcntl(fd, libc::F_SETFL, (flags & !apart) as usize)?;
        } else {
            sys::fcntl(fd, libc::F_SETFL, (flags & placeholder::SHARED_FLAGS) as usize)?;
        }
        self.note_flags(flags);
        Ok(())
    }

    /// Whether the delegates use the program's open file description of a file of the host.
    fn is_with_delegates(&self) -> bool {
        self.is_host() && matches!(&*self.origin.lock(), Origin::Host(descriptor) if descriptor.is_shared)
    }

    /// Takes over flags that another process has changed in the description of `fd`.
    pub fn refresh_flags(&self, fd: c_int) {
        if !self.description.is_shared() || self.is_with_delegates() {
            return;
        }
        if let Ok(now) = sys::fcntl(fd, libc::F_GETFL, 0) {
            self.note_flags(self.flags() & !placeholder::SHARED_FLAGS | now & placeholder::SHARED_FLAGS);
        }
    }

    /// Records flags that the kernel's description has got.
    pub fn note_flags(&self, flags: c_int) {
        self.flags.store(self.flags() & !CHANGEABLE | flags & CHANGEABLE, Ordering::Relaxed);
    }

    pub fn stat(&self) -> Res<libc::stat> {
        self.file()?.stat()
    }

    /// Returns the file by its inode.
    pub fn weft_path(&self) -> Res<WeftPath> {
        let text = self.path();
        let start = text.len();
        Ok(WeftPath::from_base(self.file()?.base()?, text, start))
    }

    /// Writes the bytes that delegates hold to the underlying file.
    pub fn write_back(&self) -> Res<()> {
        self.file()?.write_back()
    }

    /// Whether bytes of the file are in a replica.
    pub fn is_redirected(&self) -> Res<bool> {
        Ok(self.file()?.is_redirected())
    }

    /// Closes the file, and returns errors of writes that delegates have not reported yet.
    pub fn close(mut self) -> Res<()> {
        match self.take_file() {
            Some(file) => file.close(),
            None => Ok(()),
        }
    }

    /// Returns the file if this process has opened it.
    fn take_file(&mut self) -> Option<Box<File>> {
        let file = *self.file.get_mut();
        if file.is_null() || *self.generation.get_mut() != backend::generation() {
            return None;
        }
        *self.file.get_mut() = null_mut();
        // SAFETY: the last reference; made by `Box::into_raw`.
        Some(unsafe { Box::from_raw(file) })
    }

    /// Resets locks in a forked child: their holders do not exist there.
    pub fn after_fork_in_child(&self) {
        // SAFETY: the holders do not exist in this process. The origin stays valid, and a listing that was left in the
        // middle of a change is forgotten.
        unsafe {
            self.reset_turn();
            self.origin.reset();
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
        if let Some(file) = self.take_file() {
            let _ = crate::serve::inside(|| {
                drop(file);
                Ok(())
            });
        }
    }
}

/// Prepares a forked child: record locks stay with the parent, and descriptions may be shared.
pub fn after_fork_in_child() {
    record_locks::after_fork_in_child();
    turn::after_fork_in_child();
    flocks::after_fork_in_child();
}

/// Returns the seconds and nanoseconds of a time.
pub fn parts(at: Timestamp) -> (i64, i64) {
    let (seconds, nanos) = at.parts();
    (seconds, i64::from(nanos))
}

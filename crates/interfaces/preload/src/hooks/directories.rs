//! Directory streams. Like those of the C library, Weft's start with the descriptor's number, which identifies them:
//! the C library never has a stream over a Weft descriptor.

use crate::backend::Name;
use crate::errno::{self, Fail, Res};
use crate::memory::{self, Access};
use crate::open::{self, Listing, Open};
use crate::serve::{answer, on_weft_fd};
use crate::{sys, table};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void, dirent, size_t, ssize_t};
use std::ops::Range;

/// Directory stream of Weft.
#[repr(C)]
pub struct Stream {
    /// First field, as in the C library's own.
    fd: c_int,
    /// Position behind the entry that was returned last.
    position: c_long,
    /// Entries that were read, in words for their alignment. Processes that share the descriptor read others.
    entries: Box<[u64; ENTRIES_LEN / 8]>,
    /// Range of bytes that were not returned yet.
    rest: Range<usize>,
}

/// Number of bytes of entries that are read at once, as by the C library.
const ENTRIES_LEN: usize = 32 << 10;

/// Returns the stream behind `dir` if it is a Weft stream.
unsafe fn ours<'a>(dir: *mut c_void) -> Option<&'a mut Stream> {
    if dir.is_null() || !table::is_ours(*dir.cast::<c_int>()) {
        return None;
    }
    dir.cast::<Stream>().as_mut()
}

fn new_stream(fd: c_int, open: &Open) -> Res<*mut c_void> {
    if !open.is_directory() {
        return Err(libc::ENOTDIR.into());
    }
    let entries = Box::new([0; ENTRIES_LEN / 8]);
    Ok(Box::into_raw(Box::new(Stream { fd, position: 0, entries, rest: 0..0 })).cast())
}

path_hook! { [opendir] (path: *const c_char) -> *mut c_void,
    (AT_FDCWD, path) |weft_path| {
        let fd = open::open(weft_path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
        let open = table::get(fd).ok_or(libc::EBADF)?;
        new_stream(fd, &open)
    }
}
hook! { [fdopendir] (fd: c_int) -> *mut c_void { on_weft_fd(fd, |open| new_stream(fd, open)) } }

/// Fills a `dirent` from a name.
fn fill(entry: &mut dirent, name: &Name, position: u64) {
    entry.d_ino = name.inode;
    entry.d_off = position as i64;
    entry.d_type = name.kind;
    let len = name.name.len().min(255);
    entry.d_reclen = record_len(len) as u16;
    for (to, from) in entry.d_name.iter_mut().zip(&name.name[..len]) {
        *to = *from as c_char;
    }
    entry.d_name[len] = 0;
}

/// Returns the length of a record: header, name, terminating zero, rounded up to eight.
fn record_len(name_len: usize) -> usize {
    (19 + name_len + 1).next_multiple_of(8)
}

impl Stream {
    /// Returns the next entry; null at the end.
    fn next(&mut self) -> Res<*mut dirent> {
        let start = self.entries.as_mut_ptr().cast::<u8>();
        if self.rest.is_empty() {
            let open = table::get(self.fd).ok_or(libc::EBADF)?;
            // SAFETY: own memory of this length.
            let read = match unsafe { read_entries(&open, self.fd, start, ENTRIES_LEN) } {
                // POSIX: a removed directory is at its end.
                Err(Fail::Errno(libc::ENOENT)) => 0,
                read => read?,
            };
            self.rest = 0..read;
            if read == 0 {
                return Ok(std::ptr::null_mut());
            }
        }
        // SAFETY: an entry begins here. Its last bytes may be missing, behind the end of its name.
        unsafe {
            let entry = start.add(self.rest.start).cast::<dirent>();
            self.rest.start += usize::from((*entry).d_reclen);
            self.position = (*entry).d_off;
            Ok(entry)
        }
    }

    fn seek(&mut self, to: c_long) -> Res<()> {
        self.rest = 0..0;
        self.position = to;
        let open = table::get(self.fd).ok_or(libc::EBADF)?;
        open.seek(self.fd, to, libc::SEEK_SET).map(drop)
    }
}

hook! { [readdir, readdir64] (dir: *mut c_void) -> *mut dirent {
    ours(dir).map(|stream| {
        match crate::serve::inside(|| stream.next()) {
            Ok(entry) => entry,
            Err(fail) => { errno::set(fail.errno()); std::ptr::null_mut() }
        }
    })
} }

hook! { [readdir_r, readdir64_r] (dir: *mut c_void, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
    ours(dir).map(|stream| {
        *result = std::ptr::null_mut();
        let next = crate::serve::inside(|| {
            let found = stream.next()?;
            if !found.is_null() {
                std::ptr::copy_nonoverlapping(found.cast::<u8>(), entry.cast(), usize::from((*found).d_reclen));
                *result = entry;
            }
            Ok(())
        });
        next.map_or_else(|fail| fail.errno(), |()| 0)
    })
} }

hook! { [telldir] (dir: *mut c_void) -> c_long {
    ours(dir).map(|stream| stream.position)
} }

/// Implements `seekdir`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn seekdir(dir: *mut c_void, to: c_long) {
    match ours(dir) {
        Some(stream) => {
            let _ = crate::serve::inside(|| stream.seek(to));
        }
        None => real!(seekdir: fn(*mut c_void, c_long) -> ())(dir, to),
    }
}

/// Implements `rewinddir`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn rewinddir(dir: *mut c_void) {
    match ours(dir) {
        Some(stream) => {
            let _ = crate::serve::inside(|| stream.seek(0));
        }
        None => real!(rewinddir: fn(*mut c_void) -> ())(dir),
    }
}

hook! { [closedir] (dir: *mut c_void) -> c_int {
    ours(dir).map(|stream| {
        let fd = stream.fd;
        drop(Box::from_raw(stream));
        answer(|| open::close(fd).map(|()| 0))
    })
} }

hook! { [dirfd] (dir: *mut c_void) -> c_int { ours(dir).map(|stream| stream.fd) } }

hook! { [getdents64] (fd: c_int, out: *mut c_void, capacity: size_t) -> ssize_t {
    on_weft_fd(fd, |open| {
        open.is_opened()?;
        if !open.is_directory() {
            return Err(libc::ENOTDIR.into());
        }
        let capacity = match memory::usable(out.addr(), capacity, Access::Write)? {
            0 if capacity > 0 => return Err(libc::EFAULT.into()),
            usable => usable,
        };
        Ok(read_entries(open, fd, out.cast(), capacity)? as ssize_t)
    })
} }

/// Stores the entries that follow the position of the directory `fd`. Returns the number of bytes.
///
/// # Safety
/// `out` can be written for `capacity` bytes.
unsafe fn read_entries(open: &Open, fd: c_int, out: *mut u8, capacity: size_t) -> Res<usize> {
    let _turn = open.take_turn(fd);
    let mut listing = open.listing.lock();
    // The placeholder's offset is the number of names returned, so that seeks and forks take effect.
    let wanted = sys::lseek(fd, 0, libc::SEEK_CUR)? as u64;
    if listing.as_ref().is_none_or(|listing| listing.returned != wanted) {
        let mut fresh = Listing::new(open)?;
        while fresh.returned < wanted && fresh.next_if(|_| true)?.is_some() {}
        *listing = Some(fresh);
    }
    let listing = listing.as_mut().expect("just created");
    let mut used = 0;
    let mut full = false;
    let fits = |name: &Name, used: usize, full: &mut bool| {
        *full = used + record_len(name.name.len()) > capacity;
        !*full
    };
    while let Some(name) = listing.next_if(|name| fits(name, used, &mut full))? {
        let mut entry: dirent = std::mem::zeroed();
        fill(&mut entry, &name, listing.returned);
        let len = usize::from(entry.d_reclen);
        std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), out.add(used), len);
        used += len;
    }
    if full && used == 0 {
        return Err(libc::EINVAL.into());
    }
    sys::lseek(fd, listing.returned as i64, libc::SEEK_SET)?;
    Ok(used)
}

//! Directory streams. Like those of the C library, Weft's start with the descriptor's number, which identifies them:
//! the C library never has a stream over a Weft descriptor.

use crate::backend::Name;
use crate::errno::{self, Res};
use crate::memory::{self, Access};
use crate::open::{self, Listing, Open};
use crate::serve::{answer, on_weft_fd};
use crate::{sys, table};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void, dirent, size_t, ssize_t};

/// Directory stream of Weft.
#[repr(C)]
pub struct Stream {
    /// First field, as in the C library's own.
    fd: c_int,
    listing: Option<Listing>,
    /// Result of `readdir`.
    entry: dirent,
}

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
    // SAFETY: all zeros is a valid `dirent`.
    let entry = unsafe { std::mem::zeroed() };
    Ok(Box::into_raw(Box::new(Stream { fd, listing: None, entry })).cast())
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
    fn next(&mut self) -> Res<Option<&mut dirent>> {
        let open = table::get(self.fd).ok_or(libc::EBADF)?;
        if self.listing.is_none() {
            self.listing = Some(Listing::new(&open)?);
        }
        let listing = self.listing.as_mut().expect("just created");
        Ok(listing.next_if(|_| true)?.map(|name| {
            fill(&mut self.entry, &name, listing.returned);
            &mut self.entry
        }))
    }

    fn seek(&mut self, to: c_long) -> Res<()> {
        self.listing = None;
        for _ in 0..to {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

hook! { [readdir, readdir64] (dir: *mut c_void) -> *mut dirent {
    ours(dir).map(|stream| {
        match crate::serve::inside(|| Ok(stream.next()?.map_or(std::ptr::null_mut(), |entry| entry as *mut dirent))) {
            Ok(entry) => entry,
            Err(fail) => { errno::set(fail.errno()); std::ptr::null_mut() }
        }
    })
} }

hook! { [readdir_r, readdir64_r] (dir: *mut c_void, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
    ours(dir).map(|stream| {
        *result = std::ptr::null_mut();
        let next = crate::serve::inside(|| {
            if let Some(found) = stream.next()? {
                std::ptr::copy_nonoverlapping(found, entry, 1);
                *result = entry;
            }
            Ok(())
        });
        next.map_or_else(|fail| fail.errno(), |()| 0)
    })
} }

hook! { [telldir] (dir: *mut c_void) -> c_long {
    ours(dir).map(|stream| stream.listing.as_ref().map_or(0, |listing| listing.returned as c_long))
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
        Some(stream) => stream.listing = None,
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
            std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), out.cast::<u8>().add(used), len);
            used += len;
        }
        if full && used == 0 {
            return Err(libc::EINVAL.into());
        }
        sys::lseek(fd, listing.returned as i64, libc::SEEK_SET)?;
        Ok(used as ssize_t)
    })
} }

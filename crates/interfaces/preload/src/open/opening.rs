//! `open(2)` and `close(2)`: descriptors that refer to descriptions.

use super::{Open, release_locks};
use crate::backend::{OpenRequest, backend, identity};
use crate::errno::{Fail, Res};
use crate::route::WeftPath;
use crate::{libio, pathname, placeholder, sys, table};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use weft_wire::meta::{LayoutSpec, OpenFlags};

thread_local! {
    // Layout that the MPI hooks request for files created by this thread.
    static REQUESTED_LAYOUT: Cell<*const LayoutSpec> = const { Cell::new(std::ptr::null()) };
    /// Page length at the delegates that the MPI hooks request for files opened by this thread; 0 for none.
    static REQUESTED_PAGE_LEN: Cell<u64> = const { Cell::new(0) };
}

/// Flag of `O_TMPFILE`, which also contains `O_DIRECTORY`.
const UNNAMED: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Runs `work`; files that this thread creates meanwhile get the layout `spec`.
pub fn with_layout<T>(spec: &LayoutSpec, work: impl FnOnce() -> T) -> T {
    let before = REQUESTED_LAYOUT.replace(spec);
    let result = work();
    REQUESTED_LAYOUT.set(before);
    result
}

/// Runs `work`; files that this thread opens meanwhile get pages of this length at the delegates, if it is given.
pub fn with_page_len<T>(len: Option<u64>, work: impl FnOnce() -> T) -> T {
    let before = REQUESTED_PAGE_LEN.replace(len.unwrap_or(0));
    let result = work();
    REQUESTED_PAGE_LEN.set(before);
    result
}

/// Returns the page length that the MPI hooks request for a file that this thread opens now.
pub fn page_len_hint() -> Option<u64> {
    Some(REQUESTED_PAGE_LEN.get()).filter(|&len| len > 0)
}

/// `O_LARGEFILE`, which Linux adds to each `open` of a 64-bit program; the crate `libc` has the value of the C library,
/// 0.
pub const LARGE: c_int = if cfg!(target_arch = "aarch64") { 0o400_000 } else { 0o100_000 };

/// Opens `weft_path` like `open(2)`, and returns the descriptor.
pub fn open(weft_path: &WeftPath, flags: c_int, mode: u32) -> Res<c_int> {
    // As Linux does: a descriptor that only names a file ignores all other flags.
    let flags = match flags & libc::O_PATH {
        0 => flags | LARGE,
        _ => flags & (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC),
    };
    open_as(weft_path, flags, flags, mode)
}

/// Opens `weft_path` by `flags`, and reports others, `shown`, to the program.
pub fn open_as(weft_path: &WeftPath, flags: c_int, shown: c_int, mode: u32) -> Res<c_int> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0 {
        return Err(libc::EINVAL.into());
    }
    if flags & libc::O_CREAT != 0 && weft_path.must_dir {
        return Err(refuse_creation(weft_path));
    }
    let access = flags & libc::O_ACCMODE;
    let path_only = flags & libc::O_PATH != 0;
    let is_unnamed = flags & UNNAMED != 0 && !path_only;
    if is_unnamed && (flags & libc::O_DIRECTORY == 0 || access == libc::O_RDONLY) {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: null, or set by `with_layout` further up this thread's stack.
    let spec = unsafe { REQUESTED_LAYOUT.get().as_ref() }.cloned().unwrap_or_default();
    let how = OpenRequest {
        flags: OpenFlags {
            read: !path_only && access != libc::O_WRONLY,
            write: !path_only && access != libc::O_RDONLY,
            create: !path_only && flags & libc::O_CREAT != 0,
            exclusive: !path_only && flags & libc::O_EXCL != 0,
            truncate: !path_only && flags & libc::O_TRUNC != 0,
            directory: flags & libc::O_DIRECTORY != 0 || weft_path.must_dir,
            execute: false,
        },
        nofollow: flags & libc::O_NOFOLLOW != 0,
        direct: flags & libc::O_DIRECT != 0,
        mode: mode & 0o7777 & !crate::hooks::names::umask_now(),
        spec,
    };
    if flags & libc::O_NOATIME != 0 && !path_only && !is_unnamed && !how.flags.exclusive {
        may_omit_times(weft_path, &how)?;
    }
    // Create the placeholder first: if no descriptors are left, no file must be created.
    let fd = placeholder::new(flags)?;
    let opened = backend().and_then(|backend| match is_unnamed {
        true => backend.open_unnamed(weft_path, &how),
        false => backend.open(weft_path, &how),
    });
    match opened {
        Ok(file) => {
            let text = match is_unnamed {
                // The name that Linux shows.
                true => pathname::join(&weft_path.text, format!("#{}", file.inode()?).as_bytes()),
                false => weft_path.text.clone(),
            };
            let open = Open::new(file, text, shown);
            if is_unnamed {
                open.nameless.note_removed();
            }
            install(fd, Arc::new(open))
        }
        Err(fail) => {
            sys::close(fd);
            Err(fail)
        }
    }
}

/// Refuses `O_NOATIME` to other users than the owner and root, as Linux does, before the file is truncated.
fn may_omit_times(weft_path: &WeftPath, how: &OpenRequest) -> Res<()> {
    let Ok(st) = backend()?.stat(weft_path, !how.nofollow) else { return Ok(()) };
    if identity::owns(st.st_uid) {
        return Ok(());
    }
    // Permission is checked first.
    let flags = OpenFlags { create: false, exclusive: false, truncate: false, ..how.flags };
    backend()?.open(weft_path, &OpenRequest { flags, spec: how.spec.clone(), ..*how })?;
    Err(libc::EPERM.into())
}

/// Opens the directory at `weft_path` as a place for walks, without a descriptor. `text` is its path.
pub fn open_place(weft_path: &WeftPath, text: Vec<u8>) -> Res<Open> {
    Ok(Open::new(backend()?.open(weft_path, &OpenRequest::place())?, text, libc::O_PATH | libc::O_DIRECTORY))
}

/// Returns the error of creating a file under a name that requires a directory.
fn refuse_creation(weft_path: &WeftPath) -> Fail {
    // The directory of the name is found first.
    let found = crate::hooks::has_directory_of(weft_path);
    found.err().unwrap_or_else(|| libc::EISDIR.into())
}

/// Makes the placeholder `fd` refer to `open`.
pub fn install(fd: c_int, open: Arc<Open>) -> Res<c_int> {
    // A stream may exist over this number: the standard output after `close(1)`. `fopen` reports a failure.
    let _ = libio::prepare();
    if table::set(fd, open) {
        return Ok(fd);
    }
    sys::close(fd);
    Err(libc::EMFILE.into())
}

/// Closes the registered descriptor `fd`. Closing any descriptor of a file releases the process's record locks on it, as
/// POSIX requires.
pub fn close(fd: c_int) -> Res<()> {
    let open = Arc::clone(&*table::get(fd).ok_or(libc::EBADF)?);
    release_locks(&open);
    table::remove(fd);
    // The last reference closes the file. The kernel then releases locks on a file that has all its bytes.
    let closed = Arc::into_inner(open).map_or(Ok(()), Open::close);
    sys::close(fd);
    closed
}

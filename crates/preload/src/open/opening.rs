//! `open(2)` and `close(2)`: descriptors that lead to descriptions.

use super::{Open, give_up_locks};
use crate::backend::{How, backend};
use crate::errno::Res;
use crate::route::Spot;
use crate::{placeholder, sys, table};
use std::ffi::c_int;
use std::sync::Arc;
use weft_wire::meta::{LayoutSpec, OpenFlags};

thread_local! {
    // What the MPI tap wants of files that this thread makes.
    static WANTED: std::cell::Cell<*const LayoutSpec> = const { std::cell::Cell::new(std::ptr::null()) };
}

/// Runs `work`; files that this thread makes meanwhile get the layout `spec`.
pub fn with_layout<T>(spec: &LayoutSpec, work: impl FnOnce() -> T) -> T {
    let before = WANTED.replace(spec);
    let result = work();
    WANTED.set(before);
    result
}

/// Opens `spot` as `open(2)` would, and gives the descriptor.
pub fn open(spot: &Spot, flags: c_int, mode: u32) -> Res<c_int> {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Err(libc::EOPNOTSUPP.into());
    }
    if flags & libc::O_CREAT != 0 && (flags & libc::O_DIRECTORY != 0 || spot.must_dir) {
        return Err(if flags & libc::O_DIRECTORY != 0 { libc::EINVAL } else { libc::EISDIR }.into());
    }
    let access = flags & libc::O_ACCMODE;
    let path_only = flags & libc::O_PATH != 0;
    // SAFETY: null, or set by `with_layout` further up this thread's stack.
    let spec = unsafe { WANTED.get().as_ref() }.cloned().unwrap_or_default();
    let how = How {
        flags: OpenFlags {
            read: !path_only && access != libc::O_WRONLY,
            write: !path_only && access != libc::O_RDONLY,
            create: !path_only && flags & libc::O_CREAT != 0,
            exclusive: !path_only && flags & libc::O_EXCL != 0,
            truncate: !path_only && flags & libc::O_TRUNC != 0,
            directory: flags & libc::O_DIRECTORY != 0 || spot.must_dir,
        },
        nofollow: flags & libc::O_NOFOLLOW != 0,
        mode: mode & 0o7777 & !crate::hooks::names::umask_now(),
        spec,
    };
    // The placeholder first: when descriptors have run out nothing must have been made.
    let fd = placeholder::new(flags)?;
    let opened = backend().and_then(|backend| backend.open(spot, &how));
    match opened {
        Ok(file) => install(fd, Arc::new(Open::new(file, spot.text.clone(), flags))),
        Err(fail) => {
            sys::close(fd);
            Err(fail)
        }
    }
}

/// Makes the placeholder `fd` lead to `open`.
pub fn install(fd: c_int, open: Arc<Open>) -> Res<c_int> {
    if table::set(fd, open) {
        return Ok(fd);
    }
    sys::close(fd);
    Err(libc::EMFILE.into())
}

/// Closes `fd` of ours. Closing any descriptor of a file gives up the process's record locks on it, as POSIX wants.
pub fn close(fd: c_int) -> Res<()> {
    let Some(open) = table::get(fd) else { return Err(libc::EBADF.into()) };
    give_up_locks(&open);
    let open = Arc::clone(&open);
    table::remove(fd);
    sys::close(fd);
    // The last reference closes the file.
    drop(open);
    Ok(())
}

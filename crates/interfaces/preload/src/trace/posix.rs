//! Trace records of calls of the C library. Failed calls are not recorded.

use super::files::{self, TracedFile};
use super::{FileRef, Level, Operation, Start, record, with};
use crate::{pathname, route, sys, table};
use libc::{c_char, c_int, c_uint};
use std::ffi::CStr;

fn known(fd: c_int) -> Option<TracedFile> {
    with(|tracer| files::of(tracer, fd))
}

fn record_operation(start: Start, file: FileRef, op: Operation, offset: u64, len: u64) {
    record(start, file, Level::Posix, op, false, (offset, len));
}

/// Records a call that moved `moved` bytes at `offset`.
#[cold]
pub fn at(start: Start, fd: c_int, op: Operation, offset: i64, moved: isize) {
    if moved < 0 {
        return;
    }
    let Some(known) = known(fd) else { return };
    // Linux appends even if an offset is given.
    let offset = if known.appends && op == Operation::Write {
        end_of(fd).saturating_sub(moved as i64)
    } else {
        offset
    };
    record_operation(start, known.file, op, offset.max(0) as u64, moved as u64);
}

/// Records a call that moved `moved` bytes and left the descriptor's position after them.
#[cold]
pub fn here(start: Start, fd: c_int, op: Operation, moved: isize) {
    if moved < 0 {
        return;
    }
    let Some(known) = known(fd) else { return };
    // The position of a Weft file is that of its placeholder.
    let Ok(end) = sys::lseek(fd, 0, libc::SEEK_CUR) else { return };
    record_operation(start, known.file, op, end.saturating_sub(moved as i64).max(0) as u64, moved as u64);
}

/// Records a call that moved bytes between two descriptors. Each side uses either the offset behind its pointer, which
/// the call has advanced, or the descriptor's position.
///
/// # Safety
/// The pointers are null or valid.
#[cold]
pub unsafe fn copied(start: Start, from: (c_int, *const i64), to: (c_int, *const i64), moved: isize) {
    if moved < 0 {
        return;
    }
    for ((fd, at_end), op) in [(from, Operation::Read), (to, Operation::Write)] {
        match at_end.as_ref() {
            Some(end) => at(start, fd, op, end - moved as i64, moved),
            None => here(start, fd, op, moved),
        }
    }
}

/// Records a vectored call, whose offset -1 refers to the position.
#[cold]
pub fn vector(start: Start, fd: c_int, op: Operation, offset: i64, moved: isize) {
    if offset == -1 { here(start, fd, op, moved) } else { at(start, fd, op, offset, moved) }
}

fn end_of(fd: c_int) -> i64 {
    let _inside = crate::guard::enter();
    match table::get(fd) {
        Some(open) => open.stat().map_or(0, |stat| stat.st_size),
        None => sys::fstatat(fd, c"", libc::AT_EMPTY_PATH).map_or(0, |stat| stat.st_size),
    }
}

/// Records a call on the whole file of a descriptor.
#[cold]
pub fn whole(start: Start, fd: c_int, op: Operation, offset: i64, result: c_int) {
    if result == 0
        && let Some(known) = known(fd)
    {
        record_operation(start, known.file, op, offset.max(0) as u64, 0);
    }
}

/// Records that `open` returned `fd`.
#[cold]
pub fn opened(start: Start, fd: c_int, flags: c_int) {
    if fd < 0 {
        return;
    }
    let found = with(|tracer| files::learn(tracer, fd, flags & libc::O_PATH == 0));
    if flags & libc::O_PATH != 0 {
        return;
    }
    if let Some(known) = found {
        let op = if flags & libc::O_CREAT != 0 { Operation::Create } else { Operation::Open };
        record_operation(start, known.file, op, 0, 0);
    }
}

/// Returns the file of `fd` before a close. For descriptors that this process did not open (inherited, duplicated), the
/// close is not recorded either.
#[cold]
pub fn closing(fd: c_int) -> Option<FileRef> {
    with(|tracer| files::opened(tracer, fd))
}

/// Records the close.
#[cold]
pub fn closed(start: Start, fd: c_int, was: Option<FileRef>) {
    files::forget(fd);
    if let Some(file) = was {
        record_operation(start, file, Operation::Close, 0, 0);
    }
}

/// Updates the table after `to` became another descriptor of a known file, or of an unknown one.
#[cold]
pub fn replaced(to: c_int) {
    if to >= 0 {
        files::forget(to);
    }
}

/// Updates the table after all numbers in the range were closed.
pub fn forgotten(first: c_uint, last: c_uint) {
    files::forget_range(first, last);
}

/// Records `stat` and similar calls on regular files.
///
/// # Safety
/// `out` was filled by a call that succeeded.
#[cold]
pub unsafe fn queried(start: Start, dir: c_int, path: *const c_char, result: c_int, out: *const libc::stat) {
    if result == 0 && (*out).st_mode & libc::S_IFMT == libc::S_IFREG {
        queried_path(start, dir, path);
    }
}

/// Records `statx` on regular files.
///
/// # Safety
/// See [`queried`].
#[cold]
pub unsafe fn queried_more(
    start: Start,
    dir: c_int,
    path: *const c_char,
    result: c_int,
    out: *const libc::statx,
) {
    if result == 0 && u32::from((*out).stx_mode) & libc::S_IFMT == libc::S_IFREG {
        queried_path(start, dir, path);
    }
}

unsafe fn queried_path(start: Start, dir: c_int, path: *const c_char) {
    if path.is_null() || *path == 0 {
        whole(start, dir, Operation::Stat, 0, 0);
    } else {
        named(start, dir, path, Operation::Stat, 0, 0);
    }
}

/// Records a call on a name.
#[cold]
pub fn named(start: Start, dir: c_int, path: *const c_char, op: Operation, offset: i64, result: c_int) {
    if result != 0 || path.is_null() {
        return;
    }
    let file = with(|tracer| {
        // SAFETY: the caller's C string, which the call has read.
        let path = absolute(dir, unsafe { CStr::from_ptr(path) }.to_bytes())?;
        if tracer.filter.wants(&path) { tracer.recorder.file(&path) } else { None }
    });
    if let Some(file) = file {
        record_operation(start, file, op, offset.max(0) as u64, 0);
    }
}

/// Returns the absolute path, derived lexically.
fn absolute(dir: c_int, path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return Some(pathname::fold(path));
    }
    let from = if dir == libc::AT_FDCWD {
        route::cwd().map_or_else(sys::getcwd, |cwd| route::full(&cwd.text()))
    } else if let Some(open) = table::get(dir) {
        open.full_path()
    } else {
        sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{dir}").as_bytes())).ok()?
    };
    Some(pathname::fold(&pathname::join(&from, path)))
}

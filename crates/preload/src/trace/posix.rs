//! What calls of the C library become in a trace. Failed calls become nothing.

use super::files::{self, Known};
use super::{FileRef, Level, Operation, Start, record, with};
use crate::{pathname, route, sys, table};
use libc::{c_char, c_int, c_uint};
use std::ffi::CStr;

fn known(fd: c_int) -> Option<Known> {
    with(|tracer| files::of(tracer, fd))
}

fn tell(start: Start, file: FileRef, op: Operation, offset: u64, len: u64) {
    record(start, file, Level::Posix, op, false, (offset, len));
}

/// A call that moved `moved` bytes from `offset` on.
#[cold]
pub fn at(start: Start, fd: c_int, op: Operation, offset: i64, moved: isize) {
    if moved < 0 {
        return;
    }
    let Some(known) = known(fd) else { return };
    // Linux appends even where an offset is given.
    let offset = if known.appends && op == Operation::Write {
        end_of(fd).saturating_sub(moved as i64)
    } else {
        offset
    };
    tell(start, known.file, op, offset.max(0) as u64, moved as u64);
}

/// A call that moved `moved` bytes up to the descriptor's position.
#[cold]
pub fn here(start: Start, fd: c_int, op: Operation, moved: isize) {
    if moved < 0 {
        return;
    }
    let Some(known) = known(fd) else { return };
    // The position of a file of ours is that of its placeholder.
    let Ok(end) = sys::lseek(fd, 0, libc::SEEK_CUR) else { return };
    tell(start, known.file, op, end.saturating_sub(moved as i64).max(0) as u64, moved as u64);
}

/// A call that moved bytes from one descriptor to another, each at the offset behind its pointer, which the call has
/// moved on, or at its position.
///
/// # Safety
/// The pointers are null or valid.
#[cold]
pub unsafe fn copied(start: Start, from: (c_int, *const i64), to: (c_int, *const i64), moved: isize) {
    for ((fd, at_end), op) in [(from, Operation::Read), (to, Operation::Write)] {
        match at_end.as_ref() {
            Some(end) => at(start, fd, op, end - moved as i64, moved),
            None => here(start, fd, op, moved),
        }
    }
}

/// The same for calls whose offset -1 means the position.
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

/// A call about the whole file of a descriptor.
#[cold]
pub fn whole(start: Start, fd: c_int, op: Operation, offset: i64, result: c_int) {
    if result == 0
        && let Some(known) = known(fd)
    {
        tell(start, known.file, op, offset.max(0) as u64, 0);
    }
}

/// `open` gave `fd`.
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
        tell(start, known.file, op, 0, 0);
    }
}

/// What `fd` was until the call: before a close. Of descriptors that came otherwise than by an open of this process
/// (inherited, duplicated) the end is not told either.
#[cold]
pub fn closing(fd: c_int) -> Option<FileRef> {
    with(|tracer| files::opened(tracer, fd))
}

/// It was closed.
#[cold]
pub fn closed(start: Start, fd: c_int, was: Option<FileRef>) {
    files::forget(fd);
    if let Some(file) = was {
        tell(start, file, Operation::Close, 0, 0);
    }
}

/// `to` is now another descriptor of what another leads to, or of nothing known.
#[cold]
pub fn replaced(to: c_int) {
    if to >= 0 {
        files::forget(to);
    }
}

/// All numbers in the range were closed.
pub fn forgotten(first: c_uint, last: c_uint) {
    files::forget_range(first, last);
}

/// `stat` and its like; of regular files only.
///
/// # Safety
/// `out` was filled by a call that succeeded.
#[cold]
pub unsafe fn asked(start: Start, dir: c_int, path: *const c_char, result: c_int, out: *const libc::stat) {
    if result == 0 && (*out).st_mode & libc::S_IFMT == libc::S_IFREG {
        asked_of(start, dir, path);
    }
}

/// The same for `statx`.
///
/// # Safety
/// As there.
#[cold]
pub unsafe fn asked_more(
    start: Start,
    dir: c_int,
    path: *const c_char,
    result: c_int,
    out: *const libc::statx,
) {
    if result == 0 && u32::from((*out).stx_mode) & libc::S_IFMT == libc::S_IFREG {
        asked_of(start, dir, path);
    }
}

unsafe fn asked_of(start: Start, dir: c_int, path: *const c_char) {
    if path.is_null() || *path == 0 {
        whole(start, dir, Operation::Stat, 0, 0);
    } else {
        named(start, dir, path, Operation::Stat, 0, 0);
    }
}

/// A call about a name.
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
        tell(start, file, op, offset.max(0) as u64, 0);
    }
}

/// The path by words, from the root.
fn absolute(dir: c_int, path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return Some(pathname::fold(path));
    }
    let from = if dir == libc::AT_FDCWD {
        route::cwd().map_or_else(sys::getcwd, |text| route::full(&text))
    } else if let Some(open) = table::get(dir) {
        route::full(&open.path())
    } else {
        sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{dir}").as_bytes())).ok()?
    };
    Some(pathname::fold(&pathname::join(&from, path)))
}

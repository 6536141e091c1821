//! Sizes of files of the host by path: delegates may hold bytes behind the end that the kernel knows.

use super::{find_known, may_be_below};
use crate::errno::{self, Res};
use crate::open::settle;
use crate::serve::answer;
use crate::{backend, config, guard, memory, sys};
use libc::{c_char, c_int, c_uint};
use std::ffi::CStr;
use weft_core::delegates::ownership::FileNumber;

/// Implements `fstatat`.
///
/// # Safety
/// `path` is a C string or null, `out` is writable.
pub unsafe fn stat(dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
    answer(|| {
        settle()?;
        let mut stat = sys::fstatat_of(dir, path, flags)?;
        if let Some(number) = number_of(dir, path, flags, &stat)? {
            let unwritten = backend::unwritten_end(number)?;
            // Asked again: delegates may have written bytes meanwhile.
            stat = sys::fstatat_of(dir, path, flags)?;
            stat.st_size = stat.st_size.max(unwritten.unwrap_or(0) as i64);
        }
        memory::store(out, stat).map(|()| 0)
    })
}

/// Implements `statx`.
///
/// # Safety
/// `path` is a C string or null, `out` is writable.
pub unsafe fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> c_int {
    answer(|| {
        settle()?;
        sys::statx(dir, path, flags, mask, out)?;
        if mask & libc::STATX_SIZE == 0 || u32::from((*out).stx_mode) & libc::S_IFMT != libc::S_IFREG {
            return Ok(0);
        }
        let same = flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH);
        let stat = sys::fstatat_of(dir, path, same)?;
        if let Some(number) = number_of(dir, path, flags, &stat)? {
            let unwritten = backend::unwritten_end(number)?;
            sys::statx(dir, path, flags, mask, out)?;
            (*out).stx_size = (*out).stx_size.max(unwritten.unwrap_or(0));
        }
        Ok(0)
    })
}

/// Returns the number at the delegates of the file with these attributes, if they serve it.
unsafe fn number_of(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    stat: &libc::stat,
) -> Res<Option<FileNumber>> {
    let Some(config) = config::ready() else { return Ok(None) };
    // The kernel knows the size of a file with a replica.
    if !may_be_below(&config.over, stat) {
        return Ok(None);
    }
    if !memory::is_text(path) || *path == 0 {
        return Ok(find_known(dir, stat).map(|id| id.number));
    }
    let follow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
    let only = sys::openat(dir, path, libc::O_PATH | libc::O_CLOEXEC | follow, 0)?;
    let id = find_known(only, stat);
    sys::close(only);
    Ok(id.map(|id| id.number))
}

/// Implements `truncate`, if delegates serve the file.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn truncate(path: *const c_char, size: i64) -> c_int {
    let by_kernel = || sys::truncate(path, size).map_err(Into::into);
    let cut = match memory::is_text(path) {
        false => None,
        true => super::opening::with_writable(CStr::from_ptr(path), |open| open.truncate(size)),
    };
    answer(|| cut.unwrap_or_else(by_kernel).map(|()| 0))
}

/// Whether `path`, or its directory if it is missing, lies below one of the directories.
pub fn lies_below(path: &CStr) -> bool {
    let before = errno::get();
    let _inside = guard::enter();
    let below = is_below(path);
    errno::set(before);
    below
}

/// Returns the number at the delegates of the file at `path`, if they serve it.
pub fn number_at(path: &CStr) -> Option<FileNumber> {
    let only = sys::open(path, libc::O_PATH | libc::O_CLOEXEC, 0).ok()?;
    let id = super::find(only);
    sys::close(only);
    Some(id?.number)
}

fn is_below(path: &CStr) -> bool {
    let Some(config) = config::ready() else { return false };
    if sys::exists(libc::AT_FDCWD, path) {
        return number_at(path).is_some();
    }
    let parent = match crate::pathname::split(path.to_bytes()).0 {
        b"" => sys::c(b"."),
        parent => sys::c(parent),
    };
    let Ok(stat) = sys::fstatat(libc::AT_FDCWD, &parent, 0) else { return false };
    let Some(real) = sys::real_directory(&parent) else { return false };
    config.over.iter().any(|directory| {
        directory.device == stat.st_dev && crate::pathname::below(&directory.path, &real).is_some()
    })
}

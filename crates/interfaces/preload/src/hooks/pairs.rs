//! Order of errors of calls with two paths. Linux finds the directories of both names first, so a path that leads nowhere
//! hides that the two are on different file systems.

use crate::backend::backend;
use crate::errno::{Fail, Res};
use crate::route::{self, Route, WeftPath};
use crate::serve::{inside, on_way};
use crate::{pathname, sys};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Call with two paths.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// `rename` and relatives: both names are looked up in their directories.
    Rename,
    /// `link` and relatives: the source must exist, and symbolic links at its end may be followed.
    Link { follow: bool },
}

/// How a path ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A name.
    Name,
    /// A name and a slash.
    Slash,
    /// `.`, `..` or `/`: no name that could be given or taken.
    Dots,
}

/// Returns how `path` ends.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn end_of(path: *const c_char) -> End {
    if path.is_null() {
        return End::Name;
    }
    let path = CStr::from_ptr(path).to_bytes();
    match pathname::last_name(path) {
        None | Some(b"." | b"..") => End::Dots,
        Some(_) if path.ends_with(b"/") => End::Slash,
        Some(_) => End::Name,
    }
}

/// Returns the directory of a name. With [`End::Dots`], `weft_path` is that directory itself.
fn directory_of(weft_path: &WeftPath, end: End) -> WeftPath {
    let mut text = weft_path.text.clone();
    let start = weft_path.base.map_or(0, |(_, start)| start);
    if end != End::Dots {
        let cut = text.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(start);
        text.truncate(cut);
    }
    if text.is_empty() {
        text.push(b'/');
    }
    WeftPath { text, must_dir: true, ..weft_path.clone() }
}

/// Whether the directory of a name exists, also behind links out of the mount.
pub fn has_directory(weft_path: &WeftPath, end: End) -> Res<()> {
    exists(&directory_of(weft_path, end), true)
}

/// Whether the directory of a name was removed while the program works in it.
pub fn is_in_removed_directory(weft_path: &WeftPath, end: End) -> bool {
    let found = backend().and_then(|backend| backend.stat(&directory_of(weft_path, end), true));
    found.is_ok_and(|st| st.st_nlink == 0)
}

fn exists(weft_path: &WeftPath, follow: bool) -> Res<()> {
    // Paths are routed for the program.
    let _outside = crate::guard::leave();
    let mut kept = None;
    let way = Route::Ours(weft_path.clone());
    let found = on_way::<c_int>(way, &mut kept, |weft_path| {
        backend()?.stat(weft_path, follow)?;
        Ok(0)
    });
    let failed = match (found, kept) {
        (Some(done), _) => done < 0,
        (None, Some(path)) => {
            sys::fstatat(libc::AT_FDCWD, &path, if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW })?;
            false
        }
        (None, None) => false,
    };
    if failed { Err(crate::errno::get().into()) } else { Ok(()) }
}

/// Whether the directory of a name with a slash behind it exists, or the directory that the path itself names.
pub fn has_directory_of(weft_path: &WeftPath) -> Res<()> {
    has_directory(weft_path, if weft_path.ends_in_dots { End::Dots } else { End::Slash })
}

/// Checks the names of a `rename` that need not be names of files, in the order of Linux.
pub fn renamable(from: &WeftPath, to: &WeftPath, ends: (End, End), no_replace: bool) -> Res<()> {
    if ends == (End::Name, End::Name) {
        return Ok(());
    }
    has_directory(from, ends.0)?;
    has_directory(to, ends.1)?;
    if ends.0 == End::Dots {
        return Err(libc::EBUSY.into());
    }
    if ends.1 == End::Dots {
        return Err(if no_replace { libc::EEXIST } else { libc::EBUSY }.into());
    }
    Ok(())
}

/// Returns the error that Linux reports, for a call with two names of Weft that failed with `fail`: a missing directory
/// or file comes before a name that is too long.
pub fn first_error(pair: Pair, from: &WeftPath, to: &WeftPath, ends: (End, End), fail: Fail) -> Fail {
    let plain = |weft_path: &WeftPath| WeftPath { must_dir: false, ..weft_path.clone() };
    let check = || -> Res<()> {
        if pair == Pair::Rename {
            has_directory(from, ends.0)?;
            has_directory(to, ends.1)?;
        }
        let follow = matches!(pair, Pair::Link { follow: true });
        exists(&if pair == Pair::Rename { plain(from) } else { from.clone() }, follow)?;
        has_directory(to, ends.1)
    };
    match fail {
        Fail::Errno(libc::ENAMETOOLONG | libc::ENOENT | libc::ENOTDIR) => check().err().unwrap_or(fail),
        _ => fail,
    }
}

/// Returns the error of a call of which one path leads into Weft and the other does not; `None` for a path of Weft means
/// that it lies on the host.
///
/// # Safety
/// The paths are C strings or null.
pub unsafe fn across(
    pair: Pair,
    from: (Option<&WeftPath>, c_int, *const c_char),
    to: (Option<&WeftPath>, c_int, *const c_char),
) -> c_int {
    let fault = [from.2, to.2].into_iter().find(|path| path.is_null());
    if fault.is_some() {
        return libc::EFAULT;
    }
    let source = source_error(pair, from);
    let target = || directory_error(to).or_else(|| target_error(pair, to));
    source.or_else(target).unwrap_or(libc::EXDEV)
}

/// Returns the error of finding the first path of a call: of `rename` its directory, of `link` the file.
///
/// # Safety
/// The path is a C string.
pub unsafe fn source_error(pair: Pair, side: (Option<&WeftPath>, c_int, *const c_char)) -> Option<c_int> {
    match pair {
        Pair::Rename => directory_error(side),
        Pair::Link { follow } => file_error(side, follow),
    }
}

unsafe fn directory_error(side: (Option<&WeftPath>, c_int, *const c_char)) -> Option<c_int> {
    let (ours, dir, path) = side;
    let end = end_of(path);
    if let Some(weft_path) = ours {
        return inside(|| has_directory(weft_path, end)).err().map(|fail| fail.errno());
    }
    let bytes = CStr::from_ptr(path).to_bytes();
    if bytes.is_empty() {
        return Some(libc::ENOENT);
    }
    if bytes.len() >= libc::PATH_MAX as usize {
        return Some(libc::ENAMETOOLONG);
    }
    let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
    let parent = if end == End::Dots { bytes } else { pathname::split(trimmed).0 };
    sys::fstatat(dir, &sys::c(&pathname::join(parent, b".")), 0).err()
}

unsafe fn file_error(side: (Option<&WeftPath>, c_int, *const c_char), follow: bool) -> Option<c_int> {
    let (ours, dir, path) = side;
    if let Some(weft_path) = ours {
        return inside(|| exists(weft_path, follow)).err().map(|fail| fail.errno());
    }
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    sys::fstatat(dir, CStr::from_ptr(path), flags).err()
}

/// Returns the error of a target that cannot be a new name of a file.
unsafe fn target_error(pair: Pair, to: (Option<&WeftPath>, c_int, *const c_char)) -> Option<c_int> {
    if pair == Pair::Rename {
        return None;
    }
    match (end_of(to.2), file_error(to, false)) {
        (End::Dots, _) | (_, None) => Some(libc::EEXIST),
        (End::Slash, Some(errno)) => Some(errno),
        (End::Name, Some(errno)) => Some(errno).filter(|&errno| errno != libc::ENOENT),
    }
}

/// Returns [`source_error`] of a call whose second path cannot be read.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn first_path(pair: Pair, dir: c_int, path: *const c_char) -> Option<c_int> {
    match route::route(dir, path) {
        Route::Ours(weft_path) => source_error(pair, (Some(&weft_path), dir, path)),
        Route::Failed(errno) => Some(errno),
        Route::Foreign | Route::Moved(_) => source_error(pair, (None, dir, path)),
    }
}

/// Returns the error of a link from Weft to a path of the host.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn across_to(dir: c_int, path: *const c_char) -> c_int {
    if path.is_null() {
        return libc::EFAULT;
    }
    let to = (None, dir, path);
    let link = Pair::Link { follow: false };
    directory_error(to).or_else(|| target_error(link, to)).unwrap_or(libc::EXDEV)
}

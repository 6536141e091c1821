//! Is this path ours? The answer for a foreign one costs a few nanoseconds.

use crate::config::config;
use crate::lock::Lock;
use crate::pathname;
use crate::{guard, sys, table};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file of ours by name.
#[derive(Clone, Debug)]
pub struct Spot {
    /// The path from the root of the mount: begins with a slash, tidy.
    pub text: Vec<u8>,
    /// The inode at which the walk begins, and where in `text` what is walked from it starts.
    pub base: Option<(u64, usize)>,
    /// The path ended in a way that only a directory may.
    pub must_dir: bool,
}

impl Spot {
    /// By its tidy path from the root of the mount.
    pub fn at(text: Vec<u8>) -> Self {
        Self { text, base: None, must_dir: false }
    }
}

/// The mount prefix and `text` behind it.
pub fn full(text: &[u8]) -> Vec<u8> {
    let mut out = config().mount.clone();
    if text != b"/" {
        out.extend_from_slice(text);
    }
    out
}

/// Where a path leads.
#[derive(Debug)]
pub enum Route {
    /// To the kernel, as it is.
    Foreign,
    /// To the kernel, by this path: ours climbed out of the mount.
    Moved(CString),
    /// To us.
    Ours(Spot),
}

/// Where `path`, relative to `dir`, leads.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub unsafe fn route(dir: c_int, path: *const c_char) -> Route {
    if path.is_null() {
        return Route::Foreign;
    }
    let first = *path as u8;
    if first == b'/' {
        let second = *path.add(1) as u8;
        let mount = &config().mount;
        // The whole prefix is compared by the slow way; here one or two bytes decide for nearly everybody.
        let close = second == mount[1] && (mount.len() == 2 || *path.add(2) as u8 == mount[2]);
        if !close && second != b'/' && second != b'.' && !has_dots(path) {
            return Route::Foreign;
        }
        return absolute(path);
    }
    if dir == libc::AT_FDCWD {
        if !(AWAY.load(Ordering::Relaxed) || first == b'.' || has_dots(path)) {
            return Route::Foreign;
        }
    } else if !(table::is_ours(dir) || first == b'.' || has_dots(path)) {
        return Route::Foreign;
    }
    relative(dir, path)
}

/// Whether the path climbs somewhere (`..` as or in a name).
#[inline]
unsafe fn has_dots(path: *const c_char) -> bool {
    !libc::strstr(path, c"/..".as_ptr()).is_null()
}

unsafe fn absolute(path: *const c_char) -> Route {
    if guard::inside() {
        return Route::Foreign;
    }
    let bytes = CStr::from_ptr(path).to_bytes();
    if let Some(rest) = pathname::below(&config().mount, bytes) {
        return inside_mount(rest, bytes);
    }
    // `//weft/x`, `/./weft/x`, `/tmp/../weft/x`: by words alone; a foreign link in front of `..` is not looked at.
    let folded = pathname::fold(bytes);
    match pathname::below(&config().mount, &folded) {
        Some(rest) => inside_mount(rest, bytes),
        None => Route::Foreign,
    }
}

fn inside_mount(rest: &[u8], as_written: &[u8]) -> Route {
    match pathname::tidy(rest) {
        Some(text) => Route::Ours(Spot { text, base: None, must_dir: pathname::wants_directory(as_written) }),
        None => {
            let folded = pathname::fold(&[&config().mount, rest].concat());
            match pathname::below(&config().mount, &folded) {
                Some(rest) => Route::Ours(Spot {
                    text: pathname::fold(rest),
                    base: None,
                    must_dir: pathname::wants_directory(as_written),
                }),
                None => Route::Moved(sys::c(&folded)),
            }
        }
    }
}

unsafe fn relative(dir: c_int, path: *const c_char) -> Route {
    if guard::inside() {
        return Route::Foreign;
    }
    let bytes = CStr::from_ptr(path).to_bytes();
    if bytes.is_empty() {
        return Route::Foreign;
    }
    let ours = if dir == libc::AT_FDCWD {
        cwd().map(|text| (text, None))
    } else {
        table::get(dir).map(|open| (open.path(), open.directory_base()))
    };
    let Some((dir_text, base)) = ours else {
        return relative_foreign(dir, bytes);
    };
    let joined = if dir == libc::AT_FDCWD {
        // The working directory is kept without links, so that its parents are known by words, as they still are
        // when somebody has removed it.
        pathname::join_climbing(&dir_text, bytes)
    } else {
        pathname::join(&dir_text, bytes)
    };
    match inside_mount(&joined, bytes) {
        Route::Ours(mut spot) => {
            // A walk from the directory's inode survives its being renamed.
            if let Some(inode) = base
                && spot.text.starts_with(&dir_text)
            {
                spot.base = Some((inode, dir_text.len()));
            }
            Route::Ours(spot)
        }
        other => other,
    }
}

/// A relative path from a foreign directory that may climb into the mount.
fn relative_foreign(dir: c_int, bytes: &[u8]) -> Route {
    if pathname::names(bytes).all(|name| name != b"..") {
        return Route::Foreign;
    }
    let from = if dir == libc::AT_FDCWD {
        sys::getcwd()
    } else {
        sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{dir}").as_bytes()))
            .unwrap_or_default()
    };
    if !from.starts_with(b"/") {
        return Route::Foreign;
    }
    let folded = pathname::fold(&pathname::join(&from, bytes));
    match pathname::below(&config().mount, &folded) {
        Some(rest) => inside_mount(rest, bytes),
        None => Route::Foreign,
    }
}

/// When the kernel found nothing at `path`: what it is if a foreign symbolic link on the way leads into the mount.
///
/// # Safety
/// `path` is null or a C string.
#[cold]
pub unsafe fn follow_foreign(dir: c_int, path: *const c_char) -> Option<Route> {
    if path.is_null() || guard::inside() {
        return None;
    }
    let errno = crate::errno::get();
    let found = find_foreign_link(dir, CStr::from_ptr(path));
    crate::errno::set(errno);
    found
}

fn find_foreign_link(dir: c_int, path: &CStr) -> Option<Route> {
    let text = path;
    let path = text.to_bytes();
    if path.is_empty() || sys::is_no_link(dir, text) && parent_exists(dir, path) {
        return None;
    }
    let mut path = path.to_vec();
    // As many links as the kernel would follow.
    for _ in 0..40 {
        // The usual case, a name missing in a directory that is there, ends here after two system calls.
        let (parent, _) = pathname::split(&path);
        let link = match sys::readlinkat(dir, &sys::c(&path)) {
            Ok(target) => (target, path.len()),
            Err(libc::ENOENT) if sys::fstatat(dir, &sys::c(parent), 0).is_err() => first_link(dir, &path)?,
            Err(_) => return None,
        };
        let (target, end) = link;
        let before = pathname::split(&path[..end]).0.to_vec();
        let rest = path[end..].to_vec();
        path = if target.starts_with(b"/") { target } else { pathname::join(&before, &target) };
        path.extend_from_slice(&rest);
        if path.starts_with(b"/") {
            let folded = pathname::fold(&path);
            if let Some(rest) = pathname::below(&config().mount, &folded) {
                return Some(inside_mount(rest, &path));
            }
        }
    }
    None
}

/// Whether the directory of `path` is there. Programs look for many names in few directories, so the last ones that
/// were there are remembered: one that has gone since holds no link into the mount either.
fn parent_exists(dir: c_int, path: &[u8]) -> bool {
    static SEEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let parent = pathname::split(path).0;
    let absolute = parent.starts_with(b"/");
    let hash = parent.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let seen = &SEEN[(hash >> 58) as usize];
    if absolute && seen.load(Ordering::Relaxed) == hash {
        return true;
    }
    let exists = sys::exists(dir, &sys::c(parent));
    if exists && absolute {
        seen.store(hash, Ordering::Relaxed);
    }
    exists
}

/// The dangling link on the way to `path`: its target and where its name ends.
fn first_link(dir: c_int, path: &[u8]) -> Option<(Vec<u8>, usize)> {
    let ends = (1..path.len()).filter(|&at| path[at] == b'/' && path[at - 1] != b'/');
    for end in ends {
        let prefix = sys::c(&path[..end]);
        if sys::fstatat(dir, &prefix, 0).is_err() {
            return Some((sys::readlinkat(dir, &prefix).ok()?, end));
        }
    }
    None
}

// The working directory, when it is ours: the kernel's stays where it was.
static AWAY: AtomicBool = AtomicBool::new(false);
static CWD: Lock<Vec<u8>> = Lock::new(Vec::new());

/// The working directory as a path from the root of the mount, when it is ours.
pub fn cwd() -> Option<Vec<u8>> {
    AWAY.load(Ordering::Acquire).then(|| CWD.lock().clone())
}

/// Makes `text` the working directory; `None` gives it back to the kernel.
pub fn set_cwd(text: Option<Vec<u8>>) {
    let mut cwd = CWD.lock();
    AWAY.store(text.is_some(), Ordering::Release);
    *cwd = text.unwrap_or_default();
}

/// After a fork the child's only thread is the one that forked: whoever else held the lock is gone.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process, and the text is replaced as a whole.
    unsafe { CWD.reset() };
}

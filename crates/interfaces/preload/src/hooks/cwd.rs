//! The working directory. While it is in Weft, the kernel's stays unchanged, and a hook handles every relative path.

use crate::backend::backend;
use crate::errno::{self, Res};
use crate::open::Open;
use crate::route::{self, WeftPath};
use crate::serve::on_weft_fd;
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, size_t};

fn enter(weft_path: &WeftPath) -> Res<c_int> {
    let backend = backend()?;
    if backend.stat(weft_path, true)?.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(libc::ENOTDIR.into());
    }
    backend.access(weft_path, libc::X_OK as u32, true)?;
    // The shell's `cd` and `pwd -P` expect the path without links; callers that work lexically get a folded path.
    let text = super::attrs::resolved(weft_path)?;
    route::set_cwd(Some(text));
    Ok(0)
}

/// Returns the path of an open directory without links. If the directory was renamed, searches for its names from the
/// bottom up.
pub fn path_now(open: &Open) -> Res<Vec<u8>> {
    let backend = backend()?;
    let own = open.stat()?.st_ino;
    if backend.stat(&WeftPath::at(open.path()), true).is_ok_and(|st| st.st_ino == own) {
        return super::attrs::resolved(&WeftPath::at(open.path()));
    }
    let by_inode =
        |base, rest: &[u8]| WeftPath { text: rest.to_vec(), base: Some((base, 0)), must_dir: false };
    let root = backend.stat(&WeftPath::at(b"/".to_vec()), true)?.st_ino;
    let mut at = open.directory_base().ok_or(libc::ENOTDIR)?;
    let mut path = Vec::new();
    // A path has at most 4,096 bytes, so at most 2,048 names.
    for _ in 0..2048 {
        if at.inode == root {
            return Ok(if path.is_empty() { b"/".to_vec() } else { path });
        }
        let (_, parent) = backend.stat_base(&by_inode(at, b"/.."), true)?;
        let mut after = Vec::new();
        let name = loop {
            let (names, more) = backend.list(&by_inode(parent, b"/"), &after)?;
            if let Some(found) = names.iter().find(|name| name.inode == at.inode) {
                break found.name.clone();
            }
            match names.last() {
                Some(last) if more => after.clone_from(&last.name),
                _ => return Err(libc::ENOENT.into()),
            }
        };
        path = [b"/", &name[..], &path].concat();
        at = parent;
    }
    Err(libc::ENAMETOOLONG.into())
}

/// `chdir`: a foreign directory replaces one in Weft.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    let mut kept = None;
    let way = route::route(AT_FDCWD, path);
    let mut path = path;
    if !matches!(way, route::Route::Foreign) {
        let result = crate::serve::on_way(way, &mut kept, enter);
        if let Some(result) = result {
            return result;
        }
        path = kept.as_ref().map_or(path, |moved| moved.as_ptr());
    }
    let result = real!(chdir: fn(*const c_char) -> c_int)(path);
    if result == 0 {
        route::set_cwd(None);
    } else if errno::get() == libc::ENOENT
        && let Some(way) = route::follow_foreign(AT_FDCWD, path)
        && let Some(result) = crate::serve::on_way(way, &mut kept, enter)
    {
        return result;
    }
    result
}

/// `fchdir`: a foreign directory replaces one in Weft.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    if let Some(result) = on_weft_fd(fd, |open| {
        if !open.is_directory() {
            return Err(libc::ENOTDIR.into());
        }
        enter(&WeftPath::at(path_now(open)?))
    }) {
        return result;
    }
    let result = real!(fchdir: fn(c_int) -> c_int)(fd);
    if result == 0 && !table::is_weft(fd) {
        route::set_cwd(None);
    }
    result
}

unsafe fn copy_cwd(out: *mut c_char, capacity: size_t) -> Option<*mut c_char> {
    let mut text = route::full(&route::cwd()?);
    let fail = |number| {
        errno::set(number);
        Some(std::ptr::null_mut())
    };
    let mut out = out;
    if out.is_null() {
        let capacity = if capacity == 0 { text.len() + 1 } else { capacity };
        if text.len() >= capacity {
            return fail(libc::ERANGE);
        }
        out = libc::malloc(capacity).cast();
        if out.is_null() {
            return fail(libc::ENOMEM);
        }
    } else if capacity == 0 {
        return fail(libc::EINVAL);
    } else if text.len() >= capacity {
        return fail(libc::ERANGE);
    }
    text.push(0);
    match crate::memory::copy_out(&text, out.cast()) {
        Ok(()) => Some(out),
        Err(_) => fail(libc::EFAULT),
    }
}

hook! { [getcwd] (out: *mut c_char, capacity: size_t) -> *mut c_char { copy_cwd(out, capacity) } }
hook! { [__getcwd_chk] (out: *mut c_char, capacity: size_t, _real: size_t) -> *mut c_char { copy_cwd(out, capacity) } }
hook! { [get_current_dir_name] () -> *mut c_char { copy_cwd(std::ptr::null_mut(), 0) } }
hook! { [getwd] (out: *mut c_char) -> *mut c_char { copy_cwd(out, libc::PATH_MAX as usize) } }
hook! { [__getwd_chk] (out: *mut c_char, _real: size_t) -> *mut c_char { copy_cwd(out, libc::PATH_MAX as usize) } }

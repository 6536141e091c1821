//! The working directory. While it is in Weft, the kernel's stays unchanged, and a hook handles every relative path: it
//! walks from the directory's inode, so that a renamed working directory stays the same directory.

use crate::backend::backend;
use crate::errno::{self, Fail, Res};
use crate::open;
use crate::route::{self, Base, Cwd, WeftPath};
use crate::serve::on_weft_fd;
use crate::{pathname, table};
use libc::{AT_FDCWD, c_char, c_int, size_t};

fn enter(weft_path: &WeftPath) -> Res<c_int> {
    // The shell's `cd` and `pwd -P` expect the path without links.
    let text = super::attrs::resolved(weft_path).unwrap_or_else(|_| pathname::fold(&weft_path.text));
    let dir = open::open_place(weft_path, text.clone())?;
    backend()?.access(&at_inode(dir.directory_base()?, b""), libc::X_OK as u32, true)?;
    route::set_cwd(Some(Cwd::new(dir, text)));
    Ok(0)
}

/// Returns the place to which `rest` leads from an inode.
fn at_inode(base: Base, rest: &[u8]) -> WeftPath {
    WeftPath::from_base(base, rest.to_vec(), 0)
}

/// Returns the present path of an inode without links. `text` is the path at which it was last seen. If it is not there
/// any more, the names of a directory are searched from the bottom up, and the name of a file in its directory.
///
/// # Errors
/// `ENOENT` if it is not found.
pub fn path_of(base: Base, text: &[u8]) -> Res<Vec<u8>> {
    let backend = backend()?;
    match backend.stat(&WeftPath::at(text.to_vec()), true) {
        Ok(st) if st.st_ino == base.inode => return super::attrs::resolved(&WeftPath::at(text.to_vec())),
        // Without permission for the directories above, nothing newer can be found.
        Err(Fail::Errno(libc::EACCES)) => return Ok(pathname::fold(text)),
        _ => {}
    }
    let (root, root_base) = backend.stat_base(&WeftPath::at(b"/".to_vec()), true)?;
    let (st, mut at) = backend.stat_base(&at_inode(base, b""), true)?;
    if st.st_nlink == 0 {
        return Err(libc::ENOENT.into());
    }
    if st.st_mode & libc::S_IFMT != libc::S_IFDIR {
        let above = pathname::split(text).0;
        let (_, parent) = backend.stat_base(&WeftPath::at(above.to_vec()), true)?;
        let name = name_in(parent, base.inode)?;
        return Ok(pathname::join(&super::attrs::resolved(&WeftPath::at(above.to_vec()))?, &name));
    }
    let mut path = Vec::new();
    // A path has at most 4,096 bytes, so at most 2,048 names.
    for _ in 0..2048 {
        if at.inode == root.st_ino {
            return Ok(if path.is_empty() { b"/".to_vec() } else { path });
        }
        let parent = match backend.stat_base(&at_inode(at, b".."), true) {
            Ok((_, parent)) => parent,
            // Directly below the root of the mount.
            Err(Fail::Moved(_)) => root_base,
            Err(fail) => return Err(fail),
        };
        path = [b"/", &name_in(parent, at.inode)?[..], &path].concat();
        at = parent;
    }
    Err(libc::ENAMETOOLONG.into())
}

/// Returns the name of `inode` in the directory `parent`.
fn name_in(parent: Base, inode: u64) -> Res<Vec<u8>> {
    let mut after = Vec::new();
    loop {
        let (names, more) = backend()?.list(&at_inode(parent, b""), &after)?;
        if let Some(found) = names.iter().find(|name| name.inode == inode) {
            return Ok(found.name.clone());
        }
        match names.last() {
            Some(last) if more => after.clone_from(&last.name),
            _ => return Err(libc::ENOENT.into()),
        }
    }
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
        enter(&open.weft_path()?)
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
    let cwd = route::cwd()?;
    let now = crate::serve::inside(|| path_of(cwd.open.directory_base()?, &cwd.text()));
    let fail = |number| {
        errno::set(number);
        Some(std::ptr::null_mut())
    };
    let mut text = match now {
        Ok(text) => {
            cwd.note_text(&text);
            route::full(&text)
        }
        // It was removed.
        Err(Fail::Errno(libc::ESTALE)) => return fail(libc::ENOENT),
        Err(error) => return fail(error.errno()),
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

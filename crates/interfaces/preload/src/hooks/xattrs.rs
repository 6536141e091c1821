//! Extended attributes.

use super::bytes;
use crate::backend::backend;
use crate::errno::Res;
use crate::memory::{self, Access};
use crate::open::Open;
use crate::route::WeftPath;
use crate::serve::on_weft_fd;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};

unsafe fn name<'a>(name: *const c_char) -> Res<&'a str> {
    let name = std::str::from_utf8(bytes(name)?).map_err(|_| libc::EINVAL)?;
    if name.is_empty() || name.len() > 255 { Err(libc::ERANGE.into()) } else { Ok(name) }
}

/// Returns the inode of a descriptor. Linux looks at the name of the attribute first.
unsafe fn inode(open: &Open, key: *const c_char) -> Res<WeftPath> {
    name(key)?;
    open.is_opened()?;
    open.weft_path()
}

/// Copies `value` to `out`, or only returns its length if the capacity is zero.
unsafe fn copy_value(value: &[u8], out: *mut c_void, capacity: size_t) -> Res<ssize_t> {
    if capacity > 0 {
        if value.len() > capacity {
            return Err(libc::ERANGE.into());
        }
        memory::copy_out(value, out)?;
    }
    Ok(value.len() as ssize_t)
}

unsafe fn get(
    weft_path: &WeftPath,
    follow: bool,
    key: *const c_char,
    out: *mut c_void,
    capacity: size_t,
) -> Res<ssize_t> {
    copy_value(&backend()?.get_xattr(weft_path, follow, name(key)?)?, out, capacity)
}

unsafe fn set(
    weft_path: &WeftPath,
    follow: bool,
    key: *const c_char,
    value: *const c_void,
    len: size_t,
    flags: c_int,
) -> Res<c_int> {
    let (name, value) = taken(key, value, len, flags)?;
    backend()?.set_xattr(weft_path, follow, name, value, flags)?;
    Ok(0)
}

/// Takes name and value from memory of the program. Linux does so before it looks at the file.
unsafe fn taken<'a>(
    key: *const c_char,
    value: *const c_void,
    len: size_t,
    flags: c_int,
) -> Res<(&'a str, &'a [u8])> {
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
        return Err(libc::EINVAL.into());
    }
    let name = name(key)?;
    if len > 65_536 {
        return Err(libc::E2BIG.into());
    }
    if !memory::has(value, len, Access::Read) {
        return Err(libc::EFAULT.into());
    }
    Ok((name, if len == 0 { &[] } else { std::slice::from_raw_parts(value.cast(), len) }))
}

unsafe fn list(weft_path: &WeftPath, follow: bool, out: *mut c_char, capacity: size_t) -> Res<ssize_t> {
    let names = backend()?.list_xattr(weft_path, follow)?;
    let text: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
    copy_value(&text, out.cast(), capacity)
}

unsafe fn remove(weft_path: &WeftPath, follow: bool, key: *const c_char) -> Res<c_int> {
    backend()?.remove_xattr(weft_path, follow, name(key)?)?;
    Ok(0)
}

path_hook! { [getxattr] (path: *const c_char, key: *const c_char, out: *mut c_void, capacity: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { get(weft_path, true, key, out, capacity) }
}
path_hook! { [lgetxattr] (path: *const c_char, key: *const c_char, out: *mut c_void, capacity: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { get(weft_path, false, key, out, capacity) }
}
hook! { [fgetxattr] (fd: c_int, key: *const c_char, out: *mut c_void, capacity: size_t) -> ssize_t {
    on_weft_fd(fd, |open| get(&inode(open, key)?, true, key, out, capacity))
} }
path_hook! { [setxattr]
    (path: *const c_char, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int,
    (AT_FDCWD, path) |weft_path| { set(weft_path, true, key, value, len, flags) }
}
path_hook! { [lsetxattr]
    (path: *const c_char, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int,
    (AT_FDCWD, path) |weft_path| { set(weft_path, false, key, value, len, flags) }
}
hook! { [fsetxattr] (fd: c_int, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int {
    on_weft_fd(fd, |open| {
        taken(key, value, len, flags)?;
        set(&inode(open, key)?, true, key, value, len, flags)
    })
} }
path_hook! { [listxattr] (path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { list(weft_path, true, out, capacity) }
}
path_hook! { [llistxattr] (path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { list(weft_path, false, out, capacity) }
}
hook! { [flistxattr] (fd: c_int, out: *mut c_char, capacity: size_t) -> ssize_t {
    on_weft_fd(fd, |open| open.is_opened().and_then(|()| list(&open.weft_path()?, true, out, capacity)))
} }
path_hook! { [removexattr] (path: *const c_char, key: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| { remove(weft_path, true, key) }
}
path_hook! { [lremovexattr] (path: *const c_char, key: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| { remove(weft_path, false, key) }
}
hook! { [fremovexattr] (fd: c_int, key: *const c_char) -> c_int {
    on_weft_fd(fd, |open| remove(&inode(open, key)?, true, key))
} }

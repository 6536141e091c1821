//! Extended attributes.

use super::bytes;
use crate::backend::backend;
use crate::errno::Res;
use crate::route::Spot;
use crate::serve::on_fd;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};

unsafe fn name<'a>(name: *const c_char) -> Res<&'a str> {
    let name = std::str::from_utf8(bytes(name)?).map_err(|_| libc::EINVAL)?;
    if name.is_empty() || name.len() > 255 { Err(libc::ERANGE.into()) } else { Ok(name) }
}

/// Gives `value` out, or its length when there is no room at all.
unsafe fn give(value: &[u8], out: *mut c_void, room: size_t) -> Res<ssize_t> {
    if room > 0 {
        if value.len() > room {
            return Err(libc::ERANGE.into());
        }
        std::ptr::copy_nonoverlapping(value.as_ptr(), out.cast(), value.len());
    }
    Ok(value.len() as ssize_t)
}

unsafe fn get(spot: &Spot, follow: bool, key: *const c_char, out: *mut c_void, room: size_t) -> Res<ssize_t> {
    give(&backend()?.get_xattr(spot, follow, name(key)?)?, out, room)
}

unsafe fn set(
    spot: &Spot,
    follow: bool,
    key: *const c_char,
    value: *const c_void,
    len: size_t,
    flags: c_int,
) -> Res<c_int> {
    if len > 65_536 {
        return Err(libc::E2BIG.into());
    }
    let value = if len == 0 { &[] } else { std::slice::from_raw_parts(value.cast(), len) };
    backend()?.set_xattr(spot, follow, name(key)?, value, flags)?;
    Ok(0)
}

unsafe fn list(spot: &Spot, follow: bool, out: *mut c_char, room: size_t) -> Res<ssize_t> {
    let names = backend()?.list_xattr(spot, follow)?;
    let text: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
    give(&text, out.cast(), room)
}

unsafe fn remove(spot: &Spot, follow: bool, key: *const c_char) -> Res<c_int> {
    backend()?.remove_xattr(spot, follow, name(key)?)?;
    Ok(0)
}

path_hook! { [getxattr] (path: *const c_char, key: *const c_char, out: *mut c_void, room: size_t) -> ssize_t,
    (AT_FDCWD, path) |spot| { get(spot, true, key, out, room) }
}
path_hook! { [lgetxattr] (path: *const c_char, key: *const c_char, out: *mut c_void, room: size_t) -> ssize_t,
    (AT_FDCWD, path) |spot| { get(spot, false, key, out, room) }
}
hook! { [fgetxattr] (fd: c_int, key: *const c_char, out: *mut c_void, room: size_t) -> ssize_t {
    on_fd(fd, |open| get(&open.spot()?, true, key, out, room))
} }
path_hook! { [setxattr]
    (path: *const c_char, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int,
    (AT_FDCWD, path) |spot| { set(spot, true, key, value, len, flags) }
}
path_hook! { [lsetxattr]
    (path: *const c_char, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int,
    (AT_FDCWD, path) |spot| { set(spot, false, key, value, len, flags) }
}
hook! { [fsetxattr] (fd: c_int, key: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int {
    on_fd(fd, |open| set(&open.spot()?, true, key, value, len, flags))
} }
path_hook! { [listxattr] (path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t,
    (AT_FDCWD, path) |spot| { list(spot, true, out, room) }
}
path_hook! { [llistxattr] (path: *const c_char, out: *mut c_char, room: size_t) -> ssize_t,
    (AT_FDCWD, path) |spot| { list(spot, false, out, room) }
}
hook! { [flistxattr] (fd: c_int, out: *mut c_char, room: size_t) -> ssize_t {
    on_fd(fd, |open| list(&open.spot()?, true, out, room))
} }
path_hook! { [removexattr] (path: *const c_char, key: *const c_char) -> c_int,
    (AT_FDCWD, path) |spot| { remove(spot, true, key) }
}
path_hook! { [lremovexattr] (path: *const c_char, key: *const c_char) -> c_int,
    (AT_FDCWD, path) |spot| { remove(spot, false, key) }
}
hook! { [fremovexattr] (fd: c_int, key: *const c_char) -> c_int {
    on_fd(fd, |open| remove(&open.spot()?, true, key))
} }

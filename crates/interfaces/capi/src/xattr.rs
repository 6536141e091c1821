//! Extended attributes.

use crate::args;
use crate::connection::{Weft, connection};
use crate::fail::{Fail, exported};
use libc::{size_t, ssize_t};
use std::ffi::{c_char, c_int, c_void};
use weft_env::real::block_on;

exported! {
    fn weft_getxattr(
        weft: *const Weft,
        path: *const c_char,
        name: *const c_char,
        value: *mut c_void,
        size: size_t,
    ) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let name = unsafe { args::text(name, "the name")? };
        let found = weft.at(path, true, |files, place| block_on(files.weft.get_xattr(place, name)))?;
        // SAFETY: as above.
        unsafe { args::copy_out(&found, value, size) }
    }

    fn weft_setxattr(
        weft: *const Weft,
        path: *const c_char,
        name: *const c_char,
        value: *const c_void,
        size: size_t,
        flags: c_int,
    ) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let (name, value) = unsafe { (args::text(name, "the name")?, args::source(value, size)?) };
        let (create, replace) = match flags {
            0 => (false, false),
            libc::XATTR_CREATE => (true, false),
            libc::XATTR_REPLACE => (false, true),
            _ => return Err(Fail::argument("flags are 0, XATTR_CREATE or XATTR_REPLACE")),
        };
        weft.at(path, true, |files, place| block_on(files.weft.set_xattr(place, name, &value, create, replace)))?;
        Ok(0)
    }

    fn weft_listxattr(weft: *const Weft, path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        let names = weft.at(path, true, |files, place| block_on(files.weft.list_xattr(place)))?;
        let joined: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
        // SAFETY: as above.
        unsafe { args::copy_out(&joined, list.cast(), size) }
    }

    fn weft_removexattr(weft: *const Weft, path: *const c_char, name: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        // SAFETY: as above.
        let name = unsafe { args::text(name, "the name")? };
        weft.at(path, true, |files, place| block_on(files.weft.remove_xattr(place, name)))?;
        Ok(0)
    }
}

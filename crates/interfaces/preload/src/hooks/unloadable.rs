//! Programs that cannot load this library, because they are static or use another C library: a line on standard error
//! when one is started with paths of Weft, which would not exist for it.

use crate::config::config;
use crate::{route, sys};
use libc::c_char;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use weft_config::elf::{self, HEAD_LEN};

/// Writes the line if the program at `path`, which the kernel will execute, cannot load this library, and an argument
/// or the working directory is on Weft. Other programs cost a comparison of their arguments.
///
/// # Safety
/// `path` is a C string, and `argv` null or a null-ended array of C strings.
pub unsafe fn warn(path: *const c_char, argv: *const *const c_char) {
    if route::cwd().is_none() && !names_weft(argv) {
        return;
    }
    let path = CStr::from_ptr(path);
    let Ok(fd) = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0) else { return };
    let read = |buffer: &mut [u8], at: u64| {
        let got = sys::pread(fd, buffer, i64::try_from(at).ok()?).ok()?;
        (got == buffer.len()).then_some(())
    };
    let mut head = [0; HEAD_LEN];
    let why =
        read(&mut head, 0).and_then(|()| elf::hindrance(OsStr::from_bytes(path.to_bytes()), &head, read));
    sys::close(fd);
    let Some(why) = why else { return };
    let name = if argv.is_null() || (*argv).is_null() { path } else { CStr::from_ptr(*argv) };
    sys::complain(&format!(
        "{}: this program will not see {}: {why}; `weft mount DIR` shows the same files to every program",
        name.to_string_lossy(),
        String::from_utf8_lossy(&config().mount)
    ));
}

/// Whether an argument of a program contains the prefix of Weft's paths.
unsafe fn names_weft(argv: *const *const c_char) -> bool {
    if argv.is_null() || (*argv).is_null() {
        return false;
    }
    let prefix = &config().mount;
    let mut at = argv.add(1);
    while !(*at).is_null() {
        let argument = CStr::from_ptr(*at).to_bytes();
        let mut places = argument.windows(prefix.len()).enumerate().filter(|(_, part)| part == prefix);
        if places.any(|(begin, _)| matches!(argument.get(begin + prefix.len()), None | Some(b'/'))) {
            return true;
        }
        at = at.add(1);
    }
    false
}

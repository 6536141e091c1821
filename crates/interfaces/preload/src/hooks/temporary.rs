//! The mkstemp family: no hook sees the calls with which the C library creates these names.

use crate::backend::backend;
use crate::errno::{Fail, Res};
use crate::open;
use crate::route::{Route, WeftPath, route};
use crate::serve::on_way;
use crate::trace::posix;
use libc::{AT_FDCWD, c_char, c_int};

/// Tries names in place of the six X before the last `suffix` bytes until `make` finds a free one.
unsafe fn try_names<T>(template: *mut c_char, suffix: c_int, make: impl Fn(&WeftPath) -> Res<T>) -> Res<T> {
    let len = libc::strlen(template);
    let suffix = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
    let text = std::slice::from_raw_parts_mut(template.cast::<u8>(), len);
    let end = len.checked_sub(suffix).filter(|&end| end >= 6).ok_or(libc::EINVAL)?;
    if &text[end - 6..end] != b"XXXXXX" {
        return Err(libc::EINVAL.into());
    }
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for _ in 0..1000 {
        let mut random = [0u8; 6];
        libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0);
        for (to, byte) in text[end - 6..end].iter_mut().zip(random) {
            *to = LETTERS[usize::from(byte) % LETTERS.len()];
        }
        let Route::Ours(weft_path) = route_outside(template) else { return Err(libc::EINVAL.into()) };
        match make(&weft_path) {
            Err(Fail::Errno(libc::EEXIST)) => {}
            other => return other,
        }
    }
    Err(libc::EEXIST.into())
}

/// Routes a name from inside a hook.
unsafe fn route_outside(path: *const c_char) -> Route {
    let _outside = crate::guard::leave();
    route(AT_FDCWD, path)
}

unsafe fn make_file(template: *mut c_char, suffix: c_int, flags: c_int) -> Option<c_int> {
    let way = route(AT_FDCWD, template);
    if !matches!(way, Route::Ours(_)) {
        let real = real!(mkostemps: fn(*mut c_char, c_int, c_int) -> c_int);
        return crate::over::is_on().then(|| crate::over::adopt(real(template, suffix, flags)));
    }
    on_way(way, &mut None, |_| {
        try_names(template, suffix, |weft_path| {
            let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            open::open(weft_path, flags, 0o600)
        })
    })
}

hook! { [mkstemp, mkstemp64] (template: *mut c_char) -> c_int { make_file(template, 0, 0) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkostemp, mkostemp64] (template: *mut c_char, flags: c_int) -> c_int { make_file(template, 0, flags) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkstemps, mkstemps64] (template: *mut c_char, suffix: c_int) -> c_int { make_file(template, suffix, 0) }
trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }
hook! { [mkostemps, mkostemps64] (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    make_file(template, suffix, flags)
} trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) } }

hook! { [mkdtemp] (template: *mut c_char) -> *mut c_char {
    let way = route(AT_FDCWD, template);
    if matches!(way, Route::Ours(_)) {
        on_way(way, &mut None, |_| {
            try_names(template, 0, |weft_path| backend()?.mkdir(weft_path, 0o700))?;
            Ok(template)
        })
    } else {
        None
    }
} }
hook! { [mktemp, __mktemp] (template: *mut c_char) -> *mut c_char {
    let way = route(AT_FDCWD, template);
    if matches!(way, Route::Ours(_)) {
        on_way(way, &mut None, |_| {
            try_names(template, 0, |weft_path| match backend()?.stat(weft_path, false) {
                Ok(_) => Err(libc::EEXIST.into()),
                Err(_) => Ok(()),
            })?;
            Ok(template)
        })
    } else {
        None
    }
} }

hook! { [tempnam] (dir: *const c_char, prefix: *const c_char) -> *mut c_char {
    // The C library tries TMPDIR, the argument and /tmp, by calls that no hook sees.
    let tmpdir = libc::getenv(c"TMPDIR".as_ptr());
    let usable = |dir: &&*const c_char| {
        let mut st: libc::stat = std::mem::zeroed();
        crate::memory::is_text(**dir)
            && super::attrs::stat(**dir, &mut st) == 0
            && st.st_mode & libc::S_IFMT == libc::S_IFDIR
    };
    let before = crate::errno::get();
    let first = [tmpdir.cast_const(), dir].iter().find(usable).copied();
    crate::errno::set(before);
    match first {
        Some(first) if matches!(route(AT_FDCWD, first), Route::Ours(_)) => {
            let prefix = if crate::memory::is_text(prefix) && *prefix != 0 { prefix } else { c"file".as_ptr() };
            let mut name = crate::pathname::join(
                std::ffi::CStr::from_ptr(first).to_bytes(),
                &std::ffi::CStr::from_ptr(prefix).to_bytes()[..libc::strnlen(prefix, 5)],
            );
            name.extend_from_slice(b"XXXXXX\0");
            let template = libc::strdup(name.as_ptr().cast());
            if !template.is_null() && *mktemp(template) == 0 {
                libc::free(template.cast());
                return std::ptr::null_mut();
            }
            Some(template)
        }
        _ => None,
    }
} }

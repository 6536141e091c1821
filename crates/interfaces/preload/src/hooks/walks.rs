//! Functions of the C library that read directories internally: scandir and glob.

use crate::errno;
use crate::route::{Route, route};
use libc::{AT_FDCWD, c_char, c_int, c_void, dirent, stat as Stat};

unsafe fn is_ours(path: *const c_char) -> bool {
    matches!(route(AT_FDCWD, path), Route::Ours(_)) && !crate::guard::inside()
}

type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Order = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// Returns all entries of a Weft directory, read through the hooks, in memory that the caller frees.
unsafe fn scan(dir: *mut c_void, out: *mut *mut *mut dirent, filter: Filter, order: Order) -> c_int {
    if dir.is_null() {
        return -1;
    }
    let mut found: Vec<*mut dirent> = Vec::new();
    loop {
        let before = errno::get();
        errno::set(0);
        let entry = super::directories::readdir(dir);
        let failed = errno::get();
        errno::set(if failed == 0 { before } else { failed });
        if entry.is_null() {
            break;
        }
        if filter.is_none_or(|filter| filter(entry) != 0) {
            let len = usize::from((*entry).d_reclen);
            let copy = libc::malloc(len).cast::<dirent>();
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), len);
            found.push(copy);
        }
    }
    super::directories::closedir(dir);
    let list = libc::malloc((found.len().max(1)) * size_of::<*mut dirent>()).cast::<*mut dirent>();
    std::ptr::copy_nonoverlapping(found.as_ptr(), list, found.len());
    if let Some(order) = order {
        type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
        let compare = std::mem::transmute::<
            unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int,
            Compare,
        >(order);
        libc::qsort(list.cast(), found.len(), size_of::<*mut dirent>(), Some(compare));
    }
    *out = list;
    found.len() as c_int
}

hook! { [scandir, scandir64] (path: *const c_char, out: *mut *mut *mut dirent, filter: Filter, order: Order)
    -> c_int {
    is_ours(path).then(|| scan(super::directories::opendir(path), out, filter, order))
} }
hook! { [scandirat, scandirat64]
    (dir: c_int, path: *const c_char, out: *mut *mut *mut dirent, filter: Filter, order: Order) -> c_int {
    matches!(route(dir, path), Route::Ours(_)).then(|| {
        let fd = super::names::openat(dir, path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if fd < 0 { -1 } else { scan(super::directories::fdopendir(fd), out, filter, order) }
    })
} }

/// Start of the C library's `glob_t`.
#[repr(C)]
pub struct Glob {
    _count: usize,
    _paths: *mut *mut c_char,
    _offset: usize,
    _flags: c_int,
    close: unsafe extern "C" fn(*mut c_void),
    read: unsafe extern "C" fn(*mut c_void) -> *mut dirent,
    open: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    lstat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
}

unsafe extern "C" fn glob_close(dir: *mut c_void) {
    super::directories::closedir(dir);
}

const GLOB_ALTDIRFUNC: c_int = 1 << 9;
const GLOB_BRACE: c_int = 1 << 10;
const GLOB_TILDE: c_int = 1 << 12;
const GLOB_TILDE_CHECK: c_int = 1 << 14;
type GlobError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// Whether the pattern may become one that leads to Weft, by its braces or its tilde.
unsafe fn may_expand(pattern: *const c_char, flags: c_int) -> bool {
    if flags & (GLOB_BRACE | GLOB_TILDE | GLOB_TILDE_CHECK) == 0 || !crate::config::is_ready() {
        return false;
    }
    crate::memory::is_text(pattern)
        && (*pattern as u8 == b'~' || !libc::strchr(pattern, c_int::from(b'{')).is_null())
}

/// `glob` can use its caller's directory functions: here it gets those of the hooks.
macro_rules! glob {
    ($name:ident) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            error: GlobError,
            out: *mut Glob,
        ) -> c_int {
            let real = real!($name: fn(*const c_char, c_int, GlobError, *mut Glob) -> c_int);
            if !(is_ours(pattern) || may_expand(pattern, flags)) || flags & GLOB_ALTDIRFUNC != 0 {
                return real(pattern, flags, error, out);
            }
            (*out).close = glob_close;
            (*out).read = super::directories::readdir;
            (*out).open = super::directories::opendir;
            (*out).lstat = super::attrs::lstat;
            (*out).stat = super::attrs::stat;
            real(pattern, flags | GLOB_ALTDIRFUNC, error, out)
        }
    };
}
glob!(glob);
glob!(glob64);

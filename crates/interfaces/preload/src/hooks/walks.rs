//! Functions of the C library that walk directories internally: scandir, ftw and nftw, glob, fts.

use super::bytes;
use crate::errno::{self, Res};
use crate::pathname;
use crate::route::{Route, route};
use crate::sys;
use libc::{AT_FDCWD, c_char, c_int, c_void, dirent, stat as Stat};
use std::ffi::CString;

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

/// Position of a visited file (`struct FTW`).
#[repr(C)]
pub struct Where {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C" fn(*const c_char, *const Stat, c_int) -> c_int;
type VisitDeep = unsafe extern "C" fn(*const c_char, *const Stat, c_int, *mut Where) -> c_int;

#[derive(Clone, Copy)]
enum Visitor {
    Plain(Visit),
    Deep(VisitDeep, c_int),
}

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

impl Visitor {
    fn has(self, flag: c_int) -> bool {
        matches!(self, Self::Deep(_, flags) if flags & flag != 0)
    }

    unsafe fn call(self, path: &[u8], st: &Stat, kind: c_int, level: c_int) -> c_int {
        let base = path.len() - pathname::split(path).1.len();
        let text = sys::c(path);
        match self {
            Self::Plain(visit) => visit(text.as_ptr(), st, if kind == FTW_SL { FTW_F } else { kind }),
            Self::Deep(visit, flags) => {
                let mut place = Where { base: base as c_int, level };
                if flags & FTW_CHDIR != 0 {
                    super::cwd::chdir(sys::c(pathname::split(path).0).as_ptr());
                }
                visit(text.as_ptr(), st, kind, &mut place)
            }
        }
    }
}

unsafe fn walk(path: &[u8], visitor: Visitor, level: c_int) -> c_int {
    let text = sys::c(path);
    let mut st: Stat = std::mem::zeroed();
    let physical = visitor.has(FTW_PHYS);
    let found = if physical {
        super::attrs::lstat(text.as_ptr(), &mut st)
    } else {
        super::attrs::stat(text.as_ptr(), &mut st)
    };
    if found != 0 {
        if level == 0 {
            return -1;
        }
        let dangling = super::attrs::lstat(text.as_ptr(), &mut st) == 0;
        return visitor.call(path, &st, if dangling { FTW_SLN } else { FTW_NS }, level);
    }
    match st.st_mode & libc::S_IFMT {
        libc::S_IFDIR => walk_directory(path, visitor, level, &st),
        libc::S_IFLNK => visitor.call(path, &st, FTW_SL, level),
        _ => visitor.call(path, &st, FTW_F, level),
    }
}

unsafe fn walk_directory(path: &[u8], visitor: Visitor, level: c_int, st: &Stat) -> c_int {
    let text = sys::c(path);
    let dir = super::directories::opendir(text.as_ptr());
    if dir.is_null() {
        return visitor.call(path, st, FTW_DNR, level);
    }
    let after = visitor.has(FTW_DEPTH);
    if !after {
        let result = visitor.call(path, st, FTW_D, level);
        let skip = visitor.has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SUBTREE;
        if result != 0 {
            super::directories::closedir(dir);
            return if skip { 0 } else { result };
        }
    }
    let mut names: Vec<CString> = Vec::new();
    loop {
        let entry = super::directories::readdir(dir);
        let Some(entry) = entry.as_ref() else { break };
        let name = std::ffi::CStr::from_ptr(entry.d_name.as_ptr());
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    super::directories::closedir(dir);
    for name in names {
        let result = walk(&pathname::join(path, name.as_bytes()), visitor, level + 1);
        if visitor.has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SIBLINGS {
            break;
        }
        if result != 0 {
            return result;
        }
    }
    if after { visitor.call(path, st, FTW_DP, level) } else { 0 }
}

unsafe fn start(path: *const c_char, visitor: Visitor) -> c_int {
    let Ok(text) = bytes(path) else { return -1 };
    let text = if text.len() > 1 { text.strip_suffix(b"/").unwrap_or(text) } else { text };
    let before: Res<CString> = {
        let cwd = super::cwd::getcwd(std::ptr::null_mut(), 0);
        let kept = if cwd.is_null() { CString::default() } else { std::ffi::CStr::from_ptr(cwd).to_owned() };
        libc::free(cwd.cast());
        Ok(kept)
    };
    let result = walk(text, visitor, 0);
    if visitor.has(FTW_CHDIR)
        && let Ok(before) = before
    {
        super::cwd::chdir(before.as_ptr());
    }
    result
}

hook! { [ftw, ftw64] (path: *const c_char, visit: Visit, _descriptors: c_int) -> c_int {
    is_ours(path).then(|| start(path, Visitor::Plain(visit)))
} }
hook! { [nftw, nftw64] (path: *const c_char, visit: VisitDeep, _descriptors: c_int, flags: c_int) -> c_int {
    is_ours(path).then(|| start(path, Visitor::Deep(visit, flags)))
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
type GlobError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

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
            if !is_ours(pattern) || flags & GLOB_ALTDIRFUNC != 0 {
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

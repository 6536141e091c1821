//! `ftw` and `nftw` for trees in Weft, as the C library defines them: no hook sees the calls inside its own.

use super::{attrs, bytes, cwd, descriptors, directories, names};
use crate::errno;
use crate::pathname;
use crate::route::{Route, route};
use crate::sys;
use libc::{AT_FDCWD, c_char, c_int, stat as Stat};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};

/// Position of a visited file (`struct FTW`).
#[repr(C)]
pub struct Where {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C" fn(*const c_char, *const Stat, c_int) -> c_int;
type VisitDeep = unsafe extern "C" fn(*const c_char, *const Stat, c_int, *mut Where) -> c_int;

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const FTW_STOP: c_int = 1;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

#[derive(Clone, Copy)]
enum Visitor {
    Plain(Visit),
    Deep(VisitDeep),
}

struct Walk {
    visitor: Visitor,
    flags: c_int,
    /// Device of the start.
    dev: libc::dev_t,
    /// Directories reported, if links are followed: each is reported once.
    seen: BTreeSet<(libc::dev_t, libc::ino_t)>,
}

/// Attributes of a file, or how they are missing.
enum Found {
    Known(Stat),
    /// A link to a missing file, with the link's attributes.
    Dangling(Stat),
    Failed,
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    unsafe fn call(&self, path: &[u8], st: &Stat, kind: c_int, level: c_int) -> c_int {
        let base = path.len() - pathname::split(path).1.len();
        let text = sys::c(path);
        match self.visitor {
            Visitor::Plain(visit) => {
                let kind = match kind {
                    FTW_SL => FTW_F,
                    FTW_DP => FTW_D,
                    FTW_SLN => FTW_NS,
                    other => other,
                };
                visit(text.as_ptr(), st, kind)
            }
            Visitor::Deep(visit) => {
                let base = if path.contains(&b'/') { base } else { 0 };
                visit(text.as_ptr(), st, kind, &mut Where { base: base as c_int, level })
            }
        }
    }

    /// Returns the path by which the file can be reached now.
    fn reachable(&self, path: &[u8]) -> CString {
        let last = pathname::split(path).1;
        sys::c(if self.has(FTW_CHDIR) && !last.is_empty() { last } else { path })
    }

    unsafe fn look(&self, path: &[u8]) -> Found {
        let text = self.reachable(path);
        let mut st: Stat = std::mem::zeroed();
        if self.has(FTW_PHYS) {
            return if attrs::lstat(text.as_ptr(), &mut st) == 0 { Found::Known(st) } else { Found::Failed };
        }
        if attrs::stat(text.as_ptr(), &mut st) == 0 {
            return Found::Known(st);
        }
        let number = errno::get();
        let is_link = attrs::lstat(text.as_ptr(), &mut st) == 0 && st.st_mode & libc::S_IFMT == libc::S_IFLNK;
        errno::set(number);
        if is_link { Found::Dangling(st) } else { Found::Failed }
    }

    /// Visits an entry of a directory.
    unsafe fn entry(&mut self, path: &[u8], level: c_int) -> c_int {
        let (st, kind) = match self.look(path) {
            Found::Known(st) => {
                let kind = match st.st_mode & libc::S_IFMT {
                    libc::S_IFDIR => FTW_D,
                    libc::S_IFLNK => FTW_SL,
                    _ => FTW_F,
                };
                (st, kind)
            }
            Found::Dangling(_) | Found::Failed if !matches!(errno::get(), libc::EACCES | libc::ENOENT) => {
                return -1;
            }
            Found::Dangling(st) => (st, FTW_SLN),
            Found::Failed => (std::mem::zeroed(), FTW_NS),
        };
        if kind != FTW_NS && self.has(FTW_MOUNT) && st.st_dev != self.dev {
            return 0;
        }
        let result = if kind != FTW_D {
            self.call(path, &st, kind, level)
        } else if self.has(FTW_PHYS) || self.seen.insert((st.st_dev, st.st_ino)) {
            self.directory(path, &st, level)
        } else {
            0
        };
        if self.has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SUBTREE { 0 } else { result }
    }

    unsafe fn directory(&mut self, path: &[u8], st: &Stat, level: c_int) -> c_int {
        let dir = directories::opendir(self.reachable(path).as_ptr());
        if dir.is_null() {
            return if errno::get() == libc::EACCES { self.call(path, st, FTW_DNR, level) } else { -1 };
        }
        if !self.has(FTW_DEPTH) {
            let result = self.call(path, st, FTW_D, level);
            if result != 0 {
                directories::closedir(dir);
                return result;
            }
        }
        // The names are read first, so that one descriptor is enough for any depth.
        let mut names: Vec<Vec<u8>> = Vec::new();
        while let Some(entry) = directories::readdir(dir).as_ref() {
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        // The way back: `..` is another directory if a link led here.
        let above = if self.has(FTW_CHDIR) { open_here() } else { -1 };
        let entered = !self.has(FTW_CHDIR) || cwd::fchdir(directories::dirfd(dir)) == 0;
        directories::closedir(dir);
        let mut result = if entered { 0 } else { -1 };
        for name in names {
            if result != 0 {
                break;
            }
            result = self.entry(&pathname::join(path, &name), level + 1);
        }
        if self.has(FTW_ACTIONRETVAL) && result == FTW_SKIP_SIBLINGS {
            result = 0;
        }
        if result == 0 && self.has(FTW_DEPTH) {
            result = self.call(path, st, FTW_DP, level);
        }
        if above >= 0 {
            let goes_on = result == 0 || self.has(FTW_ACTIONRETVAL) && result != -1 && result != FTW_STOP;
            if goes_on && cwd::fchdir(above) != 0 {
                result = -1;
            }
            descriptors::close(above);
        }
        result
    }

    unsafe fn start(&mut self, path: &[u8]) -> c_int {
        let result = match self.look(path) {
            Found::Known(st) if st.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                self.dev = st.st_dev;
                self.seen.insert((st.st_dev, st.st_ino));
                self.directory(path, &st, 0)
            }
            Found::Known(st) => {
                let is_link = st.st_mode & libc::S_IFMT == libc::S_IFLNK;
                self.call(path, &st, if is_link { FTW_SL } else { FTW_F }, 0)
            }
            Found::Dangling(st) if errno::get() == libc::ENOENT => self.call(path, &st, FTW_SLN, 0),
            Found::Dangling(_) | Found::Failed => -1,
        };
        let skipped = matches!(result, FTW_SKIP_SUBTREE | FTW_SKIP_SIBLINGS);
        if self.has(FTW_ACTIONRETVAL) && skipped { 0 } else { result }
    }
}

unsafe fn open_here() -> c_int {
    names::open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)
}

unsafe fn walk(path: *const c_char, visitor: Visitor, flags: c_int) -> c_int {
    let Ok(mut path) = bytes(path) else { return -1 };
    while path.len() > 1 && path.ends_with(b"/") {
        path = &path[..path.len() - 1];
    }
    let mut walk = Walk { visitor, flags, dev: 0, seen: BTreeSet::new() };
    if !walk.has(FTW_CHDIR) {
        return walk.start(path);
    }
    let before = open_here();
    if before < 0 {
        return -1;
    }
    // Visitors work in the directory of the file that they get.
    let entered = if path.contains(&b'/') { cwd::chdir(sys::c(pathname::split(path).0).as_ptr()) } else { 0 };
    let result = if entered == 0 { walk.start(path) } else { -1 };
    let number = errno::get();
    cwd::fchdir(before);
    descriptors::close(before);
    errno::set(number);
    result
}

unsafe fn is_ours(path: *const c_char) -> bool {
    !matches!(route(AT_FDCWD, path), Route::Foreign) && !crate::guard::inside()
}

hook! { [ftw, ftw64] (path: *const c_char, visit: Visit, _descriptors: c_int) -> c_int {
    is_ours(path).then(|| walk(path, Visitor::Plain(visit), 0))
} }
hook! { [nftw, nftw64] (path: *const c_char, visit: VisitDeep, _descriptors: c_int, flags: c_int) -> c_int {
    if flags & !(FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL) != 0 {
        errno::set(libc::EINVAL);
        return -1;
    }
    is_ours(path).then(|| walk(path, Visitor::Deep(visit), flags))
} }

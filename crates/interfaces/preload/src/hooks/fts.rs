//! The `fts` functions for trees in Weft, as the C library defines them: no hook sees the calls inside its own.

use super::{attrs, cwd, descriptors, directories, names};
use crate::errno;
use crate::lock::Lock;
use crate::pathname;
use crate::route::{Route, route};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void, stat as Stat};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

const COMFOLLOW: c_int = 0x01;
const LOGICAL: c_int = 0x02;
const NOCHDIR: c_int = 0x04;
const NOSTAT: c_int = 0x08;
const PHYSICAL: c_int = 0x10;
const SEEDOT: c_int = 0x20;
const XDEV: c_int = 0x40;
const OPTIONS: c_int = 0xff;
/// The children are names only.
const NAMEONLY: c_int = 0x100;
/// The walk cannot continue.
const STOP: c_int = 0x200;

/// Kinds of entries (`fts_info`).
mod info {
    pub const D: u16 = 1;
    pub const DC: u16 = 2;
    pub const DEFAULT: u16 = 3;
    pub const DNR: u16 = 4;
    pub const DOT: u16 = 5;
    pub const DP: u16 = 6;
    pub const ERR: u16 = 7;
    pub const F: u16 = 8;
    pub const INIT: u16 = 9;
    pub const NS: u16 = 10;
    pub const NSOK: u16 = 11;
    pub const SL: u16 = 12;
    pub const SLNONE: u16 = 13;
}

/// Private flags (`fts_flags`): the working directory was not changed; a link was followed.
const DONTCHDIR: u16 = 1;
const SYMFOLLOW: u16 = 2;
/// Instructions (`fts_instr`).
const AGAIN: u16 = 1;
const FOLLOW: u16 = 2;
const NOINSTR: u16 = 3;
const SKIP: u16 = 4;

/// The C library's `FTSENT`; the name continues behind it.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: u16,
    namelen: u16,
    ino: libc::ino_t,
    dev: libc::dev_t,
    nlink: libc::nlink_t,
    level: i16,
    info: u16,
    flags: u16,
    instr: u16,
    statp: *mut Stat,
    name: [c_char; 1],
}

type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// A walk. Programs see only its address.
pub struct Walk {
    /// Entry returned last; null at the end.
    current: *mut Entry,
    child: *mut Entry,
    /// Device of the present root.
    dev: libc::dev_t,
    /// Working directory at the start; -1 without changes of it.
    start: c_int,
    options: c_int,
    compare: Option<Compare>,
}

/// Addresses of all walks.
static WALKS: Lock<Vec<usize>> = Lock::new(Vec::new());

unsafe fn ours<'a>(walk: *mut c_void) -> Option<&'a mut Walk> {
    WALKS.lock().contains(&(walk as usize)).then(|| &mut *walk.cast::<Walk>())
}

/// What [`Walk::build`] reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    Names,
    Children,
    /// To descend.
    Read,
}

unsafe fn new_entry(name: &[u8], path: &[u8]) -> *mut Entry {
    let entry = libc::calloc(1, size_of::<Entry>() + name.len() + 1).cast::<Entry>();
    std::ptr::copy_nonoverlapping(name.as_ptr(), (*entry).name.as_mut_ptr().cast(), name.len());
    (*entry).namelen = name.len() as u16;
    (*entry).pathlen = path.len() as u16;
    (*entry).path = CString::new(path).unwrap_or_default().into_raw();
    (*entry).accpath = (*entry).path;
    (*entry).instr = NOINSTR;
    (*entry).symfd = -1;
    (*entry).statp = Box::into_raw(Box::new(std::mem::zeroed()));
    entry
}

unsafe fn free_entry(entry: *mut Entry) {
    drop(CString::from_raw((*entry).path));
    drop(Box::from_raw((*entry).statp));
    libc::free(entry.cast());
}

/// Closes the directory to which a walk returns from a followed link.
unsafe fn close_return(entry: *mut Entry) {
    if (*entry).symfd >= 0 {
        descriptors::close((*entry).symfd);
        (*entry).symfd = -1;
    }
}

unsafe fn free_list(mut entry: *mut Entry) {
    while !entry.is_null() {
        let next = (*entry).link;
        free_entry(entry);
        entry = next;
    }
}

unsafe fn name_of<'a>(entry: *mut Entry) -> &'a [u8] {
    CStr::from_ptr((*entry).name.as_ptr()).to_bytes()
}

unsafe fn ends_in_slash(entry: *mut Entry) -> bool {
    CStr::from_ptr((*entry).path).to_bytes().ends_with(b"/")
}

unsafe fn open_directory(path: *const c_char) -> c_int {
    names::open(path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)
}

impl Walk {
    fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    /// Fills the attributes of an entry, and returns its kind.
    unsafe fn stat(&self, entry: *mut Entry, follow: bool) -> u16 {
        let st = &mut *(*entry).statp;
        let failed = if self.has(LOGICAL) || follow {
            let failed = attrs::stat((*entry).accpath, st) != 0;
            let number = errno::get();
            if failed && attrs::lstat((*entry).accpath, st) == 0 {
                errno::set(0);
                return info::SLNONE;
            }
            errno::set(number);
            failed
        } else {
            attrs::lstat((*entry).accpath, st) != 0
        };
        if failed {
            (*entry).errno = errno::get();
            *st = std::mem::zeroed();
            return info::NS;
        }
        match st.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                (*entry).dev = st.st_dev;
                (*entry).ino = st.st_ino;
                (*entry).nlink = st.st_nlink;
                if matches!(name_of(entry), b"." | b"..") {
                    return info::DOT;
                }
                let mut above = (*entry).parent;
                while (*above).level >= 0 {
                    if (*above).ino == st.st_ino && (*above).dev == st.st_dev {
                        (*entry).cycle = above;
                        return info::DC;
                    }
                    above = (*above).parent;
                }
                info::D
            }
            libc::S_IFLNK => info::SL,
            libc::S_IFREG => info::F,
            _ => info::DEFAULT,
        }
    }

    /// Changes the working directory to that of `fd`, or to `path` if that is the directory of `entry`.
    unsafe fn change_directory(&self, entry: *mut Entry, fd: c_int, path: *const c_char) -> bool {
        if self.has(NOCHDIR) {
            return true;
        }
        let opened = if fd < 0 { open_directory(path) } else { fd };
        if opened < 0 {
            return false;
        }
        let mut st: Stat = std::mem::zeroed();
        let mut changed = attrs::fstat(opened, &mut st) == 0;
        if changed && (st.st_ino != (*entry).ino || st.st_dev != (*entry).dev) {
            errno::set(libc::ENOENT);
            changed = false;
        }
        changed = changed && cwd::fchdir(opened) == 0;
        let number = errno::get();
        if fd < 0 {
            descriptors::close(opened);
        }
        errno::set(number);
        changed
    }

    unsafe fn return_to(&self, fd: c_int) -> bool {
        self.has(NOCHDIR) || cwd::fchdir(fd) == 0
    }

    /// Returns from the directory of `entry` to that above it.
    unsafe fn leave(&self, entry: *mut Entry) -> bool {
        if (*entry).level == 0 {
            self.return_to(self.start)
        } else {
            self.change_directory((*entry).parent, -1, c"..".as_ptr())
        }
    }

    unsafe fn sorted(&self, list: *mut Entry) -> *mut Entry {
        let Some(compare) = self.compare else { return list };
        let mut all = Vec::new();
        let mut at = list;
        while !at.is_null() {
            all.push(at);
            at = (*at).link;
        }
        if all.is_empty() {
            return list;
        }
        libc::qsort(all.as_mut_ptr().cast(), all.len(), size_of::<*mut Entry>(), Some(compare));
        for pair in all.windows(2) {
            (*pair[0]).link = pair[1];
        }
        let last = all[all.len() - 1];
        (*last).link = null_mut();
        all[0]
    }

    /// Reads the directory of the current entry. Returns its entries; null without any, or after an error.
    unsafe fn build(&mut self, what: Build) -> *mut Entry {
        let current = self.current;
        let dir = directories::opendir((*current).accpath);
        if dir.is_null() {
            if what == Build::Read {
                (*current).info = info::DNR;
                (*current).errno = errno::get();
            }
            return null_mut();
        }
        let mut descended = false;
        let mut failed = 0;
        if what != Build::Names {
            if self.change_directory(current, directories::dirfd(dir), null_mut()) {
                descended = true;
            } else {
                failed = errno::get();
                (*current).flags |= DONTCHDIR;
                if what == Build::Read {
                    (*current).errno = failed;
                }
            }
        }
        let above = CStr::from_ptr((*current).path).to_bytes();
        let (mut head, mut tail): (*mut Entry, *mut Entry) = (null_mut(), null_mut());
        while let Some(found) = directories::readdir(dir).as_ref() {
            let name = CStr::from_ptr(found.d_name.as_ptr()).to_bytes();
            if matches!(name, b"." | b"..") && !self.has(SEEDOT) {
                continue;
            }
            let entry = new_entry(name, &pathname::join(above, name));
            (*entry).level = (*current).level + 1;
            (*entry).parent = current;
            if !self.has(NOCHDIR) {
                (*entry).accpath = (*entry).name.as_mut_ptr();
            }
            let needs_no_stat = self.has(NOSTAT)
                && self.has(PHYSICAL)
                && !matches!(found.d_type, libc::DT_DIR | libc::DT_UNKNOWN);
            (*entry).info = if failed != 0 {
                (*entry).accpath = (*current).accpath;
                (*entry).errno = failed;
                info::NS
            } else if what == Build::Names || needs_no_stat {
                info::NSOK
            } else {
                self.stat(entry, false)
            };
            if head.is_null() {
                head = entry;
            } else {
                (*tail).link = entry;
            }
            tail = entry;
        }
        directories::closedir(dir);
        if descended && (what == Build::Children || head.is_null()) && !self.leave(current) {
            (*current).info = info::ERR;
            self.options |= STOP;
            free_list(head);
            return null_mut();
        }
        if head.is_null() && self.has(NOCHDIR) && ends_in_slash(current) {
            // The C library cuts the slash with which the path of an empty root ends.
            *(*current).path.add(usize::from((*current).pathlen) - 1) = 0;
        }
        if head.is_null() && what == Build::Read {
            (*current).info = info::DP;
        }
        self.sorted(head)
    }

    unsafe fn follow(&self, entry: *mut Entry) {
        (*entry).info = self.stat(entry, true);
        if (*entry).info == info::D && !self.has(NOCHDIR) {
            (*entry).symfd = open_directory(c".".as_ptr());
            if (*entry).symfd < 0 {
                (*entry).errno = errno::get();
                (*entry).info = info::ERR;
            } else {
                (*entry).flags |= SYMFOLLOW;
            }
        }
    }

    /// Enters the next root.
    unsafe fn load(&mut self, entry: *mut Entry) {
        let path = CStr::from_ptr((*entry).path).to_bytes();
        let (_, last) = pathname::split(path);
        if path.contains(&b'/') && !last.is_empty() {
            let last = last.to_vec();
            std::ptr::copy(last.as_ptr(), (*entry).name.as_mut_ptr().cast(), last.len());
            *(*entry).name.as_mut_ptr().add(last.len()) = 0;
            (*entry).namelen = last.len() as u16;
        } else if path.len() > 1 && last.is_empty() {
            // With a slash at the end, the C library leaves an empty name.
            (*entry).name[0] = 0;
            (*entry).namelen = 0;
        }
        (*entry).accpath = (*entry).path;
        self.dev = (*entry).dev;
    }

    unsafe fn read(&mut self) -> *mut Entry {
        if self.current.is_null() || self.has(STOP) {
            return null_mut();
        }
        let mut at = self.current;
        let instruction = std::mem::replace(&mut (*at).instr, NOINSTR);
        if instruction == AGAIN {
            (*at).info = self.stat(at, false);
            return at;
        }
        if instruction == FOLLOW && matches!((*at).info, info::SL | info::SLNONE) {
            self.follow(at);
            return at;
        }
        if (*at).info == info::D {
            if instruction == SKIP || self.has(XDEV) && (*at).dev != self.dev {
                if (*at).flags & SYMFOLLOW != 0 {
                    close_return(at);
                }
                free_list(std::mem::replace(&mut self.child, null_mut()));
                (*at).info = info::DP;
                return at;
            }
            if !self.child.is_null() && self.has(NAMEONLY) {
                self.options &= !NAMEONLY;
                free_list(std::mem::replace(&mut self.child, null_mut()));
            }
            if self.child.is_null() {
                self.child = self.build(Build::Read);
                if self.child.is_null() {
                    return if self.has(STOP) { null_mut() } else { at };
                }
            } else if !self.change_directory(at, -1, (*at).accpath) {
                (*at).errno = errno::get();
                (*at).flags |= DONTCHDIR;
                let mut child = self.child;
                while !child.is_null() {
                    (*child).accpath = (*at).accpath;
                    child = (*child).link;
                }
            }
            self.current = std::mem::replace(&mut self.child, null_mut());
            return self.current;
        }
        loop {
            let before = at;
            at = (*before).link;
            if at.is_null() {
                at = (*before).parent;
                free_entry(before);
                break;
            }
            free_entry(before);
            if (*at).level == 0 {
                if !self.return_to(self.start) {
                    self.options |= STOP;
                    return null_mut();
                }
                self.load(at);
                self.current = at;
                return at;
            }
            if (*at).instr == SKIP {
                continue;
            }
            if (*at).instr == FOLLOW {
                self.follow(at);
                (*at).instr = NOINSTR;
            }
            self.current = at;
            return at;
        }
        self.current = at;
        if (*at).level < 0 {
            free_entry(at);
            self.current = null_mut();
            errno::set(0);
            return null_mut();
        }
        let returned = if (*at).level == 0 {
            self.return_to(self.start)
        } else if (*at).flags & SYMFOLLOW != 0 {
            let returned = self.return_to((*at).symfd);
            close_return(at);
            returned
        } else {
            (*at).flags & DONTCHDIR != 0 || self.leave(at)
        };
        if !returned {
            self.options |= STOP;
            return null_mut();
        }
        (*at).info = if (*at).errno != 0 { info::ERR } else { info::DP };
        at
    }

    unsafe fn children(&mut self, instruction: c_int) -> *mut Entry {
        if instruction != 0 && instruction != NAMEONLY {
            errno::set(libc::EINVAL);
            return null_mut();
        }
        errno::set(0);
        let current = self.current;
        if current.is_null() || self.has(STOP) {
            return null_mut();
        }
        if (*current).info == info::INIT {
            return (*current).link;
        }
        if (*current).info != info::D {
            return null_mut();
        }
        free_list(std::mem::replace(&mut self.child, null_mut()));
        let what = if instruction == NAMEONLY { Build::Names } else { Build::Children };
        if what == Build::Names {
            self.options |= NAMEONLY;
        }
        self.child = self.build(what);
        self.child
    }

    unsafe fn close(&mut self) {
        free_list(self.child);
        let mut at = self.current;
        while !at.is_null() {
            let next = if (*at).link.is_null() { (*at).parent } else { (*at).link };
            close_return(at);
            free_entry(at);
            at = next;
        }
        if self.start >= 0 {
            cwd::fchdir(self.start);
            descriptors::close(self.start);
        }
    }
}

unsafe fn open(paths: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut c_void {
    if options & !OPTIONS != 0 {
        errno::set(libc::EINVAL);
        return null_mut();
    }
    let logical = if options & LOGICAL != 0 { NOCHDIR } else { 0 };
    let mut walk = Walk {
        current: null_mut(),
        child: null_mut(),
        dev: 0,
        start: -1,
        options: options | logical,
        compare,
    };
    let top = new_entry(b"", b"");
    (*top).level = -1;
    let first = new_entry(b"", b"");
    (*first).info = info::INIT;
    (*first).parent = top;
    (*first).level = -1;
    let (mut head, mut tail): (*mut Entry, *mut Entry) = (null_mut(), null_mut());
    let mut at = paths;
    while !(*at).is_null() {
        let path = CStr::from_ptr(*at).to_bytes();
        if path.is_empty() {
            free_list(head);
            free_entry(first);
            free_entry(top);
            errno::set(libc::ENOENT);
            return null_mut();
        }
        let entry = new_entry(path, path);
        (*entry).parent = top;
        (*entry).info = walk.stat(entry, options & COMFOLLOW != 0);
        if (*entry).info == info::DOT {
            (*entry).info = info::D;
        }
        if head.is_null() {
            head = entry;
        } else {
            (*tail).link = entry;
        }
        tail = entry;
        at = at.add(1);
    }
    (*first).link = walk.sorted(head);
    walk.current = first;
    if !walk.has(NOCHDIR) {
        walk.start = open_directory(c".".as_ptr());
        if walk.start < 0 {
            walk.options |= NOCHDIR;
        }
    }
    let walk = Box::into_raw(Box::new(walk));
    WALKS.lock().push(walk as usize);
    walk.cast()
}

/// Whether a path leads to Weft.
unsafe fn leads_to_us(paths: *const *mut c_char) -> bool {
    let mut at = paths;
    while !paths.is_null() && !(*at).is_null() {
        if !matches!(route(AT_FDCWD, *at), Route::Foreign) && !crate::guard::inside() {
            return true;
        }
        at = at.add(1);
    }
    false
}

hook! { [fts_open, fts64_open] (paths: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut c_void {
    leads_to_us(paths).then(|| open(paths, options, compare))
} }
hook! { [fts_read, fts64_read] (walk: *mut c_void) -> *mut Entry { ours(walk).map(|walk| walk.read()) } }
hook! { [fts_children, fts64_children] (walk: *mut c_void, instruction: c_int) -> *mut Entry {
    ours(walk).map(|walk| walk.children(instruction))
} }
hook! { [fts_set, fts64_set] (walk: *mut c_void, entry: *mut Entry, instruction: c_int) -> c_int {
    ours(walk).map(|_| {
        if instruction != 0 && !(1..=4).contains(&instruction) {
            errno::set(libc::EINVAL);
            return 1;
        }
        (*entry).instr = instruction as u16;
        0
    })
} }
hook! { [fts_close, fts64_close] (walk: *mut c_void) -> c_int {
    ours(walk).map(|found| {
        WALKS.lock().retain(|&known| known != walk as usize);
        found.close();
        drop(Box::from_raw(walk.cast::<Walk>()));
        0
    })
} }

/// Resets the lock in a forked child, where only the forking thread exists.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process. A list left in the middle of a change is discarded.
    unsafe { WALKS.reset() };
}

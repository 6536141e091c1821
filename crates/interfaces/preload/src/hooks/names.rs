//! Calls that open, create, rename and remove names.

use super::bytes;
use super::pairs::{self, End, Pair};
use crate::backend::backend;
use crate::errno::{self, Fail, Res};
use crate::links::{self, Link};
use crate::route::{self, Named, Route, WeftPath};
use crate::serve::{inside, on_way};
use crate::table;
use crate::trace::{Operation, posix};
use crate::{open, over, pathname};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t, size_t, ssize_t};
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

path_hook! { [open, open64, __open, __open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { open_path(weft_path, path, flags, mode) }
    over { over::open(AT_FDCWD, path, flags, mode) }
    trace |start, fd| { posix::opened(start, fd, flags) }
}
path_hook! { [__open_2, __open64_2] (path: *const c_char, flags: c_int) -> c_int,
    (AT_FDCWD, path) |weft_path| { open_path(weft_path, path, flags, 0) }
    over { over::open(AT_FDCWD, path, flags, 0) }
    trace |start, fd| { posix::opened(start, fd, flags) }
}
path_hook! { [openat, openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    (dir, path) |weft_path| { open_path(weft_path, path, flags, mode) }
    over { over::open(dir, path, flags, mode) }
    trace |start, fd| { posix::opened(start, fd, flags) }
}
path_hook! { [__openat_2, __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) -> c_int,
    (dir, path) |weft_path| { open_path(weft_path, path, flags, 0) }
    over { over::open(dir, path, flags, 0) }
    trace |start, fd| { posix::opened(start, fd, flags) }
}
/// Flags of `creat`.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

path_hook! { [creat, creat64] (path: *const c_char, mode: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { open_path(weft_path, path, CREAT, mode) }
    over { over::open(AT_FDCWD, path, CREAT, mode) }
    trace |start, fd| { posix::opened(start, fd, libc::O_CREAT) }
}

path_hook! { [name_to_handle_at]
    (dir: c_int, path: *const c_char, _handle: *mut libc::c_void, _mount: *mut c_int, flags: c_int) -> c_int,
    (dir, path) |_weft_path| { no_handle(flags) },
    if flags & libc::AT_EMPTY_PATH != 0 && super::is_empty(path), |_| { no_handle(flags) }
}

fn no_handle(flags: c_int) -> Res<c_int> {
    const FID: c_int = 0x200;
    let is_known = flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH | FID) == 0;
    Err(if is_known { libc::EOPNOTSUPP } else { libc::EINVAL }.into())
}

fn done(result: Res<()>) -> Res<c_int> {
    result.map(|()| 0)
}

path_hook! { [mkdir] (path: *const c_char, mode: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { make_directory(weft_path, path, mode) }
    trace |start, done| { posix::named(start, AT_FDCWD, path, Operation::Mkdir, 0, done) }
}
path_hook! { [mkdirat] (dir: c_int, path: *const c_char, mode: mode_t) -> c_int,
    (dir, path) |weft_path| { make_directory(weft_path, path, mode) }
    trace |start, done| { posix::named(start, dir, path, Operation::Mkdir, 0, done) }
}
path_hook! { [rmdir] (path: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| { rmdir_weft_path(weft_path, path) }
    trace |start, done| { posix::named(start, AT_FDCWD, path, Operation::Rmdir, 0, done) }
}
path_hook! { [unlink] (path: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| { unlink_weft_path(weft_path, path) }
    trace |start, done| { posix::named(start, AT_FDCWD, path, Operation::Unlink, 0, done) }
}
path_hook! { [unlinkat] (dir: c_int, path: *const c_char, flags: c_int) -> c_int,
    (dir, path) |weft_path| {
        if flags & !libc::AT_REMOVEDIR != 0 {
            return Err(libc::EINVAL.into());
        }
        if flags & libc::AT_REMOVEDIR != 0 { rmdir_weft_path(weft_path, path) } else { unlink_weft_path(weft_path, path) }
    }
    trace |start, done| {
        let op = if flags & libc::AT_REMOVEDIR != 0 { Operation::Rmdir } else { Operation::Unlink };
        posix::named(start, dir, path, op, 0, done);
    }
}
path_hook! { [remove] (path: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| {
        match unlink_weft_path(weft_path, path) {
            Err(Fail::Errno(libc::EISDIR)) => rmdir_weft_path(weft_path, path),
            other => other,
        }
    }
}

unsafe fn unlink_weft_path(weft_path: &WeftPath, path: *const c_char) -> Res<c_int> {
    if pairs::end_of(path) == End::Dots {
        pairs::has_directory(weft_path, End::Dots)?;
        return Err(libc::EISDIR.into());
    }
    if weft_path.must_dir {
        // Such a name does not refer to a non-directory, and a directory cannot be unlinked.
        let plain = WeftPath { must_dir: false, ..weft_path.clone() };
        let kind = backend()?.stat(&plain, false)?.st_mode & libc::S_IFMT;
        return Err(if kind == libc::S_IFDIR { libc::EISDIR } else { libc::ENOTDIR }.into());
    }
    backend()?.unlink(weft_path)?;
    open::note_removed(&weft_path.text);
    Ok(0)
}

unsafe fn rmdir_weft_path(weft_path: &WeftPath, path: *const c_char) -> Res<c_int> {
    if pairs::end_of(path) == End::Dots {
        pairs::has_directory(weft_path, End::Dots)?;
        match pathname::last_name(bytes(path)?) {
            Some(b".") => return Err(libc::EINVAL.into()),
            Some(_) => return Err(libc::ENOTEMPTY.into()),
            None => {}
        }
    }
    if weft_path.text == b"/" {
        return Err(libc::EBUSY.into());
    }
    done(backend()?.rmdir(weft_path))
}

path_hook! { [mknod] (path: *const c_char, mode: mode_t, device: dev_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { done(make_node(weft_path, path, mode, device)) }
}
path_hook! { [mknodat] (dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int,
    (dir, path) |weft_path| { done(make_node(weft_path, path, mode, device)) }
}
path_hook! { [__xmknod] (_version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { done(make_node(weft_path, path, mode, *device)) }
}
path_hook! { [__xmknodat] (_version: c_int, dir: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t)
    -> c_int,
    (dir, path) |weft_path| { done(make_node(weft_path, path, mode, *device)) }
}
path_hook! { [mkfifo] (path: *const c_char, mode: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { done(make_node(weft_path, path, mode & 0o7777 | libc::S_IFIFO, 0)) }
}
path_hook! { [mkfifoat] (dir: c_int, path: *const c_char, mode: mode_t) -> c_int,
    (dir, path) |weft_path| { done(make_node(weft_path, path, mode & 0o7777 | libc::S_IFIFO, 0)) }
}

unsafe fn make_node(weft_path: &WeftPath, path: *const c_char, mode: mode_t, device: dev_t) -> Res<()> {
    let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode & libc::S_IFMT };
    // Linux tells these two apart from types that do not exist.
    if kind == libc::S_IFDIR {
        return Err(libc::EPERM.into());
    }
    let known = [libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK];
    if !known.contains(&kind) {
        return Err(libc::EINVAL.into());
    }
    creatable(weft_path, path)?;
    backend()?.mknod(weft_path, kind | masked(mode), device)
}

/// Whether a name is fit for a new file that is no directory: it must not end in a slash.
unsafe fn creatable(weft_path: &WeftPath, path: *const c_char) -> Res<()> {
    if !weft_path.must_dir {
        return Ok(());
    }
    nameable(weft_path, path)?;
    slash_free(weft_path)
}

/// Refuses a name with a slash behind it, for a file that is no directory.
fn slash_free(weft_path: &WeftPath) -> Res<()> {
    if !weft_path.must_dir {
        return Ok(());
    }
    let plain = WeftPath { must_dir: false, ..weft_path.clone() };
    match backend()?.stat(&plain, false) {
        Ok(_) => Err(libc::EEXIST.into()),
        Err(fail) => Err(fail),
    }
}

/// Refuses a path that ends in `.` or `..`, behind which there is always a directory.
unsafe fn nameable(weft_path: &WeftPath, path: *const c_char) -> Res<()> {
    if pairs::end_of(path) == End::Dots {
        pairs::has_directory(weft_path, End::Dots)?;
        return Err(libc::EEXIST.into());
    }
    Ok(())
}

unsafe fn make_directory(weft_path: &WeftPath, path: *const c_char, mode: mode_t) -> Res<c_int> {
    nameable(weft_path, path)?;
    // Linux gives directories no set-id bits here.
    done(backend()?.mkdir(weft_path, masked(mode & 0o1777)))
}

/// Opens a path. One that ends in `.` or `..` is found before Linux refuses to create it.
unsafe fn open_path(weft_path: &WeftPath, path: *const c_char, flags: c_int, mode: mode_t) -> Res<c_int> {
    refuse_dots(weft_path, path, flags)?;
    open::open(weft_path, flags, mode)
}

/// Refuses to create a path that ends in `.` or `..`.
pub unsafe fn refuse_dots(weft_path: &WeftPath, path: *const c_char, flags: c_int) -> Res<()> {
    let creates = flags & (libc::O_CREAT | libc::O_PATH | libc::O_DIRECTORY) == libc::O_CREAT;
    if creates && weft_path.must_dir && pairs::end_of(path) == End::Dots {
        pairs::has_directory(weft_path, End::Dots)?;
        return Err(if flags & libc::O_EXCL != 0 { libc::EEXIST } else { libc::EISDIR }.into());
    }
    Ok(())
}

unsafe fn make_symlink(target: &[u8], weft_path: &WeftPath, path: *const c_char) -> Res<c_int> {
    if target.is_empty() {
        return Err(libc::ENOENT.into());
    }
    creatable(weft_path, path)?;
    done(backend()?.symlink(weft_path, target))
}

path_hook! { [symlink] (target: *const c_char, path: *const c_char) -> c_int,
    (AT_FDCWD, path) |weft_path| { make_symlink(bytes(target)?, weft_path, path) }
}
path_hook! { [symlinkat] (target: *const c_char, dir: c_int, path: *const c_char) -> c_int,
    (dir, path) |weft_path| { make_symlink(bytes(target)?, weft_path, path) }
}

path_hook! { [readlink] (path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { read_link(weft_path, out, capacity) }
}
path_hook! { [__readlink_chk] (path: *const c_char, out: *mut c_char, capacity: size_t, _real: size_t) -> ssize_t,
    (AT_FDCWD, path) |weft_path| { read_link(weft_path, out, capacity) }
}
path_hook! { [readlinkat] (dir: c_int, path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t,
    (dir, path) |weft_path| { read_link(weft_path, out, capacity) },
    if super::is_empty(path), |open| { copy_target(|| open.read_link(), out, capacity) }
}
path_hook! { [__readlinkat_chk]
    (dir: c_int, path: *const c_char, out: *mut c_char, capacity: size_t, _real: size_t) -> ssize_t,
    (dir, path) |weft_path| { read_link(weft_path, out, capacity) },
    if super::is_empty(path), |open| { copy_target(|| open.read_link(), out, capacity) }
}

unsafe fn read_link(weft_path: &WeftPath, out: *mut c_char, capacity: size_t) -> Res<ssize_t> {
    let target = || match weft_path.by {
        Named::ProcLink => named_by_link(weft_path),
        _ => backend()?.readlink(weft_path),
    };
    copy_target(target, out, capacity)
}

/// Copies the target of a link to memory of the program.
unsafe fn copy_target(
    target: impl FnOnce() -> Res<Vec<u8>>,
    out: *mut c_char,
    capacity: size_t,
) -> Res<ssize_t> {
    if capacity == 0 {
        return Err(libc::EINVAL.into());
    }
    let target = target()?;
    let len = target.len().min(capacity);
    crate::memory::copy_out(&target[..len], out.cast())?;
    Ok(len as ssize_t)
}

/// Returns the target of a link in `/proc`, as the kernel names it.
fn named_by_link(weft_path: &WeftPath) -> Res<Vec<u8>> {
    let (base, start) = weft_path.base.ok_or(libc::EINVAL)?;
    let text = &weft_path.text[..start];
    match super::cwd::path_of(base, text) {
        Ok(now) => Ok(route::full(&now)),
        Err(Fail::Errno(libc::ENOENT | libc::ESTALE)) => {
            Ok([&route::full(text), &b" (deleted)"[..]].concat())
        }
        Err(fail) => Err(fail),
    }
}

/// Serves a call with two paths: if both are in Weft it is served, if one is it fails with `EXDEV` unless a path leads
/// nowhere, otherwise it is foreign.
unsafe fn both(
    pair: Pair,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    work: impl Fn(&WeftPath, &WeftPath, (End, End)) -> Res<()>,
    real: impl Fn(*const c_char, *const c_char) -> c_int,
) -> c_int {
    let (a, b) = (route::route(from.0, from.1), route::route(to.0, to.1));
    if matches!((&a, &b), (Route::Foreign, Route::Foreign)) {
        return real(from.1, to.1);
    }
    // Linux takes both paths from memory when it looks at them.
    let faulty = match (bytes(from.1), bytes(to.1)) {
        (Err(fail), _) => Some(fail.errno()),
        (_, Err(fail)) => Some(pairs::first_path(pair, from.0, from.1).unwrap_or(fail.errno())),
        _ => None,
    };
    if let Some(errno) = faulty {
        errno::set(errno);
        return -1;
    }
    let follow = pair == Pair::Link { follow: true };
    let errno = match (resolve_side(a, follow, pair == Pair::Rename), resolve_side(b, false, true)) {
        (Ok(PathSide::Ours(a)), Ok(PathSide::Ours(b))) => {
            let ends = (pairs::end_of(from.1), pairs::end_of(to.1));
            let work = || work(&a, &b, ends).map_err(|fail| pairs::first_error(pair, &a, &b, ends, fail));
            match inside(work) {
                Ok(()) => return 0,
                Err(fail) => fail.report(),
            }
        }
        (Ok(a), Ok(b)) if !a.is_ours() && !b.is_ours() => return real(a.path(from.1), b.path(to.1)),
        (Err(fail), _) => fail.errno(),
        (Ok(a), Err(fail)) => {
            pairs::source_error(pair, (a.ours(), from.0, a.path(from.1))).unwrap_or(fail.errno())
        }
        (Ok(a), Ok(b)) => {
            pairs::across(pair, (a.ours(), from.0, a.path(from.1)), (b.ours(), to.0, b.path(to.1)))
        }
    };
    errno::set(errno);
    -1
}

enum PathSide {
    Ours(WeftPath),
    Moved(CString),
    Foreign,
}

impl PathSide {
    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
    fn ours(&self) -> Option<&WeftPath> {
        if let Self::Ours(weft_path) = self { Some(weft_path) } else { None }
    }
    fn path(&self, as_given: *const c_char) -> *const c_char {
        if let Self::Moved(path) = self { path.as_ptr() } else { as_given }
    }
}

/// Determines whether a Weft path really lies in the mount: a link in its directory part may lead out of it. With
/// `is_name`, a link at its end is a name that the call gives or takes, also with a slash behind it.
fn resolve_side(way: Route, follow: bool, is_name: bool) -> Res<PathSide> {
    let mut found = None;
    let mut kept = None;
    let result = on_way::<c_int>(way, &mut kept, |weft_path| {
        let at = WeftPath { must_dir: weft_path.must_dir && !is_name, ..weft_path.clone() };
        match backend()?.stat(&at, follow) {
            Err(Fail::Moved(path)) => return Err(Fail::Moved(path)),
            // The operation itself handles a missing name.
            Ok(_) | Err(_) => found = Some(weft_path.clone()),
        }
        Ok(0)
    });
    Ok(match (result, found, kept) {
        (Some(_), Some(weft_path), _) => PathSide::Ours(weft_path),
        (None, _, Some(path)) => PathSide::Moved(path),
        (None, _, None) => PathSide::Foreign,
        (Some(_), None, _) => return Err(errno::get().into()),
    })
}

fn rename_weft_paths(from: &WeftPath, to: &WeftPath, ends: (End, End), flags: c_uint) -> Res<()> {
    let (no_replace, exchange) = (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_EXCHANGE != 0);
    pairs::renamable(from, to, ends, no_replace)?;
    for side in [from, to] {
        if side.text == b"/" {
            return Err(libc::EBUSY.into());
        }
    }
    let plain = |weft_path: &WeftPath| WeftPath { must_dir: false, ..weft_path.clone() };
    if ends.0 == End::Slash || ends.1 == End::Slash {
        let is_directory = |path: &WeftPath| -> Res<bool> {
            Ok(backend()?.stat(&plain(path), false)?.st_mode & libc::S_IFMT == libc::S_IFDIR)
        };
        let source = is_directory(from)?;
        let target = is_directory(to);
        // The checks of Linux, in its order.
        if let Err(fail) = &target
            && (fail.errno() != libc::ENOENT || pairs::is_in_removed_directory(to, ends.1))
        {
            return Err(fail.errno().into());
        }
        if no_replace && target.is_ok() {
            return Err(libc::EEXIST.into());
        }
        if exchange && !target? && ends.1 == End::Slash {
            return Err(libc::ENOTDIR.into());
        }
        if !source && (ends.0 == End::Slash || !exchange) {
            return Err(libc::ENOTDIR.into());
        }
    }
    backend()?.rename(&plain(from), &plain(to), no_replace, exchange)?;
    if !exchange {
        // The file that had this name may be open.
        open::note_removed(&to.text);
    }
    Ok(())
}

fn link_weft_paths(from: &WeftPath, to: &WeftPath, ends: (End, End), follow: bool) -> Res<()> {
    if ends != (End::Name, End::Name) {
        backend()?.stat(from, follow)?;
        pairs::has_directory(to, ends.1)?;
        if ends.1 == End::Dots {
            return Err(libc::EEXIST.into());
        }
        slash_free(to)?;
    }
    backend()?.link(from, to, follow)
}

/// Whether the flags of `renameat2` are known and not contradictory.
fn check_rename(flags: c_uint) -> Res<()> {
    let exclusive = libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
    let is_contradiction = flags & exclusive != 0 && flags & libc::RENAME_EXCHANGE != 0;
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 || is_contradiction {
        return Err(libc::EINVAL.into());
    }
    Ok(())
}

hook! { [rename] (from: *const c_char, to: *const c_char) -> c_int {
    let real = real!(rename: fn(*const c_char, *const c_char) -> c_int);
    Some(both(
        Pair::Rename,
        (AT_FDCWD, from),
        (AT_FDCWD, to),
        |a, b, ends| rename_weft_paths(a, b, ends, 0),
        |a, b| real(a, b),
    ))
} }
hook! { [renameat] (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
    let real = real!(renameat: fn(c_int, *const c_char, c_int, *const c_char) -> c_int);
    Some(both(
        Pair::Rename,
        (from_dir, from),
        (to_dir, to),
        |a, b, ends| rename_weft_paths(a, b, ends, 0),
        |a, b| real(from_dir, a, to_dir, b),
    ))
} }
hook! { [renameat2] (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint)
    -> c_int {
    let real = real!(renameat2: fn(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int);
    // As in Linux, before the paths are looked at.
    if let Err(fail) = check_rename(flags)
        && [(from_dir, from), (to_dir, to)].iter().any(|&(dir, path)| !matches!(route::route(dir, path), Route::Foreign))
    {
        errno::set(fail.errno());
        return -1;
    }
    Some(both(
        Pair::Rename,
        (from_dir, from),
        (to_dir, to),
        |a, b, ends| rename_weft_paths(a, b, ends, flags),
        |a, b| real(from_dir, a, to_dir, b, flags),
    ))
} }
hook! { [link] (from: *const c_char, to: *const c_char) -> c_int {
    let real = real!(link: fn(*const c_char, *const c_char) -> c_int);
    Some(both(
        Pair::Link { follow: false },
        (AT_FDCWD, from),
        (AT_FDCWD, to),
        |a, b, ends| link_weft_paths(a, b, ends, false),
        |a, b| real(a, b),
    ))
} }
hook! { [linkat] (from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
    let real = real!(linkat: fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int);
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    let is_known = flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) == 0;
    if !is_known {
        return real(from_dir, from, to_dir, to, flags);
    }
    if from_dir != AT_FDCWD && flags & libc::AT_EMPTY_PATH != 0 && !from.is_null() && *from == 0 {
        // The descriptor itself, which may be closed.
        if let Err(errno) = crate::sys::fcntl(from_dir, libc::F_GETFD, 0) {
            errno::set(errno);
            return -1;
        }
    }
    match descriptor_of(from_dir, from, flags) {
        Some(fd) => link_open(fd, to_dir, to),
        None => Some(both(
            Pair::Link { follow },
            (from_dir, from),
            (to_dir, to),
            |a, b, ends| link_weft_paths(a, b, ends, follow),
            |a, b| real(from_dir, a, to_dir, b, flags),
        )),
    }
} }

/// Returns the Weft descriptor that the source of a `linkat` refers to: by `AT_EMPTY_PATH`, or by its link in `/proc`.
unsafe fn descriptor_of(dir: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    if crate::guard::inside() {
        return None;
    }
    let path = bytes(path).ok()?;
    let fd = if path.is_empty() {
        (flags & libc::AT_EMPTY_PATH != 0).then_some(dir)
    } else if flags & libc::AT_SYMLINK_FOLLOW != 0 {
        match links::parse(path) {
            Some(Link::Descriptor(fd, b"")) => Some(fd),
            _ => None,
        }
    } else {
        None
    };
    fd.filter(|&fd| table::is_weft(fd))
}

/// Gives the file of a Weft descriptor another name, or its first one.
unsafe fn link_open(fd: c_int, to_dir: c_int, to: *const c_char) -> Option<c_int> {
    let open = table::get(fd)?;
    if let Err(fail) = bytes(to) {
        errno::set(fail.errno());
        return Some(-1);
    }
    let way = route::route(to_dir, to);
    let end = pairs::end_of(to);
    let linked = on_way(way, &mut None, |to| {
        pairs::has_directory(to, end)?;
        if end == End::Dots {
            return Err(libc::EEXIST.into());
        }
        slash_free(to)?;
        done(backend()?.link_open(open.file()?, to))
    });
    linked.or_else(|| {
        errno::set(pairs::across_to(to_dir, to));
        Some(-1)
    })
}

path_hook! { [truncate, truncate64] (path: *const c_char, size: libc::off_t) -> c_int,
    (AT_FDCWD, path) |weft_path| {
        let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
        crate::limits::may_become(size, || Ok(backend()?.stat_whole(weft_path, true)?.st_size as u64))?;
        done(backend()?.truncate(weft_path, size))
    }
    over { over::truncate(path, size) }
    trace |start, done| { posix::named(start, AT_FDCWD, path, Operation::Truncate, size, done) }
}

// File mode creation mask. The kernel reports it only by changing it, so the hook tracks it.
const UNKNOWN: u32 = u32::MAX;
static UMASK: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Returns the mask of this process.
pub fn umask_now() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let mask = read_umask().unwrap_or(0o022);
    UMASK.store(mask, Ordering::Relaxed);
    mask
}

fn read_umask() -> Option<u32> {
    let fd = crate::sys::open(c"/proc/self/status", libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut text = [0u8; 512];
    let got = crate::sys::read(fd, &mut text);
    crate::sys::close(fd);
    let text = std::str::from_utf8(&text[..got.ok()?]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// Returns the permission bits without those that the mask clears.
pub fn masked(mode: u32) -> u32 {
    mode & 0o7777 & !umask_now()
}

hook! { [umask] (mask: mode_t) -> mode_t {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
    None
} }

//! Attributes: the stat family, permissions, owners, times, file systems.

use super::is_empty;
use crate::backend::{backend, has_delegates, of_real_user};
use crate::errno::{Fail, Res};
use crate::open::Open;
use crate::route::{WeftPath, full};
use crate::serve::{on_fd, on_weft_fd};
use crate::trace::{Operation, posix};
use crate::{memory, over, pathname};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_uint, gid_t, mode_t, timespec, timeval, uid_t};
use libc::{stat as Stat, statfs as StatFs, statvfs as StatVfs};
use weft_core::Timestamp;
use weft_wire::meta::{SetAttr, SetTime};

unsafe fn fill(weft_path: &WeftPath, follow: bool, out: *mut Stat) -> Res<c_int> {
    let st = backend()?.stat_whole(weft_path, follow || weft_path.must_dir)?;
    if weft_path.must_dir && st.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(libc::ENOTDIR.into());
    }
    memory::store(out, st)?;
    Ok(0)
}

path_hook! { [stat, stat64] (path: *const c_char, out: *mut Stat) -> c_int,
    (AT_FDCWD, path) |weft_path| { fill(weft_path, true, out) }
    over { over::stat(AT_FDCWD, path, out, 0) }
    trace |start, done| { posix::queried(start, AT_FDCWD, path, done, out) }
}
path_hook! { [lstat, lstat64] (path: *const c_char, out: *mut Stat) -> c_int,
    (AT_FDCWD, path) |weft_path| { fill(weft_path, false, out) }
    over { over::stat(AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW) }
    trace |start, done| { posix::queried(start, AT_FDCWD, path, done, out) }
}
path_hook! { [__xstat, __xstat64] (_version: c_int, path: *const c_char, out: *mut Stat) -> c_int,
    (AT_FDCWD, path) |weft_path| { fill(weft_path, true, out) }
    over { over::stat(AT_FDCWD, path, out, 0) }
    trace |start, done| { posix::queried(start, AT_FDCWD, path, done, out) }
}
path_hook! { [__lxstat, __lxstat64] (_version: c_int, path: *const c_char, out: *mut Stat) -> c_int,
    (AT_FDCWD, path) |weft_path| { fill(weft_path, false, out) }
    over { over::stat(AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW) }
    trace |start, done| { posix::queried(start, AT_FDCWD, path, done, out) }
}
hook! { [fstat, fstat64, __fstat64] (fd: c_int, out: *mut Stat) -> c_int {
    on_fd(fd, |open| { memory::store(out, open.stat()?).map(|()| 0) })
} trace |start, done| { posix::whole(start, fd, Operation::Stat, 0, done) } }
hook! { [__fxstat, __fxstat64] (_version: c_int, fd: c_int, out: *mut Stat) -> c_int {
    on_fd(fd, |open| { memory::store(out, open.stat()?).map(|()| 0) })
} trace |start, done| { posix::whole(start, fd, Operation::Stat, 0, done) } }

/// Whether the call refers to the descriptor itself.
unsafe fn is_itself(path: *const c_char, flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && is_empty(path)
}

/// Whether a call that returns attributes refers to the descriptor itself. Linux accepts a null path in these calls alone.
unsafe fn is_itself_or_null(path: *const c_char, flags: c_int) -> bool {
    is_itself(path, flags) || flags & libc::AT_EMPTY_PATH != 0 && path.is_null()
}

/// Refuses flags that the kernel does not know for a call.
fn check(flags: c_int, known: c_int) -> Res<()> {
    if flags & !known == 0 { Ok(()) } else { Err(libc::EINVAL.into()) }
}

/// Flags of calls that name a file or a descriptor.
const AT: c_int = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
/// Flags that say how fresh the attributes must be, which here they always are.
const SYNC_TYPE: c_int = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
/// Flags of calls that return attributes.
const STAT: c_int = AT | libc::AT_NO_AUTOMOUNT | SYNC_TYPE;

fn check_statx(flags: c_int, mask: c_uint) -> Res<()> {
    const RESERVED: c_uint = 0x8000_0000;
    if mask & RESERVED != 0 || flags & SYNC_TYPE == SYNC_TYPE {
        return Err(libc::EINVAL.into());
    }
    check(flags, STAT)
}

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

path_hook! { [fstatat, fstatat64] (dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int,
    (dir, path) |weft_path| { check(flags, STAT)?; fill(weft_path, follows(flags), out) }
    over { over::stat(dir, path, out, flags) },
    if is_itself_or_null(path, flags), |open| { check(flags, STAT)?; memory::store(out, open.stat()?).map(|()| 0) }
    trace |start, done| { posix::queried(start, dir, path, done, out) }
}
path_hook! { [__fxstatat, __fxstatat64]
    (_version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int,
    (dir, path) |weft_path| { check(flags, STAT)?; fill(weft_path, follows(flags), out) }
    over { over::stat(dir, path, out, flags) },
    if is_itself_or_null(path, flags), |open| { check(flags, STAT)?; memory::store(out, open.stat()?).map(|()| 0) }
    trace |start, done| { posix::queried(start, dir, path, done, out) }
}
path_hook! { [statx] (dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int,
    (dir, path) |weft_path| {
        check_statx(flags, mask)?;
        let mut st = std::mem::zeroed();
        fill(weft_path, follows(flags), &mut st)?;
        memory::store(out, extended(&st)).map(|()| 0)
    }
    over { over::statx(dir, path, flags, mask, out) },
    if is_itself_or_null(path, flags), |open| { check_statx(flags, mask)?; memory::store(out, extended(&open.stat()?)).map(|()| 0) }
    trace |start, done| { posix::queried_more(start, dir, path, done, out) }
}

fn extended(st: &Stat) -> libc::statx {
    let time = |sec: i64, nsec: i64| {
        // SAFETY: all zeros is a valid time stamp.
        let mut at: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        at.tv_sec = sec;
        at.tv_nsec = nsec as u32;
        at
    };
    // SAFETY: all zeros is a valid `statx`.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    out.stx_mask = libc::STATX_BASIC_STATS;
    out.stx_blksize = st.st_blksize as u32;
    out.stx_nlink = st.st_nlink as u32;
    out.stx_uid = st.st_uid;
    out.stx_gid = st.st_gid;
    out.stx_mode = st.st_mode as u16;
    out.stx_ino = st.st_ino;
    out.stx_size = st.st_size as u64;
    out.stx_blocks = st.st_blocks as u64;
    out.stx_atime = time(st.st_atime, st.st_atime_nsec);
    out.stx_mtime = time(st.st_mtime, st.st_mtime_nsec);
    out.stx_ctime = time(st.st_ctime, st.st_ctime_nsec);
    out.stx_rdev_major = libc::major(st.st_rdev);
    out.stx_rdev_minor = libc::minor(st.st_rdev);
    out.stx_dev_major = libc::major(st.st_dev);
    out.stx_dev_minor = libc::minor(st.st_dev);
    out
}

path_hook! { [access] (path: *const c_char, mask: c_int) -> c_int,
    (AT_FDCWD, path) |weft_path| { may_really(weft_path, mask, true) }
}
path_hook! { [euidaccess, eaccess] (path: *const c_char, mask: c_int) -> c_int,
    // The C library ignores other bits.
    (AT_FDCWD, path) |weft_path| { may(weft_path, mask & 7, true) }
}
path_hook! { [faccessat] (dir: c_int, path: *const c_char, mask: c_int, flags: c_int) -> c_int,
    (dir, path) |weft_path| {
        check(flags, AT | libc::AT_EACCESS)?;
        if flags & libc::AT_EACCESS != 0 { may(weft_path, mask, follows(flags)) }
        else { may_really(weft_path, mask, follows(flags)) }
    },
    if is_itself(path, flags), |open| {
        check(flags, AT | libc::AT_EACCESS)?;
        may_really(&open.weft_path()?, mask, true)
    }
}

/// Like [`may`] for the real user.
fn may_really(weft_path: &WeftPath, mask: c_int, follow: bool) -> Res<c_int> {
    if mask & !7 != 0 {
        return Err(libc::EINVAL.into());
    }
    of_real_user()?.access(weft_path, mask as u32, follow)?;
    Ok(0)
}

fn may(weft_path: &WeftPath, mask: c_int, follow: bool) -> Res<c_int> {
    if mask & !7 != 0 {
        return Err(libc::EINVAL.into());
    }
    backend()?.access(weft_path, mask as u32, follow)?;
    Ok(0)
}

fn apply(weft_path: &WeftPath, follow: bool, set: SetAttr) -> Res<c_int> {
    if set == SetAttr::default() {
        // A `chown` that keeps both owners still clears the set-id bits.
        let st = backend()?.stat(weft_path, follow)?;
        let is_program = st.st_mode & libc::S_IFMT == libc::S_IFREG && st.st_mode & 0o6000 != 0;
        return if is_program { apply(weft_path, follow, owner(st.st_uid, st.st_gid)) } else { Ok(0) };
    }
    backend()?.set_attr(weft_path, follow, &set)?;
    Ok(0)
}

fn mode(mode: mode_t) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

fn owner(uid: uid_t, gid: gid_t) -> SetAttr {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }
}

path_hook! { [chmod] (path: *const c_char, bits: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { apply(weft_path, true, mode(bits)) }
}
path_hook! { [lchmod] (path: *const c_char, bits: mode_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { change_mode(weft_path, bits, false) }
}
path_hook! { [fchmodat] (dir: c_int, path: *const c_char, bits: mode_t, flags: c_int) -> c_int,
    (dir, path) |weft_path| { check(flags, AT)?; change_mode(weft_path, bits, follows(flags)) },
    if is_itself(path, flags), |open| { check(flags, AT)?; apply(&open.weft_path()?, true, mode(bits)) }
}
hook! { [fchmod] (fd: c_int, bits: mode_t) -> c_int {
    on_weft_fd(fd, |open| open.is_opened().and_then(|()| apply(&open.weft_path()?, true, mode(bits))))
} }

/// Links have no permissions of their own.
fn change_mode(weft_path: &WeftPath, bits: mode_t, follow: bool) -> Res<c_int> {
    if !follow && backend()?.stat(weft_path, false)?.st_mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(libc::EOPNOTSUPP.into());
    }
    apply(weft_path, true, mode(bits))
}

path_hook! { [chown] (path: *const c_char, uid: uid_t, gid: gid_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { apply(weft_path, true, owner(uid, gid)) }
}
path_hook! { [lchown] (path: *const c_char, uid: uid_t, gid: gid_t) -> c_int,
    (AT_FDCWD, path) |weft_path| { apply(weft_path, false, owner(uid, gid)) }
}
path_hook! { [fchownat] (dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int,
    (dir, path) |weft_path| { check(flags, AT)?; apply(weft_path, follows(flags), owner(uid, gid)) },
    if is_itself(path, flags), |open| { check(flags, AT)?; apply(&open.weft_path()?, true, owner(uid, gid)) }
}
hook! { [fchown] (fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    on_weft_fd(fd, |open| open.is_opened().and_then(|()| apply(&open.weft_path()?, true, owner(uid, gid))))
} }

fn times(atime: SetTime, mtime: SetTime) -> SetAttr {
    SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() }
}

unsafe fn from_specs(specs: *const timespec) -> Res<SetAttr> {
    if specs.is_null() {
        return Ok(times(SetTime::Now, SetTime::Now));
    }
    let one = |at: timespec| match at.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        nanos @ 0..1_000_000_000 => Ok(Some(SetTime::At(Timestamp::from_parts(at.tv_sec, nanos as u32)))),
        _ => Err(Fail::Errno(libc::EINVAL)),
    };
    let [atime, mtime] = memory::load(specs.cast::<[timespec; 2]>())?;
    Ok(SetAttr { atime: one(atime)?, mtime: one(mtime)?, ..SetAttr::default() })
}

unsafe fn from_vals(vals: *const timeval) -> Res<SetAttr> {
    if vals.is_null() {
        return Ok(times(SetTime::Now, SetTime::Now));
    }
    let one = |at: timeval| match at.tv_usec {
        micros @ 0..1_000_000 => Ok(SetTime::At(Timestamp::from_parts(at.tv_sec, micros as u32 * 1000))),
        _ => Err(Fail::Errno(libc::EINVAL)),
    };
    let [atime, mtime] = memory::load(vals.cast::<[timeval; 2]>())?;
    Ok(times(one(atime)?, one(mtime)?))
}

path_hook! { [utime] (path: *const c_char, at: *const libc::utimbuf) -> c_int,
    (AT_FDCWD, path) |weft_path| {
        let set = if at.is_null() {
            times(SetTime::Now, SetTime::Now)
        } else {
            let at = memory::load(at)?;
            let seconds = |seconds| SetTime::At(Timestamp::from_parts(seconds, 0));
            times(seconds(at.actime), seconds(at.modtime))
        };
        apply(weft_path, true, set)
    }
}
path_hook! { [utimes] (path: *const c_char, at: *const timeval) -> c_int,
    (AT_FDCWD, path) |weft_path| { set_times(weft_path, 0, from_vals(at)) }
}
path_hook! { [lutimes] (path: *const c_char, at: *const timeval) -> c_int,
    (AT_FDCWD, path) |weft_path| { set_times(weft_path, libc::AT_SYMLINK_NOFOLLOW, from_vals(at)) }
}
path_hook! { [futimesat] (dir: c_int, path: *const c_char, at: *const timeval) -> c_int,
    (dir, path) |weft_path| { set_times(weft_path, 0, from_vals(at)) },
    if path.is_null(), |open| { apply(&open.weft_path()?, true, from_vals(at)?) }
}
path_hook! { [utimensat] (dir: c_int, path: *const c_char, at: *const timespec, flags: c_int) -> c_int,
    (dir, path) |weft_path| { set_times(weft_path, flags, from_specs(at)) }
    over {
        if is_itself(path, flags) {
            settle_times(dir);
        }
        real!(utimensat: fn(c_int, *const c_char, *const timespec, c_int) -> c_int)(dir, path, at, flags)
    },
    if is_itself(path, flags), |open| {
        open.write_back()?;
        set_times(&open.weft_path()?, flags, from_specs(at))
    }
}

/// Whether both times stay. Linux then checks nothing else.
fn both_stay(set: &Res<SetAttr>) -> bool {
    set.as_ref().is_ok_and(|set| set.atime.is_none() && set.mtime.is_none())
}

/// Sets times, unless both stay. The file is found before the times are checked.
fn set_times(weft_path: &WeftPath, flags: c_int, set: Res<SetAttr>) -> Res<c_int> {
    if both_stay(&set) {
        return Ok(0);
    }
    check(flags, AT)?;
    if set.is_err() {
        backend()?.stat(weft_path, follows(flags))?;
    }
    let set = set?;
    apply(weft_path, follows(flags), set)
}

hook! { [futimens] (fd: c_int, at: *const timespec) -> c_int {
    settle_times(fd);
    on_weft_fd(fd, |open| {
        let set = from_specs(at);
        if !both_stay(&set) {
            open.is_opened()?;
        }
        set_times(&open.weft_path()?, 0, set)
    })
} }
hook! { [futimes] (fd: c_int, at: *const timeval) -> c_int {
    settle_times(fd);
    on_weft_fd(fd, |open| open.is_opened().and_then(|()| apply(&open.weft_path()?, true, from_vals(at)?)))
} }

/// Before the times of a file are set: makes delegates write what they hold, since a later write would change the times
/// again.
fn settle_times(fd: c_int) {
    if has_delegates() {
        let _: Option<c_int> = on_fd(fd, |open| open.write_back().map(|()| 0));
    }
}

/// Returns the space of the file system at a path that must exist.
fn space_at(weft_path: &WeftPath) -> Res<StatFs> {
    backend()?.stat(weft_path, true)?;
    backend()?.statfs(Some(weft_path))
}

/// Returns the space of the file system at an open file, whose path may be gone.
fn space_of(open: &Open) -> Res<StatFs> {
    match space_at(&open.weft_path()?) {
        Err(error) if error.errno() == libc::ENOENT => backend()?.statfs(None),
        found => found,
    }
}

fn as_statvfs(from: &StatFs) -> StatVfs {
    // SAFETY: all zeros is a valid `statvfs`.
    let mut out: StatVfs = unsafe { std::mem::zeroed() };
    out.f_bsize = from.f_bsize as u64;
    out.f_frsize = from.f_bsize as u64;
    out.f_blocks = from.f_blocks;
    out.f_bfree = from.f_bfree;
    out.f_bavail = from.f_bavail;
    out.f_files = from.f_files;
    out.f_ffree = from.f_ffree;
    out.f_favail = from.f_ffree;
    out.f_namemax = 255;
    out
}

path_hook! { [statfs, statfs64, __statfs] (path: *const c_char, out: *mut StatFs) -> c_int,
    (AT_FDCWD, path) |weft_path| { memory::store(out, space_at(weft_path)?).map(|()| 0) }
}
path_hook! { [statvfs, statvfs64] (path: *const c_char, out: *mut StatVfs) -> c_int,
    (AT_FDCWD, path) |weft_path| { memory::store(out, as_statvfs(&space_at(weft_path)?)).map(|()| 0) }
}
hook! { [fstatfs, fstatfs64] (fd: c_int, out: *mut StatFs) -> c_int {
    on_weft_fd(fd, |open| { memory::store(out, space_of(open)?).map(|()| 0) })
} }
hook! { [fstatvfs, fstatvfs64] (fd: c_int, out: *mut StatVfs) -> c_int {
    on_weft_fd(fd, |open| { memory::store(out, as_statvfs(&space_of(open)?)).map(|()| 0) })
} }

fn limit(name: c_int) -> Res<c_long> {
    Ok(match name {
        libc::_PC_LINK_MAX => 65_000,
        libc::_PC_NAME_MAX => 255,
        libc::_PC_PATH_MAX => 4096,
        libc::_PC_PIPE_BUF => 4096,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC => 1,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_REC_XFER_ALIGN | libc::_PC_REC_MIN_XFER_SIZE | libc::_PC_ALLOC_SIZE_MIN => 4096,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        libc::_PC_VDISABLE => 0,
        libc::_PC_SOCK_MAXBUF | libc::_PC_REC_INCR_XFER_SIZE | libc::_PC_REC_MAX_XFER_SIZE => -1,
        libc::_PC_SYMLINK_MAX | libc::_PC_ASYNC_IO | libc::_PC_SYNC_IO | libc::_PC_PRIO_IO => -1,
        _ => return Err(libc::EINVAL.into()),
    })
}

path_hook! { [pathconf] (path: *const c_char, name: c_int) -> c_long,
    (AT_FDCWD, path) |weft_path| {
        let limit = limit(name)?;
        // The C library knows these without the file.
        let is_constant = matches!(
            name,
            libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF | libc::_PC_NO_TRUNC | libc::_PC_SYNC_IO
        );
        if !is_constant {
            backend()?.stat(weft_path, true)?;
        }
        Ok(limit)
    }
}
hook! { [fpathconf] (fd: c_int, name: c_int) -> c_long { on_weft_fd(fd, |_| limit(name)) } }

path_hook! { [ftok] (path: *const c_char, number: c_int) -> c_int,
    (AT_FDCWD, path) |weft_path| {
        let st = backend()?.stat(weft_path, true)?;
        Ok(((st.st_ino & 0xffff) as c_int) | ((st.st_dev & 0xff) as c_int) << 16 | (number & 0xff) << 24)
    }
}

hook! { [inotify_add_watch] (_fd: c_int, path: *const c_char, _mask: u32) -> c_int {
    // Fail with the error that makes programs poll instead of watch.
    match crate::route::route(AT_FDCWD, path) {
        crate::route::Route::Ours(_) => Some({ crate::errno::set(libc::ENOSPC); -1 }),
        _ => None,
    }
} }

/// Returns the path from the root of the mount with all links followed.
pub fn resolved(weft_path: &WeftPath) -> Res<Vec<u8>> {
    let backend = backend()?;
    let st = backend.stat(weft_path, true)?;
    if weft_path.must_dir && st.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(libc::ENOTDIR.into());
    }
    let (mut done, rest) = match weft_path.base {
        Some((base, start)) => {
            (super::cwd::path_of(base, &weft_path.text[..start])?, &weft_path.text[start..])
        }
        None => (Vec::new(), &weft_path.text[..]),
    };
    if done == b"/" {
        done.clear();
    }
    let mut todo: Vec<Vec<u8>> = pathname::names(rest).map(<[u8]>::to_vec).collect();
    todo.reverse();
    for _ in 0..10_000 {
        let Some(name) = todo.pop() else { break };
        if name == b".." {
            let cut = done.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            done.truncate(cut);
            continue;
        }
        let next = pathname::join(if done.is_empty() { b"/" } else { &done }, &name);
        match backend.readlink(&WeftPath::at(next.clone())) {
            Ok(target) => {
                if target.starts_with(b"/") {
                    // The whole walk succeeded, so an absolute target leads back into the mount.
                    let full = pathname::fold(&target);
                    let rest = pathname::below(&crate::config::config().mount, &full).ok_or(libc::EXDEV)?;
                    done.clear();
                    todo.extend(
                        pathname::names(rest).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev(),
                    );
                } else {
                    todo.extend(
                        pathname::names(&target).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev(),
                    );
                }
            }
            Err(Fail::Moved(path)) => return Err(Fail::Moved(path)),
            Err(_) => done = next,
        }
    }
    Ok(if done.is_empty() { b"/".to_vec() } else { done })
}

/// Copies `text` to `out`, or to allocated memory if that is null.
unsafe fn copy_path(text: &[u8], out: *mut c_char, capacity: usize) -> Res<*mut c_char> {
    if text.len() >= capacity {
        return Err(libc::ENAMETOOLONG.into());
    }
    let out = if out.is_null() { libc::malloc(text.len() + 1).cast::<c_char>() } else { out };
    if out.is_null() {
        return Err(libc::ENOMEM.into());
    }
    std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), text.len());
    *out.add(text.len()) = 0;
    Ok(out)
}

path_hook! { [realpath] (path: *const c_char, out: *mut c_char) -> *mut c_char,
    (AT_FDCWD, path) |weft_path| { copy_path(&full(&resolved(weft_path)?), out, 4096) }
}
path_hook! { [__realpath_chk] (path: *const c_char, out: *mut c_char, _room: usize) -> *mut c_char,
    (AT_FDCWD, path) |weft_path| { copy_path(&full(&resolved(weft_path)?), out, 4096) }
}
path_hook! { [canonicalize_file_name] (path: *const c_char) -> *mut c_char,
    (AT_FDCWD, path) |weft_path| { copy_path(&full(&resolved(weft_path)?), std::ptr::null_mut(), 4096) }
}

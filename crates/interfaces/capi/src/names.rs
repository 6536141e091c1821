//! Names and attributes by path.

use crate::args;
use crate::connection::{Connection, Files, Weft, connection};
use crate::fail::{Fail, Res, exported};
use libc::{gid_t, mode_t, off_t, size_t, ssize_t, uid_t};
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use weft_client::{FileSystem, InodePath, SetAttr, SetTime};
use weft_core::{ByteLen, Timestamp};
use weft_env::real::block_on;

/// Returns the permission bits without those of the process's umask.
pub fn unmasked(mode: mode_t) -> u32 {
    mode & 0o7777 & !umask()
}

/// Returns the process's umask, read from /proc: the call umask(2) would change it for a moment, for all threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

type Ask<'a, T> = dyn Fn(&Files<'_>, &InodePath) -> weft_client::Result<T> + 'a;

/// Calls `ask` for one path.
unsafe fn at<T>(weft: *const Weft, path: *const c_char, follow: bool, ask: &Ask<'_, T>) -> Res<c_int> {
    // SAFETY: pointers of the caller.
    let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
    weft.at(path, follow, ask)?;
    Ok(0)
}

/// Returns two paths of one connection.
unsafe fn two<'a>(
    weft: *const Weft,
    from: *const c_char,
    to: *const c_char,
) -> Res<(&'a Arc<Connection>, &'a [u8], &'a [u8])> {
    // SAFETY: pointers of the caller.
    unsafe { Ok((connection(weft)?, args::string(from, "the old path")?, args::string(to, "the new path")?)) }
}

/// Returns the inode of a path's directory and the last name, after following all links on the way, wherever they lead.
fn resolve_parent(weft: &Connection, path: &[u8]) -> Res<InodePath> {
    let whole = weft.inode_path(path);
    // Slashes at the end belong to the last name.
    let Some(last) = whole.path.iter().rposition(|byte| *byte != b'/') else { return Ok(whole) };
    let Some(slash) = whole.path[..last].iter().rposition(|byte| *byte == b'/') else { return Ok(whole) };
    let parent = weft.at(&whole.path[..=slash], true, |files, place| block_on(files.stat(place)))?.attr;
    Ok(InodePath { path: whole.path[slash + 1..].to_vec(), ..InodePath::at_inode(parent.file, parent.proof) })
}

/// Executes an operation on two names. It resolves them separately only if a link leads out of the namespace and back.
fn both(
    weft: &Connection,
    (from, to): (&[u8], &[u8]),
    ask: impl Fn(&Files<'_>, &InodePath, &InodePath) -> weft_client::Result<()>,
) -> Res<c_int> {
    if from.is_empty() || to.is_empty() {
        return Err(Fail::new(libc::ENOENT, "a path is empty"));
    }
    match weft.files(|files| ask(files, &weft.inode_path(from), &weft.inode_path(to)))? {
        Err(weft_client::Error::ExternalLink { .. }) => {
            let (from, to) = (resolve_parent(weft, from)?, resolve_parent(weft, to)?);
            weft.files(|files| ask(files, &from, &to))??
        }
        answer => answer?,
    }
    Ok(0)
}

fn time(spec: &libc::timespec) -> Res<Option<SetTime>> {
    match spec.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        nanos @ 0..1_000_000_000 => Ok(Some(SetTime::At(Timestamp::from_parts(spec.tv_sec, nanos as u32)))),
        nanos => Err(Fail::argument(format!("{nanos} nanoseconds are not within a second"))),
    }
}

fn owner(uid: uid_t, gid: gid_t) -> SetAttr {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: some(uid), gid: some(gid), ..SetAttr::default() }
}

exported! {
    fn weft_mkdir(weft: *const Weft, path: *const c_char, mode: mode_t) -> c_int | -1; {
        let mode = unmasked(mode);
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, false, &|files, place| block_on(files.mkdir(place, mode))) }
    }

    fn weft_rmdir(weft: *const Weft, path: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, false, &|files, place| block_on(files.rmdir(place))) }
    }

    fn weft_unlink(weft: *const Weft, path: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, false, &|files, place| block_on(files.unlink(place))) }
    }

    fn weft_rename(weft: *const Weft, from: *const c_char, to: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, from, to) = unsafe { two(weft, from, to)? };
        both(weft, (from, to), |files, from, to| block_on(files.rename(from, to)))
    }

    fn weft_link(weft: *const Weft, from: *const c_char, to: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let (weft, from, to) = unsafe { two(weft, from, to)? };
        both(weft, (from, to), |files, from, to| block_on(files.weft.link(from, to)).map(drop))
    }

    fn weft_symlink(weft: *const Weft, target: *const c_char, path: *const c_char) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        let target = unsafe { args::string(target, "the target")? };
        // SAFETY: as above.
        unsafe { at(weft, path, false, &|files, place| block_on(files.symlink(place, target))) }
    }

    fn weft_readlink(weft: *const Weft, path: *const c_char, buf: *mut c_char, size: size_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
        if size == 0 {
            return Err(Fail::argument("a buffer of length 0"));
        }
        let target = weft.at(path, false, |files, place| block_on(files.readlink(place)))?;
        let fits = &target[..target.len().min(size)];
        // SAFETY: as above.
        unsafe { args::copy_out(fits, buf.cast(), size) }
    }

    fn weft_truncate(weft: *const Weft, path: *const c_char, length: off_t) -> c_int | -1; {
        let size = ByteLen(args::unsigned(length, "the length")?);
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, true, &|files, place| block_on(files.truncate(place, size))) }
    }

    fn weft_access(weft: *const Weft, path: *const c_char, mode: c_int) -> c_int | -1; {
        let mask = u32::try_from(mode).ok().filter(|mask| *mask <= 7);
        let mask = mask.ok_or_else(|| Fail::argument(format!("{mode} is not made of R_OK, W_OK and X_OK")))?;
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, true, &|files, place| block_on(files.weft.access(place, mask))) }
    }

    fn weft_chmod(weft: *const Weft, path: *const c_char, mode: mode_t) -> c_int | -1; {
        let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, true, &|files, place| block_on(files.set_attr(place, set))) }
    }

    fn weft_chown(weft: *const Weft, path: *const c_char, uid: uid_t, gid: gid_t) -> c_int | -1; {
        let set = owner(uid, gid);
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, true, &|files, place| block_on(files.set_attr(place, set))) }
    }

    fn weft_lchown(weft: *const Weft, path: *const c_char, uid: uid_t, gid: gid_t) -> c_int | -1; {
        let set = owner(uid, gid);
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, false, &|files, place| block_on(files.set_attr(place, set))) }
    }

    fn weft_utimens(weft: *const Weft, path: *const c_char, times: *const libc::timespec, follow: c_int) -> c_int | -1; {
        let (atime, mtime) = match times.is_null() {
            true => (Some(SetTime::Now), Some(SetTime::Now)),
            // SAFETY: two of them, of the caller's.
            false => unsafe { (time(&*times)?, time(&*times.add(1))?) },
        };
        let set = SetAttr { atime, mtime, ..SetAttr::default() };
        // SAFETY: pointers of the caller.
        unsafe { at(weft, path, follow != 0, &|files, place| block_on(files.set_attr(place, set))) }
    }
}

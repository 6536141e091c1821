//! Attributes and space.

use crate::args;
use crate::connection::{Connection, Weft, connection};
use crate::fail::{Fail, Res, exported};
use std::ffi::{c_char, c_int};
use weft_client::{Attr, FileSystem};
use weft_core::Timestamp;
use weft_env::real::block_on;

/// Preferred size of a request in bytes: large enough to reach several servers, small enough for a program's buffers.
const BLOCK: i64 = 256 * 1024;
/// Block size of `struct statvfs`, in bytes.
const UNIT: u64 = 4096;

/// Fills a `struct stat`.
///
/// # Safety
/// `place` is null or valid for writes.
pub unsafe fn fill(place: *mut libc::stat, attr: &Attr, connection: &Connection) -> Res<()> {
    let too_large = |_| Fail::new(libc::EOVERFLOW, "the file is longer than off_t can say");
    // SAFETY: a struct of numbers, for which zeros are values.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = connection.device;
    stat.st_ino = attr.file.0;
    stat.st_mode = attr.kind.mode_bits() | attr.mode & 0o7777;
    stat.st_nlink = attr.nlink.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size.0.try_into().map_err(too_large)?;
    stat.st_blksize = BLOCK as _;
    stat.st_blocks = attr.blocks_512.try_into().unwrap_or(i64::MAX);
    let parts = |time: Timestamp| {
        let (seconds, nanos) = time.parts();
        (seconds, i64::from(nanos))
    };
    (stat.st_atime, stat.st_atime_nsec) = parts(attr.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = parts(attr.mtime);
    (stat.st_ctime, stat.st_ctime_nsec) = parts(attr.ctime);
    // SAFETY: the caller's promise.
    unsafe { args::put(place, stat, "the struct stat") }
}

unsafe fn stat(weft: *const Weft, path: *const c_char, place: *mut libc::stat, follow: bool) -> Res<c_int> {
    // SAFETY: pointers of the caller.
    let (weft, path) = unsafe { (connection(weft)?, args::string(path, "the path")?) };
    let attr = weft.at(path, follow, |files, place| block_on(files.stat(place)))?.attr;
    // SAFETY: as above.
    unsafe { fill(place, &attr, weft)? };
    Ok(0)
}

exported! {
    fn weft_stat(weft: *const Weft, path: *const c_char, place: *mut libc::stat) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        unsafe { stat(weft, path, place, true) }
    }

    fn weft_lstat(weft: *const Weft, path: *const c_char, place: *mut libc::stat) -> c_int | -1; {
        // SAFETY: pointers of the caller.
        unsafe { stat(weft, path, place, false) }
    }

    fn weft_statvfs(weft: *const Weft, place: *mut libc::statvfs) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let weft = unsafe { connection(weft)? };
        let found = block_on(weft.client()?.statfs(None))?;
        // SAFETY: a struct of numbers, for which zeros are values.
        let mut out: libc::statvfs = unsafe { std::mem::zeroed() };
        out.f_bsize = BLOCK as _;
        out.f_frsize = UNIT;
        out.f_blocks = found.total.0 / UNIT;
        out.f_bfree = found.free.0 / UNIT;
        out.f_bavail = out.f_bfree;
        out.f_files = found.inodes.saturating_add(found.inodes_free);
        out.f_ffree = found.inodes_free;
        out.f_favail = out.f_ffree;
        out.f_fsid = weft.device;
        out.f_namemax = weft_wire::meta::NAME_LEN_MAX as _;
        // SAFETY: a pointer of the caller.
        unsafe { args::put(place, out, "the struct statvfs")? };
        Ok(0)
    }
}

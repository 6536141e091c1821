//! Files of the host that this library serves, under their own paths: those in directories that delegates serve
//! (`WEFT_OVER`), and those with replicas (`WEFT_REPLICAS`).
//!
//! The kernel opens such a file and keeps its names, attributes and locks. Its descriptor is registered in the table of
//! descriptors, so that the hooks that move bytes find it; the file position is that of the kernel. Hooks of names,
//! attributes and locks leave it to the kernel.
//!
//! | module | hooks |
//! | --- | --- |
//! | `opening` | those that open files, and descriptors inherited from another program image |
//! | `queries` | those that return or change the size of a file by its path |
//! | `replicas` | which files have replicas |
//!
//! A file with a replica is known by its device and inode number. A file belongs to a directory if it is a regular file
//! on the same device, and the kernel's path of its descriptor lies below. Links and relative paths therefore need no
//! treatment. The check of a foreign file costs one or two system calls and allocates nothing.

mod opening;
mod queries;
pub mod replicas;

pub use opening::{adopt, fopen, open, openat2, register_inherited, reopens};
pub use queries::{lies_below, number_at, stat, statx, truncate};
pub use replicas::{Replicated, open as open_replicated, replicated};

use crate::{config, pathname, sys};
use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_config::job::{Job, over_from_env};
use weft_core::delegates::ownership::FileNumber;

/// Whether there are such directories: the check with which hooks start.
pub static ON: AtomicBool = AtomicBool::new(false);

/// Smallest preferred request size of a file system that is used as its page length, in bytes. Network file systems
/// report their stripe or transfer size; a local one reports its block size, which is too small.
const BLOCK_MIN: libc::blksize_t = 64 * 1024;
/// Page length of files on other file systems, in bytes.
const PAGE_LEN: u64 = 512 * 1024;

/// Position of files with replicas, in place of that of a directory.
const REPLICATED: u32 = u32::MAX - 1;

/// Whether files of the host are served, through delegates or with replicas.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed) && !crate::guard::inside()
}

/// Directory of the host.
pub struct Directory {
    /// Path as the kernel names it.
    path: Vec<u8>,
    /// Device of its file system.
    device: u64,
    /// Lowest position in the job's list among directories on the same device.
    index: u32,
}

/// Returns the directories of the environment, or of the job. For the constructor.
pub fn directories() -> Vec<Directory> {
    let listed = over_from_env().and_then(|listed| match listed.is_empty() {
        true => Ok(Job::from_env()?.map(|job| job.over).unwrap_or_default()),
        false => Ok(listed),
    });
    let listed = listed.unwrap_or_else(|error| {
        sys::complain(&error.to_string());
        Vec::new()
    });
    let mut found: Vec<Directory> = Vec::new();
    for (index, path) in (0..).zip(listed) {
        let text = sys::c(path.as_os_str().as_bytes());
        let (Some(path), Ok(stat)) = (sys::real_directory(&text), sys::fstatat(libc::AT_FDCWD, &text, 0))
        else {
            continue;
        };
        // A prefix, so that the root of the host is the empty one.
        let path = if path == b"/" { Vec::new() } else { path };
        let same = found.iter().find(|directory| directory.device == stat.st_dev);
        let index = same.map_or(index, |directory| directory.index);
        found.push(Directory { path, device: stat.st_dev, index });
    }
    found
}

/// File below one of the directories.
#[derive(Clone, Debug)]
pub struct HostFileId {
    /// Path as the kernel names it.
    pub path: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Number in the job.
    pub number: FileNumber,
    /// Length of its pages, unless the job or a hint sets another.
    pub page_len: u64,
    /// Replica of the file.
    pub replica: Option<&'static Replicated>,
}

/// Returns the file of `fd` if it lies below one of the directories. Allocates nothing otherwise.
fn find(fd: c_int) -> Option<HostFileId> {
    find_known(fd, &sys::fstatat(fd, c"", libc::AT_EMPTY_PATH).ok()?)
}

/// Returns the file of `fd`, whose attributes are known.
fn find_known(fd: c_int, stat: &libc::stat) -> Option<HostFileId> {
    let config::Config { over, replicas, .. } = config::ready()?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let replica = replicas.iter().find(|one| one.is(stat));
    if replica.is_none() && !may_be_below(over, stat) {
        return None;
    }
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let path = sys::descriptor_path(fd, &mut buffer)?;
    // A file without a name keeps the path that it had.
    let path = match path.strip_suffix(b" (deleted)") {
        Some(before) if stat.st_nlink == 0 => before,
        _ => path,
    };
    let is_above = |directory: &&Directory| {
        directory.device == stat.st_dev && pathname::below(&directory.path, path).is_some()
    };
    let index = match replica {
        Some(_) => REPLICATED,
        None => over.iter().find(is_above)?.index,
    };
    Some(HostFileId {
        path: path.to_vec(),
        inode: stat.st_ino,
        replica,
        number: FileNumber::of_host(index, stat.st_ino),
        page_len: if stat.st_blksize >= BLOCK_MIN { stat.st_blksize as u64 } else { PAGE_LEN },
    })
}

/// Whether the attributes allow a file below one of the directories.
fn may_be_below(over: &[Directory], stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
        && over.iter().any(|directory| directory.device == stat.st_dev)
}

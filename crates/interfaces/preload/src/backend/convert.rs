//! Conversion of places, types, attributes and errors to those of the C library.

use crate::errno::{Fail, Res};
use crate::open::parts;
use crate::pathname;
use crate::route::{self, Base, WeftPath};
use weft_client::{Attr, Error, FileType, InodePath, ROOT};
use weft_core::FileId;
use weft_wire::hello::SessionId;

/// Artificial device number, so that programs see a separate file system.
const DEVICE: u64 = 0x7765_6674;

/// Preferred size of a request that `stat` reports, in bytes: large enough to reach several servers, small enough for a
/// program's buffers.
const BLOCK: libc::blksize_t = 256 * 1024;

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        match error {
            Error::ExternalLink { from, target, rest } => Self::Moved(elsewhere(&from, &target, &rest)),
            other => Self::Errno(other.errno()),
        }
    }
}

/// Returns the path that a link out of the namespace leads to, as the program would write it.
fn elsewhere(from: &[u8], target: &[u8], rest: &[u8]) -> Vec<u8> {
    let to = if target.starts_with(b"/") {
        target.to_vec()
    } else {
        let from = pathname::join(b"/", from);
        let joined = pathname::join(&route::full(&from), target);
        let mut to = pathname::fold(&joined);
        if pathname::wants_directory(&joined) && !to.ends_with(b"/") {
            to.push(b'/');
        }
        to
    };
    if rest.is_empty() { to } else { pathname::join(&to, rest) }
}

/// Returns the file at a path. A path that must be a directory ends in `/.`, so that the walk finds a directory or
/// fails.
pub fn place(at: &WeftPath, follow: bool) -> InodePath {
    let (base, proof, path) = match at.base {
        Some((base, start)) => (FileId(base.inode), Some(base.proof), &at.text[start..]),
        None => (ROOT, None, &at.text[..]),
    };
    let mut path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    if at.must_dir && !path.is_empty() {
        path.extend_from_slice(b"/.");
    }
    InodePath { base, proof, path, follow: follow || at.must_dir }
}

/// Returns the inode as the start of a walk in `session`.
pub fn base_of(attr: &Attr, session: SessionId) -> Base {
    Base { inode: attr.file.0, proof: attr.proof, session }
}

pub fn kind_of(mode: u32) -> Res<FileType> {
    Ok(match mode & libc::S_IFMT {
        libc::S_IFREG => FileType::Regular,
        libc::S_IFIFO => FileType::Fifo,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => return Err(libc::EINVAL.into()),
    })
}

pub fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: all zeros is a valid `stat`.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    st.st_dev = DEVICE;
    st.st_ino = attr.file.0;
    st.st_mode = attr.kind.mode_bits() | attr.mode;
    st.st_nlink = attr.nlink.into();
    st.st_uid = attr.uid;
    st.st_gid = attr.gid;
    st.st_rdev = attr.rdev;
    st.st_size = attr.size.0 as i64;
    st.st_blksize = BLOCK;
    st.st_blocks = attr.blocks_512 as i64;
    (st.st_atime, st.st_atime_nsec) = parts(attr.atime);
    (st.st_mtime, st.st_mtime_nsec) = parts(attr.mtime);
    (st.st_ctime, st.st_ctime_nsec) = parts(attr.ctime);
    st
}

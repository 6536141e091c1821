//! Places, types, attributes and failures in the terms of the C library.

use crate::errno::{Fail, Res};
use crate::open::parts;
use crate::pathname;
use crate::route::{self, Base, Spot};
use weft_client::{Attr, Error, FileType, Place, ROOT};
use weft_core::FileId;

/// Made-up device number, so that programs see another file system.
const DEVICE: u64 = 0x7765_6674;

/// What `stat` tells as the best size of a request, in bytes: large enough to touch several servers, small enough
/// for the buffers that programs make of it.
const BLOCK: i64 = 256 * 1024;

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        match error {
            Error::Elsewhere { from, target, rest } => Self::Moved(elsewhere(&from, &target, &rest)),
            other => Self::Errno(other.errno()),
        }
    }
}

/// The path that a link out of the namespace leads to, as the program would write it.
fn elsewhere(from: &[u8], target: &[u8], rest: &[u8]) -> Vec<u8> {
    let to = if target.starts_with(b"/") {
        target.to_vec()
    } else {
        let from = pathname::join(b"/", from);
        pathname::fold(&pathname::join(&route::full(&from), target))
    };
    if rest.is_empty() { to } else { pathname::join(&to, rest) }
}

pub fn place(at: &Spot, follow: bool) -> Place {
    let (base, proof, path) = match at.base {
        Some((base, start)) => (FileId(base.inode), Some(base.proof), &at.text[start..]),
        None => (ROOT, None, &at.text[..]),
    };
    let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    Place { base, proof, path, follow: follow || at.must_dir }
}

/// An inode from which names are walked.
pub fn base_of(attr: &Attr) -> Base {
    Base { inode: attr.file.0, proof: attr.proof }
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

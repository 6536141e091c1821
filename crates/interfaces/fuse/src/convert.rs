//! Conversions between the kernel's types and Weft's.

use fuser::{Errno, FileAttr, INodeNo, TimeOrNow};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use weft_core::{FileId, Timestamp};
use weft_wire::meta::{Attr, FileType, OpenFlags, SetTime};

/// Flag of an open by execve (`__FMODE_EXEC`). The kernel accepts it from no program.
const EXECUTE: i32 = 0x20;
/// Preferred transfer size that `stat` reports, in bytes.
const BLOCK_SIZE: u32 = 1 << 20;

pub fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// Returns the file type in the mode of `mknod`; `None` for types that it cannot create.
pub fn kind_of_mode(mode: u32) -> Option<FileType> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Some(FileType::Regular),
        libc::S_IFIFO => Some(FileType::Fifo),
        libc::S_IFSOCK => Some(FileType::Socket),
        libc::S_IFCHR => Some(FileType::CharDevice),
        libc::S_IFBLK => Some(FileType::BlockDevice),
        _ => None,
    }
}

pub fn system_time(time: Timestamp) -> SystemTime {
    let (seconds, nanos) = time.parts();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    base + Duration::from_nanos(u64::from(nanos))
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(match at.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Timestamp(after.as_nanos() as i128),
            // The kernel counts nanoseconds forward from the second, but the FUSE library subtracts them from it.
            Err(before) => {
                let from_fuse = before.duration();
                Timestamp::from_parts(-(from_fuse.as_secs() as i64), from_fuse.subsec_nanos())
            }
        }),
    }
}

/// Owner and group that every file appears to have; those of the file if this is not set.
pub static SHOWN_OWNER: OnceLock<(u32, u32)> = OnceLock::new();

pub fn attr(attr: &Attr) -> FileAttr {
    let owner = SHOWN_OWNER.get();
    FileAttr {
        ino: INodeNo(attr.file.0),
        size: attr.size.0,
        blocks: attr.blocks_512,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: owner.map_or(attr.uid, |owner| owner.0),
        gid: owner.map_or(attr.gid, |owner| owner.1),
        rdev: attr.rdev as u32,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Returns the inode number for an entry of `file` whose attributes are unknown. It is of no file, so that the kernel
/// keeps the attributes that it has of this one.
pub fn stand_in(file: FileId) -> INodeNo {
    INodeNo(1 << 63 | file.0)
}

/// Returns attributes of which only inode number and type are known.
pub fn type_only(ino: INodeNo, kind: fuser::FileType) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

pub fn errno(error: &weft_client::Error) -> Errno {
    Errno::from_i32(error.errno())
}

/// Returns the flags of `open` that the metadata service evaluates.
pub fn open_flags(flags: i32) -> OpenFlags {
    let access = flags & libc::O_ACCMODE;
    OpenFlags {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        create: flags & libc::O_CREAT != 0,
        exclusive: flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        directory: flags & libc::O_DIRECTORY != 0,
        execute: flags & EXECUTE != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kernel's time of `seconds` and `nanos` as the FUSE library (0.18) converts it.
    fn from_fuse(seconds: i64, nanos: u32) -> SystemTime {
        let from_fuse = Duration::new(seconds.unsigned_abs(), nanos);
        if seconds < 0 { SystemTime::UNIX_EPOCH - from_fuse } else { SystemTime::UNIX_EPOCH + from_fuse }
    }

    #[test]
    fn times_before_1970_keep_their_fractions() {
        for nanos in [-1_500_000_000i128, -1_000_000_000, -999_999_999, -1, 0, 1, 1_700_000_000_123_456_789] {
            let time = Timestamp(nanos);
            let (seconds, fraction) = time.parts();
            let SetTime::At(set) = set_time(TimeOrNow::SpecificTime(from_fuse(seconds, fraction))) else {
                panic!("a time")
            };
            assert_eq!(set, time);
            let shown = system_time(time);
            let exact = match shown.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(after) => after.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            assert_eq!(exact, nanos);
        }
    }
}

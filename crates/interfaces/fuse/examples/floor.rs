//! Measures the lower bound that the kernel sets: a mount of one file of zeros, whose reads are answered at once.
//!
//! There is no server, no datafile and no lock, only one buffer, which stays in the processor's cache. The additional
//! time of a read on a Weft mount is due to Weft; the additional time of this mount over a local file is due to the
//! kernel.
//!
//! `floor DIR MIB [THREADS]` shows `zeros` of MIB mebibytes in DIR until `fusermount3 -u DIR`.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request, Session,
};
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

const FILE: INodeNo = INodeNo(2);
/// Maximum length of a read that the kernel requests from a Weft mount, in bytes.
const LEN_MAX: u32 = 1 << 20;

struct Floor {
    size: u64,
    zeros: Vec<u8>,
}

impl Floor {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = ino == FILE;
        FileAttr {
            ino,
            size: if file { self.size } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: LEN_MAX,
            flags: 0,
        }
    }
}

impl Filesystem for Floor {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(LEN_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "zeros" {
            reply.entry(&Duration::from_secs(60), &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(60), &self.attr(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.size.saturating_sub(offset).min(u64::from(size)) as usize;
        reply.data(&self.zeros[..len]);
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(dir), Some(mib)) = (arguments.first(), number(1)) else {
        return Err(io::Error::other("floor DIR MIB [THREADS]"));
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("floor".to_owned()), MountOption::RO];
    config.n_threads = Some(number(2).unwrap_or(4) as usize);
    let floor = Floor { size: mib << 20, zeros: vec![0; LEN_MAX as usize] };
    Session::new(floor, dir, &config)?.run()
}

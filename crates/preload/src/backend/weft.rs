//! The client of Weft behind the hooks.

use super::{Backend, DEVICE, File, How, Interrupted, Name};
use crate::errno::{Fail, Res};
use crate::open::parts;
use crate::route::{self, Spot};
use crate::{pathname, placeholder, sys};
use std::io::{IoSlice, IoSliceMut};
use weft_client::{
    Attr, Client, ClientOptions, Credentials, Error, FileType, HandleToken, HeldLock, Key, LockKind,
    LockOwner, LockRange, LockSpace, OpenFile, OpenFlags, Place, ROOT, SetAttr, Transport, Wait,
};
use weft_config::{Checksums, Cluster, TransportChoice};
use weft_core::{ByteLen, FileId, FileOffset, Layout};
use weft_env::real::{RealEnv, block_on};

/// What `stat` tells as the best size of a request, in bytes: large enough to touch several servers, small enough
/// for the buffers that programs make of it.
const BLOCK: i64 = 256 * 1024;
/// Unit of `statfs`, in bytes.
const UNIT: u64 = 4096;
/// The file system's number in `statfs`: "weft".
const MAGIC: i64 = 0x7765_6674;

pub struct Weft {
    client: Client<RealEnv>,
    cluster: Cluster,
}

impl Weft {
    /// By the cluster file that the environment means. Connects when first needed.
    pub fn new() -> Res<Self> {
        weft_client::set_log(sys::complain);
        let cluster = Cluster::from_env().map_err(|error| {
            sys::complain(&error.to_string());
            Fail::Errno(libc::ENOENT)
        })?;
        Ok(Self { client: client(&cluster)?, cluster })
    }
}

fn client(cluster: &Cluster) -> Res<Client<RealEnv>> {
    let key = cluster.client_key().map_err(|error| {
        sys::complain(&error.to_string());
        Fail::Errno(libc::EACCES)
    })?;
    let key = match key {
        None => Key::None,
        Some(weft_config::Key::User(_, key)) => Key::Identity(key),
        Some(weft_config::Key::Cluster(key)) => Key::Cluster(Box::new(weft_wire::ClusterSecret::new(&key))),
    };
    // SAFETY: plain questions; the list of groups is as long as the kernel says.
    let credentials = unsafe {
        let count = libc::getgroups(0, std::ptr::null_mut()).max(0);
        let mut groups = vec![0; count as usize];
        let count = libc::getgroups(count, groups.as_mut_ptr()).max(0);
        groups.truncate(count as usize);
        Credentials::user(libc::geteuid(), libc::getegid(), groups)
    };
    let env = RealEnv::with_fd_floor(placeholder::floor());
    Ok(Client::new(env, cluster.map(), options(cluster), credentials.with_key(key)))
}

fn options(cluster: &Cluster) -> ClientOptions {
    let from = &cluster.client;
    ClientOptions {
        transport: match (crate::config::variable("WEFT_TRANSPORT"), from.transport) {
            (Some(b"socket"), _) => Transport::Socket,
            (Some(b"descriptor"), _) => Transport::Descriptor,
            (Some(b"auto"), _) | (_, TransportChoice::Auto) => Transport::Auto,
            (_, TransportChoice::Socket) => Transport::Socket,
            (_, TransportChoice::Descriptor) => Transport::Descriptor,
        },
        connect_timeout: from.connect_timeout,
        request_timeout: from.request_timeout,
        checksums: match from.checksums {
            Checksums::Auto => weft_client::Checksums::Auto,
            Checksums::On => weft_client::Checksums::On,
            Checksums::Off => weft_client::Checksums::Off,
        },
        connections_max: from.connections_max,
        // SAFETY: a plain question.
        pid: unsafe { libc::getpid() } as u32,
        ..ClientOptions::default()
    }
}

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

fn place(at: &Spot, follow: bool) -> Place {
    let (base, path) = match at.base {
        Some((inode, start)) => (FileId(inode), &at.text[start..]),
        None => (ROOT, &at.text[..]),
    };
    let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    Place { base, path, follow: follow || at.must_dir }
}

fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Regular => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
    }
}

fn kind_of(mode: u32) -> Res<FileType> {
    Ok(match mode & libc::S_IFMT {
        libc::S_IFREG => FileType::Regular,
        libc::S_IFIFO => FileType::Fifo,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => return Err(libc::EINVAL.into()),
    })
}

fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: all zeros is a valid `stat`.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    st.st_dev = DEVICE;
    st.st_ino = attr.file.0;
    st.st_mode = type_bits(attr.kind) | attr.mode;
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

impl Backend for Weft {
    fn stat(&self, at: &Spot, follow: bool) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.client.stat(&place(at, follow)))?))
    }

    fn open(&self, at: &Spot, how: &How) -> Res<Box<dyn File>> {
        let follow = !(how.nofollow || how.create && how.exclusive);
        let flags = OpenFlags {
            read: how.read,
            write: how.write,
            create: how.create,
            exclusive: how.exclusive,
            truncate: how.truncate,
            directory: how.directory,
        };
        let file = block_on(self.client.open(&place(at, follow), flags, how.mode, &how.spec))?;
        match file.attr_at_open().kind {
            FileType::Symlink => Err(libc::ELOOP.into()),
            FileType::Directory if how.write => Err(libc::EISDIR.into()),
            FileType::Regular | FileType::Directory => Ok(Box::new(WeftFile(file))),
            // Only the kernel can do what they are for.
            _ if how.read || how.write => Err(libc::ENXIO.into()),
            _ => Ok(Box::new(WeftFile(file))),
        }
    }

    fn mknod(&self, at: &Spot, mode: u32, device: u64) -> Res<()> {
        let kind = kind_of(mode)?;
        Ok(block_on(self.client.mknod(&place(at, false), kind, mode & 0o7777, device)).map(drop)?)
    }

    fn mkdir(&self, at: &Spot, mode: u32) -> Res<()> {
        let at = Place { follow: false, ..place(at, false) };
        Ok(block_on(self.client.mkdir(&at, mode)).map(drop)?)
    }

    fn symlink(&self, at: &Spot, target: &[u8]) -> Res<()> {
        Ok(block_on(self.client.symlink(&place(at, false), target)).map(drop)?)
    }

    fn link(&self, from: &Spot, to: &Spot, follow: bool) -> Res<()> {
        Ok(block_on(self.client.link(&place(from, follow), &place(to, false))).map(drop)?)
    }

    fn unlink(&self, at: &Spot) -> Res<()> {
        Ok(block_on(self.client.unlink(&place(at, false)))?)
    }

    fn rmdir(&self, at: &Spot) -> Res<()> {
        let at = Place { follow: false, ..place(at, false) };
        Ok(block_on(self.client.rmdir(&at))?)
    }

    fn rename(&self, from: &Spot, to: &Spot, no_replace: bool, exchange: bool) -> Res<()> {
        let (from, to) = (place(from, false), place(to, false));
        Ok(block_on(self.client.rename(&from, &to, no_replace, exchange))?)
    }

    fn readlink(&self, at: &Spot) -> Res<Vec<u8>> {
        Ok(block_on(self.client.readlink(&place(at, false)))?)
    }

    fn set_attr(&self, at: &Spot, follow: bool, set: &SetAttr) -> Res<()> {
        Ok(block_on(self.client.set_attr(&place(at, follow), *set)).map(drop)?)
    }

    fn truncate(&self, at: &Spot, size: u64) -> Res<()> {
        Ok(block_on(self.client.truncate(&place(at, true), ByteLen(size)))?)
    }

    fn list(&self, at: &Spot, after: &[u8]) -> Res<(Vec<Name>, bool)> {
        let (entries, more) = block_on(self.client.list(&place(at, true), after, 4096, false))?;
        let name = |entry: weft_client::Entry| Name {
            inode: entry.file.0,
            // Type numbers of directory entries are those of modes, shifted.
            kind: (type_bits(entry.kind) >> 12) as u8,
            name: entry.name,
        };
        Ok((entries.into_iter().map(name).collect(), more))
    }

    fn access(&self, at: &Spot, mask: u32, follow: bool) -> Res<()> {
        Ok(block_on(self.client.access(&place(at, follow), mask))?)
    }

    fn get_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<Vec<u8>> {
        Ok(block_on(self.client.get_xattr(&place(at, follow), name))?)
    }

    fn set_xattr(&self, at: &Spot, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()> {
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        Ok(block_on(self.client.set_xattr(&place(at, follow), name, value, create, replace))?)
    }

    fn list_xattr(&self, at: &Spot, follow: bool) -> Res<Vec<String>> {
        Ok(block_on(self.client.list_xattr(&place(at, follow)))?)
    }

    fn remove_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<()> {
        Ok(block_on(self.client.remove_xattr(&place(at, follow), name))?)
    }

    fn statfs(&self) -> Res<libc::statfs> {
        let room = block_on(self.client.statfs())?;
        // SAFETY: all zeros is a valid `statfs`.
        let mut out: libc::statfs = unsafe { std::mem::zeroed() };
        out.f_type = MAGIC;
        out.f_bsize = UNIT as i64;
        out.f_frsize = UNIT as i64;
        out.f_blocks = room.total.0 / UNIT;
        out.f_bfree = room.free.0 / UNIT;
        out.f_bavail = room.free.0 / UNIT;
        out.f_files = room.inodes + room.inodes_free;
        out.f_ffree = room.inodes_free;
        out.f_namelen = 255;
        Ok(out)
    }

    fn layout(&self, at: &Spot) -> Res<Option<Layout>> {
        Ok(block_on(self.client.get_layout(&place(at, true)))?.0)
    }

    fn adopt(&self, token: &[u8]) -> Res<Box<dyn File>> {
        let token = HandleToken::decode(token).ok_or(libc::ESTALE)?;
        Ok(Box::new(WeftFile(block_on(self.client.adopt(&token))?)))
    }

    fn after_fork_in_child(&self) -> Box<dyn Backend> {
        // Leaves the parent's session alone; the child's own says its own process id.
        let same = self.client.after_fork_in_child();
        let fresh = client(&self.cluster).unwrap_or(same);
        Box::new(Self { client: fresh, cluster: self.cluster.clone() })
    }
}

struct WeftFile(OpenFile<RealEnv>);

impl WeftFile {
    fn owner(&self, by_handle: bool) -> LockOwner {
        if by_handle { LockOwner::Handle(self.0.handle()) } else { LockOwner::Process(0) }
    }
}

impl File for WeftFile {
    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        Ok(block_on(self.0.read_at(bufs, FileOffset(offset)))?)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        Ok(block_on(self.0.write_at(bufs, FileOffset(offset)))?)
    }

    fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        let (at, done) = block_on(self.0.append(bufs))?;
        Ok((at.0, done))
    }

    fn size(&self) -> Res<u64> {
        Ok(block_on(self.0.size())?.0)
    }

    fn stat(&self) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.0.attr())?))
    }

    fn truncate(&self, size: u64) -> Res<()> {
        Ok(block_on(self.0.truncate(ByteLen(size)))?)
    }

    fn sync(&self) -> Res<()> {
        Ok(block_on(self.0.sync())?)
    }

    fn lock(
        &self,
        space: LockSpace,
        by_handle: bool,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<Interrupted<'_>>,
    ) -> Res<()> {
        let owner = self.owner(by_handle);
        let Some(kind) = kind else { return Ok(block_on(self.0.unlock(space, owner, range))?) };
        let wait = wait.map_or(Wait::No, Wait::Until);
        Ok(block_on(self.0.lock(space, owner, kind, range, wait))?)
    }

    fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>> {
        Ok(block_on(self.0.test_lock(LockSpace::Record, self.owner(by_handle), kind, range))?)
    }

    fn spot(&self) -> Spot {
        // The inode alone; the text serves messages only.
        let text = pathname::join(b"/", self.0.path());
        let start = text.len();
        Spot { text, base: Some((self.0.file().0, start)), must_dir: false }
    }

    fn inode(&self) -> u64 {
        self.0.file().0
    }

    fn is_directory(&self) -> bool {
        self.0.attr_at_open().kind == FileType::Directory
    }

    fn token(&self) -> Vec<u8> {
        self.0.token().encode()
    }
}

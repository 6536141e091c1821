//! The kernel's requests, each as one call of the client library.

use crate::MountOptions;
use crate::caller::identity;
use crate::convert::{attr, child, errno, inode, kind, kind_of_mode, open_flags, set_time};
use crate::directories::Listing;
use crate::handles::Handles;
use crate::locks::{self, HandleLocks, LockCall};
use crate::pages::Pages;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use weft_client::{Client, Error, OpenFile};
use weft_core::{ByteLen, FileOffset};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Attr, LayoutSpec, SetAttr};

/// The longest write that the kernel may send, in bytes.
const WRITE_LEN_MAX: u32 = 1 << 20;
/// Waits for locks that may go on at the same time; each takes a thread.
const LOCK_WAITS_MAX: u32 = 256;
/// Files of at least this length are read past the kernel's pages where the servers are on this host: their bytes are in
/// its memory already, and a second copy takes longer to make than it saves.
const PAGES_LEN_MAX: ByteLen = ByteLen(32 << 20);
/// The bits that make a program run as its owner or group.
const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;
/// Block size in which `statfs` counts.
const STATFS_BLOCK: u32 = 4096;

/// An open file of the kernel.
struct OpenHandle {
    file: OpenFile<RealEnv>,
    append: bool,
    /// The kernel keeps pages for this open.
    pages: bool,
    /// The file may have set-id bits, which go with a write by somebody without privilege.
    set_ids: AtomicBool,
    locks: HandleLocks,
}

/// The file system that the kernel sees.
pub struct WeftFilesystem {
    client: Client<RealEnv>,
    options: MountOptions,
    /// All servers are on this host.
    colocated: bool,
    files: Handles<OpenHandle>,
    directories: Handles<Mutex<Listing>>,
    pages: Arc<Pages>,
    lock_waits: Arc<AtomicU32>,
}

thread_local! {
    /// What `read` fills; one for each serving thread, so that no read allocates.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl WeftFilesystem {
    pub fn new(client: Client<RealEnv>, options: MountOptions) -> Self {
        let pages = Pages::new(client.clone());
        let here = |address: &Address| matches!(address, Address::Unix(path) if path.exists());
        let colocated = client.map().servers.iter().all(|server| server.addresses.iter().any(here));
        Self {
            colocated,
            client,
            options,
            files: Handles::new(),
            directories: Handles::new(),
            pages,
            lock_waits: Arc::default(),
        }
    }

    pub fn pages(&self) -> Arc<Pages> {
        self.pages.clone()
    }

    /// The client in the name of the caller.
    fn client(&self, request: &Request) -> Client<RealEnv> {
        self.client.on_behalf(identity(request))
    }

    fn ttl(&self) -> Duration {
        self.options.attribute_ttl
    }

    fn entry(&self, result: Result<Attr, Error>, reply: ReplyEntry) {
        match result {
            Ok(found) => reply.entry(&self.ttl(), &attr(&found), Generation(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn attr(&self, result: Result<Attr, Error>, reply: ReplyAttr) {
        match result {
            Ok(found) => reply.attr(&self.ttl(), &attr(&found)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn handle(&self, fh: FileHandle) -> Result<Arc<OpenHandle>, Errno> {
        self.files.get(fh.0).ok_or(Errno::EBADF)
    }

    /// Keeps an open file and says how the kernel may treat it.
    fn opened(&self, file: OpenFile<RealEnv>, flags: i32) -> (FileHandle, FopenFlags) {
        // The server alone knows where appended bytes go: the kernel would put them where it thinks that the end is.
        let past = flags & (libc::O_DIRECT | libc::O_APPEND) != 0
            || self.colocated && file.attr_at_open().size >= PAGES_LEN_MAX;
        let pages = !past && file.may_cache() && self.pages.may_keep();
        let kernel = if pages {
            if self.pages.opened_with(file.file(), file.epoch()) {
                FopenFlags::FOPEN_KEEP_CACHE
            } else {
                FopenFlags::empty()
            }
        } else {
            self.pages.forget(file.file());
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        };
        let append = flags & libc::O_APPEND != 0;
        let set_ids = AtomicBool::new(file.attr_at_open().mode & SET_IDS != 0);
        let handle = OpenHandle { file, append, pages, set_ids, locks: HandleLocks::default() };
        (FileHandle(self.files.insert(handle)), kernel)
    }

    /// Takes the set-id bits away before somebody without privilege writes. Should it fail, the close does it.
    fn take_set_ids(&self, handle: &OpenHandle) {
        let Ok(attr) = block_on(handle.file.attr()) else { return };
        let group = if attr.mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
        let mode = attr.mode & 0o7777 & !(libc::S_ISUID | group);
        if mode != attr.mode & 0o7777 {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let _ = block_on(self.client.set_attr(&handle.file.place(), set));
        }
    }

    fn open_file(
        &self,
        request: &Request,
        at: &weft_wire::meta::Place,
        flags: i32,
        mode: u32,
    ) -> Result<OpenFile<RealEnv>, Error> {
        block_on(self.client(request).open(at, open_flags(flags), mode, &LayoutSpec::default()))
    }
}

fn done(result: Result<(), Error>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers a question for an extended attribute: its size, or the bytes when they fit.
fn sized(bytes: &[u8], size: u32, reply: ReplyXattr) {
    if size == 0 {
        reply.size(bytes.len() as u32);
    } else if bytes.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(bytes);
    }
}

fn name_text(name: &OsStr) -> Result<&str, Errno> {
    name.to_str().ok_or(Errno::EINVAL)
}

impl Drop for WeftFilesystem {
    fn drop(&mut self) {
        self.pages.end();
    }
}

impl Filesystem for WeftFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(WRITE_LEN_MAX);
        let _ = config.set_max_readahead(WRITE_LEN_MAX);
        let _ = config.set_max_background(64);
        // Each is of use alone; an old kernel may lack some.
        for wanted in [
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // Pages are dropped when the metadata service says so, not when attributes differ: without this flag the
            // kernel asks for attributes before each read.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // A write says whether it takes away set-id bits, instead of the kernel's asking before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // The umask is applied by the kernel unless a default ACL exists, which Weft does not have.
        ] {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(block_on(self.client(request).stat(&child(parent, name))), reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let open = fh.and_then(|fh| self.files.get(fh.0));
        let result = match open {
            Some(handle) => block_on(handle.file.attr()),
            None => block_on(self.client(request).stat(&inode(ino))),
        };
        self.attr(result, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let client = self.client(request);
        let at = inode(ino);
        if let Some(size) = size {
            let open = fh.and_then(|fh| self.files.get(fh.0));
            let cut = match open {
                Some(handle) => block_on(handle.file.truncate(ByteLen(size))),
                None => block_on(client.truncate(&at, ByteLen(size))),
            };
            if let Err(error) = cut {
                return reply.error(errno(&error));
            }
        }
        if mode.is_some_and(|mode| mode & SET_IDS != 0) {
            let same = |handle: &OpenHandle| handle.file.file().0 == ino.0;
            self.files.each(|handle| {
                if same(handle) {
                    handle.set_ids.store(true, Ordering::Relaxed);
                }
            });
        }
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
        };
        let result = if set == SetAttr::default() {
            block_on(client.stat(&at))
        } else {
            block_on(client.set_attr(&at, set)).and_then(|_| block_on(client.stat(&at)))
        };
        self.attr(result, reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match block_on(self.client(request).readlink(&inode(ino))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let mode = mode & 0o7777 & !umask;
        let client = self.client(request);
        self.entry(block_on(client.mknod(&child(parent, name), kind, mode, u64::from(rdev))), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & 0o7777 & !umask;
        self.entry(block_on(self.client(request).mkdir(&child(parent, name), mode)), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(block_on(self.client(request).unlink(&child(parent, name))), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(block_on(self.client(request).rmdir(&child(parent, name))), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        self.entry(block_on(self.client(request).symlink(&child(parent, link_name), target)), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return reply.error(Errno::EINVAL);
        }
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let client = self.client(request);
        let (from, to) = (child(parent, name), child(newparent, newname));
        done(block_on(client.rename(&from, &to, no_replace, exchange)), reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.entry(block_on(self.client(request).link(&inode(ino), &child(newparent, newname))), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // The kernel has made and, with its own setattr, cut the file already.
        let flags = flags.0 & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
        match self.open_file(request, &inode(ino), flags, 0) {
            Ok(file) => {
                let (fh, kernel) = self.opened(file, flags);
                reply.opened(fh, kernel);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = mode & 0o7777 & !umask;
        let flags = flags | libc::O_CREAT;
        let opened = self.open_file(request, &child(parent, name), flags, mode);
        match opened {
            Ok(file) => {
                let found = file.attr_at_open().clone();
                let (fh, kernel) = self.opened(file, flags);
                reply.created(&self.ttl(), &attr(&found), Generation(0), fh, kernel);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(error) => return reply.error(error),
        };
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let mut bufs = [IoSliceMut::new(&mut buffer[..size])];
            match block_on(handle.file.read_at(&mut bufs, FileOffset(offset))) {
                Ok(got) => reply.data(&buffer[..got]),
                Err(error) => reply.error(errno(&error)),
            }
        });
        if handle.pages {
            self.pages.after_read(&handle.file);
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(error) => return reply.error(error),
        };
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
            && handle.set_ids.load(Ordering::Relaxed)
            && handle.set_ids.swap(false, Ordering::Relaxed)
        {
            self.take_set_ids(&handle);
        }
        let bufs = [IoSlice::new(data)];
        let result = if handle.append {
            block_on(handle.file.append(&bufs)).map(|(_, written)| written)
        } else {
            block_on(handle.file.write_at(&bufs, FileOffset(offset)))
        };
        let answer = move || match result {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(&error)),
        };
        if handle.pages {
            answer();
        } else {
            self.pages.after_write_past(handle.file.file(), answer);
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if let Some(handle) = self.files.get(fh.0) {
            locks::release(&handle.file, &handle.locks, lock_owner.0);
        }
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(handle) = self.files.remove(fh.0) {
            if let Some(owner) = lock_owner {
                locks::release(&handle.file, &handle.locks, owner.0);
            }
            if handle.pages {
                self.pages.closed(handle.file.file());
            }
        }
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.handle(fh) {
            Ok(handle) => done(block_on(handle.file.sync()), reply),
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let at = inode(ino);
        match block_on(self.client(request).access(&at, libc::R_OK as u32)) {
            Ok(()) => {
                let number = self.directories.insert(Mutex::new(Listing::new(at)));
                reply.opened(FileHandle(number), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listing) = self.directories.get(fh.0) else { return reply.error(Errno::EBADF) };
        let mut listing = listing.lock();
        if offset == 0 {
            listing.rewind();
        }
        let mut next = offset;
        loop {
            let full = match next {
                // The kernel only shows these two; it never looks them up by number.
                0 => reply.add(ino, 1, fuser::FileType::Directory, "."),
                1 => reply.add(ino, 2, fuser::FileType::Directory, ".."),
                // Permission was checked at opendir, as POSIX has it.
                _ => match listing.entry(&self.client, next - 2) {
                    Ok(Some(entry)) => {
                        let name = OsStr::from_bytes(&entry.name);
                        reply.add(INodeNo(entry.file.0), next + 1, kind(entry.kind), name)
                    }
                    Ok(None) => break,
                    Err(error) => return reply.error(errno(&error)),
                },
            };
            if full {
                break;
            }
            next += 1;
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.remove(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Every change of the namespace has reached the disk before it was acknowledged.
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match block_on(self.client.statfs()) {
            Ok(space) => {
                let blocks = |len: ByteLen| len.0 / u64::from(STATFS_BLOCK);
                let free = blocks(space.free);
                // Inodes are limited by the room of the metadata device only.
                let files_free = space.inodes_free;
                reply.statfs(
                    blocks(space.total),
                    free,
                    free,
                    space.inodes + files_free,
                    files_free,
                    STATFS_BLOCK,
                    255,
                    STATFS_BLOCK,
                );
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let name = match name_text(name) {
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        done(block_on(self.client(request).set_xattr(&inode(ino), name, value, create, replace)), reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = match name_text(name) {
            // The kernel asks for this one on its own, often, and a mount without set-id programs has no use for it.
            Ok("security.capability") => return reply.error(Errno::ENODATA),
            Ok(name) => name,
            Err(error) => return reply.error(error),
        };
        match block_on(self.client(request).get_xattr(&inode(ino), name)) {
            Ok(value) => sized(&value, size, reply),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match block_on(self.client(request).list_xattr(&inode(ino))) {
            Ok(names) => {
                let bytes: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
                sized(&bytes, size, reply);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match name_text(name) {
            Ok(name) => done(block_on(self.client(request).remove_xattr(&inode(ino), name)), reply),
            Err(error) => reply.error(error),
        }
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        done(block_on(self.client(request).access(&inode(ino), mask.bits() as u32)), reply);
    }

    fn getlk(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        let call =
            LockCall { owner: lock_owner.0, start, end, kind: typ, thread: request.pid(), wait: false };
        match self.handle(fh).and_then(|handle| locks::test(&handle.file, call)) {
            Ok(found) => {
                let (start, end, typ, pid) = locks::to_kernel(found);
                reply.locked(start, end, typ, pid);
            }
            Err(error) => reply.error(error),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(error) => return reply.error(error),
        };
        let call =
            LockCall { owner: lock_owner.0, start, end, kind: typ, thread: request.pid(), wait: sleep };
        let answer = move |reply: ReplyEmpty| match locks::set(&handle.file, &handle.locks, call) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        };
        if !sleep {
            return answer(reply);
        }
        // A wait may be long: it must not hold a thread that serves the kernel.
        if self.lock_waits.fetch_add(1, Ordering::AcqRel) >= LOCK_WAITS_MAX {
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
            return reply.error(Errno::ENOLCK);
        }
        let waits = self.lock_waits.clone();
        let spawned = std::thread::Builder::new().name("weft-lock".to_owned()).spawn(move || {
            answer(reply);
            waits.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            // The reply went with the closure, whose end answered EIO.
            self.lock_waits.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Room is not reserved on the targets: only a plain extension is done, the rest says that it is not supported,
        // and callers fall back to writing.
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let result = self.handle(fh).and_then(|handle| {
            let wanted =
                offset.checked_add(length).filter(|&end| end <= i64::MAX as u64).ok_or(Errno::EFBIG)?;
            let grow = async {
                if handle.file.size().await? < ByteLen(wanted) {
                    handle.file.truncate(ByteLen(wanted)).await
                } else {
                    Ok(())
                }
            };
            block_on(grow).map_err(|error| errno(&error))
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // Holes are not told: the whole file counts as data, which POSIX allows.
        let result = self.handle(fh).and_then(|handle| {
            let size = block_on(handle.file.size()).map_err(|error| errno(&error))?.0 as i64;
            match whence {
                libc::SEEK_DATA if (0..size).contains(&offset) => Ok(offset),
                libc::SEEK_HOLE if (0..size).contains(&offset) => Ok(size),
                libc::SEEK_DATA | libc::SEEK_HOLE => Err(Errno::ENXIO),
                _ => Err(Errno::EINVAL),
            }
        });
        match result {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error),
        }
    }
}

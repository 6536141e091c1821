//! Requests of the kernel, each as one call of the client library.
//!
//! This file dispatches requests. Longer implementations are in one file per kind of request: [`crate::open`],
//! [`crate::data`], [`crate::attributes`], [`crate::directories`], [`crate::locks`].

use crate::MountOptions;
use crate::answer::{self, Answer, Refusal, done};
use crate::attributes::{self, Changes};
use crate::caller::identity;
use crate::convert::{attr, kind_of_mode};
use crate::directories::Listing;
use crate::handles::Handles;
use crate::inode_proofs::InodeProofs;
use crate::leased_names::Used;
use crate::lock_call::{Family, LockCall};
use crate::lock_owners::LockOwners;
use crate::names::Names;
use crate::open::OpenHandle;
use crate::pages::Pages;
use crate::private::HandedFiles;
use crate::releases::Releases;
use crate::replaced_names::{Held, ReplacedNames};
use crate::splice::Splicer;
use crate::turns::Turns;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, SystemTime};
use weft_client::{Client, Error, LastKnown, OpenFile};
use weft_core::{Extent, FileOffset, Nanos};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{Attr, InodePath, LayoutSpec, OpenFlags as OpenFlagsOfWeft};

/// Maximum length of a write that the kernel may send and of a read that it may request, in bytes.
pub const TRANSFER_LEN_MAX: u32 = 1 << 20;

/// Maximum number of attempts to hold a name that is replaced again and again.
const HELD_TRIES: u32 = 100;
/// Number of background messages that the kernel sends without waiting for answers. WRITEs that wait for a drop of pages
/// must not keep it from sending the READs for which the drop waits.
const BACKGROUND_MAX: u16 = 16_384;

/// File system that the kernel sees.
pub struct WeftFilesystem {
    pub client: Client<RealEnv>,
    options: MountOptions,
    /// Whether all servers are on this host.
    pub colocated: bool,
    pub splicer: Arc<Splicer>,
    pub files: Arc<Handles<OpenHandle>>,
    pub directories: Handles<Mutex<Listing>>,
    /// Names for messages.
    pub names: Names,
    pub pages: Arc<Pages>,
    pub inode_proofs: InodeProofs,
    /// Number of waits for locks in progress.
    pub lock_waits: Arc<AtomicU32>,
    pub lock_owners: Arc<LockOwners>,
    pub releases: Releases,
    pub replaced: Arc<ReplacedNames>,
    /// Files that programs hand to a private mount; `None` on other mounts.
    pub handed: Option<HandedFiles>,
    turns: Arc<Turns>,
}

impl WeftFilesystem {
    pub fn new(
        client: Client<RealEnv>,
        options: MountOptions,
        colocated: bool,
        splicer: Arc<Splicer>,
        threads: usize,
    ) -> Self {
        Self {
            colocated,
            splicer,
            pages: Pages::new(client.clone()),
            client,
            options,
            files: Arc::new(Handles::new()),
            directories: Handles::new(),
            names: Names::default(),
            inode_proofs: InodeProofs::default(),
            lock_waits: Arc::default(),
            lock_owners: Arc::default(),
            releases: Releases::default(),
            replaced: Arc::default(),
            handed: None,
            turns: Turns::new(threads),
        }
    }

    /// Returns the client in the caller's name.
    pub fn client(&self, request: &Request) -> Client<RealEnv> {
        self.client.on_behalf(identity(request))
    }

    pub fn ttl(&self) -> Duration {
        self.options.attribute_ttl
    }

    /// Returns the last known attributes, and the end of the lease of the name if there is one.
    pub fn look_up(
        &self,
        client: &Client<RealEnv>,
        at: &InodePath,
    ) -> Result<(LastKnown, Option<Nanos>), Error> {
        match self.pages.names.are_used() {
            true => block_on(client.look_up(at)),
            false => block_on(client.stat_last_known(at)).map(|known| (known, None)),
        }
    }

    /// Replies with a name and its inode, which the kernel may use from then on.
    fn entry(&self, result: Result<Attr, Error>, reply: ReplyEntry) {
        self.entry_for(result, Used::default(), reply);
    }

    /// Replies as [`Self::entry`] does, with leases.
    fn entry_for(&self, result: Result<Attr, Error>, used: Used, reply: ReplyEntry) {
        if let Ok(found) = &result {
            self.inode_proofs.learn(found);
        }
        let ttl = |used: Duration| used.max(self.ttl());
        answer::entry(result.map_err(Refusal::from), (ttl(used.name), ttl(used.attributes)), reply);
    }

    /// Remembers for messages the name of an inode that the kernel reached without asking.
    fn learn_leased_name(&self, ino: INodeNo) {
        if let Some((parent, name)) = self.pages.names.place(ino.0) {
            self.names.learn(ino.0, parent, &name);
        }
    }

    /// Notes a failure that makes the kernel repeat the path walk of the caller.
    pub fn noted<T>(&self, request: &Request, result: Answer<T>) -> Answer<T> {
        if matches!(result, Err(Refusal(Errno::ESTALE))) {
            self.replaced.failed(request.pid());
        }
        result
    }

    /// Looks up a name and holds what it finds; see [`crate::replaced_names`].
    fn look_up_held(&self, client: &Client<RealEnv>, at: &InodePath) -> Result<Attr, Error> {
        for _ in 0..HELD_TRIES {
            let spec = LayoutSpec::default();
            let (file, target) = match block_on(client.open(at, OpenFlagsOfWeft::default(), 0, &spec)) {
                Ok(file) => (Some(file), None),
                // No other kind of file is refused without access.
                Err(error) if matches!(error.errno(), libc::ELOOP | libc::ENXIO) => {
                    (None, Some(error.errno()))
                }
                Err(error) => return Err(error),
            };
            let place = file.as_ref().map_or_else(|| at.clone(), OpenFile::place);
            let attr = block_on(client.stat_last_known(&place))?.attr;
            let target = match target {
                Some(libc::ELOOP) => {
                    let link = InodePath::at_inode(attr.file, attr.proof);
                    match block_on(client.readlink(&link)) {
                        Err(error) if error.errno() == libc::ESTALE => continue,
                        target => Some(target?),
                    }
                }
                _ => None,
            };
            self.replaced.hold(Held { attr: attr.clone(), file, target });
            return Ok(attr);
        }
        block_on(client.stat_last_known(at)).map(|known| known.attr)
    }

    fn attr(&self, result: Answer<Attr>, reply: ReplyAttr) {
        answer::attributes(result, self.ttl(), reply);
    }
}

fn finished(result: Result<(), Error>, reply: ReplyEmpty) {
    done(result.map_err(Refusal::from), reply);
}

impl Drop for WeftFilesystem {
    fn drop(&mut self) {
        self.pages.end();
    }
}

impl Filesystem for WeftFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(TRANSFER_LEN_MAX);
        let _ = config.set_max_readahead(TRANSFER_LEN_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        // Each flag is useful by itself; an old kernel may lack some.
        for wanted in [
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // The metadata service decides when pages are dropped, not a change of attributes: without this flag the
            // kernel queries attributes before each read.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // A write reports whether it clears set-id bits, so that the kernel need not query before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // The kernel applies the umask unless a default ACL exists, which Weft does not have.
        ] {
            let _ = config.add_capabilities(wanted);
        }
        // Listings bring attributes if the program seems to want them, and if the kernel can let names expire.
        let listing = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        if crate::kernel_lets_names_expire()
            && config.add_capabilities(listing | InitFlags::FUSE_HAS_EXPIRE_ONLY).is_ok()
        {
            self.pages.names.enable();
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turns.begin(request.pid());
        if let Some(token) = self.handed_name(parent, name) {
            return self.entry(self.take_over(request, &token), reply);
        }
        self.learn_leased_name(parent);
        let (client, at) = (self.client(request), self.inode_proofs.child(parent, name));
        if self.replaced.is_repeated(request.pid()) {
            let found = self.look_up_held(&client, &at);
            if let Ok(attr) = &found {
                self.names.learn(attr.file.0, parent.0, name.as_bytes());
            }
            return self.entry(found, reply);
        }
        let found = self.look_up(&client, &at);
        let mut used = Used::default();
        if let Ok((known, until)) = &found {
            self.names.learn(known.attr.file.0, parent.0, name.as_bytes());
            if let Some(until) = until {
                let now = self.client.env().now();
                used = self.pages.names.looked_up(&known.attr, *until, (parent, name.as_bytes()), now);
            }
        }
        self.entry_for(found.map(|(known, _)| known.attr), used, reply);
    }

    fn forget(&self, request: &Request, ino: INodeNo, nlookup: u64) {
        let _turn = self.turns.begin(request.pid());
        self.inode_proofs.forget(ino.0, nlookup);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turns.begin(request.pid());
        let result = self.noted(request, self.attributes_of(request, ino, fh));
        match (result, fh.and_then(|fh| self.files.get(fh.0))) {
            (Ok((found, ttl)), Some(handle)) => {
                self.pages.answer_size(&handle, found.size, move |stored| {
                    answer::attributes(stored.map(|()| found), ttl, reply);
                });
            }
            (Ok((found, ttl)), None) => answer::attributes(Ok(found), ttl, reply),
            (Err(refusal), _) => answer::attributes(Err(refusal), Duration::ZERO, reply),
        }
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
        let _turn = self.turns.begin(request.pid());
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        self.attr(self.noted(request, self.change(request, ino, fh, changes)), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _turn = self.turns.begin(request.pid());
        match self.noted(request, self.target_of(request, ino)) {
            Ok(target) => reply.data(&target),
            Err(Refusal(errno)) => reply.error(errno),
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
        let _turn = self.turns.begin(request.pid());
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let mode = mode & 0o7777 & !umask;
        let client = self.client(request);
        self.entry(
            block_on(client.mknod(&self.inode_proofs.child(parent, name), kind, mode, u64::from(rdev))),
            reply,
        );
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
        let _turn = self.turns.begin(request.pid());
        let mode = mode & 0o7777 & !umask;
        self.entry(block_on(self.client(request).mkdir(&self.inode_proofs.child(parent, name), mode)), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(request.pid());
        finished(block_on(self.client(request).unlink(&self.inode_proofs.child(parent, name))), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(request.pid());
        finished(block_on(self.client(request).rmdir(&self.inode_proofs.child(parent, name))), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin(request.pid());
        let target = target.as_os_str().as_bytes();
        self.entry(
            block_on(self.client(request).symlink(&self.inode_proofs.child(parent, link_name), target)),
            reply,
        );
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
        let _turn = self.turns.begin(request.pid());
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return reply.error(Errno::EINVAL);
        }
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let client = self.client(request);
        let (from, to) = (self.inode_proofs.child(parent, name), self.inode_proofs.child(newparent, newname));
        let renamed = block_on(client.rename(&from, &to, no_replace, exchange));
        if renamed.is_ok() {
            let (from, to) = ((parent, name.as_bytes()), (newparent, newname.as_bytes()));
            self.pages.names.renamed(from, to, exchange);
        }
        finished(renamed, reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let _turn = self.turns.begin(request.pid());
        let (from, to) = (self.inode_proofs.inode(ino), self.inode_proofs.child(newparent, newname));
        let linked = block_on(self.client(request).link(&from, &to));
        if linked.as_ref().is_err_and(|error| error.errno() == libc::ESTALE) {
            self.replaced.failed(request.pid());
        }
        self.entry(linked, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin(request.pid());
        if let Some((fh, kernel)) = self.open_handed(ino, flags.0) {
            return reply.opened(fh, kernel);
        }
        self.learn_leased_name(ino);
        // The kernel has already created the file, and cut it with a separate setattr.
        let flags = flags.0 & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
        let opened = self.open_at(request, &self.inode_proofs.inode(ino), flags, 0).and_then(|file| {
            let file = file.with_path(self.names.path(ino.0));
            if flags & libc::O_ACCMODE == libc::O_RDONLY {
                block_on(file.require_size())?;
            }
            Ok(file)
        });
        match self.noted(request, opened) {
            Ok(file) => {
                let (fh, kernel) = self.keep(file, flags);
                reply.opened(fh, kernel);
            }
            Err(Refusal(errno)) => reply.error(errno),
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
        let _turn = self.turns.begin(request.pid());
        let mode = mode & 0o7777 & !umask;
        let flags = flags | libc::O_CREAT;
        match self.open_at(request, &self.inode_proofs.child(parent, name), flags, mode) {
            Ok(file) => {
                let found = file.attr_at_open().clone();
                self.inode_proofs.learn(&found);
                self.names.learn(found.file.0, parent.0, name.as_bytes());
                let file = file.with_path(self.names.path(found.file.0));
                let (fh, kernel) = self.keep(file, flags);
                reply.created(&self.ttl(), &attr(&found), Generation(0), fh, kernel);
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turns.begin(request.pid());
        match self.handle(fh) {
            Ok(handle) => {
                let extent = Extent::new(offset, u64::from(size));
                // The kernel names the lock owner for a program's own reads, but not for reads that fill pages.
                self.read_for(request.unique(), &handle, extent, lock_owner.is_none(), reply);
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.begin(request.pid());
        match self.handle(fh) {
            Ok(handle) => {
                if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                    self.take_set_ids(request, &handle);
                }
                if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                    self.write_back_for(&handle, FileOffset(offset), data, reply);
                } else {
                    // `fcntl` may have set or cleared the flag since the open.
                    let append = flags.0 & libc::O_APPEND != 0;
                    self.write_for(&handle, (!append).then_some(FileOffset(offset)), data, reply);
                }
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        self.flush_handle(fh, lock_owner, move || reply.ok());
    }

    fn release(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        self.close_handle(fh);
        reply.ok();
    }

    fn fsync(&self, request: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.turns.begin(request.pid());
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(Refusal(errno)) => return reply.error(errno),
        };
        let synced = block_on(handle.file.sync()).map_err(Refusal::from);
        self.pages.reporter.then(handle.file.file(), Box::new(move || done(synced, reply)));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin(request.pid());
        match self.noted(request, self.open_directory(request, ino)) {
            Ok(fh) => reply.opened(fh, FopenFlags::empty()),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.turns.begin(request.pid());
        match self.add_entries(ino, fh, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turns.begin(request.pid());
        match self.add_entries_with_attributes(ino, fh, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        self.directories.remove(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        done(block_on(self.client(request).sync_names()).map_err(Into::into), reply);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turns.begin(request.pid());
        let at = self.inode_proofs.inode(ino);
        let space = block_on(self.client(request).statfs(Some(&at)));
        match self.noted(request, space.map_err(Refusal::from)) {
            Ok(space) => attributes::statfs(&space, reply),
            Err(Refusal(errno)) => reply.error(errno),
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
        let _turn = self.turns.begin(request.pid());
        done(self.noted(request, self.set_xattr(request, ino, name, value, flags)), reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.begin(request.pid());
        answer::sized(self.noted(request, self.xattr(request, ino, name)), size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.begin(request.pid());
        answer::sized(self.noted(request, self.xattr_names(request, ino)), size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin(request.pid());
        done(self.noted(request, self.remove_xattr(request, ino, name)), reply);
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let _turn = self.turns.begin(request.pid());
        let at = self.inode_proofs.inode(ino);
        let allowed = block_on(self.client(request).access(&at, mask.bits() as u32));
        done(self.noted(request, allowed.map_err(Refusal::from)), reply);
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
        pid: u32,
        reply: ReplyLock,
    ) {
        let _turn = self.turns.begin(request.pid());
        let (owner, thread, process) = (lock_owner.0, request.pid(), pid);
        let call =
            LockCall { family: Family::Process, owner, start, end, kind: typ, thread, process, wait: false };
        match self.conflicting_lock(fh, call.of(request, fh.0)) {
            Ok((start, end, typ, pid)) => reply.locked(start, end, typ, pid),
            Err(Refusal(errno)) => reply.error(errno),
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
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        let (owner, thread, process) = (lock_owner.0, request.pid(), pid);
        let call =
            LockCall { family: Family::Process, owner, start, end, kind: typ, thread, process, wait: sleep };
        self.lock_for(fh, call.of(request, fh.0), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin(request.pid());
        self.take_set_ids_of_user(request, fh);
        self.allocate_for(fh, offset, length, mode, reply);
    }

    fn lseek(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turns.begin(request.pid());
        match self.seek(fh, offset, whence) {
            Ok(at) => reply.offset(at),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }
}

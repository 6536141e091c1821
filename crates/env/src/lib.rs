//! The seam between Weft and the world: clock, disk, network, shared memory, waiting, randomness.
//!
//! Library code is written once, as `async` functions over [`Env`]. In the real world every operation completes
//! on the calling thread before it returns, so a future that is ever pending is a bug and the driver says so. In
//! the simulated world the same operations suspend on a single-threaded executor under virtual time.
//!
//! Invariants:
//! * No lock is held over an `await`.
//! * Tasks wait for one another only through [`Notify`].
//! * Nothing above this crate reads a clock, a random number, a file or a socket by any other way.
// The real world is behind one module; what else is here also runs in the simulated one (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // Futures need not be `Send`: each is created and polled on one thread.

mod address;
pub mod device;
mod hollow;
mod name;
pub mod plants;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // The one place where they belong.
pub mod real;
pub mod sim;

pub use address::{Address, BadAddress};
pub use hollow::Hollow;
use name::check_name;

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU64;
use weft_core::{ByteLen, LocalOffset, Nanos, Timestamp};

/// One world: the operating system, or one node of a simulated cluster.
pub trait Env: Clone + Send + Sync + 'static {
    /// A byte-stream connection.
    type Conn: Conn<File = Self::File, Shared = Self::Shared>;
    /// Accepts connections.
    type Listener: Listener<Conn = Self::Conn>;
    /// An open file.
    type File: File<Shared = Self::Shared>;
    /// A directory tree that belongs to one target or database.
    type Dir: Dir<File = Self::File>;
    /// Wakes tasks that wait.
    type Notify: Notify;
    /// Memory that a client and a server of the same node both see.
    type Shared: Shared;

    /// Monotonic time; on one machine it is the same clock for all processes (CLOCK_BOOTTIME).
    fn now(&self) -> Nanos;

    /// Monotonic time that may be late by a tick of the system (at most 10 ms) and need not run while the machine is
    /// suspended: much cheaper than [`now`](Env::now), and of another origin.
    fn tick(&self) -> Nanos {
        self.now()
    }

    /// Civil time.
    fn wall(&self) -> Timestamp;

    /// A number that the machine keeps for as long as its memory: another one after a loss of power or a reboot.
    fn boot(&self) -> u64;

    /// Fills `out` with random bytes fit for keys in the real world, seeded in the simulated one.
    fn random(&self, out: &mut [u8]);

    /// Waits for `duration`.
    fn sleep(&self, duration: Nanos) -> impl Future<Output = ()>;

    /// Waits until `notify` has counted on from `seen` (true) or it is `at` on the clock of [`now`](Env::now) (false), as
    /// exactly as this world can: in the real one the last 50 us pass awake, because the system wakes late by so much.
    fn wait_until(&self, notify: &Self::Notify, seen: u64, at: Nanos) -> impl Future<Output = bool> {
        async move { notify.wait(seen, Some(at.saturating_sub(self.now()))).await }
    }

    /// Starts a task: a named thread with a small stack in the real world.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    fn spawn<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static;

    /// The processor that the calling task runs on; `None` where that means nothing.
    fn processor(&self) -> Option<Processor> {
        None
    }

    /// Wishes the calling task to run on `processor`; `None` takes the wish back. Two tasks that hand work to each
    /// other and wait for the result do so fastest on one processor: nobody else has to be woken, and the bytes are
    /// still in its cache. The system fulfills a wish when it can and thinks fit.
    fn run_on(&self, _processor: Option<Processor>) {}

    /// Runs `body` to its end without anybody waiting for it: at once on the calling thread in the real world, as a
    /// task in the simulated one. For the little that a destructor has to say.
    ///
    /// # Errors
    /// When the system has no room for another task.
    fn detach<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.spawn(name, body)
    }

    /// Runs a part of a task. Where there may be a million tasks, which is in the simulated world, its memory is taken
    /// only while it runs; in the real world it lies with the rest on a thread's stack.
    fn apart<F: Future>(future: F) -> impl Future<Output = F::Output> {
        future
    }

    /// A new event count.
    fn notify(&self) -> Self::Notify;

    /// A buffer for payloads of which this world carries lengths only, where it does: see [`Hollow`].
    fn hollow(&self, _len: usize) -> Option<Hollow> {
        None
    }

    /// New zeroed shared memory of `len` bytes (rounded up to whole pages).
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    fn shared(&self, len: usize) -> io::Result<Self::Shared>;

    /// Listens on `address`. A Unix socket's stale file is replaced only when nobody answers on it.
    ///
    /// # Errors
    /// Of bind and listen; `AddrInUse` when somebody answers.
    fn listen(&self, address: &Address) -> impl Future<Output = io::Result<Self::Listener>>;

    /// Connects within `timeout`. The same time-out then holds for every send and receive on the connection
    /// (error kind `TimedOut`) until [`Conn::set_timeout`] changes it.
    ///
    /// # Errors
    /// Of connect; `TimedOut`.
    fn connect(&self, address: &Address, timeout: Nanos) -> impl Future<Output = io::Result<Self::Conn>>;

    /// Opens the directory tree at `path`, which must exist.
    ///
    /// # Errors
    /// Of the file system.
    fn dir(&self, path: &std::path::Path) -> impl Future<Output = io::Result<Self::Dir>>;
}

/// A processor of a node, by the system's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor(pub u16);

/// An event count: the one way in which tasks wait for each other, without lost wake-ups.
///
/// Read [`epoch`](Notify::epoch), look at the condition under its own lock, and if it does not hold
/// [`wait`](Notify::wait) with the epoch that was read.
pub trait Notify: Clone + Send + Sync + 'static {
    /// The number of notifications so far.
    fn epoch(&self) -> u64;

    /// Waits until the count differs from `seen`; false when `timeout` passed first.
    fn wait(&self, seen: u64, timeout: Option<Nanos>) -> impl Future<Output = bool>;

    /// Counts one and wakes all that wait.
    fn notify_all(&self);
}

/// Memory shared between processes of one node.
pub trait Shared: Clone + Send + Sync + 'static {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole area as atomic words; the other side may change them at any time.
    fn words(&self) -> &[AtomicU64];

    /// Copies `bytes` to `offset`. Panics outside the area.
    fn copy_in(&self, offset: usize, bytes: &[u8]);

    /// Copies from `offset` to `out`. Panics outside the area. The bytes are untrusted.
    fn copy_out(&self, offset: usize, out: &mut [u8]);
}

/// Who is at the other end, as the operating system says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this node, by the socket's credentials.
    Local {
        /// Effective user.
        uid: u32,
        /// Effective group.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
        /// Process id.
        pid: u32,
    },
    /// Something on the network, unknown until it has authenticated itself.
    Remote {
        /// Printable address.
        address: String,
    },
}

/// What can travel beside bytes on a connection between processes of one node.
#[derive(Debug)]
pub enum Attachment<F, S> {
    /// An open file.
    File(F),
    /// Shared memory.
    Shared(S),
}

/// A byte-stream connection, used by one task at a time.
pub trait Conn: Send + 'static {
    /// The file type of this world.
    type File;
    /// The shared memory type of this world.
    type Shared;

    /// How many bytes a reader of messages had best ask for at once: a header, the body of any request of the hot path,
    /// and a payload of 4 KiB, so that a small message takes one system call.
    const READ_LEN: usize = 4096 + 512;

    /// Sends all of `parts`, in order.
    async fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Sends all of `parts`, then `len` bytes of `file` from `offset`, without a copy through user space where the
    /// system can. The caller knows that the file held these bytes a moment ago; if it has become shorter the rest
    /// is sent as zeros, so that the framing holds.
    async fn send_file(
        &mut self,
        parts: &[IoSlice<'_>],
        file: &Self::File,
        offset: LocalOffset,
        len: ByteLen,
    ) -> io::Result<()>;

    /// Sends `bytes` with `attachments`, at most 8; an error of kind `Unsupported` when the peer is not local.
    async fn send_attached(
        &mut self,
        bytes: &[u8],
        attachments: &[Attachment<Self::File, Self::Shared>],
    ) -> io::Result<()>;

    /// Receives at least one byte unless the peer closed (0) or `buf` is empty.
    async fn recv(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Fills all of `bufs`; `UnexpectedEof` when the peer closes first.
    async fn recv_exact(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()>;

    /// The next received attachment as a file. `None` when none is left or it cannot be one.
    fn take_file(&mut self) -> Option<Self::File>;

    /// The next received attachment as shared memory; its length is checked against `len_min`. An error of kind
    /// `NotFound` when there is none: the peer sent none, or this process had no descriptor left for it.
    fn take_shared(&mut self, len_min: usize) -> io::Result<Self::Shared>;

    /// Who is at the other end.
    fn peer(&self) -> &Peer;

    /// Changes the time-out of each send and receive; `None` waits for ever.
    fn set_timeout(&mut self, timeout: Option<Nanos>) -> io::Result<()>;

    /// A handle with which another task can end this connection.
    fn closer(&self) -> Box<dyn Closer>;
}

/// Ends a connection or a listener from another task: what waits on it returns an error or end of stream.
pub trait Closer: Send + Sync {
    /// Ends it.
    fn close(&self);
}

/// Accepts connections.
pub trait Listener: Send + 'static {
    /// What it gives.
    type Conn;

    /// The next connection, without a time-out.
    async fn accept(&mut self) -> io::Result<Self::Conn>;

    /// The address really bound (a port of 0 is replaced by the one given).
    fn address(&self) -> Address;

    /// A handle with which another task can end the waiting.
    fn closer(&self) -> Box<dyn Closer>;
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMode {
    /// Writing is allowed; reading always is.
    pub write: bool,
    /// What happens when the file is missing or there.
    pub create: Create,
    /// Past the page cache (`O_DIRECT`); the caller aligns.
    pub direct: bool,
}

/// What happens when a file to open is missing or there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// It must be there.
    No,
    /// It is made when missing.
    IfMissing,
    /// It must be missing.
    New,
}

impl OpenMode {
    /// Reading only.
    pub const READ: Self = Self { write: false, create: Create::No, direct: false };
    /// Reading and writing what is there.
    pub const WRITE: Self = Self { write: true, create: Create::No, direct: false };
    /// Reading and writing, made when missing.
    pub const CREATE: Self = Self { write: true, create: Create::IfMissing, direct: false };
}

/// What a file system says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileMeta {
    /// Length.
    pub len: ByteLen,
    /// Room taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last change of the contents.
    pub mtime: Timestamp,
}

/// An open file. Clones share it.
pub trait File: Clone + Send + Sync + 'static {
    /// The shared memory type of this world.
    type Shared;
    /// The same file for code that cannot suspend.
    type Blocking: BlockingFile;

    /// Reads until `bufs` are full or the file ends; the number of bytes read.
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: LocalOffset) -> io::Result<usize>;

    /// Writes all of `bufs`; on an error some bytes may have been written.
    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<()>;

    /// Writes `len` bytes of shared memory from `from`, without copying them first.
    async fn write_shared_at(
        &self,
        shared: &Self::Shared,
        from: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<()>;

    /// Reads up to `len` bytes into shared memory from `to`, until there or the file ends; the number of bytes read.
    async fn read_shared_at(
        &self,
        shared: &Self::Shared,
        to: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<usize>;

    /// Makes contents and length survive loss of power.
    async fn sync(&self) -> io::Result<()>;

    /// Length, room and time of change.
    async fn meta(&self) -> io::Result<FileMeta>;

    /// Cuts or extends (with zeros) to `len`.
    async fn set_len(&self, len: ByteLen) -> io::Result<()>;

    /// Makes a hole: `len` bytes from `offset` on read as zeros, as far as the file reaches, and their room is given back
    /// where the file system can. The length stays.
    async fn punch(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()>;

    /// The first byte at or behind `offset` that lies in no hole; `None` when there is none. A world that knows of no holes
    /// takes the whole file for data.
    async fn seek_data(&self, offset: LocalOffset) -> io::Result<Option<LocalOffset>>;

    /// The first byte at or behind `offset` that lies in a hole. Behind the end of the file all is a hole.
    async fn seek_hole(&self, offset: LocalOffset) -> io::Result<LocalOffset>;

    /// Sets the time of change, for who moves bytes that were written earlier.
    async fn set_mtime(&self, mtime: Timestamp) -> io::Result<()>;

    /// The system forgets what it holds of the file in memory, as far as it can; what is not written yet it may keep.
    async fn forget(&self) -> io::Result<()>;

    /// The same file for code that cannot suspend (the metadata engine).
    fn blocking(&self) -> Self::Blocking;
}

/// Extends a file to `len` by writing zeros.
pub(crate) fn extend_with_zeros(file: &(impl BlockingFile + ?Sized), len: ByteLen) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 1 << 16];
    let mut at = file.len()?.0;
    while at < len.0 {
        let part = (len.0 - at).min(ZEROS.len() as u64);
        file.write_at(&ZEROS[..part as usize], LocalOffset(at))?;
        at += part;
    }
    Ok(())
}

/// A file for code that cannot suspend. In the simulated world the operations happen at once, and what they ask of the
/// device is owed: the caller awaits [`settle`](BlockingFile::settle) as soon as it can.
pub trait BlockingFile: Send + Sync + std::fmt::Debug + 'static {
    /// Fills `buf` from `offset`; `UnexpectedEof` past the end.
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()>;
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()>;
    /// Makes contents and length survive loss of power.
    fn sync(&self) -> io::Result<()>;
    /// Length.
    fn len(&self) -> io::Result<ByteLen>;
    /// Whether it holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == ByteLen(0))
    }
    /// Cuts or extends to `len`.
    fn set_len(&self, len: ByteLen) -> io::Result<()>;
    /// Extends to `len` with zeros that have room on the device already; on an error it may have become longer.
    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        extend_with_zeros(self, len)
    }
    /// Takes room on the device for `len` bytes, without becoming longer; where that is not known, nothing.
    fn reserve(&self, _len: ByteLen) -> io::Result<()> {
        Ok(())
    }
    /// What these bytes are does not matter any more: they read as before or as zeros, and may be written in parts without
    /// being read first.
    fn discard(&self, _offset: LocalOffset, _len: ByteLen) -> io::Result<()> {
        Ok(())
    }
    /// Waits until the device has done, one after the other, what the operations since the last call ask of it;
    /// nothing in the real world, where they have waited themselves.
    async fn settle(&self) {}
}

/// Room on the file system under a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// All of it.
    pub total: ByteLen,
    /// What this process may still use.
    pub free: ByteLen,
    /// Names the file system among those of this machine; 0 where that is not known.
    pub device: u64,
}

/// A directory tree. Names are relative, with `/` between their parts, and never climb.
pub trait Dir: Clone + Send + Sync + 'static {
    /// The file type of this world.
    type File;

    /// Opens or makes a file. A made name survives loss of power only after [`Dir::sync`] of its folder.
    async fn open(&self, name: &str, mode: OpenMode) -> io::Result<Self::File>;
    /// Removes a file's name; open files live on.
    async fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, replacing what is there.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes a folder; its parent must exist. Already there is no error.
    async fn make_dir(&self, name: &str) -> io::Result<()>;
    /// Makes the names directly in folder `name` (`""` is the root) survive loss of power.
    async fn sync(&self, name: &str) -> io::Result<()>;
    /// The names in folder `name`, sorted.
    async fn list(&self, name: &str) -> io::Result<Vec<String>>;
    /// Length, room and time of a file without opening it.
    async fn meta(&self, name: &str) -> io::Result<FileMeta>;
    /// Room on the file system under it.
    async fn space(&self) -> io::Result<Space>;
    /// Takes the exclusive lock of file `name` (made when missing) for the life of the returned guard;
    /// `WouldBlock` when another process has it.
    async fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>>;
}

//! The seam between Weft and the outside world: clock, disk, network, shared memory, waiting, randomness.
//!
//! # Design
//!
//! Library code is written once, as `async` functions over [`Env`]. Two implementations stand behind the trait:
//!
//! ```text
//!              client, server, store:  async fn over weft_env::Env
//!                                    |
//!                  +-----------------+------------------+
//!                  |                                    |
//!        real::RealEnv                        sim::SimEnv
//!        blocking system calls                events in virtual time
//!        a task is a thread                   a task is a future of one executor
//! ```
//!
//! | operation | real world | simulated world |
//! | --- | --- | --- |
//! | await | ready at the first poll, or [`real::block_on`] panics | may suspend; other tasks run meanwhile |
//! | time | CLOCK_BOOTTIME | virtual nanoseconds |
//! | randomness | the kernel | the seed of the run |
//! | files | a directory of the host | pages with a durable and a volatile version |
//! | connections | Unix sockets, TCP | segments with a modeled time of arrival |
//! | faults | none | those that real hardware may show, chosen by the seed |
//!
//! The real world needs no runtime, no hand-over between threads and no allocation per operation. A run of the
//! simulated world is a function of its seed.
//!
//! # Invariants
//!
//! * No lock is held over an `await`.
//! * Tasks wait for each other only through [`Notify`].
//! * Crates above this one access clocks, random numbers, files and sockets only through it.
// Only the module `real` uses the operating system; everything else also runs in the simulated world (clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![allow(async_fn_in_trait)] // Futures are not `Send`: each is created and polled on one thread.

mod address;
mod coding;
pub mod device;
mod hollow;
pub mod mutants;
mod name;
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // The one place where they belong.
pub mod real;
pub mod sim;

pub use address::{Address, BadAddress};
pub use coding::Coding;
pub use hollow::Hollow;
use name::check_name;

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU64;
use weft_core::{ByteLen, DeviceLoad, LocalOffset, Nanos, Timestamp};

/// A world: the operating system, or one node of a simulated cluster.
pub trait Env: Clone + Send + Sync + 'static {
    /// Byte-stream connection.
    type Conn: Conn<File = Self::File, Shared = Self::Shared>;
    /// Listener that accepts connections.
    type Listener: Listener<Conn = Self::Conn>;
    /// Open file.
    type File: File<Shared = Self::Shared>;
    /// Directory tree of one target or database.
    type Dir: Dir<File = Self::File>;
    /// Event count that wakes waiting tasks.
    type Notify: Notify;
    /// Memory shared by a client and a server on the same node.
    type Shared: Shared;

    /// Returns monotonic time (CLOCK_BOOTTIME). All processes of a machine share this clock.
    fn now(&self) -> Nanos;

    /// Returns coarse monotonic time, much cheaper than [`now`](Env::now) and with another origin. It lags by at most
    /// one tick of the system (10 ms) and may stop while the machine is suspended.
    fn tick(&self) -> Nanos {
        self.now()
    }

    /// Returns civil time.
    fn wall(&self) -> Timestamp;

    /// Returns a number that identifies the current boot of the machine. It changes when memory is lost, by a power
    /// failure or a reboot.
    fn boot(&self) -> u64;

    /// Fills `out` with random bytes: suitable for keys in the real world, derived from the seed in the simulated one.
    fn random(&self, out: &mut [u8]);

    /// Waits for `duration`.
    fn sleep(&self, duration: Nanos) -> impl Future<Output = ()>;

    /// Waits until the count of `notify` differs from `seen` (returns true) or [`now`](Env::now) reaches `at` (returns
    /// false), as exactly as this world allows. In the real world the last 50 us are spent spinning, because the system
    /// wakes a sleeping thread that late.
    fn wait_until(&self, notify: &Self::Notify, seen: u64, at: Nanos) -> impl Future<Output = bool> {
        async move { notify.wait(seen, Some(at.saturating_sub(self.now()))).await }
    }

    /// Starts a task: a named thread with a small stack in the real world.
    ///
    /// # Errors
    /// If the system cannot create another thread.
    fn spawn<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static;

    /// Returns the processor that the calling task runs on; `None` if processors have no meaning in this world.
    fn processor(&self) -> Option<Processor> {
        None
    }

    /// Asks for the calling task to run on `processor`; `None` withdraws the request. Two tasks that alternate are
    /// fastest on one processor: no other processor has to be woken, and its cache holds the bytes. The request is a
    /// hint.
    fn run_on(&self, _processor: Option<Processor>) {}

    /// Runs `body` without a task that waits for its end: immediately on the calling thread in the real world, as a
    /// task in the simulated one. For the few messages that a destructor sends.
    ///
    /// # Errors
    /// If the system cannot create another task.
    fn detach<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.spawn(name, body)
    }

    /// Runs a part of a task in memory of its own. The simulated world, which may hold a million tasks, allocates that
    /// memory only while the part runs. In the real world it lies on the thread's stack.
    fn boxed<F: Future>(future: F) -> impl Future<Output = F::Output> {
        future
    }

    /// Creates an event count.
    fn notify(&self) -> Self::Notify;

    /// Returns a buffer for payloads if this world carries only their lengths; see [`Hollow`].
    fn hollow(&self, _len: usize) -> Option<Hollow> {
        None
    }

    /// Returns the model of compression, if this world has one. Without a model, codecs take their own time: in a
    /// simulation none.
    fn coding(&self) -> Option<Coding> {
        None
    }

    /// Allocates zeroed shared memory of `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// If the system has no memory or descriptors left.
    fn shared(&self, len: usize) -> io::Result<Self::Shared>;

    /// Listens on `address`. A stale Unix socket file is replaced only if no process answers on it.
    ///
    /// # Errors
    /// Errors of bind and listen; `AddrInUse` if a process answers.
    fn listen(&self, address: &Address) -> impl Future<Output = io::Result<Self::Listener>>;

    /// Connects within `timeout`. The timeout then applies to every send and receive on the connection (error kind
    /// `TimedOut`), until [`Conn::set_timeout`] changes it.
    ///
    /// # Errors
    /// Errors of connect; `TimedOut`.
    fn connect(&self, address: &Address, timeout: Nanos) -> impl Future<Output = io::Result<Self::Conn>>;

    /// Opens the directory tree at `path`, which must exist.
    ///
    /// # Errors
    /// Errors of the file system.
    fn dir(&self, path: &std::path::Path) -> impl Future<Output = io::Result<Self::Dir>>;
}

/// Processor of a node, by the system's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor(pub u16);

/// Event count: the only means by which tasks wait for each other, without lost wake-ups.
///
/// A waiter reads [`epoch`](Notify::epoch), then checks its condition under the condition's lock. If the condition does
/// not hold, it calls [`wait`](Notify::wait) with the epoch that it read.
pub trait Notify: Clone + Send + Sync + 'static {
    /// Returns the number of notifications so far.
    fn epoch(&self) -> u64;

    /// Waits until the count differs from `seen`. Returns false if `timeout` expires first.
    fn wait(&self, seen: u64, timeout: Option<Nanos>) -> impl Future<Output = bool>;

    /// Increments the count and wakes all waiters.
    fn notify_all(&self);
}

/// Memory shared between processes of one node.
pub trait Shared: Clone + Send + Sync + 'static {
    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the whole area as atomic words, which the other side may change at any time.
    fn words(&self) -> &[AtomicU64];

    /// Copies `bytes` to `offset`. Panics outside the area.
    fn copy_in(&self, offset: usize, bytes: &[u8]);

    /// Copies from `offset` to `out`. Panics outside the area. The bytes are untrusted.
    fn copy_out(&self, offset: usize, out: &mut [u8]);
}

/// Peer of a connection, as the operating system reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Process of this node, by the socket's credentials.
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
    /// Peer on the network, unauthenticated.
    Remote {
        /// Printable address.
        address: String,
    },
}

/// Object that travels beside bytes on a connection between processes of one node.
#[derive(Debug)]
pub enum Attachment<F, S> {
    /// Open file.
    File(F),
    /// Shared memory.
    Shared(S),
}

/// Byte-stream connection, used by one task at a time.
pub trait Conn: Send + 'static {
    /// File type of this world.
    type File;
    /// Shared memory type of this world.
    type Shared;

    /// Recommended number of bytes for a reader of messages to request at once. A header, the body of any frequent
    /// request and a payload of 4 KiB fit, so that a small message takes one system call.
    const READ_LEN: usize = 4096 + 512;

    /// Sends all of `parts`, in order.
    async fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Sends all of `parts`, then `len` bytes of `file` from `offset`, without a copy through user space where the
    /// system supports it. The caller has checked that the file holds these bytes. If the file has become shorter
    /// since, the rest is sent as zeros, so that the framing of messages holds.
    async fn send_file(
        &mut self,
        parts: &[IoSlice<'_>],
        file: &Self::File,
        offset: LocalOffset,
        len: ByteLen,
    ) -> io::Result<()>;

    /// Sends `bytes` with `attachments`, at most 8. Fails with kind `Unsupported` if the peer is not local.
    async fn send_attached(
        &mut self,
        bytes: &[u8],
        attachments: &[Attachment<Self::File, Self::Shared>],
    ) -> io::Result<()>;

    /// Receives at least one byte, unless the peer closed the connection (0) or `buf` is empty.
    async fn recv(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Fills all of `bufs`; fails with `UnexpectedEof` if the peer closes first.
    async fn recv_exact(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()>;

    /// Takes the next received attachment as a file. Returns `None` if there is none or it is not a regular file.
    fn take_file(&mut self) -> Option<Self::File>;

    /// Takes the next received attachment as shared memory of at least `len_min` bytes. Fails with kind `NotFound` if
    /// there is none, because the peer sent none or this process had no free descriptor.
    fn take_shared(&mut self, len_min: usize) -> io::Result<Self::Shared>;

    /// Returns the peer.
    fn peer(&self) -> &Peer;

    /// Sets whether the peer is expected to answer on the processor of this task. A receive then gives the processor up
    /// a few times before it sleeps: a task that sleeps may wake on another processor, far from its peer.
    fn set_shares_processor(&mut self, _shares: bool) {}

    /// Changes the timeout of each send and receive; `None` waits forever.
    fn set_timeout(&mut self, timeout: Option<Nanos>) -> io::Result<()>;

    /// Returns a handle with which another task can close this connection.
    fn closer(&self) -> Box<dyn Closer>;
}

/// Closes a connection or a listener from another task. A waiting operation returns an error or the end of the stream.
pub trait Closer: Send + Sync {
    /// Closes it.
    fn close(&self);
}

/// Accepts connections.
pub trait Listener: Send + 'static {
    /// Connection type of this world.
    type Conn;

    /// Waits for the next connection, without a timeout.
    async fn accept(&mut self) -> io::Result<Self::Conn>;

    /// Returns the bound address; a port of 0 is replaced by the assigned one.
    fn address(&self) -> Address;

    /// Returns a handle with which another task can end the wait.
    fn closer(&self) -> Box<dyn Closer>;
}

/// Mode in which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMode {
    /// Whether writing is allowed; reading always is.
    pub write: bool,
    /// Behavior if the file is missing or exists.
    pub create: Create,
    /// Whether to bypass the page cache (`O_DIRECT`); the caller aligns buffers and offsets.
    pub direct: bool,
}

/// Behavior of an open if the file is missing or exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Fail if the file is missing.
    No,
    /// Create the file if it is missing.
    IfMissing,
    /// Create the file; fail if it exists.
    New,
}

impl OpenMode {
    /// Opens an existing file for reading.
    pub const READ: Self = Self { write: false, create: Create::No, direct: false };
    /// Opens an existing file for reading and writing.
    pub const WRITE: Self = Self { write: true, create: Create::No, direct: false };
    /// Opens a file for reading and writing, and creates it if it is missing.
    pub const CREATE: Self = Self { write: true, create: Create::IfMissing, direct: false };
}

/// Attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileMeta {
    /// Length.
    pub len: ByteLen,
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes; 0 for files that only Weft's servers know.
    pub ctime: Timestamp,
    /// Inode number; 0 in a world without them.
    pub inode: u64,
}

/// Open file. Clones share it.
pub trait File: Clone + Send + Sync + 'static {
    /// Shared memory type of this world.
    type Shared;
    /// Type of the file for code that cannot suspend.
    type Blocking: BlockingFile;

    /// Reads until `bufs` are full or the file ends. Returns the number of bytes read.
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: LocalOffset) -> io::Result<usize>;

    /// Writes all of `bufs`. After an error, some bytes may have been written.
    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<()>;

    /// Writes `len` bytes of shared memory from `from`, without an intermediate copy.
    async fn write_shared_at(
        &self,
        shared: &Self::Shared,
        from: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<()>;

    /// Reads up to `len` bytes into shared memory at `to`, until the length is reached or the file ends. Returns the
    /// number of bytes read.
    async fn read_shared_at(
        &self,
        shared: &Self::Shared,
        to: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<usize>;

    /// Makes contents and length durable.
    async fn sync(&self) -> io::Result<()>;

    /// Returns length, allocated space and modification time.
    async fn meta(&self) -> io::Result<FileMeta>;

    /// Cuts or extends (with zeros) the file to `len`.
    async fn set_len(&self, len: ByteLen) -> io::Result<()>;

    /// Punches a hole: `len` bytes from `offset` read as zeros, up to the end of the file, and their space is freed
    /// where the file system supports it. The length does not change.
    async fn punch(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()>;

    /// Returns the first byte at or after `offset` that lies in data; `None` if only holes follow. A world without
    /// holes treats the whole file as data.
    async fn seek_data(&self, offset: LocalOffset) -> io::Result<Option<LocalOffset>>;

    /// Returns the first byte at or after `offset` that lies in a hole. Everything after the end of the file is a hole.
    async fn seek_hole(&self, offset: LocalOffset) -> io::Result<LocalOffset>;

    /// Sets the modification time, after a copy of bytes that were written earlier.
    async fn set_mtime(&self, mtime: Timestamp) -> io::Result<()>;

    /// Drops the file's clean pages from the page cache, as far as the system supports it.
    async fn forget(&self) -> io::Result<()>;

    /// Closes the file, if this is its last clone, and returns what the file system reports at a close.
    async fn close(self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the file for code that cannot suspend (the metadata engine).
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

/// File for code that cannot suspend. In the simulated world, operations take effect immediately, and their requests to
/// the device are queued. The caller awaits [`wait_for_device`](BlockingFile::wait_for_device) as soon as it can, which takes the time of
/// the queued requests.
pub trait BlockingFile: Send + Sync + std::fmt::Debug + 'static {
    /// Fills `buf` from `offset`; fails with `UnexpectedEof` past the end.
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()>;
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns the length.
    fn len(&self) -> io::Result<ByteLen>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == ByteLen(0))
    }
    /// Cuts or extends the file to `len`.
    fn set_len(&self, len: ByteLen) -> io::Result<()>;
    /// Extends the file to `len` with zeros whose space is allocated. After an error, the file may be longer.
    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        extend_with_zeros(self, len)
    }
    /// Allocates space for `len` bytes without changing the length, where the system supports it.
    fn reserve(&self, _len: ByteLen) -> io::Result<()> {
        Ok(())
    }
    /// Declares that the contents of a range no longer matter. The bytes then read as before or as zeros, and a partial
    /// write need not read them first.
    fn discard(&self, _offset: LocalOffset, _len: ByteLen) -> io::Result<()> {
        Ok(())
    }
    /// Waits until the device has executed, one after another, the requests queued since the last call. Returns at once
    /// in the real world, where each operation has waited itself.
    async fn wait_for_device(&self) {}
}

/// Space on the file system that contains a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Space that is used, or that processes other than root's may still use.
    pub total: ByteLen,
    /// Space that they may still use.
    pub free: ByteLen,
    /// Identifies the file system on this machine; 0 if unknown.
    pub device: u64,
}

/// Directory tree. Names are relative paths without `..`.
pub trait Dir: Clone + Send + Sync + 'static {
    /// File type of this world.
    type File;

    /// Opens or creates a file. The name of a new file is durable only after [`Dir::sync`] of its folder.
    async fn open(&self, name: &str, mode: OpenMode) -> io::Result<Self::File>;
    /// Removes a file's name; open files stay usable.
    async fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file and replaces an existing one.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Creates a folder, whose parent must exist. Succeeds if the folder exists.
    async fn make_dir(&self, name: &str) -> io::Result<()>;
    /// Makes the names directly in folder `name` durable (`""` is the root).
    async fn sync(&self, name: &str) -> io::Result<()>;
    /// Lists the names in folder `name`, sorted.
    async fn list(&self, name: &str) -> io::Result<Vec<String>>;
    /// Returns the attributes of a file without opening it.
    async fn meta(&self, name: &str) -> io::Result<FileMeta>;
    /// Returns the space on the underlying file system.
    async fn space(&self) -> io::Result<Space>;
    /// Returns the load of the block device below the directory; `None` without a local one.
    fn device_load(&self) -> Option<DeviceLoad> {
        None
    }
    /// Acquires the exclusive lock of file `name`, which is created if missing, for the lifetime of the returned guard.
    /// Fails with `WouldBlock` if another process holds it.
    async fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>>;
    /// Opens the shared lock of file `name`, which is created if missing. It also works between hosts, if the file system
    /// provides record locks (fcntl(2)) there.
    async fn shared_lock(&self, name: &str) -> io::Result<Box<dyn SharedLock>>;
}

/// Lock that one process holds exclusively, or several hold together. The end of the process, or dropping it, releases it.
pub trait SharedLock: Send + Sync {
    /// Acquires it, exclusively or not. Changes a lock that is held already, without releasing it in between. Returns
    /// false if other processes prevent that; what was held is held further.
    ///
    /// # Errors
    /// Errors of fcntl(2).
    fn try_acquire(&self, exclusive: bool) -> io::Result<bool>;

    /// Releases it.
    ///
    /// # Errors
    /// Errors of fcntl(2).
    fn release(&self) -> io::Result<()>;
}

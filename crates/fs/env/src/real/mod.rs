//! The real world: blocking system calls inside futures that are ready at their first poll.
//!
//! * A task is a thread that polls one future to its end with [`block_on`], in one poll.
//! * Every descriptor is close-on-exec. With [`RealEnv::with_fd_floor`] its number is above those that a host program
//!   uses.
//! * No call goes through a C library symbol that the client's preload library replaces (see `sys`).

mod block_device;
mod conn;
mod dir;
mod file;
mod listener;
mod notify;
pub mod path;
mod processor;
mod shared;
mod sys;
mod user;

pub use block_device::BlockDevice;
pub use conn::RealConn;
pub use dir::RealDir;
pub use file::{RealBlockingFile, RealFile};
pub use listener::RealListener;
pub use notify::RealNotify;
pub use shared::RealShared;
pub use user::User;

use crate::{Address, Env, Processor};
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use weft_core::{Nanos, Timestamp};

/// Stack size of a task's thread in bytes. Only touched pages occupy memory. Frames are larger without optimization.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 1024 * 1024 } else { 256 * 1024 };

/// Time by which a sleeper wakes early and then spins, in nanoseconds: the cost of falling asleep and waking up.
const SPIN_NS: u64 = 50_000;

thread_local! {
    /// Initialized once in each thread that waits exactly.
    static PROMPT: () = sys::prompt_timers();
}

/// Runs `future` to its end on this thread.
///
/// # Panics
/// If `future` is pending. Every operation of the real world blocks, so a pending future awaits something outside of
/// [`Env`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!(
            "a future was pending in the real world, where every operation of weft-env is ready at its first poll: \
             it awaits something outside of weft-env"
        ),
    }
}

/// Returns the future of a task. On the heap it has one place; on the stack of its thread it would be copied from frame
/// to frame, and each frame would stay.
#[inline(never)]
fn on_heap<F: FnOnce() -> Fut, Fut: Future>(body: F) -> Pin<Box<Fut>> {
    Box::pin(body())
}

/// Whether `fd` is a descriptor of a [`RealEnv::with_fd_floor`], which its host program must not close.
pub fn is_reserved_fd(fd: i32) -> bool {
    sys::reserved::has(fd)
}

/// Returns all descriptors reserved by this library, in ascending order.
pub fn reserved_fds() -> Vec<i32> {
    sys::reserved::all()
}

/// Sends one byte with copies of `fds` over a Unix socket.
///
/// # Errors
/// Errors of sendmsg(2).
pub fn send_descriptors(socket: BorrowedFd<'_>, fds: &[RawFd]) -> io::Result<()> {
    let socket = ManuallyDrop::new(sys::Fd::from_raw(socket.as_raw_fd()));
    sys::send_with(&socket, &[0], fds).map(drop)
}

/// Receives one byte over a Unix socket, and the descriptors sent with it.
///
/// # Errors
/// Errors of recvmsg(2); `UnexpectedEof` if the peer has closed the socket.
pub fn receive_descriptors(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let socket = ManuallyDrop::new(sys::Fd::from_raw(socket.as_raw_fd()));
    let (mut byte, mut fds) = ([0u8], Vec::new());
    let part = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() }];
    let attached = |fd: sys::Fd| {
        let fd = ManuallyDrop::new(fd);
        // SAFETY: nothing else owns the new descriptor.
        fds.push(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) });
    };
    match sys::recv_with(&socket, &part, false, true, attached)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(fds),
    }
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealEnv {
    fd_floor: i32,
    user: Option<&'static User>,
}

impl RealEnv {
    /// Returns the operating system; the kernel chooses descriptor numbers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the operating system; every long-lived descriptor (socket, shared memory, file) gets a number of at
    /// least `floor`, out of the way of the host program. If the process limit does not allow such numbers, descriptors
    /// keep those that the kernel chose.
    pub fn with_fd_floor(floor: i32) -> Self {
        Self { fd_floor: floor, user: None }
    }

    /// Returns this environment with connections on this machine that belong to `user`, whoever the calling thread is. An
    /// attempt to connect fails with `EPERM` if the thread cannot become that user.
    #[must_use]
    pub fn as_user(self, user: &'static User) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Takes over a descriptor of a regular file that the host program or its preload library has opened.
    pub fn file(&self, fd: OwnedFd) -> RealFile {
        RealFile::new(sys::Fd::from_raw(fd.into_raw_fd()).lifted(self.fd_floor), false)
    }
}

impl Env for RealEnv {
    type Conn = RealConn;
    type Listener = RealListener;
    type File = RealFile;
    type Dir = RealDir;
    type Notify = RealNotify;
    type Shared = RealShared;

    fn now(&self) -> Nanos {
        let (seconds, nanos) = sys::clock(libc::CLOCK_BOOTTIME);
        Nanos(seconds as u64 * 1_000_000_000 + u64::from(nanos))
    }

    fn tick(&self) -> Nanos {
        let (seconds, nanos) = sys::clock(libc::CLOCK_MONOTONIC_COARSE);
        Nanos(seconds as u64 * 1_000_000_000 + u64::from(nanos))
    }

    fn wall(&self) -> Timestamp {
        let (seconds, nanos) = sys::clock(libc::CLOCK_REALTIME);
        Timestamp::from_parts(seconds, nanos)
    }

    fn boot(&self) -> u64 {
        sys::boot()
    }

    fn random(&self, out: &mut [u8]) {
        // Keys are derived from these bytes: it is safer to abort than to continue without randomness.
        sys::random(out).expect("the kernel gives random bytes");
    }

    async fn sleep(&self, duration: Nanos) {
        std::thread::sleep(duration.as_duration());
    }

    async fn wait_until(&self, notify: &RealNotify, seen: u64, at: Nanos) -> bool {
        use crate::Notify;
        PROMPT.with(|()| ());
        loop {
            let left = at.saturating_sub(self.now()).0;
            if left > SPIN_NS {
                if notify.wait(seen, Some(Nanos(left - SPIN_NS))).await {
                    return true;
                }
            } else if notify.epoch() != seen {
                return true;
            } else if left == 0 {
                return false;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn spawn<F, Fut>(&self, name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let builder = std::thread::Builder::new().name(name.replace('\0', "?")).stack_size(STACK_BYTES);
        // Signal handlers of a host program must neither run on these small stacks nor interrupt system calls.
        sys::without_signals(|| builder.spawn(move || block_on(on_heap(body)))).map(drop)
    }

    fn processor(&self) -> Option<Processor> {
        processor::current()
    }

    fn run_on(&self, processor: Option<Processor>) {
        processor::run_on(processor);
    }

    fn detach<F, Fut>(&self, _name: &str, body: F) -> io::Result<()>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        block_on(body());
        Ok(())
    }

    fn notify(&self) -> RealNotify {
        RealNotify::new()
    }

    fn shared(&self, len: usize) -> io::Result<RealShared> {
        RealShared::new(len, self.fd_floor)
    }

    async fn listen(&self, address: &Address) -> io::Result<RealListener> {
        RealListener::bind(address, self.fd_floor)
    }

    async fn connect(&self, address: &Address, timeout: Nanos) -> io::Result<RealConn> {
        let _is_user = match (self.user, address) {
            (Some(user), Address::Unix(_)) => user.become_for_a_while()?,
            _ => None,
        };
        RealConn::connect(address, timeout, self.fd_floor)
    }

    async fn dir(&self, path: &Path) -> io::Result<RealDir> {
        RealDir::open(path, self.fd_floor)
    }
}

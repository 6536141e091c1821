//! The real world: blocking system calls inside futures that are ready at their first poll.
//!
//! * A task is a thread that polls one future once, to its end, by [`block_on`].
//! * Every descriptor is close-on-exec and, by [`RealEnv::with_fd_floor`], out of the way of a host program.
//! * No call goes through a C library symbol that the client's preload library replaces (see `sys`).

mod conn;
mod dir;
mod file;
mod listener;
mod notify;
mod processor;
mod shared;
mod sys;

pub use conn::RealConn;
pub use dir::RealDir;
pub use file::{RealBlockingFile, RealFile};
pub use listener::RealListener;
pub use notify::RealNotify;
pub use shared::RealShared;

use crate::{Address, Env, Processor};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use weft_core::{Nanos, Timestamp};

/// The stack of a task's thread, in bytes. Only what is touched takes memory; frames are larger without
/// optimization.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 1024 * 1024 } else { 256 * 1024 };

/// A sleeper gets up so much earlier, in nanoseconds: what falling asleep and being woken takes.
const AWAKE: u64 = 50_000;

thread_local! {
    /// Done once in each thread that waits exactly.
    static PROMPT: () = sys::prompt_timers();
}

/// Runs `future` to its end on this thread.
///
/// # Panics
/// When `future` is pending: in the real world every operation blocks, so it then waits for something that is not
/// of [`Env`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!(
            "a future was pending in the real world, where every operation of weft-env is ready at its first poll: \
             it awaits something that is not of weft-env"
        ),
    }
}

/// Whether `fd` is a lasting descriptor of a [`RealEnv::with_fd_floor`], which its host program must not close.
pub fn is_kept_fd(fd: i32) -> bool {
    sys::kept::has(fd)
}

/// All of them, ascending.
pub fn kept_fds() -> Vec<i32> {
    sys::kept::all()
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealEnv {
    fd_floor: i32,
}

impl RealEnv {
    /// The operating system, with descriptors numbered as it likes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with every lasting descriptor (socket, shared memory, file) numbered `floor` or higher, so that
    /// it is out of the way of the program that the library is loaded into. When the process may not have numbers
    /// so high, they stay where the kernel put them.
    pub fn with_fd_floor(floor: i32) -> Self {
        Self { fd_floor: floor }
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
        // Keys are made of this: going on without randomness would be worse than ending.
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
            if left > AWAKE {
                if notify.wait(seen, Some(Nanos(left - AWAKE))).await {
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
        // A host program's signal handlers must not run on these small stacks, nor interrupt our calls.
        sys::without_signals(|| builder.spawn(move || block_on(body()))).map(drop)
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
        RealConn::connect(address, timeout, self.fd_floor)
    }

    async fn dir(&self, path: &Path) -> io::Result<RealDir> {
        RealDir::open(path, self.fd_floor)
    }
}

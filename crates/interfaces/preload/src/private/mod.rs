//! The private mount: what only the kernel can do with a file of Weft, such as shared writable mappings.
//!
//! ```text
//! mod      the root of the mount, and files opened through it
//! daemon   starting of the process that serves it
//! mapped   files with mappings by the kernel, and the bytes that go through their descriptors
//! ```
//!
//! The mount is in no directory: a process has it as a descriptor of its root. The first process of a user and cluster
//! that needs it starts the daemon, `weft private-mount`. The daemon ends when no process is connected and no file is open.

mod daemon;
pub mod mapped;

use crate::backend::backend;
use crate::errno::{Fail, Res};
use crate::lock::Lock;
use crate::{placeholder, sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use weft_client::HandleToken;
use weft_env::real::{RealEnv, RealFile, receive_descriptors};
use weft_wire::meta::OpenFlags;

/// Number of attempts to reach a daemon that ends.
const TRIES: u32 = 4;

/// Connection to the daemon of one user.
struct Connected {
    uid: u32,
    /// Connection, which keeps the daemon from ending.
    _socket: RealFile,
    root: Arc<RealFile>,
}

/// State of this process.
struct State {
    connected: Option<Connected>,
    /// User without a reachable daemon, and why. Each attempt may take seconds, so there is one.
    failed: Option<(u32, String)>,
}

static STATE: Lock<State> = Lock::new(State { connected: None, failed: None });

/// Resets the locks in a forked child, which shares its parent's connection.
pub fn after_fork_in_child() {
    // SAFETY: the holders do not exist in this process.
    unsafe { STATE.reset() };
    mapped::after_fork_in_child();
}

/// Takes over a descriptor, with a number out of the way of the program.
fn own(fd: OwnedFd) -> RealFile {
    RealEnv::with_fd_floor(placeholder::floor()).file(fd)
}

/// Returns the root directory of the mount, which is created at the first call. The error says why there is none; it is
/// that of the first attempt of this process.
pub fn root() -> Result<Arc<RealFile>, String> {
    let uid = sys::effective_user();
    let mut state = STATE.lock();
    if let Some(there) = state.connected.as_ref().filter(|there| there.uid == uid) {
        return Ok(Arc::clone(&there.root));
    }
    if let Some((_, why)) = state.failed.as_ref().filter(|(of, _)| *of == uid) {
        return Err(why.clone());
    }
    match reach(uid) {
        Ok(found) => {
            let root = Arc::clone(&found.root);
            state.connected = Some(found);
            Ok(root)
        }
        Err(why) => {
            state.failed = Some((uid, why.clone()));
            Err(why)
        }
    }
}

/// Whether a wait has ended without an answer.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Connects to the daemon of user `uid`, which is started if it does not run.
fn reach(uid: u32) -> Result<Connected, String> {
    let cluster = backend().map_err(|_| "no cluster is configured".to_owned())?.cluster_file();
    let name = daemon::socket_name(uid, &cluster);
    let mut why = String::new();
    for _ in 0..TRIES {
        let socket = match daemon::connect(&name, uid) {
            Ok(socket) => socket,
            Err(error) if is_late(&error) => return Err("its daemon does not answer".to_owned()),
            Err(_) => {
                daemon::start(&name, &cluster)?;
                continue;
            }
        };
        // A daemon that is about to end closes the connection instead.
        match receive_descriptors(socket.as_fd()) {
            Ok(fds) => {
                let root = fds.into_iter().next().ok_or_else(|| "the daemon sent no mount".to_owned())?;
                return Ok(Connected { uid, _socket: own(socket), root: Arc::new(own(root)) });
            }
            Err(error) if is_late(&error) => return Err("its daemon does not answer".to_owned()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Opens the file of `token` through the mount, for reading and writing as its open allows.
pub fn open(token: &[u8]) -> Result<RealFile, String> {
    let token = HandleToken::decode(token).ok_or("the file cannot be handed over")?;
    let OpenFlags { read, write, .. } = token.flags;
    let access = match (read, write) {
        (_, false) => libc::O_RDONLY,
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
    };
    let flags = OpenFlags { read, write, ..OpenFlags::default() };
    let name = HandleToken { flags, path: Vec::new(), ..token }.encode();
    let name = sys::c(format!(".weft:{}", crate::lifecycle::to_hex(&name)).as_bytes());
    for _ in 0..2 {
        let root = root()?;
        // SAFETY: a C string.
        match unsafe { sys::openat(root.as_raw_fd(), name.as_ptr(), access | libc::O_CLOEXEC, 0) } {
            // SAFETY: a new descriptor.
            Ok(fd) => return Ok(own(unsafe { OwnedFd::from_raw_fd(fd) })),
            // The daemon was killed.
            Err(libc::ENOTCONN | libc::ECONNABORTED | libc::ECONNREFUSED) => STATE.lock().connected = None,
            Err(number) => return Err(std::io::Error::from_raw_os_error(number).to_string()),
        }
    }
    Err("its daemon has ended".to_owned())
}

/// Writes a line with the reason why the kernel cannot serve the file at `path`, once, and returns `ENODEV`.
pub fn refusal(path: &[u8], what: &str, why: &str, remedy: &str) -> Fail {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        let path = String::from_utf8_lossy(path);
        sys::complain(&format!("{path}: {what}: no private mount: {why}; {remedy}"));
    });
    Fail::Errno(libc::ENODEV)
}

/// Result of operations through the kernel.
fn done(result: Result<i64, i32>) -> Res<usize> {
    Ok(result.map(|len| len as usize)?)
}

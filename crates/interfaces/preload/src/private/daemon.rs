//! Starting of, and connecting to, the daemon of the private mount.

use crate::{children, placeholder, sys};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Time for a daemon to become ready, in milliseconds.
const READY_MS: c_int = 20_000;
/// Time for a running daemon to accept a connection and to hand over the root, in seconds.
const ANSWER_S: libc::time_t = 10;
/// Variables of the program that the daemon gets, and all that begin with `WEFT_` except [`OWN`]. The daemon serves
/// other programs too, so it must not depend on the one that starts it.
const KEPT: [&[u8]; 9] = [
    b"HOME",
    b"LANG",
    b"LOGNAME",
    b"PATH",
    b"TMPDIR",
    b"USER",
    b"XDG_CONFIG_HOME",
    b"XDG_RUNTIME_DIR",
    b"XDG_STATE_HOME",
];
/// Variables that tell this library about the program it is loaded into.
const OWN: [&[u8]; 3] = [b"WEFT_CWD", b"WEFT_INHERIT", b"WEFT_TRACE"];
/// Line of a daemon that is ready to serve.
const READY: &[u8] = b"ready\n";

/// Returns the name of the abstract socket of a user and a cluster.
pub fn socket_name(uid: u32, cluster: &Path) -> String {
    let path = cluster.as_os_str().as_bytes();
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("weft-private-{uid}-{hash:016x}")
}

/// Connects to the daemon of user `uid`. Waits of the connection end after [`ANSWER_S`].
pub fn connect(name: &str, uid: u32) -> io::Result<OwnedFd> {
    let socket = open_socket()?;
    let mut address: libc::sockaddr_un =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let path = &mut address.sun_path[1..][..name.len()];
    path.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as c_char);
    // An abstract name has no end of its own: the length ends it.
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: reads as many bytes of the address.
    let connected =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len as libc::socklen_t) };
    if connected != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes one struct of this length.
    unsafe {
        let out = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, out, &raw mut len);
    }
    // Any user may have taken the abstract name first.
    if peer.uid == uid { Ok(socket) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Creates a socket whose waits are bounded.
fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let time = libc::timeval { tv_sec: ANSWER_S, tv_usec: 0 };
    let (value, len) = ((&raw const time).cast(), size_of::<libc::timeval>() as libc::socklen_t);
    // A full queue of connections makes `connect` wait as long as a send.
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: reads one struct of this length.
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
    }
    Ok(socket)
}

/// Returns the `weft` program that belongs to this library.
fn program() -> Option<PathBuf> {
    let library = crate::lifecycle::own_path()?;
    let dir = Path::new(std::ffi::OsStr::from_bytes(&library)).parent()?.to_owned();
    let places = [dir.join("weft"), dir.join("../bin/weft"), dir.join("../../bin/weft")];
    places.into_iter().find(|place| sys::may_execute(&sys::c(place.as_os_str().as_bytes())))
}

/// Starts the daemon, and waits until it serves. The error is its own.
pub fn start(name: &str, cluster: &Path) -> Result<(), String> {
    let program = program().ok_or("the weft program is not beside this library")?;
    let words = [
        program.as_os_str().as_bytes(),
        b"--cluster",
        cluster.as_os_str().as_bytes(),
        b"private-mount",
        name.as_bytes(),
    ];
    let words: Vec<CString> = words.into_iter().map(sys::c).collect();
    let argv: Vec<*const c_char> = pointers(&words);
    // The library itself must not be in the daemon.
    let environment = own_environment();
    let envp: Vec<*const c_char> = pointers(&environment);
    let mut pipe = [0; 2];
    // SAFETY: writes two numbers.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    // SAFETY: new descriptors.
    let [output, input] = pipe.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: the children make system calls only.
    let forked = unsafe { children::unseen_fork() };
    if forked == 0 {
        // Double fork: the daemon is not a child of the program, so that no program waits for it. SAFETY: as above.
        unsafe {
            if children::unseen_fork() != 0 {
                libc::_exit(0);
            }
            become_daemon(input.as_raw_fd(), &argv, &envp);
        }
    }
    if forked < 0 {
        return Err(io::Error::last_os_error().to_string());
    }
    drop(input);
    let _ = children::wait_unseen(forked);
    let (said, is_late) = all_of(&output);
    match said.trim() {
        _ if said.as_bytes() == READY => Ok(()),
        _ if is_late => Err(format!("its daemon was not ready after {} s", READY_MS / 1000)),
        "" => Err("its daemon ended without a message".to_owned()),
        other => Err(other.trim_start_matches("weft: ").to_owned()),
    }
}

fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Returns the variables that the daemon gets.
fn own_environment() -> Vec<CString> {
    let mut out = Vec::new();
    let mut at = crate::lifecycle::own_environment();
    // SAFETY: a null-ended array of C strings, which the program does not change meanwhile.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at);
            let name = entry.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
            let is_weft = name.starts_with(b"WEFT_") && !OWN.iter().any(|own| name.starts_with(own));
            if is_weft || KEPT.contains(&name) {
                out.push(entry.to_owned());
            }
            at = at.add(1);
        }
    }
    out
}

/// Reads what the daemon says until it is ready or has ended. Also returns true if it has not ended in time.
fn all_of(output: &OwnedFd) -> (String, bool) {
    let (mut said, mut is_late) = (Vec::new(), false);
    let mut buffer = [0u8; 1024];
    loop {
        let mut polled = libc::pollfd { fd: output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one struct.
        match unsafe { libc::poll(&raw mut polled, 1, READY_MS) } {
            -1 if crate::errno::get() == libc::EINTR => continue,
            -1 => break,
            0 => {
                is_late = true;
                break;
            }
            _ => {}
        }
        match sys::read(output.as_raw_fd(), &mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) => said.extend_from_slice(&buffer[..len]),
        }
        if said == READY {
            break;
        }
    }
    (String::from_utf8_lossy(&said).into_owned(), is_late)
}

/// Replaces the forked child by the daemon, with `output` as its standard output and error.
unsafe fn become_daemon(output: c_int, argv: &[*const c_char], envp: &[*const c_char]) -> ! {
    libc::setsid();
    for signal in 1..=64 {
        libc::signal(signal, libc::SIG_DFL);
    }
    let mut none: libc::sigset_t = std::mem::zeroed();
    libc::sigemptyset(&raw mut none);
    libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    sys::chdir(c"/");
    let kept = sys::fcntl(output, libc::F_DUPFD, placeholder::floor() as usize).unwrap_or(output);
    sys::close_all_but(&[kept]);
    let _ = sys::dup3(kept, 1, 0);
    let _ = sys::dup3(kept, 2, 0);
    sys::close(kept);
    sys::execve(argv[0], argv.as_ptr(), envp.as_ptr());
    libc::_exit(127);
}

//! Handing of the root to programs, until the mount is unused.

use super::PrivateMount;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use weft_env::real::send_descriptors;

/// Time between two checks whether the kernel has closed all files, in milliseconds.
const CHECK_MS: i32 = 10;
/// Time for the program that started the daemon to connect, in milliseconds.
const FIRST_MS: i32 = 10_000;

/// Hands the root to programs until the mount is unused.
pub fn serve(listener: &UnixListener, mounted: &PrivateMount) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut programs: Vec<UnixStream> = Vec::new();
    // The program that started this process connects first.
    let mut has_served = false;
    loop {
        let is_unused = has_served && programs.is_empty();
        if is_unused && mounted.is_unused() {
            return Ok(());
        }
        let wait_ms = match (has_served, is_unused) {
            (true, true) => CHECK_MS,
            (true, false) => -1,
            (false, _) => FIRST_MS,
        };
        let sockets = std::iter::once(listener.as_raw_fd()).chain(programs.iter().map(AsRawFd::as_raw_fd));
        let mut polled: Vec<libc::pollfd> =
            sockets.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array has this length.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, wait_ms) };
        has_served |= ready == 0;
        // A program sends nothing: whatever arrives is its end.
        let mut ended = polled[1..].iter().map(|one| one.revents != 0);
        programs.retain(|_| !ended.next().unwrap_or(false));
        if polled[0].revents != 0
            && let Ok((program, _)) = listener.accept()
            && is_of_this_user(&program)
            && send_descriptors(program.as_fd(), &[mounted.root().as_raw_fd()]).is_ok()
        {
            has_served = true;
            programs.push(program);
        }
    }
}

/// Whether the peer belongs to the user of this process.
fn is_of_this_user(program: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes one struct of this length.
    let done = unsafe {
        let out = (&raw mut peer).cast();
        libc::getsockopt(program.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, out, &raw mut len)
    };
    // SAFETY: the call takes no pointers.
    done == 0 && peer.uid == unsafe { libc::geteuid() }
}

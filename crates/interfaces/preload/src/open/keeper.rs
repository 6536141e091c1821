//! Keepers: processes that are forked to hold one lock, or to keep one file without a name open, for a description that
//! several processes share. See [`super::flocks`].

use super::flocks::{Description, EXCLUSIVE, Fd, KEPT, OPEN, PARENTS, WHOLE, range};
use crate::backend::LockSession;
use crate::children::{is_alone, real_fork, unseen_fork, wait_unseen};
use crate::{placeholder, sys};
use std::collections::BTreeSet;
use std::ffi::c_int;
use weft_wire::meta::{LockKind, LockSpace};

/// Interval at which a keeper sends a request to the metadata server, in seconds. A restarted server thereby learns of
/// the lock within its grace period (3 s).
const HEARTBEAT_S: i64 = 1;

/// Starts a keeper, which has `session` from then on, while the description of `fd` locks `byte`.
pub fn start(session: LockSession, of: &Description, fd: c_int, byte: u64) -> Result<(), &'static str> {
    let keeper = Fd(placeholder::again(fd).map_err(|_| "/proc is not mounted")?);
    let own_byte = of.first_byte() + byte;
    let kept = match byte {
        OPEN => Ok(()),
        _ => range(keeper.0, libc::F_OFD_SETLKW, libc::F_WRLCK, of.first_byte() + KEPT, 1),
    };
    if kept.and_then(|()| range(fd, libc::F_OFD_SETLK, libc::F_WRLCK, own_byte, 1)).is_err() {
        return Err("the kernel cannot lock ranges of memory files");
    }
    // With other threads the C library must put its own locks in order for the child. SAFETY: the children run code of this
    // library alone, with their own copies of its memory.
    let forked = unsafe { if is_alone() { unseen_fork() } else { real_fork() } };
    if forked == 0 {
        // The program may close files, and expect their locks and pipes to end, once this child has ended.
        sys::close_all_but(&[placeholder::internal(), vec![keeper.0]].concat());
        unmap_files();
        // Double fork: the keeper is not a child of the program, so that no program waits for it. SAFETY: as above.
        match unsafe { real_fork() } {
            0 => keep(session, of, keeper.0, byte),
            // SAFETY: ends this process at once.
            second => unsafe { libc::_exit(c_int::from(second < 0)) },
        }
    }
    if forked < 0 || !ended_well(forked) {
        let _ = range(fd, libc::F_OFD_SETLK, libc::F_UNLCK, own_byte, 1);
        return Err("no keeper process could be started");
    }
    session.leave();
    Ok(())
}

/// Waits for the intermediate child between this process and the keeper.
fn ended_well(child: libc::pid_t) -> bool {
    // If the process ignores SIGCHLD, the exit status is unknown.
    wait_unseen(child).is_none_or(|status| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

/// Removes the program's mappings of files, which would keep these files open, and their locks. Those of loaded code and of
/// the C library's locale stay. The library's own shared memory has no file, except that of the recorder.
fn unmap_files() {
    if crate::trace::is_on() {
        return;
    }
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let mapped = || maps.lines().filter_map(mapped_file);
    let code: BTreeSet<&str> = mapped().filter(|map| map.rights.contains('x')).map(|map| map.path).collect();
    for MappedFile { start, end, path, .. } in mapped() {
        let is_locale = ["/locale/", "/gconv/"].iter().any(|part| path.contains(part));
        if !code.contains(path) && !is_locale {
            // SAFETY: the keeper runs nothing of the program.
            unsafe { libc::munmap(start as *mut libc::c_void, end - start) };
        }
    }
}

/// Line of `/proc/self/maps` about a file.
struct MappedFile<'a> {
    start: usize,
    end: usize,
    rights: &'a str,
    path: &'a str,
}

fn mapped_file(line: &str) -> Option<MappedFile<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights, path) = (words.next()?, words.next()?, words.nth(3)?);
    let is_file = path.starts_with('/') && !path.starts_with("/memfd:") && !path.starts_with("/dev/zero");
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let file = MappedFile { start: number(start)?, end: number(end)?, rights, path };
    is_file.then_some(file)
}

extern "C" fn wake(_signal: c_int) {}

/// Runs the keeper: holds the lock, or the open file, until no descriptor of the description is left.
fn keep(session: LockSession, of: &Description, keeper: c_int, byte: u64) -> ! {
    let name = if byte == OPEN { c"weft-file" } else { c"weft-lock" };
    // SAFETY: plain calls on own values, in a process with one thread that runs nothing else.
    unsafe {
        libc::setsid();
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_SETMASK, &action.sa_mask, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
    // Other locks have their own keepers.
    for other in std::mem::take(&mut *PARENTS.lock()) {
        other.session.leave();
    }
    let beat = libc::timeval { tv_sec: HEARTBEAT_S, tv_usec: 0 };
    let beats = libc::itimerval { it_interval: beat, it_value: beat };
    sys::set_timer(&beats);
    let (first, len) =
        if byte == OPEN { (of.first_byte() + OPEN, 1) } else { (of.first_byte() + EXCLUSIVE, 2) };
    while let Err(libc::EINTR) = sys::lock_range(keeper, libc::F_OFD_SETLKW, libc::F_WRLCK, first, len) {
        let _ = session.file().test_lock(true, LockKind::Shared, WHOLE);
    }
    if byte != OPEN {
        let _ = session.file().lock(LockSpace::Flock, true, None, WHOLE, None);
    }
    // The service need not expect further writes by this open file.
    drop(session);
    // SAFETY: ends this process; the connection closes with it.
    unsafe { libc::_exit(0) }
}

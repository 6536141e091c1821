//! Lock requests of the kernel: family, owner and range.
//!
//! | question | answer |
//! | --- | --- |
//! | `flock` or record lock? | a flag of the request, which the FUSE library (fuser 0.18) does not pass on. It is read from the memory of the request |
//! | record lock of a process or of an open file (`F_OFD_SETLK`)? | the request does not say. The command of the caller's system call does, in /proc: always for a root mount, for others as far as the system permits |
//!
//! A record lock whose owner is unknown counts as one of a process, and ends with the open file too.

use fuser::Request;
use weft_wire::meta::{LockKind, LockRange};

/// End of a lock in the kernel's format that extends to the end of the file, however long.
pub const KERNEL_END: u64 = i64::MAX as u64;
/// Length of the head of a request (`fuse_in_header`).
const HEAD_LEN: usize = 40;
/// Length of a lock request behind the head (`fuse_lk_in`).
const LOCK_LEN: usize = 48;
/// Flag of a request for `flock` (`FUSE_LK_FLOCK`).
const OF_FLOCK: u32 = 1;
/// Commands of `fcntl` for locks of open files.
const OF_OPEN_FILES: std::ops::RangeInclusive<u64> = libc::F_OFD_GETLK as u64..=libc::F_OFD_SETLKW as u64;
/// Maximum time for which a caller that has sent its request may keep running. Only a debugger or a stopped machine delays it.
const ASLEEP_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Family and owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `flock`, which belongs to the open file.
    Flock,
    /// Record lock of the open file.
    OpenFile,
    /// Record lock of a process, or of an unknown owner.
    Process,
}

/// Lock request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct LockCall {
    /// Family and owner.
    pub family: Family,
    /// The kernel's number for the owner.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// Thread of the caller.
    pub thread: u32,
    /// Process of the caller; 0 for a release.
    pub process: u32,
    /// Whether to wait.
    pub wait: bool,
}

impl LockCall {
    /// Determines the family of a request that has these other fields.
    pub fn of(self, request: &Request, fh: u64) -> Self {
        let family = match self.is_flock(request, fh) {
            true => Family::Flock,
            false if is_of_open_file(self.thread) => Family::OpenFile,
            false => Family::Process,
        };
        Self { family, ..self }
    }

    /// Whether the flag of `flock` is set.
    fn is_flock(&self, request: &Request, fh: u64) -> bool {
        // The library passes a reference to the head of the request, behind which the rest lies in the same buffer.
        let at = std::ptr::from_ref(request).cast::<u8>().wrapping_add(HEAD_LEN);
        let Some(rest) = own_memory(at) else { return false };
        self.flags_in(&rest, fh).is_some_and(|flags| flags & OF_FLOCK != 0)
    }

    /// Flags in the rest of the request, if that is indeed this request.
    fn flags_in(&self, rest: &[u8; LOCK_LEN], fh: u64) -> Option<u32> {
        let long = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let found = (long(0), long(8), long(16), long(24), short(32));
        (found == (fh, self.owner, self.start, self.end, self.kind as u32)).then(|| short(40))
    }

    /// Range in the form of the metadata service.
    pub fn range(&self) -> LockRange {
        let end = if self.end >= KERNEL_END { u64::MAX } else { self.end + 1 };
        LockRange { start: self.start, end }
    }

    /// Kind of the lock; `None` for a release.
    pub fn lock_kind(&self) -> Option<LockKind> {
        match self.kind {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            _ => None,
        }
    }
}

/// Copies memory of this process. The system call checks the addresses.
fn own_memory(at: *const u8) -> Option<[u8; LOCK_LEN]> {
    let mut copy = [0; LOCK_LEN];
    let to = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: LOCK_LEN };
    let from = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: LOCK_LEN };
    // SAFETY: the call writes at most `LOCK_LEN` bytes to `copy`, and checks the source.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    (got == LOCK_LEN as isize).then_some(copy)
}

/// Whether a thread waits in `fcntl` for a lock of its open file.
fn is_of_open_file(thread: u32) -> bool {
    let until = std::time::Instant::now() + ASLEEP_WITHIN;
    loop {
        let Ok(line) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else { return false };
        match command_in(&line) {
            Ok(command) => return OF_OPEN_FILES.contains(&command),
            // The thread has sent its request, and falls asleep soon.
            Err(true) if std::time::Instant::now() < until => std::thread::yield_now(),
            Err(_) => return false,
        }
    }
}

/// Second argument of the system call in a line of /proc. The error says whether the thread still runs.
fn command_in(line: &str) -> Result<u64, bool> {
    let mut words = line.split_whitespace();
    let number = words.next().unwrap_or_default();
    let argument = words.nth(1).and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    argument.filter(|_| number.parse::<u32>().is_ok()).ok_or(number == "running")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start: u64, end: u64) -> LockCall {
        let (owner, kind) = (1, libc::F_WRLCK);
        LockCall { family: Family::Process, owner, start, end, kind, thread: 1, process: 1, wait: false }
    }

    #[test]
    fn ranges_of_the_kernel_end_with_their_last_byte() {
        assert_eq!(call(10, 19).range(), LockRange { start: 10, end: 20 });
        assert_eq!(call(10, KERNEL_END).range(), LockRange { start: 10, end: u64::MAX });
    }

    #[test]
    fn flags_count_only_in_the_same_request() {
        let mut rest = [0; LOCK_LEN];
        for (at, value) in [(0, 7u64), (8, 1), (16, 5), (24, 9)] {
            rest[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        rest[32..36].copy_from_slice(&(libc::F_WRLCK as u32).to_ne_bytes());
        rest[40..44].copy_from_slice(&OF_FLOCK.to_ne_bytes());
        assert_eq!(call(5, 9).flags_in(&rest, 7), Some(OF_FLOCK));
        assert_eq!(call(5, 9).flags_in(&rest, 8), None, "another open file");
        assert_eq!(call(5, 8).flags_in(&rest, 7), None, "another range");
        assert_eq!(own_memory(rest.as_ptr()), Some(rest));
        assert_eq!(own_memory(std::ptr::dangling()), None);
    }

    #[test]
    fn the_command_tells_locks_of_open_files() {
        let line = |command| format!("72 0x3 {command:#x} 0x7ffd0 0x0 0x0 0x0 0x7ffc0 0x7f0\n");
        let is_of_open_file = |command| OF_OPEN_FILES.contains(&command_in(&line(command)).expect("asleep"));
        assert!(is_of_open_file(libc::F_OFD_SETLK) && is_of_open_file(libc::F_OFD_SETLKW));
        assert!(!is_of_open_file(libc::F_SETLK) && !is_of_open_file(libc::F_SETLKW));
        assert_eq!(command_in("running\n"), Err(true));
        assert_eq!(command_in("-1 0x7ffc0 0x7f0\n"), Err(false), "asleep outside of a system call");
    }
}

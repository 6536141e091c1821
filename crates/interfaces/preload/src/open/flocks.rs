//! `flock`: a lock that belongs to an open file description, which several processes may share.
//!
//! While only this process has the description, a dedicated session with the metadata server holds its lock. Before
//! other processes can share the description (fork, exec), the session moves to a *keeper*: a process forked only for
//! this lock ([`keeper`]). The keeper ends the lock when the last descriptor of the description is closed. If the
//! description is shared already, its lock goes to a keeper at once.
//!
//! A keeper also keeps a file without a name open, see `nameless`.
//!
//! The kernel notifies the keeper of the last close. Each description has eight bytes in the placeholder's memory file, of
//! which six are used:
//!
//! | byte | locked by | meaning |
//! | --- | --- | --- |
//! | 0 | the description | it has an exclusive lock |
//! | 1 | the description | it has a shared lock |
//! | 2 | the keeper | the lock has not been returned yet |
//! | 3 | a process | it is acquiring a lock |
//! | 4 | the description | a keeper keeps the file open |
//! | 5 | a process | it uses the position ([`super::turn`]) |
//!
//! The description holds byte 0, 1 or 4 as an open-file-description lock, which the kernel releases with the last
//! descriptor. The keeper waits for that byte through another description of the same memory file.

use super::{Open, keeper};
use crate::backend::LockSession;
use crate::errno::{Fail, Res};
use crate::hooks::waiting;
use crate::{placeholder, sys, table};
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weft_wire::meta::{LockKind, LockRange, LockSpace};

/// Byte that the description locks while it has an exclusive lock.
pub const EXCLUSIVE: u64 = 0;
/// Byte that the description locks while it has a shared lock.
const SHARED: u64 = 1;
/// Byte that the keeper locks until it has returned the lock.
pub const KEPT: u64 = 2;
/// Byte that a process locks while it acquires a lock.
const ACQUIRING: u64 = 3;
/// Byte that the description locks while a keeper keeps its file open.
pub const OPEN: u64 = 4;
/// Byte that a process locks while it uses the position of the description.
pub const TURN: u64 = 5;
/// Number of bytes of each description.
pub const BYTES: u64 = 8;

pub const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };

/// Number of forks and execs so far. A description opened before the last one may be shared.
static SHARES: AtomicU32 = AtomicU32::new(0);
/// Whether a description of this process ever had a lock in its own session.
static ANY_OWN: AtomicBool = AtomicBool::new(false);

/// Lock of a description that no other process has.
pub struct OwnLock {
    pub session: LockSession,
    kind: LockKind,
}

/// Lock state of a description.
pub struct Description {
    /// First of its bytes in the memory file.
    first: u64,
    /// Process that opened it; 0 if that was another program image.
    opener_pid: u32,
    /// Value of [`SHARES`] when it was opened.
    opened_at: Option<u32>,
    own: crate::lock::Lock<Option<OwnLock>>,
    has_own: AtomicBool,
}

impl Description {
    /// Creates the state of a file that is opened now.
    pub fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed) & 0xff_ffff;
        let opener_pid = std::process::id();
        let first = (u64::from(opener_pid) << 24 | number) * BYTES;
        Self { opener_pid, opened_at: Some(SHARES.load(Ordering::SeqCst)), ..Self::inherited(first) }
    }

    /// Creates the state of a file that another program image opened.
    pub fn inherited(first: u64) -> Self {
        let own = crate::lock::Lock::new(None);
        Self { first, opener_pid: 0, opened_at: None, own, has_own: AtomicBool::new(false) }
    }

    /// Returns the argument of [`Description::inherited`] for another program image.
    pub fn first_byte(&self) -> u64 {
        self.first
    }

    /// Whether this process inherited the description.
    pub fn is_inherited(&self) -> bool {
        self.opener_pid != std::process::id()
    }

    /// Returns the byte that a process locks while it uses the position of the description.
    pub fn turn_byte(&self) -> u64 {
        self.first + TURN
    }

    /// Whether another process may also have the description.
    pub fn is_shared(&self) -> bool {
        self.opened_at != Some(SHARES.load(Ordering::SeqCst))
    }

    fn take(&self) -> Option<OwnLock> {
        if !self.has_own.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.own.lock().take()
    }

    fn put(&self, own: OwnLock) {
        *self.own.lock() = Some(own);
        self.has_own.store(true, Ordering::SeqCst);
        ANY_OWN.store(true, Ordering::SeqCst);
    }

    /// Releases the lock of this process, if it has one.
    pub fn end(&self) {
        if let Some(own) = self.take() {
            // The end of the session, which also ends the lock, reaches the server after this close.
            let _ = own.session.file().lock(LockSpace::Flock, true, None, WHOLE, None);
        }
    }

    /// Fails if the lock was lost while the metadata server was unreachable.
    #[inline]
    pub fn check(&self) -> Res<()> {
        if self.has_own.load(Ordering::Relaxed) { self.check_own() } else { Ok(()) }
    }

    #[cold]
    fn check_own(&self) -> Res<()> {
        let own = self.own.lock();
        match own.as_ref().map(|own| own.session.file().read_at(&mut [], 0)) {
            Some(Err(fail)) if fail.errno() == libc::EIO => Err(fail),
            _ => Ok(()),
        }
    }

    /// Prepares a forked child: locks of the parent stay with the parent. The copies of its connections stay open, so
    /// that a child of a fork that no hook saw (`daemon`) shares the lock.
    ///
    /// # Safety
    /// See [`crate::lock::Lock::reset`].
    pub unsafe fn after_fork_in_child(&self) {
        // SAFETY: the holders do not exist in this process.
        unsafe {
            self.own.reset();
            PARENTS.reset();
        }
        if let Some(own) = self.take() {
            PARENTS.lock().push(own);
        }
    }
}

/// Locks of the parent's descriptions, of which this process has copies of the connections. Never dropped, because that
/// would release them.
pub static PARENTS: crate::lock::Lock<Vec<OwnLock>> = crate::lock::Lock::new(Vec::new());

/// In a forked child, every description may be shared.
pub fn after_fork_in_child() {
    SHARES.fetch_add(1, Ordering::SeqCst);
}

/// Descriptor of the library, closed when dropped.
pub struct Fd(pub c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// Turn to acquire a lock for a description, which ends when dropped.
struct Acquiring {
    probe: Fd,
    byte: u64,
}

impl Acquiring {
    fn begin(fd: c_int, of: &Description, wait: bool) -> Res<Self> {
        let probe = Fd(placeholder::again(fd).map_err(|_| refusal("/proc is not mounted"))?);
        let byte = of.first + ACQUIRING;
        one_byte(probe.0, byte, wait)?;
        Ok(Self { probe, byte })
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        // A keeper that was started meanwhile has a copy of the descriptor until it closes what it does not need.
        let _ = range(self.probe.0, libc::F_OFD_SETLK, libc::F_UNLCK, self.byte, 1);
    }
}

/// Implements `flock(2)` for descriptor `fd` of `open`; `None` releases the lock.
pub fn flock(open: &Open, fd: c_int, kind: Option<LockKind>, wait: bool) -> Res<()> {
    let of = &open.description;
    if let Some(mut own) = of.take() {
        let Some(kind) = kind else {
            return own.session.file().lock(LockSpace::Flock, true, None, WHOLE, None);
        };
        let locked =
            waiting(wait, |stop| own.session.file().lock(LockSpace::Flock, true, Some(kind), WHOLE, stop));
        // A conversion that failed has lost the lock.
        if locked.is_ok() {
            own.kind = kind;
            of.put(own);
        }
        return locked;
    }
    if !of.is_shared() {
        let Some(kind) = kind else { return Ok(()) };
        let own = acquire(open, kind, wait)?;
        if !of.is_shared() {
            of.put(own);
            return Ok(());
        }
        return hand_over(own, of, fd);
    }
    let turn = Acquiring::begin(fd, of, wait)?;
    let probe = &turn.probe;
    match kept(probe.0, of)? {
        None if kind.is_none() => return Ok(()),
        None => {}
        // A keeper that was killed has lost the lock.
        Some(have) if Some(have) == kind && sys::is_range_locked(probe.0, of.first + KEPT, 1)? => {
            return Ok(());
        }
        Some(_) => {
            range(fd, libc::F_OFD_SETLK, libc::F_UNLCK, of.first + EXCLUSIVE, 2)?;
            // The keeper has returned the lock when its byte is free.
            range(probe.0, libc::F_OFD_SETLKW, libc::F_WRLCK, of.first + KEPT, 1)?;
            range(probe.0, libc::F_OFD_SETLK, libc::F_UNLCK, of.first + KEPT, 1)?;
        }
    }
    let Some(kind) = kind else { return Ok(()) };
    hand_over(acquire(open, kind, wait)?, of, fd)
}

fn acquire(open: &Open, kind: LockKind, wait: bool) -> Res<OwnLock> {
    let token = open.token().ok_or(libc::EBADF)?;
    let session = open.session()?.lock_session(&token, &open.path())?;
    waiting(wait, |stop| session.file().lock(LockSpace::Flock, true, Some(kind), WHOLE, stop))?;
    Ok(OwnLock { session, kind })
}

/// Returns the lock that a keeper holds for the description.
fn kept(probe: c_int, of: &Description) -> Res<Option<LockKind>> {
    for (byte, kind) in [(EXCLUSIVE, LockKind::Exclusive), (SHARED, LockKind::Shared)] {
        if sys::is_range_locked(probe, of.first + byte, 1)? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// Locks bytes of the memory file with a kernel lock that belongs to the description of `fd`.
pub fn range(fd: c_int, command: c_int, kind: c_int, start: u64, len: u64) -> Res<()> {
    Ok(sys::lock_range(fd, command, kind, start, len)?)
}

fn one_byte(fd: c_int, at: u64, wait: bool) -> Res<()> {
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    range(fd, command, libc::F_WRLCK, at, 1)
}

/// Returns `ENOLCK`, and writes the reason to standard error once.
fn refusal(why: &str) -> Fail {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let remedy = "open the file in the process that locks it, or use `weft mount`";
        sys::complain(&format!(
            "flock: the lock cannot be held for all processes that share the file: {why}; {remedy}"
        ));
    });
    Fail::Errno(libc::ENOLCK)
}

/// Moves locks to keepers, before another process or program image can share their descriptions.
pub fn before_sharing() {
    SHARES.fetch_add(1, Ordering::SeqCst);
    super::nameless::keep_removed();
    if crate::guard::inside() {
        return;
    }
    if crate::over::is_on() {
        // Children find the bytes of files of the host by this descriptor.
        let _ = placeholder::turns();
    }
    if !ANY_OWN.load(Ordering::SeqCst) {
        return;
    }
    let _ = crate::serve::inside(|| {
        for fd in table::all(0, u32::MAX) {
            let Some(open) = table::get(fd) else { continue };
            if let Some(own) = open.description.take()
                && hand_over(own, &open.description, fd).is_err()
            {
                sys::complain("flock: the lock is released, because no keeper process could be started");
            }
        }
        Ok(())
    });
}

/// Moves the session of a lock to a keeper.
fn hand_over(own: OwnLock, of: &Description, fd: c_int) -> Res<()> {
    let byte = if own.kind == LockKind::Exclusive { EXCLUSIVE } else { SHARED };
    keeper::start(own.session, of, fd, byte).map_err(refusal)
}

/// Starts a keeper that keeps the file of `open` open until no process has the description of `fd`. Does nothing if
/// there is one.
pub fn keep_open(open: &Open, fd: c_int) -> Res<()> {
    let of = &open.description;
    let failed = |_| Fail::Errno(libc::ENOLCK);
    let probe = Fd(placeholder::again(fd)?);
    if sys::is_range_locked(probe.0, of.first + OPEN, 1)? {
        return Ok(());
    }
    let session = open.session()?.lock_session(&open.token().ok_or(libc::EBADF)?, &open.path())?;
    keeper::start(session, of, fd, OPEN).map_err(failed)
}

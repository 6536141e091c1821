//! Byte-range locks, owned by the open file.

use crate::args;
use crate::fail::{Fail, Res, exported};
use crate::file::{File, file};
use libc::off_t;
use std::ffi::c_int;
use std::time::{Duration, Instant};
use weft_client::{Error, LockKind, LockOwner, LockRange, LockSpace, Wait};
use weft_env::real::block_on;

const SHARED: c_int = 0;
const EXCLUSIVE: c_int = 1;

/// `weft_lock_t`.
#[repr(C)]
pub struct Held {
    kind: c_int,
    pid: u32,
    start: off_t,
    len: off_t,
}

fn kind(number: c_int) -> Res<LockKind> {
    match number {
        SHARED => Ok(LockKind::Shared),
        EXCLUSIVE => Ok(LockKind::Exclusive),
        _ => Err(Fail::argument("a lock is WEFT_LOCK_SHARED or WEFT_LOCK_EXCLUSIVE")),
    }
}

/// Returns the range of `len` bytes from `start`; with `len` 0, to the end of the file however long.
fn range(start: off_t, len: off_t) -> Res<LockRange> {
    let (start, len) = (args::unsigned(start, "the start")?, args::unsigned(len, "the length")?);
    let end = if len == 0 { u64::MAX } else { start + len };
    Ok(LockRange { start, end })
}

exported! {
    fn weft_lock(file: *const File, kind: c_int, start: off_t, len: off_t, timeout_ms: c_int) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let open = unsafe { self::file(file)? }.weft()?;
        let (kind, range) = (self::kind(kind)?, range(start, len)?);
        let end = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        let mut over = || end.is_some_and(|end| Instant::now() >= end);
        let wait = if timeout_ms == 0 { Wait::No } else { Wait::Until(&mut over) };
        match block_on(open.lock(LockSpace::Record, LockOwner::Handle(open.handle()), kind, range, wait)) {
            Err(Error::Interrupted) => Err(Fail::new(libc::EAGAIN, "another owner held the lock for too long")),
            result => Ok(result.map(|()| 0)?),
        }
    }

    fn weft_unlock(file: *const File, start: off_t, len: off_t) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let open = unsafe { self::file(file)? }.weft()?;
        let owner = LockOwner::Handle(open.handle());
        block_on(open.unlock(LockSpace::Record, owner, range(start, len)?))?;
        Ok(0)
    }

    fn weft_test_lock(file: *const File, kind: c_int, start: off_t, len: off_t, held: *mut Held) -> c_int | -1; {
        // SAFETY: a pointer of the caller.
        let open = unsafe { self::file(file)? }.weft()?;
        let (kind, range) = (self::kind(kind)?, range(start, len)?);
        let owner = LockOwner::Handle(open.handle());
        let Some(found) = block_on(open.test_lock(LockSpace::Record, owner, kind, range))? else { return Ok(0) };
        if !held.is_null() {
            let signed = |number: u64| off_t::try_from(number).unwrap_or(off_t::MAX);
            let len = match found.range.end {
                u64::MAX => 0,
                end => signed(end.saturating_sub(found.range.start)),
            };
            let kind = if found.kind == LockKind::Shared { SHARED } else { EXCLUSIVE };
            let value = Held { kind, pid: found.pid, start: signed(found.range.start), len };
            // SAFETY: as above.
            unsafe { args::put(held, value, "the lock pointer")? };
        }
        Ok(1)
    }
}

//! `splice` between a Weft file and a pipe. The kernel decides how much a pipe takes or gives, and whether the call
//! waits: the bytes go through a memory file.

use super::transfer::{Side, Source, open_of};
use crate::errno::Res;
use crate::open::{Open, settle};
use crate::serve::answer;
use crate::trace::posix;
use crate::{sys, table};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use std::io::IoSlice;
use std::sync::Arc;

/// Number of bytes of one call, the usual capacity of a pipe.
const LEN_MAX: usize = 64 << 10;
const FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

hook! { [splice] (from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint)
    -> ssize_t {
    if crate::guard::inside() {
        return real!(splice: fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t)(
            from, from_at, to, to_at, len, flags,
        );
    }
    let len = len.min(LEN_MAX);
    match (table::is_ours(from), table::is_ours(to)) {
        (false, false) => None,
        (true, true) => Some(answer(|| Err(libc::EINVAL.into()))),
        (true, false) => Some(answer(|| to_pipe((from, from_at), (to, to_at), len, flags))),
        (false, true) => Some(answer(|| from_pipe((from, from_at), (to, to_at), len, flags))),
    }
} trace |start, done| { posix::copied(start, (from, from_at), (to, to_at), done) } }

/// Refuses what is no pipe, and an offset for one.
fn check(pipe: c_int, at: *mut off_t, flags: c_uint) -> Res<()> {
    if flags & !FLAGS != 0 {
        return Err(libc::EINVAL.into());
    }
    let kind = sys::fstatat(pipe, c"", libc::AT_EMPTY_PATH)?.st_mode & libc::S_IFMT;
    match kind {
        libc::S_IFIFO if at.is_null() => Ok(()),
        libc::S_IFIFO => Err(libc::ESPIPE.into()),
        _ => Err(libc::EINVAL.into()),
    }
}

/// Memory file that holds the bytes of a call. Its pages may stay in the pipe.
struct Bytes(c_int);

impl Bytes {
    fn new() -> Res<Self> {
        Ok(Self(sys::memfd(c"weft splice", libc::MFD_CLOEXEC)?))
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

unsafe fn to_pipe(
    from: (c_int, *mut off_t),
    to: (c_int, *mut off_t),
    len: usize,
    flags: c_uint,
) -> Res<ssize_t> {
    check(to.0, to.1, flags)?;
    let mut source = Source::new(from.0, from.1)?;
    let bytes = Bytes::new()?;
    let (_, moved) = source.offer(&mut vec![0u8; len], |read| {
        sys::write(bytes.0, read)?;
        sys::splice((bytes.0, Some(0)), to.0, read.len(), flags)
    })?;
    Ok(moved as ssize_t)
}

unsafe fn from_pipe(
    from: (c_int, *mut off_t),
    to: (c_int, *mut off_t),
    len: usize,
    flags: c_uint,
) -> Res<ssize_t> {
    check(from.0, from.1, flags)?;
    settle()?;
    let sink: Arc<Open> = open_of(to.0)?;
    sink.may(true)?;
    if sink.flags() & libc::O_APPEND != 0 {
        return Err(libc::EINVAL.into());
    }
    // Wait for the pipe before the turn, which a writer of the pipe may need.
    let bytes = Bytes::new()?;
    let got = sys::splice((from.0, None), bytes.0, len, flags)?;
    let _turn = to.1.is_null().then(|| sink.take_turn(to.0));
    let side = Side::new(to.0, to.1)?;
    let mut buffer = vec![0u8; got];
    let got = sys::pread(bytes.0, &mut buffer, 0)?;
    let mut done = 0;
    while done < got {
        match sink.write_at(&[IoSlice::new(&buffer[done..got])], side.at + done as i64) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(fail) if done == 0 => return Err(fail),
            Err(_) => break,
        }
    }
    side.advance(done)?;
    Ok(done as ssize_t)
}

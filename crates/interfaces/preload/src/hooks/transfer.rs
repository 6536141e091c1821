//! Calls that move bytes between two files inside the kernel. `copy_file_range` across the prefix fails with the error that
//! makes the caller copy the bytes itself. `sendfile` is served, because many callers have no alternative.

use crate::errno::{self, Res};
use crate::open::{self, Open, settle};
use crate::serve::answer;
use crate::trace::posix;
use crate::{memory, sys, table};
use libc::{c_int, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

fn refuse(errno: c_int) -> ssize_t {
    errno::set(errno);
    -1
}

hook! { [copy_file_range] (
    from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: libc::c_uint,
) -> ssize_t {
    match (table::is_ours(from), table::is_ours(to)) {
        (false, false) => None,
        (true, true) => Some(copy((from, from_at), (to, to_at), len, flags)),
        (ours, _) if sys::fcntl(if ours { to } else { from }, libc::F_GETFD, 0).is_err() => Some(refuse(libc::EBADF)),
        // Callers know this error from copies between file systems and continue with read and write.
        _ => Some(refuse(libc::EXDEV)),
    }
} trace |start, done| { posix::copied(start, (from, from_at), (to, to_at), done) } }

/// Offset of one side of a transfer: in memory of the program, or the position of the descriptor.
pub struct Side {
    fd: c_int,
    given: *mut off_t,
    pub at: i64,
}

impl Side {
    /// Takes the offset. The caller has the turn at the description if it is the position.
    pub unsafe fn new(fd: c_int, given: *mut off_t) -> Res<Self> {
        let side = Self::unchecked(fd, given)?;
        if side.at < 0 { Err(libc::EINVAL.into()) } else { Ok(side) }
    }

    /// Takes the offset, which may be negative.
    unsafe fn unchecked(fd: c_int, given: *mut off_t) -> Res<Self> {
        let at = if given.is_null() { sys::lseek(fd, 0, libc::SEEK_CUR)? } else { memory::load(given)? };
        Ok(Self { fd, given, at })
    }

    /// Moves the offset behind `done` bytes.
    pub unsafe fn advance(&self, done: usize) -> Res<()> {
        let to = self.at + done as i64;
        match self.given.is_null() {
            true if done == 0 => Ok(()),
            true => Ok(sys::lseek(self.fd, to, libc::SEEK_SET).map(drop)?),
            false => memory::store(self.given, to),
        }
    }
}

/// Returns the open file of a registered descriptor.
pub fn open_of(fd: c_int) -> Res<Arc<Open>> {
    Ok(Arc::clone(&*table::get(fd).ok_or(libc::EBADF)?))
}

/// Copies between two Weft files through a buffer, at most as much as one Linux call.
unsafe fn copy(
    (from, from_at): (c_int, *mut off_t),
    (to, to_at): (c_int, *mut off_t),
    len: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    const CHUNK: usize = 4 << 20;
    answer(|| {
        let (source, sink) = (open_of(from)?, open_of(to)?);
        // The checks of Linux, in its order.
        source.is_opened()?;
        sink.is_opened()?;
        for given in [from_at, to_at] {
            if !given.is_null() {
                memory::load(given)?;
            }
        }
        if flags != 0 {
            return Err(libc::EINVAL.into());
        }
        if source.is_directory() || sink.is_directory() {
            return Err(libc::EISDIR.into());
        }
        source.has_mode(false)?;
        sink.has_mode(true)?;
        if sink.flags() & libc::O_APPEND != 0 {
            return Err(libc::EBADF.into());
        }
        settle()?;
        let _turns = open::take_turns((&source, from), (&sink, to));
        let (from, to) = (Side::unchecked(from, from_at)?, Side::unchecked(to, to_at)?);
        if source.is_host() != sink.is_host() {
            return Err(libc::EXDEV.into());
        }
        if [from.at, to.at].iter().any(|&at| (at as u64).checked_add(len as u64).is_none()) {
            return Err(libc::EOVERFLOW.into());
        }
        if to.at == i64::MAX {
            return Err(libc::EFBIG.into());
        }
        if from.at < 0 || to.at < 0 {
            return Err(libc::EINVAL.into());
        }
        // Nothing behind the end of the source is copied.
        let left = source.stat()?.st_size.saturating_sub(from.at).max(0);
        let len = len.min(CHUNK).min(left as usize);
        let overlap = (from.at - to.at).unsigned_abs() < len as u64;
        if overlap && source.is_same_file(&sink)? {
            return Err(libc::EINVAL.into());
        }
        let mut buffer = vec![0u8; len];
        let got = source.read_at(&mut [IoSliceMut::new(&mut buffer)], from.at)?;
        let put = if got > 0 { sink.write_at(&[IoSlice::new(&buffer[..got])], to.at)? } else { 0 };
        from.advance(put)?;
        to.advance(put)?;
        Ok(put as ssize_t)
    })
}

hook! { [tee] (from: c_int, _to: c_int, _len: size_t, _flags: libc::c_uint) -> ssize_t {
    table::is_ours(from).then(|| refuse(libc::EINVAL))
} }
hook! { [vmsplice] (pipe: c_int, _parts: *const libc::iovec, _count: size_t, _flags: libc::c_uint) -> ssize_t {
    table::is_ours(pipe).then(|| refuse(libc::EBADF))
} }

hook! { [sendfile, sendfile64] (to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if crate::guard::inside() {
        None
    } else if table::is_ours(to) {
        Some(answer(|| receive(to, from, at, len)))
    } else if table::is_ours(from) {
        Some(answer(|| send(to, from, at, len)))
    } else {
        None
    }
} trace |start, done| { posix::copied(start, (from, at), (to, std::ptr::null_mut()), done) } }

/// Number of bytes that `sendfile` holds in memory.
const CHUNK: usize = 1 << 20;
/// Maximum number of bytes of one call of Linux.
const CALL_MAX: usize = 0x7fff_f000;

/// Moves up to `len` bytes in pieces: `piece` gets the number of bytes before it and the most that it may move, and
/// returns how many it moved and whether more may follow. An error after the first byte ends the call.
fn in_pieces(len: size_t, mut piece: impl FnMut(usize, &mut [u8]) -> Res<(usize, bool)>) -> Res<usize> {
    let len = len.min(CALL_MAX);
    let mut buffer = vec![0u8; len.min(CHUNK)];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(buffer.len());
        match piece(done, &mut buffer[..want]) {
            Ok((moved, more)) => {
                done += moved;
                if !more {
                    break;
                }
            }
            Err(fail) if done == 0 => return Err(fail),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Source of a transfer to a foreign descriptor, which may block. The turn at the position ends before, because a fork
/// waits for it; bytes that were not accepted are given back.
pub struct Source {
    open: Arc<Open>,
    side: Side,
}

impl Source {
    pub unsafe fn new(fd: c_int, at: *mut off_t) -> Res<Self> {
        settle()?;
        let open = open_of(fd)?;
        open.has_mode(false)?;
        Ok(Self { open, side: Side::new(fd, at)? })
    }

    /// Reads bytes, and lets `accept` take them. Returns the number of bytes that were read, and that of those taken.
    pub unsafe fn offer(
        &mut self,
        buffer: &mut [u8],
        accept: impl FnOnce(&[u8]) -> Result<usize, i32>,
    ) -> Res<(usize, usize)> {
        if self.open.is_directory() {
            return Err(libc::EINVAL.into());
        }
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.side.fd;
        let got = match self.side.given.is_null() {
            true => self.open.read(fd, &mut parts)?,
            false => self.open.read_at(&mut parts, self.side.at)?,
        };
        if got == 0 {
            return Ok((0, 0));
        }
        let taken = accept(&buffer[..got]);
        let moved = *taken.as_ref().unwrap_or(&0);
        if !self.side.given.is_null() {
            self.side.advance(moved)?;
            self.side.at += moved as i64;
        } else if moved < got {
            self.open.seek(fd, moved as i64 - got as i64, libc::SEEK_CUR)?;
        }
        Ok((got, taken?))
    }
}

/// Sends from a Weft file to a foreign descriptor.
unsafe fn send(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> Res<ssize_t> {
    let mut source = Source::new(from, at)?;
    // Also tells whether the descriptor is open.
    if sys::fcntl(to, libc::F_GETFL, 0)? & libc::O_APPEND != 0 {
        return Err(libc::EINVAL.into());
    }
    let done = in_pieces(len, |_, buffer| {
        let (got, put) = source.offer(buffer, |bytes| sys::write(to, bytes))?;
        Ok((put, got > 0 && put == got))
    })?;
    Ok(done as ssize_t)
}

/// Sends from any file with a position to a Weft file.
unsafe fn receive(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> Res<ssize_t> {
    settle()?;
    let sink = open_of(to)?;
    let source = table::is_ours(from).then(|| open_of(from)).transpose()?;
    source.as_ref().map_or(Ok(()), |source| source.has_mode(false))?;
    let access = sys::fcntl(from, libc::F_GETFL, 0)? & (libc::O_ACCMODE | libc::O_PATH);
    if source.is_none() && access != libc::O_RDONLY && access != libc::O_RDWR {
        return Err(libc::EBADF.into());
    }
    let _turns = match &source {
        Some(source) => open::take_turns((source, from), (&sink, to)),
        None => (sink.take_turn(to), None),
    };
    // Pipes and sockets have no position; as on Linux, they are for `splice`.
    let refused = if at.is_null() { libc::EINVAL } else { libc::ESPIPE };
    sys::lseek(from, 0, libc::SEEK_CUR).map_err(|_| refused)?;
    // The checks of Linux, in its order.
    let from = Side::new(from, at)?;
    sink.has_mode(true)?;
    let to = Side::new(to, std::ptr::null_mut())?;
    let is_directory = source.as_ref().is_some_and(|source| source.is_directory());
    if sink.flags() & libc::O_APPEND != 0 || is_directory && len > 0 {
        return Err(libc::EINVAL.into());
    }
    sink.may(true)?;
    let done = in_pieces(len, |before, buffer| {
        let place = from.at + before as i64;
        let got = match &source {
            Some(source) => source.read_at(&mut [IoSliceMut::new(buffer)], place)?,
            None => sys::pread(from.fd, buffer, place)?,
        };
        let put = match got {
            0 => 0,
            _ => sink.write_at(&[IoSlice::new(&buffer[..got])], to.at + before as i64)?,
        };
        Ok((put, got > 0 && put == got))
    });
    let moved = *done.as_ref().unwrap_or(&0);
    from.advance(moved)?;
    to.advance(moved)?;
    done.map(|done| done as ssize_t)
}

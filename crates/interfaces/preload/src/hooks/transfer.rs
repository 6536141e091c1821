//! Calls that move bytes between two descriptors inside the kernel. They fail with the error that makes the caller copy
//! the bytes itself, with two exceptions: both files are in Weft, or the call is `sendfile`, for which many callers
//! have no alternative.

use crate::errno;
use crate::serve::{answer, on_fd};
use crate::table;
use crate::trace::posix;
use libc::{c_int, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};

fn refuse(errno: c_int) -> ssize_t {
    errno::set(errno);
    -1
}

hook! { [copy_file_range] (
    from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: libc::c_uint,
) -> ssize_t {
    match (table::is_ours(from), table::is_ours(to)) {
        (false, false) => None,
        (true, true) if flags == 0 => Some(copy(from, from_at, to, to_at, len)),
        (true, true) => Some(refuse(libc::EINVAL)),
        // Callers know this error from copies between file systems and continue with read and write.
        _ => Some(refuse(libc::EXDEV)),
    }
} trace |start, done| { posix::copied(start, (from, from_at), (to, to_at), done) } }

/// Copies between two Weft files through a buffer, at most as much as one Linux call.
unsafe fn copy(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t) -> ssize_t {
    const CHUNK: usize = 4 << 20;
    answer(|| {
        let (source, sink) = (table::get(from).ok_or(libc::EBADF)?, table::get(to).ok_or(libc::EBADF)?);
        if source.is_directory() || sink.is_directory() {
            return Err(libc::EISDIR.into());
        }
        if sink.flags() & libc::O_APPEND != 0 {
            return Err(libc::EBADF.into());
        }
        let place = |fd, at: *mut off_t| {
            if at.is_null() { crate::sys::lseek(fd, 0, libc::SEEK_CUR) } else { Ok(*at) }
        };
        let (start, target) = (place(from, from_at)?, place(to, to_at)?);
        if source.is_host() != sink.is_host() {
            return Err(libc::EXDEV.into());
        }
        let len = len.min(CHUNK);
        let overlap = (start - target).unsigned_abs() < len as u64;
        if overlap && source.is_same_file(&sink)? {
            return Err(libc::EINVAL.into());
        }
        let mut buffer = vec![0u8; len];
        let got = source.read_at(&mut [IoSliceMut::new(&mut buffer)], start)?;
        let put = if got > 0 { sink.write_at(&[IoSlice::new(&buffer[..got])], target)? } else { 0 };
        let advance = |fd, at: *mut off_t, to: i64| {
            if at.is_null() {
                crate::sys::lseek(fd, to, libc::SEEK_SET).map(drop)
            } else {
                *at = to;
                Ok(())
            }
        };
        advance(from, from_at, start + put as i64)?;
        advance(to, to_at, target + put as i64)?;
        Ok(put as ssize_t)
    })
}

hook! { [splice] (
    from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, _len: size_t, _flags: libc::c_uint,
) -> ssize_t {
    (table::is_ours(from) || table::is_ours(to)).then(|| refuse(libc::EINVAL))
} trace |start, done| { posix::copied(start, (from, from_at), (to, to_at), done) } }
hook! { [vmsplice, tee] (from: c_int, _a: usize, _b: usize, _flags: libc::c_uint) -> ssize_t {
    table::is_ours(from).then(|| refuse(libc::EINVAL))
} }

hook! { [sendfile, sendfile64] (to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if table::is_ours(from) {
        Some(send(to, from, at, len))
    } else {
        table::is_ours(to).then(|| refuse(libc::EINVAL))
    }
} trace |start, done| {
    // From a Weft file to a foreign one, the hook of `write` writes the bytes and records them.
    let to = if table::is_ours(from) && !table::is_ours(to) { -1 } else { to };
    posix::copied(start, (from, at), (to, std::ptr::null_mut()), done);
} }

/// Sends from a Weft file to any descriptor through a buffer.
unsafe fn send(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    const CHUNK: usize = 1 << 20;
    let mut buffer = vec![0u8; len.min(CHUNK)];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(buffer.len());
        let mut part = [IoSliceMut::new(&mut buffer[..want])];
        let got: Option<ssize_t> = on_fd(from, |open| {
            let got = if at.is_null() { open.read(from, &mut part) } else { open.read_at(&mut part, *at) };
            got.map(|n| n as ssize_t)
        });
        let got = match got {
            Some(got) if got > 0 => got as usize,
            Some(0) => break,
            _ => return if done > 0 { done as ssize_t } else { -1 },
        };
        let out = [IoSlice::new(&buffer[..got])];
        let put = on_fd(to, |open| open.write(to, &out).map(|n| n as ssize_t))
            .unwrap_or_else(|| libc::write(to, buffer.as_ptr().cast(), got));
        let moved = put.max(0) as usize;
        if at.is_null() {
            // Bytes that were read but not accepted are returned.
            let _ = answer(|| Ok(crate::sys::lseek(from, moved as i64 - got as i64, libc::SEEK_CUR)?));
        } else {
            *at += moved as i64;
        }
        done += moved;
        if put < got as ssize_t {
            return if done > 0 { done as ssize_t } else { put };
        }
    }
    done as ssize_t
}

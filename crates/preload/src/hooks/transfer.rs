//! Calls that move bytes between two descriptors inside the kernel: refused with the error that makes the caller
//! copy by itself, except `sendfile`, which many callers use without a way back.

use crate::errno;
use crate::serve::{answer, on_fd};
use crate::table;
use libc::{c_int, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};

fn refuse(errno: c_int) -> ssize_t {
    errno::set(errno);
    -1
}

hook! { [copy_file_range] (
    from: c_int, _from_at: *mut off_t, to: c_int, _to_at: *mut off_t, _len: size_t, _flags: libc::c_uint,
) -> ssize_t {
    (table::is_ours(from) || table::is_ours(to)).then(|| refuse(libc::EXDEV))
} }
hook! { [splice] (
    from: c_int, _from_at: *mut off_t, to: c_int, _to_at: *mut off_t, _len: size_t, _flags: libc::c_uint,
) -> ssize_t {
    (table::is_ours(from) || table::is_ours(to)).then(|| refuse(libc::EINVAL))
} }
hook! { [vmsplice, tee] (from: c_int, _a: usize, _b: usize, _flags: libc::c_uint) -> ssize_t {
    table::is_ours(from).then(|| refuse(libc::EINVAL))
} }

hook! { [sendfile, sendfile64] (to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if table::is_ours(from) {
        Some(send(to, from, at, len))
    } else {
        table::is_ours(to).then(|| refuse(libc::EINVAL))
    }
} }

/// From a file of ours to any descriptor, by way of a buffer.
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
            // What was read but not taken goes back.
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

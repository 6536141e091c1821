//! Checks and converts pointers from C.

use crate::fail::{Fail, Res};
use std::ffi::{CStr, c_char, c_void};
use std::io::{IoSlice, IoSliceMut};

/// Maximum number of bytes that one call reads or writes, as on Linux.
pub const COUNT_MAX: usize = 0x7fff_f000;
/// Maximum number of buffers of one call.
const VECTORS_MAX: i32 = 1024;

/// Returns the object behind a pointer of this library.
///
/// # Safety
/// `pointer` is null, or came from this library and has not been released.
pub unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Res<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Fail::argument(format!("{what} is a null pointer")))
}

/// Returns the bytes of a string.
///
/// # Safety
/// `pointer` is null or a string that lives through the call.
pub unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Res<&'a [u8]> {
    if pointer.is_null() {
        return Err(Fail::null(what));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns a string as UTF-8 text.
///
/// # Safety
/// See [`string`].
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Res<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { string(pointer, what)? };
    std::str::from_utf8(bytes).map_err(|_| Fail::argument(format!("{what} is not UTF-8")))
}

/// Stores a result through a pointer.
///
/// # Safety
/// `pointer` is null or valid for writing a `T`.
pub unsafe fn put<T>(pointer: *mut T, value: T, what: &str) -> Res<()> {
    if pointer.is_null() {
        return Err(Fail::null(what));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Returns a buffer to write from.
///
/// # Safety
/// `pointer` is null or `count` bytes long, and lives through the call.
pub unsafe fn source<'a>(pointer: *const c_void, count: usize) -> Res<IoSlice<'a>> {
    let count = count.min(COUNT_MAX);
    if count == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if pointer.is_null() {
        return Err(Fail::null("the buffer"));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(IoSlice::new(unsafe { std::slice::from_raw_parts(pointer.cast(), count) }))
}

/// Returns a buffer to read into.
///
/// # Safety
/// See [`source`]; in addition, no other thread uses the buffer during the call.
pub unsafe fn destination<'a>(pointer: *mut c_void, count: usize) -> Res<IoSliceMut<'a>> {
    let count = count.min(COUNT_MAX);
    if count == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if pointer.is_null() {
        return Err(Fail::null("the buffer"));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), count) }))
}

/// Returns the base and length of several buffers, cut at [`COUNT_MAX`] bytes in total, as on Linux.
///
/// # Safety
/// `vectors` is null or `count` long, and each element is valid for [`source`] or [`destination`].
pub unsafe fn vectors(vectors: *const libc::iovec, count: i32) -> Res<Vec<(*mut c_void, usize)>> {
    if !(0..=VECTORS_MAX).contains(&count) {
        return Err(Fail::argument(format!("{count} buffers: at most {VECTORS_MAX} are allowed")));
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    if vectors.is_null() {
        return Err(Fail::null("the list of buffers"));
    }
    // SAFETY: not null, and the caller's promise.
    let vectors: &[libc::iovec] = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
    let mut left = COUNT_MAX;
    let mut out = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let len = vector.iov_len.min(left);
        left -= len;
        if len > 0 && vector.iov_base.is_null() {
            return Err(Fail::null("a buffer"));
        }
        out.push((vector.iov_base, len));
    }
    Ok(out)
}

/// Checks that an offset or length is not negative.
pub fn unsigned(number: libc::off_t, what: &str) -> Res<u64> {
    u64::try_from(number).map_err(|_| Fail::argument(format!("{what} {number} is negative")))
}

/// Copies `value` like the calls on extended attributes: with a size of 0, only returns the length.
///
/// # Safety
/// `pointer` is null or valid for writing `size` bytes.
pub unsafe fn copy_out(value: &[u8], pointer: *mut c_void, size: usize) -> Res<libc::ssize_t> {
    if size > 0 {
        if value.len() > size {
            return Err(Fail::new(libc::ERANGE, format!("{} bytes do not fit into {size}", value.len())));
        }
        if pointer.is_null() {
            return Err(Fail::null("the buffer"));
        }
        // SAFETY: not null, valid for `size` bytes by the caller's promise, and not part of `value`.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), pointer.cast(), value.len()) };
    }
    Ok(value.len() as libc::ssize_t)
}

//! Pointers from C, checked and turned into what Rust can use.

use crate::fail::{Fail, Res};
use std::ffi::{CStr, c_char, c_void};
use std::io::{IoSlice, IoSliceMut};

/// The most bytes that one call reads or writes, as Linux has it.
pub const COUNT_MAX: usize = 0x7fff_f000;
/// The most buffers of one call.
const VECTORS_MAX: i32 = 1024;

/// An object of ours.
///
/// # Safety
/// `pointer` is null or came from this library and was not given back.
pub unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Res<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Fail::argument(format!("{what} is a null pointer")))
}

/// The bytes of a string.
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

/// A string that is text.
///
/// # Safety
/// As [`string`].
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Res<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { string(pointer, what)? };
    std::str::from_utf8(bytes).map_err(|_| Fail::argument(format!("{what} is not UTF-8")))
}

/// A place that a call fills.
///
/// # Safety
/// `pointer` is null or can be written as a `T`.
pub unsafe fn put<T>(pointer: *mut T, value: T, what: &str) -> Res<()> {
    if pointer.is_null() {
        return Err(Fail::null(what));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A buffer to write from.
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

/// A buffer to read into.
///
/// # Safety
/// As [`source`], and nobody else uses it during the call.
pub unsafe fn room<'a>(pointer: *mut c_void, count: usize) -> Res<IoSliceMut<'a>> {
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

/// Many buffers; what lies beyond [`COUNT_MAX`] in all is left out, as Linux does.
///
/// # Safety
/// `vectors` is null or `count` long, and each of them as [`source`] or [`room`].
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

/// An offset or length, which is not negative.
pub fn unsigned(number: libc::off_t, what: &str) -> Res<u64> {
    u64::try_from(number).map_err(|_| Fail::argument(format!("{what} {number} is negative")))
}

/// Copies `value` as the calls on extended attributes do: with no room the length alone is told.
///
/// # Safety
/// `pointer` is null or has room for `size` bytes.
pub unsafe fn copy_out(value: &[u8], pointer: *mut c_void, size: usize) -> Res<libc::ssize_t> {
    if size > 0 {
        if value.len() > size {
            return Err(Fail::new(libc::ERANGE, format!("{} bytes do not fit into {size}", value.len())));
        }
        if pointer.is_null() {
            return Err(Fail::null("the buffer"));
        }
        // SAFETY: not null, room for `size` bytes by the caller's promise, and no part of `value`.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), pointer.cast(), value.len()) };
    }
    Ok(value.len() as libc::ssize_t)
}

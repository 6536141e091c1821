//! Buffered streams of the C library over registered descriptors.
//!
//! A stream reads and writes by calls inside the C library, which no hook sees. It makes them through a table of
//! functions that all its streams share: one table for bytes, one for wide characters. This module replaces five
//! entries of both tables in place. A replaced function serves registered descriptors by the hooks, and calls the
//! original function for others. So every stream stays one of the C library, with wide characters, `freopen`,
//! positions and the standard streams, whatever its descriptor refers to.
//!
//! The tables lie in memory that is read-only after loading (RELRO), so the page is writable for a moment. The C
//! library accepts only its own tables, which is why streams do not get tables of ours.

use crate::errno::{self, Res};
use crate::{hooks, memory, sys, table};
use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Offset of `_fileno` in the C library's FILE, whose layout is fixed by its public macros.
pub const FILENO_AT: usize = 112;
/// Offset of the position that the stream knows, `_offset`.
const OFFSET_AT: usize = 144;
/// Offset of the pointer to the table: it lies behind the public part.
const TABLE_AT: usize = 216;
/// Offset of the start of the buffer of bytes.
const BUFFER_AT: usize = 56;
/// Flag of FILE: an error occurred.
const ERR_SEEN: c_int = 0x20;
/// Buffer size of a stream in bytes: with the C library's 8 KiB, each buffer would be a small request. A power of two,
/// because the C library reads whole aligned buffers after a seek.
const BUFFER: usize = 128 * 1024;

/// Number of words before the first replaced entry, `doallocate`; `read`, `write`, `seek`, `close` and `stat` follow.
const FIRST: usize = 13;
const REPLACED: usize = 6;

type Entries = [AtomicPtr<c_void>; REPLACED];

/// Functions of the C library that were in the table of bytes and in that of wide characters.
static ORIGINAL: [Entries; 2] = [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; REPLACED] }; 2];

unsafe extern "C" {
    fn fwide(file: *mut FILE, mode: c_int) -> c_int;
}

/// Gives a stream a buffer, which the stream frees if it owns it.
type SetBuffer = unsafe extern "C" fn(*mut FILE, *mut c_char, *mut c_char, c_int);

unsafe fn word<T: Copy>(file: *mut FILE, at: usize) -> T {
    *file.cast::<u8>().add(at).cast::<T>()
}

/// Returns the number of a stream's descriptor; negative without one.
///
/// # Safety
/// `file` is a stream.
pub unsafe fn number(file: *mut FILE) -> c_int {
    word(file, FILENO_AT)
}

/// Calls the function that was at `at` in the table.
macro_rules! original {
    ($table:expr, $at:expr, fn($($ty:ty),*) -> $ret:ty) => {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $ret>(
            ORIGINAL[$table][$at].load(Ordering::Acquire),
        )
    };
}

unsafe extern "C" fn allocate<const WIDE: usize>(file: *mut FILE) -> c_int {
    // The buffer of wide characters is as long as that of bytes, which is therefore allocated first.
    if table::is_ours(number(file)) && word::<*mut u8>(file, BUFFER_AT).is_null() {
        let set: SetBuffer = real!(_IO_setb: fn(*mut FILE, *mut c_char, *mut c_char, c_int) -> ());
        let buffer = libc::malloc(BUFFER).cast::<c_char>();
        if !buffer.is_null() {
            set(file, buffer, buffer.add(BUFFER), 1);
            if WIDE == 0 {
                return 1;
            }
        }
    }
    original!(WIDE, 0, fn(*mut FILE) -> c_int)(file)
}

unsafe extern "C" fn read<const WIDE: usize>(file: *mut FILE, buf: *mut c_void, len: ssize_t) -> ssize_t {
    match number(file) {
        fd if table::is_ours(fd) => hooks::read(fd, buf, len as size_t),
        _ => original!(WIDE, 1, fn(*mut FILE, *mut c_void, ssize_t) -> ssize_t)(file, buf, len),
    }
}

unsafe extern "C" fn write<const WIDE: usize>(file: *mut FILE, buf: *const c_void, len: ssize_t) -> ssize_t {
    let fd = number(file);
    if !table::is_ours(fd) {
        return original!(WIDE, 2, fn(*mut FILE, *const c_void, ssize_t) -> ssize_t)(file, buf, len);
    }
    let mut done = 0;
    while done < len {
        let n = hooks::write(fd, buf.byte_add(done as usize), (len - done) as size_t);
        if n < 0 {
            *file.cast::<c_int>() |= ERR_SEEN;
            break;
        }
        done += n;
    }
    let offset = file.cast::<u8>().add(OFFSET_AT).cast::<off64_t>();
    if *offset >= 0 {
        *offset += done as off64_t;
    }
    done
}

unsafe extern "C" fn seek<const WIDE: usize>(file: *mut FILE, offset: off64_t, whence: c_int) -> off64_t {
    match number(file) {
        fd if table::is_ours(fd) => hooks::lseek(fd, offset, whence),
        _ => original!(WIDE, 3, fn(*mut FILE, off64_t, c_int) -> off64_t)(file, offset, whence),
    }
}

unsafe extern "C" fn close<const WIDE: usize>(file: *mut FILE) -> c_int {
    match number(file) {
        fd if table::is_ours(fd) => hooks::close(fd),
        _ => original!(WIDE, 4, fn(*mut FILE) -> c_int)(file),
    }
}

unsafe extern "C" fn stat<const WIDE: usize>(file: *mut FILE, out: *mut libc::stat) -> c_int {
    match number(file) {
        fd if table::is_ours(fd) => hooks::fstat(fd, out),
        _ => original!(WIDE, 5, fn(*mut FILE, *mut libc::stat) -> c_int)(file, out),
    }
}

fn replacements<const WIDE: usize>() -> [*mut c_void; REPLACED] {
    [
        allocate::<WIDE> as *mut c_void,
        read::<WIDE> as *mut c_void,
        write::<WIDE> as *mut c_void,
        seek::<WIDE> as *mut c_void,
        close::<WIDE> as *mut c_void,
        stat::<WIDE> as *mut c_void,
    ]
}

/// Prepares the C library's streams for registered descriptors. Costs nothing from the second call on.
pub fn prepare() -> Res<()> {
    static PREPARED: OnceLock<bool> = OnceLock::new();
    // SAFETY: changes the C library's tables as described above.
    if *PREPARED.get_or_init(|| unsafe { replace_entries() }) {
        return Ok(());
    }
    Err(libc::ENOSYS.into())
}

unsafe fn replace_entries() -> bool {
    let before = errno::get();
    let _inside = crate::guard::enter();
    let Some(tables) = tables() else {
        sys::complain(
            "streams: this C library has unknown streams, so that fopen fails on Weft; use another glibc, or `weft mount`",
        );
        return false;
    };
    for (table, to) in [replacements::<0>(), replacements::<1>()].into_iter().enumerate() {
        let entries = tables[table].add(FIRST);
        for (at, original) in ORIGINAL[table].iter().enumerate() {
            original.store(*entries.add(at), Ordering::Release);
        }
        let replaced = memory::write_protected(entries.cast(), size_of::<[usize; REPLACED]>(), || {
            for (at, &function) in to.iter().enumerate() {
                // Other threads use the table meanwhile: they find the old function or the new one.
                AtomicPtr::from_ptr(entries.add(at)).store(function, Ordering::Release);
            }
        });
        if replaced.is_err() {
            return false;
        }
    }
    errno::set(before);
    true
}

/// Returns the tables of bytes and of wide characters, or `None` if they are not those that this module knows.
unsafe fn tables() -> Option<[*mut *mut c_void; 2]> {
    let file = scratch(c"r").ok()?;
    let bytes: *mut *mut c_void = word(file, TABLE_AT);
    fwide(file, 1);
    let wide: *mut *mut c_void = word(file, TABLE_AT);
    libc::fclose(file);
    if libc::dlsym(libc::RTLD_DEFAULT, c"_IO_setb".as_ptr()).is_null() {
        return None;
    }
    let known = [c"_IO_file_read", c"_IO_file_write", c"_IO_file_seek", c"_IO_file_close", c"_IO_file_stat"];
    let is_known = |table: *mut *mut c_void| {
        known.iter().enumerate().all(|(at, name): (usize, &&CStr)| {
            let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            !function.is_null() && function == *table.add(FIRST + 1 + at)
        })
    };
    (bytes != wide && is_known(bytes) && is_known(wide)).then_some([bytes, wide])
}

/// Opens a stream of the C library over `/dev/null`.
unsafe fn scratch(mode: &CStr) -> Res<*mut FILE> {
    let real = real!(fopen: fn(*const c_char, *const c_char) -> *mut FILE);
    let file = real(c"/dev/null".as_ptr(), mode.as_ptr());
    if file.is_null() { Err(errno::get().into()) } else { Ok(file) }
}

/// Creates a stream over the registered descriptor `fd`.
///
/// # Safety
/// Inside the client (`guard`).
pub unsafe fn stream(fd: c_int, mode: &[u8]) -> Res<*mut FILE> {
    prepare()?;
    // The stream has the mode of the program, character set included. `fdopen` would refuse the placeholder.
    let file = scratch(&without_options(mode))?;
    let own = number(file);
    *file.cast::<u8>().add(FILENO_AT).cast::<c_int>() = fd;
    sys::close(own);
    Ok(file)
}

/// Closes the file of a stream and, if `opens`, reopens the stream over `/dev/null` under the same number. Returns whether
/// it is open.
///
/// # Safety
/// `file` is a stream.
pub unsafe fn reopen_scratch(opens: bool, mode: &[u8], file: *mut FILE) -> bool {
    let real = real!(freopen: fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE);
    let path = if opens { c"/dev/null" } else { c"" };
    !real(path.as_ptr(), without_options(mode).as_ptr(), file).is_null()
}

/// Returns a mode without the options to create a file exclusively, and to map it.
fn without_options(mode: &[u8]) -> CString {
    let (letters, rest) = mode.split_at(mode.iter().position(|&byte| byte == b',').unwrap_or(mode.len()));
    let kept = letters.iter().copied().filter(|byte| !b"xm".contains(byte));
    sys::c(&kept.chain(rest.iter().copied()).collect::<Vec<u8>>())
}

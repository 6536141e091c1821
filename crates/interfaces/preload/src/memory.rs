//! Memory that the program names in a call: whether it can be read or written, as the kernel finds out by touching it.
//!
//! The kernel answers `EFAULT` for a pointer to nothing. Code of this library would be killed by it. So every hook asks
//! here before it uses a pointer of the program:
//!
//! | function | for |
//! | --- | --- |
//! | [`is_text`] | paths and names |
//! | [`load`], [`store`], [`copy_out`] | structures and short results |
//! | [`Buffers`] | bytes that are read or written, alone or by an `iovec` |
//!
//! A page is examined by one system call that touches it without a change. Recently found pages are remembered, so that
//! the usual call, on a buffer used before, costs a comparison. Of a buffer of more than four pages the ends are examined. Calls that
//! take memory away from the program forget all pages ([`forget`]).

use crate::errno::Res;
use crate::sys;
use std::ffi::{c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Smallest page size, in bytes. Where pages are larger, some are examined more than once.
const PAGE: usize = 4096;
/// One past the last address of a program without an own request for higher ones.
const END: usize = if cfg!(target_arch = "x86_64") { (1 << 47) - PAGE } else { 1 << 48 };
/// Maximum number of bytes that Linux moves in one call.
const BYTES_MAX: usize = 0x7fff_f000;
/// Maximum number of buffers of one call (`IOV_MAX`).
const PARTS_MAX: c_int = 1024;

/// Number of pages of a buffer up to which each is examined, instead of the ends.
const PAGES_EXAMINED: usize = 4;

/// Use of memory by a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
}

/// Known pages: the page number, whether it is writable, and in the upper 16 bits the value of [`AGE`]. Each page has two
/// places, one in each half.
static KNOWN: [[AtomicU64; SETS]; 2] = [const { [const { AtomicU64::new(0) }; SETS] }; 2];
const SETS: usize = 512;
/// Number of times that known pages were forgotten.
static AGE: AtomicU64 = AtomicU64::new(1);

/// Forgets which pages can be used, because the program unmaps or protects memory.
#[inline]
pub fn forget() {
    AGE.fetch_add(1, Relaxed);
}

/// Whether the page at `address` can be used.
#[inline]
fn has_page(address: usize, access: Access) -> bool {
    let page = (address / PAGE) as u64;
    let word = page << 1 | AGE.load(Relaxed) << 48;
    let set = page as usize % SETS;
    let places = [&KNOWN[0][set], &KNOWN[1][set]];
    let is_known = |place: &AtomicU64| {
        let seen = place.load(Relaxed);
        seen == word | 1 || access == Access::Read && seen == word
    };
    if is_known(places[0]) || is_known(places[1]) {
        return true;
    }
    let usable = address >= PAGE && sys::touch(address, access == Access::Write);
    if usable {
        places[1].store(places[0].load(Relaxed), Relaxed);
        places[0].store(word | u64::from(access == Access::Write), Relaxed);
    }
    usable
}

/// Returns how many of `len` bytes from `start` can be used. Fails if the range is not one of addresses of programs.
pub fn usable(start: usize, len: usize, access: Access) -> Res<usize> {
    let end = start.checked_add(len).filter(|&end| end <= isize::MAX as usize).ok_or(libc::EFAULT)?;
    if len == 0 {
        return Ok(0);
    }
    if start < END && end > END {
        return Err(libc::EFAULT.into());
    }
    if !has_page(start, access) {
        return Ok(0);
    }
    let (mut good, mut bad) = (start / PAGE, (end - 1) / PAGE);
    let is_short = bad - good < PAGES_EXAMINED;
    if is_short && let Some(hole) = (good + 1..=bad).find(|page| !has_page(page * PAGE, access)) {
        return Ok(hole * PAGE - start);
    }
    if is_short || has_page(end - 1, access) {
        return Ok(len);
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if has_page(middle * PAGE, access) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(bad * PAGE - start)
}

/// Whether `start` points to `len` bytes that can be used.
pub fn has(start: *const c_void, len: usize, access: Access) -> bool {
    usable(start.addr(), len, access).is_ok_and(|found| found == len)
}

/// Whether `text` points to a C string.
#[inline]
pub fn is_text(text: *const c_char) -> bool {
    let mut at = text;
    loop {
        if !has_page(at.addr(), Access::Read) {
            return false;
        }
        let rest = PAGE - at.addr() % PAGE;
        // SAFETY: the page can be read.
        if !unsafe { libc::memchr(at.cast(), 0, rest) }.is_null() {
            return true;
        }
        at = at.wrapping_add(rest);
    }
}

/// Reads a structure of the program.
///
/// # Safety
/// The memory has any value that `T` can have, if it can be read.
pub unsafe fn load<T: Copy>(from: *const T) -> Res<T> {
    if !has(from.cast(), size_of::<T>(), Access::Read) {
        return Err(libc::EFAULT.into());
    }
    Ok(from.read_unaligned())
}

/// Stores a result in a structure of the program.
///
/// # Safety
/// `to` is the program's, if it can be written.
pub unsafe fn store<T>(to: *mut T, value: T) -> Res<()> {
    if !has(to.cast(), size_of::<T>(), Access::Write) {
        return Err(libc::EFAULT.into());
    }
    to.write_unaligned(value);
    Ok(())
}

/// Stores `bytes` in memory of the program.
///
/// # Safety
/// `to` is the program's, if it can be written.
pub unsafe fn copy_out(bytes: &[u8], to: *mut c_void) -> Res<()> {
    if !has(to, bytes.len(), Access::Write) {
        return Err(libc::EFAULT.into());
    }
    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
    Ok(())
}

/// Buffers of a call that moves bytes.
///
/// Buffers that can be used in part are cut, as Linux moves the bytes before the fault. They are empty if nothing can be
/// used ([`Buffers::are_bad`]).
pub struct Buffers {
    parts: Parts,
    wanted: usize,
    found: usize,
}

enum Parts {
    One(libc::iovec),
    /// The program's own array.
    Given(*const libc::iovec, usize),
    Cut(Vec<libc::iovec>),
}

fn part(base: *mut c_void, len: usize) -> libc::iovec {
    // Slices of Rust are never null.
    let base = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { base };
    libc::iovec { iov_base: base, iov_len: len }
}

impl Buffers {
    /// One buffer.
    #[inline]
    pub fn one(start: *const c_void, len: usize, access: Access) -> Res<Self> {
        let found = usable(start.addr(), len, access)?.min(BYTES_MAX);
        Ok(Self { parts: Parts::One(part(start.cast_mut(), found)), wanted: len, found })
    }

    /// The buffers of an array of the program.
    ///
    /// # Safety
    /// The array is the program's.
    pub unsafe fn list(start: *const libc::iovec, count: c_int, access: Access) -> Res<Self> {
        if !(0..=PARTS_MAX).contains(&count) {
            return Err(libc::EINVAL.into());
        }
        let count = count as usize;
        if !has(start.cast(), count * size_of::<libc::iovec>(), Access::Read) {
            return Err(libc::EFAULT.into());
        }
        let given = if count == 0 { &[] } else { std::slice::from_raw_parts(start, count) };
        if given.iter().any(|part| part.iov_len > isize::MAX as usize) {
            return Err(libc::EINVAL.into());
        }
        let (mut wanted, mut found, mut has_ended) = (0usize, 0usize, false);
        // Lengths that replace those of the program, if they do not fit.
        let mut lens: Option<Vec<usize>> = None;
        for (at, part) in given.iter().enumerate() {
            let can = usable(part.iov_base.addr(), part.iov_len, access)?;
            let len = if has_ended { 0 } else { can.min(BYTES_MAX - found) };
            wanted = wanted.saturating_add(part.iov_len);
            found += len;
            has_ended |= len < part.iov_len;
            if lens.is_none() && (has_ended || part.iov_base.is_null()) {
                lens = Some(given[..at].iter().map(|part| part.iov_len).collect());
            }
            if let Some(lens) = &mut lens {
                lens.push(len);
            }
        }
        let parts = match lens {
            None => Parts::Given(start, count),
            Some(lens) => {
                Parts::Cut(given.iter().zip(lens).map(|(from, len)| part(from.iov_base, len)).collect())
            }
        };
        Ok(Self { parts, wanted, found })
    }

    /// Number of bytes that the program wants to move, at most that of one call of Linux.
    pub fn wanted(&self) -> usize {
        self.wanted.min(BYTES_MAX)
    }

    /// Whether the program gave an array of buffers.
    pub fn is_list(&self) -> bool {
        !matches!(self.parts, Parts::One(_))
    }

    /// Whether the program wants to move bytes, and no memory for them can be used.
    pub fn are_bad(&self) -> bool {
        self.wanted > 0 && self.found == 0
    }

    fn parts(&self) -> (*const libc::iovec, usize) {
        match &self.parts {
            Parts::One(one) => (one, 1),
            Parts::Given(start, count) => (*start, *count),
            Parts::Cut(list) => (list.as_ptr(), list.len()),
        }
    }

    /// Returns the buffers for writing to a file.
    ///
    /// # Safety
    /// The memory is the program's, which must not change it during the call.
    pub unsafe fn sources<'a>(&'a self) -> &'a [IoSlice<'a>] {
        let (start, count) = self.parts();
        // `IoSlice` is documented to have the layout of `iovec`.
        if count == 0 { &[] } else { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// Returns the buffers for reading from a file.
    ///
    /// # Safety
    /// The memory is the program's, which must not use it during the call.
    pub unsafe fn targets<'a>(&'a mut self) -> &'a mut [IoSliceMut<'a>] {
        let (start, count) = self.parts();
        if count == 0 { &mut [] } else { std::slice::from_raw_parts_mut(start.cast_mut().cast(), count) }
    }
}

/// Runs `work`, which changes `len` bytes from `start` in memory that is read-only after loading.
///
/// # Safety
/// The memory is mapped, and nothing else depends on its protection.
pub unsafe fn write_protected(start: *mut c_void, len: usize, work: impl FnOnce()) -> Res<()> {
    if has(start, len, Access::Write) {
        work();
        return Ok(());
    }
    let size = libc::sysconf(libc::_SC_PAGESIZE) as usize;
    let first = start.map_addr(|address| address & !(size - 1));
    let len = (start.addr() + len).next_multiple_of(size) - first.addr();
    sys::protect(first, len, libc::PROT_READ | libc::PROT_WRITE)?;
    work();
    sys::protect(first, len, libc::PROT_READ)?;
    forget();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, of which the second is beyond reach.
    fn page_before_a_hole() -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: fresh memory, which is never unmapped.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), 2 * PAGE, both, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            start.cast()
        }
    }

    #[test]
    fn bad_pointers_are_known() {
        let start = page_before_a_hole();
        let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
        for access in [Access::Read, Access::Write] {
            assert!(has(at(0), PAGE, access) && has(at(100), 0, access) && has(at(PAGE), 0, access));
            assert!(!has(at(PAGE), 1, access) && !has(at(0), PAGE + 1, access));
            assert!(!has(std::ptr::null(), 1, access) && has(std::ptr::null(), 0, access));
            assert!(!has(usize::MAX as *const c_void, 1, access) && !has(at(0), usize::MAX, access));
        }
        let constant = c"read-only";
        assert!(has(constant.as_ptr().cast(), 5, Access::Read));
        assert!(!has(constant.as_ptr().cast(), 5, Access::Write));
        assert_eq!(usable(at(PAGE - 10).addr(), 100, Access::Write).ok(), Some(10));
        assert_eq!(usable(at(0).addr(), 2 * PAGE, Access::Read).ok(), Some(PAGE));
    }

    #[test]
    fn texts_end_before_the_hole() {
        let start = page_before_a_hole();
        assert!(is_text(start.cast()) && !is_text(std::ptr::null()));
        // SAFETY: inside of the first page.
        unsafe { start.add(PAGE - 3).write_bytes(b'x', 3) };
        assert!(
            !is_text(start.wrapping_add(PAGE - 3).cast()) && is_text(start.wrapping_add(PAGE - 4).cast())
        );
    }

    #[test]
    fn forgotten_pages_are_examined_again() {
        let start = page_before_a_hole();
        assert!(has(start.cast(), 1, Access::Write));
        // SAFETY: own memory.
        assert_eq!(unsafe { libc::mprotect(start.cast(), PAGE, libc::PROT_READ) }, 0);
        forget();
        assert!(!has(start.cast(), 1, Access::Write) && has(start.cast(), 1, Access::Read));
    }

    #[test]
    fn buffers_end_at_the_first_fault() {
        let start = page_before_a_hole();
        let part =
            |offset: usize, len| libc::iovec { iov_base: start.wrapping_add(offset).cast(), iov_len: len };
        let lens = |list: &[libc::iovec]| {
            // SAFETY: own memory, or memory that is not used.
            let buffers = unsafe { Buffers::list(list.as_ptr(), list.len() as c_int, Access::Read)? };
            // SAFETY: as above.
            let lens: Vec<usize> = unsafe { buffers.sources() }.iter().map(|part| part.len()).collect();
            Ok((lens, buffers.are_bad()))
        };
        let ok = |result: Res<(Vec<usize>, bool)>| result.ok();
        assert_eq!(ok(lens(&[part(0, 10), part(10, 20)])), Some((vec![10, 20], false)));
        assert_eq!(ok(lens(&[part(0, 10), part(PAGE - 5, 20), part(0, 7)])), Some((vec![10, 5, 0], false)));
        assert_eq!(ok(lens(&[part(PAGE, 10), part(0, 7)])), Some((vec![0, 0], true)));
        assert_eq!(ok(lens(&[part(PAGE, 0), part(0, 7)])), Some((vec![0, 7], false)));
        assert_eq!(
            lens(&[part(0, usize::MAX)]).err().map(|fail: crate::errno::Fail| fail.errno()),
            Some(libc::EINVAL)
        );
    }
}

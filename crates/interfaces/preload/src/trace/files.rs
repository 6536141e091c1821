//! Files of descriptors, for the tracer: a two-level array of words, each filled at its first use.
//!
//! A word is 0 (unknown), [`UNWANTED`], or a [`FileRef`] with flags in the upper bits, which its fork count leaves
//! free. In a forked child, the parent's words are obsolete and are filled again. Descriptors can also change in ways
//! that no hook sees, so an open always discards the previous word of its number.

use super::{FileRef, Tracer};
use crate::{sys, table};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

const PAGE_SLOTS: usize = 1024;
const PAGES: usize = 1024;
/// TracedFile, and not traced.
const UNWANTED: u64 = u64::MAX;
/// Opened for appending.
const APPENDS: u64 = 1 << 63;
/// Opened by this process, as recorded in the trace.
const OPENED: u64 = 1 << 62;

/// State of a descriptor: its file, and the known position of a buffered stream over it.
struct DescriptorState {
    file: AtomicU64,
    stream: Stream,
}

/// Buffered stream over a descriptor.
pub struct Stream {
    /// Position up to which its operations are recorded; [`NO_STREAM`] without one.
    pub seen: AtomicU64,
    /// The stream.
    pub handle: AtomicPtr<libc::FILE>,
}

impl DescriptorState {
    const fn new() -> Self {
        Self {
            file: AtomicU64::new(0),
            stream: Stream { seen: AtomicU64::new(NO_STREAM), handle: AtomicPtr::new(null_mut()) },
        }
    }
}

type Page = [DescriptorState; PAGE_SLOTS];

static TABLE: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(null_mut()) }; PAGES];

/// Suffix that the kernel appends to the path of a file without a name.
const REMOVED: &[u8] = b" (deleted)";

/// File of a traced descriptor.
#[derive(Clone, Copy)]
pub struct TracedFile {
    pub file: FileRef,
    pub appends: bool,
    pub opened: bool,
}

fn words(fd: c_int) -> Option<&'static DescriptorState> {
    let fd = usize::try_from(fd).ok()?;
    let page = TABLE.get(fd / PAGE_SLOTS)?;
    let mut at = page.load(Acquire);
    if at.is_null() {
        let fresh = Box::new([const { DescriptorState::new() }; PAGE_SLOTS]);
        let fresh = Box::into_raw(fresh);
        match page.compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
            Ok(_) => at = fresh,
            Err(other) => {
                // SAFETY: made above, published nowhere.
                drop(unsafe { Box::from_raw(fresh) });
                at = other;
            }
        }
    }
    // SAFETY: pages are never freed.
    unsafe { at.as_ref() }.map(|page| &page[fd % PAGE_SLOTS])
}

/// Returns the file of `fd` if it is traced.
#[inline]
pub fn of(tracer: &Tracer, fd: c_int) -> Option<TracedFile> {
    let words = words(fd)?;
    let word = words.file.load(Relaxed);
    if word == UNWANTED {
        return None;
    }
    let known = TracedFile {
        file: FileRef::from_word(word & !(APPENDS | OPENED)),
        appends: word & APPENDS != 0,
        opened: word & OPENED != 0,
    };
    if word != 0 && tracer.recorder.is_current(known.file) {
        return Some(known);
    }
    learn(tracer, fd, false)
}

/// Returns the file of `fd` if this process opened it and the trace recorded that.
pub fn opened(tracer: &Tracer, fd: c_int) -> Option<FileRef> {
    if words(fd)?.file.load(Relaxed) & OPENED == 0 {
        return None;
    }
    of(tracer, fd).filter(|known| known.opened).map(|known| known.file)
}

/// Determines the file of `fd` again; `opened` says whether this process has just opened it.
#[cold]
pub fn learn(tracer: &Tracer, fd: c_int, opened: bool) -> Option<TracedFile> {
    let words = words(fd)?;
    let found = find(tracer, fd).map(|known| TracedFile { opened, ..known });
    words.stream.forget();
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let word = found
        .map_or(UNWANTED, |known| known.file.word() | flag(known.appends, APPENDS) | flag(opened, OPENED));
    words.file.store(word, Relaxed);
    found
}

fn find(tracer: &Tracer, fd: c_int) -> Option<TracedFile> {
    let (path, flags) = match table::get(fd) {
        Some(open) if open.is_directory() => return None,
        Some(open) => (open.full_path(), open.flags()),
        None => {
            let stat = sys::fstatat(fd, c"", libc::AT_EMPTY_PATH).ok()?;
            if !tracer.filter.wants_kind(&stat) {
                return None;
            }
            let link =
                sys::readlinkat(libc::AT_FDCWD, &sys::c(format!("/proc/self/fd/{fd}").as_bytes())).ok()?;
            // Keep the name that the file had.
            let link = match link.strip_suffix(REMOVED) {
                Some(name) if stat.st_nlink == 0 => name.to_owned(),
                _ => link,
            };
            (link, sys::fcntl(fd, libc::F_GETFL, 0).ok()?)
        }
    };
    if !tracer.filter.wants(&path) {
        return None;
    }
    Some(TracedFile {
        file: tracer.recorder.file(&path)?,
        appends: flags & libc::O_APPEND != 0,
        opened: false,
    })
}

/// Discards the file of a number that refers to another file from now on.
pub fn forget(fd: c_int) {
    if let Some(words) = words(fd) {
        words.file.store(0, Relaxed);
        words.stream.forget();
    }
}

/// Discards the files of all numbers in the range.
pub fn forget_range(first: u32, last: u32) {
    for (number, page) in TABLE.iter().enumerate() {
        // SAFETY: pages are never freed.
        let Some(page) = (unsafe { page.load(Acquire).as_ref() }) else { continue };
        for (at, words) in page.iter().enumerate() {
            if (first as usize..=last as usize).contains(&(number * PAGE_SLOTS + at)) {
                words.file.store(0, Relaxed);
                words.stream.forget();
            }
        }
    }
}

/// No position of a stream is known.
pub const NO_STREAM: u64 = u64::MAX;

impl Stream {
    fn forget(&self) {
        self.seen.store(NO_STREAM, Relaxed);
        self.handle.store(null_mut(), Relaxed);
    }
}

/// Returns the stream over `fd`.
pub fn stream(fd: c_int) -> Option<&'static Stream> {
    words(fd).map(|words| &words.stream)
}

/// Returns all known streams.
pub fn streams() -> Vec<*mut libc::FILE> {
    // SAFETY: pages are never freed.
    let pages = TABLE.iter().filter_map(|page| unsafe { page.load(Acquire).as_ref() });
    let handles = pages.flatten().map(|words| words.stream.handle.load(Relaxed));
    handles.filter(|handle| !handle.is_null()).collect()
}

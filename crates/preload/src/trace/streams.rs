//! Buffered streams of the C library over files of the kernel, whose own reads and writes no hook sees. (Those over
//! files of Weft read and write by hooks.)
//!
//! A stream is told by the position of its descriptor: what a call that is seen moves it by, the C library read or wrote
//! in it. What it has moved since the last look was done in calls that no hook sees (`fprintf`, `putc`), and is told
//! as one operation. What a stream has still in its buffer goes out before it is closed or moved, as it would then.

use super::files::{self, Known, NO_STREAM, Stream};
use super::{FileRef, Level, Operation, Start, posix, record, with};
use crate::{guard, sys, table};
use libc::{FILE, c_int};
use std::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    fn __fwriting(file: *mut FILE) -> c_int;
    fn flockfile(file: *mut FILE);
    fn funlockfile(file: *mut FILE);
    #[link_name = "fflush_unlocked"]
    fn flush(file: *mut FILE) -> c_int;
}

/// Where `_IO_read_end` and `_IO_read_base` stand in the C library's FILE.
const READ_END_AT: usize = 16;
const READ_BASE_AT: usize = 24;

/// A stream before a call: held until [`moved`].
pub struct Before {
    start: Start,
    file: FileRef,
    fd: c_int,
    words: &'static Stream,
    at: u64,
}

/// What a call does to a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Reads,
    /// It writes.
    Writes,
    /// It moves the position, after what is in the buffer has gone out; the C library may read around the new one.
    Moves,
}

/// The descriptor of a stream, when that is the kernel's.
pub unsafe fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if stream.is_null() {
        return None;
    }
    let fd = *stream.cast::<u8>().add(crate::hooks::stdio::FILENO_AT).cast::<c_int>();
    (fd >= 0 && !table::is_ours(fd)).then_some(fd)
}

fn position(fd: c_int) -> Option<u64> {
    let errno = crate::errno::get();
    let at = sys::lseek(fd, 0, libc::SEEK_CUR).ok();
    crate::errno::set(errno);
    u64::try_from(at?).ok()
}

fn tell(start: Start, file: FileRef, op: Operation, range: std::ops::Range<u64>) {
    if !range.is_empty() {
        record(start, file, Level::Posix, op, false, (range.start, range.end - range.start));
    }
}

/// Looks at a stream before a call, and tells what was done by calls that were not seen.
#[cold]
pub unsafe fn before(start: Start, stream: *mut FILE, kind: Kind) -> Option<Before> {
    let fd = descriptor(stream)?;
    let Known { file, .. } = with(|tracer| files::of(tracer, fd))?;
    let words = files::stream(fd)?;
    flockfile(stream);
    let Some(mut at) = position(fd) else {
        funlockfile(stream);
        return None;
    };
    words.handle.store(stream, Relaxed);
    let seen = words.seen.load(Relaxed);
    let writes = __fwriting(stream) != 0;
    if seen != NO_STREAM {
        tell(start, file, if writes { Operation::Write } else { Operation::Read }, seen..at);
    }
    if kind == Kind::Moves && writes {
        // Where it fails, the call itself fails likewise.
        let errno = crate::errno::get();
        let inside = guard::enter();
        flush(stream);
        drop(inside);
        crate::errno::set(errno);
        let flushed = position(fd).unwrap_or(at);
        tell(start, file, Operation::Write, at..flushed);
        at = flushed;
    }
    words.seen.store(at, Relaxed);
    Some(Before { start: super::begin().unwrap_or(start), file, fd, words, at })
}

/// Looks again after the call.
#[cold]
pub unsafe fn moved(before: Before, stream: *mut FILE, kind: Kind) {
    let Before { start, file, fd, words, at: from } = before;
    let at = position(fd);
    let field = |at: usize| *stream.cast::<u8>().add(at).cast::<usize>();
    let buffered = field(READ_END_AT).saturating_sub(field(READ_BASE_AT)) as u64;
    funlockfile(stream);
    let Some(at) = at else { return };
    words.seen.store(at, Relaxed);
    match kind {
        Kind::Reads => tell(start, file, Operation::Read, from..at),
        Kind::Writes => tell(start, file, Operation::Write, from..at),
        Kind::Moves if at != from => tell(start, file, Operation::Read, at.saturating_sub(buffered)..at),
        Kind::Moves => {}
    }
}

/// `fopen` and its like gave a stream; with `flags` for a new descriptor.
#[cold]
pub unsafe fn opened(start: Start, stream: *mut FILE, flags: Option<c_int>) {
    if stream.is_null() {
        return;
    }
    let fd = *stream.cast::<u8>().add(crate::hooks::stdio::FILENO_AT).cast::<c_int>();
    if let Some(flags) = flags {
        posix::opened(start, fd, flags);
    }
    if !table::is_ours(fd)
        && with(|tracer| files::of(tracer, fd)).is_some()
        && let Some(words) = files::stream(fd)
    {
        words.seen.store(position(fd).unwrap_or(NO_STREAM), Relaxed);
        words.handle.store(stream, Relaxed);
    }
}

/// Before a stream is closed: tells the rest, and forgets it.
#[cold]
pub unsafe fn closing(start: Start, stream: *mut FILE) {
    if let Some(before) = before(start, stream, Kind::Moves) {
        before.words.handle.store(std::ptr::null_mut(), Relaxed);
        before.words.seen.store(NO_STREAM, Relaxed);
        funlockfile(stream);
    }
}

/// At the end of the process: tells the rest of streams that nobody closed.
pub unsafe fn at_end() {
    if let Some(start) = super::begin() {
        for stream in files::streams() {
            closing(start, stream);
        }
    }
}

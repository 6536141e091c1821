//! Buffered streams of the C library over foreign files, whose own reads and writes no hook sees. (Those over Weft
//! files use hooks.)
//!
//! The tracer derives a stream's operations from the position of its descriptor. A hooked call is recorded with the
//! distance by which it moved the position. A distance moved since the last check is due to calls that no hook sees
//! (`fprintf`, `putc`) and is recorded as one operation. Buffered bytes are flushed before a stream is closed or moved,
//! as the call itself would do.

use super::files::{self, NO_STREAM, Stream, TracedFile};
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

/// Offset of `_IO_read_end` in the C library's FILE, and below that of `_IO_read_base`.
const READ_END_AT: usize = 16;
const READ_BASE_AT: usize = 24;

/// State of a stream before a call, kept until [`moved`].
pub struct Before {
    start: Start,
    file: FileRef,
    fd: c_int,
    words: &'static Stream,
    at: u64,
}

/// Effect of a call on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Moves the position, after flushing the buffer; the C library may read around the new position.
    Moves,
}

/// Returns the descriptor of a stream, if it is a foreign one.
pub unsafe fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if stream.is_null() {
        return None;
    }
    let fd = crate::libio::number(stream);
    (fd >= 0 && !table::is_ours(fd)).then_some(fd)
}

fn position(fd: c_int) -> Option<u64> {
    let errno = crate::errno::get();
    let at = sys::lseek(fd, 0, libc::SEEK_CUR).ok();
    crate::errno::set(errno);
    u64::try_from(at?).ok()
}

fn record_operation(start: Start, file: FileRef, op: Operation, range: std::ops::Range<u64>) {
    if !range.is_empty() {
        record(start, file, Level::Posix, op, false, (range.start, range.end - range.start));
    }
}

/// Examines a stream before a call, and records operations by calls that no hook saw.
#[cold]
pub unsafe fn before(start: Start, stream: *mut FILE, kind: Kind) -> Option<Before> {
    let fd = descriptor(stream)?;
    let TracedFile { file, .. } = with(|tracer| files::of(tracer, fd))?;
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
        record_operation(start, file, if writes { Operation::Write } else { Operation::Read }, seen..at);
    }
    if kind == Kind::Moves && writes {
        // If this fails, so will the call itself.
        let errno = crate::errno::get();
        let inside = guard::enter();
        flush(stream);
        drop(inside);
        crate::errno::set(errno);
        let flushed = position(fd).unwrap_or(at);
        record_operation(start, file, Operation::Write, at..flushed);
        at = flushed;
    }
    words.seen.store(at, Relaxed);
    Some(Before { start: super::begin().unwrap_or(start), file, fd, words, at })
}

/// Examines the stream again after the call.
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
        Kind::Reads => record_operation(start, file, Operation::Read, from..at),
        Kind::Writes => record_operation(start, file, Operation::Write, from..at),
        Kind::Moves if at != from => {
            record_operation(start, file, Operation::Read, at.saturating_sub(buffered)..at)
        }
        Kind::Moves => {}
    }
}

/// Records that `fopen` or a similar call returned a stream; with `flags` for a new descriptor.
#[cold]
pub unsafe fn opened(start: Start, stream: *mut FILE, flags: Option<c_int>) {
    if stream.is_null() {
        return;
    }
    let fd = crate::libio::number(stream);
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

/// Records the rest of a stream's operations before it is closed, and forgets the stream.
#[cold]
pub unsafe fn closing(start: Start, stream: *mut FILE) {
    if let Some(before) = before(start, stream, Kind::Moves) {
        before.words.handle.store(std::ptr::null_mut(), Relaxed);
        before.words.seen.store(NO_STREAM, Relaxed);
        funlockfile(stream);
    }
}

/// Records the rest of all open streams' operations at the end of the process.
pub unsafe fn at_end() {
    if let Some(start) = super::begin() {
        for stream in files::streams() {
            closing(start, stream);
        }
    }
}

//! Pieces of one call of MPI-IO, which go to the delegates together.
//!
//! An MPI library that does not exchange bytes between ranks makes one call of the C library for each piece of a
//! non-contiguous access. During the MPI call, the hooks gather these pieces:
//!
//! * A write is copied, and all go in one request at the end of the MPI call, or when [`GATHERED_BYTES_MAX`] is reached.
//! * A read is delayed until then. Its caller already has the number of bytes, so the piece must lie before the end of the
//!   file, and the caller must not look at the bytes. That holds for memory of the program without gaps.
//! * Other reads of small pieces that lie close together fetch a *window* of the file, which serves the pieces behind.
//!
//! Only pieces of the program's own memory are gathered. Bytes in buffers of the MPI library belong to other ranks, or
//! are converted or copied after the read. Such a buffer may lie in a gap of the program's memory. The first read of a
//! call is made at once: most calls have only one.
//!
//! Every other call of the thread on a registered descriptor, or on a path that delegates serve, sends the pieces first
//! ([`settle`]).

use super::Open;
use crate::errno::{Fail, Res};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use weft_client::{ReadPiece, WritePiece};
use weft_core::FileOffset;

/// Number of bytes of writes that are sent before the end of an MPI call.
const GATHERED_BYTES_MAX: usize = 1 << 20;
/// Length of a write from which copying costs more than a request of its own, in bytes.
const ALONE_LEN: usize = GATHERED_BYTES_MAX / 4;
/// Number of pieces that are sent before the end of an MPI call.
const PIECES_MAX: usize = 8192;

/// Number of bytes of a window.
const WINDOW_LEN: usize = 128 << 10;
/// Distance of the starts of two pieces up to which a window is fetched, in bytes.
const STRIDE_MAX: u64 = WINDOW_LEN as u64 / 4;

/// Memory of the program that an MPI call reads or writes.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Addresses from the first to the last byte.
    pub range: Range<usize>,
    /// Number of bytes that the call moves.
    pub len: usize,
    /// Whether the call reads the file.
    pub reads: bool,
}

impl Memory {
    fn contains(&self, start: *const u8, len: usize) -> bool {
        let start = start.addr();
        self.range.start <= start && start.saturating_add(len) <= self.range.end
    }

    fn has_gaps(&self) -> bool {
        self.range.len() != self.len
    }
}

/// MPI call of a thread, with the pieces that it has gathered.
struct Call {
    memory: Memory,
    /// File of the pieces.
    open: Option<Arc<Open>>,
    /// Offset of each write in the file, and its place in `bytes`.
    writes: Vec<(u64, Range<usize>)>,
    bytes: Vec<u8>,
    /// Offset of each delayed read in the file, and its destination.
    reads: Vec<(u64, *mut u8, usize)>,
    /// Size of the file that is read, once the first piece was read.
    size: Option<u64>,
    /// Offset of the last read.
    last_read: Option<u64>,
    /// Bytes of the file that were fetched during this MPI call, and their offset.
    window: Option<(u64, Vec<u8>)>,
    failure: Option<i32>,
}

thread_local! {
    // Const and without a destructor, as in `guard`.
    static CALL: Cell<*mut Call> = const { Cell::new(null_mut()) };
}

/// Runs an MPI call of this thread on `memory`. Returns its result, and whether all gathered pieces have been moved.
pub fn gather<T>(memory: Memory, mpi_call: impl FnOnce() -> T) -> (T, Res<()>) {
    let mut call = Call {
        memory,
        open: None,
        writes: Vec::new(),
        bytes: Vec::new(),
        reads: Vec::new(),
        size: None,
        last_read: None,
        window: None,
        failure: None,
    };
    let before = CALL.replace(&raw mut call);
    let result = mpi_call();
    let moved = crate::serve::inside(settle);
    CALL.set(before);
    let failed_before = call.failure.take();
    (result, moved.and(failed_before.map_or(Ok(()), |errno| Err(errno.into()))))
}

/// Runs `work` on the MPI call of this thread, if there is one.
fn with_call<T>(work: impl FnOnce(&mut Call) -> T) -> Option<T> {
    let call = CALL.get();
    // Nested calls of the library do not reach the pieces.
    let _restore = Restore(CALL.replace(null_mut()));
    // SAFETY: null, or set by `gather` further up this thread's stack, and used only here.
    unsafe { call.as_mut() }.map(work)
}

struct Restore(*mut Call);

impl Drop for Restore {
    fn drop(&mut self) {
        CALL.set(self.0);
    }
}

/// Moves the pieces that this thread has gathered.
#[inline]
pub fn settle() -> Res<()> {
    if CALL.get().is_null() { Ok(()) } else { with_call(Call::settle).unwrap_or(Ok(())) }
}

/// Gathers a write. Returns the number of bytes; `None` if it is not gathered, and all earlier pieces are sent.
pub fn write(open: &Arc<Open>, bufs: &[IoSlice<'_>], offset: u64) -> Res<Option<usize>> {
    if CALL.get().is_null() {
        return Ok(None);
    }
    with_call(|call| call.write(open, bufs, offset)).unwrap_or(Ok(None))
}

/// Delays a read. Returns the number of bytes that it will have; `None` if it is not delayed, and all earlier pieces are
/// moved.
pub fn read(open: &Arc<Open>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<Option<usize>> {
    if CALL.get().is_null() {
        return Ok(None);
    }
    with_call(|call| call.read(open, bufs, offset)).unwrap_or(Ok(None))
}

impl Call {
    /// Makes `open` the file of the following pieces.
    fn begin(&mut self, open: &Arc<Open>) -> Res<()> {
        if !self.open.as_ref().is_some_and(|known| Arc::ptr_eq(known, open)) {
            self.settle()?;
            self.open = Some(Arc::clone(open));
            (self.size, self.last_read) = (None, None);
        }
        Ok(())
    }

    fn write(&mut self, open: &Arc<Open>, bufs: &[IoSlice<'_>], offset: u64) -> Res<Option<usize>> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let is_own = bufs.iter().all(|buf| self.memory.contains(buf.as_ptr(), buf.len()));
        let is_piece = len < self.memory.len.min(ALONE_LEN);
        if self.memory.reads || !is_own || !is_piece || open.file()?.number().is_none() {
            return self.settle().map(|()| None);
        }
        self.begin(open)?;
        if self.bytes.len() + len > GATHERED_BYTES_MAX || self.writes.len() + bufs.len() > PIECES_MAX {
            self.settle()?;
        }
        let mut at = offset;
        for buf in bufs {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(buf);
            match self.writes.last_mut() {
                // A piece right behind the previous one, in the file as in memory.
                Some((before, bytes)) if *before + bytes.len() as u64 == at => bytes.end = self.bytes.len(),
                _ => self.writes.push((at, start..self.bytes.len())),
            }
            at += buf.len() as u64;
        }
        Ok(Some(len))
    }

    fn read(&mut self, open: &Arc<Open>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<Option<usize>> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let is_own = bufs.iter().all(|buf| self.memory.contains(buf.as_ptr(), buf.len()));
        if !self.memory.reads || !is_own || open.file()?.number().is_none() {
            return self.settle().map(|()| None);
        }
        self.begin(open)?;
        let Some(before) = self.last_read.replace(offset) else { return Ok(None) };
        if self.memory.has_gaps() {
            let is_near = offset.checked_sub(before).is_some_and(|stride| stride <= STRIDE_MAX);
            return if is_near { self.read_window(open, bufs, offset) } else { Ok(None) };
        }
        let size = match self.size {
            Some(size) => size,
            None => *self.size.insert(open.file()?.size()?),
        };
        let is_before_end = offset.checked_add(len as u64).is_some_and(|end| end <= size);
        if !is_before_end {
            return self.settle().map(|()| None);
        }
        if self.reads.len() + bufs.len() > PIECES_MAX {
            self.settle()?;
        }
        let mut at = offset;
        for buf in bufs {
            self.reads.push((at, buf.as_mut_ptr(), buf.len()));
            at += buf.len() as u64;
        }
        Ok(Some(len))
    }

    /// Reads from the window, which is fetched first if it does not contain the piece.
    fn read_window(&mut self, open: &Open, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<Option<usize>> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let has_piece = |(start, bytes): &(u64, Vec<u8>)| {
            *start <= offset && offset + len as u64 <= start + bytes.len() as u64
        };
        if len > WINDOW_LEN / 4 {
            return Ok(None);
        }
        if !self.window.as_ref().is_some_and(has_piece) {
            let mut bytes = self.window.take().map(|(_, bytes)| bytes).unwrap_or_default();
            bytes.resize(WINDOW_LEN, 0);
            let known = open.file()?.read_at(&mut [IoSliceMut::new(&mut bytes)], offset)?;
            bytes.truncate(known);
            self.window = Some((offset, bytes));
        }
        let Some((start, bytes)) = &self.window else { return Ok(None) };
        let mut rest = &bytes[(offset - start) as usize..];
        let mut done = 0;
        for buf in bufs {
            let (head, behind) = rest.split_at(buf.len().min(rest.len()));
            buf[..head.len()].copy_from_slice(head);
            done += head.len();
            rest = behind;
        }
        Ok(Some(done))
    }

    fn settle(&mut self) -> Res<()> {
        self.window = None;
        let Some(open) = &self.open else { return Ok(()) };
        let writes = std::mem::take(&mut self.writes);
        let reads = std::mem::take(&mut self.reads);
        let mut moved = Ok(());
        if !writes.is_empty() {
            let piece = |(offset, range): (u64, Range<usize>)| WritePiece {
                offset: FileOffset(offset),
                bytes: &self.bytes[range],
            };
            let pieces: Vec<_> = writes.into_iter().map(piece).collect();
            moved = open.file().and_then(|file| file.write_list(&pieces));
        }
        if !reads.is_empty() {
            moved = moved.and(fetch(open, &reads));
        }
        self.bytes.clear();
        if let Err(fail) = &moved {
            self.failure.get_or_insert(fail.errno());
        }
        moved
    }
}

/// Performs delayed reads, all of which lay before the end of the file.
fn fetch(open: &Open, reads: &[(u64, *mut u8, usize)]) -> Res<()> {
    let mut pieces: Vec<_> = reads
        .iter()
        .map(|&(offset, start, len)| ReadPiece {
            offset: FileOffset(offset),
            // SAFETY: memory that the program has given to MPI for the time of its call, which has not returned yet.
            buffer: IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, len) }),
        })
        .collect();
    let done = open.file()?.read_list(&mut pieces)?;
    if done.iter().zip(reads).all(|(done, (_, _, len))| done == len) {
        return Ok(());
    }
    crate::sys::complain("MPI-IO: another process cut the file during a read; the call fails");
    Err(Fail::Errno(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_with_gaps_may_contain_buffers_of_others() {
        let bytes = [0u8; 100];
        let start = bytes.as_ptr().addr();
        let memory = |len| Memory { range: start..start + 100, len, reads: true };
        assert!(memory(100).contains(bytes.as_ptr(), 100) && !memory(100).has_gaps());
        assert!(memory(50).has_gaps());
        assert!(!memory(100).contains(bytes[1..].as_ptr(), 100));
        assert!(!memory(100).contains(bytes.as_ptr().wrapping_sub(1), 10));
        assert!(!memory(100).contains(bytes[1..].as_ptr(), usize::MAX));
    }

    #[test]
    fn calls_without_registered_files_have_nothing_to_move() {
        let memory = Memory { range: 0..100, len: 100, reads: false };
        let (result, moved) = gather(memory, || {
            assert!(settle().is_ok());
            7
        });
        assert!(result == 7 && moved.is_ok() && CALL.get().is_null());
    }
}

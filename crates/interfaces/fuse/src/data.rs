//! Reads and writes of file data.

use crate::answer::{Answer, Refusal, done};
use crate::file_pages::{Filling, Reading};
use crate::filesystem::WeftFilesystem;
use crate::open::OpenHandle;
use crate::pages::Pages;
use crate::splice::Spliced;
use fuser::{Errno, FileHandle, ReplyData, ReplyEmpty, ReplyWrite, RequestId};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_client::OpenFile;
use weft_core::{ByteLen, ByteRange, Extent, FileOffset};
use weft_env::real::{RealEnv, block_on};

/// Number of bytes that are punched at once if the kernel may have pages of them: what these have stays in memory meanwhile.
const PUNCHED_LEN_MAX: u64 = 16 << 20;

thread_local! {
    /// Buffer for reads that are not spliced, one per serving thread, so that no read allocates.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl WeftFilesystem {
    /// Reads and replies. `fills_pages`: the bytes become pages of the kernel.
    pub fn read_for(
        &self,
        unique: RequestId,
        handle: &OpenHandle,
        extent: Extent,
        fills_pages: bool,
        reply: ReplyData,
    ) {
        match fills_pages {
            true => {
                if let Some((reply, _reading)) = fill_for(handle, extent, reply) {
                    self.answer_read(unique, handle, extent, reply);
                }
            }
            false => self.answer_read(unique, handle, extent, reply),
        }
        if handle.pages || fills_pages {
            self.pages.after_read(&handle.file, handle.pages);
        }
    }

    fn answer_read(&self, unique: RequestId, handle: &OpenHandle, extent: Extent, reply: ReplyData) {
        if let Some(reply) = self.splice_for(unique, handle, extent, reply) {
            copy_for(handle, extent, reply);
        }
    }

    /// Replies without a buffer; returns `reply` if that is impossible.
    fn splice_for(
        &self,
        unique: RequestId,
        handle: &OpenHandle,
        extent: Extent,
        reply: ReplyData,
    ) -> Option<ReplyData> {
        if !handle.splices.load(Relaxed) || end_of(extent) > handle.length_seen.load(Relaxed) {
            return Some(reply);
        }
        match self.splicer.answer(unique, &handle.file, extent, reply) {
            Spliced::Answered => None,
            Spliced::Not(reply) => Some(reply),
            Spliced::Never(reply) => {
                handle.splices.store(false, Relaxed);
                Some(reply)
            }
        }
    }

    /// Writes the bytes of a program's call, and replies when no page of the kernel is older. Without an offset, the
    /// bytes go to the end of the file.
    pub fn write_for(&self, handle: &OpenHandle, offset: Option<FileOffset>, data: &[u8], reply: ReplyWrite) {
        let len = data.len() as u64;
        let range = match offset {
            None => after_end(handle),
            Some(offset) => ByteRange::new(offset.0, offset.0.saturating_add(len)),
        };
        let Some(range) = range else { return reply.written(0) };
        let change = match self.pages.begin_change_past(handle, range, read_before) {
            Ok(change) => change,
            Err(Refusal(errno)) => return reply.error(errno),
        };
        let bufs = [IoSlice::new(data)];
        let result = match offset {
            None => block_on(handle.file.append(&bufs)),
            Some(offset) => block_on(handle.file.write_at(&bufs, offset)).map(|written| (offset, written)),
        };
        handle.wrote.store(true, Relaxed);
        let changed = match &result {
            Ok((at, written)) => ByteRange::new(at.0, at.0 + *written as u64),
            // Some bytes may have been written.
            Err(_) => Some(range),
        };
        self.pages.after_change_past(handle, change, changed, move || match result {
            Ok((_, written)) => reply.written(written as u32),
            Err(error) => reply.error(Refusal::from(error).0),
        });
    }

    /// Writes pages of the kernel, which programs have stored into, and replies. The kernel keeps these pages until the
    /// reply, so this waits for nothing that waits for them; other mounts learn of it later.
    pub fn write_back_for(&self, handle: &OpenHandle, offset: FileOffset, data: &[u8], reply: ReplyWrite) {
        let write = |part: Range<usize>| {
            let (at, bytes) = (FileOffset(offset.0 + part.start as u64), &data[part]);
            // The kernel ignores a smaller count.
            match block_on(handle.file.write_back_at(&[IoSlice::new(bytes)], at))? {
                written if written < bytes.len() => Err(Errno::ENOSPC.into()),
                _ => Ok(()),
            }
        };
        let write_all = |parts: &[Range<usize>]| parts.iter().cloned().try_for_each(write);
        let before = self.pages.before_change();
        let result: Answer<()> = handle.kernel_pages.write_back(offset.0, data, write_all);
        handle.wrote.store(true, Relaxed);
        let range = ByteRange::new(offset.0, offset.0.saturating_add(data.len() as u64));
        if let Some(range) = range.filter(|_| handle.file.reports_writes()) {
            self.pages.reporter.report_later(handle.file.file(), || handle.file.clone(), range);
        }
        match result {
            Ok(()) => reply.written(data.len() as u32),
            Err(Refusal(errno)) => reply.error(errno),
        }
        self.pages.after_change(handle.file.file(), before, false);
    }

    /// Extends the file, or punches holes in it, and replies. Space cannot be reserved on the targets; a request for that
    /// alone fails as not supported, and callers fall back to writing.
    pub fn allocate_for(&self, fh: FileHandle, offset: u64, len: u64, mode: i32, reply: ReplyEmpty) {
        let checked = self.handle(fh).and_then(|handle| {
            let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64).ok_or(Errno::EFBIG)?;
            let range = ByteRange::new(offset, end).ok_or(Errno::EINVAL)?;
            let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
            match mode & !libc::FALLOC_FL_KEEP_SIZE {
                0 if !keeps_size => {}
                libc::FALLOC_FL_PUNCH_HOLE if keeps_size => {}
                libc::FALLOC_FL_ZERO_RANGE => {}
                _ => return Err(Errno::EOPNOTSUPP.into()),
            }
            Ok((handle, range))
        });
        let (handle, range) = match checked {
            Ok(checked) => checked,
            Err(Refusal(errno)) => return reply.error(errno),
        };
        handle.wrote.store(true, Relaxed);
        if !handle.kernel_pages.has_pages() {
            let change = match self.pages.begin_change_past(&handle, range, read_before) {
                Ok(change) => change,
                Err(Refusal(errno)) => return reply.error(errno),
            };
            let result = punch(&handle, range, mode).and_then(|()| extend(&handle, range, mode));
            return self.pages.after_change_past(&handle, change, Some(range), move || done(result, reply));
        }
        // Pieces wait for drops, for which neither this thread nor the one that drops pages may wait.
        let pages = Arc::clone(&self.pages);
        let reply = Arc::new(Mutex::new(Some(reply)));
        let for_thread = Arc::clone(&reply);
        let work = move || {
            let result =
                punch_pieces(&pages, &handle, range, mode).and_then(|()| extend(&handle, range, mode));
            let reply = for_thread.lock().take();
            if let Some(reply) = reply {
                done(result, reply);
            }
        };
        if std::thread::Builder::new().name("weft-allocate".to_owned()).spawn(work).is_err() {
            let reply = reply.lock().take();
            if let Some(reply) = reply {
                reply.error(Errno::EAGAIN);
            }
        }
    }

    /// Returns the first data or hole at or after an offset.
    pub fn seek(&self, fh: FileHandle, offset: i64, whence: i32) -> Answer<i64> {
        let handle = self.handle(fh)?;
        let offset = FileOffset(u64::try_from(offset).map_err(|_| Errno::ENXIO)?);
        let found = match whence {
            libc::SEEK_DATA => block_on(handle.file.seek_data(offset))?,
            libc::SEEK_HOLE => block_on(handle.file.seek_hole(offset))?,
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok(found.ok_or(Errno::ENXIO)?.0 as i64)
    }
}

/// Punches a range, if `mode` says so.
fn punch(handle: &OpenHandle, range: ByteRange, mode: i32) -> Answer<()> {
    if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
        block_on(handle.file.punch(Extent::new(range.start(), range.len())))?;
    }
    Ok(())
}

/// Punches a range of which the kernel may have pages. Returns when no page is older.
fn punch_pieces(pages: &Pages, handle: &OpenHandle, range: ByteRange, mode: i32) -> Answer<()> {
    let mut start = range.start();
    while let Some(piece) = ByteRange::new(start, range.end().min(start.saturating_add(PUNCHED_LEN_MAX))) {
        let change = pages.begin_change_past(handle, piece, read_before)?;
        let result = punch(handle, piece, mode);
        let (dropped, is_dropped) = std::sync::mpsc::channel();
        pages.after_change_past(handle, change, Some(piece), move || {
            let _ = dropped.send(());
        });
        // An error says that the mount has ended.
        let _ = is_dropped.recv();
        result?;
        start = piece.end();
    }
    Ok(())
}

/// Makes the file at least as long as the end of `range`, unless `mode` keeps the size.
fn extend(handle: &OpenHandle, range: ByteRange, mode: i32) -> Answer<()> {
    let extends = mode & libc::FALLOC_FL_KEEP_SIZE == 0;
    if extends && block_on(handle.file.size())? < ByteLen(range.end()) {
        block_on(handle.file.truncate(ByteLen(range.end())))?;
    }
    Ok(())
}

/// Returns the range in which an append may write.
fn after_end(handle: &OpenHandle) -> Option<ByteRange> {
    let size = handle.kernel_pages.has_pages().then(|| block_on(handle.file.size()).ok()).flatten();
    ByteRange::new(size.map_or(0, |size| size.0), u64::MAX)
}

/// Reads what the kernel's pages may have before a change.
fn read_before(file: &OpenFile<RealEnv>, at: u64, buffer: &mut [u8]) -> Answer<usize> {
    Ok(block_on(file.read_at(&mut [IoSliceMut::new(buffer)], FileOffset(at)))?)
}

/// Replies to a read for pages of the kernel, if a change of them is in progress. Otherwise returns `reply`, and what ends the
/// read.
fn fill_for(
    handle: &OpenHandle,
    extent: Extent,
    reply: ReplyData,
) -> Option<(ReplyData, Reading<'_, OpenFile<RealEnv>>)> {
    READ_BUFFER.with_borrow_mut(|buffer| {
        let len = extent.len.0 as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let read = |buffer: &mut [u8]| read_before(&handle.file, extent.offset.0, buffer);
        match handle.kernel_pages.filling(extent.offset.0, &mut buffer[..len], read) {
            Filling::Begun(reading) => return Some((reply, reading)),
            Filling::Done(Ok(got)) => reply.data(&buffer[..got]),
            Filling::Done(Err(Refusal(errno))) => reply.error(errno),
        }
        None
    })
}

fn end_of(extent: Extent) -> u64 {
    extent.offset.0.saturating_add(extent.len.0)
}

/// Replies through a buffer.
fn copy_for(handle: &OpenHandle, extent: Extent, reply: ReplyData) {
    READ_BUFFER.with_borrow_mut(|buffer| {
        let len = extent.len.0 as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let mut bufs = [IoSliceMut::new(&mut buffer[..len])];
        match block_on(handle.file.read_at(&mut bufs, extent.offset)) {
            Ok(got) => {
                if got == len {
                    handle.length_seen.fetch_max(end_of(extent), Relaxed);
                }
                reply.data(&buffer[..got]);
            }
            Err(error) => reply.error(Refusal::from(error).0),
        }
    });
}

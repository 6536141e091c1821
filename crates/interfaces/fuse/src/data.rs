//! Reads and writes of file data.

use crate::answer::{Answer, Refusal};
use crate::filesystem::WeftFilesystem;
use crate::open::OpenHandle;
use crate::splice::Spliced;
use fuser::{Errno, FileHandle, ReplyData, ReplyWrite, RequestId};
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::real::block_on;

thread_local! {
    /// Buffer for reads that are not spliced, one per serving thread, so that no read allocates.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl WeftFilesystem {
    /// Reads and replies. `fills_pages`: the bytes become pages of the kernel, for a memory mapping.
    pub fn read_for(
        &self,
        unique: RequestId,
        handle: &OpenHandle,
        extent: Extent,
        fills_pages: bool,
        reply: ReplyData,
    ) {
        if let Some(reply) = self.splice_for(unique, handle, extent, reply) {
            copy_for(handle, extent, reply);
        }
        if handle.pages || fills_pages {
            self.pages.after_read(&handle.file, handle.pages);
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

    /// Writes and replies.
    pub fn write_for(&self, handle: &OpenHandle, offset: FileOffset, data: &[u8], reply: ReplyWrite) {
        let bufs = [IoSlice::new(data)];
        let result = if handle.append {
            block_on(handle.file.append(&bufs)).map(|(_, written)| written)
        } else {
            block_on(handle.file.write_at(&bufs, offset))
        };
        handle.wrote.store(true, Relaxed);
        let file = handle.file.file();
        let answer = move || match result {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(Refusal::from(error).0),
        };
        if handle.pages {
            answer();
            self.pages.after_change(file, false);
        } else {
            self.pages.after_write_past(file, answer);
        }
    }

    /// Extends the file, or punches holes in it. Space cannot be reserved on the targets; a request for that alone
    /// fails as not supported, and callers fall back to writing.
    pub fn allocate(&self, fh: FileHandle, offset: u64, len: u64, mode: i32) -> Answer<()> {
        let handle = self.handle(fh)?;
        let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64).ok_or(Errno::EFBIG)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 if !keeps_size => {}
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => {}
            libc::FALLOC_FL_ZERO_RANGE => {}
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
        handle.wrote.store(true, Relaxed);
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            block_on(handle.file.punch(Extent::new(offset, len)))?;
        }
        if !keeps_size && block_on(handle.file.size())? < ByteLen(end) {
            block_on(handle.file.truncate(ByteLen(end)))?;
        }
        self.pages.after_change(handle.file.file(), false);
        Ok(())
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

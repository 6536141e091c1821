//! Reading and writing.

use crate::args::{self, COUNT_MAX};
use crate::fail::{Res, exported};
use crate::file::{File, file};
use libc::{off_t, size_t, ssize_t};
use std::ffi::{c_int, c_void};
use std::io::IoSlice;
use weft_client::FileHandle;
use weft_core::FileOffset;
use weft_env::real::block_on;

const _: () = assert!(COUNT_MAX <= ssize_t::MAX as usize);

/// Writes at `offset`, or at the end if the file was opened for appending.
fn write(file: &File, bufs: &[IoSlice<'_>], offset: off_t) -> Res<ssize_t> {
    let offset = args::unsigned(offset, "the offset")?;
    if file.append {
        return append(file, bufs).map(|(_, written)| written);
    }
    let open = file.get()?;
    let written = block_on(open.write_at(bufs, FileOffset(offset)))?;
    if file.sync && written > 0 {
        block_on(open.sync())?;
    }
    Ok(written as ssize_t)
}

fn append(file: &File, bufs: &[IoSlice<'_>]) -> Res<(FileOffset, ssize_t)> {
    let open = file.get()?;
    let (offset, written) = block_on(open.append(bufs))?;
    if file.sync && written > 0 {
        block_on(open.sync())?;
    }
    Ok((offset, written as ssize_t))
}

exported! {
    fn weft_pread(file: *const File, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller, the buffer not in use elsewhere.
        let (file, destination) = unsafe { (self::file(file)?, args::destination(buf, count)?) };
        let offset = FileOffset(args::unsigned(offset, "the offset")?);
        Ok(block_on(file.get()?.read_at(&mut [destination], offset))? as ssize_t)
    }

    fn weft_pwrite(file: *const File, buf: *const c_void, count: size_t, offset: off_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (file, source) = unsafe { (self::file(file)?, args::source(buf, count)?) };
        write(file, &[source], offset)
    }

    fn weft_preadv(file: *const File, iov: *const libc::iovec, iovcnt: c_int, offset: off_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (file, vectors) = unsafe { (self::file(file)?, args::vectors(iov, iovcnt)?) };
        let offset = FileOffset(args::unsigned(offset, "the offset")?);
        // SAFETY: buffers of the caller's, not in use elsewhere.
        let destinations = vectors.into_iter().map(|(base, len)| unsafe { args::destination(base, len) });
        let mut destinations = destinations.collect::<Res<Vec<_>>>()?;
        Ok(block_on(file.get()?.read_at(&mut destinations, offset))? as ssize_t)
    }

    fn weft_pwritev(file: *const File, iov: *const libc::iovec, iovcnt: c_int, offset: off_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (file, vectors) = unsafe { (self::file(file)?, args::vectors(iov, iovcnt)?) };
        // SAFETY: buffers of the caller's.
        let sources = vectors.into_iter().map(|(base, len)| unsafe { args::source(base, len) });
        write(file, &sources.collect::<Res<Vec<_>>>()?, offset)
    }

    fn weft_append(file: *const File, buf: *const c_void, count: size_t, offset: *mut off_t) -> ssize_t | -1; {
        // SAFETY: pointers of the caller.
        let (file, source) = unsafe { (self::file(file)?, args::source(buf, count)?) };
        let (at, written) = append(file, &[source])?;
        if !offset.is_null() {
            // SAFETY: not null, and the caller's.
            unsafe { args::put(offset, at.0 as off_t, "the offset pointer")? };
        }
        Ok(written)
    }
}

//! Reading, writing, seeking, lengths and syncing of an open file description.

use super::{Open, gather};
use crate::backend::File;
use crate::errno::Res;
use crate::{limits, sys};
use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the position of `fd`. Fails as Linux does if `len` bytes from there end behind the last offset of any file.
fn position_for(fd: c_int, len: i64) -> Res<i64> {
    let at = sys::lseek(fd, 0, libc::SEEK_CUR)?;
    at.checked_add(len).ok_or(libc::EINVAL)?;
    Ok(at)
}

impl Open {
    /// Refuses calls on the contents or attributes of a descriptor that only refers to a file (`O_PATH`).
    pub fn is_opened(&self) -> Res<()> {
        if self.flags() & libc::O_PATH != 0 { Err(libc::EBADF.into()) } else { Ok(()) }
    }

    /// Whether the access mode permits to read, or to write.
    pub fn has_mode(&self, write: bool) -> Res<()> {
        let flags = self.flags();
        // Access mode 3 opens a file for `ioctl` alone.
        let is_neither = flags & libc::O_ACCMODE == libc::O_ACCMODE;
        let refused = if write { libc::O_RDONLY } else { libc::O_WRONLY };
        if flags & libc::O_PATH != 0 || is_neither || flags & libc::O_ACCMODE == refused {
            return Err(libc::EBADF.into());
        }
        Ok(())
    }

    /// Whether the description may be read or written.
    pub fn may(&self, write: bool) -> Res<()> {
        self.has_mode(write)?;
        if self.directory {
            return Err(libc::EISDIR.into());
        }
        self.description.check()
    }

    pub fn read_at(self: &Arc<Self>, bufs: &mut [IoSliceMut<'_>], offset: i64) -> Res<usize> {
        self.may(false)?;
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
        self.take(self.file()?, bufs, offset)
    }

    /// Reads now, or with the other pieces of an MPI call.
    fn take(self: &Arc<Self>, file: &File, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        match gather::read(self, bufs, offset)? {
            Some(len) => Ok(len),
            None => file.read_at(bufs, offset),
        }
    }

    /// Writes now, or with the other pieces of an MPI call.
    fn put(self: &Arc<Self>, file: &File, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        if self.is_synchronous() {
            gather::settle()?;
            return file.write_at(bufs, offset);
        }
        match gather::write(self, bufs, offset)? {
            Some(len) => Ok(len),
            None => file.write_at(bufs, offset),
        }
    }

    /// Writes at the end, after the other pieces of an MPI call.
    fn append(file: &File, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        gather::settle()?;
        file.append(bufs)
    }

    pub fn write_at(self: &Arc<Self>, bufs: &[IoSlice<'_>], offset: i64) -> Res<usize> {
        self.may(true)?;
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
        self.wrote.store(true, Ordering::Relaxed);
        let file = self.file()?;
        // Linux appends even if an offset is given.
        let done = if self.flags() & libc::O_APPEND != 0 {
            self.within_limit(bufs, || file.size(), |bufs| Self::append(file, bufs).map(|(_, done)| done))?
        } else {
            self.within_limit(bufs, || Ok(offset), |bufs| self.put(file, bufs, offset))?
        };
        self.sync_when_asked()?;
        Ok(done)
    }

    /// Writes as much of `bufs` as the limit on file sizes allows at the offset `place()`.
    fn within_limit(
        &self,
        bufs: &[IoSlice<'_>],
        place: impl FnOnce() -> Res<u64>,
        write: impl FnOnce(&[IoSlice<'_>]) -> Res<usize>,
    ) -> Res<usize> {
        if limits::file_size().is_none() {
            return write(bufs);
        }
        let wanted = bufs.iter().map(|buf| buf.len()).sum();
        let mut writable = limits::writable_len(place()?, wanted)?;
        let fitting: Vec<IoSlice<'_>> = bufs
            .iter()
            .map(|buf| {
                let len = buf.len().min(writable);
                writable -= len;
                IoSlice::new(&buf[..len])
            })
            .collect();
        write(&fitting)
    }

    fn is_synchronous(&self) -> bool {
        self.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0
    }

    fn sync_when_asked(&self) -> Res<()> {
        if self.is_synchronous() { self.file()?.sync() } else { Ok(()) }
    }

    pub fn read(self: &Arc<Self>, fd: c_int, bufs: &mut [IoSliceMut<'_>]) -> Res<usize> {
        self.may(false)?;
        let file = self.file()?;
        let wanted = bufs.iter().map(|buf| buf.len()).sum::<usize>() as i64;
        let _turn = self.take_turn(fd);
        // Reserve the range before reading it: a child that is forked meanwhile does not know of this turn.
        let (at, reserved) = match sys::lseek(fd, wanted, libc::SEEK_CUR) {
            Ok(end) => (end - wanted, wanted),
            // The range ends behind the last offset of all files, or of a host's file system.
            Err(_) => (position_for(fd, wanted)?, 0),
        };
        let result = self.take(file, bufs, at as u64);
        let got = *result.as_ref().unwrap_or(&0) as i64;
        if got != reserved {
            sys::lseek(fd, got - reserved, libc::SEEK_CUR)?;
        }
        result
    }

    /// Returns the result of a read at `offset`, or at the position, into memory that cannot be used: only at the end of
    /// the file the kernel does not touch it.
    pub fn read_nothing(self: &Arc<Self>, fd: c_int, offset: Option<i64>) -> Res<usize> {
        self.may(false)?;
        let at = offset.map_or_else(|| sys::lseek(fd, 0, libc::SEEK_CUR), Ok)?;
        let mut byte = [0];
        match self.read_at(&mut [IoSliceMut::new(&mut byte)], at)? {
            0 => Ok(0),
            _ => Err(libc::EFAULT.into()),
        }
    }

    /// Fails as a write of memory that cannot be used.
    pub fn write_nothing(&self) -> Res<usize> {
        self.may(true)?;
        Err(libc::EFAULT.into())
    }

    pub fn write(self: &Arc<Self>, fd: c_int, bufs: &[IoSlice<'_>]) -> Res<usize> {
        self.may(true)?;
        let file = self.file()?;
        self.wrote.store(true, Ordering::Relaxed);
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        if wanted == 0 {
            // Not even an append moves the position.
            return Ok(0);
        }
        let _turn = self.take_turn(fd);
        self.refresh_flags(fd);
        let done = if self.flags() & libc::O_APPEND != 0 {
            // Linux looks at the position first, although it does not write there.
            position_for(fd, wanted as i64)?;
            let append = |bufs: &[IoSlice<'_>]| {
                let (at, done) = Self::append(file, bufs)?;
                sys::lseek(fd, at as i64 + done as i64, libc::SEEK_SET)?;
                Ok(done)
            };
            self.within_limit(bufs, || file.size(), append)?
        } else {
            // Reserve the range before writing it, so that processes that share the offset never overlap.
            let Ok(end) = sys::lseek(fd, wanted as i64, libc::SEEK_CUR) else {
                position_for(fd, wanted as i64)?;
                return Err(libc::EFBIG.into());
            };
            let at = (end - wanted as i64) as u64;
            let result = self.within_limit(bufs, || Ok(at), |bufs| self.put(file, bufs, at));
            let missing = wanted - *result.as_ref().unwrap_or(&0);
            if missing > 0 {
                sys::lseek(fd, -(missing as i64), libc::SEEK_CUR)?;
            }
            result?
        };
        self.sync_when_asked()?;
        Ok(done)
    }

    pub fn seek(&self, fd: c_int, offset: i64, whence: c_int) -> Res<i64> {
        if self.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        let _turn = self.take_turn(fd);
        if self.directory && whence == libc::SEEK_SET && offset == 0 {
            // A rewind must show names created and removed since.
            *self.listing.lock() = None;
        }
        match whence {
            libc::SEEK_SET | libc::SEEK_CUR => Ok(sys::lseek(fd, offset, whence)?),
            libc::SEEK_END => {
                gather::settle()?;
                let target = (self.file()?.size()? as i64).checked_add(offset).ok_or(libc::EINVAL)?;
                Ok(sys::lseek(fd, target, libc::SEEK_SET)?)
            }
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                gather::settle()?;
                let (file, from) = (self.file()?, u64::try_from(offset).map_err(|_| libc::ENXIO)?);
                let found =
                    if whence == libc::SEEK_DATA { file.seek_data(from) } else { file.seek_hole(from) };
                Ok(sys::lseek(fd, found?.ok_or(libc::ENXIO)? as i64, libc::SEEK_SET)?)
            }
            _ => Err(libc::EINVAL.into()),
        }
    }

    pub fn truncate(&self, size: i64) -> Res<()> {
        let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
        if self.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        match self.may(true).map_err(|fail| fail.errno()) {
            Ok(()) => {}
            Err(libc::EIO) => return Err(libc::EIO.into()),
            Err(_) => return Err(libc::EINVAL.into()),
        }
        self.wrote.store(true, Ordering::Relaxed);
        let file = self.file()?;
        limits::may_become(size, || file.size())?;
        file.truncate(size)
    }

    /// Allocates `[offset, offset + len)`, or punches a hole there. Weft reserves no space, so that allocation only
    /// changes the length; file systems of the host reserve it, through `fd`.
    pub fn allocate(&self, fd: c_int, mode: c_int, offset: i64, len: i64) -> Res<()> {
        if offset < 0 || len <= 0 {
            return Err(libc::EINVAL.into());
        }
        const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_IN: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        if !matches!(mode, 0 | libc::FALLOC_FL_KEEP_SIZE | PUNCH | ZERO_IN | libc::FALLOC_FL_ZERO_RANGE) {
            return Err(libc::EOPNOTSUPP.into());
        }
        self.may(true).map_err(|fail| if fail.errno() == libc::EIO { libc::EIO } else { libc::EBADF })?;
        let end = offset.checked_add(len).ok_or(libc::EFBIG)?;
        let file = self.file()?;
        match mode {
            0 | libc::FALLOC_FL_KEEP_SIZE if self.is_host() => {
                limits::may_become(end as u64, || file.size())?;
                Ok(sys::fallocate(fd, mode, offset, len)?)
            }
            0 => self.grow(end),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            PUNCH | ZERO_IN | libc::FALLOC_FL_ZERO_RANGE => {
                self.wrote.store(true, Ordering::Relaxed);
                if mode == libc::FALLOC_FL_ZERO_RANGE {
                    self.grow(end)?;
                }
                file.punch(offset as u64, len as u64)
            }
            _ => Err(libc::EOPNOTSUPP.into()),
        }
    }

    /// Extends the file to at least `end` bytes.
    pub fn grow(&self, end: i64) -> Res<()> {
        let (file, end) = (self.file()?, end as u64);
        if file.size()? >= end {
            return Ok(());
        }
        limits::may_become(end, || Ok(0))?;
        file.truncate(end)
    }

    pub fn sync(&self) -> Res<()> {
        if self.flags() & libc::O_PATH != 0 {
            return Err(libc::EBADF.into());
        }
        self.file()?.sync()
    }
}

//! The interface of a file system, which programs, commands and delegates use in place of a particular one.
//!
//! | implementation | [`FileHandle`]: bytes of an open file | [`FileSystem`]: names |
//! | --- | --- | --- |
//! | Weft | [`OpenFile`](crate::OpenFile) | [`Client`](crate::Client) |
//! | the host's own file systems | [`HostFile`](crate::HostFile) | [`HostFs`](crate::HostFs) |
//! | either of them | [`HostOrWeftFile`](crate::HostOrWeftFile) | [`HostOrWeftFs`](crate::HostOrWeftFs) |
//! | delegates in front of either | [`DelegatedFile`](crate::DelegatedFile) | those of the file system below |
//! | a file and its replica | [`Redirector`](crate::replicas::Redirector) | those of the file |
//! | delegates, if the job has some | [`MaybeDelegated`](crate::MaybeDelegated) | [`DelegatedFs`](crate::DelegatedFs), in front of Weft |
//!
//! Locks, extended attributes and layouts belong to one file system: their callers use the client or the file below.

use crate::error::{Error, Result};
use crate::size::LastKnown;
use std::io::{IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_wire::Errno;
use weft_wire::meta::{LayoutSpec, OpenFlags, SetAttr};

/// A piece of a list read: its place in the file, and the memory to fill.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// First byte.
    pub offset: FileOffset,
    /// Destination.
    pub buffer: IoSliceMut<'a>,
}

/// A piece of a list write: its place in the file, and the bytes.
#[derive(Clone, Copy, Debug)]
pub struct WritePiece<'a> {
    /// First byte.
    pub offset: FileOffset,
    /// Bytes to write.
    pub bytes: &'a [u8],
}

/// An open file of any file system. Clones of the handle, if it has any, share it; dropping the last one closes it.
pub trait FileHandle: Send + Sync + 'static {
    /// Reads into `bufs` from `offset`, and returns the number of bytes read, which is less than requested only at the
    /// end of the file.
    ///
    /// # Errors
    /// Errors of pread(2).
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize>;

    /// Writes `bufs` at `offset`, and returns the number of bytes written, which is less than given only after an error
    /// in the middle.
    ///
    /// # Errors
    /// Errors of pwrite(2).
    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize>;

    /// Reads several pieces and returns the number of bytes of each.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at); some pieces may have been read.
    async fn read_list(&self, pieces: &mut [ReadPiece<'_>]) -> Result<Vec<usize>> {
        let mut done = Vec::with_capacity(pieces.len());
        for ReadPiece { offset, buffer } in pieces {
            done.push(self.read_at(&mut [IoSliceMut::new(buffer)], *offset).await?);
        }
        Ok(done)
    }

    /// Writes several pieces, in their order, completely.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at); some pieces may have been written.
    async fn write_list(&self, pieces: &[WritePiece<'_>]) -> Result<()> {
        for WritePiece { offset, bytes } in pieces {
            write_all(self, bytes, *offset).await?;
        }
        Ok(())
    }

    /// Writes `bufs` at the end of the file, and returns the place and the number of bytes.
    ///
    /// # Errors
    /// Errors of write(2).
    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)>;

    /// Returns the size.
    ///
    /// # Errors
    /// Errors of fstat(2).
    async fn size(&self) -> Result<ByteLen>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// Errors of ftruncate(2).
    async fn truncate(&self, size: ByteLen) -> Result<()>;

    /// Makes bytes and size durable.
    ///
    /// # Errors
    /// Errors of fsync(2).
    async fn sync(&self) -> Result<()>;

    /// Punches a hole; the size stays.
    ///
    /// # Errors
    /// Errors of fallocate(2).
    async fn punch(&self, extent: Extent) -> Result<()>;

    /// Returns the first data at or after `offset`; `None` if there is none.
    ///
    /// # Errors
    /// Errors of lseek(2).
    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>>;

    /// Returns the first hole at or after `offset`; `None` after the end of the file.
    ///
    /// # Errors
    /// Errors of lseek(2).
    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>>;

    /// Closes the file, and reports what a close of the file system reports.
    ///
    /// # Errors
    /// Errors of close(2).
    async fn close(self) -> Result<()>
    where
        Self: Sized;
}

/// Implements the operations of [`FileHandle`] but `append` and `close`. `$either!(self, file => call)` makes the call for the
/// file of the present variant.
macro_rules! forward_operations {
    ($either:ident) => {
        async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
            $either!(self, file => file.read_at(bufs, offset).await)
        }

        async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
            $either!(self, file => file.write_at(bufs, offset).await)
        }

        async fn read_list(&self, pieces: &mut [ReadPiece<'_>]) -> Result<Vec<usize>> {
            $either!(self, file => file.read_list(pieces).await)
        }

        async fn write_list(&self, pieces: &[WritePiece<'_>]) -> Result<()> {
            $either!(self, file => file.write_list(pieces).await)
        }

        async fn size(&self) -> Result<ByteLen> {
            $either!(self, file => file.size().await)
        }

        async fn truncate(&self, size: ByteLen) -> Result<()> {
            $either!(self, file => file.truncate(size).await)
        }

        async fn sync(&self) -> Result<()> {
            $either!(self, file => file.sync().await)
        }

        async fn punch(&self, extent: Extent) -> Result<()> {
            $either!(self, file => file.punch(extent).await)
        }

        async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
            $either!(self, file => file.seek_data(offset).await)
        }

        async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
            $either!(self, file => file.seek_hole(offset).await)
        }
    };
}
pub(crate) use forward_operations;

/// The names of a file system.
pub trait FileSystem {
    /// How callers name a file. It says whether to follow a symbolic link in the last component.
    type Path: ?Sized;
    /// An open file.
    type File: FileHandle;

    /// Opens a file, and creates it first if `flags` ask for that. `mode` are the permission bits of a new file, from which
    /// the caller has taken those of the umask. File systems without layouts ignore `layout`.
    ///
    /// # Errors
    /// Errors of open(2).
    async fn open(
        &self,
        at: &Self::Path,
        flags: OpenFlags,
        mode: u32,
        layout: &LayoutSpec,
    ) -> Result<Self::File>;

    /// Returns attributes.
    ///
    /// # Errors
    /// Errors of stat(2).
    async fn stat(&self, at: &Self::Path) -> Result<LastKnown>;

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// Errors of truncate(2).
    async fn truncate(&self, at: &Self::Path, size: ByteLen) -> Result<()>;

    /// Sets mode, owner or times.
    ///
    /// # Errors
    /// Errors of chmod(2), chown(2) and utimensat(2).
    async fn set_attr(&self, at: &Self::Path, set: SetAttr) -> Result<()>;

    /// Creates a directory. `mode` has the umask applied already.
    ///
    /// # Errors
    /// Errors of mkdir(2).
    async fn mkdir(&self, at: &Self::Path, mode: u32) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Errors of rmdir(2).
    async fn rmdir(&self, at: &Self::Path) -> Result<()>;

    /// Creates a symbolic link at `at`.
    ///
    /// # Errors
    /// Errors of symlink(2).
    async fn symlink(&self, at: &Self::Path, target: &[u8]) -> Result<()>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Errors of readlink(2).
    async fn readlink(&self, at: &Self::Path) -> Result<Vec<u8>>;

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// Errors of unlink(2).
    async fn unlink(&self, at: &Self::Path) -> Result<()>;

    /// Renames `from` to `to` and replaces an existing file.
    ///
    /// # Errors
    /// Errors of rename(2).
    async fn rename(&self, from: &Self::Path, to: &Self::Path) -> Result<()>;

    /// Returns the names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// Errors of opendir(3).
    async fn read_dir(&self, at: &Self::Path) -> Result<Vec<Vec<u8>>>;
}

/// Writes all of `bytes`.
///
/// # Errors
/// As for [`FileHandle::write_at`].
pub async fn write_all<F: FileHandle + ?Sized>(
    file: &F,
    mut bytes: &[u8],
    mut offset: FileOffset,
) -> Result<()> {
    while !bytes.is_empty() {
        let done = file.write_at(&[IoSlice::new(bytes)], offset).await?;
        if done == 0 {
            return Err(Error::misuse(Errno::ENOSPC, "the file system accepts no more bytes"));
        }
        bytes = &bytes[done..];
        offset.0 += done as u64;
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns the number of bytes.
///
/// # Errors
/// As for [`FileHandle::read_at`].
pub async fn read_all<F: FileHandle + ?Sized>(
    file: &F,
    buffer: &mut [u8],
    offset: FileOffset,
) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let part = &mut buffer[done..];
        let read = file.read_at(&mut [IoSliceMut::new(part)], FileOffset(offset.0 + done as u64)).await?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

//! Files of the host's own file systems, such as a mounted Lustre, NFS or a local disk.

use crate::error::{Error, HostFailure, Result};
use crate::file_system::FileHandle;
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset, LocalOffset};
use weft_env::{Env, File};
use weft_wire::Errno;

/// An open file of the host.
#[derive(Clone)]
pub struct HostFile<E: Env> {
    file: E::File,
    path: Vec<u8>,
}

impl<E: Env> HostFile<E> {
    /// Wraps an open file; `path` appears in errors.
    pub fn new(file: E::File, path: Vec<u8>) -> Self {
        Self { file, path }
    }

    /// Returns the open file of the environment.
    pub fn file(&self) -> &E::File {
        &self.file
    }

    /// Returns the path for messages.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Error of the operating system on a file.
    pub fn failure(path: &[u8], error: &io::Error) -> Error {
        let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
        Error::Host(Box::new(HostFailure { path: path.to_vec(), errno }))
    }

    fn done<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| Self::failure(&self.path, &error))
    }
}

const fn local(offset: FileOffset) -> LocalOffset {
    LocalOffset(offset.0)
}

impl<E: Env> FileHandle for HostFile<E> {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        self.done(self.file.read_at(bufs, local(offset)).await)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        self.done(self.file.write_at(bufs, local(offset)).await)?;
        Ok(bufs.iter().map(|buf| buf.len()).sum())
    }

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let end = FileOffset(self.size().await?.0);
        Ok((end, self.write_at(bufs, end).await?))
    }

    async fn size(&self) -> Result<ByteLen> {
        Ok(self.done(self.file.meta().await)?.len)
    }

    async fn truncate(&self, size: ByteLen) -> Result<()> {
        self.done(self.file.set_len(size).await)
    }

    async fn sync(&self) -> Result<()> {
        self.done(self.file.sync().await)
    }

    async fn punch(&self, extent: Extent) -> Result<()> {
        self.done(self.file.punch(local(extent.offset), extent.len).await)
    }

    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Ok(self.done(self.file.seek_data(local(offset)).await)?.map(|at| FileOffset(at.0)))
    }

    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        if offset.0 >= self.size().await?.0 {
            return Ok(None);
        }
        Ok(Some(FileOffset(self.done(self.file.seek_hole(local(offset)).await)?.0)))
    }

    async fn close(self) -> Result<()> {
        let Self { file, path } = self;
        file.close().await.map_err(|error| Self::failure(&path, &error))
    }
}

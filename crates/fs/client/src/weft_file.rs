//! Weft's open files as [`FileHandle`]s.

use crate::error::Result;
use crate::file::OpenFile;
use crate::file_system::FileHandle;
use std::io::{IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::Env;

impl<E: Env> FileHandle for OpenFile<E> {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        Self::read_at(self, bufs, offset).await
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        Self::write_at(self, bufs, offset).await
    }

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        Self::append(self, bufs).await
    }

    async fn size(&self) -> Result<ByteLen> {
        Self::size(self).await
    }

    async fn truncate(&self, size: ByteLen) -> Result<()> {
        Self::truncate(self, size).await
    }

    async fn sync(&self) -> Result<()> {
        Self::sync(self).await
    }

    async fn punch(&self, extent: Extent) -> Result<()> {
        Self::punch(self, extent).await
    }

    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Self::seek_data(self, offset).await
    }

    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Self::seek_hole(self, offset).await
    }

    async fn close(self) -> Result<()> {
        Self::close(self).await
    }
}

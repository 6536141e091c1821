//! Weft as a [`FileSystem`], and its open files as [`FileHandle`]s.

use crate::client::Client;
use crate::error::Result;
use crate::file::OpenFile;
use crate::file_system::{FileHandle, FileSystem};
use crate::size::LastKnown;
use std::io::{IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::Env;
use weft_wire::meta::{InodePath, LIST_LIMIT_MAX, LayoutSpec, OpenFlags, SetAttr};

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

impl<E: Env> FileSystem for Client<E> {
    type Path = InodePath;
    type File = OpenFile<E>;

    async fn open(
        &self,
        at: &InodePath,
        flags: OpenFlags,
        mode: u32,
        layout: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
        Self::open(self, at, flags, mode, layout).await
    }

    async fn stat(&self, at: &InodePath) -> Result<LastKnown> {
        self.stat_last_known(at).await
    }

    async fn truncate(&self, at: &InodePath, size: ByteLen) -> Result<()> {
        Self::truncate(self, at, size).await
    }

    async fn set_attr(&self, at: &InodePath, set: SetAttr) -> Result<()> {
        Self::set_attr(self, at, set).await.map(drop)
    }

    async fn mkdir(&self, at: &InodePath, mode: u32) -> Result<()> {
        Self::mkdir(self, at, mode).await.map(drop)
    }

    async fn rmdir(&self, at: &InodePath) -> Result<()> {
        Self::rmdir(self, at).await
    }

    async fn symlink(&self, at: &InodePath, target: &[u8]) -> Result<()> {
        Self::symlink(self, at, target).await.map(drop)
    }

    async fn readlink(&self, at: &InodePath) -> Result<Vec<u8>> {
        Self::readlink(self, at).await
    }

    async fn unlink(&self, at: &InodePath) -> Result<()> {
        Self::unlink(self, at).await
    }

    async fn rename(&self, from: &InodePath, to: &InodePath) -> Result<()> {
        Self::rename(self, from, to, false, false).await
    }

    async fn read_dir(&self, at: &InodePath) -> Result<Vec<Vec<u8>>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = names.last().map_or(&[][..], |name| name);
            let (entries, more) = self.list(at, after, LIST_LIMIT_MAX, false).await?;
            let is_last = entries.is_empty() || !more;
            names.extend(entries.into_iter().map(|entry| entry.name));
            if is_last {
                return Ok(names);
            }
        }
    }
}

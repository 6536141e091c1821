//! Weft with delegates in front of the bytes of its files.

use super::{DelegatedFile, DelegatedSpec, Delegates, MaybeDelegated, Source};
use crate::client::Client;
use crate::error::Result;
use crate::file::OpenFile;
use crate::file_system::{FileHandle, FileSystem};
use crate::host_or_weft::HostOrWeftFile;
use crate::size::LastKnown;
use std::ops::RangeInclusive;
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, Layout};
use weft_env::Env;
use weft_wire::meta::{FileType, InodePath, LayoutSpec, OpenFlags, SetAttr};

/// Range of page lengths of Weft's files, in bytes: the stripe size within these limits.
const PAGE_LENS: RangeInclusive<u64> = 64 << 10..=4 << 20;

/// Returns the delegates of the job, which it joins at the first call.
pub type Join<'a, E> = dyn Fn() -> Result<&'a Delegates<E>> + 'a;

/// Names of Weft, whose files' bytes go through delegates if the job has some.
pub struct DelegatedFs<'a, E: Env> {
    /// The cluster.
    pub weft: &'a Client<E>,
    /// Joins the delegates; `None` if the job has none.
    pub join: Option<&'a Join<'a, E>>,
    /// Length of pages that the caller asks for; the stripe size decides otherwise.
    pub page_len: Option<u64>,
    /// Prefix of paths in messages.
    pub mount: &'a [u8],
}

impl<E: Env> DelegatedFs<'_, E> {
    /// Puts the delegates in front of an open file, if the job has some and the file has bytes.
    ///
    /// # Errors
    /// The delegates do not answer.
    pub fn wrap(&self, file: OpenFile<E>) -> Result<MaybeDelegated<E, HostOrWeftFile<E>>> {
        let Some(join) = self.join.filter(|_| file.attr_at_open().kind == FileType::Regular) else {
            return Ok(MaybeDelegated::Direct(file.into()));
        };
        let strips = file.layout().into_iter().flat_map(Layout::components).flat_map(|part| &part.strips);
        let stripe = strips.map(|strip| strip.stripe_size.0).min().unwrap_or(0);
        let path = file.path();
        let spec = DelegatedSpec {
            number: FileNumber::of_weft(file.file()),
            source: Source::Weft(file.token().encode()),
            page_len: self.page_len.unwrap_or(stripe.clamp(*PAGE_LENS.start(), *PAGE_LENS.end())),
            read: file.flags().read,
            write: file.flags().write,
            path: [self.mount, b"/", path.strip_prefix(b"/").unwrap_or(path)].concat(),
        };
        Ok(MaybeDelegated::Delegated(Box::new(DelegatedFile::new(join()?, file.into(), spec))))
    }
}

impl<E: Env> FileSystem for DelegatedFs<'_, E> {
    type Path = InodePath;
    type File = MaybeDelegated<E, HostOrWeftFile<E>>;

    async fn open(
        &self,
        at: &InodePath,
        flags: OpenFlags,
        mode: u32,
        layout: &LayoutSpec,
    ) -> Result<MaybeDelegated<E, HostOrWeftFile<E>>> {
        // Delegates may hold bytes of an existing file, so they cut it.
        let cuts = flags.truncate && flags.write && self.join.is_some();
        let flags = OpenFlags { truncate: flags.truncate && !cuts, ..flags };
        let file = self.weft.open(at, flags, mode, layout).await?;
        let is_new = file.created();
        let file = self.wrap(file)?;
        if cuts && !is_new && file.delegated().is_some() {
            file.truncate(ByteLen(0)).await?;
        }
        Ok(file)
    }

    async fn stat(&self, at: &InodePath) -> Result<LastKnown> {
        let known = self.weft.stat_last_known(at).await?;
        let Some(join) = self.join.filter(|_| known.attr.kind == FileType::Regular) else { return Ok(known) };
        let unwritten = join()?.unwritten_end(FileNumber::of_weft(known.attr.file)).await?;
        // Asked again: delegates may have written bytes meanwhile.
        let mut known = self.weft.stat_last_known(at).await?;
        known.attr.size = known.attr.size.max(ByteLen(unwritten.unwrap_or(0)));
        Ok(known)
    }

    async fn truncate(&self, at: &InodePath, size: ByteLen) -> Result<()> {
        if self.join.is_none() {
            return self.weft.truncate(at, size).await;
        }
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let file = self.open(at, flags, 0, &LayoutSpec::default()).await?;
        file.truncate(size).await?;
        file.close().await
    }

    async fn set_attr(&self, at: &InodePath, set: SetAttr) -> Result<()> {
        FileSystem::set_attr(self.weft, at, set).await
    }

    async fn mkdir(&self, at: &InodePath, mode: u32) -> Result<()> {
        FileSystem::mkdir(self.weft, at, mode).await
    }

    async fn rmdir(&self, at: &InodePath) -> Result<()> {
        self.weft.rmdir(at).await
    }

    async fn symlink(&self, at: &InodePath, target: &[u8]) -> Result<()> {
        FileSystem::symlink(self.weft, at, target).await
    }

    async fn readlink(&self, at: &InodePath) -> Result<Vec<u8>> {
        self.weft.readlink(at).await
    }

    async fn unlink(&self, at: &InodePath) -> Result<()> {
        self.weft.unlink(at).await
    }

    async fn rename(&self, from: &InodePath, to: &InodePath) -> Result<()> {
        FileSystem::rename(self.weft, from, to).await
    }

    async fn read_dir(&self, at: &InodePath) -> Result<Vec<Vec<u8>>> {
        self.weft.read_dir(at).await
    }
}

//! Small files, whose bytes are in the metadata: reads, writes and appends by messages to the metadata server, and growth.
//!
//! A layout version of an open file that is inline has no datafiles. Its operations end in one of these ways:
//!
//! | answer of the metadata server | meaning | reaction |
//! | --- | --- | --- |
//! | bytes, or where they were written | done | |
//! | `EREMCHG` | the file has grown through another open file | a stale layout, see [`crate::file::LayoutVersion`] |
//! | `EFBIG`, or a write that ends behind the limit | the file must grow first | [`State::grow`], then a stale layout |
//!
//! The protocol of growth is described in the metadata service, `server/src/metadata/inline.rs`.

use crate::append::AppendGrant;
use crate::backoff::Backoff;
use crate::call::Effect;
use crate::data::SubRequests;
use crate::error::{Error, Result};
use crate::file::{DatafileEnds, LayoutRetry, LayoutVersion, OpenFile, State};
use crate::gather::total;
use std::io::{IoSlice, IoSliceMut, Read};
use std::sync::Arc;
use weft_core::{Access, ByteLen, Extent, FileOffset, RecordedLens};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_wire::Errno;
use weft_wire::meta::{Growing, MetaReply, MetaRequest, WrittenLens};

/// Copies `bytes` to the first bytes of `bufs`, and returns their number.
fn scatter(mut bytes: &[u8], bufs: &mut [IoSliceMut<'_>]) -> usize {
    bytes.read_vectored(bufs).expect("a read from memory")
}

impl<E: Env> State<E> {
    /// Reads leased bytes, or from the metadata, into the first bytes of `bufs`.
    pub(crate) async fn read_inline(&self, extent: Extent, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let Extent { offset, len } = extent;
        let leased = self.leased_bytes.with(&self.session.core, |bytes| {
            let start = offset.0.min(bytes.len() as u64) as usize;
            let end = offset.0.saturating_add(len.0).min(bytes.len() as u64) as usize;
            scatter(&bytes[start..end], bufs)
        });
        if let Some(count) = leased {
            return Ok(count);
        }
        let (_, bytes) = self.inline_bytes(extent).await?;
        Ok(scatter(&bytes, bufs))
    }

    /// Size of an inline file.
    pub(crate) async fn inline_size(&self) -> Result<ByteLen> {
        if let Some(size) = self.leased_bytes.with(&self.session.core, |bytes| ByteLen(bytes.len() as u64)) {
            return Ok(size);
        }
        self.inline_bytes(Extent::new(0, 0)).await.map(|(size, _)| size)
    }

    async fn inline_bytes(&self, Extent { offset, len }: Extent) -> Result<(ByteLen, Vec<u8>)> {
        let request = MetaRequest::ReadInline { handle: self.record.handle, offset, len };
        let answer = self.session.call(Effect::Repeatable, request).await;
        match answer.map_err(|error| self.explained(error))? {
            MetaReply::InlineBytes { size, bytes } if bytes.len() as u64 <= len.0 => Ok((size, bytes)),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Writes to the metadata, at the end of the file if there is no `offset`. Returns the offset.
    ///
    /// # Errors
    /// A stale layout if the file has datafiles now, possibly because of this write.
    pub(crate) async fn write_inline(
        self: &Arc<Self>,
        inline_max: ByteLen,
        offset: Option<FileOffset>,
        bufs: &[IoSlice<'_>],
    ) -> Result<FileOffset> {
        self.leased_bytes.end();
        let end = offset.map_or(0, |offset| offset.0).saturating_add(total(bufs) as u64);
        if end <= inline_max.0 {
            match self.send_inline(offset, bufs).await {
                Err(error) if error.errno() == Errno::EFBIG.0 => {}
                result => return result,
            }
        }
        self.grow().await?;
        Err(Error::stale_layout())
    }

    async fn send_inline(&self, offset: Option<FileOffset>, bufs: &[IoSlice<'_>]) -> Result<FileOffset> {
        let mut backoff = Backoff::default();
        loop {
            let mut bytes = Vec::with_capacity(total(bufs));
            bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
            let request = MetaRequest::WriteInline { handle: self.record.handle, offset, bytes };
            match self.session.call(Effect::Once, request).await {
                Ok(MetaReply::InlineWritten { offset }) => {
                    self.written.note_inline(self.session.core.env.now());
                    return Ok(offset);
                }
                Ok(_) => return Err(Error::unexpected_reply()),
                // The server stopped while another client grew the file.
                Err(error)
                    if error.errno() == Errno::EAGAIN.0 && backoff.wait(&self.session.core.env).await => {}
                Err(error) => return Err(self.explained(error)),
            }
        }
    }

    /// Gives an inline file datafiles.
    ///
    /// # Errors
    /// Errors of the servers; `ENOSPC` if the targets are full.
    #[cold]
    pub(crate) async fn grow(self: &Arc<Self>) -> Result<()> {
        self.leased_bytes.end();
        let _own = self.growing.lock().await;
        if !self.layout_version()?.is_inline() {
            return Ok(()); // another thread has done it
        }
        let mut backoff = Backoff::default();
        loop {
            let request = MetaRequest::Grow { handle: self.record.handle };
            let error = match self.session.call(Effect::Repeatable, request).await {
                Ok(MetaReply::Relocated { cap, layout }) => {
                    self.install_layout(cap, layout);
                    return Ok(());
                }
                Ok(MetaReply::Growing(growing)) => match self.copy_inline(*growing).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Ok(_) => return Err(Error::unexpected_reply()),
                Err(error) => error,
            };
            if error.is_stale_layout() {
                // Another client was faster.
                return self.renew().await.map(drop);
            }
            let may_pass = error.is_expired() || error.errno() == Errno::EAGAIN.0;
            if !may_pass || !backoff.wait(&self.session.core.env).await {
                return Err(self.explained(error));
            }
        }
    }

    /// Copies the bytes of an inline file to its future datafiles, and has the metadata server use these.
    async fn copy_inline(self: &Arc<Self>, growing: Growing) -> Result<()> {
        let core = &*self.session.core;
        let Growing { cap, layout, bytes, must_sync } = growing;
        let ends = DatafileEnds::new(&layout, Some((RecordedLens::NONE, core.restarts())), true);
        let copy = LayoutVersion::new(cap.file, layout, false, ends, None);
        let extent = Extent::new(0, bytes.len() as u64);
        if !is_seeded(Mutant::ForgottenHead) {
            let mut subs = SubRequests::take();
            copy.layout.split_into(extent, Access::Sequential, core.options.split, &mut subs.0);
            // This capability is the only one for these datafiles, so it is never renewed.
            let grant = AppendGrant::without_lock(cap);
            let count =
                self.write_transfers(&copy, extent, &subs.0, &[IoSlice::new(&bytes)], Some(&grant)).await?;
            if count < bytes.len() {
                const WHY: &str = "no space for the first bytes of a small file that grows";
                return Err(Error::misuse(Errno::ENOSPC, WHY));
            }
            subs.0.iter().for_each(|sub| copy.ends.note_write(sub));
        }
        let head = copy.ends.written(copy.data);
        let mut copied = WrittenLens { data: copy.data, lens: RecordedLens::NONE };
        if must_sync {
            let before = self.unsynced.begin_sync();
            let boots = core.sync_datafiles(copy.data, cap, &copy.layout).await?;
            // A machine has lost bytes of the copy: it is made again.
            const LOST: &str = "a server's machine went down during a copy of the file";
            self.unsynced.finish_sync(&before, &boots).map_err(|_| Error::misuse(Errno::EAGAIN, LOST))?;
            copied = head.clone();
        }
        let request = MetaRequest::Grown { handle: self.record.handle, copied };
        match self.session.call(Effect::Repeatable, request).await? {
            MetaReply::Relocated { cap, layout } => {
                let is_own = cap.file == head.data;
                self.install_layout(cap, layout);
                if is_own {
                    // The next report of this open includes the head.
                    self.layout_version()?.ends.raise_written(&head.lens);
                }
                Ok(())
            }
            _ => Err(Error::unexpected_reply()),
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Syncs the metadata if the file is inline. Returns whether it was so until then; if it grows later, its bytes are synced
    /// before they count.
    pub(crate) async fn sync_inline(&self) -> Result<bool> {
        let state = &self.state;
        let Some(version) = state.layout_version_if_any().filter(|version| version.is_inline()) else {
            return Ok(false);
        };
        state.session.core.sync_names().await?;
        let size = state.inline_size().await;
        Ok(LayoutRetry::new(state).check(version, size).await?.is_some())
    }

    /// Appends to an inline file, in one message and without the append lock. `None` if the file has datafiles.
    pub(crate) async fn append_inline(&self, bufs: &[IoSlice<'_>]) -> Result<Option<(FileOffset, usize)>> {
        let state = &self.state;
        let len = total(bufs);
        let mut retry = LayoutRetry::new(state);
        loop {
            let version = state.layout_version()?;
            let Some(inline_max) = version.inline_max else { return Ok(None) };
            let appended = match len {
                0 => state.inline_size().await.map(|size| FileOffset(size.0)),
                _ => state.write_inline(inline_max, None, bufs).await,
            };
            let appended = retry.check(version, appended).await;
            if let Some(offset) = appended.map_err(|error| error.about(&state.path))? {
                state.invalidate_if_cached(Extent::new(offset.0, len as u64)).await;
                return Ok(Some((offset, len)));
            }
        }
    }
}

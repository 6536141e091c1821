//! Writes of an open file.

use crate::append::AppendGrant;
use crate::call::Effect;
use crate::data::{SharedBounds, SubRequests, Transfer, Writes, unfinished};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::exchange;
use crate::file::{CapabilityRetry, LayoutRetry, LayoutVersion, OpenFile, State};
use crate::gather::{pick, total};
use crate::size::OFFSET_MAX;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{Access, ByteLen, Extent, FileOffset, SubRequest};
use weft_env::{Env, File};
use weft_wire::Errno;
use weft_wire::meta::MetaRequest;

impl<E: Env> OpenFile<E> {
    /// Writes all of `bufs` at `offset`. Writes fewer bytes only when a server runs out of space on the way.
    ///
    /// # Errors
    /// `EBADF` when the file is not open for writing, `EFBIG` beyond 2^63 - 1, `ENOSPC`, and errors of the servers.
    pub async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        self.write_under_grant(bufs, offset, None).await
    }

    /// Writes all of `bufs` at `offset`, under an append grant if there is one.
    pub(crate) async fn write_under_grant(
        &self,
        bufs: &[IoSlice<'_>],
        offset: FileOffset,
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let state = &self.state;
        self.check_write().await?;
        let version = state.layout_version()?;
        let len = total(bufs);
        if len == 0 {
            return Ok(0);
        }
        if offset.0 > OFFSET_MAX || len as u64 > OFFSET_MAX - offset.0 {
            return Err(Error::misuse(Errno::EFBIG, "a write beyond 2^63 - 1"));
        }
        if let Some(replica) = state.replica() {
            return Box::pin(self.write_redirected(replica, bufs, offset, grant)).await;
        }
        self.write_original(version, bufs, offset, grant).await
    }

    /// Fails unless this open file may be written.
    #[inline]
    pub(crate) async fn check_write(&self) -> Result<()> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        match state.record.flags.write {
            true => Ok(()),
            false => Err(Error::misuse(Errno::EBADF, "the file is not open for writing")),
        }
    }

    /// Writes pages of the kernel like [`OpenFile::write_at`], but does not wait until other mounts have dropped theirs:
    /// these may wait for the reply to this write. [`OpenFile::report_write`] has to follow.
    ///
    /// # Errors
    /// Errors of [`OpenFile::write_at`].
    pub async fn write_back_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        self.check_write().await?;
        if self.state.replica().is_some() {
            return self.write_at(bufs, offset).await;
        }
        self.write_unreported(self.state.layout_version()?, bufs, offset, None).await
    }

    /// Makes other mounts drop their pages of a range after [`OpenFile::write_back_at`].
    pub async fn report_write(&self, extent: Extent) {
        self.state.invalidate_if_cached(extent).await;
    }

    /// Returns whether [`OpenFile::report_write`] sends a message.
    pub fn reports_writes(&self) -> bool {
        self.state.cached_elsewhere()
    }

    /// Writes to the file's own datafiles, or to the metadata if the file is inline.
    #[inline]
    pub(crate) async fn write_original(
        &self,
        version: &LayoutVersion<E>,
        bufs: &[IoSlice<'_>],
        offset: FileOffset,
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let count = self.write_unreported(version, bufs, offset, grant).await?;
        self.state.invalidate_if_cached(Extent::new(offset.0, count as u64)).await;
        Ok(count)
    }

    #[inline]
    async fn write_unreported(
        &self,
        version: &LayoutVersion<E>,
        bufs: &[IoSlice<'_>],
        offset: FileOffset,
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let state = &self.state;
        let len = total(bufs);
        let extent = Extent::new(offset.0, len as u64);
        let access = state.observe(extent);
        if let Some(inline_max) = version.inline_max {
            match state.write_inline(inline_max, Some(offset), bufs).await {
                Ok(_) => return Ok(len),
                Err(error) if error.is_stale_layout() => {}
                Err(error) => {
                    state.written.mark_uncertain();
                    return Err(error.about(&state.path));
                }
            }
        }
        let result = match state.write_in(version, extent, access, bufs, grant).await {
            // An append continues under its own grant or fails.
            Err(error) if error.is_stale_layout() && grant.is_none() => {
                state.write_after_move(version, error, (extent, access), bufs).await
            }
            result => result,
        };
        match result {
            Ok(count) => {
                let extent = Extent::new(offset.0, count as u64);
                state.written.note(extent, state.session.core.env.now());
            }
            Err(_) => state.written.mark_uncertain(),
        }
        result.map_err(|error| error.about(&state.path))
    }

    /// Makes the kernels of all other mounts that have the file open drop its pages, so that memory maps there see the
    /// bytes written so far.
    pub async fn invalidate_other_mounts(&self) {
        // Where mounts cache pages, each write has done so already.
        if !self.state.cached_elsewhere() {
            self.state.written.mark_reported();
            self.state.invalidate(Extent::new(0, u64::MAX)).await;
        }
    }
}

impl<E: Env> State<E> {
    /// Writes to the datafiles of one layout version.
    #[inline]
    async fn write_in(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        extent: Extent,
        access: Access,
        bufs: &[IoSlice<'_>],
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        if version.is_inline() {
            return Err(Error::stale_layout()); // it has no datafiles to write to
        }
        let mut subs = SubRequests::take();
        version.layout.split_into(extent, access, self.session.core.options.split, &mut subs.0);
        let unchecked = version.ends.unchecked(&subs.0);
        if !unchecked.is_empty() {
            self.check_before_write(version, &unchecked).await?;
        }
        let direct = match &subs.0[..] {
            [sub] => self.write_leased(version, sub, bufs, grant).await?,
            _ => false,
        };
        let count = match direct {
            true => extent.len.0 as usize,
            false => self.write_transfers(version, extent, &subs.0, bufs, grant).await?,
        };
        if count as u64 == extent.len.0 {
            subs.0.iter().for_each(|sub| version.ends.note_write(sub));
        }
        Ok(count)
    }

    /// Repeats a write after the file moved, or while it moves, to another layout than `version`.
    ///
    /// All bytes are written again: other clients may have overwritten the first part before the move copied it.
    #[cold]
    async fn write_after_move(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        error: Error,
        (extent, access): (Extent, Access),
        bufs: &[IoSlice<'_>],
    ) -> Result<usize> {
        let mut retry = LayoutRetry::new(self);
        let write = async |version| Box::pin(self.write_in(version, extent, access, bufs, None)).await;
        retry.run_again(version, error, write).await
    }

    /// Writes a sub-request, whose bytes are all of `bufs`, through a leased descriptor. Returns false without a
    /// lease.
    #[inline]
    async fn write_leased(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        sub: &SubRequest,
        bufs: &[IoSlice<'_>],
        grant: Option<&AppendGrant>,
    ) -> Result<bool> {
        for _ in 0..2 {
            let Some(lease) = self.lease_for(version, sub, true).await? else { return Ok(false) };
            let Some(operation) = lease.begin_operation(&self.session.core.env) else {
                self.drop_ended_lease(version, sub.object, &lease);
                continue;
            };
            if let Some(grant) = grant {
                // A lease obtained with a newer capability does not prove that the grant still holds.
                if *self.record.cap.read() != Some(grant.cap) {
                    return Ok(false);
                }
                grant.wrote.store(true, Relaxed);
            }
            let result = lease.file.write_at(bufs, sub.local.offset).await;
            drop(operation);
            return result.map(|()| true).map_err(|error| self.device_error(sub, &error));
        }
        Ok(false)
    }

    pub(crate) async fn write_transfers(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        extent: Extent,
        subs: &[SubRequest],
        bufs: &[IoSlice<'_>],
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let mut transfers: Vec<Transfer> = subs.iter().map(|sub| Transfer::new(*sub)).collect();
        let mut result = Ok(());
        if subs.len() > 1 {
            for transfer in &mut transfers {
                let pieces = pick(bufs, transfer.sub.pieces(), usize::MAX);
                match self.write_leased(version, &transfer.sub, &pieces, grant).await {
                    Ok(true) => transfer.done = transfer.sub.local.len.0,
                    Ok(false) => {}
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
        }
        if result.is_ok() {
            let end = FileOffset(extent.offset.0 + extent.len.0);
            result = self.write_messages((version, end), &mut transfers, bufs, grant).await;
        }
        match result {
            Ok(()) => Ok(extent.len.0 as usize),
            Err(error) if error.is_stale_layout() => Err(error),
            Err(error) => {
                self.written.mark_uncertain();
                // Out of space: POSIX wants the number of bytes written so far.
                let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].iter().any(|e| e.0 == error.errno());
                let prefix =
                    transfers.iter().map(Transfer::remaining_offset).min().unwrap_or(0).min(extent.len.0);
                if full && prefix > 0 { Ok(prefix as usize) } else { Err(error) }
            }
        }
    }

    async fn write_messages(
        &self,
        (version, end): (&LayoutVersion<E>, FileOffset),
        transfers: &mut [Transfer],
        bufs: &[IoSlice<'_>],
        grant: Option<&AppendGrant>,
    ) -> Result<()> {
        let core = &*self.session.core;
        let buffer_len = total(bufs);
        let call = self.call();
        let mut retry = CapabilityRetry::new(grant.map(|grant| grant.cap));
        loop {
            let (open, mut items) = unfinished(core, transfers)?;
            if open.is_empty() {
                return Ok(());
            }
            let cap = retry.cap_for_write(self, version, end).await?;
            let mut writes = Writes {
                shared_bounds: SharedBounds::of(core),
                file: version.data,
                cap,
                call,
                unsynced: &self.unsynced,
                transfers,
                items: &open,
                bufs,
                buffer_len,
                shared: 0,
                area_used: 0,
            };
            exchange(core, &mut items, &mut writes, Deadline::of_request(core)).await;
            for _ in 0..writes.shared {
                core.counters.shared_payloads.one();
            }
            if let Some(grant) = grant {
                grant.note(&items);
            }
            retry.after(self, items).await?;
        }
    }

    /// Records a write for the summary, and invalidates it in the page caches of other mounts.
    #[inline]
    pub(crate) async fn note_write(&self, extent: Extent) {
        self.written.note(extent, self.session.core.env.now());
        if self.cached_elsewhere() {
            self.invalidate(extent).await;
        }
    }

    /// Invalidates bytes in other mounts' page caches after a change that is not a write.
    pub(crate) async fn invalidate_if_cached(&self, extent: Extent) {
        if self.cached_elsewhere() {
            self.invalidate(extent).await;
        }
    }

    /// Invalidates everything from the new end of the file on in other mounts' page caches.
    pub(crate) async fn invalidate_after_resize(&self, size: ByteLen) {
        if self.cached_elsewhere() {
            self.invalidate(Extent::new(size.0, u64::MAX - size.0)).await;
        }
    }

    #[cold]
    async fn invalidate(&self, extent: Extent) {
        let (start, end) = (extent.offset.0, extent.offset.0 + extent.len.0);
        let request = MetaRequest::Invalidate { handle: self.record.handle, start, end };
        // The bytes are written. A mount that missed this invalidation drops its pages at the close, or when it sees the new
        // epoch.
        if self.session.call(Effect::Repeatable, request).await.is_err() {
            self.written.mark_unreported();
        }
    }
}

//! Reads of an open file, including the distinction between holes and the end of the file.
//!
//! Each datafile is read by its own server, which does not know the others. A datafile that ends before the
//! sub-request does has one of three meanings:
//!
//! | recorded length of the datafile | size of the file by the other datafiles | result |
//! | --- | --- | --- |
//! | longer, and confirmed in the same epoch | any | [`Error::Missing`]: lost bytes |
//! | not longer | beyond the missing bytes | a hole: zeros |
//! | not longer | not beyond them | end of the file |

use crate::data::{Reads, SharedBounds, SubRequests, Transfer, unfinished};
use crate::error::{Device, Error, Result};
use crate::exchange::exchange;
use crate::file::{CapabilityRetry, LayoutRetry, LayoutVersion, OpenFile, State};
use crate::gather::{pick_mut, total_mut, zero};
use crate::size::OFFSET_MAX;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use weft_core::{Access, ByteLen, Extent, FileOffset, Layout, ObjectId, Piece, SubRequest};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, File};
use weft_wire::Errno;
use weft_wire::data::DatafileMeta;

/// Most damaged ranges of a file that an error message lists. A block of 4 KiB spans several ranges if stripes are
/// smaller.
const DAMAGED_RANGES_MAX: usize = 8;

impl<E: Env> OpenFile<E> {
    /// Reads into `bufs` from `offset`, and returns the number of bytes read, which is less than requested only at the
    /// end of the file.
    ///
    /// # Errors
    /// `EBADF` when the file is not open for reading, `EINVAL` for an offset beyond 2^63 - 1, `EISDIR`, and errors of
    /// the servers.
    pub async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.read {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for reading"));
        }
        let version = state.layout_version()?;
        let len = total_mut(bufs);
        if offset.0 > OFFSET_MAX {
            return Err(Error::misuse(Errno::EINVAL, "an offset beyond 2^63 - 1"));
        }
        if len == 0 {
            return Ok(0);
        }
        if let Some(replica) = state.replica() {
            return Box::pin(self.read_redirected(replica, bufs, offset)).await;
        }
        self.read_original(version, bufs, offset).await
    }

    /// Reads from the file's own datafiles.
    #[inline]
    pub(crate) async fn read_original(
        &self,
        version: &LayoutVersion<E>,
        bufs: &mut [IoSliceMut<'_>],
        offset: FileOffset,
    ) -> Result<usize> {
        let state = &self.state;
        let len = total_mut(bufs);
        let extent = Extent::new(offset.0, (len as u64).min(OFFSET_MAX - offset.0));
        let access = state.observe(extent);
        match state.read_in(version, extent, access, bufs).await {
            Err(error) if error.is_stale_layout() => {
                let read = state.read_after_move(version, error, (extent, access), bufs).await;
                read.map_err(|error| error.about(&state.path))
            }
            result => result.map_err(|error| error.about(&state.path)),
        }
    }
}

impl<E: Env> State<E> {
    /// Reads `extent` from the datafiles of one layout version.
    #[inline]
    async fn read_in(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        extent: Extent,
        access: Access,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        if version.is_inline() {
            return self.read_inline(extent, bufs).await;
        }
        let len = total_mut(bufs);
        let mut subs = SubRequests::take();
        version.layout.split_into(extent, access, self.session.core.options.split, &mut subs.0);
        if let [sub] = &subs.0[..]
            && sub.local.len.0 == len as u64
        {
            // All bytes are in one datafile: use its leased descriptor if there is one.
            match self.read_leased(version, sub, bufs).await? {
                Some(count) if count == len => return Ok(len),
                Some(count) => {
                    let mut transfer = Transfer::new(*sub);
                    transfer.done = count as u64;
                    transfer.ended = true;
                    return self.finish_short(version, extent, &mut [transfer], bufs).await;
                }
                None => {}
            }
        }
        self.read_transfers(version, extent, &subs.0, bufs).await
    }

    /// Repeats a read after the file moved to another layout than `version`.
    #[cold]
    async fn read_after_move(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        error: Error,
        (extent, access): (Extent, Access),
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let mut retry = LayoutRetry::new(self);
        let read = async |version| Box::pin(self.read_in(version, extent, access, bufs)).await;
        retry.run_again(version, error, read).await
    }

    /// Reads a sub-request through a leased descriptor into `bufs`; `None` without a lease.
    #[inline]
    async fn read_leased(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        sub: &SubRequest,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<Option<usize>> {
        for _ in 0..2 {
            let Some(lease) = self.lease_for(version, sub, false).await? else { return Ok(None) };
            let Some(operation) = lease.begin_operation(&self.session.core.env) else {
                self.drop_ended_lease(version, sub.object, &lease);
                continue;
            };
            let result = lease.file.read_at(bufs, sub.local.offset).await;
            drop(operation);
            return result.map(Some).map_err(|error| self.device_error(sub, &error));
        }
        Ok(None)
    }

    async fn read_transfers(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        extent: Extent,
        subs: &[SubRequest],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let mut transfers: Vec<Transfer> = subs.iter().map(|sub| Transfer::new(*sub)).collect();
        if subs.len() > 1 {
            for transfer in &mut transfers {
                let mut pieces = pick_mut(bufs, transfer.sub.pieces(), usize::MAX);
                if let Some(count) = self.read_leased(version, &transfer.sub, &mut pieces).await? {
                    transfer.done = count as u64;
                    transfer.ended = !transfer.is_complete();
                }
            }
        }
        self.read_messages(version, &mut transfers, bufs).await?;
        if transfers.iter().all(|transfer| !transfer.ended) {
            return Ok(extent.len.0 as usize);
        }
        self.finish_short(version, extent, &mut transfers, bufs).await
    }

    /// Reads the rest of the transfers by messages.
    async fn read_messages(
        &self,
        version: &LayoutVersion<E>,
        transfers: &mut [Transfer],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let core = &*self.session.core;
        let buffer_len = total_mut(bufs);
        let call = self.call();
        let mut retry = CapabilityRetry::new(None);
        loop {
            let (open, mut items) = unfinished(core, transfers)?;
            if open.is_empty() {
                return Ok(());
            }
            let cap = retry.cap(self, version).await?;
            let mut reads = Reads {
                shared_bounds: SharedBounds::of(core),
                file: version.data,
                cap,
                call,
                transfers,
                items: &open,
                bufs,
                buffer_len,
                area_used: 0,
            };
            exchange(core, &mut items, &mut reads, self.read_deadline()).await;
            let done = retry.after(self, items).await;
            done.map_err(|error| with_damage(&version.layout, transfers, error))?;
        }
    }

    /// Completes a read in which a datafile ended early: missing bytes are zeros up to the end of the file, and are
    /// not read after it.
    #[cold]
    async fn finish_short(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        extent: Extent,
        transfers: &mut [Transfer],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        // A datafile is at least as long as the part that was read.
        let mut known: Vec<(ObjectId, ByteLen)> = Vec::with_capacity(transfers.len());
        for transfer in transfers.iter() {
            let read_to = transfer.sub.local.offset.0 + transfer.done;
            match transfer.datafile_len {
                Some(len) => known.push((transfer.sub.object, len)),
                // The datafile existed if something was read before its end; otherwise its length is unknown.
                None if transfer.ended && transfer.done > 0 => {
                    known.push((transfer.sub.object, ByteLen(read_to)))
                }
                None => {}
            }
        }
        let end = extent.offset.0 + extent.len.0;
        let size = self.size_beyond(version, &mut known, Some(FileOffset(end))).await?;
        let size = match is_seeded(Mutant::LossAsHole) {
            true => size.0,
            false => self.size_without_loss(version, extent, transfers, size).await?.0,
        };
        let there = size.saturating_sub(extent.offset.0).min(extent.len.0);
        // Bytes of the caller's buffer after the end of the file stay unchanged.
        let operation = |mut piece: Piece| {
            piece.len = ByteLen(piece.len.0.min(there.saturating_sub(piece.offset.0)));
            (piece.len.0 > 0).then_some(piece)
        };
        for transfer in transfers.iter() {
            zero(bufs, transfer.sub.pieces_after(ByteLen(transfer.done)).filter_map(operation));
        }
        Ok(there as usize)
    }

    /// Returns the size of the file, which seemed to be `size`, after some transfers ended early, unless they lack
    /// lost bytes.
    ///
    /// # Errors
    /// `Missing`, for the first lost byte.
    async fn size_without_loss(
        &self,
        version: &LayoutVersion<E>,
        extent: Extent,
        transfers: &[Transfer],
        size: FileOffset,
    ) -> Result<FileOffset> {
        let layout = &version.layout;
        let read_to = |transfer: &Transfer| ByteLen(transfer.sub.local.offset.0 + transfer.done);
        let is_hole = |transfer: &Transfer| {
            transfer.ended && extent.offset.0.saturating_add(transfer.remaining_offset()) < size.0
        };
        let is_unknown = version.ends.is_unknown(self.session.core.restarts());
        if is_unknown || version.ends.is_outdated(size) && transfers.iter().any(is_hole) {
            self.refresh_recorded(version, size).await?;
        }
        let recorded = version.ends.recorded();
        let is_short = |transfer: &Transfer| {
            transfer.ended && read_to(transfer) < recorded.len_of(layout, transfer.sub.object)
        };
        // Behind the known end of the file, there may have been bytes in a lost datafile of unknown length.
        let ends_here = extent.offset.0.saturating_add(extent.len.0) > size.0;
        let may_go_on = ends_here && recorded.any_unknown();
        if size >= recorded.file_size(layout) && !may_go_on && !transfers.iter().any(is_short) {
            return Ok(size);
        }
        let lost = self.lost_datafiles(version).await?;
        let of = |transfer: &Transfer| {
            let short = lost.iter().find(|short| short.object == transfer.sub.object)?;
            (transfer.ended && read_to(transfer) < short.recorded).then_some(short)
        };
        let in_transfers =
            transfers.iter().filter_map(|transfer| Some((transfer.remaining_offset(), of(transfer)?)));
        if let Some((at, short)) = in_transfers.min_by_key(|(at, _)| *at) {
            let start = FileOffset(extent.offset.0.saturating_add(at));
            return Err(self.session.core.missing(version.data, layout, start, short));
        }
        if may_go_on && let Some(short) = lost.iter().find(|lost| lost.is_unknown()) {
            let start = size.max(extent.offset);
            return Err(self.session.core.missing(version.data, layout, start, short));
        }
        Ok(lost.iter().fold(size, |size, lost| size.max(lost.end(layout))))
    }

    /// Returns the size of the file including lost bytes, and whether there are any.
    ///
    /// # Errors
    /// `Missing`, if nobody knows how many bytes are lost.
    pub(crate) async fn size_in(&self, version: &LayoutVersion<E>) -> Result<(FileOffset, bool)> {
        if version.is_inline() {
            return self.inline_size().await.map(|size| (FileOffset(size.0), false));
        }
        let layout = &version.layout;
        let mut known = Vec::new();
        let size = self.size_beyond(version, &mut known, None).await?;
        if version.ends.is_unknown(self.session.core.restarts()) {
            self.refresh_recorded(version, size).await?;
        }
        let recorded = version.ends.recorded();
        if recorded.is_empty() || known.iter().all(|(object, len)| *len >= recorded.len_of(layout, *object)) {
            return Ok((size, false));
        }
        let lost = self.lost_datafiles(version).await?;
        if let Some(short) = lost.iter().find(|short| short.is_unknown()) {
            return Err(self.session.core.missing(version.data, layout, size, short));
        }
        match lost.iter().map(|short| short.end(layout)).max() {
            Some(end) => Ok((size.max(end), true)),
            // Another client truncated the file in the meantime.
            None => Ok((self.size_beyond(version, &mut Vec::new(), None).await?, false)),
        }
    }

    /// Returns the size of the file, or any size of at least `enough`. Lengths in `known` are not asked for again.
    /// Lengths of leased datafiles are looked up, all others are requested.
    pub(crate) async fn size_beyond(
        &self,
        version: &LayoutVersion<E>,
        known: &mut Vec<(ObjectId, ByteLen)>,
        enough: Option<FileOffset>,
    ) -> Result<FileOffset> {
        let covers = |known: &[(ObjectId, ByteLen)]| {
            let size = version.layout.file_size(known.iter().copied());
            enough.is_some_and(|enough| size >= enough).then_some(size)
        };
        if let Some(size) = covers(known) {
            return Ok(size);
        }
        let core = &*self.session.core;
        let mut others: Vec<_> = version
            .layout
            .objects()
            .filter(|(object, _)| known.iter().all(|(other, _)| other != object))
            .collect();
        let mut unknown = Vec::new();
        for (object, target) in others.drain(..) {
            match self.leased_len(version, object).await {
                Some(len) => known.push((object, len)),
                None => unknown.push((object, target)),
            }
        }
        if let Some(size) = covers(known) {
            return Ok(size);
        }
        if !unknown.is_empty() {
            let lens = self
                .with_capability(version, async |cap| core.datafile_metas(version.data, cap, &unknown).await)
                .await?;
            known.extend(unknown.iter().zip(lens).map(|(&(object, _), meta)| (object, meta.len)));
        }
        Ok(version.layout.file_size(known.iter().copied()))
    }

    /// Returns length, allocated space and modification time of each datafile of a layout version, in the order of the
    /// layout; none of an inline file.
    pub(crate) async fn metas_in(&self, version: &LayoutVersion<E>) -> Result<Vec<DatafileMeta>> {
        if version.is_inline() {
            return self.inline_size().await.map(|_| Vec::new());
        }
        let objects: Vec<_> = version.layout.objects().collect();
        self.session.core.datafile_metas(version.data, self.cap_in(version).await?, &objects).await
    }

    /// Returns the length of a leased datafile.
    async fn leased_len(&self, version: &LayoutVersion<E>, object: ObjectId) -> Option<ByteLen> {
        let lease = self.held_lease(version, object)?;
        let operation = lease.begin_operation(&self.session.core.env)?;
        let meta = lease.file.meta().await.ok();
        drop(operation);
        meta.map(|meta| meta.len)
    }

    pub(crate) fn device_error(&self, sub: &SubRequest, error: &io::Error) -> Error {
        let core = &self.session.core;
        let server = core.map().server_of(sub.target).map(|id| core.server(id).entry().name.clone());
        Error::Device(Box::new(Device {
            server: server.unwrap_or_default(),
            datafile: format!("{}.{} on {}", self.record.file, sub.object, sub.target),
            path: self.path.clone(),
            errno: Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)),
        }))
    }
}

/// Adds the damaged ranges of the file to a refused read, whose error names those of a datafile.
#[cold]
fn with_damage(layout: &Layout, transfers: &[Transfer], mut error: Error) -> Error {
    let damaged = transfers.iter().find_map(|transfer| Some((transfer.sub.object, transfer.damaged?)));
    let (Error::Refused(refused), Some((object, local))) = (&mut error, damaged) else { return error };
    let pieces = layout.file_pieces(object, local);
    let ranges = pieces.map(|piece| format!("{} to {}", piece.offset.0, piece.offset.0 + piece.len.0));
    let ranges: Vec<String> = ranges.take(DAMAGED_RANGES_MAX).collect();
    if !ranges.is_empty() {
        let detail = std::mem::take(&mut refused.error.detail);
        refused.error.detail = format!("bytes {} of the file are damaged: {detail}", ranges.join(", "));
    }
    error
}

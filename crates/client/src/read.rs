//! Reading: where a datafile comes back short, holes and the end of the file are told apart.

use crate::data::{Part, Reads, SharedBounds, Subs};
use crate::error::{Device, Error, Result};
use crate::exchange::exchange;
use crate::file::{Home, OpenFile, Patience, State, moved};
use crate::gather::{pick_mut, total_mut, zero};
use crate::under::{Under, unfinished};
use crate::write::expired;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use weft_core::{Access, ByteLen, Extent, FileOffset, Layout, ObjectId, Piece, SubRequest};
use weft_env::plants::{Plant, planted};
use weft_env::{Env, File};
use weft_wire::Errno;
use weft_wire::data::DatafileMeta;

/// Most damaged ranges of a file that an error names: a block of 4 KiB is in several with stripes below that.
const DAMAGED_RANGES_MAX: usize = 8;

/// The largest offset of a file.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

impl<E: Env> OpenFile<E> {
    /// Reads into `bufs` from `offset`; the number of bytes read, fewer than there is room for only at the end of
    /// the file.
    ///
    /// # Errors
    /// `EBADF` when it is not open for reading, `EINVAL` for an offset beyond 2^63 - 1, `EISDIR`, and those of
    /// the servers.
    pub async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.read {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for reading"));
        }
        let home = state.home()?;
        let len = total_mut(bufs);
        if offset.0 > OFFSET_MAX {
            return Err(Error::misuse(Errno::EINVAL, "an offset beyond 2^63 - 1"));
        }
        if len == 0 {
            return Ok(0);
        }
        let extent = Extent::new(offset.0, (len as u64).min(OFFSET_MAX - offset.0));
        let access = state.observe(extent);
        match state.read_in(home, extent, access, bufs).await {
            Err(error) if moved(&error) => {
                let read = state.read_where_it_went(home, error, (extent, access), bufs).await;
                read.map_err(|error| error.about(&state.path))
            }
            result => result.map_err(|error| error.about(&state.path)),
        }
    }
}

impl<E: Env> State<E> {
    /// Reads what one home of the file has of `extent`.
    #[inline]
    async fn read_in(
        self: &Arc<Self>,
        home: &Home<E>,
        extent: Extent,
        access: Access,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let len = total_mut(bufs);
        let mut subs = Subs::take();
        home.layout.split_into(extent, access, self.client.core.options.split, &mut subs.0);
        if let [sub] = &subs.0[..]
            && sub.local.len.0 == len as u64
        {
            // All in one datafile: its descriptor does it, if we have it.
            match self.read_leased(home, sub, bufs).await? {
                Some(count) if count == len => return Ok(len),
                Some(count) => {
                    let mut part = Part::new(*sub);
                    part.done = count as u64;
                    part.ended = true;
                    return self.finish_short(home, extent, &mut [part], bufs).await;
                }
                None => {}
            }
        }
        self.read_parts(home, extent, &subs.0, bufs).await
    }

    /// The same, once the bytes have another home than `home`.
    #[cold]
    async fn read_where_it_went(
        self: &Arc<Self>,
        mut home: &Home<E>,
        mut error: Error,
        (extent, access): (Extent, Access),
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let mut patience = Patience::default();
        loop {
            if let Some(count) = self.unless_moved(home, Err(error), &mut patience).await? {
                return Ok(count);
            }
            home = self.home()?;
            match Box::pin(self.read_in(home, extent, access, bufs)).await {
                Err(again) => error = again,
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Reads a whole sub-request through a leased descriptor into `bufs`; `None` when there is no lease.
    #[inline]
    async fn read_leased(
        self: &Arc<Self>,
        home: &Home<E>,
        sub: &SubRequest,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<Option<usize>> {
        for _ in 0..2 {
            let Some(lease) = self.lease_for(home, sub, false).await? else { return Ok(None) };
            let Some(inside) = lease.enter(&self.client.core.env) else {
                self.lease_ended(home, sub.object, &lease);
                continue;
            };
            let result = lease.file.read_at(bufs, sub.local.offset).await;
            drop(inside);
            return result.map(Some).map_err(|error| self.device_error(sub, &error));
        }
        Ok(None)
    }

    async fn read_parts(
        self: &Arc<Self>,
        home: &Home<E>,
        extent: Extent,
        subs: &[SubRequest],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let mut parts: Vec<Part> = subs.iter().map(|sub| Part::new(*sub)).collect();
        if subs.len() > 1 {
            for part in &mut parts {
                let mut pieces = pick_mut(bufs, part.sub.pieces(), usize::MAX);
                if let Some(count) = self.read_leased(home, &part.sub, &mut pieces).await? {
                    part.done = count as u64;
                    part.ended = !part.is_complete();
                }
            }
        }
        self.read_messages(home, &mut parts, bufs).await?;
        if parts.iter().all(|part| !part.ended) {
            return Ok(extent.len.0 as usize);
        }
        self.finish_short(home, extent, &mut parts, bufs).await
    }

    /// Reads what is left of `parts` by messages.
    async fn read_messages(
        &self,
        home: &Home<E>,
        parts: &mut [Part],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let core = &*self.client.core;
        let buffer_len = total_mut(bufs);
        let call = self.call();
        let mut under = Under::of(None);
        loop {
            let (open, mut items) = unfinished(core, parts)?;
            if open.is_empty() {
                return Ok(());
            }
            let cap = under.cap(self, home).await?;
            let mut reads = Reads {
                core_bounds: SharedBounds::of(core),
                file: home.data,
                cap,
                call,
                parts,
                items: &open,
                bufs,
                buffer_len,
                area_used: 0,
            };
            exchange(core, &mut items, &mut reads).await;
            let done = under.after(self, items).await;
            done.map_err(|error| with_damage(&home.layout, parts, error))?;
        }
    }

    /// Some datafile ended early: what is missing is a hole as far as the file goes, and nothing behind that.
    #[cold]
    async fn finish_short(
        self: &Arc<Self>,
        home: &Home<E>,
        extent: Extent,
        parts: &mut [Part],
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        // A datafile is at least as long as what was read of it.
        let mut known: Vec<(ObjectId, ByteLen)> = Vec::with_capacity(parts.len());
        for part in parts.iter() {
            let read_to = part.sub.local.offset.0 + part.done;
            match part.datafile_len {
                Some(len) => known.push((part.sub.object, len)),
                // A descriptor that read something and met the end was there; else its length is not known.
                None if part.ended && part.done > 0 => known.push((part.sub.object, ByteLen(read_to))),
                None => {}
            }
        }
        let end = extent.offset.0 + extent.len.0;
        let size = self.size_beyond(home, &mut known, Some(FileOffset(end))).await?;
        let size = match planted(Plant::LossAsHole) {
            true => size.0,
            false => self.size_without_loss(home, extent, parts, size).await?.0,
        };
        let there = size.saturating_sub(extent.offset.0).min(extent.len.0);
        // Behind the end of the file the caller's bytes stay as they are.
        let inside = |mut piece: Piece| {
            piece.len = ByteLen(piece.len.0.min(there.saturating_sub(piece.offset.0)));
            (piece.len.0 > 0).then_some(piece)
        };
        for part in parts.iter() {
            zero(bufs, part.sub.pieces_after(ByteLen(part.done)).filter_map(inside));
        }
        Ok(there as usize)
    }

    /// After some of `parts` ended early: the size of the file, which was found to be `size`, unless bytes of `parts` are
    /// lost.
    ///
    /// # Errors
    /// `Missing`, for the first byte of them that is.
    async fn size_without_loss(
        &self,
        home: &Home<E>,
        extent: Extent,
        parts: &[Part],
        size: FileOffset,
    ) -> Result<FileOffset> {
        let layout = &home.layout;
        let read_to = |part: &Part| ByteLen(part.sub.local.offset.0 + part.done);
        let is_hole = |part: &Part| part.ended && extent.offset.0.saturating_add(part.undone_at()) < size.0;
        if home.ends.is_unknown() || home.ends.is_outdated(size) && parts.iter().any(is_hole) {
            self.refresh_recorded(home, size).await?;
        }
        let recorded = home.ends.recorded();
        let is_short = |part: &Part| part.ended && read_to(part) < recorded.len_of(layout, part.sub.object);
        if size >= recorded.file_size(layout) && !parts.iter().any(is_short) {
            return Ok(size);
        }
        let lost = self.lost_datafiles(home).await?;
        let of = |part: &Part| {
            let short = lost.iter().find(|short| short.object == part.sub.object)?;
            (part.ended && read_to(part) < short.recorded).then_some(short)
        };
        match parts.iter().filter_map(|part| Some((part.undone_at(), of(part)?))).min_by_key(|(at, _)| *at) {
            Some((at, short)) => {
                let start = FileOffset(extent.offset.0.saturating_add(at));
                Err(self.client.core.missing(home.data, layout, start, short))
            }
            None => Ok(lost
                .iter()
                .fold(size, |size, lost| size.max(layout.logical_end(lost.object, lost.recorded)))),
        }
    }

    /// The size of the file, lost bytes included, and whether there are any.
    pub(crate) async fn size_in(&self, home: &Home<E>) -> Result<(FileOffset, bool)> {
        let layout = &home.layout;
        let mut known = Vec::new();
        let size = self.size_beyond(home, &mut known, None).await?;
        if home.ends.is_unknown() {
            self.refresh_recorded(home, size).await?;
        }
        let recorded = home.ends.recorded();
        if recorded.is_empty() || known.iter().all(|(object, len)| *len >= recorded.len_of(layout, *object)) {
            return Ok((size, false));
        }
        let lost = self.lost_datafiles(home).await?;
        match lost.iter().map(|short| layout.logical_end(short.object, short.recorded)).max() {
            Some(end) => Ok((size.max(end), true)),
            // It was cut meanwhile.
            None => Ok((self.size_beyond(home, &mut Vec::new(), None).await?, false)),
        }
    }

    /// The size of the file; at least `enough` is good enough. `known` lengths need not be asked for. The lengths
    /// of leased datafiles are looked up, the others asked for.
    pub(crate) async fn size_beyond(
        &self,
        home: &Home<E>,
        known: &mut Vec<(ObjectId, ByteLen)>,
        enough: Option<FileOffset>,
    ) -> Result<FileOffset> {
        let covers = |known: &[(ObjectId, ByteLen)]| {
            let size = home.layout.file_size(known.iter().copied());
            enough.is_some_and(|enough| size >= enough).then_some(size)
        };
        if let Some(size) = covers(known) {
            return Ok(size);
        }
        let core = &*self.client.core;
        let mut others: Vec<_> = home
            .layout
            .objects()
            .filter(|(object, _)| known.iter().all(|(other, _)| other != object))
            .collect();
        let mut unknown = Vec::new();
        for (object, target) in others.drain(..) {
            match self.leased_len(home, object).await {
                Some(len) => known.push((object, len)),
                None => unknown.push((object, target)),
            }
        }
        if let Some(size) = covers(known) {
            return Ok(size);
        }
        if !unknown.is_empty() {
            let cap = self.cap_in(home).await?;
            let lens = match core.lens(home.data, cap, &unknown).await {
                Err(error) if expired(&error) => {
                    self.renew().await?;
                    core.lens(home.data, self.cap_in(home).await?, &unknown).await?
                }
                result => result?,
            };
            known.extend(unknown.iter().zip(lens).map(|(&(object, _), meta)| (object, meta.len)));
        }
        Ok(home.layout.file_size(known.iter().copied()))
    }

    /// Length, room and time of each datafile of a home, in the order of its layout.
    pub(crate) async fn lens_in(&self, home: &Home<E>) -> Result<Vec<DatafileMeta>> {
        let objects: Vec<_> = home.layout.objects().collect();
        self.client.core.lens(home.data, self.cap_in(home).await?, &objects).await
    }

    /// The length of a datafile that we hold a lease on.
    async fn leased_len(&self, home: &Home<E>, object: ObjectId) -> Option<ByteLen> {
        let lease = self.held_lease(home, object)?;
        let inside = lease.enter(&self.client.core.env)?;
        let meta = lease.file.meta().await.ok();
        drop(inside);
        meta.map(|meta| meta.len)
    }

    pub(crate) fn device_error(&self, sub: &SubRequest, error: &io::Error) -> Error {
        let core = &self.client.core;
        let server = core.map.server_of(sub.target).map(|id| core.server(id).entry().name.clone());
        Error::Device(Box::new(Device {
            server: server.unwrap_or_default(),
            datafile: format!("{}.{} on {}", self.record.file, sub.object, sub.target),
            path: self.path.clone(),
            errno: Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)),
        }))
    }
}

/// Adds the damaged bytes of the file to the refusal of a read, which names those of a datafile.
#[cold]
fn with_damage(layout: &Layout, parts: &[Part], mut error: Error) -> Error {
    let damaged = parts.iter().find_map(|part| Some((part.sub.object, part.damaged?)));
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

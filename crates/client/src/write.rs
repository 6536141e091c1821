//! Writing.

use crate::append::Turn;
use crate::call::Effect;
use crate::data::{Part, SharedBounds, Subs, Writes};
use crate::error::{Error, Result};
use crate::exchange::{Item, Outcome, exchange};
use crate::file::{Home, OpenFile, Patience, State, moved};
use crate::gather::{pick, total};
use crate::read::OFFSET_MAX;
use crate::under::{Under, unfinished};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{Access, ByteLen, Extent, FileOffset, SubRequest};
use weft_env::{Env, File};
use weft_wire::Errno;
use weft_wire::meta::MetaRequest;

impl<E: Env> OpenFile<E> {
    /// Writes all of `bufs` at `offset`. Fewer bytes are written only when a server ran out of room on the way.
    ///
    /// # Errors
    /// `EBADF` when it is not open for writing, `EFBIG` beyond 2^63 - 1, `ENOSPC`, and others of the servers.
    pub async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        self.write_in_turn(bufs, offset, None).await
    }

    /// The same, perhaps as a part of an append.
    pub(crate) async fn write_in_turn(
        &self,
        bufs: &[IoSlice<'_>],
        offset: FileOffset,
        turn: Option<&Turn>,
    ) -> Result<usize> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.write {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for writing"));
        }
        let home = state.home()?;
        let len = total(bufs);
        if len == 0 {
            return Ok(0);
        }
        if offset.0 > OFFSET_MAX || len as u64 > OFFSET_MAX - offset.0 {
            return Err(Error::misuse(Errno::EFBIG, "a write beyond 2^63 - 1"));
        }
        let extent = Extent::new(offset.0, len as u64);
        let access = state.observe(extent);
        let result = match state.write_in(home, extent, access, bufs, turn).await {
            // What an append has begun goes on under its own turn, or not at all.
            Err(error) if moved(&error) && turn.is_none() => {
                state.write_where_it_goes(home, error, (extent, access), bufs).await
            }
            result => result,
        };
        match result {
            Ok(count) => state.wrote(Extent::new(offset.0, count as u64)).await,
            Err(_) => state.written.unsure(),
        }
        result.map_err(|error| error.about(&state.path))
    }

    /// Has the kernels of all other mounts that have the file open drop their pages of it, so that maps there see what was
    /// written until now.
    pub async fn drop_pages_elsewhere(&self) {
        // Where mounts keep pages, each write has done so.
        if !self.state.cached_elsewhere() {
            self.state.invalidate(Extent::new(0, u64::MAX)).await;
        }
    }
}

impl<E: Env> State<E> {
    /// Writes to one home of the file.
    #[inline]
    async fn write_in(
        self: &Arc<Self>,
        home: &Home<E>,
        extent: Extent,
        access: Access,
        bufs: &[IoSlice<'_>],
        turn: Option<&Turn>,
    ) -> Result<usize> {
        let mut subs = Subs::take();
        home.layout.split_into(extent, access, self.client.core.options.split, &mut subs.0);
        let unchecked = home.ends.unchecked(&subs.0);
        if !unchecked.is_empty() {
            self.check_before_write(home, &unchecked).await?;
        }
        let direct = match &subs.0[..] {
            [sub] => self.write_leased(home, sub, bufs, turn).await?,
            _ => false,
        };
        let count = match direct {
            true => extent.len.0 as usize,
            false => self.write_parts(home, extent, &subs.0, bufs, turn).await?,
        };
        if count as u64 == extent.len.0 {
            subs.0.iter().for_each(|sub| home.ends.note(sub));
        }
        Ok(count)
    }

    /// The same, once the bytes have, or are about to get, another home than `home`. All of it is written there, for what
    /// was written before may have been overwritten by others and be brought along all the same.
    #[cold]
    async fn write_where_it_goes(
        self: &Arc<Self>,
        mut home: &Home<E>,
        mut error: Error,
        (extent, access): (Extent, Access),
        bufs: &[IoSlice<'_>],
    ) -> Result<usize> {
        let mut patience = Patience::default();
        loop {
            if let Some(count) = self.unless_moved(home, Err(error), &mut patience).await? {
                return Ok(count);
            }
            home = self.home()?;
            match Box::pin(self.write_in(home, extent, access, bufs, None)).await {
                Err(again) => error = again,
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Writes a whole sub-request, whose bytes are all of `bufs`, through a leased descriptor; false when there is
    /// no lease.
    #[inline]
    async fn write_leased(
        self: &Arc<Self>,
        home: &Home<E>,
        sub: &SubRequest,
        bufs: &[IoSlice<'_>],
        turn: Option<&Turn>,
    ) -> Result<bool> {
        for _ in 0..2 {
            let Some(lease) = self.lease_for(home, sub, true).await? else { return Ok(false) };
            let Some(inside) = lease.enter(&self.client.core.env) else {
                self.lease_ended(home, sub.object, &lease);
                continue;
            };
            if let Some(turn) = turn {
                // A lease that was given for a fresher capability says nothing about the turn.
                if *self.record.cap.read() != Some(turn.cap) {
                    return Ok(false);
                }
                turn.wrote.store(true, Relaxed);
            }
            let result = lease.file.write_at(bufs, sub.local.offset).await;
            drop(inside);
            return result.map(|()| true).map_err(|error| self.device_error(sub, &error));
        }
        Ok(false)
    }

    async fn write_parts(
        self: &Arc<Self>,
        home: &Home<E>,
        extent: Extent,
        subs: &[SubRequest],
        bufs: &[IoSlice<'_>],
        turn: Option<&Turn>,
    ) -> Result<usize> {
        let mut parts: Vec<Part> = subs.iter().map(|sub| Part::new(*sub)).collect();
        let mut result = Ok(());
        if subs.len() > 1 {
            for part in &mut parts {
                let pieces = pick(bufs, part.sub.pieces(), usize::MAX);
                match self.write_leased(home, &part.sub, &pieces, turn).await {
                    Ok(true) => part.done = part.sub.local.len.0,
                    Ok(false) => {}
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
        }
        if result.is_ok() {
            result = self.write_messages(home, &mut parts, bufs, turn).await;
        }
        match result {
            Ok(()) => Ok(extent.len.0 as usize),
            Err(error) if moved(&error) => Err(error),
            Err(error) => {
                self.written.unsure();
                // Out of room: say how far it went, as POSIX has it.
                let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].iter().any(|e| e.0 == error.errno());
                let prefix = parts.iter().map(Part::undone_at).min().unwrap_or(0).min(extent.len.0);
                if full && prefix > 0 { Ok(prefix as usize) } else { Err(error) }
            }
        }
    }

    async fn write_messages(
        &self,
        home: &Home<E>,
        parts: &mut [Part],
        bufs: &[IoSlice<'_>],
        turn: Option<&Turn>,
    ) -> Result<()> {
        let core = &*self.client.core;
        let buffer_len = total(bufs);
        let call = self.call();
        let mut under = Under::of(turn);
        loop {
            let (open, mut items) = unfinished(core, parts)?;
            if open.is_empty() {
                return Ok(());
            }
            let cap = under.cap(self, home).await?;
            let mut writes = Writes {
                core_bounds: SharedBounds::of(core),
                file: home.data,
                cap,
                call,
                unsynced: &self.unsynced,
                parts,
                items: &open,
                bufs,
                buffer_len,
                shared: 0,
                area_used: 0,
            };
            exchange(core, &mut items, &mut writes).await;
            for _ in 0..writes.shared {
                core.counters.shared_payloads.one();
            }
            if let Some(turn) = turn {
                turn.note(&items);
            }
            under.after(self, items).await?;
        }
    }

    /// Remembers a write for the summary, and tells kernels that cache the file.
    #[inline]
    async fn wrote(&self, extent: Extent) {
        self.written.note(extent, self.client.core.env.now());
        if self.cached_elsewhere() {
            self.invalidate(extent).await;
        }
    }

    /// Tells kernels that cache the file of bytes that were changed in another way than by a write.
    pub(crate) async fn changed_pages(&self, extent: Extent) {
        if self.cached_elsewhere() {
            self.invalidate(extent).await;
        }
    }

    /// Tells kernels that cache the file of its new end.
    pub(crate) async fn cut_or_grown(&self, size: ByteLen) {
        if self.cached_elsewhere() {
            self.invalidate(Extent::new(size.0, u64::MAX - size.0)).await;
        }
    }

    #[cold]
    async fn invalidate(&self, extent: Extent) {
        let (start, end) = (extent.offset.0, extent.offset.0 + extent.len.0);
        let request = MetaRequest::Invalidate { handle: self.record.handle, start, end };
        // The bytes are written; a mount that could not be told drops its pages when it hears of the new epoch.
        let _ = self.client.call(Effect::Repeatable, request).await;
    }
}

/// The error of an exchange that says most: a capability to be renewed, or another home, before others, so that the rest is
/// tried again.
pub(crate) fn finish(items: Vec<Item>) -> Result<()> {
    let mut first = None;
    for item in items {
        if let Outcome::Failed(error) = item.outcome
            && (first.is_none() || expired(&error) || moved(&error))
        {
            first = Some(error);
        }
    }
    first.map_or(Ok(()), Err)
}

/// Whether a data server refused only because the capability's time is over.
pub(crate) fn expired(error: &Error) -> bool {
    matches!(error, Error::Refused(refused) if refused.error.errno == Errno::ESTALE)
}

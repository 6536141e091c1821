//! Writing back: from the SSD to the disk, in the order of the disk, when neither has anything else to do.

use super::Placed;
use super::bridge::Bridge;
use super::open::STEP;
use super::span::{LONG_SPAN_MAX, SPAN_MAX, around, buffer_len, runs, span_max, spans};
use crate::admission::Admission;
use crate::payload::Buffer;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::plants::{Plant, planted};
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Piece;

/// A place in the order in which bytes are written back.
pub(crate) type Position = (DatafileKey, LocalOffset);

/// The most bytes that are written before the disk is synced.
const BATCH: ByteLen = ByteLen(64 << 20);
/// While the SSD takes more, only what is as long as this goes back: shorter pieces may get neighbors yet, and would be
/// in the way of those who write these.
const RIPE: u64 = 1 << 20;
/// It takes more when it did so within this time.
const GROWS_FOR: Nanos = Nanos::from_s(1);
/// How long writing back waits for neighbors when nothing is so long.
const RIPENING: Nanos = Nanos::from_ms(100);
/// How long writing back rests after it failed; doubled with each failure, up to the other.
const REST_MIN: Nanos = Nanos::from_s(1);
const REST_MAX: Nanos = Nanos::from_s(60);

/// What one step of writing back did.
#[derive(Default, Debug)]
pub(crate) struct Step {
    /// Where to go on; `None` when there was nothing from where it began on.
    pub next: Option<Position>,
    /// Bytes that have become clean.
    pub written: ByteLen,
}

/// Bytes that the disk has been given, but that may be in the system's memory still.
#[derive(Default)]
pub(super) struct Copied {
    pieces: Vec<Piece>,
    len: u64,
    datafiles: BTreeSet<DatafileKey>,
    failed: Option<DatafileError>,
}

impl<E: Env> Placed<E> {
    /// Writes back some of what is dirty from `from` on, and syncs it; see [`Step`].
    ///
    /// # Errors
    /// Of the devices, when all that could be written has been, and where to go on.
    pub async fn write_back(
        &self,
        from: Option<Position>,
        len_max: ByteLen,
    ) -> Result<Step, (DatafileError, Option<Position>)> {
        let Some(bridge) = &self.bridge else { return Ok(Step::default()) };
        let _flush = bridge.flushes();
        let mut copied = bridge.copied.take().await;
        // What somebody left in the middle need not be given once more.
        let left = self.settle(bridge, &mut copied).await;
        let mut buf = Buffer::new(&bridge.env, buffer_len(LONG_SPAN_MAX));
        let next = self.copy_back(bridge, (from, len_max), false, &mut copied, &mut buf, || true).await;
        let settled = self.settle(bridge, &mut copied).await;
        let settled = left.and_then(|left| Ok(ByteLen(left.0 + settled?.0)));
        match (settled, copied.failed.take()) {
            (Err(error), _) | (_, Some(error)) => Err((error, next)),
            (Ok(written), None) => Ok(Step { next, written }),
        }
    }

    /// The same as far as one request goes, with what is dirty still.
    ///
    /// # Errors
    /// As above.
    pub async fn flush(&self, from: Option<Position>) -> Result<(Step, ByteLen), DatafileError> {
        let step = self.write_back(from, STEP).await.map_err(|(error, _)| error)?;
        Ok((step, self.bridge.as_ref().map_or(ByteLen(0), Bridge::dirty)))
    }

    /// Gives the disk some of what is dirty, from a place on and up to a length, as long as `may_go_on`; or only what is
    /// `ripe`. Where to go on.
    async fn copy_back(
        &self,
        bridge: &Bridge<E>,
        (from, len_max): (Option<Position>, ByteLen),
        ripe: bool,
        copied: &mut Copied,
        buf: &mut Buffer,
        may_go_on: impl Fn() -> bool,
    ) -> Option<Position> {
        let pieces = bridge.log.dirty_runs(from, len_max);
        let longest = span_max(buf);
        let spans = if ripe { runs(&pieces, longest) } else { spans(&bridge.config.curve, &pieces, longest) };
        let mut next = None;
        for (key, span) in spans {
            if !may_go_on() {
                return next.or(from);
            }
            if ripe && span.len() < RIPE {
                next = Some((key, LocalOffset(span.end())));
                continue;
            }
            let mut left = Some(span);
            while let Some(part) = left {
                let given = match self.copy_dirty(bridge, key, part, copied, buf).await {
                    // Its file is gone, and its removal has not come so far here or was lost with the power.
                    Err(DatafileError::Removed { .. }) => bridge.forget(key).await.map(|()| span.end()),
                    given => given,
                };
                match given {
                    Ok(end) => left = ByteRange::new(end, span.end()),
                    Err(error) => {
                        copied.failed.get_or_insert(error);
                        break;
                    }
                }
            }
            next = Some((key, LocalOffset(span.end())));
        }
        next
    }

    /// Gives the disk what is dirty of `span`, up to the end that it returns.
    async fn copy_dirty(
        &self,
        bridge: &Bridge<E>,
        key: DatafileKey,
        span: ByteRange,
        copied: &mut Copied,
        buf: &mut Buffer,
    ) -> Result<u64, DatafileError> {
        let held = around(span);
        let guard = bridge.ranges.hold(key, held.start(), held.end()).await;
        // Of late some of it may have been cut off.
        let mut pieces = bridge.log.find(key, span);
        pieces.retain(|piece| piece.is_dirty() && !piece.is_lost());
        let quiet = bridge.ranges.is_quiet(key, &guard).then(|| bridge.ranges.changes(key));
        let before = self.meta(key).await?.map(|meta| meta.mtime);
        let end = self.copy_span(bridge, key, held, &pieces, buf).await?.min(span.end());
        pieces.retain(|piece| piece.extent().end() <= end);
        // Moving bytes is no change of the file. While somebody else is at it the time is about that of now anyway.
        if let Some(before) = before.filter(|_| quiet == Some(bridge.ranges.changes(key))) {
            self.target.set_mtime(key, before).await?;
            if quiet != Some(bridge.ranges.changes(key)) {
                self.target.set_mtime(key, bridge.env.wall()).await?;
            }
        }
        copied.len += pieces.iter().map(|piece| piece.extent().len()).sum::<u64>();
        copied.datafiles.insert(key);
        copied.pieces.append(&mut pieces);
        Ok(end)
    }

    /// Syncs what the disk has been given, which is clean from then on; how many bytes.
    async fn settle(&self, bridge: &Bridge<E>, copied: &mut Copied) -> Result<ByteLen, DatafileError> {
        for key in std::mem::take(&mut copied.datafiles) {
            if planted(Plant::UnsyncedWriteBack) {
                continue;
            }
            let synced = match self.target.sync(key).await {
                Ok(()) => continue,
                Err(DatafileError::Removed { .. }) => bridge.forget(key).await,
                Err(error) => Err(error),
            };
            copied.pieces.retain(|piece| piece.key() != key);
            if let Err(error) = synced {
                copied.failed.get_or_insert(error);
            }
        }
        copied.len = 0;
        let pieces = std::mem::take(&mut copied.pieces);
        if pieces.is_empty() {
            return Ok(ByteLen(0));
        }
        bridge.log.written_back(&pieces).await?;
        let written = pieces.iter().map(|piece| piece.extent().len()).sum();
        bridge.counters.wrote_back(written, bridge.env.now());
        bridge.filled();
        Ok(ByteLen(written))
    }

    /// Writes back and copies what reads missed whenever the disk, before which `admission` stands, is idle. Until
    /// [`stop`](Self::stop).
    pub async fn look_after(&self, admission: &Admission<E>, log: impl Fn(&str)) {
        let Some(bridge) = &self.bridge else { return };
        let (mut from, mut wished) = (None, None);
        let (mut pressing, mut rest) = (false, REST_MIN);
        let mut buf: Option<Buffer> = None;
        // Writing back reads from the SSD, and is in the way of what goes there.
        let requests = || {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            (admission.queued() == 0, (of(&bridge.disk_requests), of(&bridge.log_requests)))
        };
        let mut is_owed = false;
        let mut grew = (0, Nanos::ZERO);
        while bridge.wait_for_work(is_owed).await {
            let (_, before) = requests();
            if !bridge.pause(bridge.config.idle).await {
                break;
            }
            let dirty = bridge.dirty();
            pressing = dirty >= bridge.config.dirty_high || pressing && dirty > bridge.config.dirty_low;
            let is_idle = || requests() == (true, before);
            // Who waits for everything does it in longer writes.
            let is_left = || bridge.flushes.load(Ordering::Relaxed) == 0;
            let may_go_on = || is_left() && (pressing || is_idle());
            if !may_go_on() {
                continue;
            }
            let mut copied = bridge.copied.take().await;
            let buf = buf.get_or_insert_with(|| Buffer::new(&bridge.env, buffer_len(SPAN_MAX)));
            let room = if pressing { STEP } else { ByteLen(BATCH.0.saturating_sub(copied.len)) };
            let (began, written) = (from, bridge.counters.bytes_written_back.load(Ordering::Relaxed));
            let put = bridge.counters.bytes_written.load(Ordering::Relaxed);
            if put != grew.0 {
                grew = (put, bridge.env.now());
            }
            let ripe = !pressing && bridge.env.now().saturating_sub(grew.1) < GROWS_FOR;
            from = self.copy_back(bridge, (from, room), ripe, &mut copied, buf, may_go_on).await;
            if copied.len >= BATCH.0 || pressing || is_idle() {
                let settled = self.settle(bridge, &mut copied).await;
                if let Err(error) = settled {
                    copied.failed.get_or_insert(error);
                }
            }
            let (mut failed, owes_nothing) = (copied.failed.take(), copied.pieces.is_empty());
            is_owed = !owes_nothing;
            // Whoever has it written back need not wait for copies.
            drop(copied);
            while failed.is_none() && is_idle() && bridge.has_wishes() && bridge.is_running() {
                match self.copy_next(bridge, wished, &mut buf[..Self::COPY_LEN]).await {
                    Ok(at) => wished = at,
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                Some(error) => {
                    bridge.told(&error, &log);
                    if !bridge.pause(rest).await {
                        break;
                    }
                    rest = Nanos(rest.0 * 2).min(REST_MAX);
                }
                None => {
                    *bridge.trouble.lock() = None;
                    rest = REST_MIN;
                }
            }
            let has_waited = ripe && owes_nothing && from.is_none();
            if has_waited && !bridge.has_wishes() && !bridge.pause(RIPENING).await {
                break;
            }
            let is_stuck = may_go_on()
                && !ripe
                && began.is_none()
                && owes_nothing
                && bridge.counters.bytes_written_back.load(Ordering::Relaxed) == written;
            // What is dirty still cannot be read: nothing helps but that somebody writes it anew.
            if is_stuck && !bridge.has_wishes() && !bridge.pause(REST_MAX).await {
                break;
            }
        }
        // What the disk has been given and nobody has synced stays dirty: it is given once more.
    }

    /// Ends [`look_after`](Self::look_after).
    pub fn stop(&self) {
        if let Some(bridge) = &self.bridge {
            bridge.stopping.store(true, Ordering::SeqCst);
            bridge.work.notify_all();
        }
    }
}

impl<E: Env> Bridge<E> {
    fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// Waits until there is something to do; false when nothing will be done any more.
    async fn wait_for_work(&self, is_owed: bool) -> bool {
        loop {
            let seen = self.work.epoch();
            self.asleep.store(true, Ordering::SeqCst);
            if !self.is_running() {
                return false;
            }
            if is_owed || self.has_wishes() || self.dirty() > ByteLen(0) {
                self.asleep.store(false, Ordering::SeqCst);
                return true;
            }
            self.work.wait(seen, None).await;
        }
    }

    /// Waits so long; false when nothing will be done any more.
    async fn pause(&self, duration: Nanos) -> bool {
        let until = self.env.now().saturating_add(duration);
        loop {
            let seen = self.work.epoch();
            if !self.is_running() {
                return false;
            }
            let left = until.saturating_sub(self.env.now());
            if left == Nanos::ZERO {
                return true;
            }
            self.work.wait(seen, Some(left)).await;
        }
    }

    /// Says what keeps bytes on the SSD, once.
    fn told(&self, error: &DatafileError, log: &impl Fn(&str)) {
        let text = error.to_string();
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&text) {
            log(&format!("{} bytes stay on the SSD {}: {text}", self.dirty().0, self.config.path.display()));
            *trouble = Some(text);
        }
    }
}

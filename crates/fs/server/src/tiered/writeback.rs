//! Writeback: moves dirty bytes from the SSD to the disk, in the order of the disk, while both are idle.

use super::TieredTarget;
use super::coalesce::{FLUSH_SPAN_LEN_MAX, SPAN_LEN_MAX, buffer_len, runs, span_max, spans, whole_pages};
use super::open::STEP_LEN;
use super::ssd_tier::SsdTier;
use crate::admission::Admission;
use crate::payload::Buffer;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Piece;

/// Position in the order of writeback.
pub(crate) type Position = (DatafileKey, LocalOffset);

/// Bytes written before the disk is synced.
const SYNC_BATCH_LEN: ByteLen = ByteLen(64 << 20);
/// Least length of a run that is written back while the log grows. Shorter runs may still get neighbors, and writing
/// them back would slow the writes of these.
const LONG_RUN_LEN_MIN: u64 = 1 << 20;
/// The log counts as growing for this long after a write to it.
const GROWTH_WINDOW: Nanos = Nanos::from_s(1);
/// Time for which writeback waits for neighbors when no run is long enough.
const COALESCE_WAIT: Nanos = Nanos::from_ms(100);
/// Delay after a failed writeback; doubled with each failure up to the maximum.
const RETRY_DELAY_MIN: Nanos = Nanos::from_s(1);
const RETRY_DELAY_MAX: Nanos = Nanos::from_s(60);

/// Result of one step of writeback.
#[derive(Default, Debug)]
pub(crate) struct Step {
    /// Where to continue; `None` if there was nothing to write back from the starting position on.
    pub next: Option<Position>,
    /// Bytes that became clean.
    pub written: ByteLen,
}

/// Bytes copied to the disk and not yet synced.
#[derive(Default)]
pub(super) struct UnsyncedCopies {
    pieces: Vec<Piece>,
    len: u64,
    datafiles: BTreeSet<DatafileKey>,
    failed: Option<DatafileError>,
}

impl<E: Env> TieredTarget<E> {
    /// Writes back up to `len_max` dirty bytes from `from` on, and syncs them.
    ///
    /// # Errors
    /// Errors of the devices, after everything else has been written, and the position at which to continue.
    pub async fn write_back(
        &self,
        from: Option<Position>,
        len_max: ByteLen,
    ) -> Result<Step, (DatafileError, Option<Position>)> {
        let Some(tier) = &self.tier else { return Ok(Step::default()) };
        let _flush = tier.begin_flush();
        let mut unsynced = tier.unsynced.lock().await;
        // An earlier task may have been canceled between copying and syncing. Syncing now saves a second copy.
        let left = self.sync_copies(tier, &mut unsynced).await;
        let mut buf = Buffer::new(&tier.env, buffer_len(FLUSH_SPAN_LEN_MAX));
        let next = self.copy_dirty_runs(tier, (from, len_max), false, &mut unsynced, &mut buf, || true).await;
        let synced = self.sync_copies(tier, &mut unsynced).await;
        let synced = left.and_then(|left| Ok(ByteLen(left.0 + synced?.0)));
        match (synced, unsynced.failed.take()) {
            (Err(error), _) | (_, Some(error)) => Err((error, next)),
            (Ok(written), None) => Ok(Step { next, written }),
        }
    }

    /// Writes back as much as one request may, and returns the number of bytes that are still dirty.
    ///
    /// # Errors
    /// Errors of the devices.
    pub async fn flush(&self, from: Option<Position>) -> Result<(Step, ByteLen), DatafileError> {
        let step = self.write_back(from, STEP_LEN).await.map_err(|(error, _)| error)?;
        Ok((step, self.tier.as_ref().map_or(ByteLen(0), SsdTier::dirty)))
    }

    /// Copies up to a number of dirty bytes from a position on to the disk while `may_go_on` holds. If `only_long` is
    /// set, only long runs. Returns the position at which to continue.
    async fn copy_dirty_runs(
        &self,
        tier: &SsdTier<E>,
        (from, len_max): (Option<Position>, ByteLen),
        only_long: bool,
        unsynced: &mut UnsyncedCopies,
        buf: &mut Buffer,
        may_go_on: impl Fn() -> bool,
    ) -> Option<Position> {
        let pieces = tier.log.dirty_pieces(from, len_max);
        let longest = span_max(buf);
        let spans =
            if only_long { runs(&pieces, longest) } else { spans(&tier.config.curve, &pieces, longest) };
        let mut next = None;
        for (key, span) in spans {
            if !may_go_on() {
                return next.or(from);
            }
            if only_long && span.len() < LONG_RUN_LEN_MIN {
                next = Some((key, LocalOffset(span.end())));
                continue;
            }
            let mut left = Some(span);
            while let Some(part) = left {
                let given = match self.copy_dirty(tier, key, part, unsynced, buf).await {
                    // The file was removed, and the log has not forgotten it yet, or that record was lost with the
                    // power.
                    Err(DatafileError::Removed { .. }) => tier.forget(key).await.map(|()| span.end()),
                    given => given,
                };
                match given {
                    Ok(end) => left = ByteRange::new(end, span.end()),
                    Err(error) => {
                        unsynced.failed.get_or_insert(error);
                        break;
                    }
                }
            }
            next = Some((key, LocalOffset(span.end())));
        }
        next
    }

    /// Copies the dirty bytes of `span` to the disk, up to the end that it returns.
    async fn copy_dirty(
        &self,
        tier: &SsdTier<E>,
        key: DatafileKey,
        span: ByteRange,
        unsynced: &mut UnsyncedCopies,
        buf: &mut Buffer,
    ) -> Result<u64, DatafileError> {
        let held = whole_pages(span);
        let guard = tier.range_locks.lock(key, held.start(), held.end()).await;
        // A truncation may have removed some of it since.
        let mut pieces = tier.log.find(key, span);
        pieces.retain(|piece| piece.is_dirty() && !piece.is_lost());
        let stable =
            tier.range_locks.is_unlocked_but(key, &guard).then(|| tier.range_locks.change_count(key));
        if tier.durable.is_unknown(key) {
            let check = tier.durable.begin_sync(key);
            if self.target.meta(key).await?.is_none() {
                // Writeback creates it, so it has no bytes of requests.
                tier.durable.end_sync(key, check, true);
            }
        }
        let before = self.meta(key).await?.map(|meta| meta.mtime);
        let end = self.copy_span(tier, key, held, &pieces, buf).await?.min(span.end());
        pieces.retain(|piece| piece.extent().end() <= end);
        // Moving bytes is not a modification of the file, so its time stays. During a concurrent change the time is
        // about the current one anyway.
        if let Some(before) = before.filter(|_| stable == Some(tier.range_locks.change_count(key))) {
            self.target.set_mtime(key, before).await?;
            if stable != Some(tier.range_locks.change_count(key)) {
                self.target.set_mtime(key, tier.env.wall()).await?;
            }
        }
        unsynced.len += pieces.iter().map(|piece| piece.extent().len()).sum::<u64>();
        unsynced.datafiles.insert(key);
        unsynced.pieces.append(&mut pieces);
        Ok(end)
    }

    /// Syncs the copied bytes and marks them clean. Returns their number.
    async fn sync_copies(
        &self,
        tier: &SsdTier<E>,
        unsynced: &mut UnsyncedCopies,
    ) -> Result<ByteLen, DatafileError> {
        for key in std::mem::take(&mut unsynced.datafiles) {
            if is_seeded(Mutant::UnsyncedWriteBack) {
                continue;
            }
            let synced = match self.sync_disk(key).await {
                Ok(()) => continue,
                Err(DatafileError::Removed { .. }) => tier.forget(key).await,
                Err(error) => Err(error),
            };
            unsynced.pieces.retain(|piece| piece.key() != key);
            if let Err(error) = synced {
                unsynced.failed.get_or_insert(error);
            }
        }
        unsynced.len = 0;
        let pieces = std::mem::take(&mut unsynced.pieces);
        if pieces.is_empty() {
            return Ok(ByteLen(0));
        }
        tier.log.mark_clean(&pieces).await?;
        let written = pieces.iter().map(|piece| piece.extent().len()).sum();
        tier.counters.wrote_back(written, tier.env.now());
        tier.report_fill();
        Ok(ByteLen(written))
    }

    /// Background task: writes back and preloads while the disk behind `admission` is idle, until [`stop`](Self::stop).
    pub async fn run_background(&self, admission: &Admission<E>, log: impl Fn(&str)) {
        let Some(tier) = &self.tier else { return };
        let (mut from, mut preload_at) = (None, None);
        let (mut over_high_water, mut retry_delay) = (false, RETRY_DELAY_MIN);
        let mut buf: Option<Buffer> = None;
        // Writeback reads from the SSD, so it competes with requests for the SSD too.
        let requests = || {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            // A client that waits for a sync of the SSD sends no further requests, but the SSD is busy.
            let is_free = admission.queued() == 0 && tier.is_idle();
            (is_free, (of(&tier.disk_requests), of(&tier.log_requests)))
        };
        let mut has_unsynced = false;
        let mut growth = (0, Nanos::ZERO);
        while tier.wait_for_work(has_unsynced).await {
            // A prefetch is of use only before its reader arrives, so it does not wait until the disk is idle. It waits
            // for requests that wait for the disk.
            while admission.queued() == 0 && !tier.prefetches.is_empty() && tier.is_running() {
                let buf = buf.get_or_insert_with(|| Buffer::new(&tier.env, buffer_len(SPAN_LEN_MAX)));
                if let Err(error) = self.prefetch_next(tier, &mut buf[..Self::COPY_LEN]).await {
                    tier.report_error(&error, &log);
                    break;
                }
            }
            if !tier.has_work(has_unsynced) {
                continue;
            }
            let (_, before) = requests();
            if !tier.pause(tier.config.idle).await {
                break;
            }
            let dirty = tier.dirty();
            over_high_water =
                dirty >= tier.config.dirty_high || over_high_water && dirty > tier.config.dirty_low;
            let is_idle = || requests() == (true, before);
            // A request that writes everything back uses longer writes, so the background task yields to it.
            let no_flush = || tier.active_flushes.load(Ordering::Relaxed) == 0;
            let may_go_on = || no_flush() && (over_high_water || is_idle());
            if !may_go_on() {
                continue;
            }
            let mut unsynced = tier.unsynced.lock().await;
            let buf = buf.get_or_insert_with(|| Buffer::new(&tier.env, buffer_len(SPAN_LEN_MAX)));
            let budget = match over_high_water {
                true => STEP_LEN,
                false => ByteLen(SYNC_BATCH_LEN.0.saturating_sub(unsynced.len)),
            };
            let (began, written) = (from, tier.counters.bytes_written_back.load(Ordering::Relaxed));
            let put = tier.counters.bytes_written.load(Ordering::Relaxed);
            if put != growth.0 {
                growth = (put, tier.env.now());
            }
            let only_long = !over_high_water && tier.env.now().saturating_sub(growth.1) < GROWTH_WINDOW;
            from = self.copy_dirty_runs(tier, (from, budget), only_long, &mut unsynced, buf, may_go_on).await;
            if unsynced.len >= SYNC_BATCH_LEN.0 || over_high_water || is_idle() {
                let synced = self.sync_copies(tier, &mut unsynced).await;
                if let Err(error) = synced {
                    unsynced.failed.get_or_insert(error);
                }
            }
            let (mut failed, all_synced) = (unsynced.failed.take(), unsynced.pieces.is_empty());
            has_unsynced = !all_synced;
            // Releases the lock: a flush does not wait for preloads.
            drop(unsynced);
            while failed.is_none() && is_idle() && tier.has_preloads() && tier.is_running() {
                match self.copy_next(tier, preload_at, &mut buf[..Self::COPY_LEN]).await {
                    Ok(at) => preload_at = at,
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                Some(error) => {
                    tier.report_error(&error, &log);
                    if !tier.pause(retry_delay).await {
                        break;
                    }
                    retry_delay = Nanos(retry_delay.0 * 2).min(RETRY_DELAY_MAX);
                }
                None => {
                    *tier.last_error.lock() = None;
                    retry_delay = RETRY_DELAY_MIN;
                }
            }
            let has_waited = only_long && all_synced && from.is_none();
            if has_waited && !tier.has_preloads() && !tier.pause(COALESCE_WAIT).await {
                break;
            }
            let is_stuck = may_go_on()
                && !only_long
                && began.is_none()
                && all_synced
                && tier.counters.bytes_written_back.load(Ordering::Relaxed) == written;
            // The remaining dirty bytes cannot be read. Only new writes to their ranges help.
            if is_stuck && !tier.has_preloads() && !tier.pause(RETRY_DELAY_MAX).await {
                break;
            }
        }
        // Copied bytes that were not synced stay dirty and are copied again later.
    }

    /// Ends [`run_background`](Self::run_background).
    pub fn stop(&self) {
        if let Some(tier) = &self.tier {
            tier.stopping.store(true, Ordering::SeqCst);
            tier.work.notify_all();
        }
    }
}

impl<E: Env> SsdTier<E> {
    fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// Whether there are bytes to copy, to write back or to sync.
    fn has_work(&self, has_unsynced: bool) -> bool {
        has_unsynced || self.has_preloads() || !self.prefetches.is_empty() || self.dirty() > ByteLen(0)
    }

    /// Waits until there is work; false if the task must end.
    async fn wait_for_work(&self, has_unsynced: bool) -> bool {
        loop {
            let seen = self.work.epoch();
            self.asleep.store(true, Ordering::SeqCst);
            if !self.is_running() {
                return false;
            }
            if self.has_work(has_unsynced) {
                self.asleep.store(false, Ordering::SeqCst);
                return true;
            }
            self.work.wait(seen, None).await;
        }
    }

    /// Waits for `duration`; false if the task must end.
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

    /// Logs an error that keeps bytes on the SSD, unless it is the error last logged.
    fn report_error(&self, error: &DatafileError, log: &impl Fn(&str)) {
        let text = error.to_string();
        let mut last_error = self.last_error.lock();
        if last_error.as_ref() != Some(&text) {
            log(&format!("{} bytes stay on the SSD {}: {text}", self.dirty().0, self.config.path.display()));
            *last_error = Some(text);
        }
    }
}

//! The log's background task: checkpoints, quotas and compaction.
//!
//! # Compaction
//!
//! | step | action |
//! | --- | --- |
//! | 1 | Select the full segment that costs least: dirty bytes count four times, clean ones once. |
//! | 2 | Move dirty bytes to the compaction segment, and some clean ones (see below). |
//! | 3 | Journal `Free`, then drop the remaining clean entries. |
//! | 4 | After up to [`SEGMENTS_PER_SYNC`] segments, sync payloads and journal. |
//! | 5 | Discard the segments' bytes; they can be filled again. |
//!
//! Clean bytes that step 2 moves, by the live part of the segment:
//!
//! | class | up to one half | up to three quarters | more |
//! | --- | --- | --- | --- |
//! | cached | all | those used | none |
//! | others | those used | none | none |
//!
//! Step 4 comes before step 5, because a torn put brings back the entries that it replaced, and their payloads must
//! still be there.

use super::journal::PAYLOADS_NUMBER;
use super::map::Mapped;
use super::piece::{Location, State as PieceState};
use super::record::{Put, Record};
use super::segments::{CHUNK_LEN_MAX, Priority, SegmentState};
use super::{FragmentLog, LogError};
use crate::emulate;
use weft_core::ranges::ByteRange;
use weft_core::{DataClass, LocalOffset};
use weft_env::device::DeviceAction;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{BlockingFile, Env, File, Notify};

/// Maximum number of segments emptied before a sync makes them free.
const SEGMENTS_PER_SYNC: usize = 8;
/// Segments with a larger dirty share than this are not compacted: write-back empties them.
const DIRTY_MAX_NUMERATOR: u64 = 7;
const DIRTY_MAX_DENOMINATOR: u64 = 8;
/// Number of records to wait after a search found nothing to compact.
const RETRY_RECORDS: u64 = 64;
/// Maximum number of entries evicted at a time.
const EVICTED_MAX: usize = 1024;

impl<E: Env> FragmentLog<E> {
    /// Wakes the background task if it has work.
    pub(super) fn wake_if_due(&self) {
        let is_due = {
            let state = self.0.state.lock();
            state.map.segments.is_low() && state.lsn >= state.compact_from_lsn
        };
        if is_due || self.is_checkpoint_due() {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        self.0.work.notify_all();
    }

    /// Runs the background task until the log is closed.
    pub(super) async fn run_task(&self) {
        let shared = &*self.0;
        loop {
            let epoch = shared.work.epoch();
            if shared.commit.lock().stop {
                break;
            }
            // The failure is stored and reported to the next caller.
            let did_something = shared.check_healthy().is_ok() && self.run_due_work().await.unwrap_or(false);
            if !did_something {
                shared.work.wait(epoch, None).await;
            }
        }
        shared.commit.lock().task_running = false;
        shared.progress.notify_all();
    }

    /// Does one unit of due work; returns false if none was due.
    async fn run_due_work(&self) -> Result<bool, LogError> {
        if self.is_checkpoint_due() {
            self.checkpoint().await?;
            return Ok(true);
        }
        if self.enforce_quotas().await? {
            return Ok(true);
        }
        let is_low = {
            let state = self.0.state.lock();
            state.map.segments.is_low() && state.lsn >= state.compact_from_lsn
        };
        if !is_low {
            return Ok(false);
        }
        let freed = self.compact().await?;
        if !freed {
            let mut state = self.0.state.lock();
            state.compact_from_lsn = state.lsn + RETRY_RECORDS;
        }
        Ok(freed)
    }

    /// Evicts clean entries of classes above their quotas; returns true if there were any.
    async fn enforce_quotas(&self) -> Result<bool, LogError> {
        let mut victims = Vec::new();
        {
            let state = self.0.state.lock();
            for class in DataClass::ALL {
                let bytes = state.map.classes[class.index()].bytes();
                let mut over = bytes.saturating_sub(state.quotas[class.index()]);
                for entry in state.map.evictable(class).take(EVICTED_MAX) {
                    if over == 0 {
                        break;
                    }
                    over = over.saturating_sub(entry.extent.len());
                    victims.push(entry);
                }
            }
        }
        self.evict(&victims).await?;
        Ok(!victims.is_empty())
    }

    /// Compacts some segments and frees them; returns true if any became free.
    async fn compact(&self) -> Result<bool, LogError> {
        let mut emptied = Vec::new();
        while emptied.len() < SEGMENTS_PER_SYNC {
            let Some(victim) = self.select_segment(&emptied) else { break };
            self.move_live_entries(victim).await?;
            let lsn = {
                let mut state = self.0.state.lock();
                let segment = state.map.segments.get(victim);
                if segment.dirty > 0 || segment.is_pinned() {
                    break;
                }
                let generation = segment.next_generation();
                state.append(&Record::Free { segment: victim, generation })
            };
            // Journal first, as for every eviction.
            self.commit(lsn).await?;
            let mut state = self.0.state.lock();
            let clean = state.map.segments.get(victim).live;
            state.evicted += clean;
            state.map.empty_segment(victim);
            state.map.segments.freed(victim, lsn);
            self.0.filter.update(&mut state.map);
            emptied.push(victim);
        }
        let is_any =
            self.0.state.lock().map.segments.iter().any(|(_, it)| matches!(it.state, SegmentState::Freed(_)));
        if !is_any {
            return Ok(false);
        }
        let lsn = self.0.state.lock().lsn;
        if !is_seeded(Mutant::EarlyReuse) {
            self.durable(lsn).await?;
        }
        let freed = self.0.state.lock().map.segments.freed_before(lsn);
        self.discard_segments(&freed).await;
        self.0.state.lock().map.segments.make_free(&freed);
        Ok(!freed.is_empty())
    }

    /// Discards the bytes of segments. Without this, the first put into each page of them would wait until the old
    /// page is read.
    pub(super) async fn discard_segments(&self, segments: &[u32]) {
        let shared = &*self.0;
        let payloads = shared.payloads.blocking();
        for &segment in segments {
            let start = shared.offset(Location { segment, position: 0 });
            let len = shared.spec.segment_len;
            let in_flight = shared.begin(DeviceAction::Discard, PAYLOADS_NUMBER, start, len.0 as usize);
            // A file system that cannot discard is only slower.
            let _ = payloads.discard(LocalOffset(start), len);
            emulate::finish(in_flight).await;
        }
        payloads.wait_for_device().await;
    }

    /// Selects the segment whose compaction costs least.
    fn select_segment(&self, emptied: &[u32]) -> Option<u32> {
        let state = self.0.state.lock();
        let segments = &state.map.segments;
        if emptied.len() + segments.free_count() >= segments.free_target() {
            return None;
        }
        let full = segments.iter().filter(|(_, it)| it.state == SegmentState::Full && !it.is_pinned());
        let worth = u64::from(segments.len()) * DIRTY_MAX_NUMERATOR / DIRTY_MAX_DENOMINATOR;
        let worth = full.filter(|(_, it)| it.dirty <= worth);
        // Clean bytes cost something too: they may be read again.
        worth.min_by_key(|(_, it)| (it.dirty * 4 + (it.live - it.dirty), it.filled)).map(|(index, _)| index)
    }

    /// Moves dirty and recently used bytes of a segment to the compaction segment.
    async fn move_live_entries(&self, victim: u32) -> Result<(), LogError> {
        let (entries, at_most_half, at_most_three_quarters) = {
            let state = self.0.state.lock();
            let segment = state.map.segments.get(victim);
            let mut entries: Vec<Mapped> = state.map.in_segment(victim).collect();
            // In the order of datafile and offset, so that adjacent ranges become adjacent in the segment.
            entries.sort_unstable_by_key(|entry| (entry.key, entry.extent.start()));
            let len = u64::from(state.map.segments.len());
            (entries, segment.live <= len / 2, segment.live <= len / 4 * 3)
        };
        let stays = |entry: &&Mapped| {
            let label = entry.label;
            let is_kept = match label.class {
                // The cache itself chooses what leaves it, so its new bytes stay as well.
                DataClass::CACHED => at_most_half || at_most_three_quarters && label.is_used,
                _ => at_most_half && label.is_used,
            };
            label.state == PieceState::Dirty || is_kept
        };
        for entry in entries.iter().filter(stays) {
            let mut at = entry.extent.start();
            while let Some(rest) = ByteRange::new(at, entry.extent.end()) {
                let len = rest.len().min(CHUNK_LEN_MAX as u64);
                let part = ByteRange::with_len(at, len).expect("some of the rest");
                self.move_range(entry, part).await?;
                at = part.end();
            }
        }
        Ok(())
    }

    async fn move_range(&self, entry: &Mapped, part: ByteRange) -> Result<(), LogError> {
        let shared = &*self.0;
        let (piece, location, generation, _pin) = {
            let mut state = shared.state.lock();
            let live_parts = state.map.parts_at(entry.key, entry.extent, entry.location);
            if !live_parts.iter().any(|(range, _)| range.contains(part)) {
                return Ok(());
            }
            let piece = super::read::piece(&state.map, entry, part);
            let Some((location, pin)) = state.map.segments.take(part.len() as u32, Priority::Cleaning) else {
                return Ok(());
            };
            (piece, location, state.map.segments.get(location.segment).generation, pin)
        };
        let mut bytes = shared.buffer(part.len() as usize);
        match self.read(&piece, bytes.as_mut()).await {
            Ok(()) => {}
            // Lost bytes have been recorded, and a bad copy has been dropped.
            Err(LogError::Lost { .. } | LogError::BadCopy { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        let check = self.write_payload(location, generation, bytes.as_mut()).await?;
        let lsn = {
            let mut state = shared.state.lock();
            shared.check_healthy()?;
            let live_parts = state.map.parts_at(piece.key, part, piece.location);
            // Changed since the read: the next compaction sees the new state.
            let &[(range, label)] = &live_parts[..] else { return Ok(()) };
            if range != part {
                return Ok(());
            }
            let mtime = state.map.mtime(piece.key);
            state.append_move(&Put {
                key: piece.key,
                extent: part,
                label,
                mtime,
                location,
                generation,
                check,
            });
            state.moved += part.len();
            shared.filter.update(&mut state.map);
            state.lsn
        };
        self.commit(lsn).await
    }
}

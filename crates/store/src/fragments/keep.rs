//! The log's own task: checkpoints, quotas, and free segments.
//!
//! Cleaning empties the segment that costs least: dirty bytes are moved to a segment of their own kind, clean ones that
//! nobody found since they came are dropped, the others moved when the segment is at most half alive. Then the journal
//! says that the segment is empty, and when that is durable it is filled again.

use super::journal::PAYLOADS_NUMBER;
use super::map::Mapped;
use super::piece::{Place, State as PieceState};
use super::record::{Put, Record};
use super::segments::{CHUNK_LEN_MAX, Use, Want};
use super::{FragmentLog, LogError};
use crate::emulate;
use weft_core::LocalOffset;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_env::device::DeviceAction;
use weft_env::plants::{Plant, planted};
use weft_env::{BlockingFile, Env, File, Notify};

/// So many segments are emptied before a sync makes them free.
const BATCH: usize = 8;
/// A segment that is fuller of dirty bytes than this part of it is not worth cleaning.
const WORTH_NUMERATOR: u64 = 7;
const WORTH_DENOMINATOR: u64 = 8;
/// After a search without success so many records pass before the next one.
const PATIENCE: u64 = 64;
/// So many entries go at once.
const EVICTED_MAX: usize = 1024;

impl<E: Env> FragmentLog<E> {
    /// Wakes the task if it has something to do.
    pub(super) fn hint(&self) {
        let is_due = {
            let state = self.0.state.lock();
            state.map.segments.is_low() && state.point >= state.patient_until
        };
        if is_due || self.is_checkpoint_due() {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        self.0.work.notify_all();
    }

    /// The task.
    pub(super) async fn keep(&self) {
        let shared = &*self.0;
        loop {
            let epoch = shared.work.epoch();
            if shared.commit.lock().stop {
                break;
            }
            // A failure is kept and said to whoever comes next.
            let did_something = shared.fine().is_ok() && self.tend().await.unwrap_or(false);
            if !did_something {
                shared.work.wait(epoch, None).await;
            }
        }
        shared.commit.lock().keeper = false;
        shared.progress.notify_all();
    }

    /// Does one thing that is due; whether there was any.
    async fn tend(&self) -> Result<bool, LogError> {
        if self.is_checkpoint_due() {
            self.checkpoint().await?;
            return Ok(true);
        }
        if self.keep_quotas().await? {
            return Ok(true);
        }
        let is_low = {
            let state = self.0.state.lock();
            state.map.segments.is_low() && state.point >= state.patient_until
        };
        if !is_low {
            return Ok(false);
        }
        let freed = self.clean_some().await?;
        if !freed {
            let mut state = self.0.state.lock();
            state.patient_until = state.point + PATIENCE;
        }
        Ok(freed)
    }

    /// Lets clean entries of a class go that has more than it may.
    async fn keep_quotas(&self) -> Result<bool, LogError> {
        let mut spare = Vec::new();
        {
            let state = self.0.state.lock();
            for class in Class::ALL {
                let bytes = state.map.classes[class.index()].bytes();
                let mut over = bytes.saturating_sub(state.quotas[class.index()]);
                for entry in state.map.spare(class).take(EVICTED_MAX) {
                    if over == 0 {
                        break;
                    }
                    over = over.saturating_sub(entry.extent.len());
                    spare.push(entry);
                }
            }
        }
        self.evict(&spare).await?;
        Ok(!spare.is_empty())
    }

    /// Empties some segments and makes them free; whether there were any.
    async fn clean_some(&self) -> Result<bool, LogError> {
        let mut emptied = Vec::new();
        while emptied.len() < BATCH {
            let Some(victim) = self.victim(&emptied) else { break };
            self.move_away(victim).await?;
            let point = {
                let mut state = self.0.state.lock();
                let segment = state.map.segments.get(victim);
                if segment.dirty > 0 || segment.is_pinned() {
                    break;
                }
                let generation = segment.next_generation();
                state.append(&Record::Free { segment: victim, generation })
            };
            // In the journal first, as with everything clean that goes.
            self.commit(point).await?;
            let mut state = self.0.state.lock();
            let clean = state.map.segments.get(victim).live;
            state.evicted += clean;
            state.map.empty_segment(victim);
            state.map.segments.freed(victim, point);
            self.0.filter.follow(&mut state.map);
            emptied.push(victim);
        }
        let is_any =
            self.0.state.lock().map.segments.iter().any(|(_, it)| matches!(it.used_as, Use::Freed(_)));
        if !is_any {
            return Ok(false);
        }
        let point = self.0.state.lock().point;
        if !planted(Plant::EarlyReuse) {
            self.durable(point).await?;
        }
        let freed = self.0.state.lock().map.segments.freed_before(point);
        self.renew(&freed).await;
        self.0.state.lock().map.segments.make_free(&freed);
        Ok(!freed.is_empty())
    }

    /// Lets the file system know that the bytes of some segments mean nothing any more: else the first put into each page
    /// of them would wait until that is read.
    pub(super) async fn renew(&self, segments: &[u32]) {
        let shared = &*self.0;
        let payloads = shared.payloads.blocking();
        for &segment in segments {
            let start = shared.offset(Place { segment, position: 0 });
            let len = shared.spec.segment_len;
            let charge = shared.begin(DeviceAction::Discard, PAYLOADS_NUMBER, start, len.0 as usize);
            // Where that is not known it is only slower.
            let _ = payloads.discard(LocalOffset(start), len);
            emulate::end(charge).await;
        }
        payloads.settle().await;
    }

    /// The segment whose cleaning costs least.
    fn victim(&self, emptied: &[u32]) -> Option<u32> {
        let state = self.0.state.lock();
        let segments = &state.map.segments;
        if emptied.len() + segments.free_count() >= segments.free_wanted() {
            return None;
        }
        let full = segments.iter().filter(|(_, it)| it.used_as == Use::Full && !it.is_pinned());
        let worth = u64::from(segments.len()) * WORTH_NUMERATOR / WORTH_DENOMINATOR;
        let worth = full.filter(|(_, it)| it.dirty <= worth);
        // Clean bytes cost something too: they might be wanted again.
        worth.min_by_key(|(_, it)| (it.dirty * 4 + (it.live - it.dirty), it.filled)).map(|(index, _)| index)
    }

    /// Moves to another segment what has to stay.
    async fn move_away(&self, victim: u32) -> Result<(), LogError> {
        let (entries, with_used) = {
            let state = self.0.state.lock();
            let segment = state.map.segments.get(victim);
            let mut entries: Vec<Mapped> = state.map.in_segment(victim).collect();
            // In the order of the datafile, so that neighbors become neighbors.
            entries.sort_unstable_by_key(|entry| (entry.key, entry.extent.start()));
            (entries, segment.live <= u64::from(state.map.segments.len()) / 2)
        };
        let stays =
            |entry: &&Mapped| entry.label.state == PieceState::Dirty || (with_used && entry.label.is_used);
        for entry in entries.iter().filter(stays) {
            let mut at = entry.extent.start();
            while let Some(rest) = ByteRange::new(at, entry.extent.end()) {
                let len = rest.len().min(CHUNK_LEN_MAX as u64);
                let part = ByteRange::with_len(at, len).expect("some of the rest");
                self.move_part(entry, part).await?;
                at = part.end();
            }
        }
        Ok(())
    }

    async fn move_part(&self, entry: &Mapped, part: ByteRange) -> Result<(), LogError> {
        let shared = &*self.0;
        let (piece, place, generation, _pin) = {
            let mut state = shared.state.lock();
            let still = state.map.still(entry.key, entry.extent, entry.place);
            if !still.iter().any(|(there, _)| there.contains(part)) {
                return Ok(());
            }
            let piece = super::read::piece(&state.map, entry, part);
            let Some((place, pin)) = state.map.segments.take(part.len() as u32, Want::Cleaning) else {
                return Ok(());
            };
            (piece, place, state.map.segments.get(place.segment).generation, pin)
        };
        let mut bytes = shared.buffer(part.len() as usize);
        match self.read(&piece, bytes.as_mut()).await {
            Ok(()) => {}
            // What is lost has been noted; what was a copy is gone.
            Err(LogError::Lost { .. } | LogError::BadCopy { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        let check = self.write_payload(place, generation, bytes.as_mut()).await?;
        let point = {
            let mut state = shared.state.lock();
            shared.fine()?;
            let still = state.map.still(piece.key, part, piece.place);
            // Changed meanwhile: the next time then.
            let &[(there, label)] = &still[..] else { return Ok(()) };
            if there != part {
                return Ok(());
            }
            let mtime = state.map.mtime(piece.key);
            state.relocate(&Put { key: piece.key, extent: part, label, mtime, place, generation, check });
            state.moved += part.len();
            shared.filter.follow(&mut state.map);
            state.point
        };
        self.commit(point).await
    }
}

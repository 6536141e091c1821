//! The log on the SSD beside a target's disk: small pieces of datafiles, dirty or clean, and the mapping to them.
//!
//! ```text
//! weft-fragments    whose log this is, and the sizes of its parts
//! lock              locked while a server uses the log
//! segments/data     payloads, one after the other, in segments
//! map.0, map.1      journals of the mapping: a checkpoint, and what changed since
//! ```
//! Who uses it (the data server's placement) keeps these rules, and the log keeps what it promises:
//!
//! * Operations on overlapping ranges of a datafile are not under way at once, but for reads.
//! * The newest bytes of a range are the log's where it has any, else the disk's.
//! * Before the disk gets bytes over clean ones they are [forgotten](FragmentLog::forget); it never gets any over dirty
//!   ones ([`FragmentLog::overlap`]): those are [put](FragmentLog::put) here.
//! * Dirty bytes are [written back](FragmentLog::written_back) when the disk has them *and has been synced*.
//! * A sync of a datafile syncs both, the disk and the [log](FragmentLog::sync_datafile).

mod error;
mod failed;
mod frame;
mod identity;
mod journal;
#[doc(hidden)]
pub mod journal_bytes;
mod keep;
mod map;
#[cfg(test)]
mod map_tests;
mod open;
mod piece;
mod put;
mod read;
mod record;
mod replay;
mod segments;
mod spec;

pub use error::{LogError, OpenLogError};
pub use piece::{Cached, ClassStats, LogStats, Overlap, Piece, Tag};
pub use spec::{LogSpec, Lost, Recovered};

use crate::datafile::DatafileKey;
use crate::emulate::Emulator;
use failed::Health;
use frame::FrameKey;
use identity::Identity;
use journal::Commit;
use map::Map;
use parking_lot::Mutex;
use piece::State as PieceState;
use record::Record;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Env, Hollow, Notify};

/// So many entries are looked at while others wait.
const LOOKED_AT_MAX: u32 = 4096;
/// The folder of the payloads: in simulations of lengths only, its files keep these.
pub const SEGMENTS: &str = "segments";
const PAYLOADS: &str = "segments/data";

/// A log that this process has for itself. Clones share it.
pub struct FragmentLog<E: Env>(Arc<Shared<E>>);

impl<E: Env> Clone for FragmentLog<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<E: Env> {
    env: E,
    spec: LogSpec,
    payloads: E::File,
    journal: [E::File; 2],
    /// On the target's disk: the journal of a log that has failed.
    exile: Mutex<Option<E::File>>,
    identity: Identity,
    key: FrameKey,
    device: Option<Emulator<E>>,
    /// Payloads are bytes, not lengths only.
    has_bytes: bool,
    entries_max: u64,
    filter: Filter,
    /// Taken before `commit` where both are.
    state: Mutex<State>,
    commit: Mutex<Commit>,
    /// Something was written or became durable, or the task ended.
    progress: E::Notify,
    /// The task has something to do.
    work: E::Notify,
    health: Health,
    /// Keeps others out until the end.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The mapping, and what is on its way to the journal.
struct State {
    map: Map,
    quotas: [u64; Class::ALL.len()],
    /// A frame being filled, empty or with its header's room in front.
    pending: Vec<u8>,
    /// Records so far.
    point: u64,
    /// There are payloads that no sync has covered.
    unsealed: bool,
    /// Datafiles with records since the last sync, and the point of the last.
    touched: BTreeMap<DatafileKey, u64>,
    /// The task looks for segments to clean from this point on.
    patient_until: u64,
    /// Up to this point any datafile may have some.
    all_touched: u64,
    put: u64,
    evicted: u64,
    moved: u64,
}

/// Which datafiles may have anything in the log: a count for each value of a hash, read without a lock.
struct Filter(Box<[AtomicU32]>);

impl Filter {
    const LEN: usize = 4096;

    fn new() -> Self {
        Self((0..Self::LEN).map(|_| AtomicU32::new(0)).collect())
    }

    fn slot(&self, key: DatafileKey) -> &AtomicU32 {
        let object = u64::from(key.object.component) << 16 | u64::from(key.object.column);
        let hash = (key.file.0 ^ object << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> 52) as usize % Self::LEN]
    }

    #[inline]
    fn may_have(&self, key: DatafileKey) -> bool {
        self.slot(key).load(Ordering::Acquire) > 0
    }

    fn follow(&self, map: &mut Map) {
        for key in map.came.drain(..) {
            self.slot(key).fetch_add(1, Ordering::AcqRel);
        }
        for key in map.went.drain(..) {
            self.slot(key).fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Memory for a payload, without bytes where payloads have none.
enum Buffer {
    Bytes(Vec<u8>),
    Hollow(Hollow),
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Hollow(hollow) => hollow,
        }
    }
}

impl<E: Env> Shared<E> {
    fn buffer(&self, len: usize) -> Buffer {
        self.env.hollow(len).map_or_else(|| Buffer::Bytes(vec![0; len]), Buffer::Hollow)
    }
}

impl<E: Env> FragmentLog<E> {
    /// What of `extent` lies here. Near free when nothing of the datafile does.
    #[inline]
    pub fn overlap(&self, key: DatafileKey, extent: ByteRange) -> Overlap {
        if !self.0.filter.may_have(key) {
            return Overlap::default();
        }
        let state = self.0.state.lock();
        let mut overlap = Overlap::default();
        for entry in state.map.overlapping(key, extent) {
            overlap.any = true;
            overlap.dirty |= matches!(entry.label.state, PieceState::Dirty | PieceState::Lost);
        }
        overlap
    }

    /// The pieces of `extent` that lie here, sorted and disjoint; they count as used. Near free when nothing of the
    /// datafile does.
    #[inline]
    pub fn find(&self, key: DatafileKey, extent: ByteRange) -> Vec<Piece> {
        if !self.0.filter.may_have(key) {
            return Vec::new();
        }
        let mut state = self.0.state.lock();
        let map = &mut state.map;
        let found: Vec<_> = map.overlapping(key, extent).collect();
        found
            .into_iter()
            .map(|entry| {
                map.touch(entry.id);
                read::piece(map, &entry, extent)
            })
            .collect()
    }

    /// Drops what is clean or lost of `extent`, because the disk is about to get newer bytes there. Dirty bytes stay.
    /// When this returns a killed process does not bring them back.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be written there.
    pub async fn forget(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        let record = Record::Forget(key, extent);
        self.drop_some(key, extent, &record, |state| state != PieceState::Dirty).await
    }

    /// Drops everything of `extent`, dirty bytes too: after the log has failed, when the disk gets newer ones there.
    ///
    /// # Errors
    /// [`LogError::Failed`] when not even the disk takes the note: then it must not be written there.
    pub async fn give_up(&self, key: DatafileKey, extent: ByteRange) -> Result<(), LogError> {
        self.drop_some(key, extent, &Record::GiveUp(key, extent), |_| true).await
    }

    /// The datafile is cut to `len` (or made longer, which changes nothing here): bytes behind are gone. To be said before the
    /// disk is told; but where dirty bytes go and the disk has some under them, the disk is cut and synced before: a loss
    /// of power might keep this cut and not that of the disk, and uncover what had been overwritten long ago.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then the disk must not be told.
    pub async fn cut(&self, key: DatafileKey, len: ByteLen) -> Result<(), LogError> {
        let Some(extent) = ByteRange::from(len.0) else { return Ok(()) };
        self.drop_some(key, extent, &Record::Cut(key, len.0), |_| true).await
    }

    /// The datafile is removed, and none of this key comes again.
    ///
    /// # Errors
    /// As [`cut`](Self::cut).
    pub async fn remove(&self, key: DatafileKey) -> Result<(), LogError> {
        self.drop_some(key, ByteRange::ALL, &Record::Remove(key), |_| true).await
    }

    async fn drop_some(
        &self,
        key: DatafileKey,
        extent: ByteRange,
        record: &Record,
        goes: impl Fn(PieceState) -> bool,
    ) -> Result<(), LogError> {
        let shared = &*self.0;
        if !shared.filter.may_have(key) {
            return Ok(());
        }
        self.exile().await?;
        let point = {
            let mut state = shared.state.lock();
            if !state.map.overlapping(key, extent).any(|entry| goes(entry.label.state)) {
                return Ok(());
            }
            shared.journals()?;
            state.map.remove(key, extent, goes);
            shared.filter.follow(&mut state.map);
            state.append(record)
        };
        self.commit(point).await?;
        self.hint();
        Ok(())
    }

    /// What of a datafile lies here; `None` for nothing, which is near free.
    #[inline]
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        if !self.0.filter.may_have(key) {
            return None;
        }
        self.0.state.lock().map.cached(key)
    }

    /// At most `limit` datafiles after `after` with anything here, in the order of their keys.
    pub fn list(&self, after: Option<DatafileKey>, limit: usize) -> Vec<(DatafileKey, Cached)> {
        self.0.state.lock().map.cached_after(after).take(limit).collect()
    }

    /// Dirty pieces behind `after`, in the order of datafile and offset, until there are `len_max` bytes of them (and
    /// one at least); empty at the end. They do not count as used.
    pub fn dirty_runs(&self, after: Option<(DatafileKey, LocalOffset)>, len_max: ByteLen) -> Vec<Piece> {
        let (mut pieces, mut len) = (Vec::new(), 0);
        let mut from = after;
        loop {
            match self.look_for_dirty(from, len_max, &mut pieces, &mut len) {
                Some(next) => from = Some(next),
                None => return pieces,
            }
        }
    }

    /// The same for as long as nobody else should have to wait; where to go on.
    fn look_for_dirty(
        &self,
        after: Option<(DatafileKey, LocalOffset)>,
        len_max: ByteLen,
        pieces: &mut Vec<Piece>,
        len: &mut u64,
    ) -> Option<(DatafileKey, LocalOffset)> {
        let state = self.0.state.lock();
        let map = &state.map;
        let mut seen = 0;
        for (key, _) in map.keys_from(after.map(|(key, _)| key)) {
            seen += 1;
            let from = after.filter(|(of, _)| *of == key).map_or(0, |(_, offset)| offset.0);
            let extent = ByteRange::from(from).filter(|_| map.is_dirty(key));
            for entry in extent.into_iter().flat_map(|extent| map.overlapping(key, extent)) {
                seen += 1;
                if entry.label.state == PieceState::Dirty {
                    let piece = read::piece(map, &entry, extent?);
                    if *len > 0 && *len + piece.extent.len() > len_max.0 {
                        return None;
                    }
                    *len += piece.extent.len();
                    pieces.push(piece);
                }
                if seen > LOOKED_AT_MAX {
                    return Some((key, LocalOffset(entry.extent.end())));
                }
            }
            if seen > LOOKED_AT_MAX {
                return Some((key, LocalOffset(u64::MAX)));
            }
        }
        None
    }

    /// The disk has these pieces and has been synced since: they are clean, where they have not changed meanwhile.
    ///
    /// # Errors
    /// [`LogError::Failed`]: then they stay dirty.
    pub async fn written_back(&self, pieces: &[Piece]) -> Result<(), LogError> {
        let shared = &*self.0;
        self.exile().await?;
        let point = {
            let mut state = shared.state.lock();
            shared.journals()?;
            for piece in pieces {
                for (part, label) in state.map.still(piece.key, piece.extent, piece.place) {
                    if label.state == PieceState::Dirty {
                        state.map.clean(piece.key, part);
                        state.append(&Record::Clean(piece.key, part));
                    }
                }
            }
            state.point
        };
        self.commit(point).await?;
        self.hint();
        Ok(())
    }

    /// How many bytes of each class ([`Class::index`]) may lie here. Clean ones that were not used for longest go when a
    /// class has more; dirty ones stay, but no more are taken.
    pub fn set_quotas(&self, quotas: [ByteLen; Class::ALL.len()]) {
        let is_less = {
            let mut state = self.0.state.lock();
            let before = std::mem::replace(&mut state.quotas, quotas.map(|quota| quota.0));
            before.iter().zip(&state.quotas).any(|(before, now)| before > now)
        };
        if is_less {
            self.wake();
        }
    }

    /// Makes everything so far survive loss of power.
    ///
    /// # Errors
    /// [`LogError::Failed`]; after a failure as long as anything is dirty, because nobody knows what of that the SSD has.
    pub async fn sync(&self) -> Result<(), LogError> {
        let (point, dirty) = {
            let state = self.0.state.lock();
            (state.point, state.map.bytes_dirty())
        };
        self.sync_to(point, dirty > 0).await
    }

    /// The same for what was done with one datafile; nothing when nothing was since the last sync.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub async fn sync_datafile(&self, key: DatafileKey) -> Result<(), LogError> {
        let (point, is_dirty) = {
            let state = self.0.state.lock();
            let point = state.touched.get(&key).copied().unwrap_or(0).max(state.all_touched);
            (point, state.map.is_dirty(key))
        };
        self.sync_to(point, is_dirty).await
    }

    async fn sync_to(&self, point: u64, is_dirty: bool) -> Result<(), LogError> {
        if self.0.fine().is_err() {
            self.exile().await?;
            if is_dirty {
                return self.0.fine();
            }
        }
        self.durable(point).await
    }

    /// Why the log has failed, if it has.
    pub fn failure(&self) -> Option<LogError> {
        self.0.fine().err()
    }

    /// What is lost, at most `limit` of it.
    pub fn lost(&self, limit: usize) -> Vec<Lost> {
        open::lost(&self.0.state.lock().map, limit)
    }

    /// What lies here.
    pub fn stats(&self) -> LogStats {
        let commit = self.0.commit.lock();
        let journal = ByteLen(commit.offset.saturating_sub(commit.checkpoint_len));
        let checkpoints = commit.checkpoints;
        drop(commit);
        let state = self.0.state.lock();
        let map = &state.map;
        let class = |class: Class| {
            let total = &map.classes[class.index()];
            ClassStats {
                dirty: ByteLen(total.dirty),
                clean: ByteLen(total.clean),
                entries: total.entries,
                gain: total.gain(),
                quota: ByteLen(state.quotas[class.index()]),
            }
        };
        LogStats {
            classes: Class::ALL.map(class),
            capacity: map.segments.capacity(),
            segments: u64::from(map.segments.count()),
            segments_free: map.segments.free_count() as u64,
            datafiles: map.files(),
            put: ByteLen(state.put),
            evicted: ByteLen(state.evicted),
            moved: ByteLen(state.moved),
            lost: ByteLen(map.lost),
            memory: ByteLen(map.memory()),
            journal,
            failed: self.0.fine().is_err(),
            checkpoints,
        }
    }

    /// What it was opened with.
    pub fn spec(&self) -> &LogSpec {
        &self.0.spec
    }

    /// An orderly end: syncs everything, ends the task and lets another process have the log. What was clean stays over
    /// the next boot of the machine. Nothing may be done with it from here on.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub async fn close(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        shared.commit.lock().stop = true;
        shared.work.notify_all();
        loop {
            let epoch = shared.progress.epoch();
            if !shared.commit.lock().keeper {
                break;
            }
            shared.progress.wait(epoch, None).await;
        }
        let ended = async {
            let point = shared.state.lock().point;
            // A log that has failed is as durable as it was, and what the disk has is noted there.
            self.exile().await?;
            self.durable(point).await?;
            let point = shared.state.lock().append(&Record::End);
            self.durable(point).await
        };
        let ended = ended.await;
        shared.health.close(&shared.spec.path);
        *shared.lock.lock() = None;
        ended
    }
}

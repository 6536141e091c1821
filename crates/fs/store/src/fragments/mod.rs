//! The fragment log: a write-ahead log on the SSD beside a target's disk that holds small ranges of datafiles.
//!
//! A byte in the log is *dirty* (the log has the only current copy), *clean* (the disk has the same byte) or *lost*
//! (the log had the only copy and can no longer read it).
//!
//! ```text
//! weft-fragments | identity: cluster, target, log, segment count and length       (identity.rs)
//! lock           | held by the server that uses the log
//! segments/data  | payloads, appended to fixed-length segments of one file        (segments.rs)
//! map.0, map.1   | journal of the mapping: a checkpoint, then the changes since   (frame.rs, record.rs)
//! ```
//!
//! # Life of a fragment
//!
//! ```text
//!           put(dirty)           mark_clean             forget, eviction, compaction
//! absent ---------------> Dirty --------------> Clean ------------------------------> absent
//!                           | payload unreadable        overwrite, truncation, removal
//!                           +-----------------> Lost -------------------------------> absent
//!           put(clean)                                  forget, eviction, compaction
//! absent ---------------> Copy -----------------------------------------------------> absent
//! ```
//!
//! | step | module | effect |
//! | --- | --- | --- |
//! | put | `put` | payload, then a `Put` record; neither is synced |
//! | sync | `journal` | sync of the payloads, a `Sealed` record, sync of the journal |
//! | checkpoint | `checkpoint` | the whole mapping in the other journal file, which then becomes the journal |
//! | write-back | server | bytes on the disk, sync of the disk, then a `Clean` record |
//! | eviction | `put`, `eviction` | a `Forget` record; only then does the entry leave the mapping |
//! | compaction | `compaction` | live payloads move, a `Free` record, a sync; then the segment is reused |
//! | recovery | `open`, `replay` | replay of the journal; after a loss of power, unsealed payloads are verified |
//! | SSD failure | `fallback_journal` | the journal continues in the target's own directory |
//!
//! # Contract with the caller
//!
//! The caller is the data server's SSD tier. It guarantees, and the log relies on:
//!
//! * Operations on overlapping ranges of a datafile never run concurrently, except reads.
//! * Where the log has bytes of a range, they are the newest; elsewhere the disk's are.
//! * Before the disk gets newer bytes over clean ones, the caller [forgets](FragmentLog::forget) the clean ones. The
//!   disk never gets newer bytes over dirty ones (see [`FragmentLog::overlap`]); those are [put](FragmentLog::put)
//!   into the log.
//! * The caller reports dirty bytes as [written back](FragmentLog::mark_clean) only after the disk has them *and has
//!   been synced*.
//! * A sync of a datafile syncs both the disk and the [log](FragmentLog::sync_datafile).
//!
//! `docs/design/ssd-log.md` explains why these rules suffice without any ordering between the two devices.

mod checkpoint;
mod compaction;
mod error;
mod eviction;
mod fallback_journal;
mod filter;
mod find;
mod frame;
mod identity;
mod journal;
#[doc(hidden)]
pub mod journal_bytes;
mod map;
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
use fallback_journal::Health;
use filter::Filter;
use frame::FrameKey;
use identity::Identity;
use journal::Commit;
use map::Map;
use parking_lot::Mutex;
use record::Record;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::ByteLen;
use weft_core::DataClass;
use weft_env::{Env, Hollow, Notify};

/// Directory that holds the payload file. A simulation that keeps payload lengths only keeps only the lengths of its
/// files.
pub const SEGMENTS: &str = "segments";
const PAYLOADS: &str = "segments/data";

/// An open fragment log, exclusive to this process. Clones share it.
pub struct FragmentLog<E: Env>(Arc<Shared<E>>, Option<Arc<StopOnDrop<E>>>);

impl<E: Env> Clone for FragmentLog<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone())
    }
}

/// Stops the background task when the last user handle is dropped. The task's own handle carries none.
struct StopOnDrop<E: Env>(Arc<Shared<E>>);

/// Lets another process open the log, also when server startup failed after the log was opened.
impl<E: Env> Drop for StopOnDrop<E> {
    fn drop(&mut self) {
        self.0.commit.lock().stop = true;
        self.0.work.notify_all();
    }
}

struct Shared<E: Env> {
    env: E,
    spec: LogSpec,
    payloads: E::File,
    journal: [E::File; 2],
    /// Journal of a failed log, on the target's disk.
    fallback_journal: Mutex<Option<E::File>>,
    identity: Identity,
    key: FrameKey,
    device: Option<Emulator<E>>,
    /// False in simulations that keep payload lengths only.
    has_bytes: bool,
    entries_max: u64,
    filter: Filter,
    /// Locked before `commit` when both are held.
    state: Mutex<State>,
    commit: Mutex<Commit>,
    /// Signaled when records were written or became durable, and when the background task ended.
    progress: E::Notify,
    /// Signaled when the background task may have work.
    work: E::Notify,
    health: Health,
    /// Lock on the log's directory, held until the log is closed.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// The mapping, and the records that have not been written to the journal yet.
struct State {
    map: Map,
    quotas: [u64; DataClass::COUNT],
    /// Frame that collects records: empty, or space for the header followed by records.
    pending: Vec<u8>,
    /// Log sequence number: count of records appended since the log was opened.
    lsn: u64,
    /// True when some payloads are not covered by a sync yet.
    has_unsealed: bool,
    /// Datafiles with records since the last sync began, with the LSN of their last record.
    unsynced_datafiles: BTreeMap<DatafileKey, u64>,
    /// Datafiles that the running sync covers; empty when no sync runs.
    syncing_datafiles: BTreeMap<DatafileKey, u64>,
    /// LSN before which the background task does not look for segments to compact again.
    compact_from_lsn: u64,
    /// Any datafile may have unsynced records up to this LSN.
    all_unsynced_lsn: u64,
    put: u64,
    evicted: u64,
    moved: u64,
}

/// Buffer for a payload; hollow where the environment keeps lengths only.
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
    /// Sets the number of bytes of each class ([`DataClass::index`]) that may be in the log. A class above its quota
    /// loses its least recently used clean bytes; its dirty bytes stay, but it accepts no more.
    pub fn set_quotas(&self, quotas: [ByteLen; DataClass::COUNT]) {
        let is_less = {
            let mut state = self.0.state.lock();
            let before = std::mem::replace(&mut state.quotas, quotas.map(|quota| quota.0));
            before.iter().zip(&state.quotas).any(|(before, now)| before > now)
        };
        if is_less {
            self.wake();
        }
    }

    /// Makes all changes so far survive a loss of power.
    ///
    /// # Errors
    /// [`LogError::Failed`]. After the SSD failed, also as long as any dirty bytes remain, because it is unknown which
    /// of them the SSD has stored.
    pub async fn sync(&self) -> Result<(), LogError> {
        let (lsn, dirty) = {
            let state = self.0.state.lock();
            (state.lsn, state.map.bytes_dirty())
        };
        self.sync_to(lsn, dirty > 0).await
    }

    /// Makes all changes of one datafile survive a loss of power. Does nothing when it had none since the last sync.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync).
    pub async fn sync_datafile(&self, key: DatafileKey) -> Result<(), LogError> {
        let (lsn, is_dirty) = {
            let state = self.0.state.lock();
            let lsns = [&state.unsynced_datafiles, &state.syncing_datafiles]
                .map(|lsns| lsns.get(&key).copied().unwrap_or(0));
            let lsn = lsns[0].max(lsns[1]).max(state.all_unsynced_lsn);
            (lsn, state.map.is_dirty(key))
        };
        self.sync_to(lsn, is_dirty).await
    }

    async fn sync_to(&self, lsn: u64, is_dirty: bool) -> Result<(), LogError> {
        if self.0.check_healthy().is_ok() {
            match self.durable(lsn).await {
                // The SSD has failed now. The fallback journal has all that matters to a datafile without dirty bytes.
                Err(_) if !is_dirty => {}
                synced => return synced,
            }
        }
        self.ensure_journal().await?;
        if is_dirty {
            return self.0.check_healthy();
        }
        self.durable(lsn).await
    }

    /// Returns why the log has failed, or `None` if it has not.
    pub fn failure(&self) -> Option<LogError> {
        self.0.check_healthy().err()
    }

    /// Returns at most `limit` lost ranges.
    pub fn lost(&self, limit: usize) -> Vec<Lost> {
        open::lost(&self.0.state.lock().map, limit)
    }

    /// Returns the number of dirty bytes and the number of all bytes in the log.
    pub fn fill_level(&self) -> (ByteLen, ByteLen) {
        let state = self.0.state.lock();
        (ByteLen(state.map.bytes_dirty()), ByteLen(state.map.bytes()))
    }

    /// Returns the log's counters.
    pub fn stats(&self) -> LogStats {
        let commit = self.0.commit.lock();
        let journal = ByteLen(commit.offset.saturating_sub(commit.checkpoint_len));
        let checkpoints = commit.checkpoints;
        drop(commit);
        let state = self.0.state.lock();
        let map = &state.map;
        let class = |class: DataClass| {
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
            classes: DataClass::ALL.map(class),
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
            failed: self.0.check_healthy().is_err(),
            checkpoints,
        }
    }

    /// Returns the specification that the log was opened with.
    pub fn spec(&self) -> &LogSpec {
        &self.0.spec
    }

    /// Closes the log: syncs everything, stops the background task and releases the lock. Clean bytes stay valid
    /// across the next boot of the machine. The log must not be used afterwards.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub async fn close(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        shared.commit.lock().stop = true;
        shared.work.notify_all();
        loop {
            let epoch = shared.progress.epoch();
            if !shared.commit.lock().task_running {
                break;
            }
            shared.progress.wait(epoch, None).await;
        }
        let ended = async {
            let lsn = shared.state.lock().lsn;
            // A failed log is as durable as it can be; what the disk has is recorded in the fallback journal.
            self.ensure_journal().await?;
            self.durable(lsn).await?;
            let lsn = shared.state.lock().append(&Record::End);
            self.durable(lsn).await
        };
        let ended = ended.await;
        shared.health.close(&shared.spec.path);
        *shared.lock.lock() = None;
        ended
    }
}

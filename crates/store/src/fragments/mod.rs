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

mod checkpoint;
mod error;
mod failed;
mod filter;
mod find;
mod frame;
mod identity;
mod journal;
#[doc(hidden)]
pub mod journal_bytes;
mod keep;
mod leave;
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
use failed::Health;
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
use weft_core::ibridge::Class;
use weft_env::{Env, Hollow, Notify};

/// The folder of the payloads: in simulations of lengths only, its files keep these.
pub const SEGMENTS: &str = "segments";
const PAYLOADS: &str = "segments/data";

/// A log that this process has for itself. Clones share it.
pub struct FragmentLog<E: Env>(Arc<Shared<E>>, Option<Arc<User<E>>>);

impl<E: Env> Clone for FragmentLog<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone())
    }
}

/// All who use the log; its own task does not.
struct User<E: Env>(Arc<Shared<E>>);

/// When nobody uses it any more the task ends, too, and the log can be opened by others: also when its server did not start.
impl<E: Env> Drop for User<E> {
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
    /// Datafiles with records since the last sync began, and the point of the last.
    touched: BTreeMap<DatafileKey, u64>,
    /// The same for those before, until that sync has ended.
    being_synced: BTreeMap<DatafileKey, u64>,
    /// The task looks for segments to clean from this point on.
    patient_until: u64,
    /// Up to this point any datafile may have some.
    all_touched: u64,
    put: u64,
    evicted: u64,
    moved: u64,
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
            let touched = [&state.touched, &state.being_synced].map(|of| of.get(&key).copied().unwrap_or(0));
            let point = touched[0].max(touched[1]).max(state.all_touched);
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

    /// Bytes that the disk does not have, and all bytes that lie here.
    pub fn filled(&self) -> (ByteLen, ByteLen) {
        let state = self.0.state.lock();
        (ByteLen(state.map.bytes_dirty()), ByteLen(state.map.bytes()))
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

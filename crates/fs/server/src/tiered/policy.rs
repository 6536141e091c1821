//! The filters that admit requests to the SSD of one disk, and the division of the SSD between the classes of bytes.
//!
//! A request is offered to iBridge first and to the cache second. The disk serves what neither takes.

use parking_lot::Mutex;
use std::sync::Arc;
use weft_core::ibridge::{Arrival, Decider, DiskRequest, Policy, Verdict};
use weft_core::{ByteLen, CacheShare, DataClass, LocalExtent, Nanos, SsdBudget};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_wire::data::IoHints;
use weft_wire::hello::SessionId;

/// Placement decisions of one target.
pub(super) struct Policies {
    /// iBridge's decisions; `None` if the target has the cache only.
    ibridge: Option<Ibridge>,
    budget: Mutex<SsdBudget>,
    /// Whether the division depends on the bytes that the SSD serves.
    is_adaptive: bool,
    capacity: ByteLen,
}

struct Ibridge {
    decider: Arc<Mutex<Decider>>,
    needs_write_times: bool,
}

/// Figures about one class for `weft status`.
#[derive(Clone, Copy, Default)]
pub(super) struct ClassState {
    pub quota: ByteLen,
    pub gain: i64,
    pub admitted: u64,
}

impl Policies {
    /// Creates the policies for a log of `capacity` bytes.
    pub fn new(decider: Option<Arc<Mutex<Decider>>>, cache: Option<CacheShare>, capacity: ByteLen) -> Self {
        let policy = decider.as_ref().map(|decider| decider.lock().spec().policy);
        let ibridge = decider.map(|decider| {
            let needs_write_times = decider.lock().needs_write_times();
            Ibridge { decider, needs_write_times }
        });
        let is_adaptive = cache == Some(CacheShare::Adaptive);
        let budget = Mutex::new(SsdBudget::new(policy.filter(|policy| *policy != Policy::Off), cache));
        Self { ibridge, budget, is_adaptive, capacity }
    }

    /// Decides whether iBridge takes a write of `writer`. The time of arrival is given if the policy [wants
    /// times](Self::needs_write_times). A write that the disk gets counts as served by it, unless the cache may take
    /// it.
    pub fn write<E: Env>(
        &self,
        env: &E,
        key: DatafileKey,
        extent: LocalExtent,
        (writer, at): (SessionId, Option<Nanos>),
        (hints, is_offered_to_cache): (&IoHints, bool),
    ) -> Verdict {
        let Some(ibridge) = &self.ibridge else { return Verdict::Disk };
        let arrival = arrival(request(key, extent, true), hints);
        let now = at.unwrap_or_else(|| time_for(env, &arrival));
        let mut decider = ibridge.decider.lock();
        if at.is_some() {
            decider.observe_writer(session_number(writer), now);
        }
        match is_offered_to_cache {
            true => decider.decide(&arrival, now),
            false => decider.arrives(&arrival, now),
        }
    }

    /// Decides whether iBridge wants a copy of a read that the disk serves.
    pub fn read<E: Env>(&self, env: &E, key: DatafileKey, extent: LocalExtent, hints: &IoHints) -> Verdict {
        let Some(ibridge) = &self.ibridge else { return Verdict::Disk };
        let arrival = arrival(request(key, extent, false), hints);
        let now = time_for(env, &arrival);
        ibridge.decider.lock().arrives(&arrival, now)
    }

    /// Records that the disk serves a request, or a part of one.
    pub fn served_by_disk(&self, key: DatafileKey, extent: LocalExtent, write: bool) {
        if let Some(ibridge) = &self.ibridge {
            ibridge.decider.lock().served_by_disk(&request(key, extent, write));
        }
    }

    /// Records how many bytes of the SSD are dirty and how many are used at all.
    pub fn set_fill_level(&self, dirty: ByteLen, all: ByteLen) {
        if let Some(ibridge) = &self.ibridge {
            ibridge.decider.lock().set_fill_level(dirty, all, self.capacity);
        }
    }

    /// Whether a copy is worth keeping, given its length and how long the disk took to read it.
    pub fn is_worth_a_copy(&self, len: ByteLen, took: Nanos) -> bool {
        self.ibridge.as_ref().is_some_and(|ibridge| ibridge.decider.lock().is_worth_a_copy(len, took))
    }

    /// Longest gap between two copies that is copied along with them.
    pub fn gap_max(&self) -> Option<ByteLen> {
        self.ibridge.as_ref().and_then(|ibridge| ibridge.decider.lock().gap_max())
    }

    /// Whether the policy uses the disk's write times, given to it by [`took`](Self::took).
    pub fn needs_write_times(&self) -> bool {
        self.ibridge.as_ref().is_some_and(|ibridge| ibridge.needs_write_times)
    }

    /// Records the begin and end of a disk write, its wait included, and the number of disk writes outstanding at its
    /// end.
    pub fn took(&self, key: DatafileKey, extent: LocalExtent, time: (Nanos, Nanos), depth: u32) {
        if let Some(ibridge) = &self.ibridge {
            ibridge.decider.lock().observe_write(&request(key, extent, true), time, depth);
        }
    }

    /// Records how long a sync of the disk took.
    pub fn synced(&self, took: Nanos) {
        if let Some(ibridge) = &self.ibridge {
            ibridge.decider.lock().observe_sync(took);
        }
    }

    /// The disk's average service time, T in the iBridge paper.
    pub fn service_time(&self) -> Nanos {
        self.ibridge.as_ref().map_or(Nanos::ZERO, |ibridge| ibridge.decider.lock().average())
    }

    /// iBridge's policy.
    pub fn policy(&self) -> Policy {
        self.ibridge.as_ref().map_or(Policy::Off, |ibridge| ibridge.decider.lock().spec().policy)
    }

    /// Records an admission. Returns new quotas from time to time.
    pub fn admitted(&self, class: DataClass, gain: i64) -> Option<[ByteLen; DataClass::COUNT]> {
        let mut budget = self.budget.lock();
        budget.admitted(class, gain).then(|| budget.quotas(self.capacity))
    }

    /// Records bytes that the SSD served.
    pub fn served_by_ssd(&self, class: DataClass, len: ByteLen) {
        if self.is_adaptive {
            self.budget.lock().served(class, len);
        }
    }

    /// Quotas of the classes.
    pub fn quotas(&self) -> [ByteLen; DataClass::COUNT] {
        self.budget.lock().quotas(self.capacity)
    }

    /// Name of the policy that divides the SSD.
    pub fn partition(&self) -> String {
        self.budget.lock().name()
    }

    /// Figures about a class; `None` if no request of it is admitted.
    pub fn class(&self, class: DataClass) -> Option<ClassState> {
        let budget = self.budget.lock();
        budget.has(class).then(|| ClassState {
            quota: budget.quotas(self.capacity)[class.index()],
            gain: budget.gain(class),
            admitted: budget.admissions(class),
        })
    }
}

/// A session as a number for statistics.
pub(super) fn session_number(session: SessionId) -> u64 {
    session.0 as u64 ^ (session.0 >> 64) as u64
}

/// A datafile as a number for statistics.
pub(super) fn file_number(key: DatafileKey) -> u64 {
    let object = u64::from(key.object.component) << 16 | u64::from(key.object.column);
    key.file.0 << 32 ^ object
}

fn arrival(request: DiskRequest, hints: &IoHints) -> Arrival<'_> {
    Arrival { request, pieces: hints.siblings.into(), siblings: &hints.sibling_targets }
}

/// A request without siblings needs no time, and reading the clock costs more than the decision.
fn time_for<E: Env>(env: &E, arrival: &Arrival<'_>) -> Nanos {
    if arrival.siblings.is_empty() { Nanos::ZERO } else { env.now() }
}

fn request(key: DatafileKey, extent: LocalExtent, write: bool) -> DiskRequest {
    DiskRequest { file: file_number(key), offset: extent.offset, len: extent.len, write }
}

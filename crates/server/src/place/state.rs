//! What the policy knows of one disk, and how the SSD is shared between the classes.

use parking_lot::Mutex;
use std::sync::Arc;
use weft_core::ibridge::{Arrival, Class, Decider, DiskRequest, Partition, Verdict};
use weft_core::{ByteLen, LocalExtent, Nanos};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_wire::data::IoHints;
use weft_wire::hello::SessionId;

/// Quotas are told to the log after so many admissions.
const QUOTAS_EVERY: u64 = 64;

/// The decisions of one target.
pub(super) struct Policies {
    decider: Arc<Mutex<Decider>>,
    wants_times: bool,
    shares: Mutex<Shares>,
    capacity: ByteLen,
}

struct Shares {
    partition: Partition,
    admitted: [u64; 2],
}

/// What `Policies` says of a class.
#[derive(Clone, Copy, Default)]
pub(super) struct ClassState {
    pub quota: ByteLen,
    pub gain: i64,
    pub admitted: u64,
}

impl Policies {
    /// With a log that has room for `capacity` bytes.
    pub fn new(decider: Arc<Mutex<Decider>>, capacity: ByteLen) -> Self {
        let (partition, wants_times) = {
            let decider = decider.lock();
            (Partition::new(decider.spec().policy), decider.wants_times())
        };
        Self { decider, wants_times, shares: Mutex::new(Shares { partition, admitted: [0; 2] }), capacity }
    }

    /// Which device is to serve a write of `writer`, at a time that is known if times are [wanted](Self::wants_times).
    /// One that is the disk's counts as served by it.
    pub fn write<E: Env>(
        &self,
        env: &E,
        key: DatafileKey,
        extent: LocalExtent,
        (writer, at): (SessionId, Option<Nanos>),
        hints: &IoHints,
    ) -> Verdict {
        let arrival = arrival(request(key, extent, true), hints);
        let now = at.unwrap_or_else(|| time_for(env, &arrival));
        let mut decider = self.decider.lock();
        if at.is_some() {
            decider.heard_of(writer.0 as u64 ^ (writer.0 >> 64) as u64, now);
        }
        decider.arrives(&arrival, now)
    }

    /// What the SSD is to have of a read, which the disk serves.
    pub fn read<E: Env>(&self, env: &E, key: DatafileKey, extent: LocalExtent, hints: &IoHints) -> Verdict {
        let arrival = arrival(request(key, extent, false), hints);
        let now = time_for(env, &arrival);
        self.decider.lock().arrives(&arrival, now)
    }

    /// The disk serves a request, or a part of one.
    pub fn served_by_disk(&self, key: DatafileKey, extent: LocalExtent, write: bool) {
        self.decider.lock().served_by_disk(&request(key, extent, write));
    }

    /// So much of the SSD's room holds bytes that lie there alone, and so much any.
    pub fn filled(&self, dirty: ByteLen, all: ByteLen) {
        self.decider.lock().filled(dirty, all, self.capacity);
    }

    /// Whether to keep a copy of so many bytes that the disk gave in this time.
    pub fn is_worth_a_copy(&self, len: ByteLen, took: Nanos) -> bool {
        self.decider.lock().is_worth_a_copy(len, took)
    }

    /// How long a gap between two copies may be that is copied, too.
    pub fn gap_max(&self) -> Option<ByteLen> {
        self.decider.lock().gap_max()
    }

    /// Whether somebody wants to know by [`took`](Self::took) how long the disk takes for writes.
    pub fn wants_times(&self) -> bool {
        self.wants_times
    }

    /// The disk had a write for this time, with all that it waited for, when there were so many at its end.
    pub fn took(&self, key: DatafileKey, extent: LocalExtent, time: (Nanos, Nanos), depth: u32) {
        self.decider.lock().took(&request(key, extent, true), time, depth);
    }

    /// The disk has synced for somebody, in this time.
    pub fn synced(&self, took: Nanos) {
        self.decider.lock().synced(took);
    }

    /// T.
    pub fn service_time(&self) -> Nanos {
        self.decider.lock().average()
    }

    /// The SSD has taken a request; quotas when it is time to tell them.
    pub fn admitted(&self, class: Class, gain: i64) -> Option<[ByteLen; 2]> {
        let mut shares = self.shares.lock();
        shares.partition.admitted(class, gain);
        shares.admitted[class.index()] += 1;
        let sum: u64 = shares.admitted.iter().sum();
        (sum % QUOTAS_EVERY == 1).then(|| quotas(&shares.partition, self.capacity))
    }

    /// What the classes may have before anything was admitted.
    pub fn quotas(&self) -> [ByteLen; 2] {
        quotas(&self.shares.lock().partition, self.capacity)
    }

    pub fn class(&self, class: Class) -> ClassState {
        let shares = self.shares.lock();
        ClassState {
            quota: shares.partition.quota(class, self.capacity),
            gain: shares.partition.average(class).unwrap_or(0.0) as i64,
            admitted: shares.admitted[class.index()],
        }
    }
}

fn quotas(partition: &Partition, capacity: ByteLen) -> [ByteLen; 2] {
    Class::ALL.map(|class| partition.quota(class, capacity))
}

fn arrival(request: DiskRequest, hints: &IoHints) -> Arrival<'_> {
    Arrival { request, pieces: hints.siblings.into(), siblings: &hints.sibling_targets }
}

/// Who is alone needs no board, and the clock is dearer than the decision.
fn time_for<E: Env>(env: &E, arrival: &Arrival<'_>) -> Nanos {
    if arrival.siblings.is_empty() { Nanos::ZERO } else { env.now() }
}

fn request(key: DatafileKey, extent: LocalExtent, write: bool) -> DiskRequest {
    let object = u64::from(key.object.component) << 16 | u64::from(key.object.column);
    DiskRequest { file: key.file.0 << 32 ^ object, offset: extent.offset, len: extent.len, write }
}

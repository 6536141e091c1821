//! The SSD beside a disk: its log, the decisions, the ranges that are being changed, and what is to be done when the disk is
//! idle.

use super::back::Copied;
use super::counters::Counters;
use super::preload::Wishes;
use super::ranges::Ranges;
use super::state::Policies;
use super::turn::Turn;
use crate::config::IbridgeConfig;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weft_core::ibridge::{Class, Decider};
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalExtent};
use weft_env::{Env, Notify};
use weft_store::fragments::{FragmentLog, LogError};
use weft_wire::status::{IbridgeClass, IbridgeStatus};

/// The SSD beside a disk.
pub(crate) struct Bridge<E: Env> {
    pub(super) env: E,
    pub(super) log: FragmentLog<E>,
    pub(super) config: IbridgeConfig,
    pub(super) policies: Policies,
    pub(super) ranges: Ranges<E>,
    pub(super) counters: Counters,
    pub(super) wishes: Wishes,
    /// Requests that the disk was to serve since the start.
    pub(super) disk_requests: AtomicU64,
    /// Requests that the SSD was to serve since the start.
    pub(super) log_requests: AtomicU64,
    /// Requests on the SSD now.
    pub(super) busy: AtomicU32,
    /// Writes that the disk has, or that wait for it.
    pub(super) disk_writes: AtomicU32,
    /// Who waits for everything to be written back.
    pub(super) flushes: AtomicU32,
    /// There is something to do in the background, or it is to end.
    pub(super) work: E::Notify,
    /// Whether the task in the background waits for work.
    pub(super) asleep: AtomicBool,
    pub(super) stopping: AtomicBool,
    /// Bytes on their way to the disk; who writes back has the turn.
    pub(super) copied: Turn<E, Copied>,
    /// Why writing back fails, as it was told last.
    pub(super) trouble: Mutex<Option<String>>,
}

/// Counts a request as long as it lives.
pub(super) struct Busy<'a>(&'a AtomicU32);

impl Busy<'_> {
    /// How many there are, with itself.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E: Env> Bridge<E> {
    /// With a log that is open.
    pub fn new(env: &E, config: &IbridgeConfig, log: FragmentLog<E>, decider: Arc<Mutex<Decider>>) -> Self {
        let policies = Policies::new(decider, log.stats().capacity);
        log.set_quotas(policies.quotas());
        Self {
            env: env.clone(),
            log,
            config: config.clone(),
            policies,
            ranges: Ranges::new(env),
            counters: Counters::default(),
            wishes: Wishes::default(),
            disk_requests: AtomicU64::new(0),
            log_requests: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            disk_writes: AtomicU32::new(0),
            flushes: AtomicU32::new(0),
            work: env.notify(),
            asleep: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            copied: Turn::new(env, Copied::default()),
            trouble: Mutex::new(None),
        }
    }

    pub(super) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(&self.busy)
    }

    /// A write goes to the disk.
    pub(super) fn writes_disk(&self) -> Busy<'_> {
        self.disk_writes.fetch_add(1, Ordering::Relaxed);
        Busy(&self.disk_writes)
    }

    /// Somebody has everything written back.
    pub(super) fn flushes(&self) -> Busy<'_> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Busy(&self.flushes)
    }

    /// Whether the SSD has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// There is something to be done when the disk is idle.
    pub(super) fn has_work(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            self.work.notify_all();
        }
    }

    /// The SSD has taken a request.
    pub(super) fn admitted(&self, class: Class, gain: i64) {
        self.filled();
        if let Some(quotas) = self.policies.admitted(class, gain) {
            self.log.set_quotas(quotas);
        }
    }

    /// Tells the policy how much room is left.
    pub(super) fn filled(&self) {
        let (dirty, all) = self.log.filled();
        self.policies.filled(dirty, all);
    }

    /// The state of the SSD.
    pub fn status(&self) -> IbridgeStatus {
        let stats = self.log.stats();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let class = |class: Class| {
            let (here, state) = (stats.classes[class.index()], self.policies.class(class));
            IbridgeClass {
                bytes: ByteLen(here.dirty.0 + here.clean.0),
                quota: state.quota,
                gain: state.gain,
                admitted: state.admitted,
            }
        };
        let counters = &self.counters;
        let failed = self.log.failure().as_ref().map(LogError::to_string);
        IbridgeStatus {
            path: self.config.path.display().to_string(),
            policy: self.config.policy.to_string(),
            failed: failed.or_else(|| self.trouble.lock().clone()),
            capacity: stats.capacity,
            dirty: stats.dirty(),
            entries: stats.classes.iter().map(|class| class.entries).sum(),
            service_time: self.policies.service_time(),
            fragments: class(Class::Fragment),
            random: class(Class::Random),
            read_hits: count(&counters.read_hits),
            read_partial_hits: count(&counters.read_partial_hits),
            read_misses: count(&counters.read_misses),
            bytes_read: ByteLen(count(&counters.bytes_read)),
            bytes_written: ByteLen(count(&counters.bytes_written)),
            bytes_written_back: ByteLen(count(&counters.bytes_written_back)),
            written_back_per_s: counters.written_back_per_s(self.env.now()),
            bytes_preloaded: ByteLen(count(&counters.bytes_preloaded)),
            bytes_moved: stats.moved,
        }
    }
}

/// A request's range; `None` for one without a byte.
pub(super) fn range(extent: LocalExtent) -> Option<ByteRange> {
    ByteRange::with_len(extent.offset.0, extent.len.0)
}

//! State of the SSD tier of one disk: its log, the policy, range locks and background work.

use super::async_mutex::AsyncMutex;
use super::cache::Cache;
use super::counters::Counters;
use super::durable::DurableDatafiles;
use super::policy::{ClassState, Policies};
use super::preload::PreloadQueue;
use super::range_locks::RangeLocks;
use super::writeback::UnsyncedCopies;
use crate::config::{LogConfig, TargetConfig};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weft_core::ibridge::Decider;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass, LocalExtent};
use weft_env::{Env, Notify};
use weft_store::fragments::{FragmentLog, LogError};
use weft_wire::status::{CacheStatus, SsdClass, SsdStatus};

/// SSD tier in front of a disk.
pub(crate) struct SsdTier<E: Env> {
    pub(super) env: E,
    pub(super) log: FragmentLog<E>,
    pub(super) config: LogConfig,
    /// Whether reads that iBridge's policy selects are copied.
    pub(super) preload: bool,
    pub(super) policies: Policies,
    pub(super) cache: Option<Cache>,
    pub(super) range_locks: RangeLocks<E>,
    /// Datafiles whose sync does not need the disk.
    pub(super) durable: DurableDatafiles,
    pub(super) counters: Counters,
    pub(super) preloads: PreloadQueue,
    /// Ranges that readers are expected to read next. They do not wait until the disk is idle.
    pub(super) prefetches: PreloadQueue,
    /// Requests for the disk since the start.
    pub(super) disk_requests: AtomicU64,
    /// Requests for the SSD since the start.
    pub(super) log_requests: AtomicU64,
    /// Requests on the SSD now.
    pub(super) active_log_requests: AtomicU32,
    /// Writes that are on the disk or waiting for it.
    pub(super) active_disk_writes: AtomicU32,
    /// Requests that are writing everything back.
    pub(super) active_flushes: AtomicU32,
    /// Notified when there is background work, or when the background task must end.
    pub(super) work: E::Notify,
    /// Whether the background task sleeps until there is work.
    pub(super) asleep: AtomicBool,
    pub(super) stopping: AtomicBool,
    /// Bytes copied to the disk and not yet synced. The task that writes back holds this lock.
    pub(super) unsynced: AsyncMutex<E, UnsyncedCopies>,
    /// Last reported error of writeback; `None` while it succeeds.
    pub(super) last_error: Mutex<Option<String>>,
}

/// Counts a request until it is dropped.
pub(super) struct ActiveGuard<'a>(&'a AtomicU32);

impl ActiveGuard<'_> {
    /// Number of requests that are being counted, this one included.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E: Env> SsdTier<E> {
    /// Creates the tier from an open log.
    pub fn new(
        env: &E,
        target: &TargetConfig,
        config: LogConfig,
        log: FragmentLog<E>,
        decider: Option<Arc<Mutex<Decider>>>,
    ) -> Self {
        let cache = target.cache_in_use();
        let policies = Policies::new(decider, cache.map(|cache| cache.share), log.stats().capacity);
        let quotas = policies.quotas();
        log.set_quotas(quotas);
        let cache = cache.map(|cache| Cache::new(cache, quotas[DataClass::CACHED.index()], &log));
        Self {
            env: env.clone(),
            log,
            config,
            preload: target.ibridge.as_ref().is_some_and(|ibridge| ibridge.preload),
            policies,
            cache,
            range_locks: RangeLocks::new(env),
            durable: DurableDatafiles::default(),
            counters: Counters::default(),
            preloads: PreloadQueue::default(),
            prefetches: PreloadQueue::default(),
            disk_requests: AtomicU64::new(0),
            log_requests: AtomicU64::new(0),
            active_log_requests: AtomicU32::new(0),
            active_disk_writes: AtomicU32::new(0),
            active_flushes: AtomicU32::new(0),
            work: env.notify(),
            asleep: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            unsynced: AsyncMutex::new(env, UnsyncedCopies::default()),
            last_error: Mutex::new(None),
        }
    }

    /// Counts a request to the SSD.
    pub(super) fn begin_log_request(&self) -> ActiveGuard<'_> {
        self.active_log_requests.fetch_add(1, Ordering::Relaxed);
        ActiveGuard(&self.active_log_requests)
    }

    /// Counts a write to the disk.
    pub(super) fn begin_disk_write(&self) -> ActiveGuard<'_> {
        self.active_disk_writes.fetch_add(1, Ordering::Relaxed);
        ActiveGuard(&self.active_disk_writes)
    }

    /// Counts a request to write everything back.
    pub(super) fn begin_flush(&self) -> ActiveGuard<'_> {
        self.active_flushes.fetch_add(1, Ordering::Relaxed);
        ActiveGuard(&self.active_flushes)
    }

    /// Whether the SSD is idle.
    pub(super) fn is_idle(&self) -> bool {
        self.active_log_requests.load(Ordering::Relaxed) == 0
    }

    /// Wakes the background task.
    pub(super) fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            self.work.notify_all();
        }
    }

    /// Accounts for a request that the SSD has taken.
    pub(super) fn admitted(&self, class: DataClass, gain: i64) {
        self.report_fill();
        if let Some(quotas) = self.policies.admitted(class, gain) {
            self.log.set_quotas(quotas);
            if let Some(cache) = &self.cache {
                cache.set_capacity(quotas[DataClass::CACHED.index()]);
            }
        }
    }

    /// Reports the fill level of the log to the policy.
    pub(super) fn report_fill(&self) {
        let (dirty, all) = self.log.fill_level();
        self.policies.set_fill_level(dirty, all);
    }

    /// State of the SSD tier for `weft status`.
    pub fn status(&self) -> SsdStatus {
        let stats = self.log.stats();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let class = |class: DataClass| {
            let (here, state) = (stats.classes[class.index()], self.policies.class(class));
            let bytes = ByteLen(here.dirty.0 + here.clean.0);
            // Bytes of a class that is no longer in use are written back or evicted.
            let state = state.or_else(|| (bytes > ByteLen(0)).then(ClassState::default))?;
            Some(SsdClass {
                number: class.number(),
                name: class.name().to_owned(),
                bytes,
                dirty: here.dirty,
                quota: state.quota,
                gain: state.gain,
                admitted: state.admitted,
            })
        };
        let cache = |cache: &Cache| {
            let (blocks, rejected) = cache.counts();
            CacheStatus {
                mode: cache.config.mode.to_string(),
                eviction: cache.config.eviction.to_string(),
                share: cache.config.share.to_string(),
                blocks,
                bytes_hit: ByteLen(count(&self.counters.bytes_hit)),
                bytes_missed: ByteLen(count(&self.counters.bytes_missed)),
                rejected,
                bytes_evicted: ByteLen(count(&self.counters.bytes_evicted)),
                bytes_prefetched: ByteLen(count(&self.counters.bytes_prefetched)),
            }
        };
        let counters = &self.counters;
        let failed = self.log.failure().as_ref().map(LogError::to_string);
        SsdStatus {
            path: self.config.path.display().to_string(),
            policy: self.policies.policy().to_string(),
            partition: self.policies.partition(),
            failed: failed.or_else(|| self.last_error.lock().clone()),
            capacity: stats.capacity,
            dirty: stats.dirty(),
            lost: stats.lost,
            entries: stats.classes.iter().map(|class| class.entries).sum(),
            service_time: self.policies.service_time(),
            classes: DataClass::ALL.into_iter().filter_map(class).collect(),
            cache: self.cache.as_ref().map(cache),
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

/// Range of a request; `None` if it has no bytes.
pub(super) fn range(extent: LocalExtent) -> Option<ByteRange> {
    ByteRange::with_len(extent.offset.0, extent.len.0)
}

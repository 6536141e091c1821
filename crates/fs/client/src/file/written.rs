//! Totals of an open file's writes, for the summary at its close.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weft_core::{ByteLen, Extent, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::meta::{WriteSummary, WrittenLens};

/// Totals of the writes through this open file.
#[derive(Default)]
pub(crate) struct Written {
    any: AtomicBool,
    uncertain: AtomicBool,
    end: AtomicU64,
    bytes: AtomicU64,
    /// Time of the last write, on the exact clock: a time set right after a write must not be older than the write.
    /// The close converts it to wall-clock time.
    last: AtomicU64,
    /// Whether each write invalidates the cached pages of mounts when it is done.
    reports_each: bool,
    /// Whether mounts may still cache bytes from before a write.
    unreported: AtomicBool,
}

impl Written {
    /// Totals before the first write. With `reports_each`, each write invalidates the cached pages of mounts when it is done.
    pub(super) fn new(reports_each: bool) -> Self {
        Self { reports_each, ..Self::default() }
    }

    #[inline]
    pub(crate) fn note(&self, extent: Extent, now: Nanos) {
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        if !self.reports_each && !self.unreported.load(Relaxed) {
            self.unreported.store(true, Relaxed);
        }
        let end = extent.offset.0 + extent.len.0;
        if self.end.load(Relaxed) < end {
            self.end.fetch_max(end, Relaxed);
        }
        self.bytes.fetch_add(extent.len.0, Relaxed);
        self.last.store(now.0, Relaxed);
    }

    /// Records a write of which the metadata server knows all.
    pub(crate) fn note_inline(&self, now: Nanos) {
        self.note(Extent::new(0, 0), now);
    }

    /// Records that an operation failed midway, so that the totals are not reliable.
    pub(crate) fn mark_uncertain(&self) {
        self.any.store(true, Relaxed);
        self.uncertain.store(true, Relaxed);
        self.mark_unreported();
    }

    /// Records that mounts may cache bytes from before a write.
    pub(crate) fn mark_unreported(&self) {
        self.unreported.store(true, Relaxed);
    }

    /// Records that mounts drop their pages. Called before the request to do so, because a write may come in between.
    pub(crate) fn mark_reported(&self) {
        self.unreported.store(false, Relaxed);
    }

    pub(super) fn summary<E: Env>(&self, env: &E, written: WrittenLens) -> WriteSummary {
        let ago = env.now().0.saturating_sub(self.last.load(Relaxed));
        WriteSummary {
            wrote: self.any.load(Relaxed),
            end: ByteLen(self.end.load(Relaxed)),
            bytes: ByteLen(self.bytes.load(Relaxed)),
            unsure: self.uncertain.load(Relaxed),
            mtime: Timestamp(env.wall().0 - i128::from(ago)),
            written,
            reported: !self.unreported.load(Relaxed),
        }
    }
}

//! What an open file remembers of its writes.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weft_core::{ByteLen, Extent, Nanos, Timestamp};
use weft_env::Env;
use weft_wire::meta::{WriteSummary, WrittenLens};

/// What was written through this open file, for the summary at its close.
#[derive(Default)]
pub(crate) struct Written {
    any: AtomicBool,
    unsure: AtomicBool,
    end: AtomicU64,
    bytes: AtomicU64,
    /// On the exact clock: a time that is set right after a write must not be older than it. Becomes a civil time at
    /// the close.
    last: AtomicU64,
}

impl Written {
    #[inline]
    pub(crate) fn note(&self, extent: Extent, now: Nanos) {
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        let end = extent.offset.0 + extent.len.0;
        if self.end.load(Relaxed) < end {
            self.end.fetch_max(end, Relaxed);
        }
        self.bytes.fetch_add(extent.len.0, Relaxed);
        self.last.store(now.0, Relaxed);
    }

    /// Something failed midway.
    pub(crate) fn unsure(&self) {
        self.any.store(true, Relaxed);
        self.unsure.store(true, Relaxed);
    }

    pub(super) fn summary<E: Env>(&self, env: &E, written: WrittenLens) -> WriteSummary {
        let ago = env.now().0.saturating_sub(self.last.load(Relaxed));
        WriteSummary {
            wrote: self.any.load(Relaxed),
            end: ByteLen(self.end.load(Relaxed)),
            bytes: ByteLen(self.bytes.load(Relaxed)),
            unsure: self.unsure.load(Relaxed),
            mtime: Timestamp(env.wall().0 - i128::from(ago)),
            written,
        }
    }
}

//! A target that may have an SSD tier in front of its disk: iBridge, a read and write cache, or both.
//!
//! Every data request goes through a [`TieredTarget`]. Without `[server.target.ibridge]` and `[server.target.cache]` it
//! forwards to the disk's [`Target`] and adds nothing. With one ([`SsdTier`]), a log on the SSD
//! ([`FragmentLog`](weft_store::fragments::FragmentLog)) has the bytes that a list of filters selects: iBridge is asked
//! first ([`policy`]), the cache second ([`cache`]). A background task moves written bytes to the disk while it is
//! idle.
//!
//! ```text
//!            write                          read
//!              |                              |
//!     lock the byte range                     |  (takes no lock)
//!              |                              |
//!       filters decide                  look into the log
//!      ┌───────┴────────┐              ┌──────┴───────┐
//!    to SSD          to disk         found          missed
//!      |                |              |              |
//!  append to log   supersede dirty   read log,     read disk,
//!  as dirty        and forget clean  disk for      then preload
//!      |           pieces, then      the gaps      a clean copy
//!      |           write the disk                  if worth it
//!      ▼                ▼
//!  [ dirty ] ── writeback: lock, copy, unlock, sync ──▶ [ clean ] ── eviction by the log ──▶ gone
//! ```
//!
//! | operation | file | range lock | disk admission | effect on the log |
//! |---|---|---|---|---|
//! | write to the SSD | `write.rs` | its range | no | appends dirty bytes |
//! | write to the disk | `write.rs` | its range | yes | supersedes dirty pieces, forgets clean ones |
//! | truncate, remove | `write.rs` | whole datafile | yes | drops the bytes |
//! | punch a hole | `write.rs` | its range | yes | dirty pieces become zeros |
//! | read | `read.rs` | none | for what the log misses | none |
//! | preload | `preload.rs` | the range read | no: runs while idle | appends clean bytes |
//! | copy of a write | `cache.rs` | its range | no: after the disk | appends clean bytes |
//! | eviction | `cache.rs` | none | no | drops clean bytes |
//! | writeback | `writeback.rs`, `coalesce.rs` | pages around it | no: runs while idle | dirty becomes clean |
//!
//! Writeback ignores traffic once the dirty bytes exceed `dirty_high`, until they fall to `dirty_low`. The log evicts
//! only clean bytes.
//!
//! Four invariants keep lock-free readers and crashes correct:
//!
//! 1. **The log is newest.** A byte that is in the log is newest there; any other byte is newest on the disk. A
//!    datafile's length is the larger of the two lengths.
//! 2. **Dirty until synced.** Dirty bytes exist only in the log. They become clean after the disk has them and was
//!    synced. Until then newer bytes for the same range also go into the log, so a sync of one device never waits for
//!    the other.
//! 3. **Clean copies are forgotten first.** The log forgets its clean bytes before the disk gets newer ones.
//! 4. **Log first, then disk.** A task that changes a byte range, or moves it between the devices, holds a [range
//!    lock](range_locks::RangeLocks). A reader holds none: it looks into the log first and at the disk second. Bytes
//!    leave the log only after the disk has them, so the reader finds each byte in one place or the other.
//!
//! Lock order: range lock, then disk admission. A task that holds a slot of the disk never waits for a range.
//!
//! `docs/design/ssd-placement.md` gives the reasons, `docs/design/ssd-cache.md` those of the cache,
//! `docs/design/ssd-log.md` the crash safety.

mod async_mutex;
mod cache;
mod coalesce;
mod counters;
mod datafile_ops;
mod durable;
mod open;
mod policy;
mod preload;
mod range_locks;
mod read;
mod source;
mod ssd_tier;
mod write;
mod writeback;

pub(crate) use open::open;
pub(crate) use read::Sending;
pub(crate) use source::Source;
pub(crate) use ssd_tier::SsdTier;
pub(crate) use writeback::Position;

use crate::admission::{Admission, Permit};
use std::sync::atomic::Ordering;
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, Target};
use weft_wire::hello::SessionId;
use weft_wire::status::SsdStatus;

/// A target and its optional SSD tier.
pub(crate) struct TieredTarget<E: Env> {
    target: Target<E>,
    tier: Option<SsdTier<E>>,
    /// An SSD that only ever had copies and cannot be used; the disk serves everything.
    unusable: Option<UnusableSsd>,
}

/// SSD of a cache that cannot be used.
pub(crate) struct UnusableSsd {
    path: String,
    why: String,
}

/// A session's way to the disk. Admission is requested after range locks are held, never before: a task that holds a
/// slot of the disk must not wait for a task that waits for such a slot.
pub(crate) struct DiskAdmission<'a, E: Env> {
    /// Admission queue of the disk.
    pub queue: &'a Admission<E>,
    /// Session on whose account the request is admitted.
    pub session: SessionId,
}

impl<E: Env> Clone for DiskAdmission<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Env> Copy for DiskAdmission<'_, E> {}

impl<E: Env> TieredTarget<E> {
    /// Combines a target with its SSD tier; without one, all requests go to `target`.
    fn new(target: Target<E>, tier: Option<SsdTier<E>>) -> Self {
        Self { target, tier, unusable: None }
    }

    /// The disk's target, for operations that involve no bytes.
    pub fn target(&self) -> &Target<E> {
        &self.target
    }

    /// Prepares a datafile for a write; see [`Target::prepare`].
    ///
    /// With an SSD tier the names of the datafile and of the files beside it are durable before bytes go into the log,
    /// because the log may outlive them.
    ///
    /// # Errors
    /// Errors of [`Target::prepare`].
    #[inline]
    pub async fn prepare(&self, key: DatafileKey, format: DatafileFormat) -> Result<(), DatafileError> {
        self.target.prepare(key, format).await?;
        match &self.tier {
            Some(_) if !self.target.is_plain(format) => self.target.sync_names(key).await,
            _ => Ok(()),
        }
    }

    /// State of the SSD for `weft status`; `None` if the target has none.
    pub fn ssd_status(&self) -> Option<SsdStatus> {
        let unusable = |ssd: &UnusableSsd| SsdStatus {
            path: ssd.path.clone(),
            policy: "off".to_owned(),
            partition: "off".to_owned(),
            failed: Some(ssd.why.clone()),
            ..SsdStatus::default()
        };
        self.tier.as_ref().map(SsdTier::status).or_else(|| self.unusable.as_ref().map(unusable))
    }

    /// The SSD tier, if the target has one.
    pub fn tier(&self) -> Option<&SsdTier<E>> {
        self.tier.as_ref()
    }

    /// Waits for admission to the disk.
    pub async fn enter<'a>(&self, admission: DiskAdmission<'a, E>) -> Permit<'a, E> {
        if let Some(tier) = &self.tier {
            tier.disk_requests.fetch_add(1, Ordering::Relaxed);
        }
        admission.queue.enter(admission.session).await
    }
}

//! The fallback journal of a log whose SSD has failed.
//!
//! A failed log accepts no puts. Its readable bytes are written back, and its journal continues in the target's own
//! directory, so that no later start takes stale bytes for the newest.
//!
//! ```text
//! fragments-failed   identity of the failed log (see `identity`), then a journal:
//!                    a checkpoint of the mapping, and the changes since
//!
//!            write or sync fails             before the disk gets newer bytes
//!   Healthy ---------------------> Failed -------------------------------------> Fallback
//!                                    ^        checkpoint in fragments-failed        |
//!                                    +----------------------------------------------+
//!                                       the fallback journal cannot be written
//! ```
//!
//! The fallback journal is created only before the disk gets newer bytes over some that are in the log. Until then,
//! the journal on the SSD is still correct.

use super::checkpoint::CheckpointInput;
use super::identity;
use super::journal::FILES;
use super::{FragmentLog, LogError, Shared};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use weft_core::{ByteLen, LocalOffset};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Dir, Env, File, Notify, OpenMode};

/// Name of the fallback journal in the target's directory.
pub(super) const NAME: &str = "fragments-failed";
const NAME_NEW: &str = "fragments-failed.new";
/// Index of the fallback journal among the journal files.
pub(super) const FALLBACK_FILE: usize = 2;

const HEALTHY: u8 = 0;
/// The SSD has failed.
const FAILED: u8 = 1;
/// The SSD has failed, and the journal continues on the disk.
const FALLBACK: u8 = 2;
/// The log is closed.
const CLOSED: u8 = 3;

/// Health of a log.
pub(super) struct Health {
    mode: AtomicU8,
    /// The journal lacks changes that the mapping has. Nothing may be written to the disk until it has them.
    is_stale: AtomicBool,
    failure: Mutex<Option<LogError>>,
}

impl Health {
    pub fn new() -> Self {
        Self { mode: AtomicU8::new(HEALTHY), is_stale: AtomicBool::new(false), failure: Mutex::new(None) }
    }

    fn worsen(&self, to: u8, failure: LogError) -> LogError {
        let mut kept = self.failure.lock();
        if to > self.mode.load(Ordering::Acquire) {
            if kept.is_none() || to == CLOSED {
                *kept = Some(failure);
            }
            self.mode.store(to, Ordering::Release);
        }
        kept.clone().expect("set when it was first worse than fine")
    }

    /// Returns true if the journal, and so the state that a start would find, is older than the mapping.
    #[inline]
    pub fn is_journal_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Records that the fallback journal could not be written, for example on a full disk. The next operation begins
    /// it again.
    fn mark_stale(&self) {
        let _kept = self.failure.lock();
        if self.mode.load(Ordering::Acquire) <= FALLBACK {
            self.is_stale.store(true, Ordering::Release);
            self.mode.store(FAILED, Ordering::Release);
        }
    }

    /// Rejects all further operations.
    pub fn close(&self, path: &Path) {
        self.worsen(CLOSED, LogError::Failed { path: path.to_owned(), what: "closed".to_owned() });
    }
}

impl<E: Env> Shared<E> {
    /// Fails if the SSD has failed or the log is closed.
    pub(super) fn check_healthy(&self) -> Result<(), LogError> {
        match self.health.mode.load(Ordering::Acquire) {
            HEALTHY => Ok(()),
            _ => Err(self.health.failure.lock().clone().expect("set before the mode")),
        }
    }

    /// Fails if there is no usable journal on either device.
    pub(super) fn check_journal(&self) -> Result<(), LogError> {
        match self.health.mode.load(Ordering::Acquire) {
            HEALTHY | FALLBACK => Ok(()),
            _ => Err(self.health.failure.lock().clone().expect("set before the mode")),
        }
    }

    /// Marks the SSD as failed for good.
    pub(super) fn fail(&self, name: &str, doing: &str, error: &io::Error) -> LogError {
        let failed = LogError::Failed { path: self.spec.path.join(name), what: format!("{doing}: {error}") };
        if FILES.contains(&name) {
            // The mapping already has the changes of the frame that could not be written.
            self.health.is_stale.store(true, Ordering::Release);
        }
        let failed = self.health.worsen(FAILED, failed);
        self.progress.notify_all();
        self.work.notify_all();
        failed
    }

    fn fail_fallback(&self, doing: &str, error: &io::Error) -> LogError {
        self.health.mark_stale();
        self.progress.notify_all();
        self.fallback_error(doing, error)
    }

    fn fallback_error(&self, doing: &str, error: &io::Error) -> LogError {
        let path = self.spec.target_path.join(NAME);
        if is_seeded(Mutant::NoSecondTry) {
            self.health.close(&path);
        }
        LogError::Failed { path, what: format!("{doing}: {error}") }
    }
}

impl<E: Env> FragmentLog<E> {
    /// Moves the journal of a failed log to the disk, unless it is there already. Nearly free for a healthy log.
    ///
    /// # Errors
    /// [`LogError::Failed`] when the disk cannot be written either.
    pub(super) async fn ensure_journal(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        if shared.health.mode.load(Ordering::Acquire) != FAILED {
            return shared.check_journal();
        }
        self.take_lead().await?;
        let moved = match shared.health.mode.load(Ordering::Acquire) {
            FAILED => self.move_journal().await.map_err(|error| shared.fallback_error("write", &error)),
            _ => shared.check_journal(),
        };
        shared.commit.lock().leading = false;
        shared.progress.notify_all();
        moved
    }

    /// Waits for records as [`commit`](Self::commit) does. If the SSD fails now, uses the fallback journal.
    pub(super) async fn commit_anywhere(&self, lsn: u64) -> Result<(), LogError> {
        match self.commit(lsn).await {
            Ok(()) => Ok(()),
            Err(_) => {
                self.ensure_journal().await?;
                self.commit(lsn).await
            }
        }
    }

    /// Writes the mapping to the disk as a checkpoint and continues the journal behind it. The caller holds the lead.
    pub(super) async fn move_journal(&self) -> io::Result<()> {
        let shared = &*self.0;
        let dir = shared.env.dir(&shared.spec.target_path).await?;
        let file = dir.open(NAME_NEW, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(&shared.identity.encode())], LocalOffset(0)).await?;
        let (taken, lsn) = {
            let mut state = shared.state.lock();
            // The checkpoint includes the pending records.
            state.pending.clear();
            let number = shared.commit.lock().written_frame;
            (CheckpointInput { snapshot: state.map.snapshot(), number }, state.lsn)
        };
        let parts = self.encode(&taken);
        drop(taken);
        let mut at = identity::LEN as u64;
        for part in &parts {
            file.write_at(&[IoSlice::new(part)], LocalOffset(at)).await?;
            at += part.len() as u64;
        }
        file.sync().await?;
        dir.rename(NAME_NEW, NAME).await?;
        dir.sync("").await?;
        *shared.fallback_journal.lock() = Some(file);
        let mut commit = shared.commit.lock();
        (commit.file, commit.offset, commit.copy_offset) = (FALLBACK_FILE, at, None);
        (commit.written, commit.durable) = (lsn, lsn);
        commit.durable_frame = commit.written_frame;
        drop(commit);
        shared.health.is_stale.store(false, Ordering::Release);
        let failure = shared.health.failure.lock().clone();
        shared.health.worsen(FALLBACK, failure.expect("it has failed"));
        Ok(())
    }

    pub(super) async fn write_fallback(&self, frame: &[u8], offset: u64) -> Result<(), LogError> {
        let file = self.0.fallback_journal.lock().clone().expect("exiled");
        let written = file.write_at(&[IoSlice::new(frame)], LocalOffset(offset)).await;
        written.map_err(|error| self.0.fail_fallback("write", &error))
    }

    pub(super) async fn sync_fallback(&self) -> Result<(), LogError> {
        let file = self.0.fallback_journal.lock().clone().expect("exiled");
        file.sync().await.map_err(|error| self.0.fail_fallback("sync", &error))
    }
}

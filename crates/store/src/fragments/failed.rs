//! A log whose SSD has failed: nothing more is put there, what can be read of it goes to the disk, and the journal goes on
//! in the target's own directory, so that no later start takes old bytes for the newest.
//!
//! ```text
//! fragments-failed   in the target's directory: the identity of the log that failed (see `identity`), and then a
//!                    journal: a checkpoint of the mapping as it was, and what changed since
//! ```
//! It is made when the first byte that the log has is about to get a newer one on the disk. Until then the journal on the
//! SSD is still right.

use super::checkpoint::Taken;
use super::identity;
use super::journal::FILES;
use super::{FragmentLog, LogError, Shared};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use weft_core::{ByteLen, LocalOffset};
use weft_env::plants::{Plant, planted};
use weft_env::{Dir, Env, File, Notify, OpenMode};

/// The name of the journal in the target's directory.
pub(super) const NAME: &str = "fragments-failed";
const NAME_NEW: &str = "fragments-failed.new";
/// Its number among the files of the journal.
pub(super) const EXILE: usize = 2;

const FINE: u8 = 0;
/// The SSD failed.
const FAILED: u8 = 1;
/// And the journal has moved to the disk.
const EXILED: u8 = 2;
/// The log is closed.
const ENDED: u8 = 3;

/// Whether a log has failed, and how far.
pub(super) struct Health {
    mode: AtomicU8,
    /// The journal does not say all that the mapping does: nothing may go to the disk before it does.
    behind: AtomicBool,
    failure: Mutex<Option<LogError>>,
}

impl Health {
    pub fn new() -> Self {
        Self { mode: AtomicU8::new(FINE), behind: AtomicBool::new(false), failure: Mutex::new(None) }
    }

    fn worsen(&self, to: u8, failure: LogError) -> LogError {
        let mut kept = self.failure.lock();
        if to > self.mode.load(Ordering::Acquire) {
            if kept.is_none() || to == ENDED {
                *kept = Some(failure);
            }
            self.mode.store(to, Ordering::Release);
        }
        kept.clone().expect("set when it was first worse than fine")
    }

    /// Whether the journal, and with it what a start would find, is older than the mapping.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// The journal on the disk could not be written, as on a disk that is full: it is begun anew by whoever comes next.
    fn fall_behind(&self) {
        let _kept = self.failure.lock();
        if self.mode.load(Ordering::Acquire) <= EXILED {
            self.behind.store(true, Ordering::Release);
            self.mode.store(FAILED, Ordering::Release);
        }
    }

    /// Nothing may be done any more.
    pub fn close(&self, path: &Path) {
        self.worsen(ENDED, LogError::Failed { path: path.to_owned(), what: "closed".to_owned() });
    }
}

impl<E: Env> Shared<E> {
    /// Whether the SSD is well.
    pub(super) fn fine(&self) -> Result<(), LogError> {
        match self.health.mode.load(Ordering::Acquire) {
            FINE => Ok(()),
            _ => Err(self.health.failure.lock().clone().expect("set before the mode")),
        }
    }

    /// Whether there is a journal, on whichever device.
    pub(super) fn journals(&self) -> Result<(), LogError> {
        match self.health.mode.load(Ordering::Acquire) {
            FINE | EXILED => Ok(()),
            _ => Err(self.health.failure.lock().clone().expect("set before the mode")),
        }
    }

    /// The SSD failed: for good.
    pub(super) fn fail(&self, name: &str, doing: &str, error: &io::Error) -> LogError {
        let failed = LogError::Failed { path: self.spec.path.join(name), what: format!("{doing}: {error}") };
        if FILES.contains(&name) {
            // What a frame was to say, the mapping says already.
            self.health.behind.store(true, Ordering::Release);
        }
        let failed = self.health.worsen(FAILED, failed);
        self.progress.notify_all();
        self.work.notify_all();
        failed
    }

    fn fail_exile(&self, doing: &str, error: &io::Error) -> LogError {
        self.health.fall_behind();
        self.progress.notify_all();
        self.exile_error(doing, error)
    }

    fn exile_error(&self, doing: &str, error: &io::Error) -> LogError {
        let path = self.spec.target_path.join(NAME);
        if planted(Plant::NoSecondTry) {
            self.health.close(&path);
        }
        LogError::Failed { path, what: format!("{doing}: {error}") }
    }
}

impl<E: Env> FragmentLog<E> {
    /// If the log has failed, sees to it that its journal is on the disk. Near free otherwise.
    ///
    /// # Errors
    /// When the disk fails too.
    pub(super) async fn exile(&self) -> Result<(), LogError> {
        let shared = &*self.0;
        if shared.health.mode.load(Ordering::Acquire) != FAILED {
            return shared.journals();
        }
        self.take_lead().await?;
        let moved = match shared.health.mode.load(Ordering::Acquire) {
            FAILED => self.move_journal().await.map_err(|error| shared.exile_error("write", &error)),
            _ => shared.journals(),
        };
        shared.commit.lock().leading = false;
        shared.progress.notify_all();
        moved
    }

    /// As [`commit`](Self::commit); if the SSD fails just now, on the disk.
    pub(super) async fn commit_anywhere(&self, point: u64) -> Result<(), LogError> {
        match self.commit(point).await {
            Ok(()) => Ok(()),
            Err(_) => {
                self.exile().await?;
                self.commit(point).await
            }
        }
    }

    /// Writes the mapping as it is to the disk, and lets the journal go on there. The caller has the lead.
    pub(super) async fn move_journal(&self) -> io::Result<()> {
        let shared = &*self.0;
        let dir = shared.env.dir(&shared.spec.target_path).await?;
        let file = dir.open(NAME_NEW, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(&shared.identity.encode())], LocalOffset(0)).await?;
        let (taken, point) = {
            let mut state = shared.state.lock();
            // Whatever has not been written yet is in the checkpoint.
            state.pending.clear();
            let number = shared.commit.lock().written_frame;
            (Taken { picture: state.map.picture(), number }, state.point)
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
        *shared.exile.lock() = Some(file);
        let mut commit = shared.commit.lock();
        (commit.file, commit.offset, commit.also) = (EXILE, at, None);
        (commit.written, commit.durable) = (point, point);
        commit.durable_frame = commit.written_frame;
        drop(commit);
        shared.health.behind.store(false, Ordering::Release);
        let failure = shared.health.failure.lock().clone();
        shared.health.worsen(EXILED, failure.expect("it has failed"));
        Ok(())
    }

    pub(super) async fn write_exile(&self, frame: &[u8], offset: u64) -> Result<(), LogError> {
        let file = self.0.exile.lock().clone().expect("exiled");
        let written = file.write_at(&[IoSlice::new(frame)], LocalOffset(offset)).await;
        written.map_err(|error| self.0.fail_exile("write", &error))
    }

    pub(super) async fn sync_exile(&self) -> Result<(), LogError> {
        let file = self.0.exile.lock().clone().expect("exiled");
        file.sync().await.map_err(|error| self.0.fail_exile("sync", &error))
    }
}

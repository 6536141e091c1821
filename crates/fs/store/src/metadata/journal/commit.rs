//! Group commit: whoever waits first writes everything pending as one frame, and syncs it if the waiters need that.

use super::files::LOGS;
use super::{DEFERRED_BYTES_MAX, Journal, LOW_LOG_DIVISOR};
use crate::metadata::engine::{EngineError, Point};
use crate::metadata::log::finish_frame;
use crate::metadata::progress::{self, Synced};
use std::sync::Arc;
use weft_core::{LocalOffset, Nanos};
use weft_env::{BlockingFile, Env, Notify};

/// State of the log after a frame was written.
pub(super) struct Appended {
    /// Point up to which changes are written.
    pub point: u64,
    /// Last frame.
    pub frame: u64,
    /// Log of that frame, and the offset behind it.
    pub last: (usize, u64),
    /// Bytes of frames that no sync has begun to cover.
    pub unsynced_bytes: u64,
}

impl<E: Env> Journal<E> {
    /// Writes everything pending as one frame, without a sync.
    pub(super) fn append_pending(&self) -> Result<Appended, EngineError> {
        let shared = &*self.0;
        let mut end = shared.end.lock();
        let (mut frame, point, file, offset, number, synced) = {
            let mut state = shared.state.write();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let spare = std::mem::take(&mut end.spare);
            let frame = std::mem::replace(&mut state.pending, spare);
            let (file, offset, number) = (end.file, end.offset, end.frame);
            if !frame.is_empty() {
                end.frame += 1;
                end.offset += frame.len() as u64;
                end.last = (file, end.offset);
                let len_max =
                    if shared.reserve.is_low() { shared.log_len / LOW_LOG_DIVISOR } else { shared.log_len };
                if end.offset >= len_max && state.frozen.is_none() {
                    // This frame is the last of its file. Freeze all changes up to it for the next checkpoint.
                    end.file = 1 - end.file;
                    end.offset = 0;
                    state.frozen = Some((Arc::new(std::mem::take(&mut state.delta)), number));
                    shared.work.notify_all();
                }
            }
            (frame, state.point, file, offset, number, shared.commit.lock().synced_frame)
        };
        if !frame.is_empty() {
            let unsynced = u32::try_from(number - 1 - synced).expect("few frames between two syncs");
            finish_frame(&mut frame, number, unsynced, shared.key);
            end.unsynced_files[file] = true;
            end.unsynced_bytes += frame.len() as u64;
            if let Err(error) = shared.logs[file].write_at(&frame, LocalOffset(offset)) {
                return Err(self.fail(file, &error));
            }
            if frame.capacity() <= 2 * DEFERRED_BYTES_MAX {
                frame.clear();
                end.spare = frame;
            }
        }
        shared.commit.lock().written = point;
        Ok(Appended { point, frame: end.frame - 1, last: end.last, unsynced_bytes: end.unsynced_bytes })
    }

    /// Writes everything pending and syncs it. The caller leads.
    pub(super) async fn lead(&self) -> Result<(), EngineError> {
        let shared = &*self.0;
        if shared.commit_delay > Nanos::ZERO {
            let changes = shared.state.read().point - shared.commit.lock().durable;
            if changes < shared.commit_changes_max {
                shared.env.sleep(shared.commit_delay).await;
            }
        }
        // Set again by changes that this sync does not cover.
        shared.commit.lock().deferred_since = None;
        let synced = match self.append_pending() {
            Ok(appended) => self.sync_logs().await.map(|()| appended),
            Err(error) => Err(error),
        };
        if let Ok(Appended { frame, last: (log, end), .. }) = synced
            && frame > shared.commit.lock().synced_frame
        {
            let lens = shared.log_lens;
            // Without it, a lost end of the log is noticed up to an earlier frame only.
            let _ = progress::advance(&shared.synced, &Synced { frame, log, end, lens });
        }
        let mut commit = shared.commit.lock();
        commit.leading = false;
        let result = synced.map(|Appended { point, frame, .. }| {
            commit.commits += u64::from(frame > commit.synced_frame);
            (commit.durable, commit.synced_frame) = (point, frame);
        });
        drop(commit);
        shared.progress.notify_all();
        result
    }

    /// Syncs the logs that have unsynced frames.
    async fn sync_logs(&self) -> Result<(), EngineError> {
        let shared = &*self.0;
        let unsynced = {
            let mut end = shared.end.lock();
            end.unsynced_bytes = 0;
            std::mem::take(&mut end.unsynced_files)
        };
        for (file, log) in shared.logs.iter().enumerate().filter(|(file, _)| unsynced[*file]) {
            log.sync().map_err(|error| self.fail(file, &error))?;
            log.wait_for_device().await;
        }
        Ok(())
    }

    /// Ends all changes, because the log and the memory may differ.
    fn fail(&self, file: usize, error: &std::io::Error) -> EngineError {
        let path = format!("{}/{}", self.0.dir_name, LOGS[file]);
        let error = EngineError::Log { path, what: error.to_string() };
        self.0.state.write().failed.get_or_insert(error).clone()
    }

    /// Has the background task sync changes up to `point`.
    pub(super) fn sync_soon(&self, point: Point) {
        let shared = &*self.0;
        let is_first = {
            let mut commit = shared.commit.lock();
            let is_first = commit.deferred_since.is_none() && commit.durable < point.0;
            if is_first {
                commit.deferred_since = Some(shared.env.now());
            }
            is_first
        };
        if is_first {
            shared.work.notify_all();
        }
    }
}

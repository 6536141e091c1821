//! Group commit: the first waiter writes everything pending as one frame.

use super::files::LOGS;
use super::{DEFERRED_BYTES_MAX, Journal, LOW_LOG_DIVISOR};
use crate::metadata::engine::EngineError;
use crate::metadata::log::finish_frame;
use std::sync::Arc;
use weft_core::{LocalOffset, Nanos};
use weft_env::{BlockingFile, Env, Notify};

impl<E: Env> Journal<E> {
    /// Writes and syncs everything pending as one frame.
    pub(super) async fn lead(&self) -> Result<(), EngineError> {
        let shared = &*self.0;
        if shared.commit_delay > Nanos::ZERO {
            let changes = shared.state.read().point - shared.commit.lock().durable;
            if changes < shared.commit_changes_max {
                shared.env.sleep(shared.commit_delay).await;
            }
        }
        let (mut frame, point, file, offset, number) = {
            let mut state = shared.state.write();
            let mut commit = shared.commit.lock();
            let spare = std::mem::take(&mut commit.spare);
            let frame = std::mem::replace(&mut state.pending, spare);
            let (file, offset, number) = (commit.file, commit.offset, commit.frame);
            if !frame.is_empty() {
                commit.frame += 1;
                commit.offset += frame.len() as u64;
                let len_max =
                    if shared.reserve.is_low() { shared.log_len / LOW_LOG_DIVISOR } else { shared.log_len };
                if commit.offset >= len_max && state.frozen.is_none() {
                    // This frame is the last of its file. Freeze all changes up to it for the next checkpoint.
                    commit.file = 1 - commit.file;
                    commit.offset = 0;
                    state.frozen = Some((Arc::new(std::mem::take(&mut state.delta)), number));
                    shared.work.notify_all();
                }
            }
            if commit.deferred_since.is_some() {
                commit.deferred_since = None;
            }
            (frame, state.point, file, offset, number)
        };
        let mut written = Ok(());
        if !frame.is_empty() {
            finish_frame(&mut frame, number, shared.key);
            let log = &shared.logs[file];
            written = log.write_at(&frame, LocalOffset(offset)).and_then(|()| log.sync());
            log.wait_for_device().await;
        }
        let result = written.map_err(|error| EngineError::Log {
            path: format!("{}/{}", shared.dir_name, LOGS[file]),
            what: error.to_string(),
        });
        if let Err(error) = &result {
            shared.state.write().failed = Some(error.clone());
        }
        let mut commit = shared.commit.lock();
        commit.leading = false;
        if result.is_ok() {
            commit.durable = point;
            commit.commits += u64::from(!frame.is_empty());
        }
        if frame.capacity() <= 2 * DEFERRED_BYTES_MAX {
            frame.clear();
            commit.spare = frame;
        }
        drop(commit);
        shared.progress.notify_all();
        result
    }
}

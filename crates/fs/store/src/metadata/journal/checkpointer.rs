//! The background task: checkpoints, and commits that no caller waits for.

use super::{Journal, LOW_TRANSACTION_BYTES};
use crate::metadata::base::BaseSnapshot;
use crate::metadata::delta::Delta;
use crate::metadata::engine::{Engine, EngineError};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::{Env, Notify};

/// Maximum time that a change without a waiting caller is not synced. During a long checkpoint, the next change syncs it.
pub(super) const DEFERRED_MAX: Nanos = Nanos::from_s(1);
/// Delay before a failed checkpoint is repeated.
const CHECKPOINT_RETRY: Nanos = Nanos::from_s(1);

impl<E: Env> Journal<E> {
    /// Runs checkpoints and deferred commits until the database is closed.
    pub(super) async fn run_task(&self) {
        let shared = &*self.0;
        loop {
            let epoch = shared.work.epoch();
            if shared.reserve.is_low() && !shared.commit.lock().stop {
                shared.reserve.allocate().await;
            }
            // Time to sleep when there is no work.
            let pause = shared.reserve.is_low().then_some(CHECKPOINT_RETRY);
            let frozen = shared.state.read().frozen.clone();
            if let Some((delta, frame)) = frozen {
                self.checkpoint(&delta, frame).await;
                if shared.state.read().checkpoint_error.is_some() {
                    // Accepted changes are in the log, where the next start finds them.
                    let _ = self.durable(self.now()).await;
                    if shared.commit.lock().stop {
                        self.end_task();
                        return;
                    }
                    shared.work.wait(epoch, Some(CHECKPOINT_RETRY)).await;
                }
                continue;
            }
            let (deferred_since, stop) = {
                let commit = shared.commit.lock();
                (commit.deferred_since, commit.stop)
            };
            if stop {
                self.end_task();
                return;
            }
            let Some(since) = deferred_since else {
                shared.work.wait(epoch, pause).await;
                continue;
            };
            let left = since.saturating_add(DEFERRED_MAX).saturating_sub(shared.env.now());
            if left > Nanos::ZERO {
                shared.work.wait(epoch, Some(left)).await;
                continue;
            }
            shared.commit.lock().deferred_since = None;
            // The failure is stored in the state and reported to the next caller.
            let _ = self.durable(self.now()).await;
        }
    }

    fn end_task(&self) {
        self.0.commit.lock().is_task_running = false;
        self.0.progress.notify_all();
    }

    async fn checkpoint(&self, delta: &Delta, frame: u64) {
        let shared = &*self.0;
        let mut result = self.apply_when_durable(delta, frame).await;
        if shared.reserve.release_for_retry(&result) {
            result = match self.reopen_base() {
                Ok(()) => self.apply_when_durable(delta, frame).await,
                Err(error) => Err(error),
            };
        }
        if result.is_err() {
            // The checkpoint is repeated soon, and its result then counts.
            let _ = self.reopen_base();
        }
        self.await_device().await;
        {
            let mut state = shared.state.write();
            match result {
                Ok(base) => {
                    state.base = Arc::new(base);
                    state.frozen = None;
                    state.checkpoint_error = None;
                    shared.commit.lock().checkpoints += 1;
                }
                // Frozen changes stay visible to readers and in their log. The other log receives only what is in
                // progress, because new changes are rejected from now on.
                Err(error) => state.checkpoint_error = Some(error),
            }
        }
        shared.progress.notify_all();
    }

    /// Applies frozen changes to the base. On a full device this takes several transactions; the log must be durable
    /// first, so that a start after a loss of power finds what the base lacks.
    async fn apply_when_durable(&self, delta: &Delta, frame: u64) -> Result<BaseSnapshot, EngineError> {
        if self.0.reserve.is_low() {
            self.durable(self.now()).await?;
        }
        self.apply_frozen(delta, frame)
    }

    /// Applies frozen changes to the base; returns its new snapshot.
    fn apply_frozen(&self, delta: &Delta, frame: u64) -> Result<BaseSnapshot, EngineError> {
        let shared = &*self.0;
        let base = &shared.base;
        if !shared.reserve.is_low() {
            base.apply(delta, frame, shared.key)?;
            return base.snapshot();
        }
        for part in delta.parts(LOW_TRANSACTION_BYTES) {
            base.apply_part(&part)?;
            // Frozen changes still cover the base, so readers see no difference. Old pages of the base become free.
            shared.state.write().base = Arc::new(base.snapshot()?);
        }
        base.apply(&Delta::default(), frame, shared.key)?;
        base.snapshot()
    }

    /// Reopens the base, because redb stops using a file after its first error. The lock excludes readers, because
    /// earlier snapshots become invalid.
    fn reopen_base(&self) -> Result<(), EngineError> {
        let shared = &*self.0;
        let mut state = shared.state.write();
        state.base = Arc::new(shared.base.reopen().and_then(|()| shared.base.snapshot())?);
        Ok(())
    }
}

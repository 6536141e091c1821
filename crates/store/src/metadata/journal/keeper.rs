//! The background task: brings the base up, and writes what nobody waits for.

use super::{Journal, LOW_PART_LEN};
use crate::metadata::base::BaseSnapshot;
use crate::metadata::delta::Delta;
use crate::metadata::engine::{Engine, EngineError};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::{Env, Notify};

/// How long a change that nobody waits for may stay in memory only.
const LAZY_LIMIT: Nanos = Nanos::from_s(1);
/// How long until a base that could not be brought up is tried again.
const RETRY: Nanos = Nanos::from_s(1);

impl<E: Env> Journal<E> {
    /// Brings the base up and writes what nobody waits for, until told to stop.
    pub(super) async fn keep(&self) {
        let shared = &*self.0;
        loop {
            let epoch = shared.work.epoch();
            if shared.reserve.is_low() && !shared.commit.lock().stop {
                shared.reserve.make().await;
            }
            // How long to sleep when there is nothing to do.
            let pause = shared.reserve.is_low().then_some(RETRY);
            let frozen = shared.state.read().frozen.clone();
            if let Some((delta, frame)) = frozen {
                self.checkpoint(&delta, frame).await;
                if shared.state.read().stuck.is_some() {
                    // What was accepted before is in the log, from where the next start takes it.
                    let _ = self.durable(self.now()).await;
                    if shared.commit.lock().stop {
                        self.end_keeper();
                        return;
                    }
                    shared.work.wait(epoch, Some(RETRY)).await;
                }
                continue;
            }
            let (lazy_since, stop) = {
                let commit = shared.commit.lock();
                (commit.lazy_since, commit.stop)
            };
            if stop {
                self.end_keeper();
                return;
            }
            let Some(since) = lazy_since else {
                shared.work.wait(epoch, pause).await;
                continue;
            };
            let left = since.saturating_add(LAZY_LIMIT).saturating_sub(shared.env.now());
            if left > Nanos::ZERO {
                shared.work.wait(epoch, Some(left)).await;
                continue;
            }
            shared.commit.lock().lazy_since = None;
            // A failure is kept in the state and told to the next who asks.
            let _ = self.durable(self.now()).await;
        }
    }

    fn end_keeper(&self) {
        self.0.commit.lock().keeper = false;
        self.0.progress.notify_all();
    }

    async fn checkpoint(&self, delta: &Delta, frame: u64) {
        let shared = &*self.0;
        let mut brought = self.bring_up(delta, frame);
        if shared.reserve.helps(&brought) {
            brought = self.reopen_base().and_then(|()| self.bring_up(delta, frame));
        }
        if brought.is_err() {
            // It is tried again soon, and what it says then counts.
            let _ = self.reopen_base();
        }
        self.pay().await;
        {
            let mut state = shared.state.write();
            match brought {
                Ok(base) => {
                    state.base = Arc::new(base);
                    state.frozen = None;
                    state.stuck = None;
                    shared.commit.lock().checkpoints += 1;
                }
                // What was frozen stays where readers see it, and in its log; the other log takes no more than what
                // is under way, because changes are refused from here on.
                Err(error) => state.stuck = Some(error),
            }
        }
        shared.progress.notify_all();
    }

    /// Brings the base up; how it is then.
    fn bring_up(&self, delta: &Delta, frame: u64) -> Result<BaseSnapshot, EngineError> {
        let shared = &*self.0;
        let base = &shared.base;
        if !shared.reserve.is_low() {
            base.apply(delta, frame, shared.key)?;
            return base.snapshot();
        }
        for part in delta.parts(LOW_PART_LEN) {
            base.apply_part(&part)?;
            // Readers see what is frozen over it, so that it is the same to them; and the pages of before become free.
            shared.state.write().base = Arc::new(base.snapshot()?);
        }
        base.apply(&Delta::default(), frame, shared.key)?;
        base.snapshot()
    }

    /// Opens the base again, which does nothing more with a file that has failed it once. Nobody may read in between:
    /// snapshots of the old one are of no use from the moment that it ends.
    fn reopen_base(&self) -> Result<(), EngineError> {
        let shared = &*self.0;
        let mut state = shared.state.write();
        state.base = Arc::new(shared.base.reopen().and_then(|()| shared.base.snapshot())?);
        Ok(())
    }
}

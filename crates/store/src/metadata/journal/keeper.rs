//! The background task: brings the base up, and writes what nobody waits for.

use super::Journal;
use crate::metadata::delta::Delta;
use crate::metadata::engine::Engine;
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
                shared.work.wait(epoch, None).await;
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
        let brought = shared.base.apply(delta, frame, shared.key).and_then(|()| shared.base.snapshot());
        let brought = brought.map_err(|error| {
            let again = shared.base.reopen().and_then(|()| shared.base.snapshot());
            (error, again.ok())
        });
        self.pay().await;
        {
            let mut state = shared.state.write();
            match brought {
                Ok(base) => {
                    state.base = base;
                    state.frozen = None;
                    state.stuck = None;
                    shared.commit.lock().checkpoints += 1;
                }
                // What was frozen stays where readers see it, and in its log; the other log takes no more than what
                // is under way, because changes are refused from here on.
                Err((error, again)) => {
                    if let Some(base) = again {
                        state.base = base;
                    }
                    state.stuck = Some(error);
                }
            }
        }
        shared.progress.notify_all();
    }
}

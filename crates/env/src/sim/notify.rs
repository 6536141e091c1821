//! The event count between simulated tasks.

use super::world::{TaskId, World};
use crate::Notify;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Poll;
use weft_core::Nanos;

/// An event count of the simulated world.
#[derive(Clone)]
pub struct SimNotify {
    world: Arc<World>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    epoch: u64,
    waiters: Vec<TaskId>,
}

impl SimNotify {
    pub(super) fn new(world: Arc<World>) -> Self {
        Self { world, inner: Arc::default() }
    }
}

impl Notify for SimNotify {
    fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    async fn wait(&self, seen: u64, timeout: Option<Nanos>) -> bool {
        let deadline = timeout.map(|timeout| self.world.now().saturating_add(timeout.0));
        std::future::poll_fn(|_| {
            let task = self.world.current();
            let mut inner = self.inner.lock();
            if inner.epoch != seen {
                return Poll::Ready(true);
            }
            if deadline.is_some_and(|deadline| self.world.now() >= deadline) {
                inner.waiters.retain(|&waiter| waiter != task);
                return Poll::Ready(false);
            }
            if !inner.waiters.contains(&task) {
                inner.waiters.push(task);
            }
            drop(inner);
            if let Some(deadline) = deadline {
                self.world.wake_at(task, deadline);
            }
            Poll::Pending
        })
        .await
    }

    fn notify_all(&self) {
        let waiters = {
            let mut inner = self.inner.lock();
            inner.epoch += 1;
            std::mem::take(&mut inner.waiters)
        };
        for waiter in waiters {
            self.world.wake(waiter);
        }
    }
}

//! Event count between simulated tasks.

use super::world::{TaskId, World};
use crate::Notify;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Poll;
use weft_core::Nanos;

/// Event count of the simulated world.
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
        let mut listed = WaiterGuard { inner: &self.inner, task: None };
        std::future::poll_fn(|_| {
            let mut inner = self.inner.lock();
            if inner.epoch != seen {
                listed.task = None;
                return Poll::Ready(true);
            }
            if deadline.is_some_and(|deadline| self.world.now() >= deadline) {
                return Poll::Ready(false);
            }
            let task = self.world.current();
            if listed.task.is_none() {
                inner.waiters.push(task);
                listed.task = Some(task);
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

/// Task in the list of waiters; removed when it is dropped.
struct WaiterGuard<'a> {
    inner: &'a Mutex<Inner>,
    task: Option<TaskId>,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            let mut inner = self.inner.lock();
            if let Some(at) = inner.waiters.iter().position(|&waiter| waiter == task) {
                inner.waiters.remove(at);
            }
        }
    }
}

//! A mutex that may be held across an await: for appends of one open file and for the connection of the leases.

use std::sync::atomic::{AtomicBool, Ordering};
use weft_env::{Env, Notify};

/// Admits one task at a time. Not fair; held for one exchange with a time-out at most.
pub(crate) struct AsyncMutex<E: Env> {
    locked: AtomicBool,
    notify: E::Notify,
}

/// Keeps the mutex locked until it is dropped.
pub(crate) struct AsyncMutexGuard<'a, E: Env>(&'a AsyncMutex<E>);

impl<E: Env> AsyncMutex<E> {
    pub(crate) fn new(env: &E) -> Self {
        Self { locked: AtomicBool::new(false), notify: env.notify() }
    }

    pub(crate) fn try_lock(&self) -> Option<AsyncMutexGuard<'_, E>> {
        let free = self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Created only on success, because dropping it unlocks.
        free.is_ok().then(|| AsyncMutexGuard(self))
    }

    pub(crate) async fn lock(&self) -> AsyncMutexGuard<'_, E> {
        loop {
            let seen = self.notify.epoch();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            self.notify.wait(seen, None).await;
        }
    }
}

impl<E: Env> Drop for AsyncMutexGuard<'_, E> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
        self.0.notify.notify_all();
    }
}

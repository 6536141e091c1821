//! A lock that may be held while waiting: for appends of one handle and for the connection that leases hang on.

use std::sync::atomic::{AtomicBool, Ordering};
use weft_env::{Env, Notify};

/// Lets one task through at a time. Not fair; never held for longer than an exchange with a time-out.
pub(crate) struct Gate<E: Env> {
    taken: AtomicBool,
    notify: E::Notify,
}

/// The right to be inside.
pub(crate) struct Inside<'a, E: Env>(&'a Gate<E>);

impl<E: Env> Gate<E> {
    pub(crate) fn new(env: &E) -> Self {
        Self { taken: AtomicBool::new(false), notify: env.notify() }
    }

    pub(crate) fn try_enter(&self) -> Option<Inside<'_, E>> {
        let free = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Made only when it is true: its end opens the gate.
        free.is_ok().then(|| Inside(self))
    }

    pub(crate) async fn enter(&self) -> Inside<'_, E> {
        loop {
            let seen = self.notify.epoch();
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            self.notify.wait(seen, None).await;
        }
    }
}

impl<E: Env> Drop for Inside<'_, E> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
        self.0.notify.notify_all();
    }
}

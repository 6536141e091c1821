//! The event count over a futex (of parking_lot).

use crate::Notify;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;
use weft_core::Nanos;

/// Event count between threads. Without waiters, a notification costs two atomic operations.
#[derive(Clone, Debug)]
pub struct RealNotify(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    epoch: AtomicU64,
    // A waiter increments this before it reads `epoch`; a notifier reads it after it has incremented `epoch`. In the
    // total order of SeqCst operations at least one of them sees the other, so that no wake-up is lost.
    waiters: AtomicUsize,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl RealNotify {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }
}

impl Notify for RealNotify {
    fn epoch(&self) -> u64 {
        self.0.epoch.load(SeqCst)
    }

    async fn wait(&self, seen: u64, timeout: Option<Nanos>) -> bool {
        let inner = &*self.0;
        if inner.epoch.load(SeqCst) != seen {
            return true;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout.as_duration()));
        let mut guard = inner.mutex.lock();
        inner.waiters.fetch_add(1, SeqCst);
        let mut changed = inner.epoch.load(SeqCst) != seen;
        while !changed {
            let passed = match deadline {
                Some(deadline) => inner.condvar.wait_until(&mut guard, deadline).timed_out(),
                None => {
                    inner.condvar.wait(&mut guard);
                    false
                }
            };
            changed = inner.epoch.load(SeqCst) != seen;
            if passed {
                break;
            }
        }
        inner.waiters.fetch_sub(1, SeqCst);
        changed
    }

    fn notify_all(&self) {
        let inner = &*self.0;
        inner.epoch.fetch_add(1, SeqCst);
        if inner.waiters.load(SeqCst) > 0 {
            // A waiter that has counted itself but does not sleep yet holds the mutex: wait until it sleeps.
            drop(inner.mutex.lock());
            inner.condvar.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::block_on;

    /// Notifies at every moment of a waiter's falling asleep. A lost notification would leave it asleep.
    #[test]
    fn no_wake_up_is_lost_while_a_waiter_falls_asleep() {
        const ROUNDS: u64 = 100_000;
        let notify = RealNotify::new();
        let go = Arc::new(AtomicU64::new(0));
        let (other, signal) = (notify.clone(), Arc::clone(&go));
        let notifier = std::thread::spawn(move || {
            for round in 1..=ROUNDS {
                while signal.load(SeqCst) < round {
                    std::hint::spin_loop();
                }
                (0..round % 256).for_each(|_| std::hint::spin_loop());
                other.notify_all();
            }
        });
        for round in 1..=ROUNDS {
            let seen = notify.epoch();
            go.store(round, SeqCst);
            // The wait ends even without a wake-up; its length reveals the loss.
            let before = Instant::now();
            assert!(block_on(notify.wait(seen, Some(Nanos::from_s(20)))));
            assert!(before.elapsed().as_secs() < 10, "lost in round {round}");
        }
        notifier.join().expect("the notifier");
    }
}

//! Exclusive range locks of one datafile, granted in the order of requests.

use parking_lot::Mutex;
use weft_env::{Env, Notify};

/// Held and requested locks.
pub(crate) struct RangeLocks<E: Env> {
    /// In the order of requests. A lock is held when no earlier one overlaps it.
    queue: Mutex<Queue>,
    changed: E::Notify,
}

#[derive(Default)]
struct Queue {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    ticket: u64,
    start: u64,
    end: u64,
}

impl<E: Env> RangeLocks<E> {
    pub fn new(env: &E) -> Self {
        Self { queue: Mutex::default(), changed: env.notify() }
    }

    /// Waits for exclusive access to `start..end`. Dropping the guard, or the wait, releases the lock.
    pub async fn lock(&self, start: u64, end: u64) -> RangeGuard<'_, E> {
        let guard = {
            let mut queue = self.queue.lock();
            let ticket = queue.next;
            queue.next += 1;
            queue.entries.push(Entry { ticket, start, end });
            RangeGuard { locks: self, ticket }
        };
        loop {
            let seen = self.changed.epoch();
            let in_the_way = {
                let queue = self.queue.lock();
                let earlier = queue.entries.iter().take_while(|entry| entry.ticket != guard.ticket);
                let mut overlapping = earlier.filter(|entry| entry.start < end && start < entry.end);
                overlapping.next().is_some()
            };
            if !in_the_way {
                return guard;
            }
            self.changed.wait(seen, None).await;
        }
    }
}

/// A held range lock.
pub(crate) struct RangeGuard<'a, E: Env> {
    locks: &'a RangeLocks<E>,
    ticket: u64,
}

impl<E: Env> Drop for RangeGuard<'_, E> {
    fn drop(&mut self) {
        self.locks.queue.lock().entries.retain(|entry| entry.ticket != self.ticket);
        self.locks.changed.notify_all();
    }
}

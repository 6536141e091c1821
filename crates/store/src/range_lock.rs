//! Exclusive locks on ranges of one datafile, granted in the order in which they were asked for.

use parking_lot::Mutex;
use weft_env::{Env, Notify};

/// The locks held and waited for.
pub(crate) struct RangeLocks<E: Env> {
    /// In the order of asking. One is held when no earlier one overlaps it.
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

    /// Waits until `start..end` is this caller's alone. Given back on drop, also when the wait is abandoned.
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

/// A range that is held.
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

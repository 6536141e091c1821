//! Locks on byte ranges of datafiles, granted in the order of requests.
//!
//! A task locks a range to change its bytes or to move them between the devices. Reads take no lock; see the
//! [module](super).

use parking_lot::Mutex;
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;

/// Number of tables over which datafiles are spread, to reduce contention between connections.
const SHARDS: usize = 16;

/// Byte ranges that are locked or waited for.
pub(super) struct RangeLocks<E: Env> {
    shards: [Shard<E>; SHARDS],
}

struct Shard<E: Env> {
    queue: Mutex<Queue>,
    changed: E::Notify,
}

#[derive(Default)]
struct Queue {
    next: u64,
    /// In the order of requests. An entry is granted when no earlier one overlaps it.
    entries: Vec<Entry>,
    /// Number of entries that wait.
    waiting: usize,
    /// Number of changes that have begun plus those that have ended.
    changes: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    ticket: u64,
    key: DatafileKey,
    start: u64,
    end: u64,
}

impl Entry {
    fn overlaps(&self, other: &Self) -> bool {
        self.key == other.key && self.start < other.end && other.start < self.end
    }
}

/// Count of changes to a datafile and to those that share its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChangeCount(u64);

impl<E: Env> RangeLocks<E> {
    pub fn new(env: &E) -> Self {
        Self { shards: std::array::from_fn(|_| Shard { queue: Mutex::default(), changed: env.notify() }) }
    }

    fn shard(&self, key: DatafileKey) -> &Shard<E> {
        let number = key.file.0 ^ u64::from(key.object.component) << 3 ^ u64::from(key.object.column);
        &self.shards[(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize]
    }

    /// Locks `start..end` exclusively to change its bytes. Dropping the guard, or the future that waits for it,
    /// releases the lock.
    pub async fn lock_for_change(&self, key: DatafileKey, start: u64, end: u64) -> RangeGuard<'_, E> {
        let guard = self.enqueue(key, start, end, true);
        if guard.waits { guard.granted().await } else { guard }
    }

    /// Locks `start..end` exclusively to move its bytes without changing them.
    pub async fn lock(&self, key: DatafileKey, start: u64, end: u64) -> RangeGuard<'_, E> {
        let guard = self.enqueue(key, start, end, false);
        if guard.waits { guard.granted().await } else { guard }
    }

    /// Enqueues a request, which may have to wait.
    fn enqueue(&self, key: DatafileKey, start: u64, end: u64, changes: bool) -> RangeGuard<'_, E> {
        let shard = self.shard(key);
        let mut queue = shard.queue.lock();
        let entry = Entry { ticket: queue.next, key, start, end };
        queue.next += 1;
        queue.changes += u64::from(changes);
        let waits = queue.entries.iter().any(|earlier| earlier.overlaps(&entry));
        queue.entries.push(entry);
        queue.waiting += usize::from(waits);
        RangeGuard { shard, ticket: entry.ticket, waits, changes }
    }

    /// Current count of changes. Equal counts, the second one read while a range of `key` is locked, mean that the
    /// range did not change in between.
    pub fn change_count(&self, key: DatafileKey) -> ChangeCount {
        ChangeCount(self.shard(key).queue.lock().changes)
    }

    /// Whether no range of `key` is locked or waited for except `but`.
    pub fn is_unlocked_but(&self, key: DatafileKey, but: &RangeGuard<'_, E>) -> bool {
        let queue = self.shard(key).queue.lock();
        !queue.entries.iter().any(|entry| entry.key == key && entry.ticket != but.ticket)
    }
}

/// A range lock, granted or waiting.
pub(super) struct RangeGuard<'a, E: Env> {
    shard: &'a Shard<E>,
    ticket: u64,
    waits: bool,
    changes: bool,
}

impl<E: Env> RangeGuard<'_, E> {
    /// Waits until all earlier overlapping requests are released.
    async fn granted(mut self) -> Self {
        loop {
            let seen = self.shard.changed.epoch();
            {
                let mut queue = self.shard.queue.lock();
                let mut until = queue.entries.iter().take_while(|other| other.ticket <= self.ticket);
                let own = until.clone().last().expect("present until the guard is dropped");
                if !until.any(|other| other.ticket != own.ticket && other.overlaps(own)) {
                    queue.waiting -= 1;
                    self.waits = false;
                    break;
                }
            }
            self.shard.changed.wait(seen, None).await;
        }
        self
    }
}

impl<E: Env> Drop for RangeGuard<'_, E> {
    fn drop(&mut self) {
        let mut queue = self.shard.queue.lock();
        let at = queue.entries.iter().position(|entry| entry.ticket == self.ticket);
        queue.entries.remove(at.expect("present until the guard is dropped"));
        queue.waiting -= usize::from(self.waits);
        queue.changes += u64::from(self.changes);
        let has_waiters = queue.waiting > 0;
        drop(queue);
        if has_waiters {
            self.shard.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weft_core::{FileId, Nanos, ObjectId};
    use weft_env::sim::Sim;

    fn key(file: u64) -> DatafileKey {
        DatafileKey::new(FileId(file), ObjectId { component: 0, column: 0 })
    }

    #[test]
    fn overlapping_ranges_of_one_datafile_are_held_one_after_the_other_in_order() {
        for seed in 0..50_u64 {
            eprintln!("seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let ranges = Arc::new(RangeLocks::new(&env));
            let held = Arc::new(Mutex::new(Vec::<(u64, u64, u64)>::new()));
            let order = Arc::new(Mutex::new(Vec::new()));
            for task in 0..60_u64 {
                let (ranges, held, order, world) = (ranges.clone(), held.clone(), order.clone(), env.clone());
                env.spawn("holder", move || async move {
                    world.sleep(Nanos(task)).await;
                    let (file, start) = (task % 3, task * 7 % 40);
                    let end = start + 1 + task * seed % 9;
                    let before = ranges.change_count(key(file));
                    let guard = ranges.lock_for_change(key(file), start, end).await;
                    assert_ne!(ranges.change_count(key(file)), before);
                    {
                        let mut held = held.lock();
                        let overlaps = |it: &(u64, u64, u64)| it.0 == file && it.1 < end && start < it.2;
                        assert!(!held.iter().any(overlaps), "{held:?}");
                        held.push((file, start, end));
                    }
                    order.lock().push((file, task));
                    world.sleep(Nanos(50)).await;
                    held.lock().retain(|it| *it != (file, start, end));
                    drop(guard);
                })
                .expect("a task");
            }
            sim.run();
            assert_eq!(order.lock().len(), 60);
            for shard in &ranges.shards {
                let queue = shard.queue.lock();
                assert!(queue.entries.is_empty() && queue.waiting == 0);
            }
        }
    }

    #[test]
    fn an_abandoned_request_blocks_nothing() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("node");
        let world = env.clone();
        sim.block_on(&env, async move {
            let ranges = RangeLocks::new(&world);
            let first = ranges.lock_for_change(key(1), 0, 10).await;
            {
                let mut abandoned = std::pin::pin!(ranges.lock_for_change(key(1), 5, 20));
                let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(abandoned.as_mut().poll(cx)));
                assert!(polled.await.is_pending());
            }
            let other = ranges.lock(key(1), 10, 20).await; // the abandoned request blocks nothing
            assert!(!ranges.is_unlocked_but(key(1), &other));
            drop(first);
            assert!(ranges.is_unlocked_but(key(1), &other));
        });
    }
}

//! Ranges of datafiles that somebody is changing, or moving from one device to the other, granted in the order of asking.
//!
//! Reads take none: they look into the log first and then at the disk, so that a byte on its way from the log to the disk
//! is found in one or the other.

use parking_lot::Mutex;
use weft_env::{Env, Notify};
use weft_store::datafile::DatafileKey;

/// Tables over which datafiles are spread, so that connections seldom meet.
const SHARDS: usize = 16;

/// The ranges held and waited for.
pub(super) struct Ranges<E: Env> {
    shards: [Shard<E>; SHARDS],
}

struct Shard<E: Env> {
    queue: Mutex<Queue>,
    changed: E::Notify,
}

#[derive(Default)]
struct Queue {
    next: u64,
    /// In the order of asking. One is held when no earlier one overlaps it.
    entries: Vec<Entry>,
    /// How many of them wait.
    waiting: usize,
    /// How many changes of bytes have begun and ended.
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

/// How often bytes of a datafile, and of those that share its table, have been changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Changes(u64);

impl<E: Env> Ranges<E> {
    pub fn new(env: &E) -> Self {
        Self { shards: std::array::from_fn(|_| Shard { queue: Mutex::default(), changed: env.notify() }) }
    }

    fn shard(&self, key: DatafileKey) -> &Shard<E> {
        let number = key.file.0 ^ u64::from(key.object.component) << 3 ^ u64::from(key.object.column);
        &self.shards[(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize]
    }

    /// Waits until `start..end` is this caller's alone, who is going to change its bytes. Given back on drop, also when the
    /// wait is abandoned.
    pub async fn change(&self, key: DatafileKey, start: u64, end: u64) -> RangeGuard<'_, E> {
        let guard = self.ask(key, start, end, true);
        if guard.waits { guard.granted().await } else { guard }
    }

    /// The same for who moves bytes without changing them.
    pub async fn hold(&self, key: DatafileKey, start: u64, end: u64) -> RangeGuard<'_, E> {
        let guard = self.ask(key, start, end, false);
        if guard.waits { guard.granted().await } else { guard }
    }

    /// A range that may have to be waited for.
    fn ask(&self, key: DatafileKey, start: u64, end: u64, changes: bool) -> RangeGuard<'_, E> {
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

    /// For comparison with a later look, by who then holds a range of `key`: equal ones mean that nobody changed that range
    /// between the two.
    pub fn changes(&self, key: DatafileKey) -> Changes {
        Changes(self.shard(key).queue.lock().changes)
    }

    /// Whether nobody changes any byte of `key` now.
    pub fn is_quiet(&self, key: DatafileKey, but: &RangeGuard<'_, E>) -> bool {
        let queue = self.shard(key).queue.lock();
        !queue.entries.iter().any(|entry| entry.key == key && entry.ticket != but.ticket)
    }
}

/// A range that is held.
pub(super) struct RangeGuard<'a, E: Env> {
    shard: &'a Shard<E>,
    ticket: u64,
    waits: bool,
    changes: bool,
}

impl<E: Env> RangeGuard<'_, E> {
    /// Waits until those who asked earlier are done.
    async fn granted(mut self) -> Self {
        loop {
            let seen = self.shard.changed.epoch();
            {
                let mut queue = self.shard.queue.lock();
                let mut until = queue.entries.iter().take_while(|other| other.ticket <= self.ticket);
                let own = until.clone().last().expect("there until the drop");
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
        queue.entries.remove(at.expect("there until now"));
        queue.waiting -= usize::from(self.waits);
        queue.changes += u64::from(self.changes);
        let somebody_waits = queue.waiting > 0;
        drop(queue);
        if somebody_waits {
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
            let ranges = Arc::new(Ranges::new(&env));
            let held = Arc::new(Mutex::new(Vec::<(u64, u64, u64)>::new()));
            let order = Arc::new(Mutex::new(Vec::new()));
            for task in 0..60_u64 {
                let (ranges, held, order, world) = (ranges.clone(), held.clone(), order.clone(), env.clone());
                env.spawn("holder", move || async move {
                    world.sleep(Nanos(task)).await;
                    let (file, start) = (task % 3, task * 7 % 40);
                    let end = start + 1 + task * seed % 9;
                    let before = ranges.changes(key(file));
                    let guard = ranges.change(key(file), start, end).await;
                    assert_ne!(ranges.changes(key(file)), before);
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
    fn who_gives_up_is_not_waited_for() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("node");
        let world = env.clone();
        sim.block_on(&env, async move {
            let ranges = Ranges::new(&world);
            let first = ranges.change(key(1), 0, 10).await;
            {
                let mut abandoned = std::pin::pin!(ranges.change(key(1), 5, 20));
                let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(abandoned.as_mut().poll(cx)));
                assert!(polled.await.is_pending());
            }
            let other = ranges.hold(key(1), 10, 20).await; // in the way of nobody any more
            assert!(!ranges.is_quiet(key(1), &other));
            drop(first);
            assert!(ranges.is_quiet(key(1), &other));
        });
    }
}

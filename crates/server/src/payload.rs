//! Memory for payloads in passing, bounded for all connections together.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ByteLen;
use weft_env::{Env, Hollow, Notify};
use weft_store::aligned::AlignedBuf;
use weft_wire::data::PAYLOAD_LEN_MAX;

/// The smallest buffer, in bytes. Sizes double from here to the longest payload.
const LEN_MIN: usize = 4096;
const CLASSES: usize = (PAYLOAD_LEN_MAX as usize / LEN_MIN).ilog2() as usize + 1;

fn class_of(len: usize) -> usize {
    assert!(len <= PAYLOAD_LEN_MAX as usize, "a payload of {len} bytes");
    len.max(LEN_MIN).next_power_of_two().ilog2() as usize - LEN_MIN.ilog2() as usize
}

const fn class_len(class: usize) -> usize {
    LEN_MIN << class
}

/// The memory of one payload.
pub(crate) enum Buffer {
    Bytes(AlignedBuf),
    /// Where payloads are lengths only.
    Hollow(Hollow),
}

impl Buffer {
    /// `len` bytes.
    pub fn new<E: Env>(env: &E, len: usize) -> Self {
        env.hollow(len).map_or_else(|| Self::Bytes(AlignedBuf::zeroed(len)), Self::Hollow)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(buf) => buf,
            Self::Hollow(buf) => buf,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(buf) => buf,
            Self::Hollow(buf) => buf,
        }
    }
}

/// Buffers that connections borrow. Who waits is served in the order of asking, so that a long payload is not
/// passed over by short ones for ever.
pub(crate) struct PayloadPool<E: Env> {
    env: E,
    total: usize,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    /// Bytes of buffers lent.
    lent: usize,
    /// Bytes of buffers kept.
    kept: usize,
    free: [Vec<Buffer>; CLASSES],
    /// The fewest that were free since the last trim: so many were of no use.
    idle: [usize; CLASSES],
    waiters: VecDeque<Arc<Waiter<E>>>,
}

struct Waiter<E: Env> {
    need: usize,
    granted: AtomicBool,
    notify: E::Notify,
}

impl<E: Env> PayloadPool<E> {
    /// Lends at most `total`, but one payload of the longest kind at least.
    pub fn new(env: &E, total: ByteLen) -> Self {
        let total = usize::try_from(total.0).unwrap_or(usize::MAX).max(PAYLOAD_LEN_MAX as usize);
        let inner = Inner {
            lent: 0,
            kept: 0,
            free: Default::default(),
            idle: [0; CLASSES],
            waiters: VecDeque::new(),
        };
        Self { env: env.clone(), total, inner: Mutex::new(inner) }
    }

    /// A buffer of `len` bytes with arbitrary contents; waits for memory.
    pub async fn borrow(&self, len: usize) -> Payload<'_, E> {
        let class = class_of(len);
        let need = class_len(class);
        if let Some(mut wait) = self.queue_up(need) {
            loop {
                let seen = wait.waiter.notify.epoch();
                if wait.waiter.granted.load(Ordering::Acquire) {
                    wait.done = true;
                    break;
                }
                wait.waiter.notify.wait(seen, None).await;
            }
        }
        // From here on `need` bytes are accounted for; `lease` gives them back.
        let mut lease = Payload { pool: self, class, len, buf: None };
        let kept = self.inner.lock().take(class, self.total);
        lease.buf = Some(kept.unwrap_or_else(|| Buffer::new(&self.env, need)));
        lease
    }

    /// `None` when there was room at once.
    fn queue_up(&self, need: usize) -> Option<Wait<'_, E>> {
        let mut inner = self.inner.lock();
        if inner.waiters.is_empty() && inner.lent + need <= self.total {
            inner.lent += need;
            return None;
        }
        let waiter = Arc::new(Waiter { need, granted: AtomicBool::new(false), notify: self.env.notify() });
        inner.waiters.push_back(Arc::clone(&waiter));
        Some(Wait { pool: self, waiter, done: false })
    }

    /// Gives the memory of buffers that nobody has needed since the last call back to the system.
    pub fn trim(&self) {
        let mut dropped = Vec::new(); // freed after the lock is
        let mut inner = self.inner.lock();
        for class in 0..CLASSES {
            for _ in 0..inner.idle[class] {
                dropped.extend(inner.free[class].pop());
                inner.kept -= class_len(class);
            }
            inner.idle[class] = inner.free[class].len();
        }
    }

    /// Bytes lent and kept now.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.lent, inner.kept)
    }

    fn give_back(&self, need: usize) {
        let granted = {
            let mut inner = self.inner.lock();
            inner.lent -= need;
            inner.grant(self.total)
        };
        for waiter in granted {
            waiter.notify.notify_all();
        }
    }
}

impl<E: Env> Inner<E> {
    /// A kept buffer of this class, whose bytes are then lent and not kept; without one, room for a new one.
    fn take(&mut self, class: usize, total: usize) -> Option<Buffer> {
        if let Some(buf) = self.free[class].pop() {
            self.kept -= class_len(class);
            self.idle[class] = self.idle[class].min(self.free[class].len());
            return Some(buf);
        }
        for other in (0..CLASSES).rev() {
            while self.lent + self.kept > total && self.free[other].pop().is_some() {
                self.kept -= class_len(other);
                self.idle[other] = self.idle[other].min(self.free[other].len());
            }
        }
        None
    }

    fn grant(&mut self, total: usize) -> Vec<Arc<Waiter<E>>> {
        let mut granted = Vec::new();
        while let Some(first) = self.waiters.front() {
            if self.lent + first.need > total {
                break;
            }
            self.lent += first.need;
            first.granted.store(true, Ordering::Release);
            granted.extend(self.waiters.pop_front());
        }
        granted
    }
}

struct Wait<'a, E: Env> {
    pool: &'a PayloadPool<E>,
    waiter: Arc<Waiter<E>>,
    done: bool,
}

impl<E: Env> Drop for Wait<'_, E> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let granted = {
            let mut inner = self.pool.inner.lock();
            match self.waiter.granted.load(Ordering::Acquire) {
                true => inner.lent -= self.waiter.need,
                false => inner.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter)),
            }
            inner.grant(self.pool.total)
        };
        for waiter in granted {
            waiter.notify.notify_all();
        }
    }
}

/// A borrowed buffer; goes back on drop, in a panic too.
pub(crate) struct Payload<'a, E: Env> {
    pool: &'a PayloadPool<E>,
    class: usize,
    len: usize,
    buf: Option<Buffer>,
}

impl<E: Env> Deref for Payload<'_, E> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf.as_ref().expect("there until dropped")[..self.len]
    }
}

impl<E: Env> DerefMut for Payload<'_, E> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut().expect("there until dropped")[..self.len]
    }
}

impl<E: Env> Drop for Payload<'_, E> {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            let mut inner = self.pool.inner.lock();
            inner.kept += class_len(self.class);
            inner.free[self.class].push(buf);
        }
        self.pool.give_back(class_len(self.class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Nanos;
    use weft_env::real::{RealEnv, block_on};
    use weft_env::sim::Sim;

    #[test]
    fn sizes_are_rounded_up_to_a_class() {
        let lens = [0, 1, 4096, 4097, 65_536, PAYLOAD_LEN_MAX as usize];
        let classes = lens.map(|len| class_len(class_of(len)));
        assert_eq!(classes, [4096, 4096, 4096, 8192, 65_536, 4 << 20]);
        assert_eq!(class_of(PAYLOAD_LEN_MAX as usize), CLASSES - 1);
    }

    #[test]
    fn memory_is_kept_while_needed_and_given_back_when_idle() {
        let pool = PayloadPool::new(&RealEnv::new(), ByteLen::from_mib(16));
        block_on(async {
            let (mut a, b) = (pool.borrow(70_000).await, pool.borrow(10).await);
            a.fill(7);
            assert_eq!((a.len(), b.len()), (70_000, 10));
            assert_eq!(pool.held(), (131_072 + 4096, 0));
            drop((a, b));
            assert_eq!(pool.held(), (0, 131_072 + 4096));
            pool.trim(); // was needed since the last time
            drop(pool.borrow(70_000).await);
            pool.trim();
            assert_eq!(pool.held(), (0, 131_072), "the small one was not");
            pool.trim();
            assert_eq!(pool.held(), (0, 0));
        });
    }

    #[test]
    fn kept_buffers_of_one_size_make_room_for_another() {
        let pool = PayloadPool::new(&RealEnv::new(), ByteLen::from_mib(4));
        block_on(async {
            drop(pool.borrow(4 << 20).await);
            assert_eq!(pool.held(), (0, 4 << 20));
            let small = pool.borrow(4096).await;
            assert_eq!(pool.held(), (4096, 0));
            drop(small);
        });
    }

    #[test]
    fn the_bound_holds_and_everybody_is_served_in_order() {
        for seed in 0..20 {
            eprintln!("seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let pool = Arc::new(PayloadPool::new(&env, ByteLen::from_mib(4)));
            let served = Arc::new(Mutex::new(Vec::new()));
            for task in 0..200_u64 {
                let (pool, served, world) = (Arc::clone(&pool), Arc::clone(&served), env.clone());
                env.spawn("borrower", move || async move {
                    world.sleep(Nanos(task)).await;
                    let len = if task % 10 == 3 { 4 << 20 } else { 1 << (task % 20) };
                    let buf = pool.borrow(len).await;
                    let (lent, kept) = pool.held();
                    assert!(lent + kept <= 4 << 20, "{lent} lent and {kept} kept");
                    served.lock().push(task);
                    world.sleep(Nanos(1000)).await;
                    drop(buf);
                })
                .expect("a task");
            }
            sim.run();
            let served = served.lock().clone();
            assert_eq!(served.len(), 200);
            assert_eq!(pool.held().0, 0);
            // Those granted at one instant run in any order; nobody is passed over by more than fit beside him.
            let longs: Vec<_> = served.iter().filter(|task| *task % 10 == 3).collect();
            assert!(longs.is_sorted(), "{longs:?}");
        }
    }
}

//! Memory for payloads, bounded for all connections together and for each user.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ByteLen;
use weft_env::{Env, Hollow, Notify};
use weft_store::aligned::AlignedBuf;
use weft_wire::data::PAYLOAD_LEN_MAX;

/// Smallest buffer in bytes. Sizes double from here to the longest payload.
const LEN_MIN: usize = 4096;
const CLASSES: usize = (PAYLOAD_LEN_MAX as usize / LEN_MIN).ilog2() as usize + 1;

fn class_of(len: usize) -> usize {
    assert!(len <= PAYLOAD_LEN_MAX as usize, "a payload of {len} bytes");
    len.max(LEN_MIN).next_power_of_two().ilog2() as usize - LEN_MIN.ilog2() as usize
}

const fn class_len(class: usize) -> usize {
    LEN_MIN << class
}

/// Memory of one payload.
pub(crate) enum Buffer {
    Bytes(AlignedBuf),
    /// Used where payloads are lengths only.
    Hollow(Hollow),
}

impl Buffer {
    /// Allocates `len` bytes.
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

/// Pool of buffers that connections borrow.
///
/// Waiting requests are served in order, so short payloads do not starve a long one. Requests of a user who is at the
/// limit of one user wait in a queue of their own. They join the common queue when the user returns memory.
pub(crate) struct PayloadPool<E: Env> {
    env: E,
    total: usize,
    /// Maximum number of bytes of one user.
    share: usize,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    /// Bytes of borrowed buffers.
    borrowed: usize,
    /// Bytes of free buffers.
    pooled: usize,
    free: [Vec<Buffer>; CLASSES],
    /// Least number of free buffers since the last trim, which were not needed.
    idle: [usize; CLASSES],
    /// Requests that wait for memory within their user's limit.
    waiters: VecDeque<Arc<Waiter<E>>>,
    users: BTreeMap<u32, UserMemory<E>>,
}

/// Memory of one user; a user without buffers and requests has no entry.
struct UserMemory<E: Env> {
    /// Bytes borrowed, and bytes of requests in the common queue.
    used: usize,
    /// Requests beyond the limit of one user.
    waiters: VecDeque<Arc<Waiter<E>>>,
}

struct Waiter<E: Env> {
    need: usize,
    /// User of the request, if users are limited.
    user: Option<u32>,
    granted: AtomicBool,
    notify: E::Notify,
}

impl<E: Env> PayloadPool<E> {
    /// Creates a pool of `total` bytes with at most `share` for one user. Both allow at least one payload of maximum
    /// length.
    pub fn new(env: &E, total: ByteLen, share: ByteLen) -> Self {
        let bytes = |len: ByteLen| usize::try_from(len.0).unwrap_or(usize::MAX).max(PAYLOAD_LEN_MAX as usize);
        let (total, share) = (bytes(total), bytes(share));
        let inner = Inner {
            borrowed: 0,
            pooled: 0,
            free: Default::default(),
            idle: [0; CLASSES],
            waiters: VecDeque::new(),
            users: BTreeMap::new(),
        };
        Self { env: env.clone(), total, share, inner: Mutex::new(inner) }
    }

    /// Borrows a buffer of `len` bytes with arbitrary contents; waits for memory. With `user`, it counts towards the
    /// user's limit.
    pub async fn borrow(&self, len: usize, user: Option<u32>) -> Payload<'_, E> {
        let class = class_of(len);
        let need = class_len(class);
        if let Some(mut wait) = self.enqueue(need, user) {
            loop {
                let seen = wait.waiter.notify.epoch();
                if wait.waiter.granted.load(Ordering::Acquire) {
                    wait.done = true;
                    break;
                }
                wait.waiter.notify.wait(seen, None).await;
            }
        }
        // From here on `need` bytes are accounted for; dropping `lease` returns them.
        let mut lease = Payload { pool: self, class, len, user, buf: None };
        let pooled = self.inner.lock().take(class, self.total);
        lease.buf = Some(pooled.unwrap_or_else(|| Buffer::new(&self.env, need)));
        lease
    }

    /// Enqueues a request; `None` if memory was available at once.
    fn enqueue(&self, need: usize, user: Option<u32>) -> Option<QueuedRequest<'_, E>> {
        let mut inner = self.inner.lock();
        let fits_share = user.is_none_or(|uid| {
            let user = inner.users.entry(uid).or_insert_with(UserMemory::new);
            let fits = user.waiters.is_empty() && user.used + need <= self.share;
            user.used += if fits { need } else { 0 };
            fits
        });
        if fits_share && inner.waiters.is_empty() && inner.borrowed + need <= self.total {
            inner.borrowed += need;
            return None;
        }
        let (granted, notify) = (AtomicBool::new(false), self.env.notify());
        let waiter = Arc::new(Waiter { need, user, granted, notify });
        let queue = match user {
            Some(uid) if !fits_share => &mut inner.users.get_mut(&uid).expect("just found").waiters,
            _ => &mut inner.waiters,
        };
        queue.push_back(Arc::clone(&waiter));
        Some(QueuedRequest { pool: self, waiter, done: false })
    }

    /// Whether requests wait for memory.
    pub fn is_short(&self) -> bool {
        let inner = self.inner.lock();
        !inner.waiters.is_empty() || inner.users.values().any(|user| !user.waiters.is_empty())
    }

    /// Bytes by user, borrowed or waited for within the limit.
    pub fn by_user(&self) -> BTreeMap<u32, usize> {
        self.inner.lock().users.iter().map(|(uid, user)| (*uid, user.used)).collect()
    }

    /// Frees buffers that were not needed since the last call.
    pub fn trim(&self) {
        let mut dropped = Vec::new(); // freed after the lock is released
        let mut inner = self.inner.lock();
        for class in 0..CLASSES {
            for _ in 0..inner.idle[class] {
                dropped.extend(inner.free[class].pop());
                inner.pooled -= class_len(class);
            }
            inner.idle[class] = inner.free[class].len();
        }
    }

    /// Bytes borrowed and free.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.borrowed, inner.pooled)
    }

    fn return_bytes(&self, need: usize, user: Option<u32>) {
        let granted = {
            let mut inner = self.inner.lock();
            inner.borrowed -= need;
            inner.return_to_user(need, user, self.share);
            inner.grant(self.total)
        };
        for waiter in granted {
            waiter.notify.notify_all();
        }
    }
}

impl<E: Env> Inner<E> {
    /// Takes a free buffer of this class, if there is one. Otherwise frees others until a new one fits the total.
    fn take(&mut self, class: usize, total: usize) -> Option<Buffer> {
        if let Some(buf) = self.free[class].pop() {
            self.pooled -= class_len(class);
            self.idle[class] = self.idle[class].min(self.free[class].len());
            return Some(buf);
        }
        for other in (0..CLASSES).rev() {
            while self.borrowed + self.pooled > total && self.free[other].pop().is_some() {
                self.pooled -= class_len(other);
                self.idle[other] = self.idle[other].min(self.free[other].len());
            }
        }
        None
    }

    /// Subtracts `need` bytes from the user's use. Requests that now fit the limit move to the common queue.
    fn return_to_user(&mut self, need: usize, user: Option<u32>, share: usize) {
        let Some(uid) = user else { return };
        let Some(user) = self.users.get_mut(&uid) else { return };
        user.used -= need;
        user.admit(share, &mut self.waiters);
        if user.used == 0 && user.waiters.is_empty() {
            self.users.remove(&uid);
        }
    }

    fn grant(&mut self, total: usize) -> Vec<Arc<Waiter<E>>> {
        let mut granted = Vec::new();
        while let Some(first) = self.waiters.front() {
            if self.borrowed + first.need > total {
                break;
            }
            self.borrowed += first.need;
            first.granted.store(true, Ordering::Release);
            granted.extend(self.waiters.pop_front());
        }
        granted
    }
}

impl<E: Env> UserMemory<E> {
    fn new() -> Self {
        Self { used: 0, waiters: VecDeque::new() }
    }

    /// Moves requests within the limit to the common queue.
    fn admit(&mut self, share: usize, all: &mut VecDeque<Arc<Waiter<E>>>) {
        while self.waiters.front().is_some_and(|first| self.used + first.need <= share) {
            let first = self.waiters.pop_front().expect("just seen");
            self.used += first.need;
            all.push_back(first);
        }
    }
}

struct QueuedRequest<'a, E: Env> {
    pool: &'a PayloadPool<E>,
    waiter: Arc<Waiter<E>>,
    done: bool,
}

impl<E: Env> Drop for QueuedRequest<'_, E> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let granted = {
            let mut inner = self.pool.inner.lock();
            let Waiter { need, user, .. } = *self.waiter;
            let is_other = |waiter: &Arc<Waiter<E>>| !Arc::ptr_eq(waiter, &self.waiter);
            let waits_apart = user.and_then(|uid| inner.users.get_mut(&uid)).is_some_and(|user| {
                let before = user.waiters.len();
                user.waiters.retain(is_other);
                user.waiters.len() < before
            });
            if self.waiter.granted.load(Ordering::Acquire) {
                inner.borrowed -= need;
            } else if !waits_apart {
                inner.waiters.retain(is_other);
            }
            inner.return_to_user(if waits_apart { 0 } else { need }, user, self.pool.share);
            inner.grant(self.pool.total)
        };
        for waiter in granted {
            waiter.notify.notify_all();
        }
    }
}

/// A borrowed buffer. Dropping it, even in a panic, returns it.
pub(crate) struct Payload<'a, E: Env> {
    pool: &'a PayloadPool<E>,
    class: usize,
    len: usize,
    user: Option<u32>,
    buf: Option<Buffer>,
}

impl<E: Env> Deref for Payload<'_, E> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf.as_ref().expect("present until dropped")[..self.len]
    }
}

impl<E: Env> DerefMut for Payload<'_, E> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut().expect("present until dropped")[..self.len]
    }
}

impl<E: Env> Drop for Payload<'_, E> {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            let mut inner = self.pool.inner.lock();
            inner.pooled += class_len(self.class);
            inner.free[self.class].push(buf);
        }
        self.pool.return_bytes(class_len(self.class), self.user);
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
    fn memory_is_kept_while_needed_and_freed_when_idle() {
        let (total, share) = (ByteLen::from_mib(16), ByteLen::from_mib(8));
        let pool = PayloadPool::new(&RealEnv::new(), total, share);
        block_on(async {
            let (mut a, b) = (pool.borrow(70_000, None).await, pool.borrow(10, Some(7)).await);
            a.fill(7);
            assert_eq!((a.len(), b.len()), (70_000, 10));
            assert_eq!(pool.held(), (131_072 + 4096, 0));
            drop((a, b));
            assert_eq!(pool.held(), (0, 131_072 + 4096));
            pool.trim(); // needed since the last trim
            drop(pool.borrow(70_000, None).await);
            pool.trim();
            assert_eq!(pool.held(), (0, 131_072), "the small one was not needed");
            pool.trim();
            assert_eq!(pool.held(), (0, 0));
        });
    }

    #[test]
    fn kept_buffers_of_one_size_make_room_for_another() {
        let pool = PayloadPool::new(&RealEnv::new(), ByteLen::from_mib(4), ByteLen::from_mib(4));
        block_on(async {
            drop(pool.borrow(4 << 20, None).await);
            assert_eq!(pool.held(), (0, 4 << 20));
            let small = pool.borrow(4096, None).await;
            assert_eq!(pool.held(), (4096, 0));
            drop(small);
        });
    }

    #[test]
    fn the_limit_holds_and_requests_are_served_in_order() {
        for seed in 0..20 {
            eprintln!("seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let pool = Arc::new(PayloadPool::new(&env, ByteLen::from_mib(4), ByteLen::from_mib(4)));
            let served = Arc::new(Mutex::new(Vec::new()));
            for task in 0..200_u64 {
                let (pool, served, world) = (Arc::clone(&pool), Arc::clone(&served), env.clone());
                env.spawn("borrower", move || async move {
                    world.sleep(Nanos(task)).await;
                    let len = if task % 10 == 3 { 4 << 20 } else { 1 << (task % 20) };
                    let buf = pool.borrow(len, None).await;
                    let (borrowed, pooled) = pool.held();
                    assert!(borrowed + pooled <= 4 << 20, "{borrowed} borrowed and {pooled} free");
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
            assert!(pool.by_user().is_empty() && !pool.is_short());
            // Requests granted at one instant run in any order. A request is passed only by those that fit beside it.
            let longs: Vec<_> = served.iter().filter(|task| *task % 10 == 3).collect();
            assert!(longs.is_sorted(), "{longs:?}");
        }
    }

    #[test]
    fn a_user_at_the_limit_does_not_block_others() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("node");
        let pool = Arc::new(PayloadPool::new(&env, ByteLen::from_mib(16), ByteLen::from_mib(8)));
        let served = Arc::new(Mutex::new(Vec::new()));
        let began = env.now();
        // User 1 requests ten times 4 MiB and keeps each for a second; user 2 comes last.
        for task in 0..11_u64 {
            let (pool, served, world) = (Arc::clone(&pool), Arc::clone(&served), env.clone());
            env.spawn("borrower", move || async move {
                world.sleep(Nanos(task)).await;
                let user = if task == 10 { 2 } else { 1 };
                let buf = pool.borrow(4 << 20, Some(user)).await;
                assert!(pool.by_user().values().all(|used| *used <= 8 << 20), "{:?}", pool.by_user());
                served.lock().push((user, world.now().saturating_sub(began)));
                world.sleep(Nanos::from_s(1)).await;
                drop(buf);
            })
            .expect("a task");
        }
        sim.run();
        let served = served.lock().clone();
        assert_eq!(served.len(), 11);
        let other = served.iter().find(|(user, _)| *user == 2).expect("served");
        assert!(other.1 < Nanos::from_ms(1), "{served:?}");
        let last = served.iter().map(|(_, at)| *at).max();
        assert!(last >= Some(Nanos::from_s(4)), "two at a time: {served:?}");
        assert!(pool.by_user().is_empty() && !pool.is_short());
    }

    #[test]
    fn abandoned_requests_leave_nothing_behind() {
        let pool = PayloadPool::new(&RealEnv::new(), ByteLen::from_mib(8), ByteLen::from_mib(4));
        block_on(async {
            let first = pool.borrow(4 << 20, Some(1)).await;
            let over_limit = pool.enqueue(4096, Some(1)).expect("beyond the share");
            let second = pool.borrow(4 << 20, Some(2)).await;
            let in_common = pool.enqueue(4096, Some(3)).expect("no memory is left");
            assert!(pool.is_short());
            assert_eq!(pool.by_user(), BTreeMap::from([(1, 4 << 20), (2, 4 << 20), (3, 4096)]));
            drop(in_common);
            drop(first);
            assert!(
                over_limit.waiter.granted.load(Ordering::Acquire),
                "there is memory, and the user is below the limit"
            );
            assert_eq!(pool.by_user(), BTreeMap::from([(1, 4096), (2, 4 << 20)]));
            drop(over_limit);
            drop(second);
            assert!(pool.by_user().is_empty() && !pool.is_short());
            assert_eq!(pool.held().0, 0);
        });
    }
}

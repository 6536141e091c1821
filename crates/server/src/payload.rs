//! Memory for payloads in passing, bounded for all connections together and for those of each user.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
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

/// Buffers that connections borrow. Requests that wait are served in the order of asking, so that a long payload is not
/// passed over by short ones for ever. The requests of a user who has the whole share of one user wait apart, and join the
/// others when the user gives something back.
pub(crate) struct PayloadPool<E: Env> {
    env: E,
    total: usize,
    /// Most bytes of one user.
    share: usize,
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
    /// Requests that wait for memory, each within its user's share.
    waiters: VecDeque<Arc<Waiter<E>>>,
    users: BTreeMap<u32, UserMemory<E>>,
}

/// Memory of one user; a user without buffers and requests has no entry.
struct UserMemory<E: Env> {
    /// Bytes lent, and those for which requests wait among all.
    used: usize,
    /// Requests beyond the share of one user.
    waiters: VecDeque<Arc<Waiter<E>>>,
}

struct Waiter<E: Env> {
    need: usize,
    /// Of this user, where users have shares.
    user: Option<u32>,
    granted: AtomicBool,
    notify: E::Notify,
}

impl<E: Env> PayloadPool<E> {
    /// Lends at most `total`, and `share` of that to one user, but one payload of the longest kind at least.
    pub fn new(env: &E, total: ByteLen, share: ByteLen) -> Self {
        let bytes = |len: ByteLen| usize::try_from(len.0).unwrap_or(usize::MAX).max(PAYLOAD_LEN_MAX as usize);
        let (total, share) = (bytes(total), bytes(share));
        let inner = Inner {
            lent: 0,
            kept: 0,
            free: Default::default(),
            idle: [0; CLASSES],
            waiters: VecDeque::new(),
            users: BTreeMap::new(),
        };
        Self { env: env.clone(), total, share, inner: Mutex::new(inner) }
    }

    /// A buffer of `len` bytes with arbitrary contents; waits for memory. With `user` the buffer counts towards the user's
    /// share.
    pub async fn borrow(&self, len: usize, user: Option<u32>) -> Payload<'_, E> {
        let class = class_of(len);
        let need = class_len(class);
        if let Some(mut wait) = self.queue_up(need, user) {
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
        let mut lease = Payload { pool: self, class, len, user, buf: None };
        let kept = self.inner.lock().take(class, self.total);
        lease.buf = Some(kept.unwrap_or_else(|| Buffer::new(&self.env, need)));
        lease
    }

    /// `None` when there was room at once.
    fn queue_up(&self, need: usize, user: Option<u32>) -> Option<Wait<'_, E>> {
        let mut inner = self.inner.lock();
        let fits_share = user.is_none_or(|uid| {
            let user = inner.users.entry(uid).or_insert_with(UserMemory::new);
            let fits = user.waiters.is_empty() && user.used + need <= self.share;
            user.used += if fits { need } else { 0 };
            fits
        });
        if fits_share && inner.waiters.is_empty() && inner.lent + need <= self.total {
            inner.lent += need;
            return None;
        }
        let (granted, notify) = (AtomicBool::new(false), self.env.notify());
        let waiter = Arc::new(Waiter { need, user, granted, notify });
        let queue = match user {
            Some(uid) if !fits_share => &mut inner.users.get_mut(&uid).expect("just found").waiters,
            _ => &mut inner.waiters,
        };
        queue.push_back(Arc::clone(&waiter));
        Some(Wait { pool: self, waiter, done: false })
    }

    /// Whether requests wait for memory.
    pub fn is_short(&self) -> bool {
        let inner = self.inner.lock();
        !inner.waiters.is_empty() || inner.users.values().any(|user| !user.waiters.is_empty())
    }

    /// Bytes that each user has or waits for within the share of one user.
    pub fn by_user(&self) -> BTreeMap<u32, usize> {
        self.inner.lock().users.iter().map(|(uid, user)| (*uid, user.used)).collect()
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

    fn give_back(&self, need: usize, user: Option<u32>) {
        let granted = {
            let mut inner = self.inner.lock();
            inner.lent -= need;
            inner.give_user_back(need, user, self.share);
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

    /// Takes `need` bytes off the user's account; the user's requests that now fit the share wait among all.
    fn give_user_back(&mut self, need: usize, user: Option<u32>, share: usize) {
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

impl<E: Env> UserMemory<E> {
    fn new() -> Self {
        Self { used: 0, waiters: VecDeque::new() }
    }

    /// Has requests within the share wait among all.
    fn admit(&mut self, share: usize, all: &mut VecDeque<Arc<Waiter<E>>>) {
        while self.waiters.front().is_some_and(|first| self.used + first.need <= share) {
            let first = self.waiters.pop_front().expect("just seen");
            self.used += first.need;
            all.push_back(first);
        }
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
            let Waiter { need, user, .. } = *self.waiter;
            let is_other = |waiter: &Arc<Waiter<E>>| !Arc::ptr_eq(waiter, &self.waiter);
            let waits_apart = user.and_then(|uid| inner.users.get_mut(&uid)).is_some_and(|user| {
                let before = user.waiters.len();
                user.waiters.retain(is_other);
                user.waiters.len() < before
            });
            if self.waiter.granted.load(Ordering::Acquire) {
                inner.lent -= need;
            } else if !waits_apart {
                inner.waiters.retain(is_other);
            }
            inner.give_user_back(if waits_apart { 0 } else { need }, user, self.pool.share);
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
    user: Option<u32>,
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
        self.pool.give_back(class_len(self.class), self.user);
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
        let (total, share) = (ByteLen::from_mib(16), ByteLen::from_mib(8));
        let pool = PayloadPool::new(&RealEnv::new(), total, share);
        block_on(async {
            let (mut a, b) = (pool.borrow(70_000, None).await, pool.borrow(10, Some(7)).await);
            a.fill(7);
            assert_eq!((a.len(), b.len()), (70_000, 10));
            assert_eq!(pool.held(), (131_072 + 4096, 0));
            drop((a, b));
            assert_eq!(pool.held(), (0, 131_072 + 4096));
            pool.trim(); // was needed since the last time
            drop(pool.borrow(70_000, None).await);
            pool.trim();
            assert_eq!(pool.held(), (0, 131_072), "the small one was not");
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
    fn the_bound_holds_and_everybody_is_served_in_order() {
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
            assert!(pool.by_user().is_empty() && !pool.is_short());
            // Those granted at one instant run in any order; nobody is passed over by more than fit beside him.
            let longs: Vec<_> = served.iter().filter(|task| *task % 10 == 3).collect();
            assert!(longs.is_sorted(), "{longs:?}");
        }
    }

    #[test]
    fn a_user_with_a_whole_share_does_not_hold_up_others() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("node");
        let pool = Arc::new(PayloadPool::new(&env, ByteLen::from_mib(16), ByteLen::from_mib(8)));
        let served = Arc::new(Mutex::new(Vec::new()));
        let began = env.now();
        // User 1 asks for 10 times 4 MiB and keeps each for a second; user 2 comes last.
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
    fn requests_that_are_given_up_leave_nothing_behind() {
        let pool = PayloadPool::new(&RealEnv::new(), ByteLen::from_mib(8), ByteLen::from_mib(4));
        block_on(async {
            let first = pool.borrow(4 << 20, Some(1)).await;
            let apart = pool.queue_up(4096, Some(1)).expect("beyond the share");
            let second = pool.borrow(4 << 20, Some(2)).await;
            let among_all = pool.queue_up(4096, Some(3)).expect("no memory is left");
            assert!(pool.is_short());
            assert_eq!(pool.by_user(), BTreeMap::from([(1, 4 << 20), (2, 4 << 20), (3, 4096)]));
            drop(among_all);
            drop(first);
            assert!(
                apart.waiter.granted.load(Ordering::Acquire),
                "there is room, and the user has the share"
            );
            assert_eq!(pool.by_user(), BTreeMap::from([(1, 4096), (2, 4 << 20)]));
            drop(apart);
            drop(second);
            assert!(pool.by_user().is_empty() && !pool.is_short());
            assert_eq!(pool.held().0, 0);
        });
    }
}

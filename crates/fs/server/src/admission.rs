//! Admission to a target: bounds the number of concurrent requests, and serves waiting sessions in rotation.

use crate::connections::Entry;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::TargetId;
use weft_env::{Env, Notify};
use weft_wire::hello::SessionId;

/// The upper half of the word counts waiting requests, the lower half running ones.
const ONE_WAITS: u64 = 1 << 32;

fn running(word: u64) -> u32 {
    word as u32
}

fn waiting(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Admission queue of one target. While no request waits, entering and leaving cost one atomic operation each.
pub(crate) struct Admission<E: Env> {
    env: E,
    depth: u32,
    word: AtomicU64,
    queue: Mutex<Queue<E>>,
}

struct Queue<E: Env> {
    /// Sessions that wait, each with its requests in order. No list is empty.
    sessions: BTreeMap<SessionId, VecDeque<Arc<Waiter<E>>>>,
    /// Session served last.
    last: SessionId,
}

struct Waiter<E: Env> {
    granted: AtomicBool,
    notify: E::Notify,
}

impl<E: Env> Admission<E> {
    /// Admits `depth` requests at once.
    pub fn new(env: &E, depth: u32) -> Self {
        assert!(depth > 0, "a queue depth of one at least");
        let queue = Queue { sessions: BTreeMap::new(), last: SessionId(0) };
        Self { env: env.clone(), depth, word: AtomicU64::new(0), queue: Mutex::new(queue) }
    }

    /// Number of requests that run or wait now.
    pub fn queued(&self) -> u32 {
        let word = self.word.load(Ordering::Relaxed);
        running(word).saturating_add(waiting(word))
    }

    /// Waits until the session is served. Dropping the permit, even in a panic, ends the request.
    pub async fn enter(&self, session: SessionId) -> Permit<'_, E> {
        if self.try_enter() {
            return Permit { admission: self };
        }
        let Some(mut wait) = self.enqueue(session) else { return Permit { admission: self } };
        loop {
            let seen = wait.waiter.notify.epoch();
            if wait.waiter.granted.load(Ordering::Acquire) {
                wait.done = true;
                return Permit { admission: self };
            }
            wait.waiter.notify.wait(seen, None).await;
        }
    }

    fn try_enter(&self) -> bool {
        let free = |word| waiting(word) == 0 && running(word) < self.depth;
        let step = |word| free(word).then_some(word + 1);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, step).is_ok()
    }

    /// Enqueues a request; `None` if it may run after all.
    fn enqueue(&self, session: SessionId) -> Option<Wait<'_, E>> {
        let mut queue = self.queue.lock();
        // A request that ends after this sees that another one waits, and then waits for the lock of the queue.
        let step = |word| {
            let free = waiting(word) == 0 && running(word) < self.depth;
            Some(if free { word + 1 } else { word + ONE_WAITS })
        };
        let before =
            self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, step).expect("always a step");
        if waiting(before) == 0 && running(before) < self.depth {
            return None;
        }
        let waiter = Arc::new(Waiter { granted: AtomicBool::new(false), notify: self.env.notify() });
        queue.sessions.entry(session).or_default().push_back(Arc::clone(&waiter));
        Some(Wait { admission: self, session, waiter, done: false })
    }

    /// Ends a running request and admits the next one.
    pub fn leave(&self) {
        loop {
            let step = |word| (waiting(word) == 0).then(|| word - 1);
            if self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, step).is_ok() {
                return;
            }
            let mut queue = self.queue.lock();
            // The waiting requests may have been abandoned meanwhile.
            if let Some(next) = queue.take_next() {
                self.word.fetch_sub(ONE_WAITS, Ordering::AcqRel);
                next.granted.store(true, Ordering::Release);
                drop(queue);
                next.notify.notify_all();
                return;
            }
        }
    }
}

impl<E: Env> Queue<E> {
    fn take_next(&mut self) -> Option<Arc<Waiter<E>>> {
        let after = self.sessions.range((Excluded(self.last), Unbounded)).next();
        let session = *after.or_else(|| self.sessions.iter().next())?.0;
        let waiters = self.sessions.get_mut(&session).expect("just found");
        let next = waiters.pop_front().expect("no session waits without a request");
        if waiters.is_empty() {
            self.sessions.remove(&session);
        }
        self.last = session;
        Some(next)
    }
}

/// A waiting request. Dropping it removes it from the queue.
struct Wait<'a, E: Env> {
    admission: &'a Admission<E>,
    session: SessionId,
    waiter: Arc<Waiter<E>>,
    done: bool,
}

impl<E: Env> Drop for Wait<'_, E> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut queue = self.admission.queue.lock();
        if self.waiter.granted.load(Ordering::Acquire) {
            drop(queue);
            self.admission.leave();
            return;
        }
        let waiters = queue.sessions.get_mut(&self.session).expect("waits in the queue");
        waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if waiters.is_empty() {
            queue.sessions.remove(&self.session);
        }
        self.admission.word.fetch_sub(ONE_WAITS, Ordering::AcqRel);
    }
}

/// Permission to run one request.
pub(crate) struct Permit<'a, E: Env> {
    admission: &'a Admission<E>,
}

impl<'a, E: Env> Permit<'a, E> {
    /// Allows the server to revoke the permit while the peer receives its bytes (see [`Entry::take_revocable`]), so
    /// that a peer that does not read does not block others.
    pub fn make_revocable(self, entry: &'a Entry, target: TargetId) -> RevocablePermit<'a, E> {
        let admission = self.admission;
        std::mem::forget(self);
        entry.set_revocable(target);
        RevocablePermit { admission, entry }
    }
}

/// A permit that may have been revoked.
pub(crate) struct RevocablePermit<'a, E: Env> {
    admission: &'a Admission<E>,
    entry: &'a Entry,
}

impl<E: Env> Drop for RevocablePermit<'_, E> {
    fn drop(&mut self) {
        if self.entry.take_revocable().is_some() {
            self.admission.leave();
        }
    }
}

impl<E: Env> Drop for Permit<'_, E> {
    fn drop(&mut self) {
        self.admission.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Nanos;
    use weft_env::sim::{Sim, SimEnv};

    /// Runs sessions that each send `counts` requests of a millisecond through an admission of `depth`. Returns the
    /// order in which they were admitted.
    fn order(seed: u64, depth: u32, counts: &[usize]) -> Vec<u128> {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let admission = Arc::new(Admission::new(&env, depth));
        let served = Arc::new(Mutex::new(Vec::new()));
        for (session, &count) in counts.iter().enumerate() {
            for _ in 0..count {
                let (admission, served, world) = (Arc::clone(&admission), Arc::clone(&served), env.clone());
                let session = session as u128;
                env.spawn("request", move || async move {
                    // All requests arrive before the first one ends.
                    world.sleep(Nanos(session as u64)).await;
                    let _permit = admission.enter(SessionId(session)).await;
                    assert!(running(admission.word.load(Ordering::Relaxed)) <= admission.depth);
                    served.lock().push(session);
                    world.sleep(Nanos::from_ms(1)).await;
                })
                .expect("a task");
            }
        }
        sim.run();
        assert_eq!(admission.queued(), 0);
        let served = served.lock().clone();
        assert_eq!(served.len(), counts.iter().sum::<usize>());
        served
    }

    #[test]
    fn sessions_are_served_in_rotation_whatever_their_number_of_requests() {
        for seed in 0..20 {
            eprintln!("seed {seed}");
            for depth in [1, 4] {
                let served = order(seed, depth, &[400, 20, 20, 1]);
                // While three sessions wait, none is served more than one round ahead of another. Among those admitted
                // at the same instant, the seed decides which runs first.
                let contended = &served[depth as usize..60];
                for until in 0..contended.len() {
                    let count = |session| contended[..until].iter().filter(|&&it| it == session).count();
                    assert!(count(0).abs_diff(count(1)) <= depth as usize, "{contended:?}");
                    assert!(count(1).abs_diff(count(2)) <= depth as usize, "{contended:?}");
                }
                assert!(
                    served[..depth as usize + 4].contains(&3),
                    "the one request of an idle session is served in the first round"
                );
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        assert_eq!(order(7, 2, &[50, 50, 50]), order(7, 2, &[50, 50, 50]));
    }

    /// Abandons `future` after `timeout`, like a task whose process dies.
    async fn give_up<F: Future>(env: &SimEnv, timeout: Nanos, future: F) -> Option<F::Output> {
        let (mut future, mut end) = (std::pin::pin!(future), std::pin::pin!(env.sleep(timeout)));
        std::future::poll_fn(|context| {
            use std::task::Poll;
            match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => end.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }

    #[test]
    fn an_abandoned_or_panicking_request_leaves_nothing_behind() {
        for seed in 0..50 {
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let admission = Arc::new(Admission::new(&env, 2));
            for task in 0..40_u64 {
                let (admission, world) = (Arc::clone(&admission), env.clone());
                env.spawn("request", move || async move {
                    let request = async {
                        let permit = admission.enter(SessionId((task % 5).into())).await;
                        world.sleep(Nanos(1000)).await;
                        if task % 7 == 0 {
                            let broken = std::panic::AssertUnwindSafe(move || {
                                let _permit = permit;
                                std::panic::resume_unwind(Box::new("a bug"));
                            });
                            assert!(std::panic::catch_unwind(broken).is_err());
                        }
                    };
                    // Some are abandoned while they wait, some at the very instant at which they are admitted.
                    give_up(&world, Nanos(500 * (task % 9)), request).await;
                })
                .expect("a task");
            }
            sim.run();
            assert_eq!(admission.word.load(Ordering::Relaxed), 0, "seed {seed}");
            assert!(admission.queue.lock().sessions.is_empty());
        }
    }

    #[test]
    fn concurrent_threads_never_exceed_the_depth() {
        use std::sync::atomic::AtomicU32;
        use weft_env::real::{RealEnv, block_on};
        let admission = Admission::new(&RealEnv::new(), 3);
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8_u128 {
                let (admission, inside, most) = (&admission, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let _permit = block_on(admission.enter(SessionId(thread % 3)));
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(admission.word.load(Ordering::Relaxed), 0);
    }
}

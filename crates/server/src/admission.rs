//! Who may use a target now: at most so many requests at once, and sessions taking turns.

use crate::connections::Entry;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::TargetId;
use weft_env::{Env, Notify};
use weft_wire::hello::SessionId;

/// The upper half of the word counts those that wait, the lower half those that run.
const ONE_WAITS: u64 = 1 << 32;

fn running(word: u64) -> u32 {
    word as u32
}

fn waiting(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The gate before one target. While nobody waits, passing it costs one atomic operation in and one out.
pub(crate) struct Admission<E: Env> {
    env: E,
    depth: u32,
    word: AtomicU64,
    queue: Mutex<Queue<E>>,
}

struct Queue<E: Env> {
    /// Sessions that wait, each with its requests in their order. None is empty.
    sessions: BTreeMap<SessionId, VecDeque<Arc<Waiter<E>>>>,
    /// Whose turn was last.
    last: SessionId,
}

struct Waiter<E: Env> {
    granted: AtomicBool,
    notify: E::Notify,
}

impl<E: Env> Admission<E> {
    /// Lets `depth` requests through at once.
    pub fn new(env: &E, depth: u32) -> Self {
        assert!(depth > 0, "a queue depth of one at least");
        let queue = Queue { sessions: BTreeMap::new(), last: SessionId(0) };
        Self { env: env.clone(), depth, word: AtomicU64::new(0), queue: Mutex::new(queue) }
    }

    /// Requests that run or wait now.
    pub fn queued(&self) -> u32 {
        let word = self.word.load(Ordering::Relaxed);
        running(word).saturating_add(waiting(word))
    }

    /// Waits for this session's turn. Given back on drop, in a panic too.
    pub async fn enter(&self, session: SessionId) -> Permit<'_, E> {
        if self.try_enter() {
            return Permit { admission: self };
        }
        let Some(mut wait) = self.queue_up(session) else { return Permit { admission: self } };
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

    /// `None` when there was room after all.
    fn queue_up(&self, session: SessionId) -> Option<Wait<'_, E>> {
        let mut queue = self.queue.lock();
        // Whoever leaves from here on sees that somebody waits, and finds him in the queue, which is locked.
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

    /// Lets the next one in. Only for who has come in.
    pub fn leave(&self) {
        loop {
            let step = |word| (waiting(word) == 0).then(|| word - 1);
            if self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, step).is_ok() {
                return;
            }
            let mut queue = self.queue.lock();
            // Those that waited may have given up meanwhile.
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

/// A request that waits; drops out of the queue when it is abandoned.
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

/// Leave to run one request.
pub(crate) struct Permit<'a, E: Env> {
    admission: &'a Admission<E>,
}

impl<'a, E: Env> Permit<'a, E> {
    /// While the peer takes its bytes, the permit can be taken back (see [`Entry::take_lent`]): a peer that does not
    /// read must not keep others from the target.
    pub fn lend(self, entry: &'a Entry, target: TargetId) -> Lent<'a, E> {
        let admission = self.admission;
        std::mem::forget(self);
        entry.lend(target);
        Lent { admission, entry }
    }
}

/// A permit that may have been taken back.
pub(crate) struct Lent<'a, E: Env> {
    admission: &'a Admission<E>,
    entry: &'a Entry,
}

impl<E: Env> Drop for Lent<'_, E> {
    fn drop(&mut self) {
        if self.entry.take_lent().is_some() {
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

    /// Sessions that each send `counts` requests of a millisecond through a gate of `depth`; who was let in, in
    /// order.
    fn order(seed: u64, depth: u32, counts: &[usize]) -> Vec<u128> {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let gate = Arc::new(Admission::new(&env, depth));
        let served = Arc::new(Mutex::new(Vec::new()));
        for (session, &count) in counts.iter().enumerate() {
            for _ in 0..count {
                let (gate, served, world) = (Arc::clone(&gate), Arc::clone(&served), env.clone());
                let session = session as u128;
                env.spawn("request", move || async move {
                    // Everybody is there before the first is done.
                    world.sleep(Nanos(session as u64)).await;
                    let _permit = gate.enter(SessionId(session)).await;
                    assert!(running(gate.word.load(Ordering::Relaxed)) <= gate.depth);
                    served.lock().push(session);
                    world.sleep(Nanos::from_ms(1)).await;
                })
                .expect("a task");
            }
        }
        sim.run();
        assert_eq!(gate.queued(), 0);
        let served = served.lock().clone();
        assert_eq!(served.len(), counts.iter().sum::<usize>());
        served
    }

    #[test]
    fn sessions_take_turns_however_many_requests_each_has() {
        for seed in 0..20 {
            eprintln!("seed {seed}");
            for depth in [1, 4] {
                let served = order(seed, depth, &[400, 20, 20, 1]);
                // As long as three wait, no session is more than a turn ahead of another; of those let in at one
                // instant the seed picks who runs first.
                let contended = &served[depth as usize..60];
                for until in 0..contended.len() {
                    let count = |session| contended[..until].iter().filter(|&&it| it == session).count();
                    assert!(count(0).abs_diff(count(1)) <= depth as usize, "{contended:?}");
                    assert!(count(1).abs_diff(count(2)) <= depth as usize, "{contended:?}");
                }
                assert!(
                    served[..depth as usize + 4].contains(&3),
                    "the one request of a quiet session waits its turn"
                );
            }
        }
    }

    #[test]
    fn a_seed_decides_the_order() {
        assert_eq!(order(7, 2, &[50, 50, 50]), order(7, 2, &[50, 50, 50]));
    }

    /// Gives up after `patience`, as a task does whose process dies.
    async fn give_up<F: Future>(env: &SimEnv, patience: Nanos, future: F) -> Option<F::Output> {
        let (mut future, mut end) = (std::pin::pin!(future), std::pin::pin!(env.sleep(patience)));
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
    fn who_gives_up_or_panics_leaves_nothing_behind() {
        for seed in 0..50 {
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let gate = Arc::new(Admission::new(&env, 2));
            for task in 0..40_u64 {
                let (gate, world) = (Arc::clone(&gate), env.clone());
                env.spawn("request", move || async move {
                    let request = async {
                        let permit = gate.enter(SessionId((task % 5).into())).await;
                        world.sleep(Nanos(1000)).await;
                        if task % 7 == 0 {
                            let broken = std::panic::AssertUnwindSafe(move || {
                                let _permit = permit;
                                std::panic::resume_unwind(Box::new("a bug"));
                            });
                            assert!(std::panic::catch_unwind(broken).is_err());
                        }
                    };
                    // Some give up before their turn, some at the very instant at which it comes.
                    give_up(&world, Nanos(500 * (task % 9)), request).await;
                })
                .expect("a task");
            }
            sim.run();
            assert_eq!(gate.word.load(Ordering::Relaxed), 0, "seed {seed}");
            assert!(gate.queue.lock().sessions.is_empty());
        }
    }

    #[test]
    fn threads_pass_at_most_as_many_as_allowed() {
        use std::sync::atomic::AtomicU32;
        use weft_env::real::{RealEnv, block_on};
        let gate = Admission::new(&RealEnv::new(), 3);
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8_u128 {
                let (gate, inside, most) = (&gate, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let _permit = block_on(gate.enter(SessionId(thread % 3)));
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(gate.word.load(Ordering::Relaxed), 0);
    }
}

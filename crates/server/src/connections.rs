//! The connections open now, so that others can end them and wait for their end.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weft_core::{Nanos, TargetId, Timestamp};
use weft_env::{Closer, Env, Notify};
use weft_wire::{ClusterSecret, KeyClaims};

/// A user has as many connections as one user may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverShare {
    /// How many that is.
    pub max: u32,
}

/// All connections of a server.
pub(crate) struct Connections<E: Env> {
    limit: usize,
    inner: Mutex<Inner>,
    /// Counts every end of a connection.
    pub ended: E::Notify,
}

struct Inner {
    next: u64,
    open: BTreeMap<u64, Arc<Entry>>,
    /// Of those, the ones whose peers have authenticated themselves.
    admitted: usize,
    /// Connections of each user who has any, those of servers left out.
    by_user: BTreeMap<u32, u32>,
    /// The last time at which the server was seen in use.
    last_used: Nanos,
}

/// One connection, as its own task and others share it.
pub(crate) struct Entry {
    pub id: u64,
    pub closer: Arc<dyn Closer>,
    busy: AtomicBool,
    /// Counted among those that have authenticated themselves.
    is_admitted: AtomicBool,
    /// Another server of the cluster is at the other end.
    of_server: AtomicBool,
    /// The user at the other end, plus one; 0 before the greeting is over.
    user: AtomicU64,
    /// Payload memory is kept for bytes that the peer has still to send or to take.
    holds_memory: AtomicBool,
    /// When a stalling peer is given up, on the clock of the environment; 0 while nothing is expected of it.
    deadline: AtomicU64,
    /// How long a peer may stall.
    patience: AtomicU64,
    /// Above zero: the number, plus one, of the target whose turn this connection has while it sends.
    lent: AtomicU64,
    /// The key that its peer has proven.
    key: OnceLock<KeyClaims>,
    /// The present, to the second: the hot path has no need to ask the clock.
    clock: Arc<AtomicU64>,
}

impl Entry {
    /// From here on the peer has to do its part, in a bounded time.
    pub fn expect_peer(&self) {
        let until = self.clock.load(Ordering::Relaxed) + self.patience.load(Ordering::Relaxed);
        self.deadline.store(until, Ordering::Relaxed);
    }

    /// From here on, or no longer, payload memory waits for the peer.
    pub fn set_holds_memory(&self, holds: bool) {
        self.holds_memory.store(holds, Ordering::Relaxed);
    }

    /// From here to [`take_lent`](Self::take_lent) it has a turn of this target that may be taken back.
    pub fn lend(&self, target: TargetId) {
        self.lent.store(u64::from(target.0) + 1, Ordering::Release);
    }

    /// The target whose turn it had until now, if nobody has taken that back.
    pub fn take_lent(&self) -> Option<TargetId> {
        let lent = self.lent.swap(0, Ordering::AcqRel);
        lent.checked_sub(1).map(|target| TargetId(target as u32))
    }

    /// Whether the peer has done nothing of its part for `duration`.
    fn has_stalled_for(&self, duration: Nanos, now: Nanos) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        let began = deadline.saturating_sub(self.patience.load(Ordering::Relaxed));
        deadline != 0 && began + duration.0 < now.0
    }

    /// Nothing is expected of the peer.
    pub fn at_ease(&self) {
        self.deadline.store(0, Ordering::Relaxed);
    }

    /// The greeting is over: from here on each message has its own time.
    pub fn greeted(&self, of_server: bool, patience: Nanos) {
        self.of_server.store(of_server, Ordering::Relaxed);
        self.patience.store(patience.0, Ordering::Relaxed);
        self.at_ease();
    }

    /// The connection lasts as long as this key.
    pub fn depends_on(&self, key: KeyClaims) {
        let _ = self.key.set(key); // a connection is greeted once
    }

    /// Whether a request is being served. In one order with the server's stop flag.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::SeqCst);
    }
}

impl<E: Env> Connections<E> {
    pub fn new(env: &E, limit: u32) -> Self {
        let inner = Inner {
            next: 0,
            open: BTreeMap::new(),
            admitted: 0,
            by_user: BTreeMap::new(),
            last_used: env.now(),
        };
        Self { limit: limit as usize, inner: Mutex::new(inner), ended: env.notify() }
    }

    /// Adds one whose peer may greet.
    pub fn add(
        &self,
        closer: Box<dyn Closer>,
        clock: &Arc<AtomicU64>,
        greeting_timeout: Nanos,
    ) -> Arc<Entry> {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let entry = Arc::new(Entry {
            id: inner.next,
            closer: Arc::from(closer),
            busy: AtomicBool::new(false),
            is_admitted: AtomicBool::new(false),
            of_server: AtomicBool::new(false),
            user: AtomicU64::new(0),
            holds_memory: AtomicBool::new(false),
            deadline: AtomicU64::new(clock.load(Ordering::Relaxed) + greeting_timeout.0),
            patience: AtomicU64::new(greeting_timeout.0),
            lent: AtomicU64::new(0),
            key: OnceLock::new(),
            clock: Arc::clone(clock),
        });
        inner.open.insert(entry.id, Arc::clone(&entry));
        entry
    }

    /// The peer of `entry` has authenticated itself: whether there is room for one more.
    pub fn admit(&self, entry: &Entry) -> bool {
        let mut inner = self.inner.lock();
        if inner.admitted >= self.limit {
            return false;
        }
        let was_admitted = entry.is_admitted.swap(true, Ordering::Relaxed);
        assert!(!was_admitted, "a connection is greeted once");
        inner.admitted += 1;
        true
    }

    pub fn remove(&self, id: u64, now: Nanos) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.open.remove(&id) {
            if entry.is_admitted.load(Ordering::Relaxed) {
                inner.admitted -= 1;
            }
            let user = entry.user.load(Ordering::Relaxed);
            if let Some(uid) = user.checked_sub(1).map(|uid| uid as u32)
                && let Some(count) = inner.by_user.get_mut(&uid)
            {
                *count -= 1;
                if *count == 0 {
                    inner.by_user.remove(&uid);
                }
            }
        }
        inner.last_used = now;
        drop(inner);
        self.ended.notify_all();
    }

    /// Counts a connection as one of `uid` until it ends.
    ///
    /// # Errors
    /// When the user has `max` connections already: it is not counted then.
    pub fn count_for(&self, entry: &Entry, uid: u32, max: Option<u32>) -> Result<(), OverShare> {
        let mut inner = self.inner.lock();
        let count = inner.by_user.get(&uid).copied().unwrap_or(0);
        if let Some(max) = max.filter(|max| count >= *max) {
            return Err(OverShare { max });
        }
        let before = entry.user.swap(u64::from(uid) + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "a connection is greeted once");
        inner.by_user.insert(uid, count + 1);
        Ok(())
    }

    /// Connections of each user who has any.
    pub fn by_user(&self) -> BTreeMap<u32, u32> {
        self.inner.lock().by_user.clone()
    }

    pub fn count(&self) -> usize {
        self.inner.lock().open.len()
    }

    /// For how long nobody has used the server. That other servers keep a connection for later is no use.
    pub fn idle_for(&self, now: Nanos) -> Nanos {
        let mut inner = self.inner.lock();
        let uses = |entry: &Arc<Entry>| {
            !entry.of_server.load(Ordering::Relaxed) || entry.busy.load(Ordering::SeqCst)
        };
        if inner.open.values().any(uses) {
            inner.last_used = now;
        }
        now.saturating_sub(inner.last_used)
    }

    /// Ends those whose peers have stalled for too long; the number of them.
    pub fn close_overdue(&self, now: Nanos) -> usize {
        let overdue = |entry: &&Arc<Entry>| {
            let deadline = entry.deadline.load(Ordering::Relaxed);
            deadline != 0 && deadline < now.0
        };
        let inner = self.inner.lock();
        let overdue = inner.open.values().filter(overdue);
        overdue.map(|entry| entry.closer.close()).count()
    }

    /// Ends those for which payload memory has waited for longer than `patience`; the number of them.
    pub fn close_holders(&self, patience: Nanos, now: Nanos) -> usize {
        let inner = self.inner.lock();
        let holds = |entry: &&Arc<Entry>| {
            entry.holds_memory.load(Ordering::Relaxed) && entry.has_stalled_for(patience, now)
        };
        inner.open.values().filter(holds).map(|entry| entry.closer.close()).count()
    }

    /// Ends those whose keys are not accepted any more; the number of them.
    pub fn close_refused(&self, secret: &ClusterSecret, now: Timestamp) -> usize {
        let is_refused =
            |entry: &&Arc<Entry>| entry.key.get().is_some_and(|key| secret.check_key(key, now).is_err());
        let inner = self.inner.lock();
        inner.open.values().filter(is_refused).map(|entry| entry.closer.close()).count()
    }

    /// Takes back the turns of those whose peers are slow to take what they read; the targets, one for each.
    pub fn take_slow_turns(&self, patience: Nanos, now: Nanos) -> Vec<TargetId> {
        let inner = self.inner.lock();
        let slow = inner.open.values().filter(|entry| entry.has_stalled_for(patience, now));
        slow.filter_map(|entry| entry.take_lent()).collect()
    }

    /// Ends those that serve no request, or all.
    pub fn close(&self, busy_too: bool) {
        for entry in self.inner.lock().open.values() {
            if busy_too || !entry.busy.load(Ordering::SeqCst) {
                entry.closer.close();
            }
        }
    }
}

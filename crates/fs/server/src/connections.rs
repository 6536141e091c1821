//! The open connections, so that other tasks can end them and wait for their end.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weft_core::{Nanos, TargetId, Timestamp};
use weft_env::{Closer, Env, Notify};
use weft_wire::{BoundSession, ClusterSecret, KeyClaims};

/// A user has as many connections as one user may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverUserLimit {
    /// Maximum number of connections of one user.
    pub max: u32,
}

/// All connections of a server.
pub(crate) struct Connections<E: Env> {
    limit: usize,
    inner: Mutex<Inner>,
    /// Notified when a connection ends.
    pub ended: E::Notify,
}

struct Inner {
    next: u64,
    open: BTreeMap<u64, Arc<Entry>>,
    /// Number of open connections whose peers have authenticated.
    admitted: usize,
    /// Connections by user, without those of servers.
    by_user: BTreeMap<u32, u32>,
    /// Latest connection of each place of a session.
    by_place: BTreeMap<Place, u64>,
    /// Time at which the server was last in use.
    last_used: Nanos,
}

/// Session and number of a connection. A client that lost a connection, or got no answer on it, makes another one with the
/// same number and repeats its requests there.
pub(crate) type Place = (BoundSession, u32);

/// One connection, shared by its own task and others.
pub(crate) struct Entry {
    pub id: u64,
    pub closer: Arc<dyn Closer>,
    busy: AtomicBool,
    /// Whether it counts as authenticated.
    is_admitted: AtomicBool,
    /// Whether the peer is a server of the cluster.
    of_server: AtomicBool,
    /// User id plus one; 0 until the greeting is over.
    user: AtomicU64,
    /// Whether payload memory is held for bytes that the peer must send or receive.
    holds_memory: AtomicBool,
    /// Time at which a stalling peer is disconnected; 0 while nothing is expected of it.
    deadline: AtomicU64,
    /// Time for which the peer may stall.
    stall_timeout: AtomicU64,
    /// Number plus one of the target whose admission this connection holds while it sends, else 0.
    revocable_target: AtomicU64,
    /// Key that the peer has proven.
    key: OnceLock<KeyClaims>,
    /// Place of the connection, once the peer has greeted.
    place: OnceLock<Place>,
    /// Whether the peer has made another connection for the same place.
    is_superseded: AtomicBool,
    /// Current time, to the second. Reading it is cheaper than the clock.
    clock: Arc<AtomicU64>,
}

impl Entry {
    /// Starts the time limit for the peer to send or receive.
    pub fn expect_peer(&self) {
        let until = self.clock.load(Ordering::Relaxed) + self.stall_timeout.load(Ordering::Relaxed);
        self.deadline.store(until, Ordering::Relaxed);
    }

    /// Sets whether payload memory is held for the peer.
    pub fn set_holds_memory(&self, holds: bool) {
        self.holds_memory.store(holds, Ordering::Relaxed);
    }

    /// Marks the admission to a target as revocable until [`take_revocable`](Self::take_revocable).
    pub fn set_revocable(&self, target: TargetId) {
        self.revocable_target.store(u64::from(target.0) + 1, Ordering::Release);
    }

    /// Ends that mark. Returns the target if the admission was not revoked meanwhile.
    pub fn take_revocable(&self) -> Option<TargetId> {
        let revocable_target = self.revocable_target.swap(0, Ordering::AcqRel);
        revocable_target.checked_sub(1).map(|target| TargetId(target as u32))
    }

    /// Whether the peer has stalled for `duration`.
    fn has_stalled_for(&self, duration: Nanos, now: Nanos) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        let began = deadline.saturating_sub(self.stall_timeout.load(Ordering::Relaxed));
        deadline != 0 && began + duration.0 < now.0
    }

    /// Ends the time limit for the peer.
    pub fn stop_expecting(&self) {
        self.deadline.store(0, Ordering::Relaxed);
    }

    /// Ends the greeting. From now on each message has its own time limit.
    pub fn greeted(&self, of_server: bool, stall_timeout: Nanos) {
        self.of_server.store(of_server, Ordering::Relaxed);
        self.stall_timeout.store(stall_timeout.0, Ordering::Relaxed);
        self.stop_expecting();
    }

    /// Whether the connection's key is no longer accepted.
    pub fn has_refused_key(&self, secret: &ClusterSecret, now: Timestamp) -> bool {
        self.key.get().is_some_and(|key| secret.check_key(key, now).is_err())
    }

    /// Whether the peer has made another connection for the same place, so that nothing more is served here.
    pub fn is_superseded(&self) -> bool {
        self.is_superseded.load(Ordering::SeqCst)
    }

    /// Ties the connection to this key.
    pub fn depends_on(&self, key: KeyClaims) {
        let _ = self.key.set(key); // a connection is greeted once
    }

    /// Sets whether a request is being served. Sequentially consistent with the server's stop flag.
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
            by_place: BTreeMap::new(),
            last_used: env.now(),
        };
        Self { limit: limit as usize, inner: Mutex::new(inner), ended: env.notify() }
    }

    /// Adds a connection whose peer may greet.
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
            stall_timeout: AtomicU64::new(greeting_timeout.0),
            revocable_target: AtomicU64::new(0),
            key: OnceLock::new(),
            place: OnceLock::new(),
            is_superseded: AtomicBool::new(false),
            clock: Arc::clone(clock),
        });
        inner.open.insert(entry.id, Arc::clone(&entry));
        entry
    }

    /// Counts `entry` as authenticated; false if the limit is reached.
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
            if let Some(place) = entry.place.get()
                && inner.by_place.get(place) == Some(&id)
            {
                inner.by_place.remove(place);
            }
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

    /// Ends the former connection of `place`, and waits until its request in progress has ended. Requests that it has not
    /// begun are never served: the peer repeats them here, and they must not change anything after later ones.
    pub async fn supersede(&self, entry: &Entry, place: Place) {
        let former = {
            let inner = &mut *self.inner.lock();
            let first = entry.place.set(place);
            assert!(first.is_ok(), "a connection is greeted once");
            let former = inner.by_place.insert(place, entry.id);
            former.and_then(|id| inner.open.get(&id)).map(Arc::clone)
        };
        let Some(former) = former else { return };
        former.is_superseded.store(true, Ordering::SeqCst);
        former.closer.close();
        loop {
            let seen = self.ended.epoch();
            if !self.inner.lock().open.contains_key(&former.id) {
                return;
            }
            self.ended.wait(seen, None).await;
        }
    }

    /// Counts a connection for `uid` until it ends.
    ///
    /// # Errors
    /// The user already has `max` connections; it is not counted then.
    pub fn count_for(&self, entry: &Entry, uid: u32, max: Option<u32>) -> Result<(), OverUserLimit> {
        let mut inner = self.inner.lock();
        let count = inner.by_user.get(&uid).copied().unwrap_or(0);
        if let Some(max) = max.filter(|max| count >= *max) {
            return Err(OverUserLimit { max });
        }
        let before = entry.user.swap(u64::from(uid) + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "a connection is greeted once");
        inner.by_user.insert(uid, count + 1);
        Ok(())
    }

    /// Connections by user, without empty entries.
    pub fn by_user(&self) -> BTreeMap<u32, u32> {
        self.inner.lock().by_user.clone()
    }

    pub fn count(&self) -> usize {
        self.inner.lock().open.len()
    }

    /// Time for which the server has not been used. Idle connections of other servers are no use.
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

    /// Closes connections whose peers have stalled for too long. Returns their number.
    pub fn close_overdue(&self, now: Nanos) -> usize {
        let overdue = |entry: &&Arc<Entry>| {
            let deadline = entry.deadline.load(Ordering::Relaxed);
            deadline != 0 && deadline < now.0
        };
        let inner = self.inner.lock();
        let overdue = inner.open.values().filter(overdue);
        overdue.map(|entry| entry.closer.close()).count()
    }

    /// Closes connections that have held payload memory for a stalled peer for longer than `stall_timeout`. Returns
    /// their number.
    pub fn close_memory_holders(&self, stall_timeout: Nanos, now: Nanos) -> usize {
        let inner = self.inner.lock();
        let holds = |entry: &&Arc<Entry>| {
            entry.holds_memory.load(Ordering::Relaxed) && entry.has_stalled_for(stall_timeout, now)
        };
        inner.open.values().filter(holds).map(|entry| entry.closer.close()).count()
    }

    /// Closes connections whose keys are no longer accepted. Returns their number.
    pub fn close_refused(&self, secret: &ClusterSecret, now: Timestamp) -> usize {
        let is_refused = |entry: &&Arc<Entry>| entry.has_refused_key(secret, now);
        let inner = self.inner.lock();
        inner.open.values().filter(is_refused).map(|entry| entry.closer.close()).count()
    }

    /// Revokes the admission of connections whose peers are slow to receive. Returns one target for each.
    pub fn revoke_slow_permits(&self, stall_timeout: Nanos, now: Nanos) -> Vec<TargetId> {
        let inner = self.inner.lock();
        let slow = inner.open.values().filter(|entry| entry.has_stalled_for(stall_timeout, now));
        slow.filter_map(|entry| entry.take_revocable()).collect()
    }

    /// Closes idle connections, or all.
    pub fn close(&self, busy_too: bool) {
        for entry in self.inner.lock().open.values() {
            if busy_too || !entry.busy.load(Ordering::SeqCst) {
                entry.closer.close();
            }
        }
    }
}

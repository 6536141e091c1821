//! A bounded pool of connections to one server. The connection released last is used first, so that a thread keeps its
//! warm one and the others stay idle.

use crate::connection::Connection;
use parking_lot::Mutex;
use weft_env::{Env, Notify};
use weft_wire::meta::MetaCall;

/// A numbered place for a connection, which outlives the connection itself. Number and sequence continue after a
/// reconnection, so that the metadata server recognizes a repeated request.
pub(crate) struct PooledConnection<E: Env> {
    /// Number of this place within the session.
    pub(crate) number: u32,
    /// Sequence number of the last request that changes something.
    pub(crate) seq: u64,
    /// The connection; `None` before the first use and after a loss.
    pub(crate) connection: Option<Box<Connection<E>>>,
    /// One-way messages since the last reply. They are sent again if the connection is lost, because they may not have
    /// arrived.
    pub(crate) unacknowledged: Vec<MetaCall>,
}

/// The connections to one server.
pub(crate) struct Pool<E: Env> {
    state: Mutex<PoolState<E>>,
    notify: E::Notify,
    connections_max: u32,
}

struct PoolState<E: Env> {
    /// Unused places; the connected ones last.
    idle: Vec<PooledConnection<E>>,
    first_number: u32,
    made: u32,
    /// Number of places that [`Pool::keep_connected`] has dropped.
    dropped: u32,
    /// Whether no further places are made.
    is_full: bool,
    waiting: u32,
}

/// A place in use; returned to the pool when it is dropped.
pub(crate) struct PoolGuard<'a, E: Env> {
    pool: &'a Pool<E>,
    pooled: Option<PooledConnection<E>>,
}

impl<E: Env> Pool<E> {
    pub(crate) fn new(env: &E, first_number: u32, connections_max: u32) -> Self {
        let state =
            PoolState { idle: Vec::new(), first_number, made: 0, dropped: 0, is_full: false, waiting: 0 };
        Self { state: Mutex::new(state), notify: env.notify(), connections_max: connections_max.max(1) }
    }

    /// Takes a place as soon as one is free. A task that needs places of several servers takes them in ascending order
    /// of the servers, so that two tasks cannot wait for each other.
    pub(crate) async fn acquire(&self) -> PoolGuard<'_, E> {
        let mut is_counted = false;
        loop {
            let seen = self.notify.epoch();
            {
                let mut state = self.state.lock();
                let pooled = state.idle.pop().or_else(|| state.make(self.connections_max));
                if let Some(pooled) = pooled {
                    state.waiting -= u32::from(is_counted);
                    return PoolGuard { pool: self, pooled: Some(pooled) };
                }
                state.waiting += u32::from(!is_counted);
                is_counted = true;
            }
            self.notify.wait(seen, None).await;
        }
    }

    /// Closes a forked child's copies of all idle connections without a message to the server, because they belong to
    /// the parent. A connection that another thread used during the fork stays open and is never used.
    pub(crate) fn forget(&self) {
        if let Some(mut state) = self.state.try_lock() {
            state.idle.clear();
        }
    }

    /// Closes all idle connections.
    pub(crate) fn disconnect_idle(&self) {
        let closed: Vec<_> =
            self.state.lock().idle.iter_mut().map(|pooled| pooled.connection.take()).collect();
        drop(closed);
    }

    /// Whether an idle place is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().idle.last().is_some_and(|pooled| pooled.connection.is_some())
    }

    /// Makes no further places, and drops those without a connection as long as another remains: a task then waits for a
    /// connection instead of making one.
    pub(crate) fn keep_connected(&self) {
        let mut state = self.state.lock();
        let in_use = state.made as usize > state.idle.len() + state.dropped as usize;
        let is_any = in_use || state.idle.iter().any(|pooled| pooled.connection.is_some());
        if is_any {
            let before = state.idle.len();
            state.idle.retain(|pooled| pooled.connection.is_some());
            state.dropped += (before - state.idle.len()) as u32;
            state.is_full = true;
        }
    }

    fn release(&self, pooled: PooledConnection<E>) {
        let wake = {
            let mut state = self.state.lock();
            if pooled.connection.is_some() {
                state.idle.push(pooled);
            } else {
                state.idle.insert(0, pooled);
            }
            state.waiting > 0
        };
        if wake {
            self.notify.notify_all();
        }
    }
}

impl<E: Env> PoolState<E> {
    fn make(&mut self, connections_max: u32) -> Option<PooledConnection<E>> {
        if self.made == connections_max || self.is_full {
            return None;
        }
        let number = self.first_number + self.made;
        self.made += 1;
        Some(PooledConnection { number, seq: 0, connection: None, unacknowledged: Vec::new() })
    }
}

impl<E: Env> std::ops::Deref for PoolGuard<'_, E> {
    type Target = PooledConnection<E>;
    fn deref(&self) -> &PooledConnection<E> {
        self.pooled.as_ref().expect("in use until dropped")
    }
}

impl<E: Env> std::ops::DerefMut for PoolGuard<'_, E> {
    fn deref_mut(&mut self) -> &mut PooledConnection<E> {
        self.pooled.as_mut().expect("in use until dropped")
    }
}

impl<E: Env> Drop for PoolGuard<'_, E> {
    fn drop(&mut self) {
        if let Some(mut pooled) = self.pooled.take() {
            // The next request would take an unreceived reply for its own.
            if pooled.connection.as_ref().is_some_and(|connection| connection.replies_pending > 0) {
                pooled.connection = None;
            }
            self.pool.release(pooled);
        }
    }
}

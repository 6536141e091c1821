//! A bounded pool of connections to one server. The last one given back is lent first, so that a thread keeps its
//! warm one and the rest may sleep.

use crate::connect::Wire;
use parking_lot::Mutex;
use weft_env::{Env, Notify};
use weft_wire::meta::MetaCall;

/// A place for a connection. It outlives the connection: number and sequence go on after a reconnection, so that
/// the metadata service can recognize a repeated request.
pub(crate) struct Line<E: Env> {
    /// Number of this connection within the session.
    pub(crate) number: u32,
    /// Number of the last mutating request.
    pub(crate) seq: u64,
    /// The connection; `None` before the first use and after a loss.
    pub(crate) wire: Option<Box<Wire<E>>>,
    /// What was said without waiting since the last reply: said again if the connection is lost, because nobody
    /// knows whether it was heard.
    pub(crate) told: Vec<MetaCall>,
}

/// The connections to one server.
pub(crate) struct Pool<E: Env> {
    state: Mutex<State<E>>,
    notify: E::Notify,
    lines_max: u32,
}

struct State<E: Env> {
    /// Connected ones last.
    idle: Vec<Line<E>>,
    first_number: u32,
    made: u32,
    waiting: u32,
}

/// A line lent out; given back when dropped.
pub(crate) struct Lent<'a, E: Env> {
    pool: &'a Pool<E>,
    line: Option<Line<E>>,
}

impl<E: Env> Pool<E> {
    pub(crate) fn new(env: &E, first_number: u32, lines_max: u32) -> Self {
        let state = State { idle: Vec::new(), first_number, made: 0, waiting: 0 };
        Self { state: Mutex::new(state), notify: env.notify(), lines_max: lines_max.max(1) }
    }

    /// A line, as soon as one is free. A task that needs lines of several servers takes them in ascending order of
    /// the servers, so that no two can wait for each other.
    pub(crate) async fn lend(&self) -> Lent<'_, E> {
        let mut counted = false;
        loop {
            let seen = self.notify.epoch();
            {
                let mut state = self.state.lock();
                let line = state.idle.pop().or_else(|| state.make(self.lines_max));
                if let Some(line) = line {
                    state.waiting -= u32::from(counted);
                    return Lent { pool: self, line: Some(line) };
                }
                state.waiting += u32::from(!counted);
                counted = true;
            }
            self.notify.wait(seen, None).await;
        }
    }

    /// Closes this process's copies of all idle connections without a word to the server: in a forked child they
    /// are the parent's. What another thread held at the time of the fork stays open; nobody can reach it.
    pub(crate) fn forget(&self) {
        if let Some(mut state) = self.state.try_lock() {
            state.idle.clear();
        }
    }

    /// Closes all idle connections.
    pub(crate) fn disconnect_idle(&self) {
        let closed: Vec<_> = self.state.lock().idle.iter_mut().map(|line| line.wire.take()).collect();
        drop(closed);
    }

    fn give_back(&self, line: Line<E>) {
        let wake = {
            let mut state = self.state.lock();
            if line.wire.is_some() {
                state.idle.push(line);
            } else {
                state.idle.insert(0, line);
            }
            state.waiting > 0
        };
        if wake {
            self.notify.notify_all();
        }
    }
}

impl<E: Env> State<E> {
    fn make(&mut self, lines_max: u32) -> Option<Line<E>> {
        if self.made == lines_max {
            return None;
        }
        let number = self.first_number + self.made;
        self.made += 1;
        Some(Line { number, seq: 0, wire: None, told: Vec::new() })
    }
}

impl<E: Env> std::ops::Deref for Lent<'_, E> {
    type Target = Line<E>;
    fn deref(&self) -> &Line<E> {
        self.line.as_ref().expect("lent until dropped")
    }
}

impl<E: Env> std::ops::DerefMut for Lent<'_, E> {
    fn deref_mut(&mut self) -> &mut Line<E> {
        self.line.as_mut().expect("lent until dropped")
    }
}

impl<E: Env> Drop for Lent<'_, E> {
    fn drop(&mut self) {
        if let Some(mut line) = self.line.take() {
            // A reply that nobody received would be taken for that of the next request.
            if line.wire.as_ref().is_some_and(|wire| wire.awaited > 0) {
                line.wire = None;
            }
            self.pool.give_back(line);
        }
    }
}

//! Sessions: client processes with their connections, and what mounts among them must be told.

use std::collections::{BTreeMap, VecDeque};
use weft_core::{FileId, Nanos};
use weft_wire::BoundSession;
use weft_wire::meta::Event;

/// How long the last replies of an ended session are kept for a client that may come back and ask again.
pub(super) const REPLIES_KEPT: Nanos = Nanos::from_s(600);

/// One client process.
#[derive(Debug, Default)]
struct Session {
    connections: u32,
    /// That it holds locks is noted in the database.
    noted: bool,
    /// One event per file at most: a newer one takes the older one's range in.
    events: BTreeMap<u64, Event>,
    last_event: u64,
    /// It has asked for events: it is a mount.
    listens: bool,
    /// All up to this one are done.
    done: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    alive: BTreeMap<BoundSession, Session>,
    ended: BTreeMap<BoundSession, Nanos>,
    ended_order: VecDeque<(Nanos, BoundSession)>,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.alive.len()
    }

    pub(super) fn connected(&mut self, session: BoundSession) {
        self.ended.remove(&session);
        self.alive.entry(session).or_default().connections += 1;
    }

    /// Whether that was its last connection; the session is gone then.
    pub(super) fn disconnected(&mut self, session: BoundSession, now: Nanos) -> bool {
        let Some(entry) = self.alive.get_mut(&session) else { return false };
        entry.connections -= 1;
        if entry.connections > 0 {
            return false;
        }
        self.alive.remove(&session);
        self.has_ended(session, now);
        true
    }

    pub(super) fn has_ended(&mut self, session: BoundSession, now: Nanos) {
        self.ended.insert(session, now);
        self.ended_order.push_back((now, session));
    }

    /// Sessions that ended so long ago that their replies may go.
    pub(super) fn take_forgotten(&mut self, now: Nanos) -> Vec<BoundSession> {
        let mut forgotten = Vec::new();
        while let Some(&(at, session)) = self.ended_order.front() {
            if at.saturating_add(REPLIES_KEPT) > now {
                break;
            }
            self.ended_order.pop_front();
            if self.ended.get(&session) == Some(&at) {
                self.ended.remove(&session);
                forgotten.push(session);
            }
        }
        forgotten
    }

    /// Whether the database has to be told that this session holds locks.
    pub(super) fn note_locks(&mut self, session: BoundSession) -> bool {
        self.alive.get_mut(&session).is_some_and(|entry| !std::mem::replace(&mut entry.noted, true))
    }

    /// Undoes [`Sessions::note_locks`] after the write to the database failed.
    pub(super) fn forget_note(&mut self, session: BoundSession) {
        if let Some(entry) = self.alive.get_mut(&session) {
            entry.noted = false;
        }
    }

    /// Whether the database has a row for this session, or gets it.
    pub(super) fn is_noted(&self, session: BoundSession) -> bool {
        self.alive.get(&session).is_some_and(|entry| entry.noted)
    }

    /// Tells a session to drop pages; the number that it acknowledges.
    pub(super) fn tell(&mut self, session: BoundSession, file: FileId, start: u64, end: u64) -> Option<u64> {
        let entry = self.alive.get_mut(&session)?;
        let older = entry.events.iter().find(|(_, event)| event.file == file).map(|(number, _)| *number);
        let older = older.and_then(|number| entry.events.remove(&number));
        let (start, end) = older.map_or((start, end), |old| (start.min(old.start), end.max(old.end)));
        entry.last_event += 1;
        let number = entry.last_event;
        entry.events.insert(number, Event { number, file, start, end });
        Some(number)
    }

    /// Whether the session has asked for events, as mounts do.
    pub(super) fn listens(&self, session: BoundSession) -> bool {
        self.alive.get(&session).is_some_and(|entry| entry.listens)
    }

    /// All events up to `done` are done.
    pub(super) fn acknowledge(&mut self, session: BoundSession, done: u64) {
        if let Some(entry) = self.alive.get_mut(&session) {
            entry.listens = true;
            entry.done = entry.done.max(done.min(entry.last_event));
            entry.events = entry.events.split_off(&(entry.done + 1));
        }
    }

    pub(super) fn events(&self, session: BoundSession) -> Vec<Event> {
        self.alive.get(&session).map(|entry| entry.events.values().cloned().collect()).unwrap_or_default()
    }

    /// Whether a session has done event `number`, or can do nothing more.
    pub(super) fn has_done(&self, session: BoundSession, number: u64) -> bool {
        self.alive.get(&session).is_none_or(|entry| entry.done >= number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_file_join_and_are_done_in_order() {
        let mut sessions = Sessions::default();
        let (a, file) = (BoundSession(1), FileId(7));
        assert_eq!(sessions.tell(a, file, 0, 1), None, "nobody there");
        sessions.connected(a);
        assert_eq!(sessions.tell(a, file, 0, 10), Some(1));
        assert_eq!(sessions.tell(a, FileId(8), 0, 1), Some(2));
        assert_eq!(sessions.tell(a, file, 5, 20), Some(3));
        assert_eq!(sessions.events(a)[1], Event { number: 3, file, start: 0, end: 20 });
        sessions.acknowledge(a, 2);
        assert!(sessions.has_done(a, 1) && !sessions.has_done(a, 3));
        assert_eq!(sessions.events(a).len(), 1);
        sessions.acknowledge(a, 99);
        assert!(!sessions.has_done(a, 4), "what was not told is not done");
        assert!(sessions.disconnected(a, Nanos(0)));
        assert!(sessions.has_done(a, 4), "the dead hold nobody up");
    }

    #[test]
    fn replies_are_kept_for_those_who_come_back() {
        let mut sessions = Sessions::default();
        let late = REPLIES_KEPT;
        sessions.connected(BoundSession(1));
        sessions.connected(BoundSession(2));
        assert!(sessions.disconnected(BoundSession(1), Nanos(0)));
        assert!(sessions.disconnected(BoundSession(2), Nanos(0)));
        sessions.connected(BoundSession(2));
        assert_eq!(sessions.take_forgotten(Nanos(1)), []);
        assert_eq!(sessions.take_forgotten(late), [BoundSession(1)]);
        assert!(sessions.disconnected(BoundSession(2), late));
        assert_eq!(sessions.take_forgotten(late), []);
    }
}

//! Sessions: client processes with their connections, and events for those that are mounts.

use std::collections::{BTreeMap, VecDeque};
use weft_core::{FileId, Nanos};
use weft_wire::meta::{Event, Outdated};
use weft_wire::{BoundSession, RETRY_FOR_MAX};

/// Time for which the last replies of an ended session are kept for a client that may return and repeat a request. A client
/// waits for a server for at most half of it.
pub(super) const REPLIES_KEPT: Nanos = Nanos(RETRY_FOR_MAX.0 * 2);

/// One client process.
#[derive(Debug, Default)]
struct Session {
    connections: u32,
    /// Whether the database records that it holds locks.
    recorded: bool,
    /// At most one event per file and kind: a newer one includes the older one's range.
    events: BTreeMap<u64, Event>,
    last_event: u64,
    /// Latest event of any session before it connected, which it can never complete.
    before: u64,
    /// Whether it is of a job with I/O delegates.
    is_of_job: bool,
    /// Whether it has asked for events and is of no job, which makes it a mount.
    is_mount: bool,
    /// Number up to which all events are completed.
    done: u64,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    alive: BTreeMap<BoundSession, Session>,
    ended: BTreeMap<BoundSession, Nanos>,
    ended_order: VecDeque<(Nanos, BoundSession)>,
    /// Number of the latest event.
    last_event: u64,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.alive.len()
    }

    /// Whether a process of a job with I/O delegates is connected.
    pub(super) fn has_jobs(&self) -> bool {
        self.alive.values().any(|session| session.is_of_job)
    }

    pub(super) fn connected(&mut self, session: BoundSession, is_of_job: bool) {
        self.ended.remove(&session);
        let before = self.last_event;
        let entry = self.alive.entry(session).or_insert_with(|| Session { before, ..Session::default() });
        entry.connections += 1;
        entry.is_of_job = is_of_job;
    }

    /// Removes a connection. Returns whether it was the session's last; the session is then removed.
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

    /// Removes and returns the sessions whose replies may be deleted.
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

    /// Marks the session as holding locks. Returns whether the database does not record it yet.
    pub(super) fn record_locks(&mut self, session: BoundSession) -> bool {
        self.alive.get_mut(&session).is_some_and(|entry| !std::mem::replace(&mut entry.recorded, true))
    }

    /// Undoes [`Sessions::record_locks`] after the write to the database failed.
    pub(super) fn forget_record(&mut self, session: BoundSession) {
        if let Some(entry) = self.alive.get_mut(&session) {
            entry.recorded = false;
        }
    }

    /// Whether the database has a row for this session, or gets one.
    pub(super) fn is_recorded(&self, session: BoundSession) -> bool {
        self.alive.get(&session).is_some_and(|entry| entry.recorded)
    }

    /// Queues an event. Returns the number that the session will acknowledge. No session ever gets the number of another
    /// event.
    pub(super) fn queue_event(
        &mut self,
        session: BoundSession,
        file: FileId,
        mut outdated: Outdated,
    ) -> Option<u64> {
        let entry = self.alive.get_mut(&session)?;
        let is_alike = |event: &Event| {
            event.file == file && std::mem::discriminant(&event.outdated) == std::mem::discriminant(&outdated)
        };
        let older = entry.events.iter().find(|(_, event)| is_alike(event)).map(|(number, _)| *number);
        let older = older.and_then(|number| entry.events.remove(&number)).map(|event| event.outdated);
        if let (Outdated::Pages { start, end }, Some(Outdated::Pages { start: from, end: to })) =
            (&mut outdated, older)
        {
            (*start, *end) = (from.min(*start), to.max(*end));
        }
        self.last_event += 1;
        let number = self.last_event;
        entry.last_event = number;
        entry.events.insert(number, Event { number, file, outdated });
        Some(number)
    }

    /// Whether the session has asked for events, as mounts do.
    pub(super) fn is_mount(&self, session: BoundSession) -> bool {
        self.alive.get(&session).is_some_and(|entry| entry.is_mount)
    }

    /// Marks all events up to `done` as completed.
    pub(super) fn acknowledge(&mut self, session: BoundSession, done: u64) {
        if let Some(entry) = self.alive.get_mut(&session) {
            entry.is_mount = !entry.is_of_job;
            entry.done = entry.done.max(done.min(entry.last_event));
            entry.events = entry.events.split_off(&(entry.done + 1));
        }
    }

    pub(super) fn events(&self, session: BoundSession) -> Vec<Event> {
        self.alive.get(&session).map(|entry| entry.events.values().cloned().collect()).unwrap_or_default()
    }

    /// Whether a session has completed event `number`. One that has ended has not, even if it has returned.
    pub(super) fn has_acknowledged(&self, session: BoundSession, number: u64) -> bool {
        self.alive.get(&session).is_some_and(|entry| number > entry.before && entry.done >= number)
    }

    /// Whether a session has completed event `number`, or has ended.
    pub(super) fn has_completed(&self, session: BoundSession, number: u64) -> bool {
        self.alive.get(&session).is_none_or(|entry| entry.done >= number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_file_merge_and_complete_in_order() {
        let mut sessions = Sessions::default();
        let (a, file) = (BoundSession(1), FileId(7));
        let pages = |start, end| Outdated::Pages { start, end };
        assert_eq!(sessions.queue_event(a, file, pages(0, 1)), None, "no such session");
        sessions.connected(a, false);
        assert_eq!(sessions.queue_event(a, file, pages(0, 10)), Some(1));
        assert_eq!(sessions.queue_event(a, FileId(8), pages(0, 1)), Some(2));
        assert_eq!(sessions.queue_event(a, file, pages(5, 20)), Some(3));
        assert_eq!(sessions.events(a)[1], Event { number: 3, file, outdated: pages(0, 20) });
        assert_eq!(sessions.queue_event(a, file, Outdated::Name), Some(4));
        assert_eq!(sessions.events(a).len(), 3, "pages and name are different events");
        sessions.acknowledge(a, 2);
        assert!(sessions.has_completed(a, 1) && !sessions.has_completed(a, 3));
        assert_eq!(sessions.events(a).len(), 2);
        sessions.acknowledge(a, 99);
        assert!(sessions.has_acknowledged(a, 4));
        assert!(!sessions.has_completed(a, 5), "an event that was not sent is not completed");
        assert!(sessions.disconnected(a, Nanos(0)));
        assert!(sessions.has_completed(a, 5), "an ended session blocks nothing");
        assert!(!sessions.has_acknowledged(a, 4), "but it has dropped nothing either");
        sessions.connected(a, false);
        assert_eq!(sessions.queue_event(a, file, pages(0, 1)), Some(5), "numbers do not repeat");
        sessions.acknowledge(a, 5);
        assert!(sessions.has_acknowledged(a, 5) && !sessions.has_acknowledged(a, 4), "its event was lost");
    }

    #[test]
    fn replies_are_kept_for_sessions_that_return() {
        let mut sessions = Sessions::default();
        let late = REPLIES_KEPT;
        sessions.connected(BoundSession(1), false);
        sessions.connected(BoundSession(2), false);
        assert!(sessions.disconnected(BoundSession(1), Nanos(0)));
        assert!(sessions.disconnected(BoundSession(2), Nanos(0)));
        sessions.connected(BoundSession(2), false);
        assert_eq!(sessions.take_forgotten(Nanos(1)), []);
        assert_eq!(sessions.take_forgotten(late), [BoundSession(1)]);
        assert!(sessions.disconnected(BoundSession(2), late));
        assert_eq!(sessions.take_forgotten(late), []);
    }
}

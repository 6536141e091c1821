//! Locks: the pure table of `weft-core` with sessions, handles and bounded waiting around it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::locks::{Acquire, LockMode, LockTable, Ticket, Wait};
use weft_core::{ByteRange, FileId, Nanos};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{HandleId, HeldLock, LockKind, LockOwner, LockRange, LockSpace};

/// A place in a queue is given up when nobody asked for it for this long: its client was interrupted.
const TICKET_LIFE: Nanos = Nanos::from_s(5);

/// The append lock is taken from who has had it for so long when somebody else wants it: an append takes two exchanges, and
/// an unlock that was not heard must not hold up everybody else. Safe however late the former holder is: see `fences`.
const APPEND_TERM: Nanos = Nanos::from_s(15);

const SPACES: [LockSpace; 3] = [LockSpace::Record, LockSpace::Flock, LockSpace::Append];

type Key = (FileId, LockSpace);
type Owner = (BoundSession, LockOwner);

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRequest {
    pub session: BoundSession,
    pub file: FileId,
    pub space: LockSpace,
    pub owner: LockOwner,
    pub kind: LockKind,
    pub range: ByteRange,
    pub pid: u32,
    /// The user on whose behalf the request is.
    pub uid: u32,
    /// Bound of the user's ranges and places in queues, if there is one.
    pub user_max: Option<u32>,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockAnswer {
    Granted,
    Wait(u64),
    Refused(Errno),
    /// The user has as many locks as one user may have.
    OverShare,
}

pub(super) fn byte_range(range: LockRange) -> Result<ByteRange, Errno> {
    ByteRange::new(range.start, range.end).ok_or(Errno::EINVAL)
}

fn mode(kind: LockKind) -> LockMode {
    match kind {
        LockKind::Shared => LockMode::Shared,
        LockKind::Exclusive => LockMode::Exclusive,
    }
}

/// Files of which it is remembered who has had locks; beyond it nothing is believed of any.
const REMEMBERED_MAX: usize = 65_536;

/// Who has had locks on which file since the start, so that nobody gets one back that was another's meanwhile.
#[derive(Default)]
struct Past {
    /// `None`: several sessions.
    files: BTreeMap<FileId, Option<BoundSession>>,
    /// There were more files than are remembered.
    overflowed: bool,
}

impl Past {
    fn note(&mut self, file: FileId, session: BoundSession) {
        if self.files.len() >= REMEMBERED_MAX && !self.files.contains_key(&file) {
            self.overflowed = true;
            return;
        }
        let only = self.files.entry(file).or_insert(Some(session));
        if *only != Some(session) {
            *only = None;
        }
    }

    fn others_had(&self, file: FileId, session: BoundSession) -> bool {
        match self.files.get(&file) {
            Some(only) => *only != Some(session),
            None => self.overflowed,
        }
    }
}

/// The process and the user behind an owner of locks.
#[derive(Clone, Copy)]
struct Behind {
    pid: u32,
    uid: u32,
}

/// The latest request of a ticket.
#[derive(Clone, Copy)]
struct Asked {
    session: BoundSession,
    uid: u32,
    at: Nanos,
}

/// Locks and owners of one user.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct UserLocks {
    /// Ranges held and places in queues.
    pub held: usize,
    /// Owners that have asked for something: each takes memory until its handle or session ends.
    pub owners: usize,
}

/// All locks of the service.
#[derive(Default)]
pub(super) struct Locks {
    table: LockTable<Key, Owner>,
    past: Past,
    /// Owners that have asked for something, with the process and the user behind each.
    owners: BTreeMap<BoundSession, BTreeMap<LockOwner, Behind>>,
    /// Session, user and time of the latest request of each ticket.
    asked: BTreeMap<Ticket, Asked>,
    /// Locks and owners by user; a user without any has no entry.
    by_user: BTreeMap<u32, UserLocks>,
    /// Who has the append lock of which file, and since when.
    appending: BTreeMap<FileId, (Owner, Nanos)>,
    /// Sessions that had locks when the service started, or have had some since: of others nobody can say who had theirs
    /// meanwhile.
    known: BTreeSet<BoundSession>,
}

impl UserLocks {
    /// Whether the user has as much as one may have.
    fn is_at(self, max: usize) -> bool {
        self.held >= max || self.owners >= max
    }
}

impl Locks {
    /// None; of these sessions it is known that they had some when the service before this one ended.
    pub(super) fn of_before(known: BTreeSet<BoundSession>) -> Self {
        Self { known, ..Self::default() }
    }

    /// A session will not come back.
    pub(super) fn forget_session(&mut self, session: BoundSession) {
        self.known.remove(&session);
    }

    pub(super) fn count(&self) -> usize {
        self.table.range_count()
    }

    /// Asks for a lock: anew with `ticket` 0, or again.
    pub(super) fn ask(&mut self, request: LockRequest, wait: bool, ticket: u64, now: Nanos) -> LockAnswer {
        self.drop_stale_tickets(now);
        let LockRequest { session, file, space, owner, kind, range, pid, uid, user_max } = request;
        let ticket = ticket.checked_sub(1).map(Ticket);
        // Only the session that got a ticket may ask with it.
        let mine =
            ticket.filter(|ticket| self.asked.get(ticket).is_some_and(|asked| asked.session == session));
        // The share does not bound append locks: a file has at most one, and no program asks for it.
        let is_bounded = space != LockSpace::Append && mine.is_none();
        if is_bounded && user_max.is_some_and(|max| self.of_user(uid).is_at(max as usize)) {
            return LockAnswer::OverShare;
        }
        // The user of the first request stays, so that the release is taken off the same account.
        let behind = match self.owners.entry(session).or_default().entry(owner) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().pid = pid;
                entry.get().uid
            }
            Entry::Vacant(entry) => {
                entry.insert(Behind { pid, uid });
                self.change_user(uid, |user| user.owners += 1);
                uid
            }
        };
        if let Some(asked) = mine.and_then(|ticket| self.asked.remove(&ticket)) {
            self.change_user(asked.uid, |user| user.held = user.held.saturating_sub(1));
        }
        let answer = self.counted(behind, |table| {
            mine.and_then(|ticket| table.retry(ticket)).unwrap_or_else(|| {
                let wait = if wait { Wait::Queue } else { Wait::No };
                table.acquire((file, space), (session, owner), range, mode(kind), wait)
            })
        });
        match answer {
            Acquire::Granted => {
                match space {
                    LockSpace::Append => drop(self.appending.insert(file, ((session, owner), now))),
                    LockSpace::Record | LockSpace::Flock => {
                        self.past.note(file, session);
                        self.known.insert(session);
                    }
                }
                LockAnswer::Granted
            }
            Acquire::Queued(ticket) => {
                self.asked.insert(ticket, Asked { session, uid, at: now });
                self.change_user(uid, |user| user.held += 1);
                LockAnswer::Wait(ticket.0 + 1)
            }
            Acquire::Busy(_) => LockAnswer::Refused(Errno::EAGAIN),
            Acquire::Deadlock => LockAnswer::Refused(Errno::EDEADLK),
            Acquire::Full => LockAnswer::Refused(Errno::ENOLCK),
        }
    }

    /// Gives a lock to a session that had it when it was last connected; `false` when it is another's, or may have been
    /// since.
    pub(super) fn get_back(&mut self, request: LockRequest, now: Nanos) -> bool {
        let LockRequest { session, file, space, owner, kind, range, .. } = request;
        let held = self.table.locks(&(file, space)).any(|held| {
            held.owner == (session, owner)
                && held.range.start() <= range.start()
                && range.end() <= held.range.end()
                && held.mode == mode(kind)
        });
        held || self.known.contains(&session)
            && !self.past.others_had(file, session)
            && self.ask(request, false, 0, now) == LockAnswer::Granted
    }

    fn drop_stale_tickets(&mut self, now: Nanos) {
        let stale = |asked: Nanos| asked.saturating_add(TICKET_LIFE) < now;
        let tickets: Vec<Ticket> =
            self.asked.iter().filter(|(_, asked)| stale(asked.at)).map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.take_place(ticket);
        }
    }

    /// Takes a place in a queue away. Whether others should ask again.
    fn take_place(&mut self, ticket: Ticket) -> bool {
        if let Some(asked) = self.asked.remove(&ticket) {
            self.change_user(asked.uid, |user| user.held = user.held.saturating_sub(1));
        }
        self.table.cancel(ticket)
    }

    /// Locks and owners of `uid`.
    pub(super) fn of_user(&self, uid: u32) -> UserLocks {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    /// Locks and owners by user; a user without any has no entry.
    pub(super) fn by_user(&self) -> &BTreeMap<u32, UserLocks> {
        &self.by_user
    }

    fn change_user(&mut self, uid: u32, change: impl FnOnce(&mut UserLocks)) {
        let user = self.by_user.entry(uid).or_default();
        change(user);
        if *user == UserLocks::default() {
            self.by_user.remove(&uid);
        }
    }

    /// Changes ranges of an owner and the count of the user behind the owner.
    fn counted<T>(&mut self, uid: u32, change: impl FnOnce(&mut LockTable<Key, Owner>) -> T) -> T {
        let before = self.table.range_count();
        let changed = change(&mut self.table);
        let after = self.table.range_count();
        self.change_user(uid, |user| user.held = (user.held + after).saturating_sub(before));
        changed
    }

    /// The user behind an owner.
    fn user_of(&self, (session, owner): Owner) -> Option<u32> {
        Some(self.owners.get(&session)?.get(&owner)?.uid)
    }

    /// Gives up a place in a queue. Whether others should ask again.
    pub(super) fn cancel(&mut self, session: BoundSession, ticket: u64) -> bool {
        let Some(ticket) = ticket.checked_sub(1).map(Ticket) else { return false };
        if self.asked.get(&ticket).is_none_or(|asked| asked.session != session) {
            return false;
        }
        self.take_place(ticket)
    }

    /// Whether somebody else than who asks has had the append lock for too long.
    pub(super) fn is_overdue(&self, request: &LockRequest, now: Nanos) -> bool {
        let holder = self.appending.get(&request.file);
        holder.is_some_and(|(holder, since)| {
            *holder != (request.session, request.owner) && since.saturating_add(APPEND_TERM) <= now
        })
    }

    /// Takes the append lock of a file from whoever has it. Whether others should ask again.
    pub(super) fn relieve(&mut self, file: FileId) -> bool {
        let Some((holder, _)) = self.appending.remove(&file) else { return false };
        let uid = self.forget(holder).unwrap_or(0);
        self.counted(uid, |table| table.release(&(file, LockSpace::Append), &holder))
    }

    /// Whether a session has the append lock of a file: as this owner, or as any.
    pub(super) fn appends(&self, session: BoundSession, file: FileId, owner: Option<LockOwner>) -> bool {
        let holder = self.appending.get(&file).map(|(holder, _)| *holder);
        holder.is_some_and(|(of, holder)| of == session && owner.is_none_or(|owner| owner == holder))
    }

    /// The files of which a session has the append lock.
    pub(super) fn appends_of(&self, session: BoundSession) -> Vec<FileId> {
        let own = self.appending.iter().filter(|(_, ((of, _), _))| *of == session);
        own.map(|(file, _)| *file).collect()
    }

    /// Each append is an owner of its own, which does not come again. The user behind it.
    fn forget(&mut self, (session, owner): Owner) -> Option<u32> {
        let uid = self.owners.get_mut(&session)?.remove(&owner)?.uid;
        self.change_user(uid, |user| user.owners = user.owners.saturating_sub(1));
        Some(uid)
    }

    /// Gives up a range. Whether others should ask again.
    pub(super) fn unlock(&mut self, request: &LockRequest) -> Result<bool, Errno> {
        let LockRequest { session, file, space, owner, range, uid, .. } = *request;
        let uid = self.user_of((session, owner)).unwrap_or(uid);
        if space == LockSpace::Append {
            if self.appends(session, file, Some(owner)) {
                self.appending.remove(&file);
            }
            self.forget((session, owner));
        }
        let unlock =
            |table: &mut LockTable<Key, Owner>| table.unlock(&(file, space), &(session, owner), range);
        self.counted(uid, unlock).map_err(|_| Errno::ENOLCK)
    }

    pub(super) fn test(&self, request: &LockRequest) -> Option<HeldLock> {
        let LockRequest { session, file, space, owner, kind, range, .. } = *request;
        let held = self.table.test(&(file, space), &(session, owner), range, mode(kind))?;
        let (holder, of) = held.owner;
        let kind = match held.mode {
            LockMode::Shared => LockKind::Shared,
            LockMode::Exclusive => LockKind::Exclusive,
        };
        let range = LockRange { start: held.range.start(), end: held.range.end() };
        let pid = self.owners.get(&holder).and_then(|owners| owners.get(&of)).map_or(0, |behind| behind.pid);
        Some(HeldLock { kind, range, pid })
    }

    /// A handle has been closed: its own locks go, and the session's all when it was its last of the file. Whether
    /// others should ask again.
    pub(super) fn closed(
        &mut self,
        session: BoundSession,
        file: FileId,
        handle: HandleId,
        last: bool,
    ) -> bool {
        let Some(owners) = self.owners.get_mut(&session) else { return false };
        let of_handle = LockOwner::Handle(handle);
        let of = owners.iter().filter(|(owner, _)| last || **owner == of_handle);
        let going: Vec<(LockOwner, u32)> = of.map(|(owner, behind)| (*owner, behind.uid)).collect();
        if let Some(Behind { uid, .. }) = owners.remove(&of_handle) {
            self.change_user(uid, |user| user.owners = user.owners.saturating_sub(1));
        }
        let mut wake = false;
        for (owner, uid) in going {
            for space in SPACES {
                wake |= self.counted(uid, |table| table.release(&(file, space), &(session, owner)));
            }
        }
        wake
    }

    /// A session has ended. Whether others should ask again.
    pub(super) fn ended(&mut self, session: BoundSession) -> bool {
        // Owners that are forgotten may have places in queues still: of an append that was given up, of a handle that is
        // closed.
        let of_session = self.asked.iter().filter(|(_, asked)| asked.session == session);
        let places: Vec<Ticket> = of_session.map(|(ticket, _)| *ticket).collect();
        let mut wake = false;
        for place in places {
            wake |= self.take_place(place);
        }
        for (owner, Behind { uid, .. }) in self.owners.remove(&session).unwrap_or_default() {
            wake |= !self.counted(uid, |table| table.remove_owner(&(session, owner))).is_empty();
            self.change_user(uid, |user| user.owners = user.owners.saturating_sub(1));
        }
        wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: u128, handle: u64, start: u64, end: u64) -> LockRequest {
        LockRequest {
            session: BoundSession(session),
            file: FileId(5),
            space: LockSpace::Flock,
            owner: LockOwner::Handle(HandleId(handle)),
            kind: LockKind::Exclusive,
            range: ByteRange::new(start, end).expect("not empty"),
            pid: handle as u32,
            uid: session as u32,
            user_max: Some(3),
        }
    }

    #[test]
    fn a_lock_vanishes_with_its_handle_and_with_its_session() {
        let mut locks = Locks::default();
        let (a, b) = (request(1, 1, 0, 10), request(2, 2, 5, 6));
        assert_eq!(locks.ask(a, false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.ask(b, false, 0, Nanos(0)), LockAnswer::Refused(Errno::EAGAIN));
        let LockAnswer::Wait(ticket) = locks.ask(b, true, 0, Nanos(0)) else { panic!("queued") };
        assert_eq!(locks.test(&b).map(|held| held.pid), Some(1));
        assert!(locks.closed(BoundSession(1), FileId(5), HandleId(1), true), "somebody waits");
        assert_eq!(locks.ask(b, true, ticket, Nanos(1)), LockAnswer::Granted);
        let LockAnswer::Wait(_) = locks.ask(a, true, 0, Nanos(1)) else { panic!("queued") };
        assert!(locks.ended(BoundSession(2)));
        assert_eq!(locks.count(), 0);
    }

    #[test]
    fn a_user_has_a_bounded_number_of_locks_and_places_over_all_sessions() {
        let mut locks = Locks::default();
        let of = |uid, session, handle, start| LockRequest {
            uid,
            user_max: Some(3),
            ..request(session, handle, start, start + 1)
        };
        assert_eq!(locks.ask(of(7, 1, 1, 0), false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.ask(of(7, 2, 1, 10), false, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(place) = locks.ask(of(7, 2, 1, 0), true, 0, Nanos(0)) else { panic!("queued") };
        assert_eq!(locks.of_user(7), UserLocks { held: 3, owners: 2 });
        assert_eq!(locks.ask(of(7, 3, 1, 50), false, 0, Nanos(0)), LockAnswer::OverShare);
        assert_eq!(locks.ask(of(8, 4, 1, 50), false, 0, Nanos(0)), LockAnswer::Granted, "another user");
        let unbounded = LockRequest { user_max: None, ..of(7, 3, 1, 60) };
        assert_eq!(locks.ask(unbounded, false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.of_user(7).held, 4);
        // A retry with a ticket takes no further room; the granted range takes the place of the ticket.
        let LockAnswer::Wait(_) = locks.ask(of(7, 2, 1, 0), true, place, Nanos(1)) else { panic!("queued") };
        assert_eq!(locks.of_user(7).held, 4);
        assert!(locks.ended(BoundSession(1)), "its place is still there");
        assert_eq!(locks.ask(of(7, 2, 1, 0), true, place, Nanos(2)), LockAnswer::Granted);
        assert_eq!(locks.of_user(7), UserLocks { held: 3, owners: 2 });
        // The middle of a range makes two of it, and all go with the handle.
        let wide = LockRequest { user_max: None, ..request(9, 9, 0, 100) };
        let wide = LockRequest { uid: 7, file: FileId(6), ..wide };
        assert_eq!(locks.ask(wide, false, 0, Nanos(2)), LockAnswer::Granted);
        let middle = LockRequest { range: ByteRange::new(40, 50).expect("not empty"), ..wide };
        assert_eq!(locks.unlock(&middle), Ok(false));
        assert_eq!(locks.of_user(7), UserLocks { held: 5, owners: 3 });
        locks.closed(BoundSession(9), FileId(6), HandleId(9), true);
        assert_eq!(locks.of_user(7), UserLocks { held: 3, owners: 2 });
        for session in [2, 3, 4] {
            locks.ended(BoundSession(session));
        }
        assert!(locks.by_user().values().all(|user| user.held == 0), "{:?}", locks.by_user());
        locks.ended(BoundSession(9));
        assert!(locks.by_user().is_empty(), "{:?}", locks.by_user());
    }

    fn append(session: u128, handle: u64) -> LockRequest {
        LockRequest { space: LockSpace::Append, ..request(session, handle, 0, u64::MAX) }
    }

    #[test]
    fn who_gave_up_waiting_and_is_gone_holds_nobody_up() {
        for close in [false, true] {
            let of = |session, handle| {
                if close { request(session, handle, 0, 10) } else { append(session, handle) }
            };
            let mut locks = Locks::default();
            let (a, b, c) = (of(1, 1), of(2, 2), of(3, 3));
            assert_eq!(locks.ask(a, true, 0, Nanos(0)), LockAnswer::Granted);
            let LockAnswer::Wait(_) = locks.ask(b, true, 0, Nanos(0)) else { panic!("queued") };
            match close {
                true => drop(locks.closed(b.session, b.file, HandleId(2), false)),
                false => drop(locks.unlock(&b)),
            }
            let LockAnswer::Wait(place) = locks.ask(c, true, 0, Nanos(1)) else { panic!("queued") };
            assert_eq!(locks.unlock(&a), Ok(true));
            assert!(locks.ended(b.session), "somebody waits");
            assert_eq!(locks.ask(c, true, place, Nanos(2)), LockAnswer::Granted);
        }
    }

    #[test]
    fn the_append_lock_is_taken_from_who_has_had_it_for_too_long() {
        let mut locks = Locks::default();
        let (a, b, file) = (append(1, 1), append(2, 2), FileId(5));
        assert_eq!(locks.ask(a, true, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(ticket) = locks.ask(b, true, 0, Nanos(1)) else { panic!("queued") };
        assert!(!locks.is_overdue(&b, Nanos(APPEND_TERM.0 - 1)) && !locks.is_overdue(&a, APPEND_TERM));
        assert!(locks.is_overdue(&b, APPEND_TERM));
        assert!(
            locks.appends(BoundSession(1), file, None)
                && !locks.appends(BoundSession(1), file, Some(b.owner))
        );
        assert!(locks.relieve(file), "somebody waits");
        assert_eq!(locks.ask(b, true, ticket, APPEND_TERM), LockAnswer::Granted);
        assert_eq!(locks.unlock(&a), Ok(false), "too late");
        assert!(!locks.is_overdue(&a, Nanos(2 * APPEND_TERM.0 - 1)), "its time begins anew");
        assert_eq!(
            (locks.appends_of(BoundSession(1)), locks.appends_of(BoundSession(2))),
            (vec![], vec![file])
        );
        assert_eq!(locks.unlock(&b), Ok(false));
        assert!(locks.appends_of(BoundSession(2)).is_empty() && !locks.relieve(file));
    }

    #[test]
    fn what_another_session_has_had_meanwhile_is_not_given_back() {
        let mut locks = Locks::of_before(BTreeSet::from([BoundSession(1), BoundSession(2)]));
        let (a, b) = (request(1, 1, 0, 10), request(2, 2, 0, 10));
        assert!(!locks.get_back(request(3, 1, 0, 10), Nanos(0)), "its session had ended before the start");
        assert!(locks.get_back(a, Nanos(0)), "nobody had it");
        assert!(locks.get_back(a, Nanos(0)), "it has it");
        assert!(!locks.get_back(b, Nanos(0)));
        locks.ended(BoundSession(1));
        assert!(locks.get_back(a, Nanos(0)), "nobody had it in between");
        locks.ended(BoundSession(1));
        assert_eq!(locks.ask(b, false, 0, Nanos(0)), LockAnswer::Granted);
        locks.ended(BoundSession(2));
        assert!(!locks.get_back(a, Nanos(0)), "free, but it has been another's");
        assert_eq!(locks.ask(a, false, 0, Nanos(0)), LockAnswer::Granted, "asked for as a new one");
        assert!(locks.get_back(a, Nanos(0)), "still has it");
    }

    #[test]
    fn beyond_what_is_remembered_nothing_is_given_back() {
        let mut past = Past::default();
        for file in 0..=REMEMBERED_MAX as u64 {
            past.note(FileId(file), BoundSession(1));
        }
        assert!(!past.others_had(FileId(5), BoundSession(1)) && past.others_had(FileId(5), BoundSession(2)));
        assert!(past.others_had(FileId(REMEMBERED_MAX as u64), BoundSession(1)), "who knows");
    }

    #[test]
    fn a_ticket_is_its_sessions_own_and_dies_when_nobody_asks() {
        let mut locks = Locks::default();
        assert_eq!(locks.ask(request(1, 1, 0, 10), false, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(ticket) = locks.ask(request(2, 2, 0, 10), true, 0, Nanos(0)) else {
            panic!("queued")
        };
        assert!(!locks.cancel(BoundSession(3), ticket));
        let shared = LockRequest { kind: LockKind::Shared, ..request(3, 3, 0, 10) };
        let LockAnswer::Wait(_) = locks.ask(shared, true, ticket, Nanos(1)) else { panic!("its own place") };
        locks.ask(request(4, 4, 20, 30), false, 0, TICKET_LIFE.saturating_add(Nanos(2)));
        assert_eq!(locks.table.ticket_count(), 0);
    }
}

//! File locks: adds sessions, handles and bounded waiting to the pure lock table of `weft-core`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use weft_core::locks::{Acquire, LockMode, LockTable, Ticket, Wait};
use weft_core::{ByteRange, FileId, Nanos};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{HandleId, HeldLock, LockKind, LockOwner, LockRange, LockSpace};

/// A ticket expires when its client has not asked for this long, because the client was interrupted.
const TICKET_IDLE_MAX: Nanos = Nanos::from_s(5);

/// Time after which the append lock is revoked when another client wants it. An append takes two messages, and a lost
/// unlock must not block other clients. A late write of the former holder is refused; see `fences`.
const APPEND_HOLD_MAX: Nanos = Nanos::from_s(15);

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
    /// Host of the process.
    pub host: HostName,
    /// User on whose behalf the request is made.
    pub uid: u32,
    /// Maximum number of ranges and tickets of the user, if limited.
    pub user_max: Option<u32>,
}

/// Host of a process, by a hash of the name that the process reports. Decides only which process ids mean something to a client.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostName(u64);

impl HostName {
    /// Returns the host of this name.
    pub fn of(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Result of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockAnswer {
    Granted,
    Wait(u64),
    Refused(Errno),
    /// The user has as many locks as one user may have.
    OverUserLimit,
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

/// Maximum number of files with a lock history. Beyond it no lock is given back.
const HISTORY_FILES_MAX: usize = 65_536;

/// Sessions that have held locks on each file since the start. A lock is given back only if no other session held one
/// meanwhile.
#[derive(Default)]
struct LockHistory {
    /// `None` stands for several sessions.
    files: BTreeMap<FileId, Option<BoundSession>>,
    /// Whether there were more files than are remembered.
    overflowed: bool,
}

impl LockHistory {
    fn record(&mut self, file: FileId, session: BoundSession) {
        if self.files.len() >= HISTORY_FILES_MAX && !self.files.contains_key(&file) {
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

/// Process and user of a lock owner.
#[derive(Clone, Copy)]
struct OwnerInfo {
    pid: u32,
    host: HostName,
    uid: u32,
}

/// Latest request of a ticket.
#[derive(Clone, Copy)]
struct TicketInfo {
    session: BoundSession,
    uid: u32,
    at: Nanos,
}

/// Locks and owners of one user.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct UserLocks {
    /// Held ranges plus tickets.
    pub held: usize,
    /// Owners that have made a request. Each takes memory until its handle or session ends.
    pub owners: usize,
}

/// All locks of the service.
#[derive(Default)]
pub(super) struct Locks {
    table: LockTable<Key, Owner>,
    history: LockHistory,
    /// Owners that have made a request, with process and user of each.
    owners: BTreeMap<BoundSession, BTreeMap<LockOwner, OwnerInfo>>,
    /// Latest request of each ticket.
    tickets: BTreeMap<Ticket, TicketInfo>,
    /// Locks and owners by user, without empty entries.
    by_user: BTreeMap<u32, UserLocks>,
    /// Holder of the append lock of each file, and since when.
    appending: BTreeMap<FileId, (Owner, Nanos)>,
    /// Sessions that had locks when the service started, or have held some since. The locks of other sessions may have
    /// changed hands meanwhile.
    known: BTreeSet<BoundSession>,
}

impl UserLocks {
    /// Whether the user is at the limit.
    fn is_at(self, max: usize) -> bool {
        self.held >= max || self.owners >= max
    }
}

impl Locks {
    /// Creates an empty table. The sessions `known` had locks when the previous service ended.
    pub(super) fn with_known_sessions(known: BTreeSet<BoundSession>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Forgets a session that cannot reconnect.
    pub(super) fn forget_session(&mut self, session: BoundSession) {
        self.known.remove(&session);
    }

    pub(super) fn count(&self) -> usize {
        self.table.range_count()
    }

    /// Requests a lock: with `ticket` 0 for the first time, else again.
    pub(super) fn acquire(
        &mut self,
        request: LockRequest,
        wait: bool,
        ticket: u64,
        now: Nanos,
    ) -> LockAnswer {
        self.drop_stale_tickets(now);
        let LockRequest { session, file, space, owner, kind, range, pid, host, uid, user_max } = request;
        let ticket = ticket.checked_sub(1).map(Ticket);
        // A ticket is valid only for the session that got it.
        let mine =
            ticket.filter(|ticket| self.tickets.get(ticket).is_some_and(|info| info.session == session));
        // Append locks are not limited: a file has at most one, and no program requests it.
        let is_bounded = space != LockSpace::Append && mine.is_none();
        if is_bounded && user_max.is_some_and(|max| self.of_user(uid).is_at(max as usize)) {
            return LockAnswer::OverUserLimit;
        }
        // The user of the first request stays, so that the release changes the same count.
        let owner_uid = match self.owners.entry(session).or_default().entry(owner) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().pid = pid;
                entry.get_mut().host = host;
                entry.get().uid
            }
            Entry::Vacant(entry) => {
                entry.insert(OwnerInfo { pid, host, uid });
                self.change_user(uid, |user| user.owners += 1);
                uid
            }
        };
        if let Some(info) = mine.and_then(|ticket| self.tickets.remove(&ticket)) {
            self.change_user(info.uid, |user| user.held = user.held.saturating_sub(1));
        }
        let answer = self.counted(owner_uid, |table| {
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
                        self.history.record(file, session);
                        self.known.insert(session);
                    }
                }
                LockAnswer::Granted
            }
            Acquire::Queued(ticket) => {
                self.tickets.insert(ticket, TicketInfo { session, uid, at: now });
                self.change_user(uid, |user| user.held += 1);
                LockAnswer::Wait(ticket.0 + 1)
            }
            Acquire::Busy(_) => LockAnswer::Refused(Errno::EAGAIN),
            Acquire::Deadlock => LockAnswer::Refused(Errno::EDEADLK),
            Acquire::Full => LockAnswer::Refused(Errno::ENOLCK),
        }
    }

    /// Releases a `flock` that the request converts to the other kind: as on Linux, a conversion that does not succeed at
    /// once has lost the lock, and two conversions do not wait for each other. Returns whether one was released.
    pub(super) fn release_converted(&mut self, request: &LockRequest) -> bool {
        let owner = (request.session, request.owner);
        let key = (request.file, request.space);
        let mode = mode(request.kind);
        request.space == LockSpace::Flock
            && self.table.locks(&key).any(|held| held.owner == owner && held.mode != mode)
            && self.unlock(request).unwrap_or(false)
    }

    /// Gives back a lock that a session held when it was last connected. Returns false if another session holds it or
    /// may have held it since.
    pub(super) fn reclaim(&mut self, request: LockRequest, now: Nanos) -> bool {
        let LockRequest { session, file, space, owner, kind, range, .. } = request;
        let held = self.table.locks(&(file, space)).any(|held| {
            held.owner == (session, owner)
                && held.range.start() <= range.start()
                && range.end() <= held.range.end()
                && held.mode == mode(kind)
        });
        held || self.known.contains(&session)
            && !self.history.others_had(file, session)
            && self.acquire(request, false, 0, now) == LockAnswer::Granted
    }

    fn drop_stale_tickets(&mut self, now: Nanos) {
        let stale = |requested_at: Nanos| requested_at.saturating_add(TICKET_IDLE_MAX) < now;
        let tickets: Vec<Ticket> =
            self.tickets.iter().filter(|(_, info)| stale(info.at)).map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.remove_ticket(ticket);
        }
    }

    /// Cancels a ticket. Returns whether waiting clients should retry.
    fn remove_ticket(&mut self, ticket: Ticket) -> bool {
        if let Some(info) = self.tickets.remove(&ticket) {
            self.change_user(info.uid, |user| user.held = user.held.saturating_sub(1));
        }
        self.table.cancel(ticket)
    }

    /// Locks and owners of `uid`.
    pub(super) fn of_user(&self, uid: u32) -> UserLocks {
        self.by_user.get(&uid).copied().unwrap_or_default()
    }

    /// Locks and owners by user, without empty entries.
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

    /// Changes the ranges of an owner, and the count of its user.
    fn counted<T>(&mut self, uid: u32, change: impl FnOnce(&mut LockTable<Key, Owner>) -> T) -> T {
        let before = self.table.range_count();
        let changed = change(&mut self.table);
        let after = self.table.range_count();
        self.change_user(uid, |user| user.held = (user.held + after).saturating_sub(before));
        changed
    }

    /// User of an owner.
    fn user_of(&self, (session, owner): Owner) -> Option<u32> {
        Some(self.owners.get(&session)?.get(&owner)?.uid)
    }

    /// Cancels the ticket of a session. Returns whether waiting clients should retry.
    pub(super) fn cancel(&mut self, session: BoundSession, ticket: u64) -> bool {
        let Some(ticket) = ticket.checked_sub(1).map(Ticket) else { return false };
        if self.tickets.get(&ticket).is_none_or(|info| info.session != session) {
            return false;
        }
        self.remove_ticket(ticket)
    }

    /// Whether a client other than the requester has held the append lock for too long.
    pub(super) fn is_overdue(&self, request: &LockRequest, now: Nanos) -> bool {
        let holder = self.appending.get(&request.file);
        holder.is_some_and(|(holder, since)| {
            *holder != (request.session, request.owner) && since.saturating_add(APPEND_HOLD_MAX) <= now
        })
    }

    /// Revokes the append lock of a file. Returns whether waiting clients should retry.
    pub(super) fn revoke_append(&mut self, file: FileId) -> bool {
        let Some((holder, _)) = self.appending.remove(&file) else { return false };
        let uid = self.forget(holder).unwrap_or(0);
        self.counted(uid, |table| table.release(&(file, LockSpace::Append), &holder))
    }

    /// Whether a session holds the append lock of a file, as `owner` if one is given.
    pub(super) fn holds_append_lock(
        &self,
        session: BoundSession,
        file: FileId,
        owner: Option<LockOwner>,
    ) -> bool {
        let holder = self.appending.get(&file).map(|(holder, _)| *holder);
        holder.is_some_and(|(of, holder)| of == session && owner.is_none_or(|owner| owner == holder))
    }

    /// Files whose append lock a session holds.
    pub(super) fn append_locks_of(&self, session: BoundSession) -> Vec<FileId> {
        let own = self.appending.iter().filter(|(_, ((of, _), _))| *of == session);
        own.map(|(file, _)| *file).collect()
    }

    /// Forgets the owner of an append, which is used once. Returns its user.
    fn forget(&mut self, (session, owner): Owner) -> Option<u32> {
        let uid = self.owners.get_mut(&session)?.remove(&owner)?.uid;
        self.change_user(uid, |user| user.owners = user.owners.saturating_sub(1));
        Some(uid)
    }

    /// Releases a range. Returns whether waiting clients should retry.
    pub(super) fn unlock(&mut self, request: &LockRequest) -> Result<bool, Errno> {
        let LockRequest { session, file, space, owner, range, uid, .. } = *request;
        let uid = self.user_of((session, owner)).unwrap_or(uid);
        if space == LockSpace::Append {
            if self.holds_append_lock(session, file, Some(owner)) {
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
        let info = self.owners.get(&holder).and_then(|owners| owners.get(&of));
        // On another host the number means another process.
        let pid = info.filter(|info| info.host == request.host).map_or(0, |info| info.pid);
        let is_of_open_file = matches!(of, LockOwner::Handle(_));
        Some(HeldLock { kind, range, pid, is_of_open_file })
    }

    /// Releases the locks of a closed handle, and all locks of the session on the file if it was its last handle.
    /// Returns whether waiting clients should retry.
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
        let going: Vec<(LockOwner, u32)> = of.map(|(owner, info)| (*owner, info.uid)).collect();
        if let Some(OwnerInfo { uid, .. }) = owners.remove(&of_handle) {
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

    /// Releases the locks of a session that has ended. Returns whether waiting clients should retry.
    pub(super) fn ended(&mut self, session: BoundSession) -> bool {
        // Forgotten owners may still have tickets: of an abandoned append, or of a closed handle.
        let of_session = self.tickets.iter().filter(|(_, info)| info.session == session);
        let tickets: Vec<Ticket> = of_session.map(|(ticket, _)| *ticket).collect();
        let mut wake = false;
        for ticket in tickets {
            wake |= self.remove_ticket(ticket);
        }
        for (owner, OwnerInfo { uid, .. }) in self.owners.remove(&session).unwrap_or_default() {
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
            host: HostName::default(),
            uid: session as u32,
            user_max: Some(3),
        }
    }

    #[test]
    fn a_lock_vanishes_with_its_handle_and_with_its_session() {
        let mut locks = Locks::default();
        let (a, b) = (request(1, 1, 0, 10), request(2, 2, 5, 6));
        assert_eq!(locks.acquire(a, false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.acquire(b, false, 0, Nanos(0)), LockAnswer::Refused(Errno::EAGAIN));
        let LockAnswer::Wait(ticket) = locks.acquire(b, true, 0, Nanos(0)) else { panic!("queued") };
        assert_eq!(locks.test(&b).map(|held| held.pid), Some(1));
        assert!(locks.closed(BoundSession(1), FileId(5), HandleId(1), true), "another client waits");
        assert_eq!(locks.acquire(b, true, ticket, Nanos(1)), LockAnswer::Granted);
        let LockAnswer::Wait(_) = locks.acquire(a, true, 0, Nanos(1)) else { panic!("queued") };
        assert!(locks.ended(BoundSession(2)));
        assert_eq!(locks.count(), 0);
    }

    #[test]
    fn a_user_has_a_bounded_number_of_locks_and_tickets_over_all_sessions() {
        let mut locks = Locks::default();
        let of = |uid, session, handle, start| LockRequest {
            uid,
            user_max: Some(3),
            ..request(session, handle, start, start + 1)
        };
        assert_eq!(locks.acquire(of(7, 1, 1, 0), false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.acquire(of(7, 2, 1, 10), false, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(ticket) = locks.acquire(of(7, 2, 1, 0), true, 0, Nanos(0)) else {
            panic!("queued")
        };
        assert_eq!(locks.of_user(7), UserLocks { held: 3, owners: 2 });
        assert_eq!(locks.acquire(of(7, 3, 1, 50), false, 0, Nanos(0)), LockAnswer::OverUserLimit);
        assert_eq!(locks.acquire(of(8, 4, 1, 50), false, 0, Nanos(0)), LockAnswer::Granted, "another user");
        let unbounded = LockRequest { user_max: None, ..of(7, 3, 1, 60) };
        assert_eq!(locks.acquire(unbounded, false, 0, Nanos(0)), LockAnswer::Granted);
        assert_eq!(locks.of_user(7).held, 4);
        // A retry with a ticket takes no more of the share; the granted range replaces the ticket.
        let LockAnswer::Wait(_) = locks.acquire(of(7, 2, 1, 0), true, ticket, Nanos(1)) else {
            panic!("queued")
        };
        assert_eq!(locks.of_user(7).held, 4);
        assert!(locks.ended(BoundSession(1)), "its ticket is still valid");
        assert_eq!(locks.acquire(of(7, 2, 1, 0), true, ticket, Nanos(2)), LockAnswer::Granted);
        assert_eq!(locks.of_user(7), UserLocks { held: 3, owners: 2 });
        // Unlocking the middle of a range splits it in two. All ranges are released with the handle.
        let wide = LockRequest { user_max: None, ..request(9, 9, 0, 100) };
        let wide = LockRequest { uid: 7, file: FileId(6), ..wide };
        assert_eq!(locks.acquire(wide, false, 0, Nanos(2)), LockAnswer::Granted);
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
    fn an_abandoned_ticket_of_an_ended_session_blocks_nothing() {
        for close in [false, true] {
            let of = |session, handle| {
                if close { request(session, handle, 0, 10) } else { append(session, handle) }
            };
            let mut locks = Locks::default();
            let (a, b, c) = (of(1, 1), of(2, 2), of(3, 3));
            assert_eq!(locks.acquire(a, true, 0, Nanos(0)), LockAnswer::Granted);
            let LockAnswer::Wait(_) = locks.acquire(b, true, 0, Nanos(0)) else { panic!("queued") };
            match close {
                true => drop(locks.closed(b.session, b.file, HandleId(2), false)),
                false => drop(locks.unlock(&b)),
            }
            let LockAnswer::Wait(ticket) = locks.acquire(c, true, 0, Nanos(1)) else { panic!("queued") };
            assert_eq!(locks.unlock(&a), Ok(true));
            assert!(locks.ended(b.session), "another client waits");
            assert_eq!(locks.acquire(c, true, ticket, Nanos(2)), LockAnswer::Granted);
        }
    }

    #[test]
    fn the_append_lock_is_revoked_after_its_term() {
        let mut locks = Locks::default();
        let (a, b, file) = (append(1, 1), append(2, 2), FileId(5));
        assert_eq!(locks.acquire(a, true, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(ticket) = locks.acquire(b, true, 0, Nanos(1)) else { panic!("queued") };
        assert!(
            !locks.is_overdue(&b, Nanos(APPEND_HOLD_MAX.0 - 1)) && !locks.is_overdue(&a, APPEND_HOLD_MAX)
        );
        assert!(locks.is_overdue(&b, APPEND_HOLD_MAX));
        assert!(
            locks.holds_append_lock(BoundSession(1), file, None)
                && !locks.holds_append_lock(BoundSession(1), file, Some(b.owner))
        );
        assert!(locks.revoke_append(file), "another client waits");
        assert_eq!(locks.acquire(b, true, ticket, APPEND_HOLD_MAX), LockAnswer::Granted);
        assert_eq!(locks.unlock(&a), Ok(false), "too late");
        assert!(!locks.is_overdue(&a, Nanos(2 * APPEND_HOLD_MAX.0 - 1)), "its term begins again");
        assert_eq!(
            (locks.append_locks_of(BoundSession(1)), locks.append_locks_of(BoundSession(2))),
            (vec![], vec![file])
        );
        assert_eq!(locks.unlock(&b), Ok(false));
        assert!(locks.append_locks_of(BoundSession(2)).is_empty() && !locks.revoke_append(file));
    }

    #[test]
    fn a_lock_that_another_session_held_meanwhile_is_not_given_back() {
        let mut locks = Locks::with_known_sessions(BTreeSet::from([BoundSession(1), BoundSession(2)]));
        let (a, b) = (request(1, 1, 0, 10), request(2, 2, 0, 10));
        assert!(!locks.reclaim(request(3, 1, 0, 10), Nanos(0)), "its session had ended before the start");
        assert!(locks.reclaim(a, Nanos(0)), "no other session held it");
        assert!(locks.reclaim(a, Nanos(0)), "it still holds it");
        assert!(!locks.reclaim(b, Nanos(0)));
        locks.ended(BoundSession(1));
        assert!(locks.reclaim(a, Nanos(0)), "no other session held it in between");
        locks.ended(BoundSession(1));
        assert_eq!(locks.acquire(b, false, 0, Nanos(0)), LockAnswer::Granted);
        locks.ended(BoundSession(2));
        assert!(!locks.reclaim(a, Nanos(0)), "free, but another session held it");
        assert_eq!(locks.acquire(a, false, 0, Nanos(0)), LockAnswer::Granted, "requested as a new lock");
        assert!(locks.reclaim(a, Nanos(0)), "it still holds it");
    }

    #[test]
    fn files_beyond_the_history_get_nothing_back() {
        let mut history = LockHistory::default();
        for file in 0..=HISTORY_FILES_MAX as u64 {
            history.record(FileId(file), BoundSession(1));
        }
        assert!(
            !history.others_had(FileId(5), BoundSession(1)) && history.others_had(FileId(5), BoundSession(2))
        );
        assert!(history.others_had(FileId(HISTORY_FILES_MAX as u64), BoundSession(1)), "unknown, so assumed");
    }

    #[test]
    fn a_ticket_belongs_to_its_session_and_expires_when_unused() {
        let mut locks = Locks::default();
        assert_eq!(locks.acquire(request(1, 1, 0, 10), false, 0, Nanos(0)), LockAnswer::Granted);
        let LockAnswer::Wait(ticket) = locks.acquire(request(2, 2, 0, 10), true, 0, Nanos(0)) else {
            panic!("queued")
        };
        assert!(!locks.cancel(BoundSession(3), ticket));
        let shared = LockRequest { kind: LockKind::Shared, ..request(3, 3, 0, 10) };
        let LockAnswer::Wait(_) = locks.acquire(shared, true, ticket, Nanos(1)) else {
            panic!("a ticket of its own")
        };
        locks.acquire(request(4, 4, 20, 30), false, 0, TICKET_IDLE_MAX.saturating_add(Nanos(2)));
        assert_eq!(locks.table.ticket_count(), 0);
    }
}

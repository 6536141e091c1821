//! The lock table of many files: held locks, tickets, fairness and deadlock detection.

use super::held::Held;
use super::{HeldLock, LockMode};
use crate::ranges::ByteRange;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A place in the queue. Lower ones are served first; none is used twice in the life of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// What to do when a lock cannot be had at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Say so (F_SETLK, LOCK_NB). Only held locks stand in its way, not those who queue: that is what POSIX says.
    No,
    /// Queue (F_SETLKW).
    Queue,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquire<O> {
    /// The lock is held.
    Granted,
    /// Another's lock stands in the way, and the request was not to wait (EAGAIN).
    Busy(HeldLock<O>),
    /// Ask again with this ticket.
    Queued(Ticket),
    /// Waiting would never end: the holders wait for this owner (EDEADLK). Nothing was queued.
    Deadlock,
    /// The table is at one of its [`LockLimits`] (ENOLCK). Nothing was queued.
    Full,
}

/// The table is at one of its [`LockLimits`] (ENOLCK): unlocking the middle of a range makes two of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the file has as many lock ranges as it may have; raise the limit or release some")]
pub struct LockTableFull;

/// Bounds of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockLimits {
    /// Most ranges held on one file, over all owners.
    pub ranges_per_file_max: usize,
    /// Most tickets over all files.
    pub tickets_max: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { ranges_per_file_max: 1 << 16, tickets_max: 1 << 16 }
    }
}

#[derive(Clone, Debug)]
struct Request<F, O> {
    file: F,
    owner: O,
    range: ByteRange,
    mode: LockMode,
}

#[derive(Clone, Debug)]
struct FileLocks<O> {
    held: Held<O>,
    queue: BTreeSet<Ticket>,
}

impl<O: Ord + Clone> FileLocks<O> {
    fn new() -> Self {
        Self { held: Held::new(), queue: BTreeSet::new() }
    }
}

/// Locks and tickets of many files. `F` names a file (and the kind of lock where kinds do not mix, as fcntl and
/// flock), `O` an owner.
///
/// An owner may hold several tickets (threads of one process). As in Linux, a cycle through two threads of one
/// owner counts as a deadlock although another thread might have broken it.
#[derive(Clone, Debug)]
pub struct LockTable<F, O> {
    files: BTreeMap<F, FileLocks<O>>,
    tickets: BTreeMap<Ticket, Request<F, O>>,
    /// Tickets by owner: the nodes of the waits-for graph.
    waiting: BTreeMap<O, BTreeSet<Ticket>>,
    next: u64,
    /// Ranges held over all files.
    ranges: usize,
    limits: LockLimits,
}

impl<F: Ord + Clone, O: Ord + Clone> Default for LockTable<F, O> {
    fn default() -> Self {
        Self::new(LockLimits::default())
    }
}

impl<F: Ord + Clone, O: Ord + Clone> LockTable<F, O> {
    /// A table without locks.
    pub fn new(limits: LockLimits) -> Self {
        Self {
            files: BTreeMap::new(),
            tickets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            ranges: 0,
            limits,
        }
    }

    /// Asks for a lock, converting what the owner holds on these bytes. What it held stays until the new lock is
    /// granted.
    pub fn acquire(&mut self, file: F, owner: O, range: ByteRange, mode: LockMode, wait: Wait) -> Acquire<O> {
        let request = Request { file, owner, range, mode };
        match wait {
            Wait::No => match self.hard_conflict(&request) {
                Some(lock) => Acquire::Busy(lock),
                None => self.grant(&request),
            },
            Wait::Queue => {
                let ticket = Ticket(self.next);
                match self.judge(&request, ticket) {
                    Verdict::Free => self.grant(&request),
                    Verdict::Deadlock => Acquire::Deadlock,
                    Verdict::Wait if self.tickets.len() >= self.limits.tickets_max => Acquire::Full,
                    Verdict::Wait => {
                        self.next += 1;
                        self.enqueue(ticket, request);
                        Acquire::Queued(ticket)
                    }
                }
            }
        }
    }

    /// Asks again. `None` when there is no such ticket (cancelled, or answered before): acquire anew, which is
    /// harmless when the lock is held already. Every answer but `Queued` ends the ticket.
    pub fn retry(&mut self, ticket: Ticket) -> Option<Acquire<O>> {
        let request = self.tickets.get(&ticket)?;
        let verdict = self.judge(request, ticket);
        if verdict == Verdict::Wait {
            return Some(Acquire::Queued(ticket));
        }
        let request = self.dequeue(ticket)?;
        let answer = match verdict {
            Verdict::Free => self.grant(&request),
            _ => Acquire::Deadlock,
        };
        self.tidy(&request.file);
        Some(answer)
    }

    /// Gives a place in the queue up (a signal, a lost client). Whether others wait on that file and should ask
    /// again.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(request) = self.dequeue(ticket) else { return false };
        self.tidy(&request.file);
        self.has_waiters(&request.file)
    }

    /// Gives up what the owner holds on `range`. Whether somebody waits on that file and should ask again.
    ///
    /// # Errors
    /// [`LockTableFull`] when a range would have to be split and the file has no room for another; nothing has
    /// changed then.
    pub fn unlock(&mut self, file: &F, owner: &O, range: ByteRange) -> Result<bool, LockTableFull> {
        let Some(locks) = self.files.get_mut(file) else { return Ok(false) };
        if locks.held.count() >= self.limits.ranges_per_file_max && locks.held.clear_splits(owner, range) {
            return Err(LockTableFull);
        }
        let before = locks.held.count();
        locks.held.clear(owner, range);
        self.ranges = self.ranges + locks.held.count() - before;
        self.tidy(file);
        Ok(self.has_waiters(file))
    }

    /// Gives up everything that the owner holds on the file, as closing it does; tickets stay. Whether somebody
    /// waits on that file and should ask again.
    pub fn release(&mut self, file: &F, owner: &O) -> bool {
        let Some(locks) = self.files.get_mut(file) else { return false };
        let before = locks.held.count();
        let changed = locks.held.remove_owner(owner);
        self.ranges = self.ranges + locks.held.count() - before;
        self.tidy(file);
        changed && self.has_waiters(file)
    }

    /// Forgets an owner: its locks and its tickets on all files. Gives the files where somebody waits and should
    /// ask again.
    pub fn remove_owner(&mut self, owner: &O) -> Vec<F> {
        let mut changed = BTreeSet::new();
        for ticket in self.waiting.get(owner).cloned().unwrap_or_default() {
            changed.extend(self.dequeue(ticket).map(|request| request.file));
        }
        for (file, locks) in &mut self.files {
            let before = locks.held.count();
            if locks.held.remove_owner(owner) {
                self.ranges = self.ranges + locks.held.count() - before;
                changed.insert(file.clone());
            }
        }
        changed.iter().for_each(|file| self.tidy(file));
        changed.into_iter().filter(|file| self.has_waiters(file)).collect()
    }

    /// Forgets a file: every lock and ticket on it.
    pub fn remove_file(&mut self, file: &F) {
        let Some(locks) = self.files.get(file) else { return };
        for ticket in locks.queue.clone() {
            self.dequeue(ticket);
        }
        if let Some(locks) = self.files.remove(file) {
            self.ranges -= locks.held.count();
        }
    }

    /// The lock that would stand in the way (F_GETLK): the one with the lowest start.
    pub fn test(&self, file: &F, owner: &O, range: ByteRange, mode: LockMode) -> Option<HeldLock<O>> {
        self.files.get(file)?.held.first_conflict(owner, range, mode)
    }

    /// Every lock held on the file: exclusive ones by offset, then shared ones by owner and offset.
    pub fn locks(&self, file: &F) -> impl Iterator<Item = HeldLock<O>> + '_ {
        self.files.get(file).into_iter().flat_map(|locks| locks.held.iter())
    }

    /// Whether anybody has a ticket on the file.
    pub fn has_waiters(&self, file: &F) -> bool {
        self.files.get(file).is_some_and(|locks| !locks.queue.is_empty())
    }

    /// Whether nobody holds or wants a lock on any file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Ranges held over all files.
    pub fn range_count(&self) -> usize {
        self.ranges
    }

    /// Tickets over all files.
    pub fn ticket_count(&self) -> usize {
        self.tickets.len()
    }

    fn grant(&mut self, request: &Request<F, O>) -> Acquire<O> {
        let Request { file, owner, range, mode } = request;
        let locks = self.files.entry(file.clone()).or_insert_with(FileLocks::new);
        // A lock in the middle of one of the other mode makes three of one.
        if locks.held.count() + 2 > self.limits.ranges_per_file_max {
            self.tidy(file);
            return Acquire::Full;
        }
        let before = locks.held.count();
        locks.held.set(owner, *range, *mode);
        self.ranges = self.ranges + locks.held.count() - before;
        Acquire::Granted
    }

    fn enqueue(&mut self, ticket: Ticket, request: Request<F, O>) {
        self.waiting.entry(request.owner.clone()).or_default().insert(ticket);
        self.files.entry(request.file.clone()).or_insert_with(FileLocks::new).queue.insert(ticket);
        self.tickets.insert(ticket, request);
    }

    fn dequeue(&mut self, ticket: Ticket) -> Option<Request<F, O>> {
        let request = self.tickets.remove(&ticket)?;
        if let Some(tickets) = self.waiting.get_mut(&request.owner) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.waiting.remove(&request.owner);
            }
        }
        if let Some(locks) = self.files.get_mut(&request.file) {
            locks.queue.remove(&ticket);
        }
        Some(request)
    }

    /// Drops the entry of a file without locks and tickets.
    fn tidy(&mut self, file: &F) {
        if self.files.get(file).is_some_and(|locks| locks.held.is_empty() && locks.queue.is_empty()) {
            self.files.remove(file);
        }
    }

    fn hard_conflict(&self, request: &Request<F, O>) -> Option<HeldLock<O>> {
        self.test(&request.file, &request.owner, request.range, request.mode)
    }

    /// Owners whose held locks stand in the way.
    fn hard_blockers<'a>(&'a self, request: &'a Request<F, O>) -> impl Iterator<Item = &'a O> {
        let held = self.files.get(&request.file).map(|locks| &locks.held);
        held.into_iter()
            .flat_map(|held| held.conflicts(&request.owner, request.range, request.mode))
            .map(|(_, _, owner)| owner)
    }

    /// Owners who queued before `ticket` for something that conflicts.
    fn soft_blockers<'a>(
        &'a self,
        request: &'a Request<F, O>,
        ticket: Ticket,
    ) -> impl Iterator<Item = &'a O> {
        let queue = self.files.get(&request.file).map(|locks| locks.queue.range(..ticket));
        queue.into_iter().flatten().filter_map(|earlier| self.tickets.get(earlier)).filter_map(|earlier| {
            let conflict = earlier.owner != request.owner
                && earlier.mode.conflicts(request.mode)
                && earlier.range.overlaps(request.range);
            conflict.then_some(&earlier.owner)
        })
    }

    /// What `request` has to expect if it stands in the queue at `ticket`.
    ///
    /// Held locks always stand in the way. Those who queue in front stand in the way out of fairness only, so
    /// they do not where they themselves wait for this owner: else fairness would make a deadlock of its own.
    fn judge(&self, request: &Request<F, O>, ticket: Ticket) -> Verdict {
        if self.hard_blockers(request).next().is_some() {
            let deadlock = self.reaches(self.hard_blockers(request), &request.owner, Edges::Held);
            return if deadlock { Verdict::Deadlock } else { Verdict::Wait };
        }
        let fair = self
            .soft_blockers(request, ticket)
            .all(|earlier| self.reaches([earlier], &request.owner, Edges::HeldAndQueued));
        if fair { Verdict::Free } else { Verdict::Wait }
    }

    /// Whether a chain of waits leads from one of `from` to `goal`.
    fn reaches<'a>(&'a self, from: impl IntoIterator<Item = &'a O>, goal: &O, edges: Edges) -> bool {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&O> = from.into_iter().collect();
        while let Some(owner) = open.pop() {
            if owner == goal {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for ticket in self.waiting.get(owner).into_iter().flatten() {
                let Some(request) = self.tickets.get(ticket) else { continue };
                open.extend(self.hard_blockers(request));
                if edges == Edges::HeldAndQueued {
                    open.extend(self.soft_blockers(request, *ticket));
                }
            }
        }
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Free,
    Wait,
    Deadlock,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edges {
    /// Waits for locks that are held.
    Held,
    /// Those, and waits for one's turn.
    HeldAndQueued,
}

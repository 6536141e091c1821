//! The lock table of many files: held locks, tickets, fairness and deadlock detection.

use super::held::Held;
use super::{HeldLock, LockMode};
use crate::ranges::ByteRange;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Position in the queue. Lower tickets are served first; a table never reuses one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// Behavior when a lock cannot be granted at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Fail (F_SETLK, LOCK_NB). Only held locks conflict, not queued requests, as POSIX requires.
    No,
    /// Queue (F_SETLKW).
    Queue,
}

/// Result of a lock request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquire<O> {
    /// The lock is held.
    Granted,
    /// A lock of another owner conflicts, and the request does not wait (EAGAIN).
    Busy(HeldLock<O>),
    /// Retry with this ticket.
    Queued(Ticket),
    /// Waiting would never end, because the holders wait for this owner (EDEADLK). Nothing was queued.
    Deadlock,
    /// The table is at one of its [`LockLimits`] (ENOLCK). Nothing was queued.
    Full,
}

/// Error: the table is at one of its [`LockLimits`] (ENOLCK). Unlocking the middle of a range creates two ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the file has as many lock ranges as it may have; raise the limit or release some")]
pub struct LockTableFull;

/// Limits of a lock table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockLimits {
    /// Maximum number of ranges held on a file, over all owners.
    pub ranges_per_file_max: usize,
    /// Maximum number of tickets over all files.
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

/// Locks and tickets of many files.
///
/// `F` identifies a file, and the kind of lock where kinds are independent, as fcntl and flock are. `O` identifies an
/// owner. An owner may hold several tickets (threads of one process). As in Linux, a cycle through two threads of one
/// owner counts as a deadlock, although another thread might have broken it.
#[derive(Clone, Debug)]
pub struct LockTable<F, O> {
    files: BTreeMap<F, FileLocks<O>>,
    tickets: BTreeMap<Ticket, Request<F, O>>,
    /// Tickets by owner: the nodes of the waits-for graph.
    waiting: BTreeMap<O, BTreeSet<Ticket>>,
    next: u64,
    /// Number of ranges held over all files.
    ranges: usize,
    limits: LockLimits,
}

impl<F: Ord + Clone, O: Ord + Clone> Default for LockTable<F, O> {
    fn default() -> Self {
        Self::new(LockLimits::default())
    }
}

impl<F: Ord + Clone, O: Ord + Clone> LockTable<F, O> {
    /// Returns a table without locks.
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

    /// Requests a lock, converting what the owner holds on these bytes. The old locks stay until the new one is
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
                match self.evaluate(&request, ticket) {
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

    /// Retries a queued request. `None` if the ticket does not exist, because it was canceled or answered earlier;
    /// then call `acquire` again, which is harmless if the lock is held. Every result but `Queued` ends the ticket.
    pub fn retry(&mut self, ticket: Ticket) -> Option<Acquire<O>> {
        let request = self.tickets.get(&ticket)?;
        let verdict = self.evaluate(request, ticket);
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

    /// Cancels a ticket (a signal, a lost client). Returns true if other requests wait on that file and should retry.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(request) = self.dequeue(ticket) else { return false };
        self.tidy(&request.file);
        self.has_waiters(&request.file)
    }

    /// Unlocks what the owner holds on `range`. Returns true if requests wait on that file and should retry.
    ///
    /// # Errors
    /// [`LockTableFull`] if a range would have to be split and the file is at its limit. Nothing has changed then.
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

    /// Unlocks everything that the owner holds on the file, as closing it does; tickets stay. Returns true if requests
    /// wait on that file and should retry.
    pub fn release(&mut self, file: &F, owner: &O) -> bool {
        let Some(locks) = self.files.get_mut(file) else { return false };
        let before = locks.held.count();
        let changed = locks.held.remove_owner(owner);
        self.ranges = self.ranges + locks.held.count() - before;
        self.tidy(file);
        changed && self.has_waiters(file)
    }

    /// Removes an owner with its locks and tickets on all files. Returns the files on which requests wait and should
    /// retry.
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

    /// Removes a file with every lock and ticket on it.
    pub fn remove_file(&mut self, file: &F) {
        let Some(locks) = self.files.get(file) else { return };
        for ticket in locks.queue.clone() {
            self.dequeue(ticket);
        }
        if let Some(locks) = self.files.remove(file) {
            self.ranges -= locks.held.count();
        }
    }

    /// Returns the conflicting lock with the lowest start (F_GETLK).
    pub fn test(&self, file: &F, owner: &O, range: ByteRange, mode: LockMode) -> Option<HeldLock<O>> {
        self.files.get(file)?.held.first_conflict(owner, range, mode)
    }

    /// Iterates over all locks held on the file: exclusive ones by offset, then shared ones by owner and offset.
    pub fn locks(&self, file: &F) -> impl Iterator<Item = HeldLock<O>> + '_ {
        self.files.get(file).into_iter().flat_map(|locks| locks.held.iter())
    }

    /// Returns true if there are tickets on the file.
    pub fn has_waiters(&self, file: &F) -> bool {
        self.files.get(file).is_some_and(|locks| !locks.queue.is_empty())
    }

    /// Returns true if there are no locks and no tickets.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number of ranges held over all files.
    pub fn range_count(&self) -> usize {
        self.ranges
    }

    /// Returns the number of tickets over all files.
    pub fn ticket_count(&self) -> usize {
        self.tickets.len()
    }

    fn grant(&mut self, request: &Request<F, O>) -> Acquire<O> {
        let Request { file, owner, range, mode } = request;
        let locks = self.files.entry(file.clone()).or_insert_with(FileLocks::new);
        // A lock in the middle of one of the other mode turns one range into three.
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

    /// Iterates over owners whose held locks conflict.
    fn hard_blockers<'a>(&'a self, request: &'a Request<F, O>) -> impl Iterator<Item = &'a O> {
        let held = self.files.get(&request.file).map(|locks| &locks.held);
        held.into_iter()
            .flat_map(|held| held.conflicts(&request.owner, request.range, request.mode))
            .map(|(_, _, owner)| owner)
    }

    /// Iterates over owners with conflicting requests queued before `ticket`.
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

    /// Determines the result of `request` at the queue position `ticket`.
    ///
    /// Held locks always block. Earlier queued requests block only for fairness, so they do not block an owner for
    /// which they themselves wait. Otherwise fairness would create deadlocks of its own.
    fn evaluate(&self, request: &Request<F, O>, ticket: Ticket) -> Verdict {
        if self.hard_blockers(request).next().is_some() {
            let deadlock = self.reaches(self.hard_blockers(request), &request.owner, Edges::Held);
            return if deadlock { Verdict::Deadlock } else { Verdict::Wait };
        }
        let fair = self
            .soft_blockers(request, ticket)
            .all(|earlier| self.reaches([earlier], &request.owner, Edges::HeldAndQueued));
        if fair { Verdict::Free } else { Verdict::Wait }
    }

    /// Returns true if a chain of waits leads from one of `from` to `goal`.
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
    /// Waits for held locks.
    Held,
    /// Waits for held locks and for earlier queued requests.
    HeldAndQueued,
}

//! Tickets: order, fairness and deadlock detection.
#[path = "support/locks.rs"]
mod support;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::{Model, OWNERS, modes, ranges};
use weft_core::ByteRange;
use weft_core::locks::LockMode::{self, Exclusive, Shared};
use weft_core::locks::{Acquire, LockLimits, LockTable, Ticket, Wait};

const FILES: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Lock(usize, usize, ByteRange, LockMode),
    Unlock(usize, usize, ByteRange),
    Retry(usize),
    Cancel(usize),
    RemoveOwner(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (file, owner) = (0..FILES, 0..OWNERS);
    let op = prop_oneof![
        8 => (file.clone(), owner.clone(), ranges(), modes()).prop_map(|(f, o, r, m)| Op::Lock(f, o, r, m)),
        3 => (file, owner.clone(), ranges()).prop_map(|(f, o, r)| Op::Unlock(f, o, r)),
        6 => owner.clone().prop_map(Op::Retry),
        1 => owner.clone().prop_map(Op::Cancel),
        1 => owner.prop_map(Op::RemoveOwner),
    ];
    prop::collection::vec(op, 1..80)
}

type Want = (Ticket, usize, ByteRange, LockMode);

/// The model's state: held locks, and what each owner (one thread each) waits for.
#[derive(Default)]
struct World {
    table: LockTable<usize, usize>,
    held: [Model; FILES],
    wants: BTreeMap<usize, Want>,
}

impl World {
    /// Returns the owners for which `owner` would wait with this request: those with conflicting locks and, with
    /// `queued`, those with conflicting earlier tickets.
    fn blockers(&self, owner: usize, want: Want, queued: bool) -> BTreeSet<usize> {
        let (ticket, file, range, mode) = want;
        let mut found: BTreeSet<usize> = self.held[file].blockers(owner, range, mode).into_iter().collect();
        if queued {
            found.extend(self.wants.iter().filter_map(|(&other, &(t, f, r, m))| {
                let before = t < ticket && f == file && r.overlaps(range);
                (before && other != owner && (m == Exclusive || mode == Exclusive)).then_some(other)
            }));
        }
        found
    }

    /// Returns `from` and every owner for which one of them waits, directly or indirectly.
    fn closure(&self, from: BTreeSet<usize>, queued: bool) -> BTreeSet<usize> {
        let mut all = from;
        loop {
            let more: BTreeSet<usize> = all
                .iter()
                .filter_map(|owner| Some(self.blockers(*owner, *self.wants.get(owner)?, queued)))
                .flatten()
                .collect();
            if more.is_subset(&all) {
                return all;
            }
            all.extend(more);
        }
    }

    /// Checks an answer against its definition and applies it.
    fn check(&mut self, owner: usize, want: Want, answer: Acquire<usize>) -> Result<(), TestCaseError> {
        let (_, file, range, mode) = want;
        let hard = self.blockers(owner, want, false);
        let deadlock = self.closure(hard.clone(), false).contains(&owner);
        let unfair = self
            .blockers(owner, want, true)
            .into_iter()
            .filter(|earlier| !self.closure([*earlier].into(), true).contains(&owner))
            .count();
        match answer {
            Acquire::Granted => {
                prop_assert!(hard.is_empty(), "granted against {:?}", hard);
                prop_assert_eq!(unfair, 0, "granted before an earlier ticket");
                self.held[file].set(owner, range, Some(mode));
            }
            Acquire::Queued(ticket) => {
                prop_assert!(!deadlock, "waits for ever");
                prop_assert!(!hard.is_empty() || unfair > 0, "waits for nothing");
                self.wants.insert(owner, (ticket, file, range, mode));
                return Ok(());
            }
            Acquire::Deadlock => prop_assert!(deadlock, "no deadlock"),
            other => prop_assert!(false, "{:?}", other),
        }
        self.wants.remove(&owner);
        Ok(())
    }

    fn retry(&mut self, owner: usize) -> Result<bool, TestCaseError> {
        let Some(&want) = self.wants.get(&owner) else { return Ok(false) };
        let answer = self.table.retry(want.0);
        prop_assert!(answer.is_some());
        self.check(owner, want, answer.unwrap_or(Acquire::Full))?;
        Ok(!self.wants.contains_key(&owner))
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            // A waiting owner does nothing else, because it is one thread.
            Op::Lock(_, owner, ..) | Op::Unlock(_, owner, _) if self.wants.contains_key(&owner) => {}
            Op::Lock(file, owner, range, mode) => {
                let answer = self.table.acquire(file, owner, range, mode, Wait::Queue);
                self.check(owner, (Ticket(u64::MAX), file, range, mode), answer)?;
            }
            Op::Unlock(file, owner, range) => {
                let wake = self.table.unlock(&file, &owner, range);
                self.held[file].set(owner, range, None);
                prop_assert_eq!(wake, Ok(self.wants.values().any(|want| want.1 == file)));
            }
            Op::Retry(owner) => {
                self.retry(owner)?;
            }
            Op::Cancel(owner) => {
                if let Some((ticket, ..)) = self.wants.remove(&owner) {
                    self.table.cancel(ticket);
                    prop_assert_eq!(self.table.retry(ticket), None);
                }
            }
            Op::RemoveOwner(owner) => {
                for file in self.table.remove_owner(&owner) {
                    prop_assert!(self.wants.iter().any(|(&other, want)| other != owner && want.1 == file));
                }
                self.wants.remove(&owner);
                self.held.iter_mut().for_each(|model| model.set(owner, ByteRange::ALL, None));
            }
        }
        prop_assert_eq!(self.table.ticket_count(), self.wants.len());
        for (file, model) in self.held.iter().enumerate() {
            let mut held: Vec<_> = self.table.locks(&file).collect();
            held.sort();
            prop_assert_eq!(held, model.locks());
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn answers_follow_their_definition_and_all_waits_end(ops in ops(), reverse: bool) {
        let mut world = World::default();
        for op in ops {
            world.apply(op)?;
        }
        // Owners that do not wait release everything; then all waiting owners must be served.
        while !world.wants.is_empty() {
            for owner in 0..OWNERS {
                for file in 0..FILES {
                    world.apply(Op::Unlock(file, owner, ByteRange::ALL))?;
                }
            }
            let mut progress = false;
            for i in 0..OWNERS {
                progress |= world.retry(if reverse { OWNERS - 1 - i } else { i })?;
            }
            prop_assert!(progress, "stuck: {:?}", world.wants);
        }
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

fn queued(answer: Acquire<char>) -> Ticket {
    match answer {
        Acquire::Queued(ticket) => ticket,
        other => panic!("expected a ticket, got {other:?}"),
    }
}

#[test]
fn tickets_are_served_in_their_order() {
    let mut table = LockTable::default();
    let whole = range(0, 10);
    assert_eq!(table.acquire(1, 'a', whole, Exclusive, Wait::Queue), Acquire::Granted);
    let b = queued(table.acquire(1, 'b', whole, Exclusive, Wait::Queue));
    let c = queued(table.acquire(1, 'c', whole, Exclusive, Wait::Queue));
    assert_eq!(table.unlock(&1, &'a', whole), Ok(true));
    assert_eq!(table.retry(c), Some(Acquire::Queued(c)), "not before b");
    let a = queued(table.acquire(1, 'a', whole, Exclusive, Wait::Queue));
    assert_eq!(table.retry(b), Some(Acquire::Granted));
    assert_eq!(table.retry(b), None, "the ticket has ended");
    assert!(table.release(&1, &'b'));
    assert_eq!(table.retry(a), Some(Acquire::Queued(a)));
    assert!(table.cancel(c));
    assert_eq!(table.retry(a), Some(Acquire::Granted), "c canceled its ticket");
}

#[test]
fn readers_do_not_starve_a_writer() {
    let mut table = LockTable::default();
    let whole = range(0, 10);
    assert_eq!(table.acquire(1, 'r', whole, Shared, Wait::Queue), Acquire::Granted);
    let writer = queued(table.acquire(1, 'w', whole, Exclusive, Wait::Queue));
    queued(table.acquire(1, 's', whole, Shared, Wait::Queue));
    // A request without waiting considers held locks only.
    assert_eq!(table.acquire(1, 't', whole, Shared, Wait::No), Acquire::Granted);
    table.remove_owner(&'t');
    assert_eq!(table.remove_owner(&'r'), [1]);
    assert_eq!(table.retry(writer), Some(Acquire::Granted));
}

#[test]
fn fairness_creates_no_deadlock() {
    // a holds x; b waits for x and y together; a requests y. b's ticket is earlier, but b waits for a.
    let mut table = LockTable::default();
    let (x, y) = (range(0, 1), range(1, 2));
    assert_eq!(table.acquire(1, 'a', x, Exclusive, Wait::Queue), Acquire::Granted);
    let b = queued(table.acquire(1, 'b', range(0, 2), Exclusive, Wait::Queue));
    assert_eq!(table.acquire(1, 'a', y, Exclusive, Wait::Queue), Acquire::Granted);
    assert_eq!(table.unlock(&1, &'a', range(0, 2)), Ok(true));
    assert_eq!(table.retry(b), Some(Acquire::Granted));
}

#[test]
fn a_cycle_over_two_files_is_a_deadlock() {
    let mut table = LockTable::default();
    let byte = range(0, 1);
    assert_eq!(table.acquire(1, 'a', byte, Exclusive, Wait::Queue), Acquire::Granted);
    assert_eq!(table.acquire(2, 'b', byte, Exclusive, Wait::Queue), Acquire::Granted);
    queued(table.acquire(1, 'b', byte, Exclusive, Wait::Queue));
    assert_eq!(table.acquire(2, 'a', byte, Exclusive, Wait::Queue), Acquire::Deadlock);
    assert_eq!(table.ticket_count(), 1, "the request that closes the cycle is not queued");
}

#[test]
fn two_readers_that_both_want_to_write_are_a_deadlock() {
    let mut table = LockTable::default();
    let byte = range(0, 1);
    for owner in ['a', 'b'] {
        assert_eq!(table.acquire(1, owner, byte, Shared, Wait::Queue), Acquire::Granted);
    }
    let a = queued(table.acquire(1, 'a', byte, Exclusive, Wait::Queue));
    assert_eq!(table.acquire(1, 'b', byte, Exclusive, Wait::Queue), Acquire::Deadlock);
    assert_eq!(table.unlock(&1, &'b', byte), Ok(true));
    assert_eq!(table.retry(a), Some(Acquire::Granted));
}

#[test]
fn a_cycle_closed_by_a_grant_is_found_on_retry() {
    // Owner a has two threads: one waits for b's lock, the other gets a lock for which b waits by then.
    let mut table = LockTable::default();
    let (x, y) = (range(0, 1), range(1, 2));
    assert_eq!(table.acquire(1, 'b', x, Exclusive, Wait::Queue), Acquire::Granted);
    assert_eq!(table.acquire(1, 'c', y, Exclusive, Wait::Queue), Acquire::Granted);
    let a = queued(table.acquire(1, 'a', x, Exclusive, Wait::Queue));
    let b = queued(table.acquire(1, 'b', y, Exclusive, Wait::Queue));
    assert_eq!(table.unlock(&1, &'c', y), Ok(true));
    assert_eq!(table.acquire(1, 'a', y, Exclusive, Wait::No), Acquire::Granted);
    assert_eq!(table.retry(b), Some(Acquire::Deadlock));
    assert_eq!(table.retry(a), Some(Acquire::Queued(a)));
}

#[test]
fn the_queue_is_bounded() {
    let mut table = LockTable::new(LockLimits { tickets_max: 1, ..LockLimits::default() });
    let byte = range(0, 1);
    assert_eq!(table.acquire(1, 'a', byte, Exclusive, Wait::Queue), Acquire::Granted);
    queued(table.acquire(1, 'b', byte, Exclusive, Wait::Queue));
    assert_eq!(table.acquire(1, 'c', byte, Exclusive, Wait::Queue), Acquire::Full);
    table.remove_file(&1);
    assert!(table.is_empty() && table.ticket_count() == 0);
}

#[test]
fn four_thousand_waiters_are_served_in_order_by_retries() {
    let mut table = LockTable::default();
    let whole = ByteRange::ALL;
    assert_eq!(table.acquire((), 0, whole, Exclusive, Wait::Queue), Acquire::Granted);
    let mut tickets: Vec<(u32, Ticket)> = Vec::new();
    for owner in 1..=4096 {
        match table.acquire((), owner, whole, Exclusive, Wait::Queue) {
            Acquire::Queued(ticket) => tickets.push((owner, ticket)),
            other => panic!("{other:?}"),
        }
    }
    let mut holder = 0;
    for (owner, ticket) in tickets.clone() {
        assert!(table.release(&(), &holder));
        // Some others retry first, as when all are woken.
        for &(_, later) in tickets.iter().rev().take(8).filter(|&&(_, later)| later > ticket) {
            assert_eq!(table.retry(later), Some(Acquire::Queued(later)));
        }
        assert_eq!(table.retry(ticket), Some(Acquire::Granted));
        holder = owner;
    }
    assert!(!table.release(&(), &holder));
    assert!(table.is_empty());
}

//! Page locks at a home: shared and exclusive locks on whole pages, served first come, first served (IODC, section
//! III.D).
//!
//! | rule | effect |
//! | --- | --- |
//! | a request waits behind every earlier queued one on its page | readers cannot starve a writer |
//! | a request must be above every page that the holder has locked | no deadlock |
//! | a holder that waits must not request another page | no deadlock |
//!
//! A request waits only for holders of its page and for earlier requests on it. If a holder of the page waits too, it
//! waits for a higher page, so the waits form no cycle. The last two rules are the two-phase locking of the paper: "the
//! prior page lock must be obtained before requesting the next lock". Without the third rule, a holder could get page 2
//! while it waits for page 1, and block another holder that has page 1 and waits for page 2.
//!
//! A home sees only its own pages. An operation that locks pages of several homes keeps the two rules over all of them:
//! it requests pages in ascending order, each after the grant of the one before.

use super::ownership::PageId;
use crate::locks::LockMode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An operation that locks pages, unique in the job. A delegate that serves several requests at a time uses another
/// holder for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HolderId(pub u64);

/// Result of a valid request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// The lock is held.
    Granted,
    /// The lock waits for others. A later [`PageLocks::release`] or [`PageLocks::drop_holder`] returns its [`Grant`].
    Queued,
}

/// A lock that was queued and is now held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Grant {
    /// Holder of the lock.
    pub holder: HolderId,
    /// Locked page.
    pub page: PageId,
}

/// Error: the request breaks the order that excludes deadlocks. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageLockError {
    /// The page is not above the last page that the holder has locked.
    #[error("{page} is not above {last}, which is already locked; lock pages in ascending order")]
    OutOfOrder {
        /// Requested page.
        page: PageId,
        /// Highest page that the holder has locked.
        last: PageId,
    },
    /// The holder still waits for another page.
    #[error("{page} is requested while {waits_for} is queued; request one page at a time")]
    StillQueued {
        /// Requested page.
        page: PageId,
        /// Page for which the holder waits.
        waits_for: PageId,
    },
}

/// Page locks of one home, held and queued.
///
/// Each holder has at most one queued request, so the number of holders bounds the queues.
#[derive(Clone, Default, Debug)]
pub struct PageLocks {
    /// Pages with at least one holder.
    pages: BTreeMap<PageId, Page>,
    /// Holders with at least one page, held or queued.
    holders: BTreeMap<HolderId, Locked>,
}

impl PageLocks {
    /// Returns a table without locks.
    pub const fn new() -> Self {
        Self { pages: BTreeMap::new(), holders: BTreeMap::new() }
    }

    /// Requests a lock. A page that the holder has locked already is out of order: a lock does not change its mode.
    ///
    /// # Errors
    /// [`PageLockError`] if the page is not above all pages of the holder, or the holder still waits for one.
    pub fn request(
        &mut self,
        holder: HolderId,
        page: PageId,
        mode: LockMode,
    ) -> Result<LockOutcome, PageLockError> {
        if let Some(locked) = self.holders.get(&holder) {
            locked.check_order(page)?;
        }
        let locked = self.holders.entry(holder).or_default();
        if self.pages.entry(page).or_default().request(holder, mode) {
            locked.held.insert(page);
            Ok(LockOutcome::Granted)
        } else {
            locked.waits_for = Some(page);
            Ok(LockOutcome::Queued)
        }
    }

    /// Releases a held lock or cancels a queued one. Returns the locks that are granted thereby, in the order of their
    /// requests. A lock that the holder does not have, as after [`Self::drop_holder`], changes nothing.
    pub fn release(&mut self, holder: HolderId, page: PageId) -> Vec<Grant> {
        let Some(locked) = self.holders.get_mut(&holder) else { return Vec::new() };
        if !locked.remove(page) {
            return Vec::new();
        }
        if locked.is_empty() {
            self.holders.remove(&holder);
        }
        self.vacate(holder, page)
    }

    /// Removes a dead holder with its locks, held and queued. Returns the locks that are granted thereby, by page and
    /// in the order of their requests.
    pub fn drop_holder(&mut self, holder: HolderId) -> Vec<Grant> {
        let locked = self.holders.remove(&holder).unwrap_or_default();
        let pages = locked.held.into_iter().chain(locked.waits_for);
        pages.flat_map(|page| self.vacate(holder, page)).collect()
    }

    /// Returns the mode in which a holder has locked a page; `None` if it has not, or still waits for it.
    pub fn mode_held(&self, holder: HolderId, page: PageId) -> Option<LockMode> {
        self.pages.get(&page)?.held.get(&holder).copied()
    }

    /// Returns the present outcome of a request; `None` if the holder has not requested the page, or was dropped since.
    pub fn outcome(&self, holder: HolderId, page: PageId) -> Option<LockOutcome> {
        let locked = self.holders.get(&holder)?;
        match locked.waits_for == Some(page) {
            true => Some(LockOutcome::Queued),
            false => locked.held.contains(&page).then_some(LockOutcome::Granted),
        }
    }

    /// Returns true if no lock is held or queued.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.holders.is_empty()
    }

    /// Removes the lock of a holder from its page, which `holders` no longer lists, and grants what it blocked.
    fn vacate(&mut self, holder: HolderId, page: PageId) -> Vec<Grant> {
        let state = self.pages.get_mut(&page).expect("a page of a holder has an entry");
        state.remove(holder);
        let granted = state.grant_queued();
        if state.held.is_empty() {
            assert!(state.queue.is_empty(), "without holders, the first request of the queue is granted");
            self.pages.remove(&page);
        }
        for holder in &granted {
            self.holders.get_mut(holder).expect("a queued holder has an entry").granted(page);
        }
        granted.into_iter().map(|holder| Grant { holder, page }).collect()
    }
}

/// Pages that a holder has locked.
#[derive(Clone, Default, Debug)]
struct Locked {
    held: BTreeSet<PageId>,
    /// Page of the queued request, above all held ones.
    waits_for: Option<PageId>,
}

impl Locked {
    fn check_order(&self, page: PageId) -> Result<(), PageLockError> {
        match (self.waits_for, self.held.last()) {
            (Some(last), _) if page <= last => Err(PageLockError::OutOfOrder { page, last }),
            (Some(waits_for), _) => Err(PageLockError::StillQueued { page, waits_for }),
            (None, Some(&last)) if page <= last => Err(PageLockError::OutOfOrder { page, last }),
            (None, _) => Ok(()),
        }
    }

    /// Removes a page; returns false if the holder has not locked it.
    fn remove(&mut self, page: PageId) -> bool {
        let waited = self.waits_for.take_if(|waits_for| *waits_for == page).is_some();
        waited || self.held.remove(&page)
    }

    fn granted(&mut self, page: PageId) {
        let waited = self.waits_for.take();
        assert_eq!(waited, Some(page), "only a queued request is granted later");
        self.held.insert(page);
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waits_for.is_none()
    }
}

/// Locks on one page.
#[derive(Clone, Default, Debug)]
struct Page {
    /// One exclusive lock or any number of shared ones.
    held: BTreeMap<HolderId, LockMode>,
    /// Requests that wait, in the order of their arrival.
    queue: VecDeque<(HolderId, LockMode)>,
}

impl Page {
    /// Grants or queues a request. Returns true if it is granted.
    fn request(&mut self, holder: HolderId, mode: LockMode) -> bool {
        let free = self.queue.is_empty() && self.permits(mode);
        if free {
            self.held.insert(holder, mode);
        } else {
            self.queue.push_back((holder, mode));
        }
        free
    }

    /// Returns true if no held lock conflicts. All held locks have the same mode, so the first one decides.
    fn permits(&self, mode: LockMode) -> bool {
        self.held.values().next().is_none_or(|held| !held.conflicts(mode))
    }

    fn remove(&mut self, holder: HolderId) {
        if self.held.remove(&holder).is_none() {
            self.queue.retain(|(queued, _)| *queued != holder);
        }
    }

    /// Grants requests from the front of the queue up to the first that conflicts. Returns their holders.
    fn grant_queued(&mut self) -> Vec<HolderId> {
        let mut granted = Vec::new();
        while let Some(&(holder, mode)) = self.queue.front()
            && self.permits(mode)
        {
            self.queue.pop_front();
            self.held.insert(holder, mode);
            granted.push(holder);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::super::ownership::{FileNumber, PageIndex};
    use super::*;
    use crate::locks::LockMode::{Exclusive, Shared};
    use crate::random::SplitMix64;
    use proptest::prelude::*;

    const HOLDERS: u64 = 5;

    fn page(index: u64) -> PageId {
        PageId::new(FileNumber(1), PageIndex(index))
    }

    fn grants(holders: &[u64], index: u64) -> Vec<Grant> {
        holders.iter().map(|&holder| Grant { holder: HolderId(holder), page: page(index) }).collect()
    }

    /// Requests a page of file 1; returns true if it is granted.
    fn lock(locks: &mut PageLocks, holder: u64, index: u64, mode: LockMode) -> bool {
        locks.request(HolderId(holder), page(index), mode) == Ok(LockOutcome::Granted)
    }

    #[test]
    fn shared_locks_coexist_and_exclusive_ones_do_not() {
        let mut locks = PageLocks::new();
        assert!(lock(&mut locks, 1, 0, Shared) && lock(&mut locks, 2, 0, Shared));
        assert!(!lock(&mut locks, 3, 0, Exclusive), "shared locks are held");
        assert_eq!(locks.mode_held(HolderId(2), page(0)), Some(Shared));
        assert_eq!(locks.mode_held(HolderId(3), page(0)), None);
        assert_eq!(locks.release(HolderId(1), page(0)), []);
        assert_eq!(locks.release(HolderId(2), page(0)), grants(&[3], 0));
        assert!(!lock(&mut locks, 4, 0, Exclusive) && !lock(&mut locks, 5, 0, Shared));
        assert_eq!(locks.release(HolderId(3), page(0)), grants(&[4], 0));
    }

    #[test]
    fn readers_do_not_overtake_a_writer() {
        let mut locks = PageLocks::new();
        assert!(lock(&mut locks, 1, 0, Shared) && !lock(&mut locks, 2, 0, Exclusive));
        assert!(!lock(&mut locks, 3, 0, Shared) && !lock(&mut locks, 4, 0, Shared));
        assert_eq!(locks.release(HolderId(1), page(0)), grants(&[2], 0));
        assert_eq!(locks.release(HolderId(2), page(0)), grants(&[3, 4], 0));
    }

    #[test]
    fn a_canceled_writer_lets_the_readers_behind_it_pass() {
        let mut locks = PageLocks::new();
        assert!(lock(&mut locks, 1, 0, Shared) && !lock(&mut locks, 2, 0, Exclusive));
        assert!(!lock(&mut locks, 3, 0, Shared));
        assert_eq!(locks.release(HolderId(2), page(0)), grants(&[3], 0));
        assert_eq!(locks.release(HolderId(2), page(0)), [], "no longer there");
    }

    #[test]
    fn a_dead_holder_frees_all_its_pages() {
        let mut locks = PageLocks::new();
        assert!((0..3).all(|index| lock(&mut locks, 1, index, Exclusive)));
        assert!(lock(&mut locks, 2, 3, Exclusive) && !lock(&mut locks, 1, 3, Exclusive));
        assert!(!lock(&mut locks, 3, 0, Shared) && !lock(&mut locks, 4, 2, Exclusive));
        assert!(!lock(&mut locks, 5, 3, Exclusive));
        assert_eq!(locks.drop_holder(HolderId(1)), [grants(&[3], 0), grants(&[4], 2)].concat());
        assert_eq!(locks.drop_holder(HolderId(2)), grants(&[5], 3), "the dead holder no longer waits");
        assert_eq!(locks.drop_holder(HolderId(1)), []);
        (3..=5).for_each(|holder| assert_eq!(locks.drop_holder(HolderId(holder)), []));
        assert!(locks.is_empty());
    }

    #[test]
    fn the_order_of_pages_is_enforced() {
        // Without the order, holder 1 with page 0 and holder 2 with page 1 would wait for each other.
        let mut locks = PageLocks::new();
        assert!(lock(&mut locks, 1, 0, Exclusive) && lock(&mut locks, 2, 1, Exclusive));
        for index in [0, 1] {
            let refused = locks.request(HolderId(2), page(index), Exclusive);
            assert_eq!(refused, Err(PageLockError::OutOfOrder { page: page(index), last: page(1) }));
        }
        assert!(!lock(&mut locks, 1, 1, Exclusive), "the other way round is in order");
        let text = PageLockError::OutOfOrder { page: page(0), last: page(1) }.to_string();
        assert!(text.starts_with("page 0 of file 0000000000000001 is not above page 1 of"), "{text}");
        assert_eq!(locks.release(HolderId(2), page(1)), grants(&[1], 1));
    }

    #[test]
    fn files_are_ordered_before_pages() {
        let mut locks = PageLocks::new();
        let next_file = PageId::new(FileNumber(2), PageIndex(0));
        assert!(lock(&mut locks, 1, 9, Shared));
        assert_eq!(locks.request(HolderId(1), next_file, Shared), Ok(LockOutcome::Granted));
        let refused = locks.request(HolderId(1), page(10), Shared);
        assert_eq!(refused, Err(PageLockError::OutOfOrder { page: page(10), last: next_file }));
    }

    #[test]
    fn a_waiting_holder_requests_nothing_else() {
        // If holder 2 got page 1 now, holder 1 would wait for it there, and holder 2 for holder 1 at page 0.
        let mut locks = PageLocks::new();
        assert!(lock(&mut locks, 1, 0, Exclusive) && !lock(&mut locks, 2, 0, Exclusive));
        let refused = locks.request(HolderId(2), page(1), Exclusive);
        assert_eq!(refused, Err(PageLockError::StillQueued { page: page(1), waits_for: page(0) }));
        let refused = locks.request(HolderId(2), page(0), Exclusive);
        assert_eq!(refused, Err(PageLockError::OutOfOrder { page: page(0), last: page(0) }));
        assert!(lock(&mut locks, 1, 1, Exclusive));
    }

    /// A request of the model.
    #[derive(Clone, Copy, Debug)]
    struct Entry {
        holder: u64,
        page: u64,
        mode: LockMode,
        held: bool,
    }

    /// All requests, held and queued, in the order of their arrival.
    #[derive(Default)]
    struct Model(Vec<Entry>);

    impl Model {
        /// Returns true if every earlier request on the page of entry `at` is held and permits it.
        fn is_free(&self, at: usize) -> bool {
            let Entry { page, mode, .. } = self.0[at];
            let mut earlier = self.0[..at].iter().filter(|entry| entry.page == page);
            earlier.all(|entry| entry.held && entry.mode == Shared && mode == Shared)
        }

        /// Grants what is free. Returns the grants in the order of pages, then of requests.
        fn settle(&mut self) -> Vec<Grant> {
            let mut granted = Vec::new();
            for at in 0..self.0.len() {
                if !self.0[at].held && self.is_free(at) {
                    self.0[at].held = true;
                    granted.push(Grant { holder: HolderId(self.0[at].holder), page: page(self.0[at].page) });
                }
            }
            granted.sort_by_key(|grant| grant.page);
            granted
        }

        fn request(&mut self, holder: u64, index: u64, mode: LockMode) -> Result<LockOutcome, PageLockError> {
            let own = || self.0.iter().filter(|entry| entry.holder == holder);
            if let Some(last) = own().map(|entry| entry.page).max().filter(|last| index <= *last) {
                return Err(PageLockError::OutOfOrder { page: page(index), last: page(last) });
            }
            if let Some(queued) = own().find(|entry| !entry.held) {
                return Err(PageLockError::StillQueued { page: page(index), waits_for: page(queued.page) });
            }
            self.0.push(Entry { holder, page: index, mode, held: false });
            Ok(if self.settle().is_empty() { LockOutcome::Queued } else { LockOutcome::Granted })
        }

        fn remove(&mut self, goes: impl Fn(&Entry) -> bool) -> Vec<Grant> {
            self.0.retain(|entry| !goes(entry));
            self.settle()
        }

        /// Checks that the held locks are those of the table and that none conflict.
        fn check(&self, locks: &PageLocks) -> Result<(), TestCaseError> {
            prop_assert_eq!(locks.is_empty(), self.0.is_empty());
            for entry in &self.0 {
                let mode = locks.mode_held(HolderId(entry.holder), page(entry.page));
                prop_assert_eq!(mode, entry.held.then_some(entry.mode));
            }
            for state in locks.pages.values() {
                let exclusive = state.held.values().filter(|mode| **mode == Exclusive).count();
                prop_assert!(exclusive == 0 || state.held.len() == 1, "{:?}", state);
            }
            let held: usize = locks.pages.values().map(|state| state.held.len()).sum();
            prop_assert_eq!(held, self.0.iter().filter(|entry| entry.held).count());
            Ok(())
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Request(u64, u64, LockMode),
        Release(u64, u64),
        Drop(u64),
    }

    fn modes() -> impl Strategy<Value = LockMode> {
        prop::sample::select(vec![Shared, Exclusive])
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            8 => (0..HOLDERS, 0u64..6, modes()).prop_map(|(holder, index, mode)| Op::Request(holder, index, mode)),
            6 => (0..HOLDERS, 0u64..6).prop_map(|(holder, index)| Op::Release(holder, index)),
            1 => (0..HOLDERS).prop_map(Op::Drop),
        ];
        prop::collection::vec(op, 1..100)
    }

    fn apply(locks: &mut PageLocks, model: &mut Model, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Request(holder, index, mode) => prop_assert_eq!(
                locks.request(HolderId(holder), page(index), mode),
                model.request(holder, index, mode)
            ),
            Op::Release(holder, index) => prop_assert_eq!(
                locks.release(HolderId(holder), page(index)),
                model.remove(|entry| (entry.holder, entry.page) == (holder, index))
            ),
            Op::Drop(holder) => prop_assert_eq!(
                locks.drop_holder(HolderId(holder)),
                model.remove(|entry| entry.holder == holder)
            ),
        }
        model.check(locks)
    }

    /// A holder that locks pages in ascending order and then releases them all.
    #[derive(Clone, Debug)]
    struct Operation {
        todo: VecDeque<(u64, LockMode)>,
        is_queued: bool,
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let pages = prop::collection::btree_map(0u64..6, modes(), 1..6);
        let operation =
            pages.prop_map(|pages| Operation { todo: pages.into_iter().collect(), is_queued: false });
        prop::collection::vec(operation, 2..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_table_matches_the_model(ops in ops()) {
            let (mut locks, mut model) = (PageLocks::new(), Model::default());
            for op in &ops {
                apply(&mut locks, &mut model, op)?;
            }
        }

        #[test]
        fn every_request_is_granted_when_holders_release_in_any_order(ops in ops(), seed: u64) {
            let (mut locks, mut model, mut random) = (PageLocks::new(), Model::default(), SplitMix64::new(seed));
            for op in &ops {
                apply(&mut locks, &mut model, op)?;
            }
            while !model.0.is_empty() {
                let held: Vec<Entry> = model.0.iter().filter(|entry| entry.held).copied().collect();
                prop_assert!(!held.is_empty(), "every request waits: {:?}", model.0);
                let Entry { holder, page, .. } = held[random.below(held.len() as u64) as usize];
                apply(&mut locks, &mut model, &Op::Release(holder, page))?;
            }
        }

        #[test]
        fn operations_in_ascending_order_never_deadlock(operations in operations(), seed: u64) {
            let (mut locks, mut random, mut operations) = (PageLocks::new(), SplitMix64::new(seed), operations);
            let mut unfinished: Vec<usize> = (0..operations.len()).collect();
            while !unfinished.is_empty() {
                let ready: Vec<usize> =
                    unfinished.iter().copied().filter(|index| !operations[*index].is_queued).collect();
                prop_assert!(!ready.is_empty(), "deadlock: {:?}", locks);
                let chosen = ready[random.below(ready.len() as u64) as usize];
                let holder = HolderId(chosen as u64);
                if let Some((index, mode)) = operations[chosen].todo.pop_front() {
                    let outcome = locks.request(holder, page(index), mode);
                    prop_assert!(outcome.is_ok(), "{:?}", outcome);
                    operations[chosen].is_queued = outcome == Ok(LockOutcome::Queued);
                } else {
                    unfinished.retain(|index| *index != chosen);
                    for Grant { holder, .. } in locks.drop_holder(holder) {
                        prop_assert!(operations[holder.0 as usize].is_queued);
                        operations[holder.0 as usize].is_queued = false;
                    }
                }
            }
            prop_assert!(locks.is_empty());
        }
    }
}

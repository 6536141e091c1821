//! Descriptors of datafiles in the hands of co-located clients, and how they are taken back.
//!
//! The server's own record says who has what; of the shared page it reads only how many operations the client says
//! to be in the middle of, and it never waits longer for that than it is told to. A client that keeps the number up
//! loses its connection.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weft_core::{Nanos, TargetId};
use weft_env::{Closer, Env, Shared};
use weft_wire::data::DatafileId;
use weft_wire::data::lease::{FREE, GRANTED, PAGE_LEN, REVOKED, SLOTS, VALID_UNTIL, in_flight, state};

/// How far ahead of the present a lease is good without another heartbeat.
pub(crate) const LEASE_TERM: Nanos = Nanos::from_s(5);
/// How often a revocation looks whether operations in flight have ended: from here, doubling, up to the other.
const LOOK_AGAIN_MIN: Nanos = Nanos(20_000);
const LOOK_AGAIN_MAX: Nanos = Nanos::from_ms(5);

/// All leases of a server.
pub(crate) struct Leases<E: Env> {
    env: E,
    /// Descriptors that the process before this one gave out are good until then.
    old_ones_end: Nanos,
    /// Leases given out now; lets removals pass without the lock where there are none.
    count: AtomicUsize,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    closed: bool,
    pages: BTreeMap<u64, Page<E>>,
    by_datafile: BTreeMap<DatafileId, BTreeSet<(u64, u32)>>,
    by_target: BTreeMap<TargetId, u32>,
}

/// The leases of one connection.
struct Page<E: Env> {
    shared: E::Shared,
    closer: Arc<dyn Closer>,
    granted: BTreeMap<u32, DatafileId>,
    free: Vec<u32>,
    unused: u32,
}

fn word<S: Shared>(shared: &S, index: usize) -> &AtomicU64 {
    &shared.words()[index]
}

impl<E: Env> Leases<E> {
    /// None yet. With `after_crash` the first revocation waits until descriptors that the process before this one
    /// gave out are good no more.
    pub fn new(env: &E, after_crash: bool) -> Self {
        let old_ones_end = if after_crash { env.now().saturating_add(LEASE_TERM) } else { Nanos(0) };
        let inner = Inner {
            closed: false,
            pages: BTreeMap::new(),
            by_datafile: BTreeMap::new(),
            by_target: BTreeMap::new(),
        };
        Self { env: env.clone(), old_ones_end, count: AtomicUsize::new(0), inner: Mutex::new(inner) }
    }

    /// Gives a connection its page.
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    pub fn attach(&self, connection: u64, closer: Arc<dyn Closer>) -> std::io::Result<E::Shared> {
        let shared = self.env.shared(PAGE_LEN)?;
        let until = self.env.now().saturating_add(LEASE_TERM);
        word(&shared, VALID_UNTIL).store(until.0, Ordering::SeqCst);
        let page =
            Page { shared: shared.clone(), closer, granted: BTreeMap::new(), free: Vec::new(), unused: 0 };
        self.inner.lock().pages.insert(connection, page);
        Ok(shared)
    }

    /// Notes that a connection is lent a datafile, in this slot of its page; `None` when it has no page or the page
    /// is full.
    pub fn grant(&self, connection: u64, datafile: DatafileId) -> Option<u32> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return None;
        }
        let page = inner.pages.get_mut(&connection)?;
        let slot = match page.free.pop() {
            Some(slot) => slot,
            None if (page.unused as usize) < SLOTS => {
                page.unused += 1;
                page.unused - 1
            }
            None => return None,
        };
        page.granted.insert(slot, datafile);
        word(&page.shared, in_flight(slot as usize)).store(0, Ordering::SeqCst);
        word(&page.shared, state(slot as usize)).store(GRANTED, Ordering::SeqCst);
        inner.by_datafile.entry(datafile).or_default().insert((connection, slot));
        *inner.by_target.entry(datafile.target).or_default() += 1;
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(slot)
    }

    /// The client has closed the descriptors of these slots; slots that it does not have are ignored.
    pub fn release(&self, connection: u64, slots: &[u32]) {
        let mut inner = self.inner.lock();
        for &slot in slots {
            let Some(page) = inner.pages.get_mut(&connection) else { return };
            let Some(datafile) = page.granted.remove(&slot) else { continue };
            word(&page.shared, state(slot as usize)).store(FREE, Ordering::SeqCst);
            page.free.push(slot);
            self.forget(&mut inner, connection, slot, datafile);
        }
    }

    /// The connection has ended and with it its leases.
    pub fn disconnected(&self, connection: u64) {
        let mut inner = self.inner.lock();
        let Some(page) = inner.pages.remove(&connection) else { return };
        // The process may live on.
        word(&page.shared, VALID_UNTIL).store(0, Ordering::SeqCst);
        for (slot, datafile) in page.granted {
            word(&page.shared, state(slot as usize)).store(REVOKED, Ordering::SeqCst);
            self.forget(&mut inner, connection, slot, datafile);
        }
    }

    fn forget(&self, inner: &mut Inner<E>, connection: u64, slot: u32, datafile: DatafileId) {
        if let Some(holders) = inner.by_datafile.get_mut(&datafile) {
            holders.remove(&(connection, slot));
            if holders.is_empty() {
                inner.by_datafile.remove(&datafile);
            }
        }
        *inner.by_target.get_mut(&datafile.target).expect("counted when granted") -= 1;
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets all leases be good for another while.
    pub fn heartbeat(&self) {
        let until = self.env.now().saturating_add(LEASE_TERM);
        for page in self.inner.lock().pages.values() {
            word(&page.shared, VALID_UNTIL).store(until.0, Ordering::SeqCst);
        }
    }

    /// Leases of a target's datafiles now.
    pub fn on_target(&self, target: TargetId) -> u32 {
        self.inner.lock().by_target.get(&target).copied().unwrap_or(0)
    }

    /// Takes back the leases of one datafile.
    pub async fn revoke_datafile(&self, datafile: DatafileId, patience: Nanos) -> usize {
        if self.count.load(Ordering::SeqCst) == 0 && self.old_ones_end == Nanos(0) {
            return 0;
        }
        self.revoke(patience, |inner| {
            inner.by_datafile.get(&datafile).into_iter().flatten().copied().collect()
        })
        .await
    }

    /// Takes back every lease of a target's datafiles.
    pub async fn revoke_target(&self, target: TargetId, patience: Nanos) -> usize {
        let on_target = |inner: &Inner<E>| {
            let datafiles = inner.by_datafile.iter().filter(|(datafile, _)| datafile.target == target);
            datafiles.flat_map(|(_, holders)| holders).copied().collect()
        };
        self.revoke(patience, on_target).await
    }

    /// Takes back every lease and gives no more.
    pub async fn close(&self, patience: Nanos) -> usize {
        self.inner.lock().closed = true;
        self.revoke(patience, |inner| inner.by_datafile.values().flatten().copied().collect()).await
    }

    /// Takes leases back and waits until nobody is in the middle of an operation under them; the number of clients
    /// that had to be disconnected because they did not end theirs in time.
    async fn revoke(&self, patience: Nanos, which: impl Fn(&Inner<E>) -> Vec<(u64, u32)>) -> usize {
        let now = self.env.now();
        if now < self.old_ones_end {
            self.env.sleep(self.old_ones_end.saturating_sub(now)).await;
        }
        let mut busy = self.mark_revoked(which);
        let deadline = self.env.now().saturating_add(patience);
        let mut pause = LOOK_AGAIN_MIN;
        loop {
            self.keep_in_flight(&mut busy);
            if busy.is_empty() || self.env.now() >= deadline {
                break;
            }
            self.env.sleep(pause).await;
            pause = Nanos(pause.0 * 2).min(LOOK_AGAIN_MAX);
        }
        for held in &busy {
            held.closer.close();
        }
        busy.iter().map(|held| held.connection).collect::<BTreeSet<_>>().len()
    }

    fn mark_revoked(&self, which: impl Fn(&Inner<E>) -> Vec<(u64, u32)>) -> Vec<Held<E>> {
        let inner = self.inner.lock();
        let holders = which(&inner).into_iter();
        let held = holders.filter_map(|(connection, slot)| {
            let page = inner.pages.get(&connection)?;
            word(&page.shared, state(slot as usize)).store(REVOKED, Ordering::SeqCst);
            let (shared, closer) = (page.shared.clone(), Arc::clone(&page.closer));
            Some(Held { connection, slot, shared, closer })
        });
        held.collect()
    }

    /// Keeps those under which operations still run. The dead are not waited for.
    fn keep_in_flight(&self, held: &mut Vec<Held<E>>) {
        let inner = self.inner.lock();
        held.retain(|Held { connection, slot, shared, .. }| {
            inner.pages.contains_key(connection)
                && word(shared, in_flight(*slot as usize)).load(Ordering::SeqCst) != 0
        });
    }
}

/// A lease that is being taken back.
struct Held<E: Env> {
    connection: u64,
    slot: u32,
    shared: E::Shared,
    closer: Arc<dyn Closer>,
}

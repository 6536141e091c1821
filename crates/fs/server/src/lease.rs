//! Leases: descriptors of datafiles held by clients on the same host, and their revocation.
//!
//! A client with a lease reads and writes the datafile itself, past this server. Server and client share a page of
//! words, one page per connection:
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `VALID_UNTIL` | server | leases of the page are valid until then; each heartbeat extends it by [`LEASE_TERM`] |
//! | `state` of a slot | server | `FREE`, `GRANTED` or `REVOKED` |
//! | `in_flight` of a slot | client | number of operations that run under the lease |
//!
//! ```text
//! client operation                         revocation
//! 1. in_flight += 1                        1. state = REVOKED
//! 2. state = GRANTED, and valid? ──no──▶   2. wait until in_flight = 0, at most `timeout`
//!    | yes              in_flight -= 1,    3. still not 0: close the client's connection
//! 3. read or write      ask by message
//! 4. in_flight -= 1
//! ```
//!
//! Each side writes its word before it reads the other's, with sequential consistency, so one of them sees the other.
//!
//! The record of leases is the server's own; from the page it reads only `in_flight`, and it waits a bounded time. A
//! client that keeps the count up loses its connection. After a crash, the first revocation waits until the leases of
//! the previous process have expired.

use crate::activity::ClientKey;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use weft_core::{FileId, Nanos, TargetId};
use weft_env::{Closer, Env, Shared};
use weft_wire::data::DatafileId;
use weft_wire::data::lease::{FREE, GRANTED, PAGE_LEN, REVOKED, SLOTS, VALID_UNTIL, in_flight, state};

/// Time for which a lease is valid after a heartbeat.
pub(crate) const LEASE_TERM: Nanos = Nanos::from_s(5);
/// Delay between two checks whether operations have ended, doubled up to the maximum.
const POLL_PAUSE_MIN: Nanos = Nanos(20_000);
const POLL_PAUSE_MAX: Nanos = Nanos::from_ms(5);

/// All leases of a server.
pub(crate) struct Leases<E: Env> {
    env: E,
    /// End of leases that the previous process granted.
    previous_leases_end: Nanos,
    /// Number of leases; a removal takes no lock while it is zero.
    count: AtomicUsize,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    closed: bool,
    pages: BTreeMap<u64, Page<E>>,
    by_datafile: BTreeMap<DatafileId, BTreeSet<(u64, u32)>>,
    by_target: BTreeMap<TargetId, u32>,
}

/// Number of leased descriptors by holder.
#[derive(Default, Debug)]
pub(crate) struct LeaseCounts {
    /// By client.
    pub by_client: BTreeMap<ClientKey, u32>,
    /// By inode and user.
    pub by_file: BTreeMap<(FileId, u32), u32>,
}

/// Leases of one connection.
struct Page<E: Env> {
    /// Client and user; `None` for a server.
    holder: Option<ClientKey>,
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
    /// Creates an empty record. With `after_crash`, the first revocation waits until leases of the previous process
    /// have expired.
    pub fn new(env: &E, after_crash: bool) -> Self {
        let previous_leases_end = if after_crash { env.now().saturating_add(LEASE_TERM) } else { Nanos(0) };
        let inner = Inner {
            closed: false,
            pages: BTreeMap::new(),
            by_datafile: BTreeMap::new(),
            by_target: BTreeMap::new(),
        };
        Self { env: env.clone(), previous_leases_end, count: AtomicUsize::new(0), inner: Mutex::new(inner) }
    }

    /// Creates the page of a connection.
    ///
    /// # Errors
    /// The system has no memory or descriptors left.
    pub fn attach(
        &self,
        connection: u64,
        holder: Option<ClientKey>,
        closer: Arc<dyn Closer>,
    ) -> std::io::Result<E::Shared> {
        let shared = self.env.shared(PAGE_LEN)?;
        let until = self.env.now().saturating_add(LEASE_TERM);
        word(&shared, VALID_UNTIL).store(until.0, Ordering::SeqCst);
        let page = Page {
            holder,
            shared: shared.clone(),
            closer,
            granted: BTreeMap::new(),
            free: Vec::new(),
            unused: 0,
        };
        self.inner.lock().pages.insert(connection, page);
        Ok(shared)
    }

    /// Records a lease. Returns its slot on the connection's page; `None` if there is no page or it is full.
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

    /// Ends leases whose descriptors the client has closed. Slots that it does not have are ignored.
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

    /// Ends the leases of a connection that has ended.
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

    /// Extends all leases.
    pub fn heartbeat(&self) {
        let until = self.env.now().saturating_add(LEASE_TERM);
        for page in self.inner.lock().pages.values() {
            word(&page.shared, VALID_UNTIL).store(until.0, Ordering::SeqCst);
        }
    }

    /// Number of leases on a target.
    pub fn on_target(&self, target: TargetId) -> u32 {
        self.inner.lock().by_target.get(&target).copied().unwrap_or(0)
    }

    /// Counts the leases by client and by file.
    pub fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts::default();
        if self.count.load(Ordering::SeqCst) == 0 {
            return counts;
        }
        for page in self.inner.lock().pages.values().filter(|page| !page.granted.is_empty()) {
            let Some(holder) = page.holder else { continue };
            *counts.by_client.entry(holder).or_default() += page.granted.len() as u32;
            for datafile in page.granted.values() {
                *counts.by_file.entry((datafile.file.inode(), holder.uid)).or_default() += 1;
            }
        }
        counts
    }

    /// Revokes the leases of one datafile. Returns the number of clients that were disconnected.
    pub async fn revoke_datafile(&self, datafile: DatafileId, timeout: Nanos) -> usize {
        if self.count.load(Ordering::SeqCst) == 0 && self.previous_leases_end == Nanos(0) {
            return 0;
        }
        self.revoke(timeout, |inner| {
            inner.by_datafile.get(&datafile).into_iter().flatten().copied().collect()
        })
        .await
    }

    /// Revokes every lease on a target. Returns the number of clients that were disconnected.
    pub async fn revoke_target(&self, target: TargetId, timeout: Nanos) -> usize {
        let on_target = |inner: &Inner<E>| {
            let datafiles = inner.by_datafile.iter().filter(|(datafile, _)| datafile.target == target);
            datafiles.flat_map(|(_, holders)| holders).copied().collect()
        };
        self.revoke(timeout, on_target).await
    }

    /// Revokes every lease and grants no more. Returns the number of clients that were disconnected.
    pub async fn close(&self, timeout: Nanos) -> usize {
        self.inner.lock().closed = true;
        self.revoke(timeout, |inner| inner.by_datafile.values().flatten().copied().collect()).await
    }

    /// Revokes leases and waits until no operation runs under them. Returns the number of clients that were
    /// disconnected because theirs did not end in time.
    async fn revoke(&self, timeout: Nanos, which: impl Fn(&Inner<E>) -> Vec<(u64, u32)>) -> usize {
        let now = self.env.now();
        if now < self.previous_leases_end {
            self.env.sleep(self.previous_leases_end.saturating_sub(now)).await;
        }
        let mut busy = self.mark_revoked(which);
        let deadline = self.env.now().saturating_add(timeout);
        let mut pause = POLL_PAUSE_MIN;
        loop {
            self.retain_in_flight(&mut busy);
            if busy.is_empty() || self.env.now() >= deadline {
                break;
            }
            self.env.sleep(pause).await;
            pause = Nanos(pause.0 * 2).min(POLL_PAUSE_MAX);
        }
        for held in &busy {
            held.closer.close();
        }
        busy.iter().map(|held| held.connection).collect::<BTreeSet<_>>().len()
    }

    fn mark_revoked(&self, which: impl Fn(&Inner<E>) -> Vec<(u64, u32)>) -> Vec<RevokedLease<E>> {
        let inner = self.inner.lock();
        let holders = which(&inner).into_iter();
        let held = holders.filter_map(|(connection, slot)| {
            let page = inner.pages.get(&connection)?;
            word(&page.shared, state(slot as usize)).store(REVOKED, Ordering::SeqCst);
            let (shared, closer) = (page.shared.clone(), Arc::clone(&page.closer));
            Some(RevokedLease { connection, slot, shared, closer })
        });
        held.collect()
    }

    /// Keeps the leases under which operations still run. Those of ended connections do not count.
    fn retain_in_flight(&self, held: &mut Vec<RevokedLease<E>>) {
        let inner = self.inner.lock();
        held.retain(|RevokedLease { connection, slot, shared, .. }| {
            inner.pages.contains_key(connection)
                && word(shared, in_flight(*slot as usize)).load(Ordering::SeqCst) != 0
        });
    }
}

/// A lease that is being revoked.
struct RevokedLease<E: Env> {
    connection: u64,
    slot: u32,
    shared: E::Shared,
    closer: Arc<dyn Closer>,
}

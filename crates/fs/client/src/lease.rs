//! Leased datafile descriptors: co-located reads and writes at the cost of local ones.
//!
//! All leases of one server belong to one connection, the *channel*, and share its lease page in shared memory. The
//! page has two words for each slot, and one expiry that the server keeps extending:
//!
//! ```text
//! lease page                         client                       server
//!   valid until T ◀──────────────────────────────────────────── extends T
//!   slot 0: state, in flight         count += 1                  state = REVOKED
//!   slot 1: state, in flight         state == GRANTED, now < T?  waits until count == 0
//!   ...                              I/O on the descriptor       acts: fence, removal, move, ...
//!                                    count -= 1
//! ```
//!
//! The client counts before it reads the state, and the server stores the state before it reads the count. All four
//! accesses are sequentially consistent, so at least one side sees the other. The hot path consists of nothing else:
//! two atomic additions, two loads and the system call.
//!
//! | event | effect |
//! | --- | --- |
//! | the server revokes a slot | later operations go by message; the client asks again after [`RETRY_AFTER`] |
//! | the server stops extending the expiry | leases end [`TICK_MARGIN`] early, so that no operation outlives them |
//! | the client drops a lease | its slot returns with the next request, or in batches of [`RELEASED_SLOTS_MIN`] |
//! | the channel breaks | the client revokes all slots and waits for its operations before it closes the connection |
//! | a session has `leases_max` leases | a second-chance clock drops leases not used lately |
//!
//! The words are defined in [`weft_wire::data::lease`]; see also docs/design/leases.md.

use crate::async_mutex::AsyncMutex;
use crate::connection::{Area, Connection, unexpected_reply};
use crate::counters::Counters;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_core::Nanos;
use weft_env::{Conn, Env, Shared};
use weft_wire::Family;
use weft_wire::data::{DataReply, DataRequest, lease};

/// Time after which a lease is requested again for a datafile whose lease was refused or revoked.
pub(crate) const RETRY_AFTER: Nanos = Nanos::from_ms(500);
/// Number of released slots that justify a message of their own.
const RELEASED_SLOTS_MIN: usize = 64;
/// Pause between checks whether the operations on a broken channel have ended.
const DRAIN_PAUSE: Nanos = Nanos::from_ms(1);

/// A lease is not used any more this long before its expiry: longer than a tick of any system's coarse clock.
const TICK_MARGIN: Nanos = Nanos::from_ms(20);

/// The lease page of one channel connection.
pub(crate) struct LeasePage<S> {
    shared: S,
    /// Slots of dropped leases, to be returned to the server.
    pub(crate) released: Mutex<Vec<u32>>,
}

impl<S: Shared> LeasePage<S> {
    pub(crate) fn new(shared: S) -> Self {
        Self { shared, released: Mutex::default() }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.shared.words()[index]
    }

    /// Stops new operations and waits for those in flight, before the connection is dropped. The server takes the end
    /// of the connection for the end of all its leases.
    pub(crate) async fn retire<E: Env>(&self, env: &E, timeout: Nanos) {
        for slot in 0..lease::SLOTS {
            self.word(lease::state(slot)).store(lease::REVOKED, Ordering::SeqCst);
        }
        let until = env.now().saturating_add(timeout);
        let busy =
            || (0..lease::SLOTS).any(|slot| self.word(lease::in_flight(slot)).load(Ordering::SeqCst) != 0);
        while busy() && env.now() < until {
            env.sleep(DRAIN_PAUSE).await;
        }
    }
}

/// One leased datafile.
pub(crate) struct Lease<E: Env> {
    pub(crate) file: E::File,
    pub(crate) writable: bool,
    page: Arc<LeasePage<E::Shared>>,
    slot: u32,
    /// Whether it was used since the clock hand last passed it.
    used: AtomicBool,
    /// Tick of the coarse clock at which the page was last found valid.
    valid_at: AtomicU64,
    /// Number of operations. Counted without a locked instruction, so racing threads lose some counts.
    operations: AtomicU64,
    counters: Arc<Counters>,
}

/// An operation in flight on a lease.
pub(crate) struct InFlight<'a> {
    word: &'a AtomicU64,
}

impl<E: Env> Lease<E> {
    pub(crate) fn new(
        file: E::File,
        writable: bool,
        (page, slot): (Arc<LeasePage<E::Shared>>, u32),
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            file,
            writable,
            page,
            slot,
            used: AtomicBool::new(true),
            valid_at: AtomicU64::new(u64::MAX),
            operations: AtomicU64::new(0),
            counters,
        }
    }

    /// Begins an operation if the lease still holds.
    #[inline]
    pub(crate) fn begin_operation(&self, env: &E) -> Option<InFlight<'_>> {
        let words = self.page.shared.words();
        let slot = self.slot as usize;
        let word = &words[lease::in_flight(slot)];
        // SeqCst: the server stores the state and then reads the count; the client adds to the count and then reads
        // the state. In the single order of these accesses, at least one side sees the other.
        word.fetch_add(1, Ordering::SeqCst);
        let operation = InFlight { word };
        if words[lease::state(slot)].load(Ordering::SeqCst) != lease::GRANTED {
            return None;
        }
        // The exact clock is read once per tick of the coarse clock; a tick is short compared with the margin.
        let tick = env.tick().0;
        if self.valid_at.load(Ordering::Relaxed) != tick {
            let until = words[lease::VALID_UNTIL].load(Ordering::Acquire);
            if env.now().saturating_add(TICK_MARGIN).0 >= until {
                return None;
            }
            self.valid_at.store(tick, Ordering::Relaxed);
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.operations.store(self.operations.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(operation)
    }

    /// Ends an operation whose [`InFlight`] guard was forgotten.
    #[inline]
    pub(crate) fn end_operation(&self) {
        let words = self.page.shared.words();
        drop(InFlight { word: &words[lease::in_flight(self.slot as usize)] });
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<E: Env> Drop for Lease<E> {
    fn drop(&mut self) {
        self.counters.leased_operations.add(*self.operations.get_mut());
        self.page.released.lock().push(self.slot);
    }
}

/// The connection that the leases of one server belong to.
pub(crate) struct LeaseChannel<E: Env> {
    pub(crate) mutex: AsyncMutex<E>,
    pub(crate) open: Mutex<Option<Box<OpenChannel<E>>>>,
    /// Time of the monotonic clock, in nanoseconds, until which requests for leases are pointless.
    pub(crate) no_requests_until_ns: AtomicU64,
}

/// A connected channel with its lease page.
pub(crate) struct OpenChannel<E: Env> {
    pub(crate) connection: Connection<E>,
    pub(crate) page: Arc<LeasePage<E::Shared>>,
}

/// Answer to a request for a lease.
pub(crate) enum LeaseAnswer<E: Env> {
    /// Granted.
    Leased(Arc<Lease<E>>),
    /// The server does not lease this datafile now.
    Declined,
    /// This server grants no lease to this process: another machine, leases off, or no descriptor left here.
    Unavailable,
    /// Another task is requesting a lease at the moment.
    Busy,
    /// The datafile is not leased for writing to any client at the moment.
    WritersBlocked,
}

impl<E: Env> LeaseChannel<E> {
    pub(crate) fn new(env: &E) -> Self {
        Self { mutex: AsyncMutex::new(env), open: Mutex::new(None), no_requests_until_ns: AtomicU64::new(0) }
    }

    /// Closes a forked child's copies without a message to the server.
    pub(crate) fn forget(&self) {
        if let Some(mut open) = self.open.try_lock() {
            *open = None;
        }
    }

    /// Returns whether a request for a lease makes sense at `now`.
    pub(crate) fn may_request(&self, now: Nanos) -> bool {
        now.0 >= self.no_requests_until_ns.load(Ordering::Relaxed)
    }

    /// Allows requests for leases again.
    pub(crate) fn allow_requests(&self) {
        self.no_requests_until_ns.store(0, Ordering::Relaxed);
    }

    /// Returns released slots to the server when there are many; never waits.
    pub(crate) async fn return_released(&self) {
        let Some(_guard) = self.mutex.try_lock() else { return };
        let many = |open: &OpenChannel<E>| open.page.released.lock().len() >= RELEASED_SLOTS_MIN;
        let open = {
            let mut place = self.open.lock();
            if place.as_ref().is_some_and(|open| many(open)) { place.take() } else { None }
        };
        if let Some(mut open) = open {
            // On an error, the next request notices it and makes a new channel.
            let _ = send_released(&mut open).await;
            *self.open.lock() = Some(open);
        }
    }
}

/// Returns the slots of dropped leases to the server.
pub(crate) async fn send_released<E: Env>(open: &mut OpenChannel<E>) -> io::Result<()> {
    let slots = std::mem::take(&mut *open.page.released.lock());
    if slots.is_empty() {
        return Ok(());
    }
    open.connection.send_one_way(Family::Data, &DataRequest::Release { slots }).await
}

/// Requests the shared areas of a connection: a payload area of about `payload_len` bytes, which is stored in the
/// connection, and the lease page, which is returned. `None` if the server refuses.
pub(crate) async fn attach_shared<E: Env>(
    connection: &mut Connection<E>,
    payload_len: u32,
) -> io::Result<Option<E::Shared>> {
    connection.area = Area::None;
    match connection.exchange(Family::Data, &DataRequest::AttachShared { payload_len }).await? {
        DataReply::Attached { payload_len } => {
            let conn = connection.link.conn();
            // An area that does not arrive found no free descriptor in this process, which works without it.
            let mut take = |len| match conn.take_shared(len) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                result => result.map(Some),
            };
            if payload_len > 0
                && let Some(shared) = take(payload_len as usize)?
            {
                connection.area = Area::Attached(shared, payload_len);
            }
            take(lease::PAGE_LEN)
        }
        DataReply::Failed(_) => Ok(None),
        _ => Err(unexpected_reply()),
    }
}

/// The owner of a lease, which uses it and can drop it.
pub(crate) trait LeaseOwner<E: Env>: Send + Sync {
    /// Drops `lease` if it is still the one in use.
    fn drop_lease(&self, lease: &Arc<Lease<E>>);
}

/// All leases of a session. Beyond the bound, leases not used lately are dropped.
pub(crate) struct SessionLeases<E: Env> {
    leases_max: usize,
    ring: Mutex<ClockRing<E>>,
}

/// The owner of a lease, and the lease.
type Entry<E> = (Weak<dyn LeaseOwner<E>>, Weak<Lease<E>>);

struct ClockRing<E: Env> {
    entries: Vec<Entry<E>>,
    hand: usize,
}

impl<E: Env> SessionLeases<E> {
    pub(crate) fn new(leases_max: usize) -> Self {
        Self { leases_max: leases_max.max(1), ring: Mutex::new(ClockRing { entries: Vec::new(), hand: 0 }) }
    }

    /// Number of operations on all current leases.
    pub(crate) fn operations(&self) -> u64 {
        let ring = self.ring.lock();
        let held = ring.entries.iter().filter_map(|(_, lease)| lease.upgrade());
        held.map(|lease| lease.operations.load(Ordering::Relaxed)).sum()
    }

    /// Adds a lease, and drops others to stay within the bound.
    pub(crate) fn add(&self, owner: Weak<impl LeaseOwner<E> + 'static>, lease: &Arc<Lease<E>>) {
        let mut dropped = Vec::new();
        {
            let mut ring = self.ring.lock();
            if ring.entries.len() >= self.leases_max {
                ring.entries.retain(|(_, lease)| lease.strong_count() > 0);
            }
            while ring.entries.len() >= self.leases_max {
                dropped.push(ring.second_chance());
            }
            ring.entries.push((owner, Arc::downgrade(lease)));
        }
        // Outside the lock: dropping a lease takes other locks.
        for (owner, lease) in dropped {
            if let (Some(owner), Some(lease)) = (owner.upgrade(), lease.upgrade()) {
                owner.drop_lease(&lease);
            }
        }
    }
}

impl<E: Env> ClockRing<E> {
    /// Removes the first lease from the hand on that was not used since the hand last passed it.
    fn second_chance(&mut self) -> Entry<E> {
        loop {
            self.hand = if self.hand >= self.entries.len() { 0 } else { self.hand };
            let lease = self.entries[self.hand].1.upgrade();
            if lease.is_some_and(|lease| lease.used.swap(false, Ordering::Relaxed)) {
                self.hand += 1;
            } else {
                return self.entries.swap_remove(self.hand);
            }
        }
    }
}

//! Datafile descriptors under leases: co-located reads and writes at the cost of local ones.
//!
//! All leases of a server hang on one connection (the channel) and its lease page. An operation counts itself in the
//! page, looks whether the lease still holds, and only then touches the descriptor; see
//! [`weft_wire::data::lease`]. Nothing here is done per operation but that.

use crate::allowance::Allowance;
use crate::connect::{Area, Wire, connect};
use crate::core::Core;
use crate::counters::Counters;
use crate::error::Error;
use crate::gate::Gate;
use crate::options::Transport;
use crate::server::{LEASE_LINE, Server};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_core::Nanos;
use weft_env::{Conn, Env, Shared};
use weft_wire::data::{DataReply, DataRequest, DatafileId, lease};
use weft_wire::{Capability, Errno, Family};

/// A server that gives no leases at all is asked again after this long.
const ASK_AGAIN_AFTER: Nanos = Nanos::from_s(30);
/// A datafile that was not leased, or whose lease was taken back, is asked for again after this long.
pub(crate) const RETRY_AFTER: Nanos = Nanos::from_ms(500);
/// Released slots that are worth a message of their own.
const RELEASE_BATCH: usize = 64;
/// How often a channel that must be given up looks whether its operations have ended.
const DRAIN_PAUSE: Nanos = Nanos::from_ms(1);

/// A lease is not used any more this long before its end: longer than any system's tick.
const TICK_MARGIN: Nanos = Nanos::from_ms(20);

/// The lease page of one channel connection.
pub(crate) struct Page<S> {
    shared: S,
    /// Slots that nobody uses any more, to be given back.
    released: Mutex<Vec<u32>>,
}

impl<S: Shared> Page<S> {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.shared.words()[index]
    }

    /// Before the connection is dropped: no operation begins any more, and those in flight have ended. The server
    /// takes the end of the connection for the end of all its leases.
    async fn retire<E: Env>(&self, env: &E, patience: Nanos) {
        for slot in 0..lease::SLOTS {
            self.word(lease::state(slot)).store(lease::REVOKED, Ordering::SeqCst);
        }
        let until = env.now().saturating_add(patience);
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
    page: Arc<Page<E::Shared>>,
    slot: u32,
    /// Used since the bound on leases was last enforced.
    used: AtomicBool,
    /// The tick at which the page was last found valid.
    valid_at: AtomicU64,
    /// Operations. Counted without a locked instruction: where threads race some are missed.
    operations: AtomicU64,
    counters: Arc<Counters>,
}

/// An operation in flight on a lease.
pub(crate) struct InFlight<'a> {
    word: &'a AtomicU64,
}

impl<E: Env> Lease<E> {
    /// Begins an operation if the lease still holds.
    #[inline]
    pub(crate) fn enter(&self, env: &E) -> Option<InFlight<'_>> {
        let words = self.page.shared.words();
        let slot = self.slot as usize;
        let word = &words[lease::in_flight(slot)];
        // SeqCst: the server stores the state and then reads the count, we count and then read the state; in the one
        // order of all these at least one side sees the other.
        word.fetch_add(1, Ordering::SeqCst);
        let inside = InFlight { word };
        if words[lease::state(slot)].load(Ordering::SeqCst) != lease::GRANTED {
            return None;
        }
        // The clock proper is read once per tick; a tick is short beside the margin.
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
        Some(inside)
    }

    /// Ends an operation whose [`InFlight`] was forgotten.
    #[inline]
    pub(crate) fn leave(&self) {
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

/// The connection on which the leases of one server hang.
pub(crate) struct Channel<E: Env> {
    gate: Gate<E>,
    open: Mutex<Option<Box<Open<E>>>>,
    /// Until when there is no point in asking, in nanoseconds of the monotonic clock.
    useless_until: AtomicU64,
}

struct Open<E: Env> {
    wire: Wire<E>,
    page: Arc<Page<E::Shared>>,
}

/// What became of asking for a lease.
pub(crate) enum Answer<E: Env> {
    /// It is there.
    Leased(Arc<Lease<E>>),
    /// The server does not lease this one now.
    No,
    /// Not through this server (not on this node, no leases, no descriptor left here).
    Never,
    /// Another task is asking at the moment.
    Busy,
    /// Nobody gets it for writing at the moment.
    NotNow,
}

impl<E: Env> Channel<E> {
    pub(crate) fn new(env: &E) -> Self {
        Self { gate: Gate::new(env), open: Mutex::new(None), useless_until: AtomicU64::new(0) }
    }

    /// In a forked child: closes this process's copies without a word to the server.
    pub(crate) fn forget(&self) {
        if let Some(mut open) = self.open.try_lock() {
            *open = None;
        }
    }

    /// Whether asking has a point at `now`.
    pub(crate) fn is_useful(&self, now: Nanos) -> bool {
        now.0 >= self.useless_until.load(Ordering::Relaxed)
    }

    /// Forgets that there was no point.
    pub(crate) fn ask_again(&self) {
        self.useless_until.store(0, Ordering::Relaxed);
    }

    /// Gives released slots back when there are many; never waits.
    pub(crate) async fn give_back(&self) {
        let Some(_inside) = self.gate.try_enter() else { return };
        let many = |open: &Open<E>| open.page.released.lock().len() >= RELEASE_BATCH;
        let open = {
            let mut place = self.open.lock();
            if place.as_ref().is_some_and(|open| many(open)) { place.take() } else { None }
        };
        if let Some(mut open) = open {
            // On an error the next one who asks notices and makes a new channel.
            let _ = send_released(&mut open).await;
            *self.open.lock() = Some(open);
        }
    }
}

async fn send_released<E: Env>(open: &mut Open<E>) -> io::Result<()> {
    let slots = std::mem::take(&mut *open.page.released.lock());
    if slots.is_empty() {
        return Ok(());
    }
    open.wire.tell(Family::Data, &DataRequest::Release { slots }).await
}

/// Asks `server` for a lease on `datafile`.
///
/// # Errors
/// `Unreachable`, or what the server refuses.
pub(crate) async fn ask<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    datafile: DatafileId,
    cap: Capability,
    write: bool,
) -> Result<Answer<E>, Error> {
    if !server.may_be_local() {
        return Ok(Answer::Never);
    }
    let channel = &server.channel;
    let inside = if core.options.transport == Transport::Descriptor {
        channel.gate.enter().await
    } else {
        match channel.gate.try_enter() {
            Some(inside) => inside,
            None => return Ok(Answer::Busy),
        }
    };
    let useless = || {
        let until = core.env.now().saturating_add(ASK_AGAIN_AFTER);
        channel.useless_until.store(until.0, Ordering::Relaxed);
        Ok(Answer::Never)
    };
    let allowance = Allowance::begin(&core.env, core.options.request_timeout);
    // A channel from before a restart fails once; the one made then is fresh.
    for fresh in [false, true] {
        let taken = channel.open.lock().take();
        let mut open = match taken {
            Some(open) => open,
            None => match attach(core, server, allowance).await {
                Ok(Some(open)) => open,
                Ok(None) => return useless(),
                // Messages may do without another descriptor.
                Err(Error::Hindered(_)) if core.options.transport != Transport::Descriptor => {
                    return useless();
                }
                Err(error) => return Err(error),
            },
        };
        match ask_on(core, &mut open, datafile, cap, write).await {
            Ok(Ok(answer)) => {
                *channel.open.lock() = Some(open);
                drop(inside);
                return if matches!(answer, Answer::Never) { useless() } else { Ok(answer) };
            }
            Ok(Err(error)) => {
                *channel.open.lock() = Some(open);
                return Err(server.refused(error));
            }
            Err(error) => {
                open.page.retire(&core.env, allowance.left(&core.env)).await;
                drop(open);
                let attempt = if fresh { u32::MAX } else { 1 };
                if let Some(error) = crate::call::give_up(core, server, &error, (attempt, allowance)) {
                    return Err(error);
                }
            }
        }
    }
    unreachable!("the second round returns")
}

async fn ask_on<E: Env>(
    core: &Core<E>,
    open: &mut Open<E>,
    datafile: DatafileId,
    cap: Capability,
    write: bool,
) -> io::Result<Result<Answer<E>, weft_wire::WireError>> {
    send_released(open).await?;
    core.counters.data_messages.one();
    let reply = open.wire.exchange(Family::Data, &DataRequest::Lease { datafile, cap, write }).await?;
    match reply {
        DataReply::Leased { slot } if (slot as usize) < lease::SLOTS => {
            let Some(file) = open.wire.link.conn().take_file() else {
                // It did not arrive: this process has no number left for it.
                open.page.released.lock().push(slot);
                return Ok(Ok(Answer::Never));
            };
            core.counters.leases.one();
            let page = Arc::clone(&open.page);
            Ok(Ok(Answer::Leased(Arc::new(Lease {
                file,
                writable: write,
                page,
                slot,
                used: AtomicBool::new(true),
                valid_at: AtomicU64::new(u64::MAX),
                operations: AtomicU64::new(0),
                counters: Arc::clone(&core.counters),
            }))))
        }
        DataReply::NotLeased => Ok(Ok(Answer::No)),
        DataReply::LentToNobody => Ok(Ok(Answer::NotNow)),
        DataReply::Failed(error) => Ok(Err(error)),
        _ => Err(crate::call::unexpected()),
    }
}

/// A new channel; `None` when this server gives no leases to us.
async fn attach<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    allowance: Allowance,
) -> Result<Option<Box<Open<E>>>, Error> {
    let mut wire = connect(core, server, LEASE_LINE, allowance).await?;
    if !wire.local {
        return Ok(None);
    }
    match attach_shared(&mut wire, 0).await {
        Ok(Some(shared)) => {
            let page = Arc::new(Page { shared, released: Mutex::default() });
            Ok(Some(Box::new(Open { wire, page })))
        }
        Ok(None) => Ok(None),
        Err(error) => Err(server.unreachable(crate::connect::describe(&error))),
    }
}

/// Asks for the shared areas of a connection: a payload area of about `payload_len` bytes, which is put into the
/// wire, and the lease page. `None` when the server refuses.
pub(crate) async fn attach_shared<E: Env>(
    wire: &mut Wire<E>,
    payload_len: u32,
) -> io::Result<Option<E::Shared>> {
    wire.area = Area::None;
    match wire.exchange(Family::Data, &DataRequest::AttachShared { payload_len }).await? {
        DataReply::Attached { payload_len } => {
            let conn = wire.link.conn();
            // What does not arrive finds no descriptor left in this process, which does without.
            let mut take = |len| match conn.take_shared(len) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                result => result.map(Some),
            };
            if payload_len > 0
                && let Some(shared) = take(payload_len as usize)?
            {
                wire.area = Area::Attached(shared, payload_len);
            }
            take(lease::PAGE_LEN)
        }
        DataReply::Failed(_) => Ok(None),
        _ => Err(crate::call::unexpected()),
    }
}

/// The error for a transport by descriptors only where there is none to be had.
pub(crate) fn no_descriptor() -> Error {
    Error::misuse(
        Errno::EIO,
        "transport = \"descriptor\" is set, but the server gives no descriptor of this datafile (another node, direct or null \
         module, leases off, taken back, or for writing to another user than the one who runs the server, see writable_leases); \
         use transport = \"auto\"",
    )
}

/// Where a lease is kept by the open file that uses it.
pub(crate) trait Keeper<E: Env>: Send + Sync {
    /// Drops `lease` if it is still the one kept.
    fn drop_lease(&self, lease: &Arc<Lease<E>>);
}

/// All leases of a session, bounded: beyond the bound those not used lately are dropped.
pub(crate) struct Held<E: Env> {
    leases_max: usize,
    ring: Mutex<Ring<E>>,
}

/// Who keeps a lease, and the lease.
type Entry<E> = (Weak<dyn Keeper<E>>, Weak<Lease<E>>);

struct Ring<E: Env> {
    entries: Vec<Entry<E>>,
    hand: usize,
}

impl<E: Env> Held<E> {
    pub(crate) fn new(leases_max: usize) -> Self {
        Self { leases_max: leases_max.max(1), ring: Mutex::new(Ring { entries: Vec::new(), hand: 0 }) }
    }

    /// Operations of all leases that are held.
    pub(crate) fn operations(&self) -> u64 {
        let ring = self.ring.lock();
        let held = ring.entries.iter().filter_map(|(_, lease)| lease.upgrade());
        held.map(|lease| lease.operations.load(Ordering::Relaxed)).sum()
    }

    /// Counts a new lease, and drops others to stay within the bound.
    pub(crate) fn add(&self, keeper: Weak<impl Keeper<E> + 'static>, lease: &Arc<Lease<E>>) {
        let mut dropped = Vec::new();
        {
            let mut ring = self.ring.lock();
            if ring.entries.len() >= self.leases_max {
                ring.entries.retain(|(_, lease)| lease.strong_count() > 0);
            }
            while ring.entries.len() >= self.leases_max {
                dropped.push(ring.second_chance());
            }
            ring.entries.push((keeper, Arc::downgrade(lease)));
        }
        // Outside the lock: a lease's end takes other locks.
        for (keeper, lease) in dropped {
            if let (Some(keeper), Some(lease)) = (keeper.upgrade(), lease.upgrade()) {
                keeper.drop_lease(&lease);
            }
        }
    }
}

impl<E: Env> Ring<E> {
    /// Takes out the first one from the hand on that was not used since the hand last passed it.
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

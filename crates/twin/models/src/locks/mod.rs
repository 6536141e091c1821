//! Models of locking file systems: the times of grants, and the ranges that other clients lose for them.
//!
//! Clients keep a grant until it is revoked. Only the first request for a range costs messages, and two clients that
//! write near each other keep revoking each other's locks. Two protocols are modelled:
//!
//! * **Extents** (Lustre-like): each stripe object has a lock server. A grant extends to the nearest locks of other
//!   clients, or less on a contended object. Conflicting locks are revoked completely.
//! * **Tokens** (GPFS-like): the first client of a file gets a token for the whole file. Another client gets the list
//!   of holders from the token server and asks them to release its range. Each holder keeps the side it works on.
//!
//! The model is pure. Requests come in order of time, and the answer says when the grant arrives.

mod extents;
mod spec;
mod table;
mod tokens;

pub use spec::{LockError, LockKind, LockSpec, names};

use crate::time::{from_us, transfer};
use std::collections::BTreeMap;
use std::ops::Range;
use table::{HeldLock, Table};
use weft_core::{ByteLen, LocalOffset, Nanos};

/// Lock mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Shared: other clients may read.
    Read,
    /// Exclusive.
    Write,
}

/// A client's request for a range of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// The client.
    pub client: u32,
    /// The stripe object, or the file.
    pub object: u64,
    /// The range. Not empty.
    pub range: Range<LocalOffset>,
    /// The lock mode.
    pub mode: Mode,
    /// Time for which the client uses the range after the grant. It does not release it earlier.
    pub hold: Nanos,
}

/// A range that another client lost for a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The client that lost it.
    pub client: u32,
    /// The lost range.
    pub range: Range<LocalOffset>,
    /// Bytes that the client wrote back before.
    pub flushed: ByteLen,
}

/// A grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Time at which the client may begin.
    pub at: Nanos,
    /// The granted range. It contains the requested one.
    pub range: Range<LocalOffset>,
    /// Ranges that other clients lost.
    pub revoked: Vec<Revoked>,
    /// Number of messages. Zero if the client already had a sufficient lock.
    pub messages: u32,
}

/// Counters of a lock model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockCounters {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests for which the client already had a sufficient lock.
    pub hits: u64,
    /// Number of locks or tokens revoked, in part or completely.
    pub revoked: u64,
    /// Bytes written back because of revocations.
    pub flushed: u64,
    /// Number of messages.
    pub messages: u64,
}

/// The locks of a file system.
#[derive(Clone, Debug)]
pub struct Locks {
    kind: LockKind,
    latency: u64,
    server: u64,
    servers: u64,
    block: u64,
    flush: u64,
    flush_mb_s: f64,
    contended: usize,
    contended_growth: u64,
    remember: u64,
    tables: BTreeMap<u64, Table>,
    server_free: BTreeMap<u64, u64>,
    counters: LockCounters,
}

impl Locks {
    /// Creates a lock model without any locks.
    pub fn new(spec: &LockSpec) -> Self {
        Self {
            kind: spec.kind,
            latency: from_us(spec.latency_us),
            server: from_us(spec.server_us),
            servers: u64::from(spec.servers.max(1)),
            block: spec.block_kib.max(1) * 1024,
            flush: from_us(spec.flush_us),
            flush_mb_s: spec.flush_mb_s,
            contended: spec.contended.max(1) as usize,
            contended_growth: spec.contended_growth_mib << 20,
            remember: from_us(spec.remember_ms * 1e3),
            tables: BTreeMap::new(),
            server_free: BTreeMap::new(),
            counters: LockCounters::default(),
        }
    }

    /// Answers a request that is made at `now`. Requests must come in order of `now`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn request(&mut self, now: Nanos, request: &LockRequest) -> Grant {
        assert!(request.range.start < request.range.end, "a lock needs a range");
        self.counters.requests += 1;
        let wanted = request.range.start.0..request.range.end.0;
        let table = self.tables.entry(request.object).or_default();
        if let Some(held) = table.covering(request.client, &wanted, request.mode) {
            // A grant that is still in transit cannot be used before it arrives.
            let at = now.0.max(held.since);
            held.mark_used(&wanted, request.mode, at + request.hold.0);
            self.counters.hits += 1;
            let range = LocalOffset(held.range.start)..LocalOffset(held.range.end);
            return Grant { at: Nanos(at), range, revoked: Vec::new(), messages: 0 };
        }
        // One message to the server, then wait behind earlier requests.
        let free = self.server_free.entry(request.object % self.servers).or_default();
        *free = (*free).max(now.0 + self.latency) + self.server;
        let served = *free;
        let blocks = wanted.start / self.block * self.block
            ..wanted.end.div_ceil(self.block).saturating_mul(self.block);
        let costs = Costs { latency: self.latency, flush: self.flush, flush_mb_s: self.flush_mb_s };
        let answer = match self.kind {
            LockKind::Extents => {
                let growth = (self.contended, self.contended_growth);
                extents::grant(table, request, (&blocks, self.block), served, &costs, growth, self.remember)
            }
            LockKind::Tokens => tokens::grant(table, request, &blocks, served, &costs),
        };
        let at = answer.at;
        let mut held = HeldLock::new(request.client, answer.range.clone(), request.mode, at);
        held.mark_used(&wanted, request.mode, at + request.hold.0);
        table.add(held);
        self.counters.revoked += answer.revoked.len() as u64;
        self.counters.flushed += answer.revoked.iter().map(|revoked| revoked.flushed.0).sum::<u64>();
        self.counters.messages += u64::from(answer.messages);
        let range = LocalOffset(answer.range.start)..LocalOffset(answer.range.end);
        Grant { at: Nanos(at), range, revoked: answer.revoked, messages: answer.messages }
    }

    /// Drops all locks of a client.
    pub fn forget_client(&mut self, client: u32) {
        self.tables.values_mut().for_each(|table| table.forget(client));
    }

    /// Drops all locks of an object.
    pub fn forget_object(&mut self, object: u64) {
        self.tables.remove(&object);
    }

    /// Returns the locks of an object: client, range and mode, ordered by range.
    pub fn holders(&self, object: u64) -> Vec<(u32, Range<LocalOffset>, Mode)> {
        let held = self.tables.get(&object).into_iter().flat_map(Table::iter);
        let mut all: Vec<_> = held
            .map(|held| (held.client, LocalOffset(held.range.start)..LocalOffset(held.range.end), held.mode))
            .collect();
        all.sort_by_key(|(client, range, _)| (range.start, range.end, *client));
        all
    }

    /// Returns the counters.
    pub fn counters(&self) -> LockCounters {
        self.counters
    }
}

/// Times that a revocation takes.
struct Costs {
    latency: u64,
    flush: u64,
    flush_mb_s: f64,
}

impl Costs {
    /// Returns when a holder that learns of the revocation at `notified` has released its lock: after its current use
    /// and after write-back.
    fn released_at(&self, notified: u64, held: &HeldLock, flushed: u64) -> u64 {
        let free = notified.max(held.busy_until);
        if flushed == 0 { free } else { free + self.flush + transfer(flushed, self.flush_mb_s) }
    }
}

/// Result of one protocol.
struct Answer {
    at: u64,
    range: Range<u64>,
    revoked: Vec<Revoked>,
    messages: u32,
}

fn revoked(client: u32, range: &Range<u64>, flushed: u64) -> Revoked {
    let range = LocalOffset(range.start)..LocalOffset(range.end);
    Revoked { client, range, flushed: ByteLen(flushed) }
}

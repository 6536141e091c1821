//! File systems that lock: who is granted a range of an object when, and what others lose for it.
//!
//! Clients keep what they were granted until it is taken back, so that only the first request for a range costs
//! messages, and two clients that write near each other take it from one another again and again. Two ways are modelled:
//!
//! * **Extents** (Lustre-like): each stripe object has a lock server. A lock grows from what was asked for to the
//!   nearest locks of others, less where many want the object. Conflicting locks are called back whole.
//! * **Tokens** (GPFS-like): the first client of a file gets a token for all of it. Another one asks the token server who
//!   has what he wants and takes it from them himself: each holder keeps the side on which it is working.
//!
//! A model is pure: it is asked in the order of time, and answers when a grant is there.

mod extents;
mod spec;
mod table;
mod tokens;

pub use spec::{LockError, LockKind, LockSpec, names};

use crate::time::{from_us, transfer};
use std::collections::BTreeMap;
use std::ops::Range;
use table::{Held, Table};
use weft_core::{ByteLen, LocalOffset, Nanos};

/// Reading beside others, or writing alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Others may read.
    Read,
    /// Nobody else may have it.
    Write,
}

/// A range of an object that a client wants to use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Who.
    pub client: u32,
    /// Of what: a stripe object, or a file.
    pub object: u64,
    /// Where; not empty.
    pub range: Range<LocalOffset>,
    /// For what.
    pub mode: Mode,
    /// How long it is used from the grant on: it is not given up before.
    pub hold: Nanos,
}

/// What somebody lost for a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// Who.
    pub client: u32,
    /// What is no longer his.
    pub range: Range<LocalOffset>,
    /// What he had to write back before.
    pub flushed: ByteLen,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// When the client may begin.
    pub at: Nanos,
    /// What is his from then on; at least what was asked for.
    pub range: Range<LocalOffset>,
    /// What others lost.
    pub revoked: Vec<Revoked>,
    /// Messages that it took; none when the client had it.
    pub messages: u32,
}

/// What has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockCounters {
    /// Requests.
    pub asked: u64,
    /// Of these, answered by what the client had.
    pub kept: u64,
    /// Locks or tokens that were taken back, in part or whole.
    pub revoked: u64,
    /// Bytes that were written back for it.
    pub flushed: u64,
    /// Messages.
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
    /// A file system of this kind on which nothing is locked.
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

    /// Answers a request that comes at `now`. Requests come in the order of `now`.
    ///
    /// # Panics
    /// When the range is empty.
    pub fn ask(&mut self, now: Nanos, ask: &Ask) -> Grant {
        assert!(ask.range.start < ask.range.end, "a lock on nothing");
        self.counters.asked += 1;
        let wanted = ask.range.start.0..ask.range.end.0;
        let table = self.tables.entry(ask.object).or_default();
        if let Some(held) = table.covering(ask.client, &wanted, ask.mode) {
            // Before a grant that is still on its way arrives, it is of no use.
            let at = now.0.max(held.since);
            held.use_it(&wanted, ask.mode, at + ask.hold.0);
            self.counters.kept += 1;
            let range = LocalOffset(held.range.start)..LocalOffset(held.range.end);
            return Grant { at: Nanos(at), range, revoked: Vec::new(), messages: 0 };
        }
        // One way to the server, behind those that it serves.
        let free = self.server_free.entry(ask.object % self.servers).or_default();
        *free = (*free).max(now.0 + self.latency) + self.server;
        let served = *free;
        let blocks = wanted.start / self.block * self.block
            ..wanted.end.div_ceil(self.block).saturating_mul(self.block);
        let costs = Costs { latency: self.latency, flush: self.flush, flush_mb_s: self.flush_mb_s };
        let answer = match self.kind {
            LockKind::Extents => {
                let growth = (self.contended, self.contended_growth);
                extents::grant(table, ask, (&blocks, self.block), served, &costs, growth, self.remember)
            }
            LockKind::Tokens => tokens::grant(table, ask, &blocks, served, &costs),
        };
        let at = answer.at;
        let mut held = Held::new(ask.client, answer.range.clone(), ask.mode, at);
        held.use_it(&wanted, ask.mode, at + ask.hold.0);
        table.add(held);
        self.counters.revoked += answer.revoked.len() as u64;
        self.counters.flushed += answer.revoked.iter().map(|revoked| revoked.flushed.0).sum::<u64>();
        self.counters.messages += u64::from(answer.messages);
        let range = LocalOffset(answer.range.start)..LocalOffset(answer.range.end);
        Grant { at: Nanos(at), range, revoked: answer.revoked, messages: answer.messages }
    }

    /// A client is gone, and with it all that it had.
    pub fn forget_client(&mut self, client: u32) {
        self.tables.values_mut().for_each(|table| table.forget(client));
    }

    /// An object is gone.
    pub fn forget_object(&mut self, object: u64) {
        self.tables.remove(&object);
    }

    /// Who has what of an object: client, range, and for what, in the order of the ranges.
    pub fn holders(&self, object: u64) -> Vec<(u32, Range<LocalOffset>, Mode)> {
        let held = self.tables.get(&object).into_iter().flat_map(Table::iter);
        let mut all: Vec<_> = held
            .map(|held| (held.client, LocalOffset(held.range.start)..LocalOffset(held.range.end), held.mode))
            .collect();
        all.sort_by_key(|(client, range, _)| (range.start, range.end, *client));
        all
    }

    /// What has happened so far.
    pub fn counters(&self) -> LockCounters {
        self.counters
    }
}

/// Times of taking something back.
struct Costs {
    latency: u64,
    flush: u64,
    flush_mb_s: f64,
}

impl Costs {
    /// When a holder who is told at `told` has given up: not while he uses it, and after writing back.
    fn given_up(&self, told: u64, held: &Held, flushed: u64) -> u64 {
        let free = told.max(held.busy_until);
        if flushed == 0 { free } else { free + self.flush + transfer(flushed, self.flush_mb_s) }
    }
}

/// What one of the kinds answers.
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

//! Calls to the metadata service: each at most once, over restarts of the service.

use crate::allowance::Allowance;
use crate::connect::{Wire, connected, describe};
use crate::core::Core;
use crate::error::Error;
use crate::log;
use crate::pool::Lent;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::hello::Identity;
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest, ReclaimLock, ReclaimOpen};
use weft_wire::{Errno, Family, Malformed};

/// How often a request is sent before the connection is taken for hopeless.
pub(crate) const ATTEMPTS_MAX: u32 = 4;
/// One-way messages on a connection before it is asked whether it heard them.
const TOLD_MAX: usize = 256;
/// Opens and locks in one `Reclaim`.
const RECLAIM_BATCH: usize = 1024;

/// Whether a request may be repeated without harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Asks only, or sets what may be set twice.
    Repeatable,
    /// Changes something: carries a sequence number.
    Once,
}

impl<E: Env> Core<E> {
    /// Asks the metadata service and waits for its reply.
    ///
    /// # Errors
    /// What the service refuses; `Unreachable`; `Elsewhere`.
    pub(crate) async fn call(
        &self,
        who: Option<&Identity>,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.pay(|_| true).await?;
        self.call_as_is(who, effect, request).await
    }

    /// The same, whatever is owed.
    pub(crate) async fn call_as_is(
        &self,
        who: Option<&Identity>,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.check_ours()?;
        let mut lent = self.metadata.lend().await;
        let seq = match effect {
            Effect::Repeatable => 0,
            Effect::Once => {
                lent.seq += 1;
                lent.seq
            }
        };
        let call = MetaCall { seq, on_behalf: who.cloned(), request };
        let mut attempt = Attempt::first(self);
        let reply = loop {
            let result = self.attempt(&mut lent, &call, attempt).await?;
            match result {
                Ok(reply) => break reply,
                Err(error) => self.lost_line(&mut lent, &error, attempt)?,
            }
            attempt.number += 1;
        };
        self.judged(reply)
    }

    /// Makes sure that there is the connection for events; after a loss the opens and locks have been told again.
    pub(crate) async fn listen(&self) -> Result<(), Error> {
        self.check_ours()?;
        let mut lent = self.events.lend().await;
        self.metadata_wire(&mut lent, Attempt::first(self)).await.map(drop)
    }

    /// Asks over the connection for events; fails as soon as that connection is lost.
    pub(crate) async fn call_unbroken(
        &self,
        who: Option<&Identity>,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.check_ours()?;
        let mut lent = self.events.lend().await;
        let server = self.metadata_server();
        if lent.wire.is_none() {
            return Err(server.unreachable("nobody listens for events".to_owned()));
        }
        let call = MetaCall { seq: 0, on_behalf: who.cloned(), request };
        match self.attempt(&mut lent, &call, Attempt::first(self)).await? {
            Ok(reply) => self.judged(reply),
            Err(error) => {
                lent.wire = None;
                self.counters.repeated.one();
                Err(server.unreachable(describe(&error)))
            }
        }
    }

    fn judged(&self, reply: MetaReply) -> Result<MetaReply, Error> {
        match reply {
            MetaReply::Failed(error) => Err(self.metadata_server().refused(error)),
            MetaReply::Elsewhere { from, target, rest } => Err(Error::Elsewhere { from, target, rest }),
            reply => Ok(reply),
        }
    }

    /// Sends what wants no reply and may be heard twice. It is said again when the connection is lost before a later
    /// reply shows that it was heard.
    pub(crate) async fn tell(&self, who: Option<&Identity>, request: MetaRequest) -> Result<(), Error> {
        self.check_ours()?;
        self.pay(|_| true).await?;
        let mut lent = self.metadata.lend().await;
        let call = MetaCall { seq: 0, on_behalf: who.cloned(), request };
        let mut attempt = Attempt::first(self);
        loop {
            let wire = self.metadata_wire(&mut lent, attempt).await?;
            self.counters.meta_messages.one();
            match wire.tell(Family::Meta, &call).await {
                Ok(()) => break,
                Err(error) => self.lost_line(&mut lent, &error, attempt)?,
            }
            attempt.number += 1;
        }
        lent.told.push(call);
        if lent.told.len() >= TOLD_MAX {
            let flush = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::Flush };
            if let Err(error) = self.attempt(&mut lent, &flush, attempt).await? {
                self.lost_line(&mut lent, &error, attempt)?;
            }
        }
        Ok(())
    }

    /// Sends what may be lost and wants no reply, over a connection that is there. Whether it was sent.
    pub(crate) async fn mention(&self, request: MetaRequest) -> bool {
        let mut lent = self.metadata.lend().await;
        let server = self.metadata_server();
        let Some(wire) = lent.wire.as_mut().filter(|wire| !server.is_gone(wire.incarnation)) else {
            return false;
        };
        let call = MetaCall { seq: 0, on_behalf: None, request };
        self.counters.meta_messages.one();
        let sent = wire.tell(Family::Meta, &call).await.is_ok();
        if !sent {
            lent.wire = None;
        }
        sent
    }

    async fn attempt(
        &self,
        lent: &mut Lent<'_, E>,
        call: &MetaCall,
        attempt: Attempt,
    ) -> Result<io::Result<MetaReply>, Error> {
        let wire = self.metadata_wire(lent, attempt).await?;
        // A change waits for the disk, and other requests may take long: where the service does that is its own matter.
        let at_once = wire.local && call.seq == 0 && call.request.waits() == Nanos::ZERO;
        wire.link.set_waits_on(if at_once { self.processor() } else { None });
        self.counters.meta_messages.one();
        let asked = self.env.now();
        let usual = self.options.request_timeout;
        // The first attempt has all of the time: the connection's own time-out holds.
        let left = if attempt.number == 1 { usual } else { attempt.allowance.left(&self.env).min(usual) };
        let result = exchange_within((usual, left), wire, call).await;
        if result.is_ok() {
            self.heard.fetch_max(asked.0, Relaxed);
            // Requests of one connection are served in their order.
            lent.told.clear();
        }
        Ok(result)
    }

    /// Drops a connection on which something went wrong; an error when there is no point in another one.
    fn lost_line(&self, lent: &mut Lent<'_, E>, error: &io::Error, attempt: Attempt) -> Result<(), Error> {
        lent.wire = None;
        self.counters.repeated.one();
        let Attempt { number, allowance } = attempt;
        give_up(self, self.metadata_server(), error, (number, allowance)).map_or(Ok(()), Err)
    }

    /// The connection of `lent`, made if need be. On every fresh one opens and locks are told again: the service may
    /// have been started again, or have lost all our connections and with them the session, without our noticing.
    async fn metadata_wire<'l>(
        &self,
        lent: &'l mut Lent<'_, E>,
        Attempt { allowance, .. }: Attempt,
    ) -> Result<&'l mut Wire<E>, Error> {
        let server = self.metadata_server();
        if lent.wire.as_ref().is_some_and(|wire| server.is_gone(wire.incarnation)) {
            lent.wire = None;
        }
        let mut attempt = Attempt { number: 0, allowance };
        while lent.wire.is_none() {
            attempt.number += 1;
            let told = std::mem::take(&mut lent.told);
            let wire = connected(self, server, lent, allowance).await;
            let result = match wire {
                Ok(wire) => self.catch_up(wire, &told).await,
                Err(error) => {
                    lent.told = told;
                    return Err(error);
                }
            };
            lent.told = told;
            if let Err(error) = result {
                self.lost_line(lent, &error, attempt)?;
            }
        }
        Ok(lent.wire.as_mut().expect("connected above"))
    }

    /// Brings the service to where it was with this session.
    async fn catch_up(&self, wire: &mut Wire<E>, told: &[MetaCall]) -> io::Result<()> {
        self.reclaim(wire).await?;
        for call in told {
            self.counters.meta_messages.one();
            wire.tell(Family::Meta, call).await?;
        }
        Ok(())
    }

    /// Tells all opens and locks of this session.
    async fn reclaim(&self, wire: &mut Wire<E>) -> io::Result<()> {
        let _under_way = self.begin_reclaim();
        let (opens, locks) = self.registry.snapshot();
        for (who, opens) in &opens {
            for opens in opens.chunks(RECLAIM_BATCH) {
                self.reclaim_some(wire, who.as_deref(), opens.to_vec(), Vec::new()).await?;
            }
        }
        for locks in locks.chunks(RECLAIM_BATCH) {
            self.reclaim_some(wire, None, Vec::new(), locks.to_vec()).await?;
        }
        Ok(())
    }

    async fn reclaim_some(
        &self,
        wire: &mut Wire<E>,
        who: Option<&Identity>,
        opens: Vec<ReclaimOpen>,
        locks: Vec<ReclaimLock>,
    ) -> io::Result<()> {
        let request = MetaRequest::Reclaim { opens, locks };
        let call = MetaCall { seq: 0, on_behalf: who.cloned(), request };
        self.counters.meta_messages.one();
        match wire.exchange(Family::Meta, &call).await? {
            MetaReply::Reclaimed { lost_opens, lost_locks, uncached } => {
                self.registry.lost(&lost_opens, &lost_locks);
                self.registry.uncached(&uncached);
                if !lost_opens.is_empty() || !lost_locks.is_empty() {
                    log::note(&format!(
                        "{} open files and {} locks were lost while server {} was away",
                        lost_opens.len(),
                        lost_locks.len(),
                        self.metadata_server().entry().name
                    ));
                }
                Ok(())
            }
            // Its log has failed: without what was told it would not know what the request is about.
            MetaReply::Failed(error) if error.errno == Errno::EIO => Err(io::Error::other(error)),
            MetaReply::Failed(error) => {
                log::note(&format!("opens and locks could not be told again: {error}"));
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }
}

/// How often an operation has tried, and since when.
#[derive(Clone, Copy)]
struct Attempt {
    /// From 1.
    number: u32,
    allowance: Allowance,
}

impl Attempt {
    fn first<E: Env>(core: &Core<E>) -> Self {
        Self { number: 1, allowance: Allowance::begin(&core.env, core.options.request_timeout) }
    }
}

/// How many times as long as the service may keep a request a time-out is that needs no addition.
const AMPLE: u64 = 5;

/// Waits for the reply for the time that is `left` of the `usual` one, and for as long as the service may keep the request.
async fn exchange_within<E: Env>(
    (usual, left): (Nanos, Nanos),
    wire: &mut Wire<E>,
    call: &MetaCall,
) -> io::Result<MetaReply> {
    let waits = Some(call.request.waits()).filter(|waits| waits.0 * AMPLE > left.0).unwrap_or(Nanos::ZERO);
    let limit = left.saturating_add(waits);
    if limit != usual {
        wire.link.conn().set_timeout(Some(limit))?;
    }
    let result = wire.exchange(Family::Meta, call).await;
    if limit != usual && result.is_ok() {
        wire.link.conn().set_timeout(Some(usual))?;
    }
    result
}

/// After `error` on a connection to `server`: `None` when another connection is worth trying.
pub(crate) fn give_up<E: Env>(
    core: &Core<E>,
    server: &crate::server::Server<E>,
    error: &io::Error,
    (attempt, allowance): (u32, Allowance),
) -> Option<Error> {
    // A silent server would be silent again: waiting twice helps nobody.
    if is_silence(error) {
        Some(server.found_silent(core.env.now(), describe(error), core.options.dead_for))
    } else if attempt >= ATTEMPTS_MAX || allowance.is_over(&core.env) {
        Some(server.unreachable(describe(error)))
    } else {
        None
    }
}

/// Whether nothing came within the time-out.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// A reply that does not fit its request.
pub(crate) fn unexpected() -> io::Error {
    Malformed::Field("reply").into()
}

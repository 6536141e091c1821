//! Calls to the metadata server: each change happens at most once, across restarts of the server.
//!
//! | request | sent by | after a lost connection |
//! | --- | --- | --- |
//! | reads, or sets what may be set twice | [`Core::call`] with [`Effect::Repeatable`] | sent again |
//! | changes something | [`Core::call`] with [`Effect::Once`] | sent again; the server repeats its stored reply |
//! | needs no reply | [`Core::send_one_way`] | sent again unless a later reply shows that it arrived |
//! | needs no reply and may be lost | [`Core::try_send_one_way`] | not sent |
//! | waits for events | [`Core::call_on_event_connection`] | fails, because events may have been missed |
//!
//! Every fresh connection first *reclaims* the opens and locks of the session, because the server may have restarted
//! or may have ended the session.

use crate::attempts::Attempts;
use crate::connect::ensure_connected;
use crate::connection::{Connection, describe, unexpected_reply};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::log;
use crate::pool::PoolGuard;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Nanos;
use weft_env::{Conn, Env};
use weft_wire::hello::Identity;
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest, ReclaimLock, ReclaimOpen};
use weft_wire::{Errno, Family, WireError};

/// One-way messages on a connection before the client asks for a reply, so that it can forget them.
const UNACKNOWLEDGED_MAX: usize = 256;
/// Most opens and locks in one `Reclaim`.
const RECLAIMED_PER_REQUEST_MAX: usize = 1024;

/// Whether a request may be executed twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Asks only, or sets something that may be set twice.
    Repeatable,
    /// Changes something, and therefore carries a sequence number.
    Once,
}

impl<E: Env> Core<E> {
    /// Sends a request to the metadata server and returns its reply. Unacknowledged unlocks are sent first.
    ///
    /// # Errors
    /// Errors of the metadata server; `Unreachable`; `ExternalLink`.
    pub(crate) async fn call(
        &self,
        identity: Option<&Identity>,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.flush_unlocks(|_| true).await?;
        self.call_without_flush(identity, effect, request).await
    }

    /// Sends a request like [`Core::call`], without sending unacknowledged unlocks first.
    pub(crate) async fn call_without_flush(
        &self,
        identity: Option<&Identity>,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.call_until(Deadline::of_request(self), identity, effect, request).await
    }

    /// Sends a request like [`Core::call_without_flush`], until `deadline`.
    pub(crate) async fn call_until(
        &self,
        deadline: Deadline,
        identity: Option<&Identity>,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.check_not_forked()?;
        let mut pooled = self.metadata.acquire().await;
        let seq = match effect {
            Effect::Repeatable => 0,
            Effect::Once => {
                pooled.seq += 1;
                pooled.seq
            }
        };
        let call = MetaCall { seq, on_behalf: identity.cloned(), request };
        let mut attempts = Attempts::until(self, deadline);
        let reply = loop {
            let result = self.attempt(&mut pooled, &call, attempts).await?;
            match result {
                Ok(reply) if !self.is_overtaken(&pooled) => break reply,
                Ok(_) => {
                    let error = io::Error::other("the reply is older than the server's restart");
                    self.connection_lost(&mut pooled, &error, &mut attempts)?;
                }
                Err(error) => self.connection_lost(&mut pooled, &error, &mut attempts)?,
            }
        };
        self.checked_reply(reply)
    }

    /// Returns whether another connection has already reached a later incarnation of the server than this one. A
    /// late reply of this one may grant an open or a lock that the session did not reclaim there, so the request is
    /// sent again.
    fn is_overtaken(&self, pooled: &PoolGuard<'_, E>) -> bool {
        let server = self.metadata_server();
        pooled
            .connection
            .as_ref()
            .is_some_and(|connection| server.has_restarted_since(connection.incarnation))
    }

    /// Connects the event connection if it is not connected. A new connection has reclaimed all opens and locks.
    pub(crate) async fn listen(&self) -> Result<(), Error> {
        self.check_not_forked()?;
        let mut pooled = self.events.acquire().await;
        self.metadata_connection(&mut pooled, Attempts::begin(self).deadline).await.map(drop)
    }

    /// Sends a request over the event connection, and fails as soon as that connection is lost.
    pub(crate) async fn call_on_event_connection(
        &self,
        identity: Option<&Identity>,
        request: MetaRequest,
    ) -> Result<MetaReply, Error> {
        self.check_not_forked()?;
        let mut pooled = self.events.acquire().await;
        let server = self.metadata_server();
        if pooled.connection.is_none() {
            return Err(server.unreachable("the event connection is not open".to_owned()));
        }
        let call = MetaCall { seq: 0, on_behalf: identity.cloned(), request };
        match self.attempt(&mut pooled, &call, Attempts::begin(self)).await? {
            Ok(reply) => self.checked_reply(reply),
            Err(error) => {
                pooled.connection = None;
                self.counters.repeated.one();
                Err(server.unreachable(describe(&error)))
            }
        }
    }

    fn checked_reply(&self, reply: MetaReply) -> Result<MetaReply, Error> {
        match reply {
            MetaReply::Failed(error) => Err(self.metadata_server().refused(error)),
            MetaReply::Elsewhere { from, target, rest } => Err(Error::ExternalLink { from, target, rest }),
            reply => Ok(reply),
        }
    }

    /// Sends a request that needs no reply and may be executed twice. If the connection is lost before a later reply
    /// proves that the request arrived, it is sent again.
    pub(crate) async fn send_one_way(
        &self,
        identity: Option<&Identity>,
        request: MetaRequest,
    ) -> Result<(), Error> {
        self.check_not_forked()?;
        self.flush_unlocks(|_| true).await?;
        let mut pooled = self.metadata.acquire().await;
        let call = MetaCall { seq: 0, on_behalf: identity.cloned(), request };
        let mut attempts = Attempts::begin(self);
        loop {
            let connection = self.metadata_connection(&mut pooled, attempts.deadline).await?;
            self.counters.meta_messages.one();
            match connection.send_one_way(Family::Meta, &call).await {
                Ok(()) => break,
                Err(error) => self.connection_lost(&mut pooled, &error, &mut attempts)?,
            }
        }
        pooled.unacknowledged.push(call);
        if pooled.unacknowledged.len() >= UNACKNOWLEDGED_MAX {
            let flush = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::Flush };
            if let Err(error) = self.attempt(&mut pooled, &flush, attempts).await? {
                self.connection_lost(&mut pooled, &error, &mut attempts)?;
            }
        }
        Ok(())
    }

    /// Sends a request that may be lost and needs no reply, if there is a connection. Returns whether it was sent.
    pub(crate) async fn try_send_one_way(&self, request: MetaRequest) -> bool {
        let mut pooled = self.metadata.acquire().await;
        let server = self.metadata_server();
        let Some(connection) = pooled
            .connection
            .as_mut()
            .filter(|connection| !server.has_restarted_since(connection.incarnation))
        else {
            return false;
        };
        let call = MetaCall { seq: 0, on_behalf: None, request };
        self.counters.meta_messages.one();
        let sent = connection.send_one_way(Family::Meta, &call).await.is_ok();
        if !sent {
            pooled.connection = None;
        }
        sent
    }

    async fn attempt(
        &self,
        pooled: &mut PoolGuard<'_, E>,
        call: &MetaCall,
        attempts: Attempts,
    ) -> Result<io::Result<MetaReply>, Error> {
        let connection = self.metadata_connection(pooled, attempts.deadline).await?;
        // Changes write to the log, and some requests wait long. The server chooses the processor for those.
        let is_query = call.seq == 0 && !matches!(call.request, MetaRequest::SyncNames | MetaRequest::Flush);
        let answered_from_memory = connection.local && is_query && call.request.is_answered_at_once();
        connection.link.set_waits_on(if answered_from_memory { self.processor() } else { None });
        self.counters.meta_messages.one();
        let sent_at = self.env.now();
        let usual = self.options.request_timeout;
        // The first attempt has all of the time, and the connection's own time-out is that long.
        let left = match attempts.number == 1 && !attempts.deadline.is_shorter_than(usual) {
            true => usual,
            false => attempts.deadline.remaining(&self.env).min(usual),
        };
        let mut result = exchange_within((usual, left), connection, call).await;
        if result.is_ok()
            && self.has_other_map(connection.map_version)
            && let Err(error) = self.fetch_map(connection, result.as_ref().ok()).await
        {
            result = Err(error);
        }
        if result.is_ok() {
            self.answered_at_ns.fetch_max(sent_at.0, Relaxed);
            // The server handles the requests of one connection in order.
            pooled.unacknowledged.clear();
        }
        Ok(result)
    }

    /// Fetches the cluster map, before a reply is used that may name new targets.
    async fn fetch_map(&self, connection: &mut Connection<E>, reply: Option<&MetaReply>) -> io::Result<()> {
        if let Some(reply @ (MetaReply::ClusterMap(_) | MetaReply::MapWithDomains { .. })) = reply {
            self.take_map(reply.clone().into_map().ok_or_else(unexpected_reply)?);
            return Ok(());
        }
        let call = MetaCall { seq: 0, on_behalf: None, request: MetaRequest::ClusterMap };
        self.counters.meta_messages.one();
        match connection.exchange(Family::Meta, &call).await? {
            MetaReply::Failed(error) => Err(io::Error::other(error)),
            reply => {
                self.take_map(MetaReply::into_map(reply).ok_or_else(unexpected_reply)?);
                Ok(())
            }
        }
    }

    /// Drops a connection that failed. Returns an error if another connection is not worth trying.
    fn connection_lost(
        &self,
        pooled: &mut PoolGuard<'_, E>,
        error: &io::Error,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        pooled.connection = None;
        self.counters.repeated.one();
        attempts.after(self, self.metadata_server(), error)
    }

    /// Returns the connection of `pooled`, connecting it if necessary.
    ///
    /// Every fresh connection reclaims opens and locks: the server may have restarted, or may have lost all
    /// connections of the session and ended it, without this client's noticing.
    async fn metadata_connection<'l>(
        &self,
        pooled: &'l mut PoolGuard<'_, E>,
        deadline: Deadline,
    ) -> Result<&'l mut Connection<E>, Error> {
        let server = self.metadata_server();
        if self.is_overtaken(pooled) {
            pooled.connection = None;
        }
        let mut attempts = Attempts::until(self, deadline);
        while pooled.connection.is_none() {
            let unacknowledged = std::mem::take(&mut pooled.unacknowledged);
            let connection = ensure_connected(self, server, pooled, deadline).await;
            let result = match connection {
                Ok(connection) => self.restore_session(connection, &unacknowledged).await,
                Err(error) => {
                    pooled.unacknowledged = unacknowledged;
                    return Err(error);
                }
            };
            pooled.unacknowledged = unacknowledged;
            if let Err(error) = result {
                self.connection_lost(pooled, &error, &mut attempts)?;
            }
        }
        Ok(pooled.connection.as_mut().expect("connected above"))
    }

    /// Restores the session's state on the server.
    async fn restore_session(
        &self,
        connection: &mut Connection<E>,
        unacknowledged: &[MetaCall],
    ) -> io::Result<()> {
        self.reclaim(connection).await?;
        for call in unacknowledged {
            self.counters.meta_messages.one();
            connection.send_one_way(Family::Meta, call).await?;
        }
        Ok(())
    }

    /// Reclaims all opens and locks of this session.
    async fn reclaim(&self, connection: &mut Connection<E>) -> io::Result<()> {
        let _reclaim = self.begin_reclaim();
        self.note_reclaim();
        let (opens, locks) = self.registry.snapshot();
        for (identity, opens) in &opens {
            for opens in opens.chunks(RECLAIMED_PER_REQUEST_MAX) {
                self.reclaim_batch(connection, identity.as_deref(), opens.to_vec(), Vec::new()).await?;
            }
        }
        for locks in locks.chunks(RECLAIMED_PER_REQUEST_MAX) {
            self.reclaim_batch(connection, None, Vec::new(), locks.to_vec()).await?;
        }
        Ok(())
    }

    async fn reclaim_batch(
        &self,
        connection: &mut Connection<E>,
        identity: Option<&Identity>,
        opens: Vec<ReclaimOpen>,
        locks: Vec<ReclaimLock>,
    ) -> io::Result<()> {
        let request = MetaRequest::Reclaim { opens, locks };
        let call = MetaCall { seq: 0, on_behalf: identity.cloned(), request };
        self.counters.meta_messages.one();
        match connection.exchange(Family::Meta, &call).await? {
            MetaReply::Reclaimed { lost_opens, lost_locks, uncached } => {
                self.registry.lost(&lost_opens, &lost_locks);
                self.registry.uncached(&uncached);
                if !lost_opens.is_empty() || !lost_locks.is_empty() {
                    log::note(&format!(
                        "{} open files and {} locks were lost while server {} did not answer",
                        lost_opens.len(),
                        lost_locks.len(),
                        self.metadata_server().entry().name
                    ));
                }
                Ok(())
            }
            // The server's log has failed. Without the reclaimed opens it would not know the handles of later
            // requests.
            MetaReply::Failed(error) if error.errno == Errno::EIO => Err(io::Error::other(error)),
            MetaReply::Failed(error) => {
                log::note(&format!("opens and locks could not be reclaimed: {error}"));
                Ok(())
            }
            _ => Err(unexpected_reply()),
        }
    }
}

/// A time-out that is at least this many times the server's own waiting time needs no extension.
const AMPLE_TIMEOUT_FACTOR: u64 = 5;

/// Sends a request and waits for its reply: for the time that is `left` of the `usual` time-out, extended by the time
/// that the server may keep the request.
async fn exchange_within<E: Env>(
    (usual, left): (Nanos, Nanos),
    connection: &mut Connection<E>,
    call: &MetaCall,
) -> io::Result<MetaReply> {
    if call.request.level() > connection.link.level() {
        const WHY: &str = "the metadata server has an earlier version of Weft, which does not know this request: install this \
                           version there";
        return Ok(MetaReply::Failed(WireError::new(Errno::EOPNOTSUPP, WHY)));
    }
    let waits = Some(call.request.wait_max())
        .filter(|waits| waits.0 * AMPLE_TIMEOUT_FACTOR > left.0)
        .unwrap_or(Nanos::ZERO);
    let limit = left.saturating_add(waits);
    if limit != usual {
        connection.link.conn().set_timeout(Some(limit))?;
    }
    let result = connection.exchange(Family::Meta, call).await;
    if limit != usual && result.is_ok() {
        connection.link.conn().set_timeout(Some(usual))?;
    }
    result
}

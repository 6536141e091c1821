//! One connection from its greeting to its end, in a task of its own.

use crate::activity::ConnectionActivity;
use crate::added::Caller;
use crate::audit::{self, Audited, EventKind, Origin};
use crate::connections::Entry;
use crate::data::DataConnection;
use crate::greeting::{Greeted, GreetingError, greet};
use crate::latency::Operation;
use crate::metadata::{self, ConnectionContext, HostName};
use crate::pending::{GreetingSlot, Source};
use crate::refusals::Refusal;
use crate::server::{Shared, start_greetings};
use crate::status;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use weft_core::FileId;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Conn, Env, Peer};
use weft_wire::meta::{MetaCall, MetaReply, MetaRequest};
use weft_wire::status::StatusReply;
use weft_wire::{Errno, Family, Incoming, Kind, Link, WireError};

/// Serves a connection until it ends, and releases its resources in any case.
pub(crate) async fn run<E: Env>(shared: Arc<Shared<E>>, entry: Arc<Entry>, slot: GreetingSlot<E::Conn>) {
    let _registered = RegisteredConnection { shared: &shared, id: entry.id };
    let guard = GreetingSlotGuard { shared: &shared, id: slot.id };
    let mut link = Link::new(slot.conn);
    let (peer, source) = (audit::name_of(link.conn().peer()), Source::of(link.conn().peer()));
    let greeted = catch_panic(E::boxed(greet(&shared, &mut link, &entry))).await;
    drop(guard);
    match greeted {
        Some(Ok(greeted)) => {
            let origin = shared.origin(&greeted, peer);
            if let Some(origin) = &origin {
                let greeting = Audited::new(EventKind::Greeting, "greeting", role_of(&greeted));
                origin.record(shared.env.wall(), &greeting, None);
            }
            serve(&shared, &entry, &mut link, greeted, origin).await;
        }
        Some(Err(GreetingError::Refused { why, key, uid })) => {
            let refusal = Refusal { source, key, uid, why: why.to_string() };
            shared.refusals.note(refusal, peer, why, (shared.env.now(), shared.env.wall()));
        }
        Some(Err(GreetingError::Gone)) => {} // a peer that left, or a port scan: not worth a line
        None => shared.panicked("greeting"),
    }
}

/// Slot of a connection that greets. Dropping it, even in a panic, starts connections that wait for it.
struct GreetingSlotGuard<'a, E: Env> {
    shared: &'a Arc<Shared<E>>,
    id: u64,
}

impl<E: Env> Drop for GreetingSlotGuard<'_, E> {
    fn drop(&mut self) {
        let ready = self.shared.pending.leave(self.id, self.shared.env.now());
        // `begin` has logged the error.
        let _ = start_greetings(self.shared, ready);
    }
}

/// Removes a connection from the list when dropped, even in a panic.
struct RegisteredConnection<'a, E: Env> {
    shared: &'a Shared<E>,
    id: u64,
}

impl<E: Env> Drop for RegisteredConnection<'_, E> {
    fn drop(&mut self) {
        self.shared.connections.remove(self.id, self.shared.env.now());
    }
}

/// Description of a peer for the audit log.
fn role_of(greeted: &Greeted) -> String {
    match &greeted.key {
        Some(key) => key.holder.to_string(),
        None => "by the socket's credentials".to_owned(),
    }
}

async fn serve<E: Env>(
    shared: &Shared<E>,
    entry: &Arc<Entry>,
    link: &mut Link<E::Conn>,
    greeted: Greeted,
    origin: Option<Origin>,
) {
    if let Some(key) = &greeted.key {
        entry.depends_on(key.clone());
    }
    entry.greeted(greeted.principal.is_server, shared.config.limits.stall_timeout);
    let metadata = shared.metadata.as_ref().map(|service| {
        let Greeted { session, slot, ref principal, pid, job, ref process, .. } = greeted;
        let is_on_host = matches!(link.conn().peer(), Peer::Local { .. });
        let host = HostName::of(&process.host);
        let context = service.connected_as(session, slot, principal.clone(), (pid, job, host), is_on_host);
        (service, context.at_level(greeted.level))
    });
    // After the connection is registered, so that the session does not end in between.
    if !is_seeded(Mutant::StaleRepetition) {
        let place = (greeted.session.bound_to(greeted.owner()), greeted.slot);
        shared.connections.supersede(entry, place).await;
    }
    let context = metadata.as_ref().map(|(_, context)| context);
    let rights = shared.rights_of(&greeted);
    let activity = ConnectionActivity::new(&shared.activity, &greeted, shared.env.now());
    let mut data = DataConnection::new(entry.id, &greeted, rights, origin.clone(), activity);
    let mut caller = Caller::new(entry, &greeted);
    if let Some(added) = &shared.added {
        added.connected(&caller);
    }
    let states = (&mut data, &mut caller);
    match catch_panic(E::boxed(requests(shared, entry, link, states, context, origin.as_ref()))).await {
        Some(Ok(())) => {}
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            shared.log(&format!(
                "warn: ended a connection of user {}: {error}",
                greeted.principal.identity.uid
            ));
        }
        Some(Err(_)) => {} // the peer left in the middle, or we ended it
        None => shared.panicked("serving a request"),
    }
    if let Some(service) = &shared.data {
        if catch_panic(E::boxed(service.end_probes(&mut data))).await.is_none() {
            shared.panicked("ending a measurement");
        }
        service.disconnected(data);
    }
    if let Some(added) = &shared.added
        && catch_panic(added.disconnected(&mut caller)).await.is_none()
    {
        shared.panicked("ending a session");
    }
    if let Some((service, context)) = metadata
        && catch_panic(E::boxed(service.disconnected(context))).await.is_none()
    {
        shared.panicked("ending a session");
    }
}

async fn requests<E: Env>(
    shared: &Shared<E>,
    entry: &Entry,
    link: &mut Link<E::Conn>,
    (data, caller): (&mut DataConnection<E>, &mut Caller<E>),
    context: Option<&ConnectionContext>,
    origin: Option<&Origin>,
) -> io::Result<()> {
    let shares_processors = matches!(link.conn().peer(), Peer::Local { .. });
    let secret = &shared.config.secret;
    let mut revision = None;
    while !shared.stopping.load(Ordering::SeqCst) {
        let Some(incoming) = link.recv().await? else { return Ok(()) };
        if entry.is_superseded() {
            return Ok(());
        }
        // A request that comes after a revocation was acknowledged is not served.
        if revision != Some(secret.revision()) {
            revision = Some(secret.revision());
            if entry.has_refused_key(secret, shared.env.wall()) {
                return Ok(());
            }
        }
        entry.set_busy(true);
        if shares_processors {
            // This moves the connection's own task only.
            shared.env.run_on(incoming.header.waits_on);
        }
        let served = match (incoming.header.kind, incoming.header.family) {
            (Kind::Reply, _) | (_, Family::Hello) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a message that no client sends"))
            }
            (_, Family::Data) => match &shared.data {
                Some(service) => E::boxed(service.serve(link, entry, data, &incoming)).await,
                None => E::boxed(refuse_role(shared, link, &incoming)).await,
            },
            (_, Family::Meta) => match (&shared.metadata, context) {
                (Some(service), Some(context)) => {
                    let served = (service.as_ref(), context, origin);
                    E::boxed(serve_metadata(shared, served, (link, entry), &mut data.activity, &incoming))
                        .await
                }
                _ => E::boxed(refuse_role(shared, link, &incoming)).await,
            },
            (_, Family::Delegate) => match &shared.added {
                Some(added) => added.serve(caller, link, &incoming).await,
                None => E::boxed(refuse_role(shared, link, &incoming)).await,
            },
            // Rare, so its state is not kept on the stack of each connection.
            (_, Family::Status) => Box::pin(serve_status(shared, link, entry, &incoming, data)).await,
        };
        entry.stop_expecting();
        entry.set_busy(false);
        served?;
    }
    Ok(())
}

async fn serve_metadata<E: Env>(
    shared: &Shared<E>,
    (service, context, origin): (&metadata::Service<E>, &ConnectionContext, Option<&Origin>),
    (link, entry): (&mut Link<E::Conn>, &Entry),
    activity: &mut ConnectionActivity,
    incoming: &Incoming,
) -> io::Result<()> {
    let call = link.decode::<MetaCall>(incoming);
    link.skip_payload(incoming.header.payload_len.into()).await?;
    let reply = match call {
        Ok(call) => {
            let audited = origin.and_then(|origin| Some((origin, audit::of_metadata(&call.request)?)));
            // The server replies to these when other clients have acted, so their latency is not its own.
            let waits = matches!(
                call.request,
                MetaRequest::WaitEvents { .. }
                    | MetaRequest::AwaitRecall { .. }
                    | MetaRequest::Invalidate { .. }
                    | MetaRequest::Lock { .. }
            );
            let begin = shared.env.now();
            let reply = service.call(context, call).await;
            if !waits {
                let now = shared.env.now();
                let took = now.saturating_sub(begin);
                shared.latencies.add(Operation::Metadata, took);
                activity.count(Operation::Metadata, file_of(&reply), 0, took, now);
            }
            if let Some((origin, what)) = audited {
                origin.record(shared.env.wall(), &what, audit::refusal_of(&reply));
            }
            reply
        }
        Err(bad) => weft_wire::meta::MetaReply::Failed(malformed(bad)),
    };
    // After the request, so that no reply names a target that its version of the map does not have.
    link.set_map_version(service.map_version());
    answer(link, entry, incoming, &reply).await
}

/// File that a metadata request has found, for the activity of files.
fn file_of(reply: &MetaReply) -> Option<FileId> {
    match reply {
        MetaReply::Opened(opened) => Some(opened.attr.file),
        MetaReply::Truncate { file, .. } => Some(*file),
        _ => None,
    }
}

async fn serve_status<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    entry: &Entry,
    incoming: &Incoming,
    data: &DataConnection<E>,
) -> io::Result<()> {
    let reply = status::reply(shared, link, incoming, data).await?;
    match reply {
        status::StatusAnswer::Plain(reply) => answer(link, entry, incoming, &reply).await,
        status::StatusAnswer::Echo(len) if incoming.header.kind != Kind::OneWay => {
            entry.expect_peer();
            let pieces = status::zeros(len);
            let (family, request) = (incoming.header.family, incoming.header.request);
            link.send(Kind::Reply, family, request, &StatusReply::Echo, &pieces).await
        }
        status::StatusAnswer::Echo(_) => Ok(()),
    }
}

/// Sends a reply without payload, if one is wanted.
pub(crate) async fn answer<C: Conn, M: serde::Serialize>(
    link: &mut Link<C>,
    entry: &Entry,
    incoming: &Incoming,
    reply: &M,
) -> io::Result<()> {
    if incoming.header.kind == Kind::OneWay {
        return Ok(());
    }
    entry.expect_peer();
    link.send(Kind::Reply, incoming.header.family, incoming.header.request, reply, &[]).await
}

/// Error for a body that does not decode. The header was valid, so the connection continues.
pub(crate) fn malformed(bad: weft_wire::Malformed) -> WireError {
    WireError::new(Errno::EPROTO, bad.to_string())
}

async fn refuse_role<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    incoming: &Incoming,
) -> io::Result<()> {
    link.skip_payload(incoming.header.payload_len.into()).await?;
    if incoming.header.kind == Kind::OneWay {
        return Ok(());
    }
    let name = &shared.config.name;
    let (request, family) = (incoming.header.request, incoming.header.family);
    if family == Family::Data {
        let detail = format!("server {name:?} has no data role");
        let reply = weft_wire::data::DataReply::Failed(WireError::new(Errno::ENXIO, detail));
        return link.send(Kind::Reply, family, request, &reply, &[]).await;
    }
    if family == Family::Delegate {
        let detail = format!("server {name:?} is not an I/O delegate");
        let reply = weft_wire::delegate::DelegateReply::Failed(WireError::new(Errno::ENXIO, detail));
        return link.send(Kind::Reply, family, request, &reply, &[]).await;
    }
    let detail = format!("server {name:?} has no metadata role");
    let reply = weft_wire::meta::MetaReply::Failed(WireError::new(Errno::ENXIO, detail));
    link.send(Kind::Reply, family, request, &reply, &[]).await
}

/// Output of `future`, or `None` if it panicked. A panic ends one connection, not the server.
async fn catch_panic<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // After the panic, values are only dropped: permits, buffers and locks release themselves.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

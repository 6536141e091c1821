//! Exchange with several data servers: all requests are sent first, then the replies are received in the order of
//! sending.
//!
//! That gives parallelism without threads:
//!
//! ```text
//!              send                     receive
//! server 1  ── r1 r2 ──┐             ┌── r1 r2 ── next window ...
//! server 2  ── r3 ─────┤ servers     ├── r3
//! server 3  ── r4 r5 ──┘ work        └── r4 r5
//! ```
//!
//! Each [`ServerBatch`] holds one pooled connection and the requests of one server. Batches take their connections in
//! ascending order of servers, so two tasks cannot wait for each other. At most [`REQUESTS_IN_FLIGHT_MAX`] requests
//! are in flight on a connection.
//!
//! | event | the batch |
//! | --- | --- |
//! | reply with a result or a refusal | marks the item done or failed, and continues |
//! | connection lost | connects again and sends every unanswered request again: data requests may be executed twice |
//! | no answer within the time-out | connects again, like after a lost connection |
//! | no answer, and the deadline has passed | fails its open items; the other batches only take replies that have arrived |
//! | attempts or time used up | fails its open items with an error that names the server |
//!
//! An item that was sent on a lost connection is *unacknowledged*: it may have been executed even if a repetition is
//! refused. Appends depend on that. See docs/design/same-processor.md.

use crate::attempts::Attempts;
use crate::connect::ensure_data_connection;
use crate::connection::{Connection, is_timeout};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::pool::PoolGuard;
use crate::server::Server;
use std::io;
use weft_core::{Nanos, ServerId};
use weft_env::{Conn, Env, Processor};
use weft_wire::WireError;

/// Most requests in flight on one connection. Their replies fit the buffers of any socket, so neither side ever waits
/// for the other to read.
const REQUESTS_IN_FLIGHT_MAX: usize = 64;

/// One request of an exchange: its server and its outcome.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) server: ServerId,
    pub(crate) outcome: Outcome,
    /// Whether it was sent on a connection that was lost before the reply, so that it may have been executed.
    pub(crate) unacknowledged: bool,
}

/// Outcome of an [`Item`].
#[derive(Debug)]
pub(crate) enum Outcome {
    Pending,
    Done,
    Failed(Error),
}

impl Item {
    pub(crate) fn new(server: ServerId) -> Self {
        Self { server, outcome: Outcome::Pending, unacknowledged: false }
    }
}

/// Sends the requests of an exchange and handles the replies.
pub(crate) trait Traffic<E: Env> {
    /// Whether servers usually answer from memory, so that a local server should run on the client's processor.
    const ANSWERED_FROM_MEMORY: bool = false;

    /// Prepares `connection`, which awaits no reply, for sending `items`.
    async fn prepare(&mut self, _wire: &mut Connection<E>, _items: &[usize]) -> io::Result<()> {
        Ok(())
    }

    /// Sends the request of an item.
    async fn send(&mut self, connection: &mut Connection<E>, item: usize) -> io::Result<()>;

    /// Receives the reply of an item, payload included. The outer error is one of the connection.
    async fn receive(
        &mut self,
        connection: &mut Connection<E>,
        item: usize,
    ) -> io::Result<Result<(), WireError>>;
}

/// Returns the most specific error of an exchange.
///
/// An expired capability or a stale layout comes before all others, because the caller repeats the request after these.
pub(crate) fn first_error(items: Vec<Item>) -> Result<(), Error> {
    let mut first = None;
    for item in items {
        if let Outcome::Failed(error) = item.outcome
            && (first.is_none() || error.is_expired() || error.is_stale_layout())
        {
            first = Some(error);
        }
    }
    first.map_or(Ok(()), Err)
}

/// Sends all pending `items`, and receives their replies before `deadline`. Each server that answers gets the whole time
/// for its remaining requests.
pub(crate) async fn exchange<E: Env, T: Traffic<E>>(
    core: &Core<E>,
    items: &mut [Item],
    traffic: &mut T,
    deadline: Deadline,
) {
    if let [item] = items {
        // Fast path for a single request, without lists.
        let mut batch = ServerBatch::new(core, core.server(item.server), &[0], deadline).await;
        if T::ANSWERED_FROM_MEMORY {
            batch.waits_on = core.processor();
        }
        while batch.has_open_items() {
            batch.send(core, items, traffic).await;
            batch.receive(core, items, traffic).await;
        }
        return;
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&item| items[item].server);
    let mut batches: Vec<ServerBatch<'_, E>> = Vec::new();
    for group in order.chunk_by(|&a, &b| items[a].server == items[b].server) {
        batches.push(ServerBatch::new(core, core.server(items[group[0]].server), group, deadline).await);
    }
    let mut is_time_used_up = false;
    while batches.iter().any(ServerBatch::has_open_items) {
        for batch in &mut batches {
            batch.send(core, items, traffic).await;
        }
        for batch in &mut batches {
            if is_time_used_up {
                batch.shorten_timeout(core);
            }
            batch.receive(core, items, traffic).await;
            // One server has used up the time. Replies of the other servers that have already arrived are still
            // received.
            is_time_used_up |= batch.timed_out && batch.attempts.deadline.has_passed(&core.env);
        }
    }
}

/// The requests of an exchange that go to one server, over one connection.
struct ServerBatch<'a, E: Env> {
    server: &'a Server<E>,
    pooled: PoolGuard<'a, E>,
    order: &'a [usize],
    /// Number of answered requests, as an index into `order`.
    answered: usize,
    /// Number of sent requests, as an index into `order`.
    sent: usize,
    /// Attempts, with the deadline of the whole exchange.
    attempts: Attempts,
    /// Processor on which the client waits for this server alone.
    waits_on: Option<Processor>,
    /// Whether the connection's time-out was shortened.
    timeout_shortened: bool,
    /// Whether the server did not answer a request within the time-out.
    timed_out: bool,
    request_timeout: Nanos,
}

impl<'a, E: Env> ServerBatch<'a, E> {
    async fn new(core: &Core<E>, server: &'a Server<E>, order: &'a [usize], deadline: Deadline) -> Self {
        let pooled = server.connections.acquire().await;
        Self {
            server,
            pooled,
            order,
            answered: 0,
            sent: 0,
            attempts: Attempts::until(core, deadline),
            waits_on: None,
            timeout_shortened: false,
            timed_out: false,
            request_timeout: core.options.request_timeout,
        }
    }

    /// Limits further waits to the time that is left for the exchange.
    fn shorten_timeout(&mut self, core: &Core<E>) {
        if let Some(connection) = &mut self.pooled.connection {
            self.timeout_shortened = true;
            // If the time-out cannot be set, this connection waits longer.
            let _ = self.attempts.deadline.limit(&core.env, &mut connection.link, self.request_timeout);
        }
    }

    fn has_open_items(&self) -> bool {
        self.answered < self.order.len()
    }

    /// Gives a server that answers the full time for its remaining requests.
    fn restart_deadline(&mut self, core: &Core<E>) {
        self.attempts.deadline.restart(&core.env);
        if std::mem::take(&mut self.timeout_shortened) {
            self.shorten_timeout(core);
            self.timeout_shortened = false;
        }
    }

    async fn send<T: Traffic<E>>(&mut self, core: &Core<E>, items: &mut [Item], traffic: &mut T) {
        if !self.has_open_items() {
            return;
        }
        if let Err(error) =
            ensure_data_connection(core, self.server, &mut self.pooled, self.attempts.deadline).await
        {
            return self.fail(items, &error);
        }
        if self.attempts.number > 1 {
            self.shorten_timeout(core);
        }
        let connection = self.pooled.connection.as_mut().expect("connected above");
        let window = &self.order[self.answered..self.order.len().min(self.answered + REQUESTS_IN_FLIGHT_MAX)];
        connection.link.set_waits_on(self.waits_on.filter(|_| connection.local));
        let mut result = traffic.prepare(connection, window).await;
        for &item in window {
            if result.is_err() {
                break;
            }
            core.counters.data_messages.one();
            self.sent += 1;
            result = traffic.send(connection, item).await;
        }
        if let Err(error) = result {
            self.connection_lost(core, items, &error);
        }
    }

    async fn receive<T: Traffic<E>>(&mut self, core: &Core<E>, items: &mut [Item], traffic: &mut T) {
        while self.answered < self.sent {
            let connection = self.pooled.connection.as_mut().expect("connected while replies are awaited");
            let item = self.order[self.answered];
            match traffic.receive(connection, item).await {
                Ok(result) => {
                    self.answered += 1;
                    if self.has_open_items() {
                        self.restart_deadline(core);
                    }
                    items[item].outcome = match result {
                        Ok(()) => Outcome::Done,
                        Err(error) => Outcome::Failed(self.server.refused(error)),
                    };
                }
                Err(error) => return self.connection_lost(core, items, &error),
            }
        }
    }

    /// Handles a lost connection: unanswered requests will be sent over another one.
    fn connection_lost(&mut self, core: &Core<E>, items: &mut [Item], error: &io::Error) {
        self.pooled.connection = None;
        for &item in &self.order[self.answered..self.sent] {
            items[item].unacknowledged = true;
        }
        self.sent = self.answered;
        core.counters.repeated.one();
        self.timeout_shortened = false;
        self.timed_out = is_timeout(error);
        if let Err(error) = self.attempts.after(core, self.server, error) {
            self.fail(items, &error);
        }
    }

    fn fail(&mut self, items: &mut [Item], error: &Error) {
        for &item in &self.order[self.answered..] {
            items[item].outcome = Outcome::Failed(error.clone());
        }
        self.answered = self.order.len();
        self.sent = self.answered;
    }
}

impl<E: Env> Drop for ServerBatch<'_, E> {
    fn drop(&mut self) {
        if self.timeout_shortened
            && let Some(connection) = &mut self.pooled.connection
            && connection.link.conn().set_timeout(Some(self.request_timeout)).is_err()
        {
            self.pooled.connection = None;
        }
    }
}

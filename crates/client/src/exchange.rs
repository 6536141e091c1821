//! One exchange with the data servers: everything is sent to all servers first, then received from each in the
//! order in which it was sent. That gives parallelism without a thread.
//!
//! Data requests may be repeated without harm, so a lost connection only means to send again what was not answered.

use crate::allowance::Allowance;
use crate::call::{give_up, is_silence};
use crate::connect::{Wire, connected_to_data};
use crate::core::Core;
use crate::error::Error;
use crate::pool::Lent;
use crate::server::Server;
use std::io;
use weft_core::{Nanos, ServerId};
use weft_env::{Conn, Env, Processor};
use weft_wire::WireError;

/// Requests under way on one connection at a time. Their replies fit the buffers of any socket, so that neither
/// side ever waits for the other to read.
const WINDOW: usize = 64;

/// One request of an exchange: to whom, and what became of it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) server: ServerId,
    pub(crate) outcome: Outcome,
    /// It was sent, and the connection was lost before it was answered.
    pub(crate) unheard: bool,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Pending,
    Done,
    Failed(Error),
}

impl Item {
    pub(crate) fn new(server: ServerId) -> Self {
        Self { server, outcome: Outcome::Pending, unheard: false }
    }
}

/// What the items of an exchange say and what they do with the answers.
pub(crate) trait Traffic<E: Env> {
    /// Whether a server answers from memory as a rule, so that it may as well do so where the client waits.
    const AT_ONCE: bool = false;

    /// Before the first of `items` is sent on `wire`, which awaits no reply.
    async fn prepare(&mut self, _wire: &mut Wire<E>, _items: &[usize]) -> io::Result<()> {
        Ok(())
    }

    /// Sends the request of an item.
    async fn send(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<()>;

    /// Receives its reply, payload included. The outer error is of the connection.
    async fn receive(&mut self, wire: &mut Wire<E>, item: usize) -> io::Result<Result<(), WireError>>;
}

/// Sends all pending `items`, and receives all replies.
pub(crate) async fn exchange<E: Env, T: Traffic<E>>(core: &Core<E>, items: &mut [Item], traffic: &mut T) {
    let allowance = Allowance::begin(&core.env, core.options.request_timeout);
    if let [item] = items {
        // One request: no lists, no order.
        let mut leg = Leg::new(core, core.server(item.server), &[0], allowance).await;
        if T::AT_ONCE {
            leg.waits_on = core.processor();
        }
        while leg.goes_on() {
            leg.send(core, items, traffic).await;
            leg.receive(core, items, traffic).await;
        }
        return;
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&item| items[item].server);
    let mut legs: Vec<Leg<'_, E>> = Vec::new();
    for group in order.chunk_by(|&a, &b| items[a].server == items[b].server) {
        legs.push(Leg::new(core, core.server(items[group[0]].server), group, allowance).await);
    }
    let mut is_late = false;
    while legs.iter().any(Leg::goes_on) {
        for leg in &mut legs {
            leg.send(core, items, traffic).await;
        }
        for leg in &mut legs {
            if is_late {
                leg.hurry(core);
            }
            leg.receive(core, items, traffic).await;
            // Another server has used the time up; what has arrived from the next ones is there to be had.
            is_late |= leg.fell_silent;
        }
    }
}

/// The part of an exchange that goes to one server over one connection.
struct Leg<'a, E: Env> {
    server: &'a Server<E>,
    line: Lent<'a, E>,
    order: &'a [usize],
    /// Answered, as a place in `order`.
    answered: usize,
    /// Sent, likewise.
    sent: usize,
    attempt: u32,
    /// The processor that waits for this leg alone.
    waits_on: Option<Processor>,
    /// Of the whole exchange.
    allowance: Allowance,
    /// The connection waits for less than it does by itself.
    hurried: bool,
    /// The server left a request without an answer.
    fell_silent: bool,
    request_timeout: Nanos,
}

impl<'a, E: Env> Leg<'a, E> {
    async fn new(core: &Core<E>, server: &'a Server<E>, order: &'a [usize], allowance: Allowance) -> Self {
        let line = server.lines.lend().await;
        Self {
            server,
            line,
            order,
            answered: 0,
            sent: 0,
            attempt: 1,
            waits_on: None,
            allowance,
            hurried: false,
            fell_silent: false,
            request_timeout: core.options.request_timeout,
        }
    }

    /// Limits further waits to the rest of the exchange's time.
    fn hurry(&mut self, core: &Core<E>) {
        if let Some(wire) = &mut self.line.wire {
            self.hurried = true;
            // A connection that does not take it waits longer.
            let _ = self.allowance.limit(&core.env, &mut wire.link);
        }
    }

    fn goes_on(&self) -> bool {
        self.answered < self.order.len()
    }

    /// Gives a server that answers the whole time for its other requests.
    fn got_on(&mut self, core: &Core<E>) {
        self.allowance = Allowance::begin(&core.env, self.request_timeout);
        if std::mem::take(&mut self.hurried) {
            self.hurry(core);
            self.hurried = false;
        }
    }

    async fn send<T: Traffic<E>>(&mut self, core: &Core<E>, items: &mut [Item], traffic: &mut T) {
        if !self.goes_on() {
            return;
        }
        if let Err(error) = connected_to_data(core, self.server, &mut self.line, self.allowance).await {
            return self.fail(items, &error);
        }
        if self.attempt > 1 {
            self.hurry(core);
        }
        let wire = self.line.wire.as_mut().expect("connected above");
        let window = &self.order[self.answered..self.order.len().min(self.answered + WINDOW)];
        wire.link.set_waits_on(self.waits_on.filter(|_| wire.local));
        let mut result = traffic.prepare(wire, window).await;
        for &item in window {
            if result.is_err() {
                break;
            }
            core.counters.data_messages.one();
            self.sent += 1;
            result = traffic.send(wire, item).await;
        }
        if let Err(error) = result {
            self.lost(core, items, &error);
        }
    }

    async fn receive<T: Traffic<E>>(&mut self, core: &Core<E>, items: &mut [Item], traffic: &mut T) {
        while self.answered < self.sent {
            let wire = self.line.wire.as_mut().expect("connected while replies are awaited");
            let item = self.order[self.answered];
            match traffic.receive(wire, item).await {
                Ok(result) => {
                    self.answered += 1;
                    if self.goes_on() {
                        self.got_on(core);
                    }
                    items[item].outcome = match result {
                        Ok(()) => Outcome::Done,
                        Err(error) => Outcome::Failed(self.server.refused(error)),
                    };
                }
                Err(error) => return self.lost(core, items, &error),
            }
        }
    }

    /// The connection is gone: what was not answered goes over another one.
    fn lost(&mut self, core: &Core<E>, items: &mut [Item], error: &io::Error) {
        self.line.wire = None;
        for &item in &self.order[self.answered..self.sent] {
            items[item].unheard = true;
        }
        self.sent = self.answered;
        core.counters.repeated.one();
        self.hurried = false;
        self.fell_silent = is_silence(error);
        if let Some(error) = give_up(core, self.server, error, (self.attempt, self.allowance)) {
            self.fail(items, &error);
        }
        self.attempt += 1;
    }

    fn fail(&mut self, items: &mut [Item], error: &Error) {
        for &item in &self.order[self.answered..] {
            items[item].outcome = Outcome::Failed(error.clone());
        }
        self.answered = self.order.len();
        self.sent = self.answered;
    }
}

impl<E: Env> Drop for Leg<'_, E> {
    fn drop(&mut self) {
        if self.hurried
            && let Some(wire) = &mut self.line.wire
            && wire.link.conn().set_timeout(Some(self.request_timeout)).is_err()
        {
            self.line.wire = None;
        }
    }
}

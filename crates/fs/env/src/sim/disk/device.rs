//! Driver of a disk model by events of the executor. It wakes the tasks whose requests have completed.

use crate::device::{DeviceCounters, DeviceModel, DeviceRequest, Ticket};
use crate::sim::world::{DeviceId, TaskId, World};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::task::Poll;
use weft_core::Nanos;

/// Model under the clock of the world.
pub struct Device {
    state: Mutex<State>,
}

struct State {
    model: Box<dyn DeviceModel>,
    clock: Clock,
    tickets: u64,
    /// Requests that a task waits for.
    awaited: BTreeMap<Ticket, Waiter>,
    done: Vec<Ticket>,
}

#[derive(Default)]
struct Waiter {
    has_ended: bool,
    waiter: Option<TaskId>,
}

/// The model's clock, which runs slower than that of the world if the disk is slow.
#[derive(Clone, Copy)]
struct Clock {
    /// An instant, in the time of the world and in that of the model.
    anchor: (u64, u64),
    slowness_percent: u64,
}

impl Clock {
    fn of_model(&self, world: u64) -> Nanos {
        let since = u128::from(world - self.anchor.0) * 100 / u128::from(self.slowness_percent);
        Nanos(self.anchor.1.saturating_add(since as u64))
    }

    /// Returns the first instant of the world at which the model's clock shows `model`.
    fn of_world(&self, model: Nanos) -> u64 {
        let since = u128::from(model.0.saturating_sub(self.anchor.1)) * u128::from(self.slowness_percent);
        self.anchor.0.saturating_add(u64::try_from(since.div_ceil(100)).unwrap_or(u64::MAX))
    }
}

/// Request in progress. Dropping it ends the wait but not the request.
pub struct PendingRequest<'a> {
    device: &'a Device,
    world: &'a World,
    ticket: Ticket,
}

impl Device {
    pub fn new(model: Box<dyn DeviceModel>) -> Self {
        let clock = Clock { anchor: (0, 0), slowness_percent: 100 };
        let state = State { model, clock, tickets: 0, awaited: BTreeMap::new(), done: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    /// Replaces the model. Requests of the previous model end at once.
    pub fn set_model(&self, world: &World, model: Box<dyn DeviceModel>) {
        let mut state = self.state.lock();
        state.model = model;
        let open: Vec<Ticket> = state.awaited.keys().copied().collect();
        open.into_iter().for_each(|ticket| state.end(world, ticket));
    }

    /// Sets all times to `percent` of the model's from now on.
    pub fn set_slowness(&self, world: &World, id: DeviceId, percent: u32) {
        let mut state = self.state.lock();
        let anchor = (world.now(), state.clock.of_model(world.now()).0);
        state.clock = Clock { anchor, slowness_percent: u64::from(percent.max(1)) };
        state.process_events(world, id);
    }

    pub fn forget(&self) {
        self.state.lock().model.forget();
    }

    pub fn counters(&self) -> DeviceCounters {
        self.state.lock().model.counters()
    }

    /// Starts a request.
    pub fn submit<'a>(
        &'a self,
        world: &'a World,
        id: DeviceId,
        request: &DeviceRequest,
    ) -> PendingRequest<'a> {
        let mut state = self.state.lock();
        let ticket = state.submit(world, request);
        state.awaited.insert(ticket, Waiter::default());
        state.process_events(world, id);
        PendingRequest { device: self, world, ticket }
    }

    /// Starts a request that no task waits for.
    pub fn submit_unawaited(&self, world: &World, id: DeviceId, request: &DeviceRequest) {
        let mut state = self.state.lock();
        state.submit(world, request);
        state.process_events(world, id);
    }

    /// Processes the model's next event, which is due.
    pub fn ring(&self, world: &World, id: DeviceId) {
        self.state.lock().process_events(world, id);
    }
}

impl State {
    fn submit(&mut self, world: &World, request: &DeviceRequest) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.model.submit(self.clock.of_model(world.now()), ticket, request);
        ticket
    }

    /// Lets the model process due events, wakes the waiting tasks and schedules the next event.
    fn process_events(&mut self, world: &World, id: DeviceId) {
        let now = self.clock.of_model(world.now());
        while let Some(next) = self.model.next_event() {
            if next > now {
                return world.ring_device_at(id, self.clock.of_world(next));
            }
            let mut done = std::mem::take(&mut self.done);
            self.model.advance(now, &mut done);
            done.drain(..).for_each(|ticket| self.end(world, ticket));
            self.done = done;
        }
    }

    fn end(&mut self, world: &World, ticket: Ticket) {
        let Some(awaited) = self.awaited.get_mut(&ticket) else { return };
        awaited.has_ended = true;
        if let Some(waiter) = awaited.waiter.take() {
            world.wake(waiter);
        }
    }
}

impl PendingRequest<'_> {
    /// Waits for completion.
    pub async fn end(self) {
        std::future::poll_fn(|_| {
            let mut state = self.device.state.lock();
            let awaited = state.awaited.get_mut(&self.ticket).expect("a waiter stays until it is dropped");
            if awaited.has_ended {
                return Poll::Ready(());
            }
            awaited.waiter = Some(self.world.current());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.device.state.lock().awaited.remove(&self.ticket);
    }
}

//! Emulated devices: real bytes are stored, and each request takes the time that a modelled disk would.
//!
//! A request is handed to the model when it begins, the real operation runs meanwhile, and then the caller waits until
//! the model says that it has ended. So a request takes the longer of the two times, and requests of several
//! connections are in the model's queue together. Nobody runs the model in the background: of those who wait, one
//! keeps its clock and wakes the others.

mod blocking;

pub(crate) use blocking::Emulated;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceCounters, DeviceModel, DeviceRequest, Ticket};
use weft_env::{Env, Notify};

/// Which device to emulate.
#[derive(Clone)]
pub struct Emulation {
    /// The profile's name.
    pub profile: String,
    /// Makes a new one.
    pub build: Arc<dyn Fn() -> Box<dyn DeviceModel> + Send + Sync>,
}

impl std::fmt::Debug for Emulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emulation({:?})", self.profile)
    }
}

/// A model under the clock of its world. Clones share it.
pub struct Emulator<E: Env>(Arc<Shared<E>>);

impl<E: Env> Clone for Emulator<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<E: Env> {
    env: E,
    profile: String,
    state: Mutex<State<E>>,
}

struct State<E: Env> {
    model: Box<dyn DeviceModel>,
    /// Up to where the model has got.
    time: Nanos,
    tickets: u64,
    begun: BTreeMap<Ticket, Begun<E>>,
    /// Who keeps the model's clock, and when he looks again.
    keeper: Option<(Ticket, Nanos)>,
    /// Event counts of requests that have ended, for the next ones.
    spare: Vec<E::Notify>,
    done: Vec<Ticket>,
}

struct Begun<E: Env> {
    changed: E::Notify,
    has_ended: bool,
    /// Its caller waits now.
    is_awaited: bool,
}

/// A request under way. Who drops it does not wait for it any longer; the device goes on.
pub(crate) struct Charge<E: Env> {
    emulator: Emulator<E>,
    ticket: Ticket,
}

impl<E: Env> Emulator<E> {
    /// A new device.
    pub fn new(env: &E, emulation: &Emulation) -> Self {
        let state = State {
            model: (emulation.build)(),
            time: Nanos::ZERO,
            tickets: 0,
            begun: BTreeMap::new(),
            keeper: None,
            spare: Vec::new(),
            done: Vec::new(),
        };
        let (env, profile) = (env.clone(), emulation.profile.clone());
        Self(Arc::new(Shared { env, profile, state: Mutex::new(state) }))
    }

    /// The name of its profile.
    pub fn profile(&self) -> &str {
        &self.0.profile
    }

    /// What has reached the device so far.
    pub fn counters(&self) -> DeviceCounters {
        self.0.state.lock().model.counters()
    }

    /// The modelled system forgets what it holds of files in memory and need not write.
    pub(crate) fn forget(&self) {
        let mut state = self.0.state.lock();
        let now = self.0.env.now();
        state.go_on(now);
        state.model.forget();
        state.rouse_keeper();
    }

    /// Hands a request to the model.
    pub(crate) fn begin(&self, request: &DeviceRequest) -> Charge<E> {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let changed = state.spare.pop().unwrap_or_else(|| shared.env.notify());
        state.begun.insert(ticket, Begun { changed, has_ended: false, is_awaited: false });
        // Read under the lock, so that the model's time never runs backwards.
        let now = shared.env.now();
        state.go_on(now);
        state.time = now;
        state.model.submit(now, ticket, request);
        state.rouse_keeper();
        Charge { emulator: self.clone(), ticket }
    }

    /// Hands a request to the model for which nobody waits.
    pub(crate) fn tell(&self, request: &DeviceRequest) {
        drop(self.begin(request));
    }
}

impl<E: Env> State<E> {
    /// The keeper looks again when the model has something to do earlier than he knows.
    fn rouse_keeper(&self) {
        let Some((keeper, looks_at)) = self.keeper else { return };
        if self.model.next_event().is_some_and(|next| next < looks_at)
            && let Some(begun) = self.begun.get(&keeper)
        {
            begun.changed.notify_all();
        }
    }

    /// Moves the model on and wakes those whose requests have ended. Each event has its own time, however late its
    /// keeper woke: a disk with a queue does not wait for a busy processor.
    fn go_on(&mut self, now: Nanos) {
        while let Some(next) = self.model.next_event().filter(|next| *next <= now) {
            let mut done = std::mem::take(&mut self.done);
            self.model.advance(next.max(self.time), &mut done);
            self.time = self.time.max(next);
            for ticket in done.drain(..) {
                if let Some(begun) = self.begun.get_mut(&ticket) {
                    begun.has_ended = true;
                    begun.changed.notify_all();
                }
            }
            self.done = done;
        }
    }

    /// Hands the clock on to another that waits.
    fn leave(&mut self, ticket: Ticket) {
        if let Some(begun) = self.begun.remove(&ticket) {
            self.spare.push(begun.changed);
        }
        if self.keeper.is_some_and(|(keeper, _)| keeper == ticket) {
            self.keeper = None;
            let next = self.begun.iter().find(|(_, begun)| begun.is_awaited && !begun.has_ended);
            if let Some((&next, begun)) = next {
                self.keeper = Some((next, Nanos(0)));
                begun.changed.notify_all();
            }
        }
    }
}

impl<E: Env> Charge<E> {
    /// Waits for the end.
    pub(crate) async fn end(self) {
        let shared = &*self.emulator.0;
        loop {
            let (changed, seen, until) = {
                let mut state = shared.state.lock();
                let state = &mut *state;
                state.go_on(shared.env.now());
                let keeper = state.keeper.map(|(keeper, _)| keeper);
                let begun = state.begun.get_mut(&self.ticket).expect("removed when dropped");
                if begun.has_ended {
                    return;
                }
                begun.is_awaited = true;
                let (changed, seen) = (begun.changed.clone(), begun.changed.epoch());
                let mut until = None;
                if keeper.is_none_or(|keeper| keeper == self.ticket) {
                    let next = state.model.next_event();
                    debug_assert!(next.is_some(), "the model has forgotten a request");
                    until = next;
                    state.keeper = Some((self.ticket, next.unwrap_or(Nanos(u64::MAX))));
                }
                (changed, seen, until)
            };
            match until {
                Some(at) => shared.env.wait_until(&changed, seen, at).await,
                None => changed.wait(seen, None).await,
            };
        }
    }
}

impl<E: Env> Drop for Charge<E> {
    fn drop(&mut self) {
        self.emulator.0.state.lock().leave(self.ticket);
    }
}

/// Waits for a request, if there is one.
pub(crate) async fn end<E: Env>(charge: Option<Charge<E>>) {
    if let Some(charge) = charge {
        charge.end().await;
    }
}

/// A request to a device.
pub(crate) fn request(action: DeviceAction, file: u64, offset: LocalOffset, len: usize) -> DeviceRequest {
    DeviceRequest { action, file, offset, len: ByteLen(len as u64), is_direct: false }
}

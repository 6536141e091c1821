//! Emulated devices: real bytes are stored, and each request takes the time that a modeled disk would take.
//!
//! A request enters the model when it begins. The real operation runs, and then the caller waits until the model
//! completes the request. A request therefore takes the longer of the two times, and requests of several connections
//! share the model's queue. No background task runs the model: one of the waiting tasks, the *timekeeper*, advances it
//! and wakes the others.

mod blocking;

pub(crate) use blocking::Emulated;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceCounters, DeviceModel, DeviceRequest, Ticket};
use weft_env::{Env, File, Notify};

/// A device to emulate.
#[derive(Clone)]
pub struct Emulation {
    /// Name of the profile.
    pub profile: String,
    /// Creates a new model of the device.
    pub build: Arc<dyn Fn() -> Box<dyn DeviceModel> + Send + Sync>,
}

impl std::fmt::Debug for Emulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emulation({:?})", self.profile)
    }
}

/// A device model driven by the environment's clock. Clones share it.
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
    /// Time up to which the model has been advanced.
    time: Nanos,
    tickets: u64,
    requests: BTreeMap<Ticket, RequestState<E>>,
    /// Ticket of the timekeeper, and the time at which it next advances the model.
    timekeeper: Option<(Ticket, Nanos)>,
    /// Notifiers of completed requests, for reuse.
    spare_notifiers: Vec<E::Notify>,
    done: Vec<Ticket>,
}

struct RequestState<E: Env> {
    changed: E::Notify,
    has_ended: bool,
    /// True while a task waits for the request.
    is_awaited: bool,
}

/// A request on the emulated device. Dropping it stops the wait; the device still completes the request.
pub(crate) struct InFlight<E: Env> {
    emulator: Emulator<E>,
    ticket: Ticket,
}

impl<E: Env> Emulator<E> {
    /// Creates a new device.
    pub fn new(env: &E, emulation: &Emulation) -> Self {
        let state = State {
            model: (emulation.build)(),
            time: Nanos::ZERO,
            tickets: 0,
            requests: BTreeMap::new(),
            timekeeper: None,
            spare_notifiers: Vec::new(),
            done: Vec::new(),
        };
        let (env, profile) = (env.clone(), emulation.profile.clone());
        Self(Arc::new(Shared { env, profile, state: Mutex::new(state) }))
    }

    /// Returns the name of the device's profile.
    pub fn profile(&self) -> &str {
        &self.0.profile
    }

    /// Returns counters of the requests that reached the device.
    pub fn counters(&self) -> DeviceCounters {
        self.0.state.lock().model.counters()
    }

    /// Drops clean cached data in the modeled system.
    pub(crate) fn forget(&self) {
        let mut state = self.0.state.lock();
        let now = self.0.env.now();
        state.advance(now);
        state.model.forget();
        state.wake_timekeeper();
    }

    /// Submits a request to the model.
    pub(crate) fn begin(&self, request: &DeviceRequest) -> InFlight<E> {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let changed = state.spare_notifiers.pop().unwrap_or_else(|| shared.env.notify());
        state.requests.insert(ticket, RequestState { changed, has_ended: false, is_awaited: false });
        // Read under the lock, so that the model's time never runs backwards.
        let now = shared.env.now();
        state.advance(now);
        state.time = now;
        state.model.submit(now, ticket, request);
        state.wake_timekeeper();
        InFlight { emulator: self.clone(), ticket }
    }

    /// Submits a request that no task waits for.
    pub(crate) fn submit(&self, request: &DeviceRequest) {
        drop(self.begin(request));
    }
}

impl<E: Env> State<E> {
    /// Wakes the timekeeper if the model has an event before the timekeeper's next wakeup.
    fn wake_timekeeper(&self) {
        let Some((timekeeper, wakes_at)) = self.timekeeper else { return };
        if self.model.next_event().is_some_and(|next| next < wakes_at)
            && let Some(request) = self.requests.get(&timekeeper)
        {
            request.changed.notify_all();
        }
    }

    /// Advances the model and wakes the tasks whose requests have completed. Each event keeps its own time, however
    /// late the timekeeper woke: the queue of a disk does not wait for a busy processor.
    fn advance(&mut self, now: Nanos) {
        while let Some(next) = self.model.next_event().filter(|next| *next <= now) {
            let mut done = std::mem::take(&mut self.done);
            self.model.advance(next.max(self.time), &mut done);
            self.time = self.time.max(next);
            for ticket in done.drain(..) {
                if let Some(request) = self.requests.get_mut(&ticket) {
                    request.has_ended = true;
                    request.changed.notify_all();
                }
            }
            self.done = done;
        }
    }

    /// Removes a request. If its task was the timekeeper, another waiting task takes over.
    fn remove(&mut self, ticket: Ticket) {
        if let Some(request) = self.requests.remove(&ticket) {
            self.spare_notifiers.push(request.changed);
        }
        if self.timekeeper.is_some_and(|(timekeeper, _)| timekeeper == ticket) {
            self.timekeeper = None;
            let next = self.requests.iter().find(|(_, request)| request.is_awaited && !request.has_ended);
            if let Some((&next, request)) = next {
                self.timekeeper = Some((next, Nanos(0)));
                request.changed.notify_all();
            }
        }
    }
}

impl<E: Env> InFlight<E> {
    /// Waits until the device has completed the request.
    pub(crate) async fn finish(self) {
        let shared = &*self.emulator.0;
        loop {
            let (changed, seen, until) = {
                let mut state = shared.state.lock();
                let state = &mut *state;
                state.advance(shared.env.now());
                let timekeeper = state.timekeeper.map(|(timekeeper, _)| timekeeper);
                let request = state.requests.get_mut(&self.ticket).expect("removed when dropped");
                if request.has_ended {
                    return;
                }
                request.is_awaited = true;
                let (changed, seen) = (request.changed.clone(), request.changed.epoch());
                let mut until = None;
                if timekeeper.is_none_or(|timekeeper| timekeeper == self.ticket) {
                    let next = state.model.next_event();
                    debug_assert!(next.is_some(), "the model has lost a request");
                    until = next;
                    state.timekeeper = Some((self.ticket, next.unwrap_or(Nanos(u64::MAX))));
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

impl<E: Env> Drop for InFlight<E> {
    fn drop(&mut self) {
        self.emulator.0.state.lock().remove(self.ticket);
    }
}

/// A file of an emulated device, or of none.
#[derive(Clone)]
pub(crate) struct Charge<E: Env> {
    device: Option<Emulator<E>>,
    /// Number of the file on the device.
    file: u64,
    /// True if requests bypass the modeled system's page cache.
    is_direct: bool,
}

impl<E: Env> Charge<E> {
    /// Returns file number `file` of `device`.
    pub fn new(device: Option<&Emulator<E>>, file: u64, is_direct: bool) -> Self {
        Self { device: device.cloned(), file, is_direct }
    }

    /// Returns true if there is no device.
    pub fn is_none(&self) -> bool {
        self.device.is_none()
    }

    /// Begins a request, if there is a device.
    pub fn begin(&self, action: DeviceAction, offset: LocalOffset, len: usize) -> Option<InFlight<E>> {
        let device = self.device.as_ref()?;
        let is_direct = self.is_direct;
        Some(device.begin(&DeviceRequest { is_direct, ..request(action, self.file, offset, len) }))
    }
}

/// A file whose operations are charged to an emulated device, if there is one.
#[derive(Clone)]
pub(crate) struct ChargedFile<E: Env> {
    /// The file, for operations that cost the device nothing.
    pub file: E::File,
    /// The file on the device.
    pub charge: Charge<E>,
}

impl<E: Env> ChargedFile<E> {
    /// Reads until `buf` is full or the file ends. Returns the number of bytes.
    pub async fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<usize> {
        let in_flight = self.charge.begin(DeviceAction::Read, offset, buf.len());
        let got = self.file.read_at(&mut [IoSliceMut::new(buf)], offset).await?;
        finish(in_flight).await;
        Ok(got)
    }

    /// Writes all of `bytes`.
    pub async fn write_at(&self, bytes: &[u8], offset: LocalOffset) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Write, offset, bytes.len());
        self.file.write_at(&[IoSlice::new(bytes)], offset).await?;
        finish(in_flight).await;
        Ok(())
    }

    /// Makes contents and length durable.
    pub async fn sync(&self) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Sync, LocalOffset(0), 0);
        self.file.sync().await?;
        finish(in_flight).await;
        Ok(())
    }

    /// Punches a hole.
    pub async fn punch(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Discard, offset, len.0 as usize);
        self.file.punch(offset, len).await?;
        finish(in_flight).await;
        Ok(())
    }

    /// Truncates or extends.
    pub async fn set_len(&self, len: ByteLen) -> io::Result<()> {
        let in_flight = self.charge.begin(DeviceAction::Cut, LocalOffset(len.0), 0);
        self.file.set_len(len).await?;
        finish(in_flight).await;
        Ok(())
    }
}

/// Waits for a request, if there is one.
pub(crate) async fn finish<E: Env>(in_flight: Option<InFlight<E>>) {
    if let Some(in_flight) = in_flight {
        in_flight.finish().await;
    }
}

/// Returns a request for a device.
pub(crate) fn request(action: DeviceAction, file: u64, offset: LocalOffset, len: usize) -> DeviceRequest {
    DeviceRequest { action, file, offset, len: ByteLen(len as u64), is_direct: false }
}

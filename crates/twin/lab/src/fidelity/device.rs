//! A disk model that a server drives and the test can access.

use parking_lot::Mutex;
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::device::{DeviceCounters, DeviceModel, DeviceRequest, Ticket};
use weft_models::Profile;
use weft_store::emulate::Emulation;

/// A modelled disk of an emulated target. Clones share the disk.
#[derive(Clone)]
pub struct SharedDisk(Arc<Mutex<Box<dyn DeviceModel>>>);

impl SharedDisk {
    pub fn new(profile: &Profile, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(profile.build(seed))))
    }

    /// Returns the emulation for a server's configuration.
    pub fn emulation(&self, profile: &Profile) -> Emulation {
        let disk = self.clone();
        Emulation { profile: profile.name.clone(), build: Arc::new(move || Box::new(disk.clone())) }
    }
}

impl DeviceModel for SharedDisk {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest) {
        self.0.lock().submit(now, ticket, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.lock().next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>) {
        self.0.lock().advance(now, done);
    }

    fn forget(&mut self) {
        self.0.lock().forget();
    }

    fn counters(&self) -> DeviceCounters {
        self.0.lock().counters()
    }
}

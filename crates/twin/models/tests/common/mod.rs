//! Runs requests on a model with a virtual clock.
#![allow(dead_code)] // Each test file uses some of it.

use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};

pub fn request(action: DeviceAction, file: u64, offset: u64, len: u64, is_direct: bool) -> DeviceRequest {
    DeviceRequest { action, file, offset: LocalOffset(offset), len: ByteLen(len), is_direct }
}

pub fn direct_read(file: u64, offset: u64, len: u64) -> DeviceRequest {
    request(DeviceAction::Read, file, offset, len, true)
}

pub fn direct_write(file: u64, offset: u64, len: u64) -> DeviceRequest {
    request(DeviceAction::Write, file, offset, len, true)
}

/// A model, its clock and the requests in progress.
pub struct Runner {
    pub model: Box<dyn DeviceModel>,
    pub now: u64,
    next: u64,
    begun: BTreeMap<Ticket, u64>,
}

impl Runner {
    pub fn new(model: Box<dyn DeviceModel>) -> Self {
        Self { model, now: 0, next: 0, begun: BTreeMap::new() }
    }

    pub fn submit(&mut self, request: &DeviceRequest) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.begun.insert(ticket, self.now);
        self.model.submit(Nanos(self.now), ticket, request);
        ticket
    }

    /// Advances to the next event. Returns the tickets that ended and their durations.
    pub fn step(&mut self) -> Vec<(Ticket, u64)> {
        let at = self.model.next_event().expect("a request is in progress").0;
        self.now = self.now.max(at);
        let mut done = Vec::new();
        self.model.advance(Nanos(self.now), &mut done);
        done.into_iter()
            .map(|ticket| {
                let begun = self.begun.remove(&ticket).expect("a ticket ends once, and was submitted");
                (ticket, self.now - begun)
            })
            .collect()
    }

    /// Runs until no request is in progress.
    pub fn drain(&mut self) -> Vec<(Ticket, u64)> {
        let mut ended = Vec::new();
        while self.model.next_event().is_some() {
            ended.extend(self.step());
        }
        assert!(self.begun.is_empty(), "every ticket has ended: {:?}", self.begun);
        ended
    }

    /// Submits a request, waits for it and returns its duration.
    pub fn complete(&mut self, request: &DeviceRequest) -> u64 {
        let ticket = self.submit(request);
        loop {
            if let Some((_, took)) = self.step().into_iter().find(|&(ended, _)| ended == ticket) {
                return took;
            }
        }
    }

    /// Keeps `depth` requests of `next` in progress until `count` have ended. Returns the total time and all durations.
    pub fn run(
        &mut self,
        depth: usize,
        count: usize,
        mut next: impl FnMut(usize) -> DeviceRequest,
    ) -> (u64, Vec<u64>) {
        let start = self.now;
        let mut times = Vec::with_capacity(count);
        let mut given = 0;
        while times.len() < count {
            while given < count && given - times.len() < depth {
                let request = next(given);
                self.submit(&request);
                given += 1;
            }
            times.extend(self.step().into_iter().map(|(_, took)| took));
        }
        (self.now - start, times)
    }
}

/// Returns the rate in 10^6 bytes per second.
pub fn mb_s(bytes: u64, nanos: u64) -> f64 {
    bytes as f64 * 1e3 / nanos as f64
}

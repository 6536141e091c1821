//! How long the network takes, and what it does to segments.

use crate::sim::disk::transfer;
use crate::sim::rng::Rng;
use std::collections::BTreeMap;
use weft_core::{ByteLen, Nanos};

/// How long TCP waits before it sends a lost segment again.
const RETRANSMIT: u64 = 200_000_000;

/// What goes wrong on the network between machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkFaults {
    /// Segments lost per million: on a reliable stream that is a delay of 200 ms and of all behind it.
    pub losses_per_million: u32,
    /// Each segment is late by up to this much, so that messages of different connections overtake each other.
    pub jitter: Nanos,
    /// Segments per million whose connection is reset instead.
    pub resets_per_million: u32,
}

/// A model of the network: it says when bytes arrive.
pub trait NetworkModel: Send {
    /// When `len` bytes that machine `from` sends to `to` at `now` have arrived. Machines are numbered in the order
    /// of their making. Called in the order of `now`; equal machines are processes of one machine.
    fn arrival(&mut self, now: Nanos, from: u32, to: u32, len: ByteLen) -> Nanos;
}

/// A network of full-duplex links between each machine and one switch that is never the bottleneck.
#[derive(Clone, Debug)]
pub struct SimpleNetwork {
    /// Time of an empty message between machines.
    pub latency: Nanos,
    /// Bytes per second of each machine's link in each direction.
    pub bytes_per_s: u64,
    /// Time of an empty message between processes of one machine.
    pub local_latency: Nanos,
    /// Bytes per second between processes of one machine.
    pub local_bytes_per_s: u64,
    busy: BTreeMap<(u32, bool), u64>,
}

impl SimpleNetwork {
    /// A network with these figures between machines.
    pub fn new(latency: Nanos, bytes_per_s: u64) -> Self {
        Self {
            latency,
            bytes_per_s,
            local_latency: Nanos(5_000),
            local_bytes_per_s: 8_000_000_000,
            busy: BTreeMap::new(),
        }
    }

    /// Occupies one direction of a machine's link from `ready` on; when it is free again.
    fn occupy(&mut self, machine: u32, is_out: bool, ready: u64, took: u64) -> u64 {
        let busy = self.busy.entry((machine, is_out)).or_default();
        *busy = (*busy).max(ready) + took;
        *busy
    }
}

impl Default for SimpleNetwork {
    /// About 100 Gbit/s Ethernet through one switch.
    fn default() -> Self {
        Self::new(Nanos(20_000), 12_500_000_000)
    }
}

impl NetworkModel for SimpleNetwork {
    fn arrival(&mut self, now: Nanos, from: u32, to: u32, len: ByteLen) -> Nanos {
        if from == to {
            return Nanos(now.0 + self.local_latency.0 + transfer(len.0, self.local_bytes_per_s));
        }
        let took = transfer(len.0, self.bytes_per_s);
        let sent = self.occupy(from, true, now.0, took);
        // The first byte reaches the receiver's link one latency after it left.
        let received = self.occupy(to, false, sent - took + self.latency.0, took);
        Nanos(received)
    }
}

/// The model with the faults.
pub(in crate::sim) struct Network {
    pub model: Box<dyn NetworkModel>,
    pub faults: NetworkFaults,
    rng: Rng,
}

impl Network {
    pub fn new(model: Box<dyn NetworkModel>, rng: Rng) -> Self {
        Self { model, faults: NetworkFaults::default(), rng }
    }

    /// When a segment arrives; `None` when the connection is reset instead.
    pub fn arrival(&mut self, now: u64, from: u32, to: u32, len: usize) -> Option<u64> {
        let at = self.model.arrival(Nanos(now), from, to, ByteLen(len as u64)).0.max(now);
        let faults = self.faults;
        if from == to {
            return Some(at);
        }
        if self.rng.chance(faults.resets_per_million) {
            return None;
        }
        let jitter = if faults.jitter.0 > 0 { self.rng.below(faults.jitter.0 + 1) } else { 0 };
        let again = if self.rng.chance(faults.losses_per_million) { RETRANSMIT } else { 0 };
        Some(at + jitter + again)
    }
}

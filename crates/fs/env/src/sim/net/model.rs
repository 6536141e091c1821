//! Network models: delays and faults of segments.

use crate::sim::disk::transfer;
use crate::sim::rng::Rng;
use std::collections::BTreeMap;
use weft_core::{ByteLen, Nanos};

/// Delay of a segment that TCP retransmits, in nanoseconds.
const RETRANSMIT: u64 = 200_000_000;

/// Faults of the network between machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkFaults {
    /// Lost segments per million. On a reliable stream, a loss delays the segment and all that follow by 200 ms.
    pub losses_per_million: u32,
    /// Maximum random delay of a segment, so that messages of different connections overtake each other.
    pub jitter: Nanos,
    /// Segments per million whose connection is reset instead.
    pub resets_per_million: u32,
}

/// Model of the network, which computes times of arrival.
pub trait NetworkModel: Send {
    /// Returns the time at which `len` bytes, sent at `now` by machine `from` to machine `to`, have arrived. Machines
    /// are numbered in the order of their creation. `now` never decreases over the calls. `from` and `to` are equal for
    /// processes of one machine.
    fn arrival(&mut self, now: Nanos, from: u32, to: u32, len: ByteLen) -> Nanos;
}

/// Network of full-duplex links between each machine and one switch that is never the bottleneck.
#[derive(Clone, Debug)]
pub struct SimpleNetwork {
    /// Latency of an empty message between machines.
    pub latency: Nanos,
    /// Bytes per second of each machine's link in each direction.
    pub bytes_per_s: u64,
    /// Latency of an empty message between processes of one machine.
    pub local_latency: Nanos,
    /// Bytes per second between processes of one machine.
    pub local_bytes_per_s: u64,
    busy: BTreeMap<(u32, bool), u64>,
}

impl SimpleNetwork {
    /// Creates a network with these figures between machines.
    pub fn new(latency: Nanos, bytes_per_s: u64) -> Self {
        Self {
            latency,
            bytes_per_s,
            local_latency: Nanos(5_000),
            local_bytes_per_s: 8_000_000_000,
            busy: BTreeMap::new(),
        }
    }

    /// Occupies one direction of a machine's link from `ready` on. Returns the time at which it is free again.
    fn occupy(&mut self, machine: u32, is_out: bool, ready: u64, took: u64) -> u64 {
        let busy = self.busy.entry((machine, is_out)).or_default();
        *busy = (*busy).max(ready) + took;
        *busy
    }
}

impl Default for SimpleNetwork {
    /// Returns approximately 100 Gbit/s Ethernet through one switch.
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

/// Network model with faults.
pub(in crate::sim) struct Network {
    pub model: Box<dyn NetworkModel>,
    pub faults: NetworkFaults,
    rng: Rng,
}

impl Network {
    pub fn new(model: Box<dyn NetworkModel>, rng: Rng) -> Self {
        Self { model, faults: NetworkFaults::default(), rng }
    }

    /// Returns the time at which a segment arrives; `None` if the connection is reset instead.
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

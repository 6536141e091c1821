//! Network models: a full-duplex link from each node to one switch whose ports have bounded buffers.

use crate::time::{from_us, transfer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{ByteLen, Nanos};
use weft_env::sim::NetworkModel;

/// Parameters of a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Name of the network.
    pub name: String,
    /// Description of the network.
    pub about: String,
    /// Source of the parameters.
    #[serde(default)]
    pub source: String,
    /// Latency of an empty message between nodes in one direction, in microseconds.
    pub latency_us: f64,
    /// Payload rate of a link in each direction, in 10^6 bytes per second.
    pub link_mb_s: f64,
    /// Microseconds of processor time for each message sent or received, one after another.
    pub message_us: f64,
    /// Buffer of a switch port in KiB. 0 is a network with flow control that loses nothing (InfiniBand).
    pub port_kib: u64,
    /// Minimum bytes that a sender keeps in transit: the smallest window of a connection that detects a loss without a
    /// timeout.
    pub window_min: u64,
    /// Milliseconds that a sender waits after it has lost its whole window. Each further timeout in a row takes twice
    /// as long.
    pub timeout_ms: f64,
    /// Latency of an empty message between processes of a node, in microseconds.
    pub local_latency_us: f64,
    /// Total rate between the processes of a node, in 10^6 bytes per second.
    pub local_mb_s: f64,
}

const BUILT_IN: &[(&str, &str)] = &[
    ("100gbe", include_str!("../profiles/network/100gbe.toml")),
    ("gbe", include_str!("../profiles/network/gbe.toml")),
    ("ipoib", include_str!("../profiles/network/ipoib.toml")),
    ("loopback", include_str!("../profiles/network/loopback.toml")),
    ("qdr-infiniband", include_str!("../profiles/network/qdr-infiniband.toml")),
];

/// Error of a network's parameters.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetworkError {
    /// No network has this name.
    #[error("there is no network named {name:?}: use one of {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The text does not parse, or its parameters are invalid.
    #[error("not a valid network: {0}")]
    Bad(String),
}

/// Returns the names of the built-in networks, sorted.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl NetworkSpec {
    /// Returns a built-in network.
    ///
    /// # Errors
    /// Fails if there is no network of this name. The message lists the names.
    pub fn by_name(name: &str) -> Result<Self, NetworkError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| NetworkError::Unknown { name: name.to_owned() })?;
        Self::from_toml(text)
    }

    /// Parses and checks a network's parameters.
    ///
    /// # Errors
    /// Fails if the text does not parse or its parameters are invalid.
    pub fn from_toml(text: &str) -> Result<Self, NetworkError> {
        let spec: Self = toml::from_str(text).map_err(|error| NetworkError::Bad(error.to_string()))?;
        let is_time = |value: f64| (0.0..=1e9).contains(&value);
        let times = [spec.latency_us, spec.message_us, spec.timeout_ms, spec.local_latency_us];
        if !times.into_iter().all(is_time) {
            return Err(NetworkError::Bad("its times must be 0 or more, and no more than 10^9".into()));
        }
        let is_speed = |value: f64| value.is_finite() && value > 0.0;
        if !is_speed(spec.link_mb_s) || !is_speed(spec.local_mb_s) {
            return Err(NetworkError::Bad("link_mb_s and local_mb_s must be more than 0".into()));
        }
        Ok(spec)
    }

    /// Builds a network with these parameters.
    pub fn build(&self) -> Box<dyn NetworkModel> {
        Box::new(Network::new(self))
    }
}

#[derive(Debug, Default)]
struct Node {
    out_free: u64,
    in_free: u64,
    send_free: u64,
    receive_free: u64,
    local_free: u64,
    /// Senders with bytes in this node's switch port, by the time until which they wait.
    waiting: BTreeSet<(u64, u32)>,
    until: BTreeMap<u32, u64>,
}

impl Node {
    /// Returns the number of senders with bytes in the port at `now`, including `from`.
    fn senders(&mut self, now: u64, from: u32) -> u64 {
        while let Some(&(until, sender)) = self.waiting.first()
            && until <= now
        {
            self.waiting.pop_first();
            self.until.remove(&sender);
        }
        (self.waiting.len() + usize::from(!self.until.contains_key(&from))) as u64
    }

    fn note_sender(&mut self, from: u32, until: u64) {
        if let Some(before) = self.until.insert(from, until) {
            self.waiting.remove(&(before, from));
        }
        self.waiting.insert((until, from));
    }
}

/// A network of full-duplex links to one switch.
///
/// A link is reserved from the moment of sending: `end = max(free + took, ready + took)`. A message that reaches the
/// link later leaves the time before its arrival to other messages.
#[derive(Debug)]
pub struct Network {
    latency: u64,
    link_mb_s: f64,
    message: u64,
    port: u64,
    window_min: u64,
    timeout: u64,
    local_latency: u64,
    local_mb_s: f64,
    nodes: Vec<Node>,
    timeouts: u64,
}

impl Network {
    /// Creates a network with these parameters.
    pub fn new(spec: &NetworkSpec) -> Self {
        Self {
            latency: from_us(spec.latency_us),
            link_mb_s: spec.link_mb_s,
            message: from_us(spec.message_us),
            port: spec.port_kib * 1024,
            window_min: spec.window_min,
            timeout: from_us(spec.timeout_ms * 1e3),
            local_latency: from_us(spec.local_latency_us),
            local_mb_s: spec.local_mb_s,
            nodes: Vec::new(),
            timeouts: 0,
        }
    }

    /// Returns the number of timeouts of senders so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    fn node(&mut self, number: u32) -> &mut Node {
        let index = number as usize;
        if index >= self.nodes.len() {
            self.nodes.resize_with(index + 1, Node::default);
        }
        &mut self.nodes[index]
    }
}

/// Reserves `took` on a resource that is busy until `free`, for a message that is ready at `ready`.
fn occupy(free: &mut u64, now: u64, ready: u64, took: u64) -> u64 {
    *free = (*free).max(now) + took;
    (*free).max(ready + took)
}

impl NetworkModel for Network {
    fn arrival(&mut self, now: Nanos, from: u32, to: u32, len: ByteLen) -> Nanos {
        let (now, message) = (now.0, self.message);
        if from == to {
            let (latency, took) = (self.local_latency, transfer(len.0, self.local_mb_s));
            let node = self.node(from);
            return Nanos(occupy(&mut node.local_free, now, now + latency, took));
        }
        let took = transfer(len.0, self.link_mb_s);
        let sender = self.node(from);
        let ready = occupy(&mut sender.send_free, now, now, message);
        let sent = occupy(&mut sender.out_free, now, ready, took);
        // The first byte reaches the port one latency after it was sent.
        let mut there = sent - took + self.latency;
        let (port, window_min, timeout, link_mb_s) =
            (self.port, self.window_min, self.timeout, self.link_mb_s);
        let receiver = self.node(to);
        let senders = receiver.senders(now, from);
        let queued = (receiver.in_free.saturating_sub(now) as f64 * link_mb_s / 1e3) as u64;
        let mut lost = 0;
        if port > 0 && len.0 > 0 && queued + len.0 > port {
            // The port is full. Not all senders can keep their smallest window in it (or their whole message, if that
            // is shorter). A sender beyond the number that fits loses its whole window and only notices by a timeout.
            // Senders that wait for a timeout free buffer space, so each further group of that size waits twice as
            // long. Fewer senders are slowed down without a timeout.
            let fitting = (port / window_min.min(len.0).max(1)).max(1);
            lost = ((senders.saturating_sub(1)) / fitting).min(6);
            for round in 0..lost {
                there += timeout << round.min(5);
            }
        }
        let received = occupy(&mut receiver.in_free, now, there, took);
        receiver.note_sender(from, received);
        let up = occupy(&mut receiver.receive_free, now, received, message);
        self.timeouts += lost;
        Nanos(up)
    }
}

//! Networks: a full-duplex link of each node to one switch, whose ports have buffers that many senders can overrun.

use crate::time::{from_us, transfer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{ByteLen, Nanos};
use weft_env::sim::NetworkModel;

/// The figures of a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Its name.
    pub name: String,
    /// What it describes.
    pub about: String,
    /// Where its figures come from.
    #[serde(default)]
    pub source: String,
    /// An empty message between nodes, one way, microseconds.
    pub latency_us: f64,
    /// Payload on a link in each direction, 10^6 bytes per second.
    pub link_mb_s: f64,
    /// What a node's processor spends on each message that it sends or receives, one after another, microseconds.
    pub message_us: f64,
    /// The buffer of a switch port, KiB; 0 is a network that holds senders back instead of losing (InfiniBand).
    pub port_kib: u64,
    /// The least that a sender keeps on its way, bytes: a connection's smallest window from which a loss is noticed
    /// without a time-out.
    pub window_min: u64,
    /// How long a sender waits that has lost all it sent, milliseconds; each further time in a row twice as long.
    pub timeout_ms: f64,
    /// An empty message between processes of a node, microseconds.
    pub local_latency_us: f64,
    /// Between the processes of a node in all, 10^6 bytes per second.
    pub local_mb_s: f64,
}

const BUILT_IN: &[(&str, &str)] = &[
    ("100gbe", include_str!("../profiles/network/100gbe.toml")),
    ("gbe", include_str!("../profiles/network/gbe.toml")),
    ("ipoib", include_str!("../profiles/network/ipoib.toml")),
    ("loopback", include_str!("../profiles/network/loopback.toml")),
    ("qdr-infiniband", include_str!("../profiles/network/qdr-infiniband.toml")),
];

/// Why a network's profile cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetworkError {
    /// No network has this name.
    #[error("there is no network named {name:?}: use one of {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The text is no network, or its figures make none.
    #[error("this is no network: {0}")]
    Bad(String),
}

/// The names of the networks that come with Weft, sorted.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl NetworkSpec {
    /// A network that comes with Weft.
    ///
    /// # Errors
    /// When there is none of this name; the message lists those that there are.
    pub fn by_name(name: &str) -> Result<Self, NetworkError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| NetworkError::Unknown { name: name.to_owned() })?;
        Self::from_toml(text)
    }

    /// Reads a network's figures and checks them.
    ///
    /// # Errors
    /// When the text is no network, or its figures make none.
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

    /// A network of this kind.
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
    /// Senders whose bytes wait in the port of this node: until when each, ordered by that.
    waiting: BTreeSet<(u64, u32)>,
    until: BTreeMap<u32, u64>,
}

impl Node {
    /// How many senders have bytes in the port at `now`, `from` among them or not.
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
/// A link's time is counted from the moment of sending, so that a message that comes to it late leaves the time before
/// it to others: `end = max(free + took, ready + took)`.
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
    /// A network with these figures.
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

    /// How many times a sender has had to wait for a time-out so far.
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

/// Takes `took` of something that is busy until `free`, for what is ready at `ready`.
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
        // The first byte reaches the port one latency after it left.
        let mut there = sent - took + self.latency;
        let (port, window_min, timeout, link_mb_s) =
            (self.port, self.window_min, self.timeout, self.link_mb_s);
        let receiver = self.node(to);
        let senders = receiver.senders(now, from);
        let queued = (receiver.in_free.saturating_sub(now) as f64 * link_mb_s / 1e3) as u64;
        let mut lost = 0;
        if port > 0 && len.0 > 0 && queued + len.0 > port {
            // The port is full, and so many senders cannot all keep their smallest window (or their whole message, if
            // that is less) in it: who comes last loses his whole window and learns of it by a time-out only. Those
            // that are silent meanwhile make room, so that of the senders that are too many each next group waits
            // twice as long. Fewer senders are slowed down without a time-out.
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

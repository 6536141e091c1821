//! Fixtures of this crate's tests.

use crate::bytes::Bytes;
use crate::figures::{Class, Depth, Figures, Line, Network, Service};

/// A class with equal read and write performance at every queue depth.
pub fn class(name: &str, targets: u32, startup_us: f64, mb_s: f64, capacity: Option<u64>) -> Class {
    let service = Service {
        sequential: Line { startup_us: startup_us / 10.0, mb_s },
        streams: None,
        head: None,
        near: None,
        scattered: Vec::new(),
        sync_us: 0.0,
        read_delay: None,
        cache: None,
        random: vec![Depth { depth: 1, startup_us, mb_s }],
        write_buffer: Bytes(0),
        write_back_threshold: Bytes(0),
    };
    Class {
        name: name.into(),
        targets,
        capacity: capacity.map(Bytes),
        memory: Bytes(0),
        error: None,
        devices: None,
        read: service.clone(),
        write: service,
    }
}

/// A cluster of HServers and SServers, each given as number of targets, startup time in microseconds, and 10^6 bytes
/// per second.
pub fn hybrid(hdd: (u32, f64, f64), ssd: (u32, f64, f64), capacity: Option<u64>) -> Figures {
    Figures {
        processes_per_node: 2,
        call_us: 0.0,
        measured: false,
        network: Network::new(34.0, 117.7),
        processor: None,
        classes: vec![class("hdd", hdd.0, hdd.1, hdd.2, None), class("ssd", ssd.0, ssd.1, ssd.2, capacity)],
    }
}

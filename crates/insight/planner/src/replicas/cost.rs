//! The paper's cost model, equations 1 and 3 to 5.
//!
//! | symbol (Table 1) | here | unit |
//! | --- | --- | --- |
//! | alpha, startup time | [`Server::startup_ns`] | ns |
//! | beta, transfer time | [`Server::byte_ns`] | ns per byte |
//! | p, processes on a server | [`ServerLoad::processes`] | |
//! | q, sub-requests on a server | [`ServerLoad::requests`] | |
//! | k, non-contiguous sub-requests of one process | [`ServerLoad::seeks`] | |
//! | s_ij, bytes of request i on server j | summed in [`ServerLoad::bytes`] | bytes |

use std::collections::{BTreeMap, BTreeSet};
use weft_core::{Access, Extent, Layout, ObjectId, SplitPolicy, TargetId};

/// Figures of a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Server {
    /// Startup time of a non-contiguous sub-request, alpha.
    pub startup_ns: f64,
    /// Transfer time of a byte, beta.
    pub byte_ns: f64,
}

/// A request of one process to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessRequest {
    /// Number of the process.
    pub process: u32,
    /// Number of the file. Each file has a datafile of its own on every server.
    pub file: u32,
    /// Its bytes.
    pub extent: Extent,
}

/// Load that the requests of a pattern put on one server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerLoad {
    /// Number of processes with sub-requests here, p.
    pub processes: u64,
    /// Number of sub-requests, q.
    pub requests: u64,
    /// Number of sub-requests that do not begin where the previous one of their process ended, k.
    pub seeks: u64,
    /// Bytes of all sub-requests.
    pub bytes: u64,
}

impl Server {
    /// Equation 1: T_sub = T_s + T_t of a sub-request, nanoseconds. The startup time is omitted if it is contiguous.
    pub fn sub_request_ns(&self, bytes: u64, is_contiguous: bool) -> f64 {
        let startup = if is_contiguous { 0.0 } else { self.startup_ns };
        startup + bytes as f64 * self.byte_ns
    }

    /// Equation 3: time of a server, nanoseconds. With one process each non-contiguous sub-request has a startup, k alpha.
    /// With several, the number of starts lies between one per process and one per sub-request: (p + q) / 2 is its
    /// expectation.
    pub fn time_ns(&self, load: &ServerLoad) -> f64 {
        let starts = match load.processes {
            0 | 1 => load.seeks as f64,
            processes => (processes + load.requests) as f64 / 2.0,
        };
        starts * self.startup_ns + load.bytes as f64 * self.byte_ns
    }
}

/// Returns the load of each server under a layout; all files have the same.
pub fn server_loads(layout: &Layout, requests: &[ProcessRequest]) -> BTreeMap<TargetId, ServerLoad> {
    let mut loads: BTreeMap<TargetId, ServerLoad> = BTreeMap::new();
    // End of the last sub-request of a process in a datafile.
    let mut ends: BTreeMap<(u32, u32, ObjectId), u64> = BTreeMap::new();
    let mut known: BTreeSet<(u32, TargetId)> = BTreeSet::new();
    let mut sub_requests = Vec::new();
    for request in requests {
        layout.split_into(request.extent, Access::Random, SplitPolicy::Off, &mut sub_requests);
        for sub in &sub_requests {
            let load = loads.entry(sub.target).or_default();
            let (start, len) = (sub.local.offset.0, sub.local.len.0);
            let before = ends.insert((request.process, request.file, sub.object), start.saturating_add(len));
            load.processes += u64::from(known.insert((request.process, sub.target)));
            load.requests += 1;
            load.seeks += u64::from(before != Some(start));
            load.bytes = load.bytes.saturating_add(len);
        }
    }
    loads
}

/// Equation 4: time of the file system, nanoseconds: that of its slowest server.
pub fn system_ns(loads: &BTreeMap<TargetId, ServerLoad>, server: impl Fn(TargetId) -> Server) -> f64 {
    loads.iter().map(|(target, load)| server(*target).time_ns(load)).fold(0.0, f64::max)
}

/// Benefit of a replica, by the paper's model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperBenefit {
    /// T_O, time of all requests in the original layout, nanoseconds.
    pub original_ns: f64,
    /// T_N, time in the planned layout, nanoseconds.
    pub planned_ns: f64,
}

impl PaperBenefit {
    /// Equation 5: B = T_O - T_N, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.original_ns - self.planned_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ByteLen, Component, FileOffset, Strip};

    const KIB: u64 = 1024;
    const DISK: Server = Server { startup_ns: 8e6, byte_ns: 10.0 };

    fn striped(servers: u32, stripe: u64) -> Layout {
        let strips = (0..servers)
            .map(|target| Strip { target: TargetId(target), stripe_size: ByteLen(stripe) })
            .collect();
        Layout::from_components(vec![Component { start: FileOffset(0), end: None, strips }])
            .expect("a layout")
    }

    fn request(process: u32, offset: u64, len: u64) -> ProcessRequest {
        ProcessRequest { process, file: 0, extent: Extent::new(offset, len) }
    }

    #[test]
    fn a_contiguous_sub_request_costs_no_startup() {
        assert_eq!(DISK.sub_request_ns(100, true), 1000.0);
        assert_eq!(DISK.sub_request_ns(100, false), 8e6 + 1000.0);
    }

    /// Equation 2 would give a request within one stripe b + e bytes; it has `len`.
    #[test]
    fn requests_within_a_stripe_and_over_stripes_have_their_exact_bytes() {
        let layout = striped(4, 64 * KIB);
        let loads = server_loads(&layout, &[request(0, 70 * KIB, 10 * KIB)]);
        let one = ServerLoad { processes: 1, requests: 1, seeks: 1, bytes: 10 * KIB };
        assert_eq!(loads, BTreeMap::from([(TargetId(1), one)]));
        let loads = server_loads(&layout, &[request(0, 60 * KIB, 256 * KIB)]);
        let bytes: Vec<u64> = loads.values().map(|load| load.bytes / KIB).collect();
        assert_eq!(bytes, [64, 64, 64, 64], "4 + 60 KiB on the first server");
    }

    /// Figure 4 of the paper: four processes, four servers, requests of one stripe.
    #[test]
    fn strided_requests_of_a_stripe_stay_on_one_server() {
        let layout = striped(4, 64 * KIB);
        let each = |offset: &dyn Fn(u64, u64) -> u64| -> Vec<ProcessRequest> {
            let all = (0..4u64).flat_map(|round| (0..4u64).map(move |process| (round, process)));
            all.map(|(round, process)| request(process as u32, offset(round, process) * 64 * KIB, 64 * KIB))
                .collect()
        };
        let strided = server_loads(&layout, &each(&|round, process| 4 * round + process));
        let segmented = server_loads(&layout, &each(&|round, process| 4 * process + round));
        let bytes = 256.0 * KIB as f64 * DISK.byte_ns;
        // One process on each server, whose sub-requests follow each other: k = 1.
        assert!(strided.values().all(|load| (load.processes, load.requests, load.seeks) == (1, 4, 1)));
        assert_eq!(system_ns(&strided, |_| DISK), 8e6 + bytes);
        // Four processes with one sub-request each: (4 + 4) / 2.
        assert!(segmented.values().all(|load| (load.processes, load.requests) == (4, 4)));
        assert_eq!(system_ns(&segmented, |_| DISK), 4.0 * 8e6 + bytes);
    }

    #[test]
    fn the_slowest_server_is_the_time_of_the_system() {
        let loads = server_loads(&striped(2, 64 * KIB), &[request(0, 0, 96 * KIB)]);
        let fast = Server { startup_ns: 1e5, byte_ns: 2.0 };
        let server = |target: TargetId| if target.0 == 0 { fast } else { DISK };
        assert_eq!(system_ns(&loads, server), 8e6 + 32.0 * KIB as f64 * 10.0);
        assert_eq!(system_ns(&BTreeMap::new(), server), 0.0);
    }
}

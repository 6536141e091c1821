//! `weft twin speed`: measures the speed of the simulation, and the cost of more processes and servers.

use crate::failure::Failure;
use crate::processor;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::time::Instant;
use weft_core::units::human_bytes;
use weft_twin::{ClusterSpec, Outcome, ServerSpec, TargetSpec};
use weft_workload::{Access, Ior, IorOrder, Size, WorkloadSpec};

const AFTER: &str = "\
Every rank writes and then reads its part of one shared file in random order (IOR, 64 KiB per request), so that every
process uses every server. Payloads are lengths only. Everything runs on one core. The first line is the base case,
followed by more processes and more servers. `requests` are operations of the workload that sent requests to a server.
The time includes opening connections.";

/// Measures the speed of the simulation.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Speed {
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Requests of all processes in one measurement; more if needed for each process to reach each server
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Measure 8,192 processes on 128 servers, too
    #[arg(long)]
    large: bool,
    /// Measure only this number of servers and processes, such as 8x64
    #[arg(long, value_name = "SERVERSxPROCESSES", value_parser = size)]
    only: Option<(u32, u32)>,
    /// Profile of the disks
    #[arg(long, default_value = "simple")]
    disk: String,
    /// Profile of the network
    #[arg(long, default_value = "simple")]
    network: String,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parts.filter(|&(a, b)| a > 0 && b > 0).ok_or_else(|| "write two numbers, such as 8x64".to_owned())
}

/// Bytes of each request.
const TRANSFER: Size = Size::kib(64);

const BASE: (u32, u32) = (8, 64);
const GROWTH: [(u32, u32); 7] = [BASE, (8, 8), (8, 512), (8, 4096), (1, 64), (32, 64), (128, 64)];
const LARGE: (u32, u32) = (128, 8192);

/// One measurement.
struct Point {
    servers: u32,
    processes: u32,
    wall_s: f64,
    processor_s: f64,
    memory: u64,
    outcome: Outcome,
}

impl Point {
    fn requests_per_s(&self) -> f64 {
        self.outcome.file_requests as f64 / self.wall_s
    }

    /// Returns requests per second of processor time, which is independent of other load.
    fn requests_per_processor_s(&self) -> f64 {
        self.outcome.file_requests as f64 / self.processor_s
    }

    fn turns_per_request(&self) -> f64 {
        self.outcome.turns as f64 / self.outcome.file_requests as f64
    }
}

impl Speed {
    pub fn run(self) -> Result<u8, Failure> {
        let points: Vec<_> = match self.only {
            Some(point) => vec![point],
            None => GROWTH.into_iter().chain(self.large.then_some(LARGE)).collect(),
        };
        let mut table = Table::new([
            "servers",
            "processes",
            "requests",
            "wall s",
            "requests/s",
            "per cpu s",
            "of base",
            "turns/request",
            "memory",
            "hash",
        ]);
        let mut base = None;
        for (servers, processes) in points {
            let point = self.measure(servers, processes, self.requests)?;
            let base = *base.get_or_insert(point.requests_per_processor_s());
            if self.json {
                outln!("{}", row(&point));
                continue;
            }
            table.row([
                servers.to_string(),
                processes.to_string(),
                point.outcome.file_requests.to_string(),
                format!("{:.2}", point.wall_s),
                format!("{:.0}", point.requests_per_s()),
                format!("{:.0}", point.requests_per_processor_s()),
                format!("{:.2}", point.requests_per_processor_s() / base),
                format!("{:.1}", point.turns_per_request()),
                human_bytes(point.memory),
                format!("{:016x}", point.outcome.event_hash),
            ]);
        }
        if !self.json {
            out!("{}", table.render());
        }
        Ok(0)
    }
}

fn row(point: &Point) -> serde_json::Value {
    json!({
        "servers": point.servers,
        "processes": point.processes,
        "requests": point.outcome.file_requests,
        "wall_s": point.wall_s,
        "processor_s": point.processor_s,
        "requests_per_s": point.requests_per_s(),
        "requests_per_processor_s": point.requests_per_processor_s(),
        "turns_per_request": point.turns_per_request(),
        "memory_bytes": point.memory,
        "virtual_s": point.outcome.elapsed.0 as f64 / 1e9,
        "event_hash": format!("{:016x}", point.outcome.event_hash),
    })
}

impl Speed {
    fn measure(&self, servers: u32, processes: u32, requests: u64) -> Result<Point, Failure> {
        let target = TargetSpec { profile: self.disk.clone(), ..TargetSpec::default() };
        let cluster = ClusterSpec {
            processes_per_node: 16,
            network: self.network.clone(),
            servers: vec![ServerSpec { count: servers, targets: vec![target], ..ServerSpec::default() }],
            ..ClusterSpec::default()
        };
        // Consecutive stripes of each rank, at least as many as servers, so that each process reaches each server.
        let transfers = (requests / 2).div_ceil(u64::from(processes)).max(u64::from(servers));
        let workload = WorkloadSpec::Ior(Ior {
            ranks: processes,
            transfer: TRANSFER,
            per_rank: Some(Size(transfers * TRANSFER.0)),
            order: IorOrder::RandomOwn,
            access: Access::Both,
            ..Ior::default()
        });
        let workload = workload.build().map_err(|error| Failure::misuse("twin speed", error))?;
        forget_peak_memory();
        let (start, processor_start) = (Instant::now(), processor::time_s());
        let outcome =
            weft_twin::run(&cluster, &*workload).map_err(|error| Failure::new("twin speed", error))?;
        let wall_s = start.elapsed().as_secs_f64();
        let processor_s = processor::time_s() - processor_start;
        Ok(Point { servers, processes, wall_s, processor_s, memory: peak_memory(), outcome })
    }
}

/// Resets the system's record of this process's peak memory.
fn forget_peak_memory() {
    // SAFETY: gives memory that nothing uses back to the system.
    unsafe { libc::malloc_trim(0) };
    // If that fails, the value is that of the largest point so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak memory of this process in bytes, or 0 if unknown.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

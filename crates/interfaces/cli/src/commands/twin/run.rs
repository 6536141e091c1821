//! `weft twin run`: predicts the performance of a workload on a cluster.

use super::cluster;
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use weft_bench::named;
use weft_core::Nanos;
use weft_core::units::human_bytes;
use weft_env::device::{ReadReasons, WriteReasons};
use weft_twin::{
    ClusterSpec, DeviceOutcome, IbridgeOutcome, Measure, OpKind, Outcome, PhaseOutcome, RunOptions,
};

const AFTER: &str = "\
All results are predictions by models. Times are virtual, and no byte is stored.

Examples:
  weft twin example > cluster.toml
  weft twin run ior --set ranks=64 --cluster cluster.toml
  weft twin run mine.toml --cluster cluster.toml --disks --json";

/// Predicts the performance of a workload on a simulated cluster.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Run {
    /// A kind, or a file that describes a workload
    #[arg(value_name = "KIND|FILE.toml")]
    workload: String,
    /// A parameter, such as size="65 KiB"; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The cluster [default: eight servers with one simple disk each]
    #[arg(long, value_name = "FILE.toml")]
    cluster: Option<PathBuf>,
    /// Seed to use instead of the cluster's
    #[arg(long)]
    seed: Option<u64>,
    /// Show the requests that reached each disk, the reasons for the bytes written, and the activity of SSDs beside them, too
    #[arg(long)]
    disks: bool,
    /// Number of times that the workload runs on the same files; the last run is shown, with empty page caches
    #[arg(long, default_value_t = 1, value_name = "N")]
    passes: u32,
    /// Run until all written bytes are on the disks
    #[arg(long)]
    drain: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<u8, Failure> {
        let mut spec = self.cluster.as_deref().map_or_else(|| Ok(ClusterSpec::default()), cluster::read)?;
        spec.seed = self.seed.unwrap_or(spec.seed);
        spec.check().map_err(|error| Failure::misuse("twin run", error))?;
        let wrong = |error: String| Failure::misuse("twin run", error);
        let workload = named::workload(&self.workload, &self.set).map_err(wrong)?;
        let workload = workload.build().map_err(|error| wrong(error.to_string()))?;
        let options = RunOptions { passes: self.passes, drain: self.drain, ..RunOptions::default() };
        let outcome = weft_twin::run_with(&spec, &*workload, options)
            .map_err(|error| Failure::new("twin run", error))?;
        if self.json {
            self.print_json(&outcome)
        } else {
            self.print(&outcome)
        }
        Ok(0)
    }

    fn print(&self, outcome: &Outcome) {
        let mut table = Table::new([
            "phase",
            "kind",
            "operations",
            "bytes",
            "from",
            "to",
            "per s",
            "mean",
            "99 %",
            "longest",
        ]);
        for (phase, kind, measure) in kinds(outcome) {
            let seconds = phase.elapsed().0 as f64 / 1e9;
            let rate = match measure.bytes {
                _ if phase.elapsed() == Nanos::ZERO => "-".to_owned(),
                0 => format!("{:.0}", measure.latency.count() as f64 / seconds),
                bytes => human_bytes((bytes as f64 / seconds) as u64),
            };
            table.row([
                phase.name.clone(),
                name(kind),
                measure.latency.count().to_string(),
                if measure.bytes == 0 { "-".to_owned() } else { human_bytes(measure.bytes) },
                time(phase.start),
                time(phase.end),
                rate,
                time(measure.latency.mean()),
                time(measure.latency.quantile(0.99)),
                time(measure.latency.max()),
            ]);
        }
        out!("{}", table.render());
        if self.disks {
            let mut table =
                Table::new(["server", "disk", "profile", "reads", "writes", "read", "written", "busy"]);
            for device in &outcome.devices {
                let counters = &device.counters;
                table.row([
                    device.server.to_string(),
                    disk(device),
                    device.profile.clone(),
                    counters.reads.to_string(),
                    counters.writes.to_string(),
                    human_bytes(counters.read_bytes),
                    human_bytes(counters.write_bytes),
                    format!("{:.0} %", counters.busy.0 as f64 * 100.0 / outcome.elapsed.0.max(1) as f64),
                ]);
            }
            out!("\n{}", table.render());
            out!("\n{}", write_reasons(outcome).render());
            if !outcome.ibridge.is_empty() {
                out!("\n{}", logs(outcome).render());
            }
        }
        if let Some(note) = page_cache_note(outcome).filter(|_| !self.drain) {
            outln!("\n{note}");
        }
        outln!(
            "\npredicted: {} for {} requests of the workload in {} messages to data services; event hash {:016x}",
            time(outcome.elapsed),
            outcome.file_requests,
            outcome.data_messages,
            outcome.event_hash
        );
    }

    fn print_json(&self, outcome: &Outcome) {
        for (phase, kind, measure) in kinds(outcome) {
            let row = json!({
                "phase": phase.name,
                "kind": name(kind),
                "operations": measure.latency.count(),
                "bytes": measure.bytes,
                "start_ns": phase.start.0,
                "end_ns": phase.end.0,
                "mean_ns": measure.latency.mean().0,
                "p99_ns": measure.latency.quantile(0.99).0,
                "longest_ns": measure.latency.max().0,
            });
            outln!("{row}");
        }
        for device in outcome.devices.iter().filter(|_| self.disks) {
            let counters = &device.counters;
            let row = json!({
                "server": device.server,
                "disk": disk(device),
                "profile": device.profile,
                "reads": counters.reads,
                "writes": counters.writes,
                "read_bytes": counters.read_bytes,
                "write_bytes": counters.write_bytes,
                "busy_ns": counters.busy.0,
                "block_sizes": counters.block_sizes,
                "read_reasons": read_reasons_json(&counters.read_reasons),
                "write_reasons": write_reasons_json(&counters.write_reasons),
            });
            outln!("{row}");
        }
        for IbridgeOutcome { target, status } in outcome.ibridge.iter().filter(|_| self.disks) {
            outln!("{}", json!({ "target": target, "ibridge": status }));
        }
        let row = json!({
            "predicted_ns": outcome.elapsed.0,
            "drain_ns": outcome.drain.0,
            "requests": outcome.file_requests,
            "data_messages": outcome.data_messages,
            "event_hash": format!("{:016x}", outcome.event_hash),
        });
        outln!("{row}");
    }
}

/// Note that most bytes have not reached a disk, so that the rates are those of memory; `None` otherwise.
fn page_cache_note(outcome: &Outcome) -> Option<String> {
    let moved: u64 = kinds(outcome).map(|(_, _, measure)| measure.bytes).sum();
    let reached: u64 = outcome
        .devices
        .iter()
        .map(|device| device.counters.read_bytes.saturating_add(device.counters.write_bytes))
        .sum();
    (reached < moved / 2).then(|| {
        format!(
            "note: of {} read and written, {} reached a disk during the run; the page caches of the servers took the rest. \
             --drain waits until all written bytes are on the disks, as does `--set sync=end` of some workloads",
            human_bytes(moved),
            human_bytes(reached)
        )
    })
}

/// Returns the table of the reasons for the bytes that each disk wrote.
fn write_reasons(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        "server",
        "disk",
        "payload",
        "+ server files",
        "+ padding",
        "+ journal",
        "+ before",
        "- overwritten",
        "- dropped",
        "- waiting",
        "= written",
    ]);
    for device in &outcome.devices {
        let reasons = &device.counters.write_reasons;
        table.row([
            device.server.to_string(),
            disk(device),
            human_bytes(reasons.payload_bytes),
            human_bytes(reasons.requested_bytes.saturating_sub(reasons.payload_bytes)),
            human_bytes(reasons.padding_bytes),
            human_bytes(reasons.journal_bytes),
            human_bytes(reasons.waiting_before_bytes),
            human_bytes(reasons.overwritten_bytes),
            human_bytes(reasons.dropped_bytes),
            human_bytes(reasons.waiting_bytes),
            human_bytes(device.counters.write_bytes),
        ]);
    }
    table
}

fn read_reasons_json(reasons: &ReadReasons) -> serde_json::Value {
    json!({
        "requested_bytes": reasons.requested_bytes,
        "payload_bytes": reasons.payload_bytes,
        "padding_bytes": reasons.padding_bytes,
        "ahead_bytes": reasons.ahead_bytes,
        "for_write_bytes": reasons.for_write_bytes,
        "cached_bytes": reasons.cached_bytes,
        "hole_bytes": reasons.hole_bytes,
        "queued_bytes": reasons.queued_bytes,
        "queued_before_bytes": reasons.queued_before_bytes,
    })
}

fn write_reasons_json(reasons: &WriteReasons) -> serde_json::Value {
    json!({
        "requested_bytes": reasons.requested_bytes,
        "payload_bytes": reasons.payload_bytes,
        "padding_bytes": reasons.padding_bytes,
        "journal_bytes": reasons.journal_bytes,
        "overwritten_bytes": reasons.overwritten_bytes,
        "dropped_bytes": reasons.dropped_bytes,
        "waiting_bytes": reasons.waiting_bytes,
        "waiting_before_bytes": reasons.waiting_before_bytes,
    })
}

/// Returns the table of the SSDs beside the disks.
fn logs(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        "target",
        "fragments",
        "random",
        "written to SSD",
        "written back",
        "read from SSD",
        "hits",
        "in part",
        "misses",
        "preloaded",
        "dirty",
        "T",
    ]);
    for IbridgeOutcome { target, status } in &outcome.ibridge {
        table.row([
            target.to_string(),
            status.class("fragment").admitted.to_string(),
            status.class("random").admitted.to_string(),
            human_bytes(status.bytes_written.0),
            human_bytes(status.bytes_written_back.0),
            human_bytes(status.bytes_read.0),
            status.read_hits.to_string(),
            status.read_partial_hits.to_string(),
            status.read_misses.to_string(),
            human_bytes(status.bytes_preloaded.0),
            human_bytes(status.dirty.0),
            time(status.service_time),
        ]);
    }
    table
}

fn kinds(outcome: &Outcome) -> impl Iterator<Item = (&PhaseOutcome, OpKind, &Measure)> {
    let of_phase = |phase: &PhaseOutcome| phase.kinds.keys().copied().collect::<Vec<_>>();
    outcome.phases.iter().flat_map(move |phase| {
        of_phase(phase).into_iter().map(move |kind| (phase, kind, &phase.kinds[&kind]))
    })
}

fn name(kind: OpKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

fn disk(device: &DeviceOutcome) -> String {
    match device.target {
        Some(target) => format!("{} {target}", device.class),
        None => device.class.clone(),
    }
}

/// Formats a duration with three digits and a unit.
fn time(time: Nanos) -> String {
    let (value, unit) = match time.0 {
        0..1_000 => return format!("{} ns", time.0),
        1_000..1_000_000 => (time.0 as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (time.0 as f64 / 1e6, "ms"),
        _ => (time.0 as f64 / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

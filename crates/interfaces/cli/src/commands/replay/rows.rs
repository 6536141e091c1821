//! Results of a replay as tables and as JSON lines.

use crate::failure::Failure;
use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use weft_core::units::human_bytes;
use weft_core::{Histogram, Nanos};
use weft_trace::prepared::Prepared;
use weft_trace::replay::{FileTally, Outcome};
use weft_trace::{Operation, Source};
use weft_twin::OpKind;

/// All rows. Rows of files are created when they are shown, because there may be many.
pub struct Rows<'a> {
    total: Total,
    kinds: Vec<Kind>,
    files: Vec<Done<'a>>,
}

/// Operations on files.
struct Done<'a> {
    file: &'a str,
    kinds: &'a [(Operation, FileTally)],
}

impl Done<'_> {
    fn rows(&self) -> impl Iterator<Item = File<'_>> {
        self.kinds.iter().map(|(op, done)| File {
            row: "file",
            file: self.file,
            operation: op.name(),
            count: done.latency.count(),
            bytes: done.bytes,
            latency: Latency::of(&done.latency),
        })
    }

    fn bytes(&self) -> u64 {
        self.kinds.iter().map(|(_, done)| done.bytes).sum()
    }
}

#[derive(Serialize)]
struct Total {
    row: &'static str,
    /// Directory or cluster of the replay.
    place: String,
    source: Source,
    level: &'static str,
    ranks: u32,
    /// Number of processes. `None` on the twin.
    processes: Option<u32>,
    /// Number of barriers.
    barriers: u64,
    seconds: f64,
    /// Whether seconds are virtual time.
    simulated: bool,
    operations: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Seconds in the trace, from its first operation to the end of its last.
    traced_seconds: f64,
    /// Bytes compared at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_hash: Option<String>,
    /// Real seconds that the simulation took.
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_seconds: Option<f64>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Kind {
    row: &'static str,
    operation: &'static str,
    count: u64,
    bytes: u64,
    /// MiB per second between the start of the first and the end of the last operation. `None` on the twin, where that
    /// time is the total's.
    #[serde(skip_serializing_if = "Option::is_none")]
    span_mib_s: Option<f64>,
    /// MiB per second of the time that all ranks spent in operations.
    busy_mib_s: f64,
    #[serde(flatten)]
    latency: Latency,
    /// Median latency in the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    traced_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traced_mean_us: Option<f64>,
    /// Number of reads that returned less than in the trace.
    short: u64,
    /// Number of calls on names that failed.
    refused: u64,
}

#[derive(Serialize)]
struct File<'a> {
    row: &'static str,
    file: &'a str,
    operation: &'static str,
    count: u64,
    bytes: u64,
    #[serde(flatten)]
    latency: Latency,
}

#[derive(Serialize)]
struct Latency {
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Latency {
    fn of(times: &Histogram) -> Self {
        let us = |time: Nanos| time.get() as f64 / 1e3;
        Self {
            mean_us: us(times.mean()),
            p50_us: us(times.quantile(0.5)),
            p90_us: us(times.quantile(0.9)),
            p99_us: us(times.quantile(0.99)),
            max_us: us(times.max()),
        }
    }
}

const MIB: f64 = 1_048_576.0;

fn busy(bytes: u64, latency: &Histogram) -> f64 {
    let seconds = latency.mean().get() as f64 * latency.count() as f64 / 1e9;
    if seconds > 0.0 { bytes as f64 / MIB / seconds } else { 0.0 }
}

impl<'a> Rows<'a> {
    pub fn of_files(prepared: &'a Prepared, outcome: &'a Outcome, place: &str) -> Self {
        let mut total = Total::of(prepared, place.to_owned());
        let tally = &outcome.tally;
        total.processes = Some(outcome.processes);
        total.barriers = outcome.barriers;
        total.seconds = tally.elapsed().get() as f64 / 1e9;
        total.operations = tally.operations();
        total.compared_bytes = outcome.compared;
        let kinds = tally.kinds.iter().map(|(op, kind)| {
            let span = kind.end_ns.saturating_sub(kind.begin_ns).max(1) as f64 / 1e9;
            Kind {
                span_mib_s: op.moves_bytes().then_some(kind.bytes as f64 / MIB / span),
                short: kind.short,
                refused: kind.refused,
                ..Kind::of(prepared, *op, kind.bytes, &kind.latency)
            }
        });
        let kinds: Vec<Kind> = kinds.collect();
        let names = &prepared.facts.files;
        let done = |(number, kinds): (&u32, &'a Vec<_>)| Done { file: &names[*number as usize].name, kinds };
        let mut files: Vec<Done<'a>> = tally.files.iter().map(done).collect();
        files.sort_by_cached_key(|file| std::cmp::Reverse(file.bytes()));
        Self { total, kinds, files }.summed()
    }

    pub fn of_twin(prepared: &Prepared, outcome: &weft_twin::Outcome, cluster: &Path, wall_s: f64) -> Self {
        let mut total = Total::of(prepared, format!("the twin, {}", cluster.display()));
        total.simulated = true;
        total.barriers = prepared.facts.barriers.len() as u64;
        total.seconds = outcome.elapsed.get() as f64 / 1e9;
        total.operations = outcome.file_requests;
        total.event_hash = Some(format!("{:016x}", outcome.event_hash));
        total.wall_seconds = Some(wall_s);
        let mut sums: BTreeMap<OpKind, (u64, Histogram)> = BTreeMap::new();
        for (kind, measure) in outcome.phases.iter().flat_map(|phase| &phase.kinds) {
            let sum = sums.entry(*kind).or_default();
            sum.0 += measure.bytes;
            sum.1.merge(&measure.latency);
        }
        let kinds =
            sums.iter().map(|(kind, (bytes, latency))| Kind::of(prepared, operation(*kind), *bytes, latency));
        Self { total, kinds: kinds.collect(), files: Vec::new() }.summed()
    }

    fn summed(mut self) -> Self {
        let of =
            |op: Operation| self.kinds.iter().find(|kind| kind.operation == op.name()).map_or(0, |k| k.bytes);
        (self.total.read_bytes, self.total.written_bytes) = (of(Operation::Read), of(Operation::Write));
        self
    }

    /// Prints one JSON object per line.
    pub fn json(&self) -> Result<(), Failure> {
        outln!("{}", line(&self.total)?);
        for kind in &self.kinds {
            outln!("{}", line(kind)?);
        }
        for file in self.files.iter().flat_map(Done::rows) {
            outln!("{}", line(&file)?);
        }
        Ok(())
    }

    /// Prints tables, with the `files` files with the most bytes.
    pub fn text(&self, files: usize) {
        let total = &self.total;
        let by = total.processes.map(|n| format!(" in {n} processes")).unwrap_or_default();
        let waited = if total.barriers > 0 {
            format!(", waiting for each other {} times", total.barriers)
        } else {
            String::new()
        };
        outln!("{} ranks{by} at {} on {}{waited}", total.ranks, total.level, total.place);
        // Bytes over the time of the operations, and on the twin over the total time.
        let rate = |op: Operation, bytes: u64| {
            let kind = self.kinds.iter().find(|kind| kind.operation == op.name());
            let span = kind.and_then(|kind| kind.span_mib_s).map(|mib_s| mib_s * MIB);
            let rate = span.unwrap_or(bytes as f64 / total.seconds.max(1e-9));
            format!("{} at {}/s", human_bytes(bytes), human_bytes(rate as u64))
        };
        outln!(
            "{:.3} s{}; in the trace {:.3} s. Read {}, wrote {}, {} operations",
            total.seconds,
            if total.simulated { " of virtual time" } else { "" },
            total.traced_seconds,
            rate(Operation::Read, total.read_bytes),
            rate(Operation::Write, total.written_bytes),
            total.operations
        );
        if let Some(bytes) = total.compared_bytes {
            outln!(
                "all bytes read were correct; {} written bytes were compared at the end and are correct",
                human_bytes(bytes)
            );
        }
        if let (Some(hash), Some(wall)) = (&total.event_hash, total.wall_seconds) {
            outln!("event hash {hash}; the simulation took {wall:.2} s");
        }
        for note in &total.notes {
            outln!("note: {note}");
        }
        outln!();
        let mut table = Table::new([
            "operation",
            "count",
            "bytes",
            "mean us",
            "p50 us",
            "p90 us",
            "p99 us",
            "max us",
            "traced p50 us",
        ]);
        for kind in &self.kinds {
            let us = |value: f64| format!("{value:.0}");
            table.row([
                kind.operation.to_owned(),
                kind.count.to_string(),
                human_bytes(kind.bytes),
                us(kind.latency.mean_us),
                us(kind.latency.p50_us),
                us(kind.latency.p90_us),
                us(kind.latency.p99_us),
                us(kind.latency.max_us),
                kind.traced_p50_us.map(us).unwrap_or_default(),
            ]);
        }
        out!("{}", table.render());
        for kind in self.kinds.iter().filter(|kind| kind.short + kind.refused > 0) {
            outln!(
                "{}: {} gave less than in the trace, {} refused",
                kind.operation,
                kind.short,
                kind.refused
            );
        }
        if self.files.is_empty() {
            return;
        }
        outln!();
        let mut table = Table::new(["operation", "count", "bytes", "mean us", "p99 us", "file"]);
        for file in self.files.iter().take(files).flat_map(Done::rows) {
            table.row([
                file.operation.to_owned(),
                file.count.to_string(),
                human_bytes(file.bytes),
                format!("{:.0}", file.latency.mean_us),
                format!("{:.0}", file.latency.p99_us),
                file.file.replace(char::is_control, "\u{fffd}"),
            ]);
        }
        out!("{}", table.render());
    }
}

fn line(row: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(row).map_err(|error| Failure::new("writing JSON", error))
}

impl Total {
    fn of(prepared: &Prepared, place: String) -> Self {
        let facts = &prepared.facts;
        Self {
            row: "total",
            place,
            source: facts.info.source,
            level: facts.level.name(),
            ranks: prepared.ranks(),
            processes: None,
            barriers: 0,
            seconds: 0.0,
            simulated: false,
            operations: 0,
            read_bytes: 0,
            written_bytes: 0,
            traced_seconds: facts.span_ns.1.saturating_sub(facts.span_ns.0) as f64 / 1e9,
            compared_bytes: None,
            event_hash: None,
            wall_seconds: None,
            notes: facts.info.notes.iter().chain(&facts.notes).cloned().collect(),
        }
    }
}

impl Kind {
    fn of(prepared: &Prepared, op: Operation, bytes: u64, latency: &Histogram) -> Self {
        let traced = prepared.facts.traced.get(&op).map(|traced| Latency::of(&traced.latency));
        Self {
            row: "operation",
            operation: op.name(),
            count: latency.count(),
            bytes,
            span_mib_s: None,
            busy_mib_s: busy(bytes, latency),
            latency: Latency::of(latency),
            traced_p50_us: traced.as_ref().map(|traced| traced.p50_us),
            traced_mean_us: traced.map(|traced| traced.mean_us),
            short: 0,
            refused: 0,
        }
    }
}

fn operation(kind: OpKind) -> Operation {
    match kind {
        OpKind::Open => Operation::Open,
        OpKind::Close => Operation::Close,
        OpKind::Read => Operation::Read,
        OpKind::Write => Operation::Write,
        OpKind::Sync => Operation::Sync,
        OpKind::SetLen | OpKind::Resize => Operation::Truncate,
        OpKind::Mkdir => Operation::Mkdir,
        OpKind::Create => Operation::Create,
        OpKind::Stat => Operation::Stat,
        OpKind::Remove => Operation::Unlink,
        OpKind::Rmdir => Operation::Rmdir,
    }
}

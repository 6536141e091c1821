//! `weft trace show`.

use super::{Input, bar, tick};
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use weft_core::ByteLen;
use weft_core::units::human_bytes;
use weft_trace::darshan::{self, Counters, LogSummary};
use weft_trace::summary::{Direction, LevelSummary, Summary, summary};
use weft_trace::{Kind, TraceError, kind};

/// Shows the properties of a trace.
#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    input: Input,
    /// Count operations as unaligned that begin or end within a stripe of this size
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = crate::commands::size)]
    stripe_size: ByteLen,
    /// Number of files to show, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    files: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        let mut stream = match self.input.open() {
            Ok(stream) => stream,
            // A log without operations still has counters.
            Err(failure) => return self.counters(failure),
        };
        let progress = bar();
        let shown = summary(&mut *stream, self.stripe_size, self.files, |stream| tick(&progress, stream));
        progress.finish_and_clear();
        let shown = shown?;
        if self.json {
            outln!("{}", json(&shown)?);
        } else {
            text(&shown);
        }
        Ok(0)
    }

    fn counters(&self, failure: Failure) -> Result<u8, Failure> {
        if !matches!(kind(&self.input.file), Ok(Kind::Darshan)) {
            return Err(failure);
        }
        let log = match darshan::summary(&self.input.file, &self.input.options().helper) {
            Ok(log) if !log.has_dxt() => log,
            Ok(_) | Err(TraceError::NoLibrary { .. }) => return Err(failure),
            Err(error) => return Err(error.into()),
        };
        if self.json {
            outln!("{}", json(&log)?);
        } else {
            counters(&log, self.files);
        }
        Ok(0)
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new("writing JSON", error))
}

/// Returns text of a trace without control characters, because its origin is unknown.
fn plain(text: &str) -> String {
    text.trim_end().replace(char::is_control, "\u{fffd}")
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

fn text(shown: &Summary) {
    let info = &shown.info;
    outln!("source     {}", info.source.name());
    if !info.program.is_empty() {
        outln!("program    {}", plain(&info.program));
    }
    let of = if info.processes > 0 { format!(" of {}", info.processes) } else { String::new() };
    outln!("ranks      {}{of} on {} hosts", shown.ranks, shown.hosts.max(1));
    outln!("files      {}", shown.files);
    let span = (shown.last_ns - shown.first_ns) as f64 / 1e9;
    outln!("records    {} in {span:.3} s, from {:.3} s on", shown.records, shown.first_ns as f64 / 1e9);
    for note in &info.notes {
        outln!("note       {}", plain(note));
    }
    if shown.levels.len() > 1 {
        outln!("note       operations under mpi-io were carried out by those under posix");
    }
    for level in &shown.levels {
        outln!();
        self::level(level, shown.stripe_size);
    }
    outln!();
    let mut table = Table::new(["read", "written", "extent", "ranks", "file"]);
    for file in &shown.largest_files {
        table.row([
            human_bytes(file.bytes_read),
            human_bytes(file.bytes_written),
            human_bytes(file.extent),
            file.ranks.to_string(),
            plain(&file.name),
        ]);
    }
    out!("{}", table.render());
    if (shown.largest_files.len() as u32) < shown.files {
        outln!("… and {} more files", shown.files - shown.largest_files.len() as u32);
    }
}

fn level(level: &LevelSummary, stripe_size: u64) {
    let others: Vec<String> = level
        .operations
        .iter()
        .filter(|(name, _)| !matches!(**name, "read" | "write"))
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    outln!(
        "{}: {} ranks moved {} to {} each{}{}",
        level.level,
        level.ranks,
        human_bytes(level.rank_bytes_min),
        human_bytes(level.rank_bytes_max),
        if others.is_empty() { "" } else { "; also " },
        others.join(", ")
    );
    let mut table = Table::new(["", "reads", "writes"]);
    let (reads, writes) = (&level.reads, &level.writes);
    let mut row = |name: &str, cell: &dyn Fn(&Direction) -> String| {
        table.row([name.to_owned(), cell(reads), cell(writes)]);
    };
    row("operations", &|d| d.operations.to_string());
    row("bytes", &|d| human_bytes(d.bytes));
    row("time in them, all ranks", &|d| format!("{:.3} s", d.time_ns as f64 / 1e9));
    row("collective", &|d| share(d.collective, d.operations));
    row(&format!("unaligned to {}", human_bytes(stripe_size)), &|d| share(d.unaligned, d.operations));
    row("sequential", &|d| share(d.sequential, d.sequential + d.backward));
    row("consecutive", &|d| share(d.consecutive, d.sequential + d.backward));
    row("random (backward)", &|d| share(d.backward, d.sequential + d.backward));
    let sizes = reads.sizes.keys().chain(writes.sizes.keys()).collect::<std::collections::BTreeSet<_>>();
    for size in sizes {
        row(&format!("up to {}", human_bytes(*size)), &|d| {
            d.sizes.get(size).copied().unwrap_or(0).to_string()
        });
    }
    out!("{}", table.render());
}

fn counters(log: &LogSummary, files: usize) {
    outln!("source     darshan, counters only");
    outln!("program    {}", plain(&log.program));
    outln!("ranks      {}", log.processes);
    outln!("time       {:.3} s", log.seconds);
    let modules: Vec<String> = log
        .modules
        .iter()
        .map(|module| {
            format!("{}{}", module.name, if module.partial { " (partial: files are missing)" } else { "" })
        })
        .collect();
    outln!("modules    {}", modules.join(", "));
    outln!(
        "missing    DXT: the log does not say which bytes were accessed when. A run with DXT_ENABLE_IO_TRACE=1"
    );
    outln!("           records that; --reconstruct derives plausible operations from the counters below.");
    for counters in &log.counters {
        outln!();
        module(counters, files);
    }
}

fn module(counters: &Counters, files: usize) {
    const CLASSES: [&str; 10] = [
        "to 100 B",
        "to 1 KiB",
        "to 10 KiB",
        "to 100 KiB",
        "to 1 MiB",
        "to 4 MiB",
        "to 10 MiB",
        "to 100 MiB",
        "to 1 GiB",
        "above",
    ];
    let total = &counters.total;
    outln!("{}: {} files, {} opens", counters.module, counters.files, total.opens);
    let mut table = Table::new(["", "reads", "writes"]);
    let mut row = |name: &str, reads: String, writes: String| table.row([name.to_owned(), reads, writes]);
    row("operations", total.reads.to_string(), total.writes.to_string());
    row("bytes", human_bytes(total.bytes_read), human_bytes(total.bytes_written));
    if counters.module == "POSIX" {
        row(
            "sequential",
            share(total.sequential_reads, total.reads),
            share(total.sequential_writes, total.writes),
        );
    }
    for (class, name) in CLASSES.iter().enumerate() {
        if total.read_sizes[class] + total.write_sizes[class] > 0 {
            row(name, total.read_sizes[class].to_string(), total.write_sizes[class].to_string());
        }
    }
    out!("{}", table.render());
    if counters.module == "POSIX" {
        let unaligned = share(total.unaligned, total.reads + total.writes);
        outln!("unaligned to the file system, both together: {unaligned}");
    }
    let mut table = Table::new(["read", "written", "file"]);
    for file in counters.largest.iter().take(files) {
        table.row([human_bytes(file.bytes_read), human_bytes(file.bytes_written), plain(&file.name)]);
    }
    out!("{}", table.render());
}

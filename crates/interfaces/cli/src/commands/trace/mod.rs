//! `weft trace`: shows and converts traces.

mod merge;
mod plot;
mod show;

pub use merge::{Parts, paths as trace_paths};

use crate::failure::Failure;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weft_export::parquet;
use weft_trace::darshan::Mode;
use weft_trace::{Info, OpenOptions, RecordStream, TraceError, csv, open, wtrace};

const AFTER: &str = "\
A trace is a Darshan log with DXT, a CSV file with a header, or Weft's own .wtrace. The format is detected from its
contents. See docs/reference/traces.md.

Darshan logs are read by Darshan's own library, libdarshan-util 3.4.1 or newer. WEFT_DARSHAN_LIB names it or its
directory.

Examples:
  weft trace show app.darshan
  weft trace show run.wtrace --stripe-size 64KiB --json
  weft trace export app.darshan --wtrace app.wtrace
  weft trace export run.wtrace --csv - | head
  weft trace export run.wtrace --parquet run.parquet
  weft trace plot run.wtrace -o heat.svg
  weft trace plot run.wtrace -o ranks.svg --view ranks --only checkpoint
  weft trace merge run.wtrace.parts -o run.wtrace    after a traced run on several hosts";

/// Shows and converts traces.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Trace {
    #[command(subcommand)]
    what: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Show the properties of a trace: ranks, files, request sizes, alignment, order
    Show(show::Show),
    /// Convert a trace to another format
    Export(Export),
    /// Plot a trace: bytes moved by offset or rank, over time
    Plot(plot::Plot),
    /// Merge the files of a traced program's processes into one trace
    Merge(merge::Merge),
}

/// The trace to read.
#[derive(Args)]
pub struct Input {
    /// The trace: a Darshan log, CSV or .wtrace
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// Reconstruct plausible operations from the counters of a Darshan log without DXT
    #[arg(long)]
    pub reconstruct: bool,
}

impl Input {
    /// Opens the trace.
    pub fn open(&self) -> Result<weft_trace::AnyStream, Failure> {
        Ok(open(&self.file, &self.options())?)
    }

    /// Fails if `output` is the trace itself, which would be truncated before it is read.
    pub fn spare(&self, output: &Path) -> Result<(), Failure> {
        let place = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        match (place(&self.file), place(output)) {
            (Some(trace), Some(output)) if trace == output => {
                Err(Failure::misuse(self.file.display(), "it would be overwritten while it is read")
                    .remedy("name another output file"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the options for opening.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { reconstruct: self.reconstruct, ..OpenOptions::default() }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::new("trace", error)
    }
}

/// Converts a trace to another format.
#[derive(Args)]
pub struct Export {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    to: To,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct To {
    /// Write CSV to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write Parquet for data frames and SQL to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write Weft's own format to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    wtrace: Option<PathBuf>,
}

impl Trace {
    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8, Failure> {
        match self.what {
            TraceCommand::Show(show) => show.run(),
            TraceCommand::Export(export) => export.run(),
            TraceCommand::Plot(plot) => plot.run(),
            TraceCommand::Merge(merge) => merge.run(),
        }
    }
}

impl Export {
    fn run(self) -> Result<u8, Failure> {
        let outputs = [&self.to.csv, &self.to.parquet, &self.to.wtrace];
        outputs.into_iter().flatten().try_for_each(|path| self.input.spare(path))?;
        let mut input = self.input.open()?;
        if let Some(path) = self.to.csv {
            let mut out = csv::Writer::new(&path, sink(&path)?)?;
            // Of a damaged trace, the part before the damage is written.
            let read = each(&mut *input, |record, stream| out.push(&record, stream.names()));
            out.finish()?;
            read?;
        } else if let Some(path) = self.to.parquet {
            let mut out = parquet::Writer::new(&path, sink(&path)?)?;
            let read = each(&mut *input, |record, stream| out.push(&record, stream.names()));
            out.finish(&known(&*input, &read))?;
            read?;
        } else if let Some(path) = self.to.wtrace {
            let mut out = wtrace::Writer::to(&path, sink(&path)?)?;
            let read = each(&mut *input, |mut record, stream| {
                // Names keep their numbers if they are added in the same order, which is not guaranteed.
                let names = stream.names();
                record.host = out.host(names.host_name(record.host).unwrap_or_default())?;
                if record.op.has_file() {
                    record.file = out.file(names.file_name(record.file).unwrap_or_default())?;
                }
                out.push(&record)
            });
            out.info(&known(&*input, &read))?;
            out.finish()?;
            read?;
        }
        Ok(0)
    }
}

/// Returns the information about a trace that was read so far.
fn known(input: &dyn RecordStream, read: &weft_trace::Result<()>) -> Info {
    let mut info = input.info().clone();
    info.notes.extend(read.as_ref().err().map(|error| match error {
        TraceError::Damaged { at, .. } => {
            format!("the original trace is damaged at byte {at}: the rest is missing")
        }
        _ => "the original trace could not be read to its end: the rest is missing".to_owned(),
    }));
    info
}

/// Calls `each` with every record and shows a progress bar.
fn each(
    input: &mut dyn RecordStream,
    mut each: impl FnMut(weft_trace::Record, &dyn RecordStream) -> weft_trace::Result<()>,
) -> weft_trace::Result<()> {
    let bar = bar();
    let mut count = 0u64;
    while let Some(record) = input.next() {
        each(record?, input)?;
        count += 1;
        if count.is_multiple_of(65_536) {
            tick(&bar, input);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Updates the bar to a stream's position.
pub fn tick(bar: &ProgressBar, stream: &dyn RecordStream) {
    let (at, len) = stream.progress();
    if len > 0 {
        bar.set_length(len);
    }
    bar.set_position(at);
}

/// Returns a progress bar over bytes, hidden without a terminal.
pub fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn sink(path: &Path) -> Result<Box<dyn std::io::Write + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(std::io::stdout())));
    }
    let file = File::create(path).map_err(|error| Failure::new(path.display(), error))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Reads a Darshan log in a separate process. Only weft starts it.
#[derive(Args)]
pub struct DarshanReader {
    /// Requested output: summary, dxt or reconstruct
    #[arg(value_parser = |text: &str| Mode::from_name(text).ok_or("no such mode"))]
    mode: Mode,
    /// The log
    file: PathBuf,
}

impl DarshanReader {
    /// Reads the log and returns the exit code.
    pub fn run(self) -> u8 {
        weft_trace::darshan::serve(self.mode, &self.file)
    }
}

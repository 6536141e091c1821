//! `weft trace`: looks at traces of programs and changes their form.

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
A trace is a Darshan log with DXT, a CSV file with a heading, or Weft's own .wtrace; its content tells which. See
docs/traces.md for the formats.

Darshan logs are read by Darshan's own library, libdarshan-util 3.4.1 or newer: WEFT_DARSHAN_LIB names it or its folder.

Examples:
  weft trace show app.darshan
  weft trace show run.wtrace --stripe-size 64KiB --json
  weft trace export app.darshan --wtrace app.wtrace
  weft trace export run.wtrace --csv - | head
  weft trace export run.wtrace --parquet run.parquet
  weft trace plot run.wtrace -o heat.svg
  weft trace plot run.wtrace -o ranks.svg --view ranks --only checkpoint
  weft trace merge run.wtrace.parts -o run.wtrace    after a traced run on several hosts";

/// Looks at traces.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Show what a trace is like: ranks, files, request sizes, alignment, order
    Show(show::Show),
    /// Write a trace in another form
    Export(Export),
    /// Draw a trace: where in its files, or by which rank, how many bytes were moved when
    Plot(plot::Plot),
    /// Make one trace from what the processes of a traced program left
    Merge(merge::Merge),
}

/// Which trace, and how it is read.
#[derive(Args)]
pub struct Input {
    /// The trace: a Darshan log, CSV or .wtrace
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// Make a likely course of events from the counters of a Darshan log that has no DXT
    #[arg(long)]
    pub reconstruct: bool,
}

impl Input {
    /// Opens it.
    pub fn open(&self) -> Result<weft_trace::AnyStream, Failure> {
        Ok(open(&self.file, &self.options())?)
    }

    /// That `output` is another file: opened to be written, the trace would be gone before it is read to its end.
    pub fn spare(&self, output: &Path) -> Result<(), Failure> {
        let place = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        match (place(&self.file), place(output)) {
            (Some(trace), Some(output)) if trace == output => {
                Err(Failure::misuse(self.file.display(), "it would be written over while it is read")
                    .remedy("name another file for what comes of it"))
            }
            _ => Ok(()),
        }
    }

    /// How it is read.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { reconstruct: self.reconstruct, ..OpenOptions::default() }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::new("trace", error)
    }
}

/// Writes a trace in another form.
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
    /// Write CSV there; - is standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write Parquet there, for data frames and SQL; - is standard output
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write Weft's own format there; - is standard output
    #[arg(long, value_name = "FILE")]
    wtrace: Option<PathBuf>,
}

impl Trace {
    /// Does what was asked; the code to end with.
    pub fn run(self) -> Result<u8, Failure> {
        match self.what {
            What::Show(show) => show.run(),
            What::Export(export) => export.run(),
            What::Plot(plot) => plot.run(),
            What::Merge(merge) => merge.run(),
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
            // Of a damaged trace what came before is brought out.
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
                // Names keep their numbers when they come in the same order, but need not come so.
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

/// What is known of a trace that was read so far.
fn known(input: &dyn RecordStream, read: &weft_trace::Result<()>) -> Info {
    let mut info = input.info().clone();
    info.notes.extend(read.as_ref().err().map(|error| {
        match error {
            TraceError::Damaged { at, .. } => {
                format!("the trace that it was made of is damaged at byte {at}: what came behind is missing")
            }
            _ => "the trace that it was made of could not be read to its end: what came behind is missing"
                .to_owned(),
        }
    }));
    info
}

/// Hands every record to `each`, behind a progress bar.
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

/// Shows how far a stream has come.
pub fn tick(bar: &ProgressBar, stream: &dyn RecordStream) {
    let (at, len) = stream.progress();
    if len > 0 {
        bar.set_length(len);
    }
    bar.set_position(at);
}

/// A progress bar over bytes; hidden where nobody looks.
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

/// Reads a Darshan log in a process of its own; started by weft alone.
#[derive(Args)]
pub struct DarshanReader {
    /// What is asked: summary, dxt or reconstruct
    #[arg(value_parser = |text: &str| Mode::from_name(text).ok_or("no such mode"))]
    mode: Mode,
    /// The log
    file: PathBuf,
}

impl DarshanReader {
    /// Reads it; the code to end with.
    pub fn run(self) -> u8 {
        weft_trace::darshan::serve(self.mode, &self.file)
    }
}

//! `weft profile`: measures the targets and network of a cluster for the planner and iBridge, a path to fit the profile
//! of a device model, or the codecs of compressed files.

pub mod cluster;
mod codecs;
pub mod devices;
mod measure;

use crate::atomic_file::AtomicFile;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::table::Table;
use clap::Args;
use measure::Measured;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use weft_core::ByteLen;
use weft_models::calibrate::{self, Fit, Sample};

const AFTER: &str = "\
Without PATH, this measures the running cluster: each class of targets through its servers (reads and writes,
sequential, in sixteen streams and random, of 4 KiB to 1 MiB, 1 to 64 at a time), without the network and past SSDs
beside disks, and the network with messages between this host and each server. If all servers run on this host, it
also measures how many messages the processors handle. Lines over the lengths, with standard errors, are written
beside the cluster file as NAME.figures.toml, where `weft plan` and iBridge find them. Emulated targets take the time
of their models. Requests compete with all others. Written data is removed at the end in any case, and a twentieth of
each file system stays free. Only root and the user that runs the servers may do this.

All classes together take about 18 s, or 8 s with --quick. Requests whose repetitions differ by more than 10 % are
repeated within that time. After one and a half times as long, requests without which the planner can work are left
out. A figure that could not be measured is named and left out. A class without figures that the planner needs is not
written. A line is marked as unreliable if a point is more than 50 % off it, or if the time of 64 KiB is uncertain by
more than that. Measure again on an idle machine then, or with more --time. Ctrl-C ends the measurement at any time:
its data is removed, and earlier figures stay.

With PATH, this writes, reads and syncs an unnamed file on the path's file system, which disappears in any case. It
uses direct I/O if possible, one or several requests at a time, and different sizes and distances. Then it searches
for the parameters of a disk or SSD model that agree with the measurements. Requests that were not used for fitting
show how well the model predicts.

With --codecs, this measures the codecs of compressed files (lz4, zstd 1, 3 and 9, auto) on one processor, with chunks
of 16 KiB to 1 MiB: stored bytes in percent, chunks stored raw, and MB of data per second. The data are text, program
libraries, smooth doubles with noise, protein letters and random bytes, the same in every run, or files of yours.

Use the profile by its path: emulate = \"/etc/weft/disk.toml\" in the cluster file, profile = … on the twin. It
describes the device under the load at that time, and only the part of the device that was used.

Examples:
  weft profile                                          the configured cluster
  weft profile --quick --class ssd --json | jq '.classes[0].read'
  weft profile --targets 0 --time 5min                  every target of each class, five minutes for all
  weft profile /data/weft --output /etc/weft/disk.toml
  weft profile /ssd --size 256M --time 10s --json | jq '.held_out'
  weft profile --codecs --quick                         five kinds of data, in chunks of 64 KiB
  weft profile --codecs --file checkpoint.h5 --size 256M";

/// Measures a cluster for the planner and iBridge, the device under a path, or codecs.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct ProfileArgs {
    /// A directory on the device [default: measure the cluster]
    path: Option<PathBuf>,
    /// Measure ratio and speed of the codecs of compressed files
    #[arg(long, conflicts_with_all = ["path", "output", "name", "time", "class", "targets", "verbose"])]
    codecs: bool,
    /// Measure the codecs on this file, instead of the five kinds of data; repeatable
    #[arg(long, value_name = "FILE", requires = "codecs")]
    file: Vec<PathBuf>,
    /// Write the result to this file [default: beside the cluster file; standard output for a path]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the profile [default: that of the output file, or of the path]
    #[arg(long, requires = "path")]
    name: Option<String>,
    /// Space to use on each device, at least 16 MiB [default: 512 MiB of a path, 1 GiB of a target], or bytes of each
    /// kind of data for --codecs [default: 8 MiB]
    #[arg(long, value_parser = super::size)]
    size: Option<ByteLen>,
    /// Approximate time for a path, or for the cluster [default: 30 s, 18 s; 8 s with --quick]
    #[arg(long, value_parser = super::seconds)]
    time: Option<weft_core::Nanos>,
    /// Only targets of this class; repeatable
    #[arg(long, value_name = "CLASS", conflicts_with = "path")]
    class: Vec<String>,
    /// Number of targets of each class to measure; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "path")]
    targets: usize,
    /// Measure fewer lengths and depths, on a quarter of the space; codecs with chunks of 64 KiB only
    #[arg(long, conflicts_with = "path")]
    quick: bool,
    /// Show the count, quantiles and mean of each kind of request, too
    #[arg(short, long, conflicts_with = "path")]
    verbose: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Default space used on a path's device.
const SIZE: ByteLen = ByteLen::from_mib(512);
/// Default time for a path.
const TIME: weft_core::Nanos = weft_core::Nanos::from_s(30);
/// Minimum space that characterizes a device.
const SIZE_MIN: ByteLen = ByteLen::from_mib(16);
/// Maximum space, which every model supports.
const SIZE_MAX: ByteLen = ByteLen::from_mib(1 << 20);

impl ProfileArgs {
    /// Measures, fits and writes.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        if self.codecs {
            return codecs::run(&codecs::Options {
                files: self.file,
                size: self.size,
                is_quick: self.quick,
                is_json: self.json,
            });
        }
        match &self.path {
            Some(path) => self.of_path(path),
            None => self.of_cluster(file),
        }
    }

    fn of_path(&self, path: &Path) -> Result<u8, Failure> {
        let size = self.size.unwrap_or(SIZE);
        if size < SIZE_MIN {
            return Err(Failure::misuse("--size", "less than 16 MiB does not characterize a device"));
        }
        if size > SIZE_MAX {
            return Err(Failure::misuse("--size", "more than 1 TiB adds no information"));
        }
        let span = ByteLen(size.0 / SIZE_MIN.0 * SIZE_MIN.0);
        // Check the output before the work.
        let output = self.output.as_deref().map(AtomicFile::new).transpose()?;
        let plan = calibrate::plan(span);
        let time = self.time.unwrap_or(TIME);
        let progress = Progress::new("profile");
        progress.plan(time.as_duration());
        progress.set(0, plan.len() as u64 + 1, "creating the file");
        let failed = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded => {
                    "use less of it with --size"
                }
                _ => "give a directory in which files can be made",
            };
            Failure::new(path.display(), error).remedy(remedy)
        };
        let measured = measure::all(path, &plan, span, time, |name| progress.begin(name));
        let measured = measured.map_err(failed)?;
        progress.begin("fitting");
        let about = format!(
            "{} as weft profile found it{}",
            path.display(),
            if measured.is_direct {
                ""
            } else {
                " through the page cache, because the file system has no direct I/O"
            }
        );
        // The first case writes. Without reads there is no result.
        if measured.samples.len() < 2 {
            return Err(Failure::new(path.display(), "the time ran out before any read was measured")
                .remedy("give more --time, or less --size"));
        }
        let fit =
            calibrate::fit(&self.profile_name(path), &about, &measured.samples, span, measured.capacity);
        drop(progress);
        let fit = fit.map_err(|error| Failure::new(path.display(), error))?;
        let text = fit.profile.to_toml();
        output.iter().try_for_each(|output| output.write(text.as_bytes()))?;
        if self.json {
            outln!("{:#}", as_json(&measured, &fit));
        } else {
            out!("{}", as_text(&measured, &fit));
            match &self.output {
                Some(output) => outln!("profile {:?} written to {}", fit.profile.name, output.display()),
                None => out!("\n{text}"),
            }
        }
        Ok(0)
    }

    fn profile_name(&self, measured: &Path) -> String {
        let stem = |path: &Path| path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let named = self.name.clone().or_else(|| self.output.as_deref().and_then(stem));
        named.or_else(|| stem(measured)).unwrap_or_else(|| "measured".to_owned())
    }
}

/// Returns seconds since 1970.
pub fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the median and the greatest error of the model over the held-out cases.
fn held_out(measured: &Measured, fit: &Fit) -> Option<(f64, f64)> {
    let held = measured.samples.iter().zip(&fit.errors).filter(|(sample, _)| sample.case.is_held_out);
    let mut errors: Vec<f64> = held.map(|(_, error)| error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    Some((*errors.get(errors.len() / 2)?, *errors.last()?))
}

fn as_text(measured: &Measured, fit: &Fit) -> String {
    let us = |nanos: f64| format!("{:.1}", nanos / 1e3);
    let mut table =
        Table::new(["REQUESTS", "COUNT", "10%", "50%", "90%", "US EACH", "MB/S", "MODEL US", "OFF BY", ""]);
    for (sample, error) in measured.samples.iter().zip(&fit.errors) {
        let figure = sample.figure();
        let quantile = |part| us(sample.quantile(part) as f64);
        table.row([
            sample.case.name.clone(),
            sample.case.count.to_string(),
            quantile(0.1),
            quantile(0.5),
            quantile(0.9),
            us(figure),
            format!("{:.1}", sample.case.len.0 as f64 * 1e3 / figure.max(1.0)),
            us(figure * (1.0 + error)),
            format!("{:+.0}%", 100.0 * error),
            if sample.case.is_held_out { "held out".to_owned() } else { String::new() },
        ]);
    }
    let mut out = table.render();
    if let Some((median, worst)) = held_out(measured, fit) {
        let percent = |part: f64| 100.0 * part;
        out += &format!(
            "held-out requests: the model is off by {:.0}% in the median, {:.0}% at most\n",
            percent(median),
            percent(worst)
        );
    }
    if !measured.is_direct {
        out += "the file system has no direct I/O: these are values of memory\n";
    }
    if measured.is_cut_short {
        out += "the measurement is incomplete: give more --time, or less --size\n";
    }
    out
}

fn as_json(measured: &Measured, fit: &Fit) -> serde_json::Value {
    let row = |(sample, error): (&Sample, &f64)| {
        json!({
            "requests": sample.case.name,
            "count": sample.case.count,
            "depth": sample.case.depth,
            "bytes": sample.case.len.0,
            "ns_p10": sample.quantile(0.1),
            "ns_p50": sample.quantile(0.5),
            "ns_p90": sample.quantile(0.9),
            "ns_each": sample.figure(),
            "model_ns_each": sample.figure() * (1.0 + error),
            "error": error,
            "held_out": sample.case.is_held_out,
        })
    };
    let held = held_out(measured, fit);
    json!({
        "samples": measured.samples.iter().zip(&fit.errors).map(row).collect::<Vec<_>>(),
        "held_out": held.map(|(median, worst)| json!({ "error_median": median, "error_worst": worst })),
        "direct": measured.is_direct,
        "cut_short": measured.is_cut_short,
        "profile": fit.profile,
    })
}

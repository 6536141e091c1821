//! `weft profile`: measures the targets of a cluster and the way to them for the planner and iBridge; or a path, for the
//! profile of a modelled device that behaves like it.

pub mod cluster;
mod measure;

use crate::failure::Failure;
use crate::table::Table;
use crate::whole::Whole;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use measure::Measured;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weft_core::ByteLen;
use weft_models::calibrate::{self, Fit, Sample};

const AFTER: &str = "\
Without PATH the cluster is measured, as it runs: each class of targets through its servers (reads and writes in order, in
sixteen streams and at random, of 4 KiB to 1 MiB, 1 to 64 at a time), without the network and past SSDs beside disks, and
the network by messages between this host and each server. Lines over the lengths, with their standard errors, are written
beside the cluster file as NAME.figures.toml, where `weft plan` and iBridge find them. Emulated targets take the time of
their models. Requests take turns with everybody else's; what is written goes when it ends, whatever ends it, and a
twentieth of each file system stays free. Only root and the user who runs the servers may.

With PATH: a file without a name is made on the path's file system (so nothing is left behind, whatever happens), written and read
past the page cache where the file system can, one request at a time and several, over sizes and distances, and synced.
Then the figures of a modelled disk or SSD are searched with which the model agrees. Requests to which nothing was
fitted show how well it predicts.

That profile can be named by its path: emulate = \"/etc/weft/disk.toml\" in the cluster file, profile = … on the twin. It
describes the device as it was found: with other load at that time, and over this much of it.

Examples:
  weft profile                                          the configured cluster
  weft profile --quick --class ssd --json | jq '.classes[0].read'
  weft profile --targets 0 --time 5min                  every target of each class, five minutes for a class
  weft profile /data/weft --output /etc/weft/disk.toml
  weft profile /ssd --size 256M --time 10s --json | jq '.held_out'";

/// Measures a cluster for the planner and iBridge, or the device under a path.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct ProfileArgs {
    /// A directory on the device; without it the cluster is measured
    path: Option<PathBuf>,
    /// Where to write the figures [default: beside the cluster file; of a path to standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The profile's name; else that of the output file, or of the path
    #[arg(long, requires = "path")]
    name: Option<String>,
    /// How much of each device is used, at least 16 MiB [default: 512 MiB of a path, 1 GiB of a target]
    #[arg(long, value_parser = super::size)]
    size: Option<ByteLen>,
    /// About how long a path or each class may take [default: 30 s, 1 min; 10 s with --quick]
    #[arg(long, value_parser = super::seconds)]
    time: Option<weft_core::Nanos>,
    /// Only targets of this class; several times
    #[arg(long, value_name = "CLASS", conflicts_with = "path")]
    class: Vec<String>,
    /// Measure so many targets of each class; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 2, conflicts_with = "path")]
    targets: usize,
    /// Fewer lengths and depths, on a quarter of the room
    #[arg(long, conflicts_with = "path")]
    quick: bool,
    /// Each kind of request too: how many, quantiles, mean
    #[arg(short, long, conflicts_with = "path")]
    verbose: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// How much of a path's device is used without `--size`.
const SIZE: ByteLen = ByteLen::from_mib(512);
/// And for how long without `--time`.
const TIME: weft_core::Nanos = weft_core::Nanos::from_s(30);
/// The least that tells anything of a device.
const SIZE_MIN: ByteLen = ByteLen::from_mib(16);
/// And the most, which every model has room for.
const SIZE_MAX: ByteLen = ByteLen::from_mib(1 << 20);

impl ProfileArgs {
    /// Measures, fits, writes.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        match &self.path {
            Some(path) => self.of_path(path),
            None => self.of_cluster(file),
        }
    }

    fn of_path(&self, path: &Path) -> Result<u8, Failure> {
        let size = self.size.unwrap_or(SIZE);
        if size < SIZE_MIN {
            return Err(Failure::misuse("--size", "less than 16 MiB tells nothing of a device"));
        }
        if size > SIZE_MAX {
            return Err(Failure::misuse("--size", "more than 1 TiB tells no more of a device"));
        }
        let span = ByteLen(size.0 / SIZE_MIN.0 * SIZE_MIN.0);
        // Before the work.
        let output = self.output.as_deref().map(Whole::new).transpose()?;
        let plan = calibrate::plan(span);
        let bar = ProgressBar::new(plan.len() as u64 + 1);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        bar.set_style(style.expect("a template that holds"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let failed = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded => {
                    "use less of it with --size"
                }
                _ => "give a directory in which files can be made",
            };
            Failure::new(path.display(), error).remedy(remedy)
        };
        let measured = measure::all(path, &plan, span, self.time.unwrap_or(TIME), |name| {
            bar.set_message(name.to_owned());
            bar.inc(1);
        });
        let measured = measured.map_err(failed)?;
        bar.set_message("fitting");
        let about = format!(
            "{} as weft profile found it{}",
            path.display(),
            if measured.is_direct {
                ""
            } else {
                " through the page cache, for the file system cannot go past it"
            }
        );
        // Written first: without reads there is nothing to tell.
        if measured.samples.len() < 2 {
            return Err(Failure::new(path.display(), "the time was up before any reads were measured")
                .remedy("give more --time, or less --size"));
        }
        let fit =
            calibrate::fit(&self.profile_name(path), &about, &measured.samples, span, measured.capacity);
        bar.finish_and_clear();
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

/// Seconds since 1970.
pub fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// How far the model is off where nothing was fitted, in the middle and at most.
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
            "held-out requests: the model is off by {:.0}% in the middle, {:.0}% at most\n",
            percent(median),
            percent(worst)
        );
    }
    if !measured.is_direct {
        out += "the file system cannot go past the page cache: these are figures of memory\n";
    }
    if measured.is_cut_short {
        out += "not all was measured: give more --time, or less --size\n";
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

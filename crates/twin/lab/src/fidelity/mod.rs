//! Compares the twin's predictions with runs in real time, on emulated targets of the same profiles.
//!
//! The real servers run in this process with real sockets and files. Each request takes the time of a modelled disk in
//! real time. Both sides use the same disk models, so the comparison covers everything else: whether the code waits for
//! the same events in the simulated and in the real environment.

mod calibrate;
mod cases;
mod device;
mod play;
mod real;

use calibrate::Transport;
use cases::{CASES, Case};

use crate::spread::Spread;
use real::{Disks, RealCluster, STRIPE};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use weft_models::Profile;
use weft_twin::{ClientSpec, ClusterSpec, LayoutSpec, MetadataSpec, ServerSpec, TargetSpec};
use weft_workload::{Size, Workload};

/// Number of servers in both clusters.
const SERVERS: u32 = 4;
/// Number of processes for the transport measurement, the same as in most cases.
const RANKS: u32 = 8;
/// Number of times that a case is run for real.
const RUNS: usize = 3;
/// Number of times that a case is run for real if its durations differ by more than [`SPREAD_MAX`] of their mean. Such
/// a workload has several stable states, and chance selects one of them, so distributions are compared.
const RUNS_UNSTEADY: usize = 12;
const SPREAD_MAX: f64 = 0.25;
/// Number of runs on the twin for each real run. The first has the same disks as the real one.
const TWINS: u64 = 4;
/// Goal for the median of the errors.
pub const MEDIAN_MAX: f64 = 0.10;
/// Goal for the greatest error.
pub const WORST_MAX: f64 = 0.25;

/// Result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Name of the case.
    pub case: String,
    /// Profile of the disks.
    pub profile: String,
    /// Duration in real seconds.
    pub real_s: Spread,
    /// Duration in virtual seconds.
    pub twin_s: Spread,
    /// Relative error of the predicted mean. Negative if the prediction is too short.
    pub error: f64,
}

/// Whether durations differ so little that a few runs determine the mean.
fn is_steady(seconds: &Spread) -> bool {
    seconds.most - seconds.least <= SPREAD_MAX * seconds.mean
}

/// Formats durations for a terminal.
fn shown(seconds: &Spread) -> String {
    match is_steady(seconds) {
        true => format!("{:.3}", seconds.mean),
        false => format!("{:.3} ({:.2}-{:.2})", seconds.mean, seconds.least, seconds.most),
    }
}

/// Result of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Fidelity {
    /// Microseconds of a ping on the real transport.
    pub ping_us: f64,
    /// Microseconds of processor time for a message.
    pub message_us: f64,
    /// Rate of the real transport in 10^6 bytes per second.
    pub transport_mb_s: f64,
    /// Mean delay of wakeups in microseconds.
    pub late_us: f64,
    /// Results of the cases.
    pub cases: Vec<Compared>,
    /// Median of the absolute errors.
    pub median: f64,
    /// Greatest absolute error.
    pub worst: f64,
}

impl Fidelity {
    /// Whether both goals are met.
    pub fn is_good(&self) -> bool {
        self.median <= MEDIAN_MAX && self.worst <= WORST_MAX
    }

    /// Formats the result for a terminal.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let Self { ping_us, message_us, transport_mb_s, late_us, median, worst, .. } = self;
        let _ = writeln!(
            text,
            "transport of this machine: {ping_us:.0} us a ping, {message_us:.1} us a message, \
             {transport_mb_s:.0} MB/s; a thread wakes {late_us:.0} us late\n"
        );
        let _ = writeln!(
            text,
            "{:<38} {:<12} {:>4} {:<18} {:<18} {:>9}",
            "workload", "profile", "runs", "real s", "twin s", "error"
        );
        for Compared { case, profile, real_s, twin_s, error } in &self.cases {
            let (runs, percent) = (real_s.count, error * 100.0);
            let (real_s, twin_s) = (shown(real_s), shown(twin_s));
            let _ = writeln!(
                text,
                "{case:<38} {profile:<12} {runs:>4} {real_s:<18} {twin_s:<18} {percent:>+7.1} %"
            );
        }
        let _ = writeln!(
            text,
            "\nerror: median {:.1} % (goal {:.0} %), worst {:.1} % (goal {:.0} %)",
            median * 100.0,
            MEDIAN_MAX * 100.0,
            worst * 100.0,
            WORST_MAX * 100.0
        );
        text
    }
}

/// Runs the cases whose names contain `only`, in a new directory below `below`. `progress` is called before each one.
pub fn run(
    below: &Path,
    only: &str,
    quick: bool,
    seed: u64,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<Fidelity, String> {
    let chosen: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(only)).collect();
    if chosen.is_empty() {
        return Err(format!("no workload has {only:?} in its name"));
    }
    progress(0, chosen.len(), "transport");
    let transport = Transport::measure(below, SERVERS, RANKS)?;
    let mut cases = Vec::new();
    for (index, case) in chosen.iter().enumerate() {
        progress(index, chosen.len(), case.name);
        let compared = compare(case, below, quick, seed, &transport);
        cases.push(compared.map_err(|error| format!("{}: {error}", case.name))?);
    }
    let errors = || cases.iter().map(|case| case.error.abs()).collect::<Vec<_>>();
    Ok(Fidelity {
        ping_us: transport.ping.as_secs_f64() * 1e6,
        message_us: transport.message.as_secs_f64() * 1e6,
        transport_mb_s: transport.mb_s,
        late_us: transport.late.as_secs_f64() * 1e6,
        median: median(errors()),
        worst: errors().into_iter().fold(0.0, f64::max),
        cases,
    })
}

fn compare(
    case: &Case,
    below: &Path,
    quick: bool,
    seed: u64,
    transport: &Transport,
) -> Result<Compared, String> {
    let workload = calibrate::workload(&case.workload(quick))?;
    let profile = Profile::by_name(case.profile).map_err(|error| error.to_string())?;
    let (mut real, mut predicted) = (Vec::new(), Vec::new());
    let twins = if quick { 1 } else { TWINS };
    loop {
        let first = seed + predicted.len() as u64;
        let specs: Vec<ClusterSpec> =
            (first..first + twins).map(|seed| twin(case, workload.ranks(), seed, transport)).collect();
        real.push(take(below, &profile, &specs[0], &*workload)?);
        for spec in &specs {
            predicted.push(predict(spec, &*workload)?);
        }
        if quick || real.len() >= runs(&real, &predicted) {
            break;
        }
    }
    let (real_s, twin_s) = (Spread::of(&real), Spread::of(&predicted));
    Ok(Compared {
        case: case.name.to_owned(),
        profile: case.profile.to_owned(),
        real_s,
        twin_s,
        error: (twin_s.mean - real_s.mean) / real_s.mean,
    })
}

/// Returns the seconds of a real run on disks like those of `spec`.
fn take(below: &Path, profile: &Profile, spec: &ClusterSpec, workload: &dyn Workload) -> Result<f64, String> {
    let mut cluster = RealCluster::start(below, SERVERS, Some(Disks { profile, twin: spec }))
        .map_err(|error| format!("servers: {error}"))?;
    let played = play::play(&mut cluster, workload);
    cluster.stop();
    Ok(played?.as_secs_f64())
}

/// Returns the seconds that the twin predicts.
fn predict(spec: &ClusterSpec, workload: &dyn Workload) -> Result<f64, String> {
    let outcome = weft_twin::run(spec, workload).map_err(|error| error.to_string())?;
    Ok(outcome.elapsed.0 as f64 / 1e9)
}

/// Returns the required number of real runs, given the durations so far.
fn runs(real: &[f64], predicted: &[f64]) -> usize {
    let are_steady = [real, predicted].into_iter().all(|seconds| is_steady(&Spread::of(seconds)));
    if are_steady { RUNS } else { RUNS_UNSTEADY }
}

/// Returns the simulated cluster.
fn twin(case: &Case, ranks: u32, seed: u64, transport: &Transport) -> ClusterSpec {
    let target = TargetSpec { profile: case.profile.into(), ..TargetSpec::default() };
    let stripe_sizes = [("hdd".to_owned(), Size(STRIPE))].into();
    ClusterSpec {
        seed,
        network_figures: Some(transport.network()),
        processes_per_node: ranks,
        servers: vec![ServerSpec { count: SERVERS, targets: vec![target], ..ServerSpec::default() }],
        metadata: MetadataSpec { server: Some(0), profile: Some(case.profile.into()) },
        layout: LayoutSpec { stripe_sizes, ..LayoutSpec::default() },
        client: ClientSpec { pause_us: transport.late.as_secs_f64() * 1e6, ..ClientSpec::default() },
        ..ClusterSpec::default()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_match_computation_by_hand() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn unsteady_cases_are_run_more_often() {
        assert_eq!(runs(&[4.0, 4.9], &[4.0, 4.1]), RUNS);
        assert_eq!(runs(&[4.0], &[4.2, 4.1, 6.7, 4.2]), RUNS_UNSTEADY);
        assert_eq!(runs(&[4.2, 6.7], &[4.0, 4.1]), RUNS_UNSTEADY);
        assert_eq!(shown(&Spread::of(&[4.0, 5.0])), "4.500");
        assert_eq!(shown(&Spread::of(&[4.0, 8.0])), "6.000 (4.00-8.00)");
    }

    #[test]
    fn every_case_is_a_workload_of_a_profile() {
        for case in CASES {
            for quick in [false, true] {
                let built = calibrate::workload(&case.workload(quick));
                built.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            }
            Profile::by_name(case.profile).unwrap();
        }
        assert!(CASES.len() >= 6);
    }

    /// Checks the worst-case goal on a workload that nearly always waits for its disks. Other load on the machine may
    /// spoil a real run, but hardly three in a row.
    #[test]
    fn a_prediction_is_near_a_real_run() {
        let below = tempfile::tempdir().unwrap();
        let transport = Transport::measure(below.path(), SERVERS, 2).unwrap();
        let case = CASES.iter().find(|case| case.name == "ior random read").unwrap();
        let mut errors = Vec::new();
        for _ in 0..3 {
            let compared = compare(case, below.path(), true, 1, &transport).unwrap();
            errors.push(compared.error);
            if compared.error.abs() <= WORST_MAX {
                return;
            }
        }
        panic!("the prediction was off by {errors:?}");
    }
}

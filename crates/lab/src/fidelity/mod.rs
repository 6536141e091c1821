//! How far the twin's predictions are from runs in real time, on emulated targets of the same profiles.
//!
//! The real servers run in this process, with real sockets and files; each request takes the time of the modeled disk
//! under real time. So what is judged is everything but the disk models themselves: that the simulated environment has
//! the code wait for the same things as the real one.

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

/// Servers of both clusters.
const SERVERS: u32 = 4;
/// Processes by which the transport is measured, as many as most cases have.
const RANKS: u32 = 8;
/// Real runs of a case.
const RUNS: usize = 3;
/// The same where runs differ by more than [`SPREAD_MAX`] of their mean. Such a run can fall into several states, of which
/// chance chooses, in real time as on the twin: what is compared are many with many.
const RUNS_UNSTEADY: usize = 12;
const SPREAD_MAX: f64 = 0.25;
/// Runs of the twin, which take little time, for each real one; the first has its disks.
const TWINS: u64 = 4;
/// The goal for the median of the errors.
pub const MEDIAN_MAX: f64 = 0.10;
/// The goal for the worst of them.
pub const WORST_MAX: f64 = 0.25;

/// What a case gave.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub case: String,
    /// The profile of the disks.
    pub profile: String,
    /// Seconds in real time.
    pub real_s: Spread,
    /// Virtual seconds.
    pub twin_s: Spread,
    /// By how much of the real time the prediction is off, of the means; negative when it is too short.
    pub error: f64,
}

/// Whether runs are of one kind, so that a few say what the mean is.
fn is_steady(seconds: &Spread) -> bool {
    seconds.most - seconds.least <= SPREAD_MAX * seconds.mean
}

/// Runs for people.
fn shown(seconds: &Spread) -> String {
    match is_steady(seconds) {
        true => format!("{:.3}", seconds.mean),
        false => format!("{:.3} ({:.2}-{:.2})", seconds.mean, seconds.least, seconds.most),
    }
}

/// All cases.
#[derive(Clone, Debug, Serialize)]
pub struct Fidelity {
    /// Microseconds of a ping of the real transport.
    pub ping_us: f64,
    /// Microseconds of processor time of a message.
    pub message_us: f64,
    /// 10^6 bytes per second of the real transport.
    pub transport_mb_s: f64,
    /// Microseconds that a thread wakes late.
    pub late_us: f64,
    /// The cases.
    pub cases: Vec<Compared>,
    /// The median of the errors without their signs.
    pub median: f64,
    /// The worst of them.
    pub worst: f64,
}

impl Fidelity {
    /// Whether the goals are met.
    pub fn is_good(&self) -> bool {
        self.median <= MEDIAN_MAX && self.worst <= WORST_MAX
    }

    /// For terminals.
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

/// Runs the cases whose names contain `only` in a folder below `below`; `progress` hears what is done next.
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

/// The seconds of a run in real time, on disks like those of `spec`.
fn take(below: &Path, profile: &Profile, spec: &ClusterSpec, workload: &dyn Workload) -> Result<f64, String> {
    let mut cluster = RealCluster::start(below, SERVERS, Some(Disks { profile, twin: spec }))
        .map_err(|error| format!("servers: {error}"))?;
    let played = play::play(&mut cluster, workload);
    cluster.stop();
    Ok(played?.as_secs_f64())
}

/// The seconds that the twin says.
fn predict(spec: &ClusterSpec, workload: &dyn Workload) -> Result<f64, String> {
    let outcome = weft_twin::run(spec, workload).map_err(|error| error.to_string())?;
    Ok(outcome.elapsed.0 as f64 / 1e9)
}

/// How many real runs there have to be, after those that took so long and were predicted to.
fn runs(real: &[f64], predicted: &[f64]) -> usize {
    let are_steady = [real, predicted].into_iter().all(|seconds| is_steady(&Spread::of(seconds)));
    if are_steady { RUNS } else { RUNS_UNSTEADY }
}

/// The cluster that predicts.
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
    fn medians_by_hand() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn runs_that_differ_are_run_more_often() {
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

    /// The whole way on a workload that waits for its disks nearly all the time: the goal for the worst case. A
    /// machine that is busy with other tests may spoil the real run, but hardly three in a row.
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

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

use real::{RealCluster, STRIPE};
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
    /// Seconds in real time; the median of the runs.
    pub real_s: f64,
    /// Virtual seconds; the median of the runs.
    pub twin_s: f64,
    /// By how much of the real time the prediction is off; negative when it is too short.
    pub error: f64,
    /// The shortest and the longest real run.
    pub real_range_s: (f64, f64),
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
            "{:<38} {:<12} {:>8} {:>8} {:>9}",
            "workload", "profile", "real s", "twin s", "error"
        );
        for Compared { case, profile, real_s, twin_s, error, .. } in &self.cases {
            let percent = error * 100.0;
            let _ = writeln!(text, "{case:<38} {profile:<12} {real_s:>8.3} {twin_s:>8.3} {percent:>+7.1} %");
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

/// Runs all cases in a folder below `below`; `progress` hears what is done next.
pub fn run(
    below: &Path,
    quick: bool,
    seed: u64,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<Fidelity, String> {
    progress(0, CASES.len(), "transport");
    let transport = Transport::measure(below, SERVERS, RANKS)?;
    let mut cases = Vec::new();
    for (index, case) in CASES.iter().enumerate() {
        progress(index, CASES.len(), case.name);
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
    let runs = if quick { 1 } else { 3 };
    let (mut real, mut twin) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let mut cluster = RealCluster::start(below, SERVERS, Some(&profile), Some(&profile))
            .map_err(|error| format!("servers: {error}"))?;
        let played = play::play(&mut cluster, &*workload);
        cluster.stop();
        real.push(played?.as_secs_f64());
        twin.push(predict(case, &*workload, seed + run, transport)?);
    }
    let shortest = real.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = real.iter().copied().fold(0.0, f64::max);
    let (real_s, twin_s) = (median(real), median(twin));
    Ok(Compared {
        case: case.name.to_owned(),
        profile: case.profile.to_owned(),
        real_s,
        twin_s,
        error: (twin_s - real_s) / real_s,
        real_range_s: (shortest, longest),
    })
}

fn predict(case: &Case, workload: &dyn Workload, seed: u64, transport: &Transport) -> Result<f64, String> {
    let target = TargetSpec { profile: case.profile.into(), ..TargetSpec::default() };
    let stripe_sizes = [("hdd".to_owned(), Size(STRIPE))].into();
    let spec = ClusterSpec {
        seed,
        network_figures: Some(transport.network()),
        processes_per_node: workload.ranks(),
        servers: vec![ServerSpec { count: SERVERS, targets: vec![target], ..ServerSpec::default() }],
        metadata: MetadataSpec { server: Some(0), profile: Some(case.profile.into()) },
        layout: LayoutSpec { stripe_sizes, ..LayoutSpec::default() },
        client: ClientSpec { pause_us: transport.late.as_secs_f64() * 1e6, ..ClientSpec::default() },
        ..ClusterSpec::default()
    };
    let outcome = weft_twin::run(&spec, workload).map_err(|error| error.to_string())?;
    Ok(outcome.elapsed.0 as f64 / 1e9)
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

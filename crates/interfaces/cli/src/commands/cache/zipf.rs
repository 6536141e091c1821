//! Zipf workloads, with a scan beside them.

use super::report::{Case, CaseResult, Row, WorkloadPhase};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::str::FromStr;
use weft_core::LocalExtent;
use weft_core::cache::{BLOCK_LEN, CacheRequest, HitRatio, Zipf};
use weft_core::random::{SplitMix64, mix64};

/// Step of a range of skews.
const SKEW_STEP: f64 = 0.2;
/// Maximum skew. Beyond it, nearly all requests are for the first block.
const SKEW_MAX: f64 = 5.0;
/// Datafile of the Zipf workload.
const FILE: u64 = 1;
/// Datafile of the scan.
const SCANNED_FILE: u64 = 2;
/// Requests between two updates of the progress bar.
const TICK_REQUESTS: u64 = 1 << 16;

/// Skews of the Zipf distribution.
#[derive(Clone, PartialEq, Debug)]
pub struct Skews(pub Vec<f64>);

impl FromStr for Skews {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let skew = |text: &str| match text.trim().parse::<f64>() {
            Ok(skew) if (0.0..=SKEW_MAX).contains(&skew) => Ok(skew),
            _ => Err(format!("{text:?} is not a skew: use numbers from 0 to 5, such as 0.6..1.2 or 0.8,1.0")),
        };
        let Some((from, to)) = text.split_once("..") else {
            return text.split(',').map(skew).collect::<Result<_, _>>().map(Self);
        };
        let (from, to) = (skew(from)?, skew(to)?);
        if from > to {
            return Err(format!("{text:?} is an empty range: write the smaller skew first"));
        }
        // A hundredth of a step for rounding.
        let steps = ((to - from) / SKEW_STEP + 0.01) as u32;
        Ok(Self((0..=steps).map(|step| from + f64::from(step) * SKEW_STEP).collect()))
    }
}

/// Parameters of a workload.
pub struct Workload {
    pub blocks: u64,
    pub requests: u64,
    /// Length of the scan in sizes of the cache.
    pub scan: Option<u64>,
    pub seed: u64,
}

/// Returns a progress bar over the requests of all simulations, hidden without a terminal.
pub fn bar(workload: &Workload, simulations: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {percent}% {eta}");
    ProgressBar::new(workload.requests.saturating_mul(simulations as u64))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Simulates all cases. Returns a row, or three with a scan.
pub fn simulate(workload: &Workload, skew: f64, capacity: u64, bar: &ProgressBar) -> Vec<Row> {
    let mut caches = Case::simulations(capacity);
    let zipf = Zipf::new(workload.blocks, skew).expect("blocks and a skew that were checked");
    let mut random = SplitMix64::new(workload.seed);
    // Popular blocks are not neighbors.
    let mut next = || CacheRequest {
        file: FILE,
        session: FILE,
        extent: block(mix64(zipf.sample(&mut random) ^ workload.seed) >> 24),
    };
    let mut done = 0;
    let mut count = || {
        done += 1;
        if done % TICK_REQUESTS == 0 {
            bar.inc(TICK_REQUESTS);
        }
    };
    // Plays requests, each followed by a scanned block if `scans`, and counts the hits of the requests alone.
    let mut play = |requests: u64, scans: bool| -> Vec<CaseResult> {
        let mut ratios = [HitRatio::default(); Case::ALL.len()];
        for number in 0..requests {
            let request = next();
            for (cache, ratio) in caches.iter_mut().zip(&mut ratios) {
                let before = cache.reads();
                cache.read(request);
                *ratio += cache.reads().since(before);
                if scans {
                    cache.read(CacheRequest {
                        file: SCANNED_FILE,
                        session: SCANNED_FILE,
                        extent: block(number),
                    });
                }
            }
            count();
        }
        let results = caches.iter().zip(ratios);
        results.map(|(cache, ratio)| CaseResult { ratio, stored: cache.stored() }).collect()
    };
    let phases = match workload.scan {
        None => vec![(WorkloadPhase::All, workload.requests, false)],
        Some(scan) => {
            let scanned = scan.saturating_mul(capacity / BLOCK_LEN);
            bar.inc_length(scanned);
            let warm_up = workload.requests / 2;
            // The ratio before the scan is that of a warm cache, in as many requests as the scan has.
            let before = scanned.min(warm_up / 2);
            play(warm_up - before, false);
            vec![
                (WorkloadPhase::BeforeScan, before, false),
                (WorkloadPhase::DuringScan, scanned, true),
                (WorkloadPhase::AfterScan, workload.requests - warm_up, false),
            ]
        }
    };
    let row = |(phase, requests, scans)| {
        let results = play(requests, scans);
        Row { skew: Some(skew), capacity, phase, results }
    };
    phases.into_iter().map(row).collect()
}

fn block(index: u64) -> LocalExtent {
    LocalExtent::new(index * BLOCK_LEN, BLOCK_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skews_are_lists_or_ranges() {
        let rounded = |text: &str| {
            let skews = text.parse::<Skews>().unwrap_or_else(|error| panic!("{error}"));
            skews.0.iter().map(|skew| format!("{skew:.1}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(rounded("0.6..1.2"), "0.6 0.8 1.0 1.2");
        assert_eq!(rounded("0.6..1.1"), "0.6 0.8 1.0");
        assert_eq!(rounded("1..1"), "1.0");
        assert_eq!(rounded("0.9, 0"), "0.9 0.0");
        for wrong in ["", "1..0", "-1", "6", "NaN", "a..b", "1,,2"] {
            assert!(wrong.parse::<Skews>().is_err(), "{wrong}");
        }
    }
}

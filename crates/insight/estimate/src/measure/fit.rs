//! From request times to figures with standard errors.
//!
//! ```text
//! request times ──> batches (up to 24) ──> outliers set aside ──> mean and standard error ──> line over lengths
//!                   | one stream: equal counts                    over the batches            (least squares of
//!                   | several: completions per interval                                        relative errors)
//! ```
//!
//! * A **batch** is one observation. Requests within a batch are correlated (read-ahead, a filling queue), and treating
//!   them as independent would understate the error.
//! * A **repetition** is a measurement of the whole case. Repetitions that differ show that something else uses the
//!   machine; the case is then repeated.
//! * **Outliers** are batches more than five standard deviations from the median, estimated from the median absolute
//!   deviation, and more than 25 % from it, if they are at most a quarter of all. They are counted but not used: a hiccup
//!   of the system is not a property of the device.

use serde::{Deserialize, Serialize};
use weft_planner::figures::Line;

/// Maximum number of batches.
const BATCHES: usize = 24;
/// Minimum mean number of completions per interval.
const COMPLETIONS_MIN: usize = 12;
/// Minimum number of batches for setting outliers aside.
const BATCHES_MIN: usize = 6;
/// Distance from the median in standard deviations from which on a batch is an outlier.
const OUTLIER_DEVIATIONS: f64 = 5.0;
/// Minimum distance of an outlier, as a fraction of the median. Syncs of a disk take whole rotations, often four or five.
const OUTLIER_FRACTION_MIN: f64 = 0.25;
/// Maximum number of outliers, as a fraction of the batches: 1/4. More of them are a property of the device, such as
/// read-ahead in steps that differ from the batches.
const OUTLIERS_MAX_DIVISOR: usize = 4;
/// Ratio of standard deviation to median absolute deviation for a normal distribution.
const NORMAL_PER_MAD: f64 = 1.4826;
/// Relative deviation of repetitions from which on a case is noisy and repeated.
const NOISE_MAX: f64 = 0.1;

/// A mean with its standard error.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Mean {
    /// Mean without outliers.
    pub value: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Number of outliers.
    pub aside: usize,
}

/// The mean without outliers.
pub fn mean(values: &[f64]) -> Mean {
    if values.is_empty() {
        return Mean::default();
    }
    let median = median(values);
    let deviation = self::median(&values.iter().map(|value| (value - median).abs()).collect::<Vec<_>>());
    let outlier_distance =
        (OUTLIER_DEVIATIONS * NORMAL_PER_MAD * deviation).max(OUTLIER_FRACTION_MIN * median.abs());
    let is_far = |value: &f64| (value - median).abs() > outlier_distance;
    let far = values.iter().filter(|value| is_far(value)).count();
    let sets_aside = values.len() >= BATCHES_MIN && far <= values.len() / OUTLIERS_MAX_DIVISOR;
    let keeps = |value: &&f64| !sets_aside || !is_far(value);
    let kept: Vec<f64> = values.iter().filter(keeps).copied().collect();
    let count = kept.len() as f64;
    let value = kept.iter().sum::<f64>() / count;
    let variance = kept.iter().map(|one| (one - value).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    // A single observation gives no error estimate.
    let error = if kept.len() < 2 { value.abs() } else { (variance / count).sqrt() };
    Mean { value, error, aside: values.len() - kept.len() }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[half - 1] + sorted[half]) / 2.0 } else { sorted[half] }
}

/// Standard deviation of repetitions relative to their median, estimated from the median absolute deviation. `None` for
/// fewer than two.
pub(super) fn relative_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let center = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    Some(NORMAL_PER_MAD * median(&distances) / center.max(f64::MIN_POSITIVE))
}

/// Whether repetitions differ so much that the case should be repeated.
pub(super) fn is_noisy(values: &[f64]) -> bool {
    relative_deviation(values).is_some_and(|deviation| deviation > NOISE_MAX)
}

/// Median of repetitions; `None` without any.
pub(super) fn typical(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

/// Times of a stream's requests in order, and the total time including gaps.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Stream {
    /// Time of each request, nanoseconds.
    pub times: Vec<u64>,
    /// Total time, nanoseconds.
    pub elapsed: u64,
}

/// Result of a case: the mean time per request over all streams, and quantiles of single requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Description of the requests.
    pub requests: String,
    /// Length of each request, bytes.
    pub bytes: u64,
    /// Queue depth.
    pub depth: u32,
    /// Number of requests.
    pub count: u64,
    /// Number of requests in outlier batches.
    pub aside: u64,
    /// Mean time per request, nanoseconds.
    pub ns_each: f64,
    /// Standard error of `ns_each`, nanoseconds.
    pub ns_error: f64,
    /// Relative deviation of the repetitions; `None` if there was only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// 10 % quantile of the request time, nanoseconds.
    pub ns_p10: u64,
    /// Median of the request time, nanoseconds.
    pub ns_p50: u64,
    /// 90 % quantile of the request time, nanoseconds.
    pub ns_p90: u64,
}

impl Point {
    /// Combines streams that ran concurrently.
    pub fn of_streams(requests: String, bytes: u64, streams: &[Stream]) -> Self {
        let (mean, observations) = match streams {
            [one] => one.mean_time(),
            many => mean_between_completions(many),
        };
        let mut times: Vec<u64> = streams.iter().flat_map(|stream| &stream.times).copied().collect();
        times.sort_unstable();
        let count = times.len() as u64;
        let aside = count * mean.aside as u64 / observations.max(1) as u64;
        Self::new(requests, bytes, streams.len() as u32, (count, aside), mean, &times)
    }

    /// Combines rounds, each given by its mean time per request.
    pub fn of_rounds(requests: String, bytes: u64, depth: u32, count: u64, rounds: &[f64]) -> Self {
        let mean = mean(rounds);
        let aside = count * mean.aside as u64 / rounds.len().max(1) as u64;
        let mut times: Vec<u64> = rounds.iter().map(|round| *round as u64).collect();
        times.sort_unstable();
        let point = Self::new(requests, bytes, depth, (count, aside), mean, &times);
        Self { deviation: relative_deviation(rounds), ..point }
    }

    /// Combines repetitions of a case: the median time per request. `None` without any.
    pub fn of_repetitions(points: &[Self]) -> Option<Self> {
        let each: Vec<f64> = points.iter().map(|point| point.ns_each).collect();
        let (value, deviation) = (typical(&each)?, relative_deviation(&each));
        let count = points.len() as f64;
        let within = points.iter().map(|point| point.ns_error.powi(2)).sum::<f64>().sqrt() / count;
        let between = value * deviation.unwrap_or(0.0) / count.sqrt();
        let average = |of: fn(&Self) -> u64| points.iter().map(of).sum::<u64>() / points.len() as u64;
        Some(Self {
            count: points.iter().map(|point| point.count).sum(),
            aside: points.iter().map(|point| point.aside).sum(),
            ns_each: value,
            ns_error: within.max(between),
            deviation,
            ns_p10: average(|point| point.ns_p10),
            ns_p50: average(|point| point.ns_p50),
            ns_p90: average(|point| point.ns_p90),
            ..points[0].clone()
        })
    }

    /// Whether requests completed and took a time that a line can use.
    pub fn is_measured(&self) -> bool {
        self.count > 0 && self.ns_each.is_finite() && self.ns_each > 0.0 && self.ns_error.is_finite()
    }

    fn new(
        requests: String,
        bytes: u64,
        depth: u32,
        (count, aside): (u64, u64),
        mean: Mean,
        sorted: &[u64],
    ) -> Self {
        let quantile = |part: f64| {
            let index = (sorted.len() as f64 * part) as usize;
            sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        Self {
            requests,
            bytes,
            depth,
            count,
            aside,
            ns_each: mean.value,
            ns_error: mean.error,
            deviation: None,
            ns_p10: quantile(0.1),
            ns_p50: quantile(0.5),
            ns_p90: quantile(0.9),
        }
    }

    /// Averages a case over several targets. Also returns the largest relative deviation of a target from the mean.
    ///
    /// # Panics
    /// If `points` is empty.
    pub fn pooled(points: &[&Self]) -> (Self, f64) {
        let count = points.len() as f64;
        let each = points.iter().map(|point| point.ns_each).sum::<f64>() / count;
        let error = points.iter().map(|point| point.ns_error.powi(2)).sum::<f64>().sqrt() / count;
        let average =
            |of: fn(&Self) -> u64| (points.iter().map(|point| of(point)).sum::<u64>()) / points.len() as u64;
        let apart =
            points.iter().map(|point| (point.ns_each / each.max(1e-9) - 1.0).abs()).fold(0.0, f64::max);
        let pooled = Self {
            count: points.iter().map(|point| point.count).sum(),
            aside: points.iter().map(|point| point.aside).sum(),
            ns_each: each,
            ns_error: error,
            // Targets of a class are repetitions of each other.
            deviation: points
                .iter()
                .filter_map(|point| point.deviation)
                .chain((count > 1.0).then_some(apart))
                .reduce(f64::max),
            ns_p10: average(|point| point.ns_p10),
            ns_p50: average(|point| point.ns_p50),
            ns_p90: average(|point| point.ns_p90),
            ..points[0].clone()
        };
        (pooled, apart)
    }
}

impl Stream {
    /// Factor by which the gaps between requests lengthen the total time.
    fn gap_factor(&self) -> f64 {
        let sum: u64 = self.times.iter().sum();
        if sum == 0 { 1.0 } else { (self.elapsed as f64 / sum as f64).max(1.0) }
    }

    /// Mean time per request over batches of equal counts, and the number of batches.
    fn mean_time(&self) -> (Mean, usize) {
        let batches = self.times.len().clamp(1, BATCHES);
        let part = |batch: usize| self.times.len() * batch / batches;
        let values: Vec<f64> = (0..batches)
            .map(|batch| &self.times[part(batch)..part(batch + 1)])
            .filter(|times| !times.is_empty())
            .map(|times| times.iter().sum::<u64>() as f64 * self.gap_factor() / times.len() as f64)
            .collect();
        (mean(&values), values.len())
    }
}

/// Mean time between completions over concurrent streams, in intervals of equal length while all streams ran, and the
/// number of intervals. Counts completions, because the mean request time says nothing about the concurrency.
fn mean_between_completions(streams: &[Stream]) -> (Mean, usize) {
    let ran: Vec<&Stream> = streams.iter().filter(|stream| !stream.times.is_empty()).collect();
    let until = ran.iter().map(|stream| stream.elapsed).min().unwrap_or(0) as f64;
    let mut completions = Vec::new();
    for stream in ran {
        let (gap_factor, mut at) = (stream.gap_factor(), 0.0);
        for time in &stream.times {
            at += *time as f64 * gap_factor;
            completions.push(at);
        }
    }
    completions.retain(|end| *end <= until * (1.0 + 1e-9));
    if completions.is_empty() || until <= 0.0 {
        return (Mean::default(), 0);
    }
    let intervals = (completions.len() / COMPLETIONS_MIN).clamp(1, BATCHES);
    let mut counts = vec![0.0; intervals];
    let total = completions.len() as f64;
    for end in completions {
        counts[((end / until * intervals as f64) as usize).min(intervals - 1)] += 1.0;
    }
    let mut rate = mean(&counts);
    if rate.value <= 0.0 {
        // Requests completed in bursts, and most intervals had none. The mean over all is the rate; it has no error.
        let value = total / intervals as f64;
        rate = Mean { value, error: value, aside: 0 };
    }
    let each = until / intervals as f64 / rate.value.max(f64::MIN_POSITIVE);
    (
        Mean { value: each, error: each * rate.error / rate.value.max(f64::MIN_POSITIVE), aside: rate.aside },
        intervals,
    )
}

/// A line over the request length, with standard errors.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FittedLine {
    /// Time of an empty request, microseconds.
    pub startup_us: f64,
    /// Standard error of `startup_us`.
    pub startup_error_us: f64,
    /// Rate of the remaining bytes, 10^6 per second.
    pub mb_s: f64,
    /// Standard error of `mb_s`.
    pub mb_s_error: f64,
    /// Largest relative deviation of a measured point from the line.
    pub off: f64,
}

/// Smallest slope of a line, nanoseconds per byte.
const SLOPE_MIN_NS: f64 = 1e-4;

impl FittedLine {
    /// Fits a line through points of different lengths, by least squares of relative errors. `None` if fewer than two
    /// lengths were measured.
    pub fn through(points: &[&Point]) -> Option<Self> {
        let points: Vec<(f64, f64, f64)> = points
            .iter()
            .filter(|point| point.is_measured())
            .map(|point| (point.bytes as f64, point.ns_each.max(1.0), point.ns_error))
            .collect();
        if points.iter().all(|point| point.0 == points[0].0) {
            return None;
        }
        // Weights of 1/y^2 make the errors relative.
        let sum = |of: &dyn Fn(f64) -> f64| points.iter().map(|&(x, y, _)| of(x) / (y * y)).sum::<f64>();
        let (n, x, xx) = (sum(&|_| 1.0), sum(&|x| x), sum(&|x| x * x));
        let spread = (n * xx - x * x).max(f64::MIN_POSITIVE);
        // Both parameters are linear in the times with these factors, so their errors follow from those of the times.
        let of_slope = |at: f64, y: f64| (n * at - x) / (y * y) / spread;
        let of_startup = |at: f64, y: f64| (xx - x * at) / (y * y) / spread;
        let value = |factor: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|&(at, y, _)| factor(at, y) * y).sum::<f64>()
        };
        let error = |factor: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|&(at, y, error)| (factor(at, y) * error).powi(2)).sum::<f64>().sqrt()
        };
        let mut slope = value(&of_slope);
        let mut startup = value(&of_startup);
        if slope < SLOPE_MIN_NS {
            (slope, startup) =
                (SLOPE_MIN_NS, points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64);
        } else if startup < 0.0 {
            // Forces the line through the origin, since times are not negative.
            (slope, startup) = (x.max(f64::MIN_POSITIVE).recip() * sum(&|_| 0.0), 0.0);
            let (xy, xx) =
                points.iter().fold((0.0, 0.0), |(xy, xx), &(x, y, _)| (xy + x / y, xx + x * x / (y * y)));
            slope = slope.max(xy / xx.max(f64::MIN_POSITIVE));
        }
        let off =
            points.iter().map(|&(at, y, _)| ((startup + slope * at) / y - 1.0).abs()).fold(0.0, f64::max);
        let mb_s = 1e3 / slope;
        let is_line = startup.is_finite() && mb_s.is_finite() && rounded(mb_s) > 0.0;
        is_line.then(|| Self {
            startup_us: rounded(startup / 1e3),
            startup_error_us: rounded(error(&of_startup) / 1e3),
            mb_s: rounded(mb_s),
            mb_s_error: rounded((mb_s * error(&of_slope) / slope).min(mb_s)),
            off: rounded(off),
        })
    }

    /// The line in the planner's form.
    pub fn line(&self) -> Line {
        Line { startup_us: self.startup_us, mb_s: self.mb_s }
    }
}

/// Rounds to four significant digits, the precision of the measurement.
pub(crate) fn rounded(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::random::{splitmix64, unit_f64};

    /// Uniformly distributed in [0, 1).
    fn chance(seed: u64, number: u64) -> f64 {
        unit_f64(splitmix64(splitmix64(seed) ^ number))
    }

    /// Approximately normally distributed with a standard deviation of 1.
    fn normal(seed: u64, number: u64) -> f64 {
        (0..12).map(|part| chance(seed, number * 12 + part)).sum::<f64>() - 6.0
    }

    /// Times of a device with known figures, random noise and occasional hiccups.
    fn device(seed: u64, startup_us: f64, mb_s: f64, noise: f64, hiccups: f64) -> Vec<Point> {
        [4096u64, 65_536, 262_144, 1 << 20]
            .map(|len| {
                let ns = startup_us * 1e3 + len as f64 * 1e3 / mb_s;
                let times: Vec<u64> = (0..400)
                    .map(|n| {
                        let late = chance(seed ^ 77 ^ len, n) < hiccups;
                        let noisy = ns * (1.0 + noise * normal(seed ^ len, n)).max(0.1);
                        (noisy + if late { 200e6 } else { 0.0 }) as u64
                    })
                    .collect();
                let elapsed = times.iter().sum();
                Point::of_streams(String::new(), len, &[Stream { times, elapsed }])
            })
            .to_vec()
    }

    #[test]
    fn known_figures_are_found_within_the_stated_errors() {
        let mut within = 0;
        let runs = 200;
        for seed in 0..runs {
            let points = device(seed, 150.0, 500.0, 0.3, 0.0);
            let line = FittedLine::through(&points.iter().collect::<Vec<_>>()).unwrap();
            assert!((line.startup_us / 150.0 - 1.0).abs() < 0.2, "seed {seed}: {line:?}");
            assert!((line.mb_s / 500.0 - 1.0).abs() < 0.1, "seed {seed}: {line:?}");
            let fits = (line.startup_us - 150.0).abs() <= 2.2 * line.startup_error_us
                && (line.mb_s - 500.0).abs() <= 2.2 * line.mb_s_error;
            within += u64::from(fits);
        }
        // Each of the two figures is within 2.2 standard errors in 97 of 100 runs.
        assert!(within > runs * 88 / 100, "{within} of {runs}");
        // The stated errors are not too large either: they match the spread over the runs.
        let errors: Vec<f64> = (0..runs)
            .map(|seed| {
                let points = device(seed, 150.0, 500.0, 0.3, 0.0);
                let line = FittedLine::through(&points.iter().collect::<Vec<_>>()).unwrap();
                (line.startup_us - 150.0) / line.startup_error_us
            })
            .collect();
        let spread = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        assert!((0.8..1.3).contains(&spread), "{spread}");
    }

    #[test]
    fn outliers_are_set_aside_and_counted() {
        for seed in 0..20 {
            let points = device(seed, 150.0, 500.0, 0.1, 0.004);
            let line = FittedLine::through(&points.iter().collect::<Vec<_>>()).unwrap();
            // One request in 250 takes 200 ms more. A plain mean would be 950 us instead of 150.
            assert!((line.startup_us / 150.0 - 1.0).abs() < 0.1, "seed {seed}: {line:?}");
        }
        let aside: u64 = device(3, 150.0, 500.0, 0.1, 0.004).iter().map(|point| point.aside).sum();
        assert!(aside > 0);
        assert!(device(3, 150.0, 500.0, 0.1, 0.0).iter().all(|point| point.aside == 0));
    }

    #[test]
    fn regularly_slow_requests_are_not_outliers() {
        // As with read-ahead, every tenth request fetches the data of the next nine.
        let times: Vec<u64> = (0..2400).map(|n| if n % 10 == 0 { 1_000_000 } else { 10_000 }).collect();
        let elapsed = times.iter().sum();
        let point = Point::of_streams(String::new(), 4096, &[Stream { times, elapsed }]);
        assert_eq!(point.aside, 0);
        assert!((point.ns_each / 109_000.0 - 1.0).abs() < 0.01, "{point:?}");
        assert_eq!((point.ns_p50, point.ns_p90), (10_000, 1_000_000));
    }

    #[test]
    fn concurrent_streams_are_combined() {
        // Four streams, requests of 400 us with gaps of 50 us: a request every 112.5 us.
        let stream = Stream { times: vec![400_000; 100], elapsed: 45_000_000 };
        let point = Point::of_streams(String::new(), 4096, &vec![stream; 4]);
        assert!((point.ns_each / 112_500.0 - 1.0).abs() < 0.06, "{point:?}");
        assert_eq!((point.count, point.depth), (400, 4));
        // Requests of alternately 100 and 1900 us complete as often as requests of 1000 us.
        let uneven = |number: u64| {
            let times: Vec<u64> =
                (0..300).map(|n| if (n + number).is_multiple_of(2) { 100_000 } else { 1_900_000 }).collect();
            Stream { elapsed: times.iter().sum(), times }
        };
        let point = Point::of_streams(String::new(), 4096, &(0..8).map(uneven).collect::<Vec<_>>());
        assert!((point.ns_each / 125_000.0 - 1.0).abs() < 0.03, "{point:?}");
    }

    #[test]
    fn repetitions_of_a_busy_machine_are_noisy_and_their_median_counts() {
        let repetition = |us: u64| {
            let stream = Stream { times: vec![us * 1000; 50], elapsed: us * 50_000 };
            Point::of_streams(String::new(), 4096, &[stream])
        };
        let of = |all: &[u64]| {
            let points: Vec<Point> = all.iter().map(|us| repetition(*us)).collect();
            let each: Vec<f64> = points.iter().map(|point| point.ns_each).collect();
            (Point::of_repetitions(&points).expect("some"), is_noisy(&each))
        };
        let (quiet, noisy) = of(&[100, 104]);
        assert!(!noisy && quiet.count == 100 && (quiet.ns_each - 102_000.0).abs() < 1.0, "{quiet:?}");
        assert!(
            quiet.deviation.is_some_and(|deviation| (deviation - 1.4826 * 2.0 / 102.0).abs() < 1e-6),
            "{quiet:?}"
        );
        let (busy, noisy) = of(&[100, 180]);
        assert!(noisy && busy.ns_error > 20_000.0, "{busy:?}");
        // Two further repetitions agree with the first.
        let (again, noisy) = of(&[100, 180, 101, 99]);
        assert!(!noisy && (again.ns_each - 100_500.0).abs() < 1.0, "{again:?}");
        let (single, noisy) = of(&[100]);
        assert!(!noisy && single.deviation.is_none());
        assert_eq!(Point::of_repetitions(&[]), None);
    }

    #[test]
    fn what_was_not_measured_has_no_line() {
        let point = |bytes, ns: u64, count| {
            let stream = Stream { times: vec![ns; count], elapsed: ns * count as u64 };
            Point::of_streams(String::new(), bytes, &[stream])
        };
        let (short, long) = (point(4096, 50_000, 20), point(1 << 20, 900_000, 20));
        assert!(FittedLine::through(&[&short, &long]).is_some());
        let none = point(1 << 20, 0, 0);
        let instant = point(1 << 20, 0, 20);
        let endless = Point { ns_each: f64::INFINITY, ..long.clone() };
        let unknown = Point { ns_each: f64::NAN, ..long.clone() };
        for odd in [&none, &instant, &endless, &unknown] {
            assert!(!odd.is_measured());
            assert_eq!(FittedLine::through(&[&short, odd]), None, "{odd:?}");
        }
        assert_eq!(FittedLine::through(&[&short, &short]), None, "one length");
        assert_eq!(FittedLine::through(&[]), None);
    }

    #[test]
    fn completions_in_bursts_have_a_rate() {
        // All sixteen streams stand still for most of the time and then complete everything at once.
        let stream = |late: u64| {
            let mut times = vec![900_000_000 + late];
            times.extend([1000; 30]);
            Stream { elapsed: times.iter().sum(), times }
        };
        let streams: Vec<Stream> = (0..16).map(stream).collect();
        let point = Point::of_streams(String::new(), 4096, &streams);
        assert!(point.is_measured(), "{point:?}");
        assert!((point.ns_each / (900_030_000.0 / (16.0 * 31.0)) - 1.0).abs() < 0.1, "{point:?}");
    }

    #[test]
    fn a_device_without_startup_or_of_unlimited_speed_has_a_line() {
        let point = |bytes, ns_each| Point {
            ns_each,
            ..Point::of_streams(String::new(), bytes, &[Stream { times: vec![1], elapsed: 1 }])
        };
        let fast = [point(4096, 5000.0), point(1 << 20, 5000.0)];
        let line = FittedLine::through(&fast.iter().collect::<Vec<_>>()).unwrap();
        assert!((line.startup_us - 5.0).abs() < 0.01 && line.mb_s >= 1e6, "{line:?}");
        let bare = [point(4096, 4096.0), point(65_536, 80_000.0), point(1 << 20, 1_100_000.0)];
        let line = FittedLine::through(&bare.iter().collect::<Vec<_>>()).unwrap();
        assert!(line.startup_us < 0.2 && (900.0..1010.0).contains(&line.mb_s), "{line:?}");
    }
}

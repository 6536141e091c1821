//! From times of requests to figures with their spread.
//!
//! Requests come in batches, in their order: of one stream by equal numbers, of several by equal stretches of time in which
//! ends are counted. A batch is one observation, so that what hangs together within it (read-ahead, a queue that fills) does
//! not make the error look smaller than it is. Batches far
//! from the others (more than five standard deviations, by the median of deviations) are set aside and counted: a hiccup of
//! the system is no property of the device. The error of a mean is the standard error over the batches that are left.

use serde::{Deserialize, Serialize};
use weft_planner::figures::Line;

/// Batches that a case is cut into at most.
const BATCHES: usize = 24;
/// Requests that end in a stretch of time at least, on average.
const ENDS_MIN: usize = 12;
/// With fewer than these nothing is set aside.
const BATCHES_MIN: usize = 6;
/// From how many standard deviations on a batch is set aside.
const FENCE: f64 = 5.0;
/// And no closer than this part of the median.
const FENCE_MIN: f64 = 0.1;
/// The median of absolute deviations of a normal distribution, by its standard deviation.
const MAD: f64 = 1.4826;

/// A mean and how far it can be trusted.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Mean {
    /// The mean of what was not set aside.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Observations that were set aside.
    pub aside: usize,
}

/// The mean of observations without those far from the others.
pub fn mean(values: &[f64]) -> Mean {
    if values.is_empty() {
        return Mean::default();
    }
    let median = median(values);
    let deviation = self::median(&values.iter().map(|value| (value - median).abs()).collect::<Vec<_>>());
    let fence = (FENCE * MAD * deviation).max(FENCE_MIN * median.abs());
    let keeps = |value: &&f64| values.len() < BATCHES_MIN || (**value - median).abs() <= fence;
    let kept: Vec<f64> = values.iter().filter(keeps).copied().collect();
    let count = kept.len() as f64;
    let value = kept.iter().sum::<f64>() / count;
    let variance = kept.iter().map(|one| (one - value).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    // One observation tells nothing of its error.
    let error = if kept.len() < 2 { value.abs() } else { (variance / count).sqrt() };
    Mean { value, error, aside: values.len() - kept.len() }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Requests of one stream: what each took in nanoseconds, in their order, and all together with what lay between.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Stream {
    /// Each.
    pub times: Vec<u64>,
    /// All.
    pub elapsed: u64,
}

/// How a case went: the time from request to request over all its streams, and what single ones took.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What was asked, in words.
    pub requests: String,
    /// Length of each request.
    pub bytes: u64,
    /// Under way at a time.
    pub depth: u32,
    /// How many.
    pub count: u64,
    /// How many of them were in batches that were set aside.
    pub aside: u64,
    /// From request to request, nanoseconds.
    pub ns_each: f64,
    /// Its standard error.
    pub ns_error: f64,
    /// What a request took: a tenth took no longer, nanoseconds.
    pub ns_p10: u64,
    /// Half of them took no longer.
    pub ns_p50: u64,
    /// Nine tenths.
    pub ns_p90: u64,
}

impl Point {
    /// Of streams that ran side by side.
    pub fn of_streams(requests: String, bytes: u64, streams: &[Stream]) -> Self {
        let (mean, observations) = match streams {
            [one] => one.mean_time(),
            many => mean_between_ends(many),
        };
        let mut times: Vec<u64> = streams.iter().flat_map(|stream| &stream.times).copied().collect();
        times.sort_unstable();
        let count = times.len() as u64;
        let aside = count * mean.aside as u64 / observations.max(1) as u64;
        Self::new(requests, bytes, streams.len() as u32, (count, aside), mean, &times)
    }

    /// Of rounds, each with what a request took in it on average.
    pub fn of_rounds(requests: String, bytes: u64, depth: u32, count: u64, rounds: &[f64]) -> Self {
        let mean = mean(rounds);
        let aside = count * mean.aside as u64 / rounds.len().max(1) as u64;
        let mut times: Vec<u64> = rounds.iter().map(|round| *round as u64).collect();
        times.sort_unstable();
        Self::new(requests, bytes, depth, (count, aside), mean, &times)
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
            ns_p10: quantile(0.1),
            ns_p50: quantile(0.5),
            ns_p90: quantile(0.9),
        }
    }

    /// The same case on several targets: the mean of all, and by which part of it the one that differs most does.
    ///
    /// # Panics
    /// Without any.
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
            ns_p10: average(|point| point.ns_p10),
            ns_p50: average(|point| point.ns_p50),
            ns_p90: average(|point| point.ns_p90),
            ..points[0].clone()
        };
        (pooled, apart)
    }
}

impl Stream {
    /// By which its requests take longer together than each for itself.
    fn stretch(&self) -> f64 {
        let sum: u64 = self.times.iter().sum();
        if sum == 0 { 1.0 } else { (self.elapsed as f64 / sum as f64).max(1.0) }
    }

    /// From request to request, by batches of equal numbers; and how many batches.
    fn mean_time(&self) -> (Mean, usize) {
        let batches = self.times.len().clamp(1, BATCHES);
        let part = |batch: usize| self.times.len() * batch / batches;
        let values: Vec<f64> = (0..batches)
            .map(|batch| &self.times[part(batch)..part(batch + 1)])
            .filter(|times| !times.is_empty())
            .map(|times| times.iter().sum::<u64>() as f64 * self.stretch() / times.len() as f64)
            .collect();
        (mean(&values), values.len())
    }
}

/// From end to end over streams that began together, by stretches of equal time while all of them ran; and how many
/// stretches. Ends are counted because a mean of what single requests take says nothing of how many end at a time.
fn mean_between_ends(streams: &[Stream]) -> (Mean, usize) {
    let ran: Vec<&Stream> = streams.iter().filter(|stream| !stream.times.is_empty()).collect();
    let until = ran.iter().map(|stream| stream.elapsed).min().unwrap_or(0) as f64;
    let mut ends = Vec::new();
    for stream in ran {
        let (stretch, mut at) = (stream.stretch(), 0.0);
        for time in &stream.times {
            at += *time as f64 * stretch;
            ends.push(at);
        }
    }
    ends.retain(|end| *end <= until * (1.0 + 1e-9));
    if ends.is_empty() || until <= 0.0 {
        return (Mean::default(), 0);
    }
    let stretches = (ends.len() / ENDS_MIN).clamp(1, BATCHES);
    let mut counts = vec![0.0; stretches];
    for end in ends {
        counts[((end / until * stretches as f64) as usize).min(stretches - 1)] += 1.0;
    }
    let rate = mean(&counts);
    let each = until / stretches as f64 / rate.value.max(f64::MIN_POSITIVE);
    (
        Mean { value: each, error: each * rate.error / rate.value.max(f64::MIN_POSITIVE), aside: rate.aside },
        stretches,
    )
}

/// A line over the lengths of requests, and how far it can be trusted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FittedLine {
    /// Of a request without bytes, microseconds.
    pub startup_us: f64,
    /// Standard error of that.
    pub startup_error_us: f64,
    /// Of further bytes, 10^6 per second.
    pub mb_s: f64,
    /// Standard error of that.
    pub mb_s_error: f64,
    /// By which part of what was measured the line is off, at most.
    pub off: f64,
}

/// The least slope of a line, nanoseconds for each byte: faster is nothing.
const SLOPE_MIN: f64 = 1e-4;

impl FittedLine {
    /// Through points of different lengths, by the least squares of relative errors.
    pub fn through(points: &[&Point]) -> Self {
        let points: Vec<(f64, f64, f64)> =
            points.iter().map(|point| (point.bytes as f64, point.ns_each.max(1.0), point.ns_error)).collect();
        // With weights of 1/y^2 the errors are relative.
        let sum = |of: &dyn Fn(f64) -> f64| points.iter().map(|&(x, y, _)| of(x) / (y * y)).sum::<f64>();
        let (n, x, xx) = (sum(&|_| 1.0), sum(&|x| x), sum(&|x| x * x));
        let spread = (n * xx - x * x).max(f64::MIN_POSITIVE);
        // Both figures are sums of the times with these factors, and so are their errors.
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
        if slope < SLOPE_MIN {
            (slope, startup) =
                (SLOPE_MIN, points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64);
        } else if startup < 0.0 {
            // Through the beginning: nothing takes less than no time.
            (slope, startup) = (x.max(f64::MIN_POSITIVE).recip() * sum(&|_| 0.0), 0.0);
            let (xy, xx) =
                points.iter().fold((0.0, 0.0), |(xy, xx), &(x, y, _)| (xy + x / y, xx + x * x / (y * y)));
            slope = slope.max(xy / xx.max(f64::MIN_POSITIVE));
        }
        let off =
            points.iter().map(|&(at, y, _)| ((startup + slope * at) / y - 1.0).abs()).fold(0.0, f64::max);
        let mb_s = 1e3 / slope;
        Self {
            startup_us: short(startup / 1e3),
            startup_error_us: short(error(&of_startup) / 1e3),
            mb_s: short(mb_s),
            mb_s_error: short((mb_s * error(&of_slope) / slope).min(mb_s)),
            off: short(off),
        }
    }

    /// As the planner has it.
    pub fn line(&self) -> Line {
        Line { startup_us: self.startup_us, mb_s: self.mb_s }
    }
}

/// Four figures: more would pretend to be known.
pub(crate) fn short(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::mix;

    /// Evenly distributed in [0, 1).
    fn chance(seed: u64, number: u64) -> f64 {
        (mix(mix(seed) ^ number) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normally distributed, with a standard deviation of 1.
    fn normal(seed: u64, number: u64) -> f64 {
        (0..12).map(|part| chance(seed, number * 12 + part)).sum::<f64>() - 6.0
    }

    /// Times of a device of known figures with noise and now and then a hiccup.
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
    fn known_figures_are_found_within_the_error_that_is_stated() {
        let mut within = 0;
        let runs = 200;
        for seed in 0..runs {
            let points = device(seed, 150.0, 500.0, 0.3, 0.0);
            let line = FittedLine::through(&points.iter().collect::<Vec<_>>());
            assert!((line.startup_us / 150.0 - 1.0).abs() < 0.2, "seed {seed}: {line:?}");
            assert!((line.mb_s / 500.0 - 1.0).abs() < 0.1, "seed {seed}: {line:?}");
            let fits = (line.startup_us - 150.0).abs() <= 2.2 * line.startup_error_us
                && (line.mb_s - 500.0).abs() <= 2.2 * line.mb_s_error;
            within += u64::from(fits);
        }
        // Each of two figures is within 2.2 errors in 97 of 100 runs.
        assert!(within > runs * 88 / 100, "{within} of {runs}");
        // And not by stating errors that are too large: the true spread over runs is what one run says.
        let errors: Vec<f64> = (0..runs)
            .map(|seed| {
                let points = device(seed, 150.0, 500.0, 0.3, 0.0);
                let line = FittedLine::through(&points.iter().collect::<Vec<_>>());
                (line.startup_us - 150.0) / line.startup_error_us
            })
            .collect();
        let spread = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        assert!((0.8..1.3).contains(&spread), "{spread}");
    }

    #[test]
    fn hiccups_are_set_aside_and_counted() {
        for seed in 0..20 {
            let points = device(seed, 150.0, 500.0, 0.1, 0.004);
            let line = FittedLine::through(&points.iter().collect::<Vec<_>>());
            // One of 250 requests takes 200 ms more: a plain mean would say 950 us instead of 150.
            assert!((line.startup_us / 150.0 - 1.0).abs() < 0.1, "seed {seed}: {line:?}");
        }
        let aside: u64 = device(3, 150.0, 500.0, 0.1, 0.004).iter().map(|point| point.aside).sum();
        assert!(aside > 0);
        assert!(device(3, 150.0, 500.0, 0.1, 0.0).iter().all(|point| point.aside == 0));
    }

    #[test]
    fn a_tenth_that_takes_long_as_a_rule_is_no_hiccup() {
        // Every tenth request fetches what the nine after it find: as reading ahead does.
        let times: Vec<u64> = (0..2400).map(|n| if n % 10 == 0 { 1_000_000 } else { 10_000 }).collect();
        let elapsed = times.iter().sum();
        let point = Point::of_streams(String::new(), 4096, &[Stream { times, elapsed }]);
        assert_eq!(point.aside, 0);
        assert!((point.ns_each / 109_000.0 - 1.0).abs() < 0.01, "{point:?}");
        assert_eq!((point.ns_p50, point.ns_p90), (10_000, 1_000_000));
    }

    #[test]
    fn streams_side_by_side_count_together() {
        // Four of them, each request takes 400 us, 50 us lie between: a request every 112.5 us.
        let stream = Stream { times: vec![400_000; 100], elapsed: 45_000_000 };
        let point = Point::of_streams(String::new(), 4096, &vec![stream; 4]);
        assert!((point.ns_each / 112_500.0 - 1.0).abs() < 0.06, "{point:?}");
        assert_eq!((point.count, point.depth), (400, 4));
        // Requests that take now 100 us, now 1900: there are as many as if each took 1000.
        let uneven = |number: u64| {
            let times: Vec<u64> =
                (0..300).map(|n| if (n + number).is_multiple_of(2) { 100_000 } else { 1_900_000 }).collect();
            Stream { elapsed: times.iter().sum(), times }
        };
        let point = Point::of_streams(String::new(), 4096, &(0..8).map(uneven).collect::<Vec<_>>());
        assert!((point.ns_each / 125_000.0 - 1.0).abs() < 0.03, "{point:?}");
    }

    #[test]
    fn a_device_without_startup_or_of_endless_speed_has_a_line() {
        let point = |bytes, ns_each| Point {
            ns_each,
            ..Point::of_streams(String::new(), bytes, &[Stream { times: vec![1], elapsed: 1 }])
        };
        let fast = [point(4096, 5000.0), point(1 << 20, 5000.0)];
        let line = FittedLine::through(&fast.iter().collect::<Vec<_>>());
        assert!((line.startup_us - 5.0).abs() < 0.01 && line.mb_s >= 1e6, "{line:?}");
        let bare = [point(4096, 4096.0), point(65_536, 80_000.0), point(1 << 20, 1_100_000.0)];
        let line = FittedLine::through(&bare.iter().collect::<Vec<_>>());
        assert!(line.startup_us < 0.2 && (900.0..1010.0).contains(&line.mb_s), "{line:?}");
    }
}

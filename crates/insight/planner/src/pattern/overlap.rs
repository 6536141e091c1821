//! Concurrency of operations over time, from operations in any order.

use weft_core::Nanos;

/// Number of time slices. For longer traces the slices double in length.
const SLICES: usize = 4096;

/// Total operation time per slice.
#[derive(Clone, Debug)]
pub struct Overlap {
    /// A slice is 2^shift nanoseconds long.
    shift: u32,
    /// First and last slice with any operation. Timestamps may have any origin.
    span: (u64, u64),
    /// Nanoseconds of operations that cover a slice partially, from the first slice on.
    partial_ns: Vec<u64>,
    /// Change in the number of operations that cover the whole slice, relative to the previous slice.
    whole_delta: Vec<i64>,
}

impl Default for Overlap {
    fn default() -> Self {
        Self { shift: 10, span: (u64::MAX, 0), partial_ns: Vec::new(), whole_delta: Vec::new() }
    }
}

impl Overlap {
    /// Adds an operation.
    pub fn add(&mut self, start: Nanos, end: Nanos) {
        let start = start.get().min(u64::MAX - 1);
        let end = end.get().max(start + 1);
        let with = |overlap: &Self| {
            let (first, last) = overlap.span;
            (first.min(start >> overlap.shift), last.max((end - 1) >> overlap.shift))
        };
        let mut span = with(self);
        while span.1 - span.0 >= SLICES as u64 {
            self.coarsen();
            span = with(self);
        }
        if !self.partial_ns.is_empty() {
            let before = (self.span.0 - span.0) as usize;
            self.partial_ns.splice(..0, std::iter::repeat_n(0, before));
            self.whole_delta.splice(..0, std::iter::repeat_n(0, before));
        }
        self.span = span;
        let len = (span.1 - span.0) as usize + 2;
        self.partial_ns.resize(len, 0);
        self.whole_delta.resize(len, 0);
        let (first, last) = (start >> self.shift, (end - 1) >> self.shift);
        let place = |slice: u64| (slice - span.0) as usize;
        let more = |part: &mut u64, time: u64| *part = part.saturating_add(time);
        if first == last {
            more(&mut self.partial_ns[place(first)], end - start);
            return;
        }
        more(&mut self.partial_ns[place(first)], ((first + 1) << self.shift) - start);
        more(&mut self.partial_ns[place(last)], end - (last << self.shift));
        self.whole_delta[place(first) + 1] += 1;
        self.whole_delta[place(last)] -= 1;
    }

    fn coarsen(&mut self) {
        let mut time = self.times();
        // Slices are aligned to multiples of their length.
        if self.span.0 % 2 == 1 && !time.is_empty() {
            time.insert(0, 0);
        }
        let sum = |pair: &[u64]| pair.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
        self.partial_ns = time.chunks(2).map(sum).collect();
        self.shift += 1;
        self.span = (self.span.0 >> 1, self.span.1 >> 1);
        self.whole_delta = vec![0; self.partial_ns.len()];
    }

    /// Nanoseconds of operations in each slice.
    fn times(&self) -> Vec<u64> {
        let mut whole = 0i64;
        let slices = self.partial_ns.iter().zip(&self.whole_delta);
        slices
            .map(|(part, step)| {
                whole += step;
                part.saturating_add((whole.max(0) as u64).saturating_mul(1 << self.shift))
            })
            .collect()
    }

    /// Mean concurrency over the busy time, and the maximum over a slice.
    pub fn concurrency(&self) -> (f64, f64) {
        let slice = (1u64 << self.shift) as f64;
        let times = self.times();
        let (mut sum, mut busy, mut most) = (0.0, 0.0, 0.0f64);
        for time in times.into_iter().filter(|time| *time > 0) {
            let at_once = time as f64 / slice;
            sum += time as f64;
            // A partially filled slice counts as busy for as long as one operation at a time would take.
            busy += slice.min(time as f64);
            most = most.max(at_once);
        }
        if busy == 0.0 { (0.0, 0.0) } else { (sum / busy, most.max(1.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrency_does_not_depend_on_the_order_of_operations() {
        let mut all: Vec<(u64, u64)> =
            (0..4_000u64).map(|n| ((n / 4) * 1_000_000, (n / 4 + 1) * 1_000_000)).collect();
        let concurrency = |all: &[(u64, u64)]| {
            let mut overlap = Overlap::default();
            all.iter().for_each(|&(start, end)| overlap.add(Nanos(start), Nanos(end)));
            overlap.concurrency()
        };
        let (mean, most) = concurrency(&all);
        assert!((mean - 4.0).abs() < 0.01 && (most - 4.0).abs() < 0.05, "{mean} {most}");
        all.reverse();
        assert_eq!(concurrency(&all), (mean, most));
        // From the middle outwards, and with wall-clock timestamps.
        all.sort_by_key(|(start, _)| start.abs_diff(500_000_000));
        assert_eq!(concurrency(&all), (mean, most));
        all.iter_mut().for_each(|(start, end)| (*start, *end) = (*start + EPOCH, *end + EPOCH));
        let (late_mean, late_most) = concurrency(&all);
        assert!(
            (late_mean - mean).abs() < 0.02 && (late_most - most).abs() < 0.05,
            "{late_mean} {late_most}"
        );
    }

    /// Compares with the exact sum over all operations in each slice.
    #[test]
    fn slices_have_the_time_of_operations_in_any_order() {
        for seed in 0..200u64 {
            let mut state = seed;
            let mut any = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let base = [0, EPOCH, u64::MAX - (1 << 32)][any(3) as usize];
            let reach = 1u64 << (8 + any(24));
            let mut overlap = Overlap::default();
            let mut all = Vec::new();
            for _ in 0..1 + any(40) {
                let start = base + any(reach);
                let end = start + any(reach);
                overlap.add(Nanos(start), Nanos(end));
                all.push((start, end.max(start + 1)));
            }
            let (first, width) = (overlap.span.0 << overlap.shift, 1u128 << overlap.shift);
            for (slice, found) in overlap.times().into_iter().enumerate() {
                let low = u128::from(first) + slice as u128 * width;
                let within = |at: u64| u128::from(at).clamp(low, low + width);
                let expected: u128 = all.iter().map(|(start, end)| within(*end) - within(*start)).sum();
                assert_eq!(u128::from(found), expected, "seed {seed}, slice {slice}");
            }
            let whole: u128 = all.iter().map(|(start, end)| u128::from(end - start)).sum();
            assert_eq!(overlap.times().into_iter().map(u128::from).sum::<u128>(), whole, "seed {seed}");
            assert!(overlap.partial_ns.len() <= SLICES + 2);
        }
    }

    const EPOCH: u64 = 1_766_000_000_000_000_000;

    #[test]
    fn sequential_operations_have_concurrency_one() {
        let mut overlap = Overlap::default();
        for n in 0..10_000u64 {
            overlap.add(Nanos(n * 3_000_000), Nanos(n * 3_000_000 + 1_500_000));
        }
        let (mean, most) = overlap.concurrency();
        assert!((0.99..1.01).contains(&mean) && (0.99..1.01).contains(&most), "{mean} {most}");
        assert_eq!(Overlap::default().concurrency(), (0.0, 0.0));
    }
}

//! How many operations are under way at a time, whatever the order in which they are told.

use weft_core::Nanos;

/// Slices of time; when a trace is longer, each becomes twice as long.
const SLICES: usize = 4096;

/// Time in operations by slices of time.
#[derive(Clone, Debug)]
pub struct Overlap {
    /// A slice is 2^shift nanoseconds long.
    shift: u32,
    /// Nanoseconds in operations that cover a slice in part.
    part: Vec<u64>,
    /// How many more operations cover all of a slice than all of the slice before.
    step: Vec<i64>,
}

impl Default for Overlap {
    fn default() -> Self {
        Self { shift: 10, part: Vec::new(), step: Vec::new() }
    }
}

impl Overlap {
    /// Counts an operation.
    pub fn add(&mut self, start: Nanos, end: Nanos) {
        let start = start.get().min(u64::MAX - 1);
        let end = end.get().max(start + 1);
        while (end - 1) >> self.shift >= SLICES as u64 {
            self.coarsen();
        }
        let (first, last) = ((start >> self.shift) as usize, ((end - 1) >> self.shift) as usize);
        if self.part.len() <= last + 1 {
            self.part.resize(last + 2, 0);
            self.step.resize(last + 2, 0);
        }
        let more = |part: &mut u64, time: u64| *part = part.saturating_add(time);
        if first == last {
            more(&mut self.part[first], end - start);
            return;
        }
        more(&mut self.part[first], ((first as u64 + 1) << self.shift) - start);
        more(&mut self.part[last], end - ((last as u64) << self.shift));
        self.step[first + 1] += 1;
        self.step[last] -= 1;
    }

    fn coarsen(&mut self) {
        let time = self.times();
        self.shift += 1;
        let sum = |pair: &[u64]| pair.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
        self.part = time.chunks(2).map(sum).collect();
        self.part.push(0);
        self.step = vec![0; self.part.len()];
    }

    /// Nanoseconds in operations of each slice.
    fn times(&self) -> Vec<u64> {
        let mut whole = 0i64;
        let slices = self.part.iter().zip(&self.step);
        slices
            .map(|(part, step)| {
                whole += step;
                part.saturating_add((whole.max(0) as u64).saturating_mul(1 << self.shift))
            })
            .collect()
    }

    /// Operations under way at a time: the mean over the time in which there were any, and the most over a slice.
    pub fn concurrency(&self) -> (f64, f64) {
        let slice = (1u64 << self.shift) as f64;
        let times = self.times();
        let (mut sum, mut busy, mut most) = (0.0, 0.0, 0.0f64);
        for time in times.into_iter().filter(|time| *time > 0) {
            let at_once = time as f64 / slice;
            sum += time as f64;
            // A slice that is not full was busy as long as one operation at a time would have been.
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
    fn four_at_a_time_however_they_are_told() {
        let mut all: Vec<(u64, u64)> =
            (0..4_000u64).map(|n| ((n / 4) * 1_000_000, (n / 4 + 1) * 1_000_000)).collect();
        let told = |all: &[(u64, u64)]| {
            let mut overlap = Overlap::default();
            all.iter().for_each(|&(start, end)| overlap.add(Nanos(start), Nanos(end)));
            overlap.concurrency()
        };
        let (mean, most) = told(&all);
        assert!((mean - 4.0).abs() < 0.01 && (most - 4.0).abs() < 0.05, "{mean} {most}");
        all.reverse();
        assert_eq!(told(&all), (mean, most));
    }

    #[test]
    fn one_after_another_is_one() {
        let mut overlap = Overlap::default();
        for n in 0..10_000u64 {
            overlap.add(Nanos(n * 3_000_000), Nanos(n * 3_000_000 + 1_500_000));
        }
        let (mean, most) = overlap.concurrency();
        assert!((0.99..1.01).contains(&mean) && (0.99..1.01).contains(&most), "{mean} {most}");
        assert_eq!(Overlap::default().concurrency(), (0.0, 0.0));
    }
}

//! Histogram of durations.

use crate::Nanos;
use serde::{Deserialize, Serialize};

/// Binary logarithm of the number of classes per doubling; a class is at most 1/8 of its start wide.
const FINE_BITS: u32 = 3;

/// Counts of durations in classes at most an eighth wide, which is the precision of quantiles.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts in ascending order of classes. Sparse, because most histograms have few classes.
    #[serde(with = "as_map")]
    classes: Vec<(u16, u64)>,
    count: u64,
    sum: u128,
    max: u64,
}

fn class(time: u64) -> u16 {
    if time < 1 << FINE_BITS {
        return time as u16;
    }
    let shift = time.ilog2() - FINE_BITS;
    ((u64::from(shift + 1) << FINE_BITS) + ((time >> shift) & ((1 << FINE_BITS) - 1))) as u16
}

/// Returns the longest duration in a class.
fn last(class: u16) -> u64 {
    let (octave, fine) = (class >> FINE_BITS, u128::from(class & ((1 << FINE_BITS) - 1)));
    match octave {
        0 => fine as u64,
        _ => ((((1 << FINE_BITS) + fine + 1) << (octave - 1)) - 1) as u64,
    }
}

impl Histogram {
    fn count_class(&mut self, class: u16, count: u64) {
        match self.classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => self.classes[at].1 += count,
            Err(at) => {
                if self.classes.is_empty() {
                    self.classes.reserve_exact(1);
                }
                self.classes.insert(at, (class, count));
            }
        }
    }

    /// Adds a duration.
    pub fn add(&mut self, time: Nanos) {
        self.count_class(class(time.0), 1);
        self.count += 1;
        self.sum += u128::from(time.0);
        self.max = self.max.max(time.0);
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.classes.iter().for_each(|(class, count)| self.count_class(*class, *count));
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean; zero if empty.
    pub fn mean(&self) -> Nanos {
        Nanos((self.sum / u128::from(self.count.max(1))) as u64)
    }

    /// Returns the maximum.
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// Returns the duration that `share` (0 to 1) of all durations do not exceed, at most an eighth too long; zero if
    /// empty.
    pub fn quantile(&self, share: f64) -> Nanos {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for &(class, count) in &self.classes {
            seen += count;
            if seen >= rank {
                return Nanos(last(class).min(self.max));
            }
        }
        Nanos::ZERO
    }
}

/// Serializes classes as a map.
mod as_map {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<S: Serializer>(classes: &[(u16, u64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(classes.iter().map(|(class, count)| (class, count)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u16, u64)>, D::Error> {
        BTreeMap::deserialize(deserializer).map(|classes| classes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_contiguous() {
        let mut before = None;
        for time in (0..5000).chain([u64::MAX / 2, u64::MAX - 1, u64::MAX]) {
            let class = class(time);
            assert!(time <= last(class) && last(class) - time <= time / 8 + 1, "{time} in {class}");
            assert!(before.is_none_or(|before| before <= class));
            before = Some(class);
        }
        assert!((1..400).all(|it| class(last(it)) == it && class(last(it) + 1) == it + 1));
    }

    #[test]
    fn a_merged_histogram_equals_a_single_one() {
        let (mut all, mut parts) = (Histogram::default(), [Histogram::default(), Histogram::default()]);
        for time in (0..3000).map(|n| Nanos(n * n)) {
            all.add(time);
            parts[(time.0 % 2) as usize].add(time);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        assert_eq!(merged, all);
        let written = serde_json::to_string(&all).expect("JSON");
        assert!(written.contains(r#""classes":{"0":1,"1":1,"#), "{written}");
        assert_eq!(serde_json::from_str::<Histogram>(&written).expect("as it was written"), all);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_long() {
        let mut times = Histogram::default();
        assert_eq!((times.quantile(0.5), times.mean()), (Nanos(0), Nanos(0)));
        (1..=1000).for_each(|time| times.add(Nanos(time * 1000)));
        assert_eq!((times.count(), times.mean(), times.max()), (1000, Nanos(500_500), Nanos(1_000_000)));
        for (share, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000), (0.0, 1_000)] {
            let found = times.quantile(share).0;
            assert!(found >= exact && found - exact <= exact / 8, "{share}: {found}");
        }
    }
}

//! Kinds of request, and their offsets in the file.

use serde::{Deserialize, Serialize};

/// Maximum number of kinds with an exact length. Further lengths are grouped.
const KINDS_MAX: usize = 48;
/// Slices of a file for offset histograms.
const SLICES: u64 = 256;
/// Initial slice width where requests have no common length, bytes.
const SLICE_WIDTH_MIN: u64 = 65_536;

/// A histogram of offsets.
#[derive(Clone, PartialEq, Debug)]
pub struct OffsetHistogram {
    /// A slice is `unit << shift` bytes.
    unit: u64,
    shift: u32,
    counts: Vec<u64>,
    total: u64,
    /// One past the largest offset.
    end: u64,
}

impl Default for OffsetHistogram {
    fn default() -> Self {
        Self::with_unit(SLICE_WIDTH_MIN)
    }
}

impl OffsetHistogram {
    /// A histogram whose slices are multiples of `unit` bytes. If requests of `unit` bytes fill the file, counts before
    /// a request boundary are exact.
    pub fn with_unit(unit: u64) -> Self {
        Self { unit: unit.max(1), shift: 0, counts: Vec::new(), total: 0, end: 0 }
    }

    fn slice(&self, offset: u64) -> u64 {
        (offset / self.unit) >> self.shift
    }

    /// First byte of a slice.
    fn begin(&self, slice: u64) -> u64 {
        (slice << self.shift).saturating_mul(self.unit)
    }

    /// Adds an offset with a weight.
    pub fn add(&mut self, offset: u64, weight: u64) {
        while self.slice(offset) >= SLICES {
            self.shift += 1;
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let slice = self.slice(offset) as usize;
        if self.counts.len() <= slice {
            self.counts.resize(slice + 1, 0);
        }
        // Saturates, so that partial sums never exceed the total.
        let weight = weight.min(u64::MAX - self.total);
        self.counts[slice] += weight;
        self.total += weight;
        self.end = self.end.max(offset.saturating_add(1));
    }

    /// Total weight.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Weight before `offset`. A partial slice counts proportionally.
    pub fn count_before(&self, offset: u64) -> f64 {
        if offset >= self.end {
            return self.total as f64;
        }
        let slice = self.slice(offset);
        let first = self.begin(slice);
        let whole: u64 = self.counts.iter().take(slice as usize).sum();
        let within = (offset - first) as f64;
        // The last slice only extends to the largest offset.
        let width =
            (self.begin(slice + 1) - first).min((self.end - 1 - first).saturating_add(self.unit)) as f64;
        let slice = slice as usize;
        let part = self.counts.get(slice).copied().unwrap_or(0) as f64 * (within / width).min(1.0);
        whole as f64 + part
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (slice, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(other.begin(slice as u64), *count);
        }
        self.end = self.end.max(other.end);
    }

    /// Non-empty slices: first byte, bytes, weight.
    pub fn slices(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let slices = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        slices.map(|(slice, count)| (self.begin(slice as u64), self.begin(1), *count))
    }
}

/// Transfer direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// Requests with equal cost.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestKind {
    /// Read or write.
    pub direction: Direction,
    /// Whether they begin where the rank's previous request ended.
    pub sequential: bool,
    /// Length in bytes; the mean where several lengths are grouped.
    pub len: f64,
    /// Their offsets.
    pub offsets: OffsetHistogram,
}

impl RequestKind {
    /// Number of requests.
    pub fn count(&self) -> u64 {
        self.offsets.total()
    }

    /// Total bytes.
    pub fn bytes(&self) -> f64 {
        self.len * self.count() as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum LengthClass {
    Exact(u64),
    /// At least this many bytes, and less than twice as many; a power of two.
    PowerOfTwo(u64),
}

#[derive(Clone, Debug)]
struct Entry {
    direction: Direction,
    sequential: bool,
    length: LengthClass,
    bytes: u128,
    offsets: OffsetHistogram,
}

/// Counts of all requests by kind, in bounded memory.
#[derive(Clone, Default, Debug)]
pub struct RequestMix {
    entries: Vec<Entry>,
    /// Index of the entry used last.
    latest: usize,
}

impl RequestMix {
    /// Counts a request.
    pub fn add(&mut self, direction: Direction, sequential: bool, offset: u64, len: u64) {
        let same = |entry: &Entry, length| {
            entry.length == length && entry.direction == direction && entry.sequential == sequential
        };
        let exact = LengthClass::Exact(len);
        let at = if self.entries.get(self.latest).is_some_and(|entry| same(entry, exact)) {
            self.latest
        } else {
            let found = self.entries.iter().position(|entry| same(entry, exact));
            let exacts =
                self.entries.iter().filter(|entry| matches!(entry.length, LengthClass::Exact(_))).count();
            let length = if found.is_some() || exacts < KINDS_MAX {
                exact
            } else {
                LengthClass::PowerOfTwo(len.max(1).ilog2().into())
            };
            let found = found.or_else(|| self.entries.iter().position(|entry| same(entry, length)));
            found.unwrap_or_else(|| {
                let offsets = match length {
                    LengthClass::Exact(len) => OffsetHistogram::with_unit(len),
                    LengthClass::PowerOfTwo(_) => OffsetHistogram::default(),
                };
                self.entries.push(Entry { direction, sequential, length, bytes: 0, offsets });
                self.entries.len() - 1
            })
        };
        self.latest = at;
        self.entries[at].bytes += u128::from(len);
        self.entries[at].offsets.add(offset, 1);
    }

    /// All kinds, most bytes first.
    pub fn kinds(&self) -> Vec<RequestKind> {
        let mut kinds: Vec<RequestKind> = self
            .entries
            .iter()
            .map(|entry| RequestKind {
                direction: entry.direction,
                sequential: entry.sequential,
                len: entry.bytes as f64 / entry.offsets.total().max(1) as f64,
                offsets: entry.offsets.clone(),
            })
            .collect();
        kinds.sort_by(|a, b| b.bytes().total_cmp(&a.bytes()).then(b.len.total_cmp(&a.len)));
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_before_an_offset_are_exact_for_equal_requests() {
        for (count, len) in [(32_768u64, 524_288u64), (20, 40_960), (1_000, 47_008), (1, 7)] {
            let mut offsets = OffsetHistogram::with_unit(len);
            (0..count).for_each(|n| offsets.add(n * len, 1));
            for part in [0u64, 1, 5, 19, 20, 999, 16_384, 20_000, 32_767, 32_768, 40_000] {
                let found = offsets.count_before(part * len);
                assert!((found - part.min(count) as f64).abs() < 1e-6, "{part}: {found}");
            }
            assert_eq!(offsets.total(), count);
            assert_eq!(offsets.slices().map(|(.., count)| count).sum::<u64>(), count);
        }
    }

    #[test]
    fn lengths_beyond_the_limit_are_grouped_without_loss() {
        let mut mix = RequestMix::default();
        let mut bytes = 0u64;
        for len in 1..2_000u64 {
            mix.add(Direction::Write, len % 2 == 0, len, len);
            mix.add(Direction::Read, false, len, 4096);
            bytes += len + 4096;
        }
        let kinds = mix.kinds();
        assert!(kinds.len() <= KINDS_MAX + 128, "{}", kinds.len());
        assert_eq!(kinds.iter().map(RequestKind::count).sum::<u64>(), 2 * 1_999);
        let sum: f64 = kinds.iter().map(RequestKind::bytes).sum();
        assert!((sum - bytes as f64).abs() < 1.0, "{sum} {bytes}");
        assert_eq!((kinds[0].direction, kinds[0].len, kinds[0].count()), (Direction::Read, 4096.0, 1_999));
    }
}

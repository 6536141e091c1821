//! Which requests there are, and where in the file they lie.

use serde::{Deserialize, Serialize};

/// Kinds of request that are kept apart by their exact length; further lengths share kinds.
const KINDS_MAX: usize = 48;
/// Slices of a file by which places are counted.
const SLICES: u64 = 256;
/// The first width of a slice where requests have no common length.
const SLICE_MIN: u64 = 65_536;

/// Requests by where they begin.
#[derive(Clone, PartialEq, Debug)]
pub struct Places {
    /// A slice is 2^shift times so many bytes.
    unit: u64,
    shift: u32,
    counts: Vec<u64>,
    all: u64,
    /// One past the largest offset.
    end: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self::by(SLICE_MIN)
    }
}

impl Places {
    /// In slices of a multiple of `unit` bytes. Of requests that fill the file, each of `unit` bytes, it is known
    /// exactly how many lie before a boundary between two of them.
    pub fn by(unit: u64) -> Self {
        Self { unit: unit.max(1), shift: 0, counts: Vec::new(), all: 0, end: 0 }
    }

    fn slice(&self, offset: u64) -> u64 {
        (offset / self.unit) >> self.shift
    }

    /// Where a slice begins.
    fn begin(&self, slice: u64) -> u64 {
        (slice << self.shift).saturating_mul(self.unit)
    }

    /// Counts what begins at `offset`, `weight` times.
    pub fn add(&mut self, offset: u64, weight: u64) {
        while self.slice(offset) >= SLICES {
            self.shift += 1;
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let slice = self.slice(offset) as usize;
        if self.counts.len() <= slice {
            self.counts.resize(slice + 1, 0);
        }
        // Sums of some never exceed all.
        let weight = weight.min(u64::MAX - self.all);
        self.counts[slice] += weight;
        self.all += weight;
        self.end = self.end.max(offset.saturating_add(1));
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// How many begin before `offset`, a slice in part counting as evenly filled.
    pub fn before(&self, offset: u64) -> f64 {
        if offset >= self.end {
            return self.all as f64;
        }
        let slice = self.slice(offset);
        let first = self.begin(slice);
        let whole: u64 = self.counts.iter().take(slice as usize).sum();
        let within = (offset - first) as f64;
        // The last slice is filled as far as anything was seen in it.
        let width =
            (self.begin(slice + 1) - first).min((self.end - 1 - first).saturating_add(self.unit)) as f64;
        let slice = slice as usize;
        let part = self.counts.get(slice).copied().unwrap_or(0) as f64 * (within / width).min(1.0);
        whole as f64 + part
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Self) {
        for (slice, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(other.begin(slice as u64), *count);
        }
        self.end = self.end.max(other.end);
    }

    /// The slices that have any: first byte, bytes, count.
    pub fn slices(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let slices = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        slices.map(|(slice, count)| (self.begin(slice as u64), self.begin(1), *count))
    }
}

/// A direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the file.
    Read,
    /// To it.
    Write,
}

/// Requests that cost the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// Which way.
    pub direction: Direction,
    /// Whether they begin where their rank's request before ended.
    pub sequential: bool,
    /// Bytes of each, the mean where lengths share a kind.
    pub len: f64,
    /// Where they begin.
    pub places: Places,
}

impl Kind {
    /// How many.
    pub fn count(&self) -> u64 {
        self.places.all()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> f64 {
        self.len * self.count() as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Length {
    Exact(u64),
    /// From so many bytes up to twice as many.
    About(u64),
}

#[derive(Clone, Debug)]
struct Entry {
    direction: Direction,
    sequential: bool,
    length: Length,
    bytes: u128,
    places: Places,
}

/// All requests by kind, in memory that does not grow.
#[derive(Clone, Default, Debug)]
pub struct Mix {
    entries: Vec<Entry>,
    /// The entry that was used last.
    latest: usize,
}

impl Mix {
    /// Counts a request.
    pub fn add(&mut self, direction: Direction, sequential: bool, offset: u64, len: u64) {
        let same = |entry: &Entry, length| {
            entry.length == length && entry.direction == direction && entry.sequential == sequential
        };
        let exact = Length::Exact(len);
        let at = if self.entries.get(self.latest).is_some_and(|entry| same(entry, exact)) {
            self.latest
        } else {
            let found = self.entries.iter().position(|entry| same(entry, exact));
            let exacts = self.entries.iter().filter(|entry| matches!(entry.length, Length::Exact(_))).count();
            let length = if found.is_some() || exacts < KINDS_MAX {
                exact
            } else {
                Length::About(len.max(1).ilog2().into())
            };
            let found = found.or_else(|| self.entries.iter().position(|entry| same(entry, length)));
            found.unwrap_or_else(|| {
                let places = match length {
                    Length::Exact(len) => Places::by(len),
                    Length::About(_) => Places::default(),
                };
                self.entries.push(Entry { direction, sequential, length, bytes: 0, places });
                self.entries.len() - 1
            })
        };
        self.latest = at;
        self.entries[at].bytes += u128::from(len);
        self.entries[at].places.add(offset, 1);
    }

    /// The kinds, those with the most bytes first.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self
            .entries
            .iter()
            .map(|entry| Kind {
                direction: entry.direction,
                sequential: entry.sequential,
                len: entry.bytes as f64 / entry.places.all().max(1) as f64,
                places: entry.places.clone(),
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
    fn places_before_an_offset_are_exact_where_requests_are_even() {
        for (count, len) in [(32_768u64, 524_288u64), (20, 40_960), (1_000, 47_008), (1, 7)] {
            let mut places = Places::by(len);
            (0..count).for_each(|n| places.add(n * len, 1));
            for part in [0u64, 1, 5, 19, 20, 999, 16_384, 20_000, 32_767, 32_768, 40_000] {
                let found = places.before(part * len);
                assert!((found - part.min(count) as f64).abs() < 1e-6, "{part}: {found}");
            }
            assert_eq!(places.all(), count);
            assert_eq!(places.slices().map(|(.., count)| count).sum::<u64>(), count);
        }
    }

    #[test]
    fn lengths_beyond_the_bound_share_kinds_and_lose_nothing() {
        let mut mix = Mix::default();
        let mut bytes = 0u64;
        for len in 1..2_000u64 {
            mix.add(Direction::Write, len % 2 == 0, len, len);
            mix.add(Direction::Read, false, len, 4096);
            bytes += len + 4096;
        }
        let kinds = mix.kinds();
        assert!(kinds.len() <= KINDS_MAX + 128, "{}", kinds.len());
        assert_eq!(kinds.iter().map(Kind::count).sum::<u64>(), 2 * 1_999);
        let sum: f64 = kinds.iter().map(Kind::bytes).sum();
        assert!((sum - bytes as f64).abs() < 1.0, "{sum} {bytes}");
        assert_eq!((kinds[0].direction, kinds[0].len, kinds[0].count()), (Direction::Read, 4096.0, 1_999));
    }
}

//! Sets of bytes as sorted disjoint ranges.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A non-empty half-open range of bytes. The owner defines the file and the origin of offsets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// All bytes. For a range from 0, "to the end of the file, wherever that will be".
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    /// Returns `start..end`; `None` if it is empty.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start < end { Some(Self { start, end }) } else { None }
    }

    /// Returns `len` bytes from `start`, clipped at 2^64 - 1; `None` if empty.
    pub const fn with_len(start: u64, len: u64) -> Option<Self> {
        Self::new(start, start.saturating_add(len))
    }

    /// Returns the range from `start` to 2^64 - 1; `None` if empty.
    pub const fn from(start: u64) -> Option<Self> {
        Self::new(start, u64::MAX)
    }

    /// Converts `l_start` (from the start of the file) and `l_len` of a `struct flock`. A length of 0 reaches to the
    /// end; a negative one lies before the start.
    ///
    /// # Errors
    /// [`RangeError`] with the errno that POSIX specifies.
    pub fn from_posix(start: i64, len: i64) -> Result<Self, RangeError> {
        let (first, last) = match len {
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(len - 1).ok_or(RangeError::Overflow)?),
            _ => (start.checked_add(len).ok_or(RangeError::Invalid)?, start.saturating_sub(1)),
        };
        Self::from_inclusive(first, last)
    }

    /// Converts the first and last byte, as in FUSE; a last byte of 2^63 - 1 means "to the end".
    ///
    /// # Errors
    /// [`RangeError::Invalid`] for a negative first byte, or a last byte before the first.
    pub fn from_inclusive(first: i64, last: i64) -> Result<Self, RangeError> {
        let start = u64::try_from(first).map_err(|_| RangeError::Invalid)?;
        let end = match u64::try_from(last).map_err(|_| RangeError::Invalid)? {
            last if last >= i64::MAX as u64 => u64::MAX,
            last => last + 1,
        };
        Self::new(start, end).ok_or(RangeError::Invalid)
    }

    /// Returns `l_start` and `l_len` of a `struct flock` with SEEK_SET; a range to the end has length 0.
    pub const fn to_posix(self) -> (i64, i64) {
        const MAX: u64 = i64::MAX as u64;
        let start = if self.start > MAX { i64::MAX } else { self.start as i64 };
        (start, if self.end > MAX { 0 } else { (self.end - self.start) as i64 })
    }

    /// Returns the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns one past the last byte; 2^64 - 1 means "to the end".
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the number of bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the ranges share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns true if every byte of `other` is in this range.
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns the bytes that are in both ranges.
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// Error: a `struct flock` does not describe a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RangeError {
    /// The range begins before the file or ends before it begins (EINVAL).
    #[error("the range begins before byte 0 or ends before it begins")]
    Invalid,
    /// The range ends behind the largest file offset (EOVERFLOW).
    #[error("the range ends behind byte 2^63 - 1")]
    Overflow,
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "ByteRange")]
struct RawRange {
    start: u64,
    end: u64,
}

impl Serialize for ByteRange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawRange { start: self.start, end: self.end }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ByteRange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RawRange { start, end } = RawRange::deserialize(deserializer)?;
        Self::new(start, end)
            .ok_or_else(|| serde::de::Error::custom(format_args!("empty byte range {start}..{end}")))
    }
}

/// A set of bytes. Adjacent ranges are merged, so equal sets are equal values.
///
/// Operations take logarithmic time in the number of ranges, plus one step per range that they touch.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeSet {
    /// Start to end; disjoint, with at least one byte between two ranges.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns the empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// Adds every byte of `range`. Returns the number of bytes that were not in the set.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        let ByteRange { mut start, mut end } = range;
        let mut old_bytes = 0;
        if let Some((&s, &e)) = self.ranges.range(..start).next_back()
            && e >= start
        {
            start = s;
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&s);
            old_bytes += e - s;
            end = end.max(e);
        }
        self.ranges.insert(start, end);
        end - start - old_bytes
    }

    /// Removes every byte of `range`. Returns the number of bytes that were in the set.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        let mut removed_bytes = 0;
        if let Some((&s, &e)) = self.ranges.range(..range.start).next_back()
            && e > range.start
        {
            self.ranges.insert(s, range.start);
            removed_bytes += e.min(range.end) - range.start;
            if e > range.end {
                self.ranges.insert(range.end, e);
                return removed_bytes;
            }
        }
        while let Some((&s, &e)) = self.ranges.range(range.start..range.end).next() {
            self.ranges.remove(&s);
            removed_bytes += e.min(range.end) - s;
            if e > range.end {
                self.ranges.insert(range.end, e);
            }
        }
        removed_bytes
    }

    /// Returns the first bytes of the set at or after `from`, up to the end of their range.
    pub fn next_from(&self, from: u64) -> Option<ByteRange> {
        let before = self.ranges.range(..=from).next_back().filter(|&(_, &end)| end > from);
        let (&start, &end) = before.or_else(|| self.ranges.range(from..).next())?;
        Some(ByteRange { start: start.max(from), end })
    }

    /// Iterates over the ranges that share a byte with `range`, in order and unclipped.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        // At most one range that starts before `range` can reach into it.
        let before = self.ranges.range(..range.start).next_back().filter(move |&(_, &e)| e > range.start);
        let inside = self.ranges.range(range.start..range.end);
        before.into_iter().chain(inside).map(|(&start, &end)| ByteRange { start, end })
    }

    /// Returns true if any byte of `range` is in the set.
    pub fn overlaps(&self, range: ByteRange) -> bool {
        self.overlapping(range).next().is_some()
    }

    /// Returns true if every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        self.overlapping(range).next().is_some_and(|found| found.contains(range))
    }

    /// Iterates over the parts of `range` that are not in the set, in order.
    pub fn gaps(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let mut from = range.start;
        let ends = self.overlapping(range).map(|r| (r.start, r.end)).chain([(range.end, range.end)]);
        ends.filter_map(move |(start, end)| {
            let gap = ByteRange::new(from, start);
            from = end;
            gap
        })
    }

    /// Iterates over all ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.iter().map(|(&start, &end)| ByteRange { start, end })
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.iter().map(ByteRange::len).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

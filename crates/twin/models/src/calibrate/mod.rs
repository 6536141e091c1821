//! Fits a device profile to measurements of a real path.
//!
//! [`plan`] lists the requests to measure. [`predict`] runs the same requests on a model. [`fit`] searches for the
//! parameters with which the model agrees with the measurements.

mod fit;
mod replay;

pub use fit::{Fit, fit};
pub use replay::predict;

use weft_core::{ByteLen, LocalOffset};

/// Access pattern of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPattern {
    /// Consecutive offsets.
    Sequential,
    /// Random offsets.
    Random,
    /// Alternates between two regions at this distance and moves forward in both.
    Apart(ByteLen),
}

/// Operations of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads past the page cache.
    Read(AccessPattern),
    /// Writes past the page cache.
    Write(AccessPattern),
    /// Buffered writes, each followed by a sync.
    Sync,
    /// Buffered writes without a sync.
    Copy,
}

/// A series of equal requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Name in tables.
    pub name: String,
    /// Operations.
    pub work: Work,
    /// Length of each request.
    pub len: ByteLen,
    /// Number of concurrent requests.
    pub depth: u32,
    /// Number of requests.
    pub count: u32,
    /// Whether the case is excluded from fitting. Such cases show how well the model predicts.
    pub is_held_out: bool,
}

/// Measurement of a case.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The measured case.
    pub case: Case,
    /// Duration of each request in nanoseconds, ascending.
    pub times: Vec<u64>,
    /// Duration of the whole case in nanoseconds.
    pub elapsed: u64,
}

impl Case {
    /// Returns the offsets of the requests in a file of `span` bytes.
    pub fn offsets(&self, span: ByteLen) -> impl Iterator<Item = LocalOffset> + use<> {
        let (len, work) = (self.len.0, self.work);
        let places = (span.0 / len).max(1);
        let mut rng = weft_core::random::SplitMix64::new(len ^ u64::from(self.depth) << 40);
        (0..u64::from(self.count)).map(move |n| {
            let place = match work {
                Work::Read(AccessPattern::Random) | Work::Write(AccessPattern::Random) => rng.below(places),
                Work::Read(AccessPattern::Apart(distance)) | Work::Write(AccessPattern::Apart(distance)) => {
                    let near = n / 2 * 37 % places;
                    near + if n % 2 == 1 { distance.0 / len } else { 0 }
                }
                // Reuse a few pages, so that the file system allocates no space.
                Work::Sync | Work::Copy => n % 16,
                Work::Read(AccessPattern::Sequential) | Work::Write(AccessPattern::Sequential) => n,
            };
            LocalOffset(place % places * len)
        })
    }
}

impl Sample {
    /// Returns a quantile of the durations in nanoseconds. `part` is from 0 to 1.
    pub fn quantile(&self, part: f64) -> u64 {
        let index = (self.times.len() as f64 * part) as usize;
        self.times.get(index.min(self.times.len().saturating_sub(1))).copied().unwrap_or(0)
    }

    /// Returns the nanoseconds per request by which model and device are compared: the median for single random
    /// requests, the mean if they take over a millisecond (a disk that seeks), and the total divided by the count for
    /// all other cases.
    pub fn figure(&self) -> f64 {
        let is_random =
            matches!(self.case.work, Work::Read(AccessPattern::Random) | Work::Write(AccessPattern::Random));
        let mean = self.elapsed as f64 / f64::from(self.case.count.max(1));
        if self.case.depth > 1
            || matches!(
                self.case.work,
                Work::Read(AccessPattern::Sequential) | Work::Write(AccessPattern::Sequential)
            )
        {
            return mean;
        }
        let median = self.quantile(0.5) as f64;
        if is_random && median > 1e6 { mean } else { median }
    }
}

/// Returns the cases to measure, in order. The first one writes the whole file.
pub fn plan(span: ByteLen) -> Vec<Case> {
    let case = |name: &str, work, len: u64, depth, count: u64, is_held_out| Case {
        name: name.to_owned(),
        work,
        len: ByteLen(len),
        depth,
        count: count.max(1) as u32,
        is_held_out,
    };
    let (kib, mib) = (1u64 << 10, 1u64 << 20);
    let (random, whole) = (AccessPattern::Random, span.0 / mib);
    let apart = |distance: u64| Work::Read(AccessPattern::Apart(ByteLen(distance)));
    vec![
        case("write 1 MiB in order", Work::Write(AccessPattern::Sequential), mib, 1, whole, false),
        case("read 1 MiB in order", Work::Read(AccessPattern::Sequential), mib, 1, whole.min(512), false),
        case(
            "read 1 MiB in order, 4 at a time",
            Work::Read(AccessPattern::Sequential),
            mib,
            4,
            whole.min(512),
            false,
        ),
        case(
            "read 128 KiB in order",
            Work::Read(AccessPattern::Sequential),
            128 * kib,
            1,
            (8 * whole).min(1000),
            true,
        ),
        case("read 4 KiB at random", Work::Read(random), 4 * kib, 1, 300, false),
        case("read 8 KiB at random", Work::Read(random), 8 * kib, 1, 200, true),
        case("read 16 KiB at random", Work::Read(random), 16 * kib, 1, 200, false),
        case("read 32 KiB at random", Work::Read(random), 32 * kib, 1, 150, true),
        case("read 64 KiB at random", Work::Read(random), 64 * kib, 1, 200, false),
        case("read 256 KiB at random", Work::Read(random), 256 * kib, 1, 100, true),
        case("read 1 MiB at random", Work::Read(random), mib, 1, 60, false),
        case("read 4 KiB at random, 4 at a time", Work::Read(random), 4 * kib, 4, 600, true),
        case("read 4 KiB at random, 16 at a time", Work::Read(random), 4 * kib, 16, 1200, false),
        case("read 64 KiB at random, 8 at a time", Work::Read(random), 64 * kib, 8, 400, true),
        case("read 4 KiB, 1 MiB apart", apart(mib), 4 * kib, 1, 100, false),
        case("read 4 KiB, 16 MiB apart", apart(16 * mib), 4 * kib, 1, 100, true),
        case("read 4 KiB, half of the file apart", apart(span.0 / 2), 4 * kib, 1, 100, false),
        case("write 4 KiB at random", Work::Write(random), 4 * kib, 1, 300, false),
        case("write 16 KiB at random", Work::Write(random), 16 * kib, 1, 200, true),
        case("write 4 KiB at random, 16 at a time", Work::Write(random), 4 * kib, 16, 1200, false),
        case("write 64 KiB at random, 4 at a time", Work::Write(random), 64 * kib, 4, 300, false),
        case("write 128 KiB at random, 2 at a time", Work::Write(random), 128 * kib, 2, 150, true),
        case("write 4 KiB and sync", Work::Sync, 4 * kib, 1, 60, false),
        case("copy 4 KiB into memory", Work::Copy, 4 * kib, 1, 400, false),
        case("copy 1 MiB into memory", Work::Copy, mib, 1, 60, false),
    ]
}

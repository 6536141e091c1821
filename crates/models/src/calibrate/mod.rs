//! Fitting a profile to measurements of a real path: what is asked of it, what a model says of the same, and the search
//! for the figures with which both agree.

mod fit;
mod replay;

pub use fit::{Fit, fit};
pub use replay::predict;

use weft_core::{ByteLen, LocalOffset};

/// Where the requests of a case lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// One behind the other.
    Sequential,
    /// Anywhere.
    Random,
    /// To and fro over a distance, a little further on each time.
    Apart(ByteLen),
}

/// What a case does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads past the system's memory.
    Read(Place),
    /// Writes past the system's memory.
    Write(Place),
    /// Writes into memory, each followed by a sync.
    Sync,
    /// Writes into memory and nothing else.
    Copy,
}

/// Requests of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// What it is called in tables.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// Length of each request.
    pub len: ByteLen,
    /// Requests on their way at a time.
    pub depth: u32,
    /// How many.
    pub count: u32,
    /// Nothing is fitted to it; it shows how well the model predicts.
    pub is_held_out: bool,
}

/// How a case went.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Which.
    pub case: Case,
    /// What each request took in nanoseconds, ascending.
    pub times: Vec<u64>,
    /// What all took together, nanoseconds.
    pub elapsed: u64,
}

impl Case {
    /// The offsets of its requests in a file of `span` bytes.
    pub fn offsets(&self, span: ByteLen) -> impl Iterator<Item = LocalOffset> + use<> {
        let (len, work) = (self.len.0, self.work);
        let places = (span.0 / len).max(1);
        let mut rng = crate::rng::Rng::new(len ^ u64::from(self.depth) << 40);
        (0..u64::from(self.count)).map(move |n| {
            let place = match work {
                Work::Read(Place::Random) | Work::Write(Place::Random) => rng.below(places),
                Work::Read(Place::Apart(distance)) | Work::Write(Place::Apart(distance)) => {
                    let near = n / 2 * 37 % places;
                    near + if n % 2 == 1 { distance.0 / len } else { 0 }
                }
                // Over the same few pages, so that no new room is needed.
                Work::Sync | Work::Copy => n % 16,
                Work::Read(Place::Sequential) | Work::Write(Place::Sequential) => n,
            };
            LocalOffset(place % places * len)
        })
    }
}

impl Sample {
    /// A quantile of the times in nanoseconds, `part` from 0 to 1.
    pub fn quantile(&self, part: f64) -> u64 {
        let index = (self.times.len() as f64 * part) as usize;
        self.times.get(index.min(self.times.len().saturating_sub(1))).copied().unwrap_or(0)
    }

    /// What the figures of model and device are compared by, nanoseconds: of requests one at a time the median (of a
    /// disk that seeks the mean), else the time of all by their number.
    pub fn figure(&self) -> f64 {
        let is_random = matches!(self.case.work, Work::Read(Place::Random) | Work::Write(Place::Random));
        let mean = self.elapsed as f64 / f64::from(self.case.count.max(1));
        if self.case.depth > 1
            || matches!(self.case.work, Work::Read(Place::Sequential) | Work::Write(Place::Sequential))
        {
            return mean;
        }
        let median = self.quantile(0.5) as f64;
        if is_random && median > 1e6 { mean } else { median }
    }
}

/// What is asked of a path, in this order: first everything is written.
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
    let (random, whole) = (Place::Random, span.0 / mib);
    let apart = |distance: u64| Work::Read(Place::Apart(ByteLen(distance)));
    vec![
        case("write 1 MiB in order", Work::Write(Place::Sequential), mib, 1, whole, false),
        case("read 1 MiB in order", Work::Read(Place::Sequential), mib, 1, whole.min(512), false),
        case(
            "read 1 MiB in order, 4 at a time",
            Work::Read(Place::Sequential),
            mib,
            4,
            whole.min(512),
            false,
        ),
        case(
            "read 128 KiB in order",
            Work::Read(Place::Sequential),
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

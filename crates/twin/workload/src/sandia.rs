//! Requests with the statistics of four traced applications of the Scalable I/O project at Sandia.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::size::Size;
use serde::{Deserialize, Serialize};
use weft_core::random::splitmix64;

const CHECK: Check = Check("sandia");
const FILE: FileRef = FileRef(0);

/// Upper bound of a random request in bytes, as in table I of iBridge.
const RANDOM_BYTES_END: u64 = 20 << 10;
/// Sizes and offsets of unaligned requests are multiples of this number of bytes.
const GRANULARITY_BYTES: u64 = 512;

/// Synthetic requests with the statistics of a traced application.
///
/// The traces are no longer available. These random streams reproduce the shares in table I of iBridge:
///
/// | requests | length | offset |
/// | --- | --- | --- |
/// | random | below 20 KiB | anywhere in the file |
/// | unaligned | longer than a stripe | end of the previous sequential request |
/// | aligned | whole stripes | next stripe boundary |
///
/// Unaligned and aligned requests go through the file in order, like dumps of simulations. The paper does not print
/// their lengths; it says that those of S3D are significantly longer and take twice the time. Here they are uniformly
/// distributed from 1/4 to 7/4 of a mean of 128 KiB, or of 512 KiB for S3D.
///
/// Serves iBridge section III-E and table III.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sandia {
    /// The application.
    pub application: SandiaApplication,
    /// Number of ranks. Each replays its own stream on the same file. The paper uses one.
    pub ranks: u32,
    /// Minimum number of bytes that each rank transfers, and length of the file.
    pub total: Size,
    /// Stripe size that defines aligned requests.
    pub stripe: Size,
    /// Mean length of unaligned and aligned requests; by default that of the application.
    pub mean: Option<Size>,
    /// Seed of the streams.
    pub seed: u64,
    /// Direction of the transfers.
    pub access: Access,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
}

/// A traced application, with the shares of unaligned and random requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandiaApplication {
    /// Shock physics with 2,744 processes: 35.2 % unaligned, 7.3 % random.
    #[serde(rename = "alegra-2744")]
    Alegra2744,
    /// Shock physics with 5,832 processes: 35.7 % unaligned, 6.9 % random.
    #[serde(rename = "alegra-5832")]
    Alegra5832,
    /// Shock waves and solid mechanics: 24.3 % unaligned, 30.1 % random.
    Cth,
    /// Turbulent combustion: 62.8 % unaligned, 5.8 % random.
    S3d,
}

impl SandiaApplication {
    /// Shares of unaligned and random requests in thousandths, and the mean length of the other requests.
    fn figures(self) -> (u64, u64, Size) {
        match self {
            Self::Alegra2744 => (352, 73, Size::kib(128)),
            Self::Alegra5832 => (357, 69, Size::kib(128)),
            Self::Cth => (243, 301, Size::kib(128)),
            Self::S3d => (628, 58, Size::kib(512)),
        }
    }
}

impl Default for Sandia {
    fn default() -> Self {
        Self {
            application: SandiaApplication::Alegra2744,
            ranks: 1,
            total: Size::mib(64),
            stripe: Size::kib(64),
            mean: None,
            seed: 1,
            access: Access::Write,
            sync: SyncWhen::Never,
        }
    }
}

impl Sandia {
    pub(crate) fn build(&self) -> Result<SandiaRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        let (_, _, mean) = self.application.figures();
        let mean = self.mean.unwrap_or(mean);
        if self.stripe.0 < 2 * GRANULARITY_BYTES || !self.stripe.0.is_multiple_of(GRANULARITY_BYTES) {
            let least = 2 * GRANULARITY_BYTES;
            return CHECK.fail("stripe", format!("give a multiple of {GRANULARITY_BYTES}, at least {least}"));
        }
        if mean.0 < 2 * self.stripe.0 {
            return CHECK.fail(
                "mean",
                format!("requests of several stripes take at least {}", Size(2 * self.stripe.0)),
            );
        }
        let least = 4 * mean.0;
        if self.total.0 < least || self.total.0 > 1 << 62 {
            return CHECK.fail("total", format!("give at least {}, and no more than 2^62", Size(least)));
        }
        // Every pass reaches the end of the file, so that a pass that reads finds data everywhere.
        Ok(SandiaRun { spec: self.clone(), mean: mean.0 })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct SandiaRun {
    spec: Sandia,
    mean: u64,
}

/// State of a rank's stream.
struct Stream {
    /// Number of requests so far, and bytes transferred.
    count: u64,
    moved: u64,
    /// End of the last sequential request.
    at: u64,
}

impl SandiaRun {
    fn end(&self) -> u64 {
        self.spec.total.0 / self.spec.stripe.0 * self.spec.stripe.0
    }

    fn requests(&self, rank: u32) -> impl Iterator<Item = (u64, u64)> + Send + '_ {
        let salt = splitmix64(self.spec.seed ^ splitmix64(u64::from(rank)));
        let mut stream = Stream { count: 0, moved: 0, at: 0 };
        std::iter::from_fn(move || {
            if stream.moved >= self.spec.total.0 {
                return None;
            }
            let (offset, len) = self.request(salt, &mut stream);
            stream.count += 1;
            stream.moved += len;
            Some((offset, len))
        })
    }

    fn request(&self, salt: u64, stream: &mut Stream) -> (u64, u64) {
        let die = |face: u64, below: u64| splitmix64(salt ^ splitmix64(3 * stream.count + face)) % below;
        let (unaligned, random, _) = self.spec.application.figures();
        let (stripe, end) = (self.spec.stripe.0, self.end());
        let kind = die(0, 1000);
        if kind < random {
            let len = (1 + die(1, RANDOM_BYTES_END / GRANULARITY_BYTES - 1)) * GRANULARITY_BYTES;
            return (die(2, (end - len) / GRANULARITY_BYTES) * GRANULARITY_BYTES, len);
        }
        // From a quarter of the mean, or a stripe, up to the same distance above the mean.
        let low = (self.mean / 4).max(stripe);
        let (offset, len) = if kind < random + unaligned {
            let least = low + GRANULARITY_BYTES;
            let len = least + die(1, 2 * (self.mean - least) / GRANULARITY_BYTES + 1) * GRANULARITY_BYTES;
            let at = if stream.at + len > end { 0 } else { stream.at };
            // Whole stripes from a boundary would be aligned.
            let fits = at.is_multiple_of(stripe) && len.is_multiple_of(stripe);
            (at, if fits { len + GRANULARITY_BYTES } else { len })
        } else {
            let least = low.next_multiple_of(stripe);
            let len = least + die(1, 2 * (self.mean - least) / stripe + 1) * stripe;
            let at = stream.at.next_multiple_of(stripe);
            (if at + len > end { 0 } else { at }, len)
        };
        stream.at = offset + len;
        (offset, len)
    }
}

impl Workload for SandiaRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "sandia.out".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new(self.spec.access.needs_existing_files().then(|| (FILE, self.end())).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let Sandia { access, sync, .. } = self.spec;
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier: false, sync, collective: false };
            pass(direction, FILE, transfers(style, FILE, self.requests(rank)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{extents, well_formed};
    use SandiaApplication::{Alegra2744, Alegra5832, Cth, S3d};

    fn run(application: SandiaApplication) -> SandiaRun {
        Sandia { application, total: Size::gib(4), ..Sandia::default() }.build().expect("sensible")
    }

    /// Returns the percentages of unaligned and random requests, and the mean length, as in the paper's table.
    fn table(requests: &[(u64, u64)]) -> (f64, f64, f64) {
        let percent = |is: &dyn Fn(&(u64, u64)) -> bool| {
            100.0 * requests.iter().filter(|request| is(request)).count() as f64 / requests.len() as f64
        };
        let unaligned =
            percent(&|&(offset, len)| len > 65_536 && (offset % 65_536 != 0 || len % 65_536 != 0));
        let random = percent(&|&(_, len)| len < 20 << 10);
        (
            unaligned,
            random,
            requests.iter().map(|request| request.1).sum::<u64>() as f64 / requests.len() as f64,
        )
    }

    #[test]
    fn shares_match_table_one() {
        let cases = [(Alegra2744, 35.2, 7.3), (Alegra5832, 35.7, 6.9), (Cth, 24.3, 30.1), (S3d, 62.8, 5.8)];
        for (application, unaligned, random) in cases {
            let found = table(&extents(&run(application), 0));
            let near = |found: f64, printed: f64| (found - printed).abs() < 1.5;
            assert!(near(found.0, unaligned) && near(found.1, random), "{application:?}: {found:?}");
        }
    }

    #[test]
    fn mean_lengths_match_the_description() {
        // Random requests have a mean of 10 KiB: 0.927 * 128 + 0.073 * 10 = 119 KiB, 0.942 * 512 + 0.6 = 483 KiB.
        for (application, kib) in [(Alegra2744, 119.0), (Cth, 92.5), (S3d, 483.0)] {
            let (_, _, mean) = table(&extents(&run(application), 0));
            assert!((mean / 1024.0 / kib - 1.0).abs() < 0.03, "{application:?}: {} KiB", mean / 1024.0);
        }
    }

    #[test]
    fn requests_stay_in_the_file_and_are_in_order() {
        let run = run(S3d);
        let requests = extents(&run, 0);
        assert!(requests.iter().all(|&(offset, len)| offset + len <= run.end()));
        let long: Vec<_> = requests.iter().filter(|request| request.1 >= RANDOM_BYTES_END).collect();
        let onward = long.windows(2).filter(|pair| {
            let gap = pair[1].0.wrapping_sub(pair[0].0 + pair[0].1);
            gap < 65_536
        });
        assert!(onward.count() + 2 >= long.len(), "in order except for the wrap at the end");
        assert!(requests.iter().map(|request| request.1).sum::<u64>() >= 4 << 30);
        well_formed(&run);
    }

    #[test]
    fn the_seed_determines_the_requests() {
        let of = |seed| extents(&Sandia { seed, ..Sandia::default() }.build().unwrap(), 0);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: Sandia| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(Sandia { mean: Some(Size::kib(64)), ..Sandia::default() }), "mean");
        assert_eq!(refused(Sandia { total: Size::kib(64), ..Sandia::default() }), "total");
        assert_eq!(refused(Sandia { stripe: Size(100), ..Sandia::default() }), "stripe");
        assert_eq!(refused(Sandia { ranks: 0, ..Sandia::default() }), "ranks");
    }
}

//! Segments of one file, each with a pattern of its own.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::permutation::Permutation;
use crate::size::Size;
use serde::{Deserialize, Serialize};
use weft_core::random::splitmix64;

const CHECK: Check = Check("segments");
const FILE: FileRef = FileRef(0);

/// A shared file of segments with different patterns, like traces of applications that mix them.
///
/// ```text
/// file       | segment 0                | segment 1 …
/// segment    | iteration | iteration | …  (interleaved: iteration k of rank i is number k N + i; own: i loops + k)
/// iteration  | request of sizes[0] | request of sizes[1] | …
/// ```
///
/// Every rank goes through the segments in order, and repeats the requests of a segment `loops` times.
///
/// Serves CEDA section 6.2.4 and figure 15. The paper describes the trace in words only: the file consists of segments,
/// in which each process issues requests of different sizes iteratively. Sizes and segments here are an assumption.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Segments {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Iterations of each rank in each segment.
    pub loops: u64,
    /// Seed of random orders.
    pub seed: u64,
    /// Direction of the transfers.
    pub access: Access,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// The segments, in the order of the file.
    pub segments: Vec<Segment>,
}

/// A part of the file with one pattern.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Lengths of the requests of an iteration, which follow each other in the file.
    pub sizes: Vec<Size>,
    /// Arrangement of the ranks' iterations.
    #[serde(default)]
    pub arrangement: SegmentArrangement,
    /// Whether each rank goes through its iterations in random order.
    #[serde(default)]
    pub random: bool,
}

/// Arrangement of the iterations in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentArrangement {
    /// Iterations of the ranks in round-robin order.
    #[default]
    Interleaved,
    /// The iterations of each rank are adjacent.
    Own,
}

impl Default for Segments {
    fn default() -> Self {
        let segment =
            |sizes: &[Size], arrangement, random| Segment { sizes: sizes.to_vec(), arrangement, random };
        Self {
            ranks: 8,
            loops: 64,
            seed: 1,
            access: Access::Write,
            sync: SyncWhen::Never,
            segments: vec![
                segment(
                    &[Size(16), Size((128 << 10) - 16), Size::kib(128)],
                    SegmentArrangement::Interleaved,
                    false,
                ),
                segment(&[Size::kib(16), Size::kib(64)], SegmentArrangement::Interleaved, true),
                segment(&[Size::kib(256)], SegmentArrangement::Own, false),
            ],
        }
    }
}

impl Segment {
    /// Bytes of an iteration.
    fn period(&self) -> u64 {
        self.sizes.iter().map(|size| size.0).fold(0, u64::saturating_add)
    }
}

impl Segments {
    pub(crate) fn build(&self) -> Result<SegmentsRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("loops", self.loops)?;
        CHECK.positive("segments", self.segments.len() as u64)?;
        for segment in &self.segments {
            let shortest = segment.sizes.iter().map(|size| size.0).min();
            CHECK.positive("sizes", shortest.unwrap_or(0))?;
        }
        let row = self.segments.iter().map(Segment::period).fold(0, u64::saturating_add);
        let end = CHECK.product("loops", &[u64::from(self.ranks), self.loops, row])?;
        Ok(SegmentsRun { spec: self.clone(), end })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct SegmentsRun {
    spec: Segments,
    /// Length of the file.
    end: u64,
}

impl SegmentsRun {
    /// Offset and length of a rank's requests, in order.
    fn requests(&self, rank: u32) -> impl Iterator<Item = (u64, u64)> + Send + '_ {
        let Segments { ranks, loops, seed, ref segments, .. } = self.spec;
        let (ranks, rank) = (u64::from(ranks), u64::from(rank));
        let mut start = 0;
        segments.iter().enumerate().flat_map(move |(number, segment)| {
            let (from, period) = (start, segment.period());
            start += ranks * loops * period;
            let order =
                Permutation::new(loops, splitmix64(seed ^ splitmix64(((number as u64) << 32) | rank)));
            (0..loops).flat_map(move |turn| {
                let turn = if segment.random { order.at(turn) } else { turn };
                let iteration = match segment.arrangement {
                    SegmentArrangement::Interleaved => turn * ranks + rank,
                    SegmentArrangement::Own => rank * loops + turn,
                };
                let mut at = from + iteration * period;
                segment.sizes.iter().map(move |size| {
                    at += size.0;
                    (at - size.0, size.0)
                })
            })
        })
    }
}

impl Workload for SegmentsRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "segments.out".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new(self.spec.access.needs_existing_files().then_some((FILE, self.end)).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let Segments { access, sync, .. } = self.spec;
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier: false, sync, collective: false };
            pass(direction, FILE, transfers(style, FILE, self.requests(rank)))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{covered_once, extents, well_formed};

    fn of(loops: u64, segments: Vec<Segment>) -> SegmentsRun {
        Segments { ranks: 2, loops, segments, ..Segments::default() }.build().expect("sensible")
    }

    #[test]
    fn requests_by_hand() {
        let segment = |sizes: &[u64], arrangement| Segment {
            sizes: sizes.iter().map(|size| Size(*size)).collect(),
            arrangement,
            random: false,
        };
        let run = of(
            2,
            vec![
                segment(&[10, 20], SegmentArrangement::Interleaved),
                segment(&[100], SegmentArrangement::Own),
            ],
        );
        // Segment 0 has 2 ranks * 2 loops * 30 B.
        assert_eq!(extents(&run, 0), [(0, 10), (10, 20), (60, 10), (70, 20), (120, 100), (220, 100)]);
        assert_eq!(extents(&run, 1), [(30, 10), (40, 20), (90, 10), (100, 20), (320, 100), (420, 100)]);
    }

    #[test]
    fn every_byte_is_covered_once_and_random_segments_are_out_of_order() {
        let run = Segments { loops: 16, ..Segments::default() }.build().expect("sensible");
        covered_once(&run, FILE, 0..run.end);
        well_formed(&run);
        let offsets: Vec<u64> = extents(&run, 3).into_iter().map(|(offset, _)| offset).collect();
        assert!(offsets[..48].is_sorted() && !offsets[48..80].is_sorted() && offsets[80..].is_sorted());
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: Segments| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(Segments { loops: 0, ..Segments::default() }), "loops");
        assert_eq!(refused(Segments { segments: Vec::new(), ..Segments::default() }), "segments");
        let empty = Segment { sizes: vec![Size(0)], arrangement: SegmentArrangement::Own, random: false };
        assert_eq!(refused(Segments { segments: vec![empty], ..Segments::default() }), "sizes");
        assert_eq!(refused(Segments { loops: 1 << 60, ..Segments::default() }), "loops");
    }
}

//! HPIO: regions at regular distances.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, check_collective, check_no_exchange};
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name};
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("hpio");
const FILE: FileRef = FileRef(0);

/// HPIO of Northwestern University and Sandia: regions at regular distances.
///
/// Each rank transfers `region_count` regions of `region_size` bytes in one call, with `region_spacing` bytes between
/// neighboring regions. Region k of rank i of N starts at:
///
/// | arrangement | offset | HPIO option |
/// | --- | --- | --- |
/// | interleaved | `(k N + i) (size + spacing)` | `-n 0010`, "c-nc" |
/// | own | `(i count + k) (size + spacing)` | `-n 1000`, "c-c", if there is no spacing |
///
/// Whether regions are contiguous in memory makes no difference to a file system and is not a parameter.
///
/// Serves CEDA section 6.2.2 and figure 13 (32 ranks, 4096 regions of 16 KiB, spacing 1 to 8 KiB) and PSA section
/// IV-C and figure 11 (32 ranks, 1024 regions of 64 to 512 KiB, spacing 0).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hpio {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Number of regions of each rank.
    pub region_count: u64,
    /// Length of a region.
    pub region_size: Size,
    /// Unused bytes between neighboring regions of the file.
    pub region_spacing: Size,
    /// Arrangement of the ranks' regions.
    pub arrangement: HpioArrangement,
    /// Direction of the transfers.
    pub access: Access,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// Whether the call is collective (`-m 01`).
    pub collective: bool,
    /// Collective buffering of MPI-IO. By default each rank transfers its own regions. HPIO itself enables collective
    /// buffering (`force`).
    pub two_phase: Option<TwoPhase>,
}

/// Arrangement of the ranks' regions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HpioArrangement {
    /// Regions of the ranks in round-robin order.
    #[default]
    Interleaved,
    /// The regions of each rank are adjacent.
    Own,
}

impl Default for Hpio {
    fn default() -> Self {
        Self {
            ranks: 32,
            region_count: 64,
            region_size: Size::kib(16),
            region_spacing: Size::kib(1),
            arrangement: HpioArrangement::Interleaved,
            access: Access::Write,
            sync: SyncWhen::Never,
            collective: false,
            two_phase: None,
        }
    }
}

impl Hpio {
    pub(crate) fn build(&self) -> Result<HpioRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("region_count", self.region_count)?;
        CHECK.positive("region_size", self.region_size.0)?;
        let period = self.region_size.0.saturating_add(self.region_spacing.0);
        CHECK.product("region_count", &[u64::from(self.ranks), self.region_count, period])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        check_no_exchange(CHECK, self.two_phase.as_ref())?;
        Ok(HpioRun { spec: self.clone() })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct HpioRun {
    spec: Hpio,
}

impl HpioRun {
    fn period(&self) -> u64 {
        self.spec.region_size.0 + self.spec.region_spacing.0
    }
}

impl Calls for HpioRun {
    fn calls(&self) -> u64 {
        1
    }

    fn union(&self, _call: u64) -> Union {
        let Hpio { ranks, region_count, region_size, region_spacing, arrangement, .. } = self.spec;
        let end = u64::from(ranks) * region_count * self.period() - region_spacing.0;
        let interleaved = arrangement == HpioArrangement::Interleaved && ranks > 1 && region_count > 1;
        Union { start: 0, end, run: region_size.0, period: self.period(), interleaved }
    }

    fn pieces(&self, _call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        let Hpio { ranks, region_count, region_size, region_spacing, arrangement, .. } = self.spec;
        let (ranks, rank) = (u64::from(ranks), u64::from(rank));
        if region_spacing.0 == 0 && (arrangement == HpioArrangement::Own || ranks == 1) {
            let own = region_count * region_size.0;
            return Box::new(std::iter::once((rank * own, own)));
        }
        let index = move |k| match arrangement {
            HpioArrangement::Interleaved => k * ranks + rank,
            HpioArrangement::Own => rank * region_count + k,
        };
        Box::new((0..region_count).map(move |k| (index(k) * self.period(), region_size.0)))
    }
}

impl Workload for HpioRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "hpio".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let files_exist = self.spec.access.needs_existing_files();
        Box::new(files_exist.then(|| (FILE, self.union(0).end)).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let Hpio { ranks, sync, collective, access, ref two_phase, .. } = self.spec;
        let party = CallRank {
            rank,
            part: rank,
            is_out_of_order: false,
            ranks,
            two_phase: two_phase.as_ref(),
            before: None,
        };
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier: false, sync, collective };
            pass(direction, FILE, body(self, style, FILE, party))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::testing::{covered_once, extents, well_formed};

    #[test]
    fn interleaved_regions_by_hand() {
        // 16 KiB regions, 1 KiB spacing: a period of 17,408 B. Rank 3 of 32: (k 32 + 3) 17,408.
        let run = Hpio { region_count: 3, ..Hpio::default() }.build().unwrap();
        // k = 0: 3 -> 52,224; k = 1: 35 -> 609,280; k = 2: 67 -> 1,166,336.
        assert_eq!(extents(&run, 3), [(52_224, 16_384), (609_280, 16_384), (1_166_336, 16_384)]);
    }

    #[test]
    fn own_regions_by_hand() {
        let spec = Hpio { region_count: 2, arrangement: HpioArrangement::Own, ..Hpio::default() };
        // Rank 3: (3 * 2 + k) 17,408 = 104,448 and 121,856.
        assert_eq!(extents(&spec.build().unwrap(), 3), [(104_448, 16_384), (121_856, 16_384)]);
    }

    #[test]
    fn regions_match_those_of_hpio() {
        // HPIO 1.55 on ROMIO of MPICH 4.0.2 without data sieving, 3 ranks, rank 1 (strace):
        // hpio -n 0010 -m 10 -B -c 4 -s 100 -p 28: 128, 512, 896 and 1,280.
        let spec = Hpio {
            ranks: 3,
            region_count: 4,
            region_size: Size(100),
            region_spacing: Size(28),
            ..Hpio::default()
        };
        let run = spec.build().unwrap();
        assert_eq!(extents(&run, 1), [128, 512, 896, 1280].map(|offset| (offset, 100)));
        // The program sets the length of the file: 4 * 3 * 128 without the last spacing.
        assert_eq!(run.union(0).end, 1508);
        // hpio -n 1000 -m 10 -B -c 5 -s 100 -p 28 with 4 ranks: one write of 500 bytes each, rank 3 at 1,500.
        let spec = Hpio {
            ranks: 4,
            region_count: 5,
            region_spacing: Size(0),
            arrangement: HpioArrangement::Own,
            ..spec
        };
        assert_eq!(extents(&spec.build().unwrap(), 3), [(1500, 500)]);
    }

    #[test]
    fn collective_regions_match_those_of_hpio() {
        // hpio -n 0010 -m 01 -B -c 5 -s 100 -p 28 with 4 ranks, one per node, cb_nodes 3, cb_buffer_size 500 (strace):
        // the range of 2,532 bytes is divided into 3 x 844; ranks 0 to 2 read and write windows with holes.
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            per_node: Some(1),
            cb_buffer_size: Size(500),
            force: true,
            ..TwoPhase::default()
        };
        let spec = Hpio {
            ranks: 4,
            region_count: 5,
            region_size: Size(100),
            region_spacing: Size(28),
            collective: true,
            two_phase: Some(two_phase),
            ..Hpio::default()
        };
        let run = spec.build().unwrap();
        let windows = |rank| extents(&run, rank).into_iter().step_by(2).collect::<Vec<_>>();
        assert_eq!(windows(0), [(0, 500), (500, 344)]);
        assert_eq!(windows(1), [(844, 500), (1344, 344)]);
        assert_eq!(windows(2), [(1688, 500), (2188, 344)]);
        assert_eq!(windows(3), []);
        // Adjacent regions use independent requests unless collective buffering is forced.
        let one = |region_count| Hpio { region_count, ..spec.clone() }.build().unwrap().union(0).interleaved;
        assert_eq!([1, 2].map(one), [false, true]);
    }

    #[test]
    fn without_spacing_the_file_is_covered_once() {
        for arrangement in [HpioArrangement::Interleaved, HpioArrangement::Own] {
            let spec = Hpio {
                ranks: 5,
                region_count: 7,
                region_size: Size(10),
                region_spacing: Size(0),
                arrangement,
                ..Hpio::default()
            };
            covered_once(&spec.build().unwrap(), FILE, 0..350);
        }
    }

    #[test]
    fn two_phases_read_windows_with_holes_before_writing_them() {
        // 2 ranks, 2 regions of 10 with 5 between: wanted 0..10, 15..25, 30..40, 45..55; one aggregator.
        let spec = Hpio {
            ranks: 2,
            region_count: 2,
            region_size: Size(10),
            region_spacing: Size(5),
            collective: true,
            two_phase: Some(TwoPhase { cb_nodes: Some(1), ..TwoPhase::default() }),
            ..Hpio::default()
        };
        let run = spec.build().unwrap();
        let moved: Vec<Op> =
            run.ops(0).filter(|op| matches!(op, Op::Read { .. } | Op::Write { .. })).collect();
        let (file, offset, len, collective) = (FILE, 0, 55, true);
        assert_eq!(
            moved,
            [Op::Read { file, offset, len, collective }, Op::Write { file, offset, len, collective }]
        );
        assert_eq!(extents(&run, 1), []);
        well_formed(&run);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: Hpio| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(Hpio { region_size: Size(0), ..Hpio::default() }), "region_size");
        assert_eq!(refused(Hpio { region_count: u64::MAX, ..Hpio::default() }), "region_count");
        assert_eq!(refused(Hpio { two_phase: Some(TwoPhase::default()), ..Hpio::default() }), "two_phase");
        let nodes = Some(TwoPhase { cb_nodes: Some(33), ..TwoPhase::default() });
        assert_eq!(
            refused(Hpio { collective: true, two_phase: nodes, ..Hpio::default() }),
            "two_phase.cb_nodes"
        );
    }
}

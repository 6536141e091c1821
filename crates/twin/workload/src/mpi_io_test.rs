//! mpi-io-test of PVFS2 and OrangeFS: ranks access a shared file in round-robin order.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, check_collective, check_no_exchange};
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name, transfers};
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mpi-io-test");
const FILE: FileRef = FileRef(0);

/// mpi-io-test: in iteration k, rank i of N transfers `size` bytes at `offset + (k N + i) size` of a shared file.
///
/// Serves the figures below, and figures 4.5 and 4.6 of the thesis (`sync = "each"`, 1 GiB by each client).
///
/// | iBridge | parameters |
/// | --- | --- |
/// | I-A, figures 1 to 3, pattern I | 64 KiB requests at offset 0 |
/// | I-A, figures 1 to 3, pattern II | other sizes |
/// | I-A, figures 1 to 3, pattern III | 64 KiB requests with an `offset` |
/// | III-B (figures 4 to 7), III-F, III-G | several |
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MpiIoTest {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Length of a request.
    pub size: Size,
    /// Offset added to all requests: pattern III of iBridge.
    pub offset: Size,
    /// Bytes that all ranks transfer together in one pass, rounded down to whole iterations. Excludes `iterations`.
    pub total: Option<Size>,
    /// Number of requests of each rank in one pass. Excludes `total`.
    pub iterations: Option<u64>,
    /// Whether all ranks wait at a barrier before each request. The original program does; iBridge removed it.
    pub barrier: bool,
    /// Direction of the transfers.
    pub access: Access,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// Whether requests are collective calls.
    pub collective: bool,
    /// Collective buffering of MPI-IO. It needs `force`, because the ranks' ranges do not interleave.
    pub two_phase: Option<TwoPhase>,
}

impl Default for MpiIoTest {
    fn default() -> Self {
        Self {
            ranks: 16,
            size: Size::kib(64),
            offset: Size(0),
            total: None,
            iterations: None,
            barrier: false,
            access: Access::Write,
            sync: SyncWhen::Never,
            collective: false,
            two_phase: None,
        }
    }
}

/// Default of `total`.
const TOTAL_DEFAULT: Size = Size::mib(64);

impl MpiIoTest {
    pub(crate) fn build(&self) -> Result<MpiIoTestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("size", self.size.0)?;
        let round = CHECK.product("size", &[u64::from(self.ranks), self.size.0])?;
        let iterations = match (self.iterations, self.total) {
            (Some(_), Some(_)) => return CHECK.fail("iterations", "give either iterations or total"),
            (Some(iterations), None) => CHECK.positive("iterations", iterations)?,
            (None, total) => {
                let total = total.unwrap_or(TOTAL_DEFAULT);
                match total.0 / round {
                    0 if self.total.is_some() => {
                        let wanted = Size(round);
                        let message = format!("{total} is less than one iteration: give at least {wanted}");
                        return CHECK.fail("total", message);
                    }
                    iterations => iterations.max(1),
                }
            }
        };
        let bytes = CHECK.product("total", &[round, iterations])?;
        CHECK.product("offset", &[bytes.saturating_add(self.offset.0)])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        check_no_exchange(CHECK, self.two_phase.as_ref())?;
        Ok(MpiIoTestRun { spec: self.clone(), iterations })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct MpiIoTestRun {
    spec: MpiIoTest,
    iterations: u64,
}

impl MpiIoTestRun {
    fn offset(&self, rank: u32, iteration: u64) -> u64 {
        let MpiIoTest { ranks, size, offset, .. } = &self.spec;
        offset.0 + (iteration * u64::from(*ranks) + u64::from(rank)) * size.0
    }
}

impl Calls for MpiIoTestRun {
    fn calls(&self) -> u64 {
        self.iterations
    }

    fn union(&self, call: u64) -> Union {
        Union::dense(self.offset(0, call), self.offset(0, call + 1), false)
    }

    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        Box::new(std::iter::once((self.offset(rank, call), self.spec.size.0)))
    }
}

impl Workload for MpiIoTestRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "mpi-io-test.out".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let end = self.offset(0, self.iterations);
        Box::new((self.spec.access.needs_existing_files()).then_some((FILE, end)).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let MpiIoTest { ranks, size, barrier, sync, collective, access, ref two_phase, .. } = self.spec;
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier, sync, collective };
            let moved: Ops<'_> = if collective {
                let party = CallRank {
                    rank,
                    part: rank,
                    is_out_of_order: false,
                    ranks,
                    two_phase: two_phase.as_ref(),
                    before: None,
                };
                body(self, style, FILE, party)
            } else {
                let extents = (0..self.iterations).map(move |k| (self.offset(rank, k), size.0));
                Box::new(transfers(style, FILE, extents))
            };
            pass(direction, FILE, moved)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::testing::{covered_once, extents};

    fn run(spec: MpiIoTest) -> MpiIoTestRun {
        spec.build().expect("sensible")
    }

    #[test]
    fn offsets_by_hand() {
        // Offsets as in mpi-io-test of OrangeFS 2.10.0 (-b 66560 -i 3, strace), writing and reading.
        // k N s + i s with N = 16, s = 65 KiB = 66,560 B.
        let spec = MpiIoTest { size: Size::kib(65), iterations: Some(3), ..MpiIoTest::default() };
        let run = run(spec);
        // i = 5: 0 * 16 + 5 = 5 -> 332,800; 16 + 5 = 21 -> 1,397,760; 32 + 5 = 37 -> 2,462,720.
        assert_eq!(extents(&run, 5), [(332_800, 66_560), (1_397_760, 66_560), (2_462_720, 66_560)]);
    }

    #[test]
    fn pattern_three_shifts_all_requests() {
        let spec = MpiIoTest { ranks: 4, offset: Size::kib(10), iterations: Some(2), ..MpiIoTest::default() };
        // 10,240 + (0 * 4 + 3) * 65,536 = 206,848; 10,240 + (4 + 3) * 65,536 = 468,992.
        assert_eq!(extents(&run(spec), 3), [(206_848, 65_536), (468_992, 65_536)]);
    }

    #[test]
    fn the_file_is_covered_once() {
        let spec = MpiIoTest { ranks: 3, size: Size(7), iterations: Some(5), ..MpiIoTest::default() };
        covered_once(&run(spec), FILE, 0..105);
    }

    #[test]
    fn ten_gibibytes_match_the_paper() {
        // 10 GiB / (16 * 64 KiB) = 10,240 requests of each rank. The file exists when it is read.
        let spec = MpiIoTest { total: Some(Size::gib(10)), access: Access::Read, ..MpiIoTest::default() };
        let run = run(spec);
        assert_eq!(run.iterations, 10_240);
        assert_eq!(run.inputs().collect::<Vec<_>>(), [(FILE, 10 << 30)]);
        // The file also exists when it is rewritten, with the operations of a new file.
        let again =
            |access| MpiIoTest { total: Some(Size::gib(1)), access, ..MpiIoTest::default() }.build().unwrap();
        let (rewrite, write) = (again(Access::Rewrite), again(Access::Write));
        assert_eq!(rewrite.inputs().collect::<Vec<_>>(), [(FILE, 1 << 30)]);
        assert_eq!(write.inputs().count(), 0);
        assert!(rewrite.ops(3).eq(write.ops(3)));
        // 10 GiB / (16 * 65 KiB) = 10,082 whole iterations.
        let spec = MpiIoTest { size: Size::kib(65), total: Some(Size::gib(10)), ..MpiIoTest::default() }
            .build()
            .unwrap();
        assert_eq!(spec.iterations, 10_082);
    }

    #[test]
    fn the_operations_of_a_pass_are_in_order() {
        let spec = MpiIoTest {
            ranks: 2,
            size: Size(10),
            iterations: Some(1),
            barrier: true,
            sync: SyncWhen::Each,
            access: Access::Both,
            ..MpiIoTest::default()
        };
        let (offset, len, collective) = (10, 10, false);
        let expected = [
            Op::Phase(0),
            Op::Open { file: FILE, create: true },
            Op::Barrier,
            Op::Phase(1),
            Op::Barrier,
            Op::Write { file: FILE, offset, len, collective },
            Op::Sync { file: FILE },
            Op::Barrier,
            Op::Phase(2),
            Op::Close { file: FILE },
            Op::Barrier,
            Op::Phase(3),
            Op::Open { file: FILE, create: false },
            Op::Barrier,
            Op::Phase(4),
            Op::Barrier,
            Op::Read { file: FILE, offset, len, collective },
            Op::Barrier,
            Op::Phase(5),
            Op::Close { file: FILE },
            Op::Barrier,
        ];
        assert_eq!(run(spec).ops(1).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn collective_calls_are_aggregated_if_forced() {
        let spec = |force| MpiIoTest {
            ranks: 4,
            size: Size(100),
            iterations: Some(2),
            collective: true,
            two_phase: Some(TwoPhase { cb_nodes: Some(2), force, ..TwoPhase::default() }),
            ..MpiIoTest::default()
        };
        // 400 bytes in each call: domains 0..200 and 200..400 of ranks 0 and 2.
        assert_eq!(extents(&run(spec(true)), 2), [(200, 200), (600, 200)]);
        assert_eq!(extents(&run(spec(true)), 1), []);
        assert_eq!(extents(&run(spec(false)), 1), [(100, 100), (500, 100)]);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: MpiIoTest| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(MpiIoTest { ranks: 0, ..MpiIoTest::default() }), "ranks");
        assert_eq!(refused(MpiIoTest { size: Size(0), ..MpiIoTest::default() }), "size");
        assert_eq!(refused(MpiIoTest { total: Some(Size(1)), ..MpiIoTest::default() }), "total");
        let both = MpiIoTest { total: Some(Size::gib(1)), iterations: Some(1), ..MpiIoTest::default() };
        assert_eq!(refused(both), "iterations");
        assert_eq!(refused(MpiIoTest { iterations: Some(u64::MAX), ..MpiIoTest::default() }), "total");
    }
}

//! BTIO of the NAS Parallel Benchmarks: a solution written every few time steps, divided into diagonal cells.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, exchange};
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::{Access, Direction, Ops, Style, SyncWhen, pass, phase_name};
use crate::subarray::Subarray;
use serde::{Deserialize, Serialize};
use weft_core::Nanos;

const CHECK: Check = Check("btio");
const FILE: FileRef = FileRef(0);

/// Bytes of a point: five double-precision numbers.
const POINT_BYTES: u64 = 5 * 8;

/// BTIO of the NAS Parallel Benchmarks.
///
/// The N x N x N points of the class are divided into p x p x p cells, where p is the square root of the number of
/// ranks. Each rank has p cells on a diagonal, one in each layer along z (multi-partitioning). Every fifth time step
/// appends all points to one file, 40 bytes each, x fastest. In the end everything is read back and checked.
///
/// | subtype | requests | serves |
/// | --- | --- | --- |
/// | `simple` | one for each row of each cell, `40 N / p` bytes | iBridge III-D (class C), III-F; CEDA 6.2.3 |
/// | `full` | one collective call for each step | PSA IV-E (class C); IODC IV-A (classes C and B) |
///
/// The figures are 9 to 11 in iBridge (9 to 100 ranks), 14 in CEDA, 13 in PSA, and 7 in IODC.
/// CEDA says class A and 1.69 GB; a file of that size is written by class B.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Btio {
    /// Number of ranks; must be a square.
    pub ranks: u32,
    /// Class S, W, A, B, C, D or E: 12, 24, 64, 102, 162, 408 or 1020 points in each direction.
    pub class: BtioClass,
    /// How a time step is written.
    pub subtype: BtioSubtype,
    /// Number of steps written; by default that of the class (40 for A to C).
    pub dumps: Option<u64>,
    /// Direction of the transfers; the benchmark writes and reads.
    pub access: Access,
    /// Computing time between dumps, in microseconds.
    pub compute_us: u64,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// Collective buffering of MPI-IO (`full` only). By default each rank transfers its own rows.
    pub two_phase: Option<TwoPhase>,
}

/// Problem size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BtioClass {
    /// 12 points, 12 dumps.
    S,
    /// 24 points, 40 dumps.
    W,
    /// 64 points, 40 dumps: 0.42 GB.
    A,
    /// 102 points, 40 dumps: 1.70 GB.
    B,
    /// 162 points, 40 dumps: 6.80 GB.
    C,
    /// 408 points, 50 dumps: 136 GB.
    D,
    /// 1020 points, 50 dumps: 2.1 TB.
    E,
}

impl BtioClass {
    /// Points in each direction, and number of time steps.
    fn size(self) -> (u64, u64) {
        match self {
            Self::S => (12, 60),
            Self::W => (24, 200),
            Self::A => (64, 200),
            Self::B => (102, 200),
            Self::C => (162, 200),
            Self::D => (408, 250),
            Self::E => (1020, 250),
        }
    }
}

/// Minimum number of points of a cell; the benchmark rejects smaller cells.
const CELL_POINTS_MIN: u64 = 3;

/// Number of time steps between two dumps.
const WRITE_INTERVAL: u64 = 5;

/// How a time step is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BtioSubtype {
    /// One request per row.
    Simple,
    /// One collective call.
    #[default]
    Full,
}

impl Default for Btio {
    fn default() -> Self {
        Self {
            ranks: 16,
            class: BtioClass::S,
            subtype: BtioSubtype::Full,
            dumps: None,
            access: Access::Both,
            compute_us: 0,
            sync: SyncWhen::Never,
            two_phase: None,
        }
    }
}

impl Btio {
    pub(crate) fn build(&self) -> Result<BtioRun, SpecError> {
        let ranks = CHECK.positive("ranks", u64::from(self.ranks))?;
        let p = ranks.isqrt();
        if p * p != ranks {
            let (below, above) = (p * p, (p + 1) * (p + 1));
            return CHECK.fail("ranks", format!("{ranks} is not a square: give {below} or {above}"));
        }
        let (points, steps) = self.class.size();
        if points / p < CELL_POINTS_MIN {
            let most = (points / CELL_POINTS_MIN).pow(2);
            return CHECK.fail("ranks", format!("class {:?} has cells for at most {most}", self.class));
        }
        let dumps = CHECK.positive("dumps", self.dumps.unwrap_or(steps / WRITE_INTERVAL))?;
        CHECK.product("dumps", &[dumps, points.pow(3), POINT_BYTES])?;
        if let Some(two_phase) = &self.two_phase {
            if self.subtype == BtioSubtype::Simple {
                return CHECK.fail("two_phase", "the simple subtype has no collective calls: use full");
            }
            two_phase.check(CHECK, self.ranks)?;
        }
        Ok(BtioRun { spec: self.clone(), p, points, dumps })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct BtioRun {
    spec: Btio,
    /// Cells in each direction, which is also the number of cells of a rank.
    p: u64,
    /// Points in each direction.
    points: u64,
    dumps: u64,
}

impl BtioRun {
    /// Bytes of one dump.
    fn dump_bytes(&self) -> u64 {
        self.points.pow(3) * POINT_BYTES
    }

    /// Returns the first point and the number of points of cells at `coordinate` in one direction.
    ///
    /// If the points cannot be divided evenly, the first cells have one more.
    fn span(&self, coordinate: u64) -> (u64, u64) {
        let (size, excess) = (self.points / self.p, self.points % self.p);
        if coordinate < excess {
            (coordinate * (size + 1), size + 1)
        } else {
            (excess * (size + 1) + (coordinate - excess) * size, size)
        }
    }

    /// Returns the cell of `rank` in layer `layer`.
    ///
    /// From one layer to the next, a rank's cell moves by one in x and by minus one in y, both modulo p.
    fn cell(&self, rank: u32, layer: u64) -> Subarray {
        let rank = u64::from(rank);
        let x = (rank % self.p + layer) % self.p;
        let y = (rank / self.p + self.p - layer) % self.p;
        let (low_x, size_x) = self.span(x);
        let (low_y, size_y) = self.span(y);
        let (low_z, size_z) = self.span(layer);
        Subarray {
            array: [1, self.points, self.points, self.points],
            part: [1, size_z, size_y, size_x],
            start: [0, low_z, low_y, low_x],
            element: POINT_BYTES,
        }
    }

    fn party(&self, rank: u32, before: Option<Op>) -> CallRank<'_> {
        let Btio { ranks, ref two_phase, .. } = self.spec;
        CallRank { rank, part: rank, is_out_of_order: false, ranks, two_phase: two_phase.as_ref(), before }
    }

    fn compute(&self, direction: Direction) -> Option<Op> {
        let wanted = self.spec.compute_us > 0 && direction == Direction::Write;
        wanted.then_some(Op::Compute(Nanos(self.spec.compute_us * 1000)))
    }
}

/// All dumps as a pass of calls.
impl Calls for BtioRun {
    fn calls(&self) -> u64 {
        self.dumps
    }

    fn union(&self, call: u64) -> Union {
        let start = call * self.dump_bytes();
        Union::dense(start, start + self.dump_bytes(), self.p > 1)
    }

    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        let base = call * self.dump_bytes();
        let rows = (0..self.p).flat_map(move |layer| self.cell(rank, layer).rows());
        Box::new(rows.map(move |(offset, len)| (base + offset, len)))
    }
}

impl Workload for BtioRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "btio.out".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let files_exist = self.spec.access.needs_existing_files();
        Box::new(files_exist.then(|| (FILE, self.dumps * self.dump_bytes())).into_iter())
    }

    fn exchange(&self, rank: u32, barrier: u64) -> Vec<(u32, u64)> {
        match self.spec.access {
            Access::Read => Vec::new(),
            Access::Write | Access::Rewrite | Access::Both => exchange(self, self.party(rank, None), barrier),
        }
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let Btio { subtype, access, sync, .. } = self.spec;
        let collective = subtype == BtioSubtype::Full;
        Box::new(access.directions().iter().flat_map(move |&direction| {
            let style = Style { direction, barrier: false, sync, collective };
            let party = self.party(rank, self.compute(direction));
            pass(direction, FILE, body(self, style, FILE, party))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use crate::testing::{covered_once, extents, well_formed};

    fn simple(ranks: u32, class: BtioClass, dumps: u64) -> BtioRun {
        let subtype = BtioSubtype::Simple;
        Btio { ranks, class, subtype, dumps: Some(dumps), access: Access::Write, ..Btio::default() }
            .build()
            .expect("sensible")
    }

    #[test]
    fn rows_by_hand() {
        // BT of NPB 3.3 (class S, mpi_io_simple, 4 and 9 ranks, 10 steps, gfortran, MPICH 4.0.2; strace) writes and
        // reads these rows in this order. Class S on 4 ranks: 12 points, p = 2, cells of 6. Rank 1 = (1, 0): in layer 0
        // the cell x 6.., y 0.., z 0..; in layer 1 x (1 + 1) mod 2 = 0, y (0 - 1) mod 2 = 1: x 0.., y 6.., z 6...
        let extent_list = extents(&simple(4, BtioClass::S, 2), 1);
        assert_eq!(extent_list.len(), 2 * 2 * 6 * 6);
        // ((0 * 12 + 0) * 12 + 6) * 40 = 240, ((0 * 12 + 1) * 12 + 6) * 40 = 720; the next plane, z = 1:
        // ((12 + 0) * 12 + 6) * 40 = 6,000.
        assert_eq!(extent_list[..2], [(240, 240), (720, 240)]);
        assert_eq!(extent_list[6], (6_000, 240));
        // Layer 1: ((6 * 12 + 6) * 12 + 0) * 40 = 37,440.
        assert_eq!(extent_list[36], (37_440, 240));
        // The second dump starts 12^3 * 40 = 69,120 B later.
        assert_eq!(extent_list[72], (69_360, 240));
    }

    #[test]
    fn request_sizes_match_ibridge() {
        // Class C: 162 / 3 = 54 points of 40 B on 9 ranks, 162 / 10 = 16 or 17 points on 100.
        assert!(extents(&simple(9, BtioClass::C, 1), 4).iter().all(|&(_, len)| len == 2160));
        let sizes: std::collections::BTreeSet<u64> = (0..100)
            .flat_map(|rank| extents(&simple(100, BtioClass::C, 1), rank))
            .map(|(_, len)| len)
            .collect();
        assert!(sizes.into_iter().eq([640, 680]));
    }

    #[test]
    fn uneven_cells_by_hand() {
        // 102 = 26 + 26 + 25 + 25.
        let run = simple(16, BtioClass::B, 1);
        assert_eq!([0, 1, 2, 3].map(|c| run.span(c)), [(0, 26), (26, 26), (52, 25), (77, 25)]);
    }

    #[test]
    fn uneven_rows_match_npb() {
        // BT of NPB 3.3 (class W, mpi_io_simple, 25 ranks, 5 steps; strace): 24 = 5 + 5 + 5 + 5 + 4. Rank 7 = (2, 1)
        // starts with the cell at x 10.., y 5.., z 0..: (5 * 24 + 10) * 40 = 5,200.
        let extent_list = extents(&simple(25, BtioClass::W, 1), 7);
        let rows = [5_200, 6_160, 7_120, 8_080, 9_040, 28_240, 29_200, 30_160];
        assert_eq!(extent_list[..8], rows.map(|offset| (offset, 200)));
        assert!(extent_list.iter().any(|extent| extent.1 == 160));
    }

    #[test]
    fn file_sizes_match_the_papers() {
        let bytes = |class| {
            let run = Btio { class, ..Btio::default() }.build().expect("sensible");
            run.dumps * run.dump_bytes()
        };
        assert_eq!(bytes(BtioClass::C), 6_802_444_800); // 6.8 GB in iBridge
        assert_eq!(bytes(BtioClass::B), 1_697_932_800); // 1.69 GB in CEDA, which calls it class A
        assert_eq!(bytes(BtioClass::A), 419_430_400);
    }

    #[test]
    fn every_dump_is_covered_once() {
        for ranks in [1, 4, 9, 16] {
            let run = simple(ranks, BtioClass::S, 2);
            covered_once(&run, FILE, 0..2 * 69_120);
            well_formed(&run);
        }
    }

    #[test]
    fn two_phases_cover_every_dump_once() {
        let two_phase = TwoPhase { cb_nodes: Some(4), cb_buffer_size: Size::kib(16), ..TwoPhase::default() };
        let spec =
            Btio { access: Access::Write, two_phase: Some(two_phase), compute_us: 5, ..Btio::default() };
        let run = spec.build().unwrap();
        covered_once(&run, FILE, 0..12 * 69_120);
        well_formed(&run);
        assert_eq!(run.ops(3).filter(|op| *op == Op::Compute(Nanos(5000))).count(), 12);
        // Aggregators are ranks 0, 4, 8 and 12: 69,120 / 4 = 17,280 B in windows of 16,384 and 896.
        assert_eq!(extents(&run, 4)[..2], [(17_280, 16_384), (33_664, 896)]);
        assert_eq!(extents(&run, 5), []);
    }

    #[test]
    fn collective_dumps_match_npb() {
        // BT of NPB 3.3 (class S, mpi_io_full, 4 or 9 ranks, one per node, cb_nodes 3, cb_buffer_size 10,000; strace):
        // a dump of 69,120 bytes is divided into 3 x 23,040, written and read by ranks 0 to 2.
        let two_phase = TwoPhase {
            cb_nodes: Some(3),
            per_node: Some(1),
            cb_buffer_size: Size(10_000),
            ..TwoPhase::default()
        };
        let spec = Btio {
            ranks: 9,
            dumps: Some(2),
            access: Access::Both,
            two_phase: Some(two_phase),
            ..Btio::default()
        };
        let run = spec.build().unwrap();
        let dump = [(23_040, 10_000), (33_040, 10_000), (43_040, 3_040)];
        let next = dump.map(|(offset, len)| (offset + 69_120, len));
        assert_eq!(extents(&run, 1), [dump, next, dump, next].concat());
        assert_eq!(extents(&run, 3), []);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let error = Btio { ranks: 6, ..Btio::default() }.build().expect_err("not a square");
        assert_eq!(error.to_string(), "workload btio: ranks: 6 is not a square: give 4 or 9");
        let refused = |spec: Btio| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(Btio { ranks: 25, ..Btio::default() }), "ranks");
        let two_phase = Some(TwoPhase::default());
        assert_eq!(refused(Btio { subtype: BtioSubtype::Simple, two_phase, ..Btio::default() }), "two_phase");
    }
}

//! S3D-IO: checkpoints of a combustion code, four arrays in one file.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, check_collective, exchange, pass_barriers};
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::{Access, Direction, Ops, Style, SyncWhen, pass, phase_name};
use crate::size::Size;
use crate::subarray::Subarray;
use serde::{Deserialize, Serialize};
use weft_core::Nanos;

const CHECK: Check = Check("s3d-io");

/// Bytes of a double-precision number.
const ELEMENT_BYTES: u64 = 8;

/// Number of components of mass, velocity, pressure and temperature, in the order of the file.
const COMPONENTS: [u64; 4] = [11, 3, 1, 1];

/// S3D-IO: checkpoints of a combustion code.
///
/// Each checkpoint is a file of four arrays of X x Y x Z points of 8 bytes: mass with 11 components, velocity with 3,
/// pressure and temperature. x is the fastest dimension, the component the slowest. One collective call writes an
/// array, or all arrays (`nonblocking`).
///
/// Space is divided into blocks along x, y and z. Rank i has block `(i mod px, i / px mod py, i / (px py))` with all
/// components.
///
/// Serves IODC section IV-C and figures 7 to 9 (blocks of 25^3 and 35^3 points, 128 to 400 ranks: 1.9 and 5.2 MiB of
/// each rank in each checkpoint).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3dIo {
    /// Number of ranks.
    pub ranks: u32,
    /// Ranks along x, y and z. By default the most cubic division, largest factor first.
    pub processes: Option<[u32; 3]>,
    /// Points of each rank along x, y and z.
    pub block: [u64; 3],
    /// Number of checkpoints (the program's default is 5).
    pub checkpoints: u32,
    /// Length of a header that rank 0 writes before the arrays: 0 if arrays are written with MPI-IO alone, 588 in the
    /// program's netCDF files.
    pub header: Size,
    /// The first array starts at a multiple of this: 512 in PnetCDF, or the stripe size if MPI-IO reports it.
    pub header_align: Size,
    /// Whether one collective call writes all arrays of a checkpoint (PnetCDF's non-blocking interface), instead of one
    /// call per array.
    pub nonblocking: bool,
    /// Direction of the transfers: write, read, or write all checkpoints and then read all.
    pub access: Access,
    /// Computing time before each checkpoint, in microseconds.
    pub compute_us: u64,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// Whether calls are collective.
    pub collective: bool,
    /// Collective buffering of MPI-IO. By default each rank transfers its own rows.
    pub two_phase: Option<TwoPhase>,
}

impl Default for S3dIo {
    fn default() -> Self {
        Self {
            ranks: 8,
            processes: None,
            block: [25; 3],
            checkpoints: 2,
            header: Size(0),
            header_align: Size(512),
            nonblocking: false,
            access: Access::Write,
            compute_us: 0,
            sync: SyncWhen::Never,
            collective: true,
            two_phase: None,
        }
    }
}

impl S3dIo {
    pub(crate) fn build(&self) -> Result<S3dIoRun, SpecError> {
        let ranks = CHECK.positive("ranks", u64::from(self.ranks))?;
        let processes = self.processes.map_or_else(|| cubic(ranks), |p| p.map(u64::from));
        let [px, py, pz] = processes;
        if px.checked_mul(py).and_then(|pxy| pxy.checked_mul(pz)) != Some(ranks) {
            return CHECK.fail(
                "processes",
                format!("{px} x {py} x {pz} does not equal {ranks}, the number of ranks"),
            );
        }
        for points in self.block {
            CHECK.positive("block", points)?;
        }
        CHECK.positive("checkpoints", u64::from(self.checkpoints))?;
        let [x, y, z] = self.block;
        CHECK.product("block", &[x, y, z, ranks, ELEMENT_BYTES, COMPONENTS.iter().sum()])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        Ok(S3dIoRun { spec: self.clone(), processes })
    }
}

/// Divides `ranks` into the three factors that differ least, largest first.
fn cubic(ranks: u64) -> [u64; 3] {
    let divides = |of: u64, by: u64| of.is_multiple_of(by);
    let pz = (1..=ranks).take_while(|z| z * z * z <= ranks).filter(|&z| divides(ranks, z)).max().unwrap_or(1);
    let rest = ranks / pz;
    let py = (1..=rest.isqrt()).filter(|&y| divides(rest, y)).max().unwrap_or(1);
    [rest / py, py, pz]
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct S3dIoRun {
    spec: S3dIo,
    /// Ranks along x, y and z.
    processes: [u64; 3],
}

impl S3dIoRun {
    /// Returns the block of a rank in an array of `components`.
    fn block(&self, rank: u32, components: u64) -> Subarray {
        let rank = u64::from(rank);
        let [px, py, pz] = self.processes;
        let [nx, ny, nz] = self.spec.block;
        let (ix, iy, iz) = (rank % px, rank / px % py, rank / (px * py));
        Subarray {
            array: [components, nz * pz, ny * py, nx * px],
            part: [components, nz, ny, nx],
            start: [0, nz * iz, ny * iy, nx * ix],
            element: ELEMENT_BYTES,
        }
    }

    fn party(&self, rank: u32) -> CallRank<'_> {
        let S3dIo { ranks, ref two_phase, .. } = self.spec;
        CallRank {
            rank,
            part: rank,
            is_out_of_order: false,
            ranks,
            two_phase: two_phase.as_ref(),
            before: None,
        }
    }

    /// Bytes of one component of an array.
    fn plane_bytes(&self) -> u64 {
        self.spec.block.iter().product::<u64>() * u64::from(self.spec.ranks) * ELEMENT_BYTES
    }

    /// Offset of array `index`.
    fn begin(&self, index: usize) -> u64 {
        let first = self.spec.header.0.next_multiple_of(self.spec.header_align.0.max(1));
        first + COMPONENTS[..index].iter().sum::<u64>() * self.plane_bytes()
    }
}

impl Calls for S3dIoRun {
    fn calls(&self) -> u64 {
        if self.spec.nonblocking { 1 } else { COMPONENTS.len() as u64 }
    }

    fn union(&self, call: u64) -> Union {
        if self.spec.nonblocking {
            return Union::dense(self.begin(0), self.begin(COMPONENTS.len()), self.spec.ranks > 1);
        }
        let index = call as usize;
        // Neighboring blocks in one dimension interleave if they have more than one row in a slower dimension.
        let [px, py, pz] = self.processes;
        let [_, ny, nz] = self.spec.block;
        let above_z = COMPONENTS[index];
        let above_y = above_z * nz;
        let above_x = above_y * ny;
        let interleaved =
            [(px, above_x), (py, above_y), (pz, above_z)].iter().any(|&(p, rows)| p > 1 && rows > 1);
        Union::dense(self.begin(index), self.begin(index + 1), interleaved)
    }

    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        let arrays =
            if self.spec.nonblocking { 0..COMPONENTS.len() } else { call as usize..call as usize + 1 };
        Box::new(arrays.flat_map(move |index| {
            let base = self.begin(index);
            let runs = self.block(rank, COMPONENTS[index]).ranges();
            runs.map(move |(offset, len)| (base + offset, len))
        }))
    }
}

impl Workload for S3dIoRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        format!("s3d.{:04}.field", file.0)
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let existing = if self.spec.access.needs_existing_files() { self.spec.checkpoints } else { 0 };
        Box::new((0..existing).map(|number| (FileRef(number), self.begin(COMPONENTS.len()))))
    }

    fn exchange(&self, rank: u32, barrier: u64) -> Vec<(u32, u64)> {
        let each = pass_barriers(self);
        // Further passes read.
        let writes = barrier < u64::from(self.spec.checkpoints) * each && self.spec.access != Access::Read;
        if writes { exchange(self, self.party(rank), barrier % each) } else { Vec::new() }
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let S3dIo { checkpoints, header, access, compute_us, sync, collective, .. } = self.spec;
        let party = self.party(rank);
        let files =
            access.directions().iter().flat_map(move |&d| (0..checkpoints).map(move |n| (d, FileRef(n))));
        Box::new(files.flat_map(move |(direction, file)| {
            let style = Style { direction, barrier: false, sync, collective };
            let computes = compute_us > 0 && direction == Direction::Write;
            let compute = computes.then_some(Op::Compute(Nanos(compute_us * 1000)));
            // Only rank 0 writes the header; every rank reads it.
            let wanted = header.0 > 0 && (rank == 0 || direction == Direction::Read);
            let moved = wanted.then(|| direction.transfer(file, 0, header.0, false));
            let all = moved.into_iter().chain(body(self, style, file, party));
            compute.into_iter().chain(pass(direction, file, all))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{covered_once, file_extents, well_formed};

    fn spec() -> S3dIo {
        S3dIo { processes: Some([2, 2, 2]), block: [5, 4, 3], checkpoints: 1, ..S3dIo::default() }
    }

    #[test]
    fn rows_by_hand() {
        // 8 ranks, 10 x 8 x 6 points. Rank 5 = (1, 0, 1): x from 5, y from 0, z from 3. A component has 480 points
        // of 8 B = 3,840 B.
        let extent_list = file_extents(&spec().build().unwrap(), 5);
        assert_eq!(extent_list.len(), (11 + 3 + 1 + 1) * 3 * 4);
        // Mass, component 0: ((3 * 8 + 0) * 10 + 5) * 8 = 1,960, then the next y: + 80.
        assert_eq!(extent_list[..2], [(FileRef(0), 1_960, 40), (FileRef(0), 2_040, 40)]);
        // Component 1 starts 3,840 B later.
        assert_eq!(extent_list[12], (FileRef(0), 5_800, 40));
        // Temperature is the last array, after 15 components: 57,600 + 1,960.
        assert_eq!(extent_list[15 * 12], (FileRef(0), 59_560, 40));
    }

    #[test]
    fn blocks_match_those_of_s3d_io() {
        // S3D-IO (PnetCDF 1.12.3, s3d_io.x 10 8 6 2 2 2 0 F, 8 ranks) on ROMIO without two-phase I/O and data sieving
        // (strace). Header and first rows of rank 0, and 192 rows in each of 5 files of 62,464 bytes.
        let run = S3dIo { header: Size(588), ..spec() }.build().unwrap();
        let extent_list = file_extents(&run, 0);
        let rows = [1024, 1104, 1184, 1264, 1664, 1744, 1824, 1904, 2304, 2384, 2464, 2544, 4864];
        assert_eq!(extent_list[0], (FileRef(0), 0, 588));
        assert_eq!(extent_list[1..14], rows.map(|offset| (FileRef(0), offset, 40)));
        assert_eq!(extent_list.len(), 193);
        assert_eq!(file_extents(&run, 1).len(), 192);
        assert_eq!(run.begin(COMPONENTS.len()), 62_464);
    }

    #[test]
    fn bytes_of_iodc() {
        // 25^3 * 16 * 8 B = 2,000,000 B = 1.9 MiB; 35^3 * 128 B = 5,488,000 B = 5.2 MiB of each rank.
        for (points, bytes) in [(25, 2_000_000u64), (35, 5_488_000)] {
            let run =
                S3dIo { ranks: 128, block: [points; 3], checkpoints: 1, ..S3dIo::default() }.build().unwrap();
            assert_eq!(file_extents(&run, 77).iter().map(|extent| extent.2).sum::<u64>(), bytes);
        }
    }

    #[test]
    fn every_checkpoint_is_covered_once() {
        let two_phase = TwoPhase { cb_nodes: Some(3), cb_buffer_size: Size(1000), ..TwoPhase::default() };
        for (nonblocking, two_phase) in
            [(false, None), (false, Some(two_phase.clone())), (true, Some(two_phase))]
        {
            let run = S3dIo {
                checkpoints: 2,
                header: Size(100),
                header_align: Size(1),
                nonblocking,
                two_phase,
                ..spec()
            };
            let run = run.build().unwrap();
            covered_once(&run, FileRef(1), 0..100 + 16 * 3_840);
            well_formed(&run);
        }
    }

    #[test]
    fn calls_interleave_where_ranks_do() {
        // ROMIO compares each rank's first byte with the previous rank's last byte.
        for processes in [[4, 1, 1], [1, 4, 1], [1, 1, 4], [2, 2, 1], [1, 2, 2], [2, 1, 2]] {
            for block in [[2, 1, 1], [2, 2, 1], [2, 1, 2], [1, 1, 1]] {
                let run = S3dIo { ranks: 4, processes: Some(processes), block, ..S3dIo::default() }
                    .build()
                    .unwrap();
                for call in 0..4 {
                    let range = |rank| {
                        let pieces: Vec<_> = run.pieces(call, rank).collect();
                        let &(last, len) = pieces.last().unwrap();
                        (pieces[0].0, last + len - 1)
                    };
                    let expected = (1..4).any(|rank| range(rank).0 < range(rank - 1).1);
                    assert_eq!(run.union(call).interleaved, expected, "{processes:?} {block:?} {call}");
                }
            }
        }
    }

    #[test]
    fn ranks_are_divided_into_the_most_cubic_factors() {
        assert_eq!(cubic(128), [8, 4, 4]);
        assert_eq!(cubic(400), [10, 8, 5]);
        assert_eq!(cubic(7), [7, 1, 1]);
        assert_eq!(cubic(1), [1, 1, 1]);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: S3dIo| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(S3dIo { processes: Some([3, 1, 1]), ..S3dIo::default() }), "processes");
        assert_eq!(refused(S3dIo { block: [0, 1, 1], ..S3dIo::default() }), "block");
        assert_eq!(refused(S3dIo { checkpoints: 0, ..S3dIo::default() }), "checkpoints");
    }
}

//! FLASH-IO: a checkpoint and two plot files of a block-structured astrophysics code.

use crate::collective::{CallRank, TwoPhase, body, check_collective, exchange, pass_barriers};
use crate::error::{Check, SpecError};
use crate::flash_layout::Layout;
use crate::op::{FileRef, Op, Workload};
use crate::passes::{Access, Direction, Ops, Style, SyncWhen, pass_from, phase_name};
use crate::size::Size;
use serde::{Deserialize, Serialize};
use weft_core::Nanos;

const CHECK: Check = Check("flash-io");

/// FLASH-IO: checkpoint and plot files.
///
/// Rank i has `blocks + i mod 3` blocks of `block[0] x block[1] x block[2]` cells, written without guard cells.
///
/// | file | arrays |
/// | --- | --- |
/// | checkpoint | six arrays that describe the blocks, and one array of doubles for each of 24 unknowns |
/// | centered plot file | the six arrays, and four unknowns in single precision at the centers of the cells |
/// | corner plot file | the six arrays, and four unknowns in single precision at the corners of the cells |
///
/// In every array the blocks of a rank follow those of the previous rank. Accesses are therefore contiguous, but
/// unaligned because of the file's header and the uneven number of blocks.
///
/// Serves IODC section IV-B and figures 7 to 9 (blocks of 8^3 and 16^3 cells, 128 to 400 ranks: 7.5 and 60 MiB of
/// unknowns of each rank).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlashIo {
    /// Number of ranks.
    pub ranks: u32,
    /// Cells of a block along x, y and z (nxb, nyb, nzb).
    pub block: [u64; 3],
    /// Number of blocks of rank 0.
    pub blocks: u64,
    /// Number of unknowns in the checkpoint.
    pub unknowns: u64,
    /// Files to write, in this order.
    pub files: Vec<FlashFile>,
    /// File format, which determines the offsets of the arrays.
    pub format: FlashFormat,
    /// The first array of a netCDF file starts at the next multiple of this after the header: 512 in PnetCDF, or the
    /// stripe size if MPI-IO reports it.
    pub header_align: Size,
    /// Whether one collective call writes all arrays of a file (PnetCDF's non-blocking interface), instead of one each.
    pub nonblocking: bool,
    /// Direction of the transfers; the benchmark writes.
    pub access: Access,
    /// Computing time before each file, in microseconds.
    pub compute_us: u64,
    /// When written data is flushed to stable storage.
    pub sync: SyncWhen,
    /// Whether calls are collective.
    pub collective: bool,
    /// Collective buffering of MPI-IO. Calls for single arrays use it only if `force` is set, because the ranks' ranges
    /// do not interleave in an array.
    pub two_phase: Option<TwoPhase>,
}

/// A file of FLASH-IO.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlashFile {
    /// All unknowns in double precision.
    Checkpoint,
    /// Four unknowns at the centers of the cells in single precision.
    PlotCentered,
    /// Four unknowns at the corners of the cells in single precision: one more value in each direction.
    PlotCorners,
}

impl FlashFile {
    const ALL: [Self; 3] = [Self::Checkpoint, Self::PlotCentered, Self::PlotCorners];

    fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::PlotCentered => "plot-centered",
            Self::PlotCorners => "plot-corners",
        }
    }
}

/// File format, which determines the offsets of the arrays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlashFormat {
    /// A header, written first, followed by adjacent arrays (`nc_var_align_size = 1`).
    #[default]
    Pnetcdf,
    /// Metadata blocks of 2 KiB, one at the start and one before each group of arrays whose headers need it, written at
    /// the end. An approximation: the layout of HDF5 depends on its version.
    Hdf5,
}

impl Default for FlashIo {
    fn default() -> Self {
        Self {
            ranks: 8,
            block: [8; 3],
            blocks: 80,
            unknowns: 24,
            files: FlashFile::ALL.to_vec(),
            format: FlashFormat::Pnetcdf,
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

impl FlashIo {
    pub(crate) fn build(&self) -> Result<FlashIoRun, SpecError> {
        let ranks = CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("blocks", self.blocks)?;
        CHECK.positive("unknowns", self.unknowns)?;
        if self.unknowns > 9999 {
            return CHECK.fail("unknowns", "names of unknowns have four characters: give at most 9999");
        }
        for cells in self.block {
            CHECK.positive("block", cells)?;
            CHECK.product("block", &[cells.saturating_add(1)])?;
        }
        let [x, y, z] = self.block.map(|cells| cells + 1);
        let per_block = CHECK.product("block", &[x, y, z, 8])?.saturating_add(1000);
        CHECK.product("blocks", &[ranks, self.blocks.saturating_add(3), per_block, self.unknowns + 10])?;
        if self.files.is_empty() {
            return CHECK.fail("files", "the list is empty: name at least one");
        }
        for (index, file) in self.files.iter().enumerate() {
            if self.files[..index].contains(file) {
                return CHECK.fail("files", format!("{:?} occurs twice", file.name()));
            }
        }
        if self.nonblocking && self.format == FlashFormat::Hdf5 {
            return CHECK.fail("nonblocking", "HDF5 writes each array with a call of its own: use pnetcdf");
        }
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        let layouts = FlashFile::ALL.map(|file| Layout::new(self, file));
        Ok(FlashIoRun { spec: self.clone(), layouts })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct FlashIoRun {
    spec: FlashIo,
    /// Layouts of [`FlashFile::ALL`].
    layouts: [Layout; 3],
}

impl FlashIoRun {
    fn party(&self, rank: u32) -> CallRank<'_> {
        let FlashIo { ranks, ref two_phase, .. } = self.spec;
        CallRank {
            rank,
            part: rank,
            is_out_of_order: false,
            ranks,
            two_phase: two_phase.as_ref(),
            before: None,
        }
    }

    fn file_pass(
        &self,
        direction: Direction,
        which: FlashFile,
        rank: u32,
    ) -> impl Iterator<Item = Op> + Send + '_ {
        let FlashIo { compute_us, sync, collective, format, .. } = self.spec;
        let file = FileRef(which as u32);
        let layout = &self.layouts[which as usize];
        // Only rank 0 writes the metadata; every rank reads these few KiB.
        let takes_part = rank == 0 || direction == Direction::Read;
        let metadata = move |when: bool| {
            let moved = layout.metadata.iter().filter(move |_| takes_part && when);
            moved.map(move |&(offset, len)| direction.transfer(file, offset, len, false))
        };
        let before_arrays = format == FlashFormat::Pnetcdf || direction == Direction::Read;
        let party = self.party(rank);
        let style = Style { direction, barrier: false, sync, collective };
        let moved =
            metadata(before_arrays).chain(body(layout, style, file, party)).chain(metadata(!before_arrays));
        let computes = compute_us > 0 && direction == Direction::Write;
        let compute = computes.then_some(Op::Compute(Nanos(compute_us * 1000)));
        compute.into_iter().chain(pass_from(which as u16 * 6, direction, file, moved))
    }
}

impl Workload for FlashIoRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        let name = match FlashFile::ALL[file.0 as usize] {
            FlashFile::Checkpoint => "chk",
            FlashFile::PlotCentered => "plt_cnt",
            FlashFile::PlotCorners => "plt_crn",
        };
        let (by, end) = match self.spec.format {
            FlashFormat::Pnetcdf => ("ncmpi", "nc"),
            FlashFormat::Hdf5 => ("hdf5", "h5"),
        };
        format!("flash_io_test_{by}_{name}_0000.{end}")
    }

    fn phase(&self, phase: u16) -> String {
        match FlashFile::ALL.get(usize::from(phase / 6)) {
            Some(file) => format!("{}-{}", file.name(), phase_name(phase % 6)),
            None => "unknown".to_owned(),
        }
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let existing: &[FlashFile] =
            if self.spec.access.needs_existing_files() { &self.spec.files } else { &[] };
        Box::new(existing.iter().map(|&file| (FileRef(file as u32), self.layouts[file as usize].end)))
    }

    fn exchange(&self, rank: u32, mut barrier: u64) -> Vec<(u32, u64)> {
        if self.spec.access == Access::Read {
            return Vec::new();
        }
        for file in &self.spec.files {
            let layout = &self.layouts[*file as usize];
            let count = pass_barriers(layout);
            if barrier < count {
                return exchange(layout, self.party(rank), barrier);
            }
            barrier -= count;
        }
        Vec::new()
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let passes = self.spec.access.directions().iter();
        let files = passes.flat_map(|&direction| self.spec.files.iter().map(move |&file| (direction, file)));
        Box::new(files.flat_map(move |(direction, file)| self.file_pass(direction, file, rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{covered_once, file_extents, well_formed};

    #[test]
    fn pieces_by_hand() {
        // 3 ranks with 80, 81 and 82 blocks of 2 x 2 x 2 cells, 1 unknown. 161 blocks precede those of rank 2.
        let spec = FlashIo {
            ranks: 3,
            block: [2; 3],
            unknowns: 1,
            files: vec![FlashFile::Checkpoint],
            ..FlashIo::default()
        };
        let run = spec.build().unwrap();
        let header = run.layouts[0].arrays[0].begin;
        let extent_list: Vec<(u64, u64)> =
            file_extents(&run, 2).into_iter().map(|(_, at, len)| (at - header, len)).collect();
        // Bytes of a block in each array: refinement 4, type 4, neighbors 15 * 4 = 60, coordinates 24, size 24,
        // bounding box 48, unknown 8 * 8 = 64. 243 blocks in total.
        let mut begin = 0;
        let mut expected = Vec::new();
        for bytes in [4, 4, 60, 24, 24, 48, 64] {
            expected.push((begin + 161 * bytes, 82 * bytes));
            begin += 243 * bytes;
        }
        assert_eq!(extent_list, expected);
    }

    #[test]
    fn files_match_those_of_flash_io() {
        // FLASH-IO in PnetCDF 1.12.3, 4 ranks, blocks of 2 x 3 x 4 cells, on ROMIO without two-phase I/O and data
        // sieving (strace). The ranks have 323 blocks; rank 0 writes the header, and rank 2 has 82 blocks after 161
        // others.
        let spec = FlashIo { ranks: 4, block: [2, 3, 4], nonblocking: true, ..FlashIo::default() };
        let run = spec.build().unwrap();
        let of = |rank, file| -> Vec<(u64, u64)> {
            let extent_list = file_extents(&run, rank).into_iter().filter(|extent| extent.0 == FileRef(file));
            extent_list.map(|(_, offset, len)| (offset, len)).collect()
        };
        let checkpoint = of(0, 0);
        assert_eq!(checkpoint.len(), 31);
        let expected = [
            (0, 2968),
            (3072, 320),
            (4364, 320),
            (5656, 4800),
            (25_036, 1920),
            (32_788, 1920),
            (40_540, 3840),
            (56_044, 15_360),
            (118_060, 15_360),
        ];
        assert_eq!(checkpoint[..9], expected);
        assert_eq!(run.layouts.each_ref().map(|layout| layout.end), [1_544_428, 163_036, 349_084]);
        let centers = [
            (2180, 328),
            (3472, 328),
            (13_780, 4920),
            (25_432, 984),
            (29_308, 984),
            (35_116, 1968),
            (54_460, 7872),
            (85_468, 7872),
            (116_476, 7872),
            (147_484, 7872),
        ];
        assert_eq!(of(2, 1), centers);
        assert_eq!(of(2, 2)[6..], [77_644, 155_164, 232_684, 310_204].map(|offset| (offset, 19_680)));
    }

    #[test]
    fn total_bytes_by_hand() {
        // 512 ranks have 512 * 80 + 511 = 41,471 blocks. The page of the PnetCDF version gives 31,109.74 MiB for the
        // checkpoint of 16^3 cells: 41,471 * (24 * 16^3 * 8 + 164) B and a header.
        let run = FlashIo { ranks: 512, block: [16; 3], ..FlashIo::default() }.build().unwrap();
        let header = |index: usize| run.layouts[index].arrays[0].begin;
        assert_eq!(run.layouts[0].end, 41_471 * (24 * 4096 * 8 + 164) + header(0));
        assert!((run.layouts[0].end as f64 / 1_048_576.0 - 31_109.74).abs() < 0.01);
        // Plot files: 4 unknowns of 4 B; a block is described by 4 + 4 + 60 + 12 + 12 + 24 = 116 B.
        assert_eq!(run.layouts[1].end, 41_471 * (4 * 4096 * 4 + 116) + header(1));
        assert_eq!(run.layouts[2].end, 41_471 * (4 * 4913 * 4 + 116) + header(2));
    }

    #[test]
    fn bytes_of_iodc() {
        // 80 * 8^3 * 8 B * 24 = 7,864,320 B = 7.5 MiB and 80 * 16^3 * 8 B * 24 = 60 MiB of unknowns of rank 0.
        for (cells, mib) in [(8, 7.5), (16, 60.0)] {
            let run = FlashIo { block: [cells; 3], ..FlashIo::default() }.build().unwrap();
            let checkpoint = file_extents(&run, 0).into_iter().filter(|extent| extent.0 == FileRef(0));
            let unknowns: u64 = checkpoint.skip(7).map(|extent| extent.2).sum();
            assert!((unknowns as f64 / 1_048_576.0 - mib).abs() < 1e-9);
        }
    }

    #[test]
    fn files_are_covered_once() {
        let forced =
            TwoPhase { cb_nodes: Some(2), cb_buffer_size: Size(1000), force: true, ..TwoPhase::default() };
        for (nonblocking, two_phase) in
            [(false, None), (true, None), (false, Some(forced.clone())), (true, Some(forced))]
        {
            let spec = FlashIo {
                ranks: 4,
                block: [2, 3, 4],
                blocks: 5,
                unknowns: 6,
                header_align: Size(1),
                nonblocking,
                two_phase,
                ..FlashIo::default()
            };
            let run = spec.build().unwrap();
            for file in FlashFile::ALL {
                covered_once(&run, FileRef(file as u32), 0..run.layouts[file as usize].end);
            }
            well_formed(&run);
        }
        let spec =
            FlashIo { format: FlashFormat::Hdf5, block: [2; 3], access: Access::Both, ..FlashIo::default() };
        well_formed(&spec.build().unwrap());
        let spec = FlashIo { access: Access::Write, ..spec };
        let run = spec.build().unwrap();
        covered_once(&run, FileRef(0), 0..run.layouts[0].end);
    }

    #[test]
    fn calls_for_single_arrays_stay_independent() {
        // IODC says the same of ROMIO: ranks do not interleave in an array, so no rank aggregates.
        let spec = FlashIo { ranks: 4, ..FlashIo::default() };
        let two_phase = Some(TwoPhase { cb_nodes: Some(1), ..TwoPhase::default() });
        let with = FlashIo { two_phase, ..spec.clone() }.build().unwrap();
        assert_eq!(file_extents(&with, 3), file_extents(&spec.build().unwrap(), 3));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: FlashIo| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(FlashIo { block: [8, 0, 8], ..FlashIo::default() }), "block");
        assert_eq!(refused(FlashIo { files: vec![], ..FlashIo::default() }), "files");
        let hdf5 = FlashIo { format: FlashFormat::Hdf5, nonblocking: true, ..FlashIo::default() };
        assert_eq!(refused(hdf5), "nonblocking");
    }
}

//! Offsets of the arrays in a FLASH-IO file.

use crate::collective::{Calls, Union};
use crate::flash_io::{FlashFile, FlashFormat, FlashIo};

/// An array with a part for each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Array {
    /// Offset of the array.
    pub(crate) begin: u64,
    /// Bytes per block.
    pub(crate) block_bytes: u64,
}

/// Layout of one file.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The arrays, in the order of the file.
    pub(crate) arrays: Vec<Array>,
    /// The file's headers, as `(offset, bytes)`.
    pub(crate) metadata: Vec<(u64, u64)>,
    /// Offset after the last byte.
    pub(crate) end: u64,
    ranks: u32,
    /// Number of blocks of rank 0.
    blocks: u64,
    /// Whether one call writes all arrays.
    at_once: bool,
}

/// Number of unknowns in plot files.
const PLOT_UNKNOWNS: u64 = 4;

/// Length of HDF5's metadata blocks in bytes. The next constants are the array headers in the first and in others.
const HDF5_BLOCK_BYTES: u64 = 2048;
const HDF5_FIRST_BLOCK_HEADERS: usize = 4;
const HDF5_BLOCK_HEADERS: usize = 7;

impl Layout {
    pub(crate) fn new(spec: &FlashIo, file: FlashFile) -> Self {
        let plot = file != FlashFile::Checkpoint;
        let corners = file == FlashFile::PlotCorners;
        let real = if plot { 4 } else { 8 };
        let unknowns = if plot { PLOT_UNKNOWNS } else { spec.unknowns };
        let cells: u64 = spec.block.iter().map(|&cells| cells + u64::from(corners)).product();
        // Refinement level, type and 15 neighbors as integers; coordinates, size and bounding box as reals.
        let described = [4, 4, 15 * 4, 3 * real, 3 * real, 2 * 3 * real];
        let sizes = described.into_iter().chain((0..unknowns).map(|_| cells * real));
        let blocks = blocks_before(spec.blocks, u64::from(spec.ranks));
        let (first, mut end) = match spec.format {
            FlashFormat::Pnetcdf => {
                let header = netcdf_header_bytes(unknowns);
                // Arrays start at multiples of 4 in every netCDF file.
                (header, header.next_multiple_of(spec.header_align.0.next_multiple_of(4).max(4)))
            }
            FlashFormat::Hdf5 => (HDF5_BLOCK_BYTES, HDF5_BLOCK_BYTES),
        };
        let mut metadata = vec![(0, first)];
        let mut arrays = Vec::new();
        for (index, block_bytes) in sizes.enumerate() {
            let beyond = index.checked_sub(HDF5_FIRST_BLOCK_HEADERS);
            let full = beyond.is_some_and(|beyond| beyond.is_multiple_of(HDF5_BLOCK_HEADERS));
            if spec.format == FlashFormat::Hdf5 && full {
                metadata.push((end, HDF5_BLOCK_BYTES));
                end += HDF5_BLOCK_BYTES;
            }
            arrays.push(Array { begin: end, block_bytes });
            end += blocks * block_bytes;
        }
        Self { arrays, metadata, end, ranks: spec.ranks, blocks: spec.blocks, at_once: spec.nonblocking }
    }

    /// Returns the blocks of `rank` in array `index`, as `(offset, bytes)`.
    fn piece(&self, index: usize, rank: u32) -> (u64, u64) {
        let array = self.arrays[index];
        let own = self.blocks + u64::from(rank % 3);
        (
            array.begin + blocks_before(self.blocks, u64::from(rank)) * array.block_bytes,
            own * array.block_bytes,
        )
    }
}

impl Calls for Layout {
    fn calls(&self) -> u64 {
        if self.at_once { 1 } else { self.arrays.len() as u64 }
    }

    fn union(&self, call: u64) -> Union {
        let array = self.arrays[call as usize];
        if self.at_once {
            return Union::dense(array.begin, self.end, self.ranks > 1);
        }
        let all = blocks_before(self.blocks, u64::from(self.ranks));
        Union::dense(array.begin, array.begin + all * array.block_bytes, false)
    }

    fn pieces(&self, call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        if self.at_once {
            return Box::new((0..self.arrays.len()).map(move |index| self.piece(index, rank)));
        }
        Box::new(std::iter::once(self.piece(call as usize, rank)))
    }
}

/// Number of blocks of all ranks below `rank`. Rank i has `blocks + i mod 3` blocks.
fn blocks_before(blocks: u64, rank: u64) -> u64 {
    rank * blocks + rank / 3 * 3 + u64::from(rank % 3 == 2)
}

/// Length of the header of a netCDF file of format 5 (64-bit data) with FLASH-IO's dimensions, attributes and arrays.
fn netcdf_header_bytes(unknowns: u64) -> u64 {
    let padded = |len: u64| len.next_multiple_of(4);
    // A name or a value has a length of 8 bytes and is padded to 4; a list has a tag and a count.
    let name = |len: u64| 8 + padded(len);
    let list = 4 + 8;
    let magic_and_records = 4 + 8;
    let dimensions: u64 =
        ["dim_tot_blocks", "dim_nxb", "dim_nyb", "dim_nzb", "dim_NGID", "dim_NDIM", "dim_2"]
            .iter()
            .map(|dimension| name(dimension.len() as u64) + 8)
            .sum();
    let attribute = |label: &str, bytes: u64| name(label.len() as u64) + 4 + 8 + padded(bytes);
    let attributes = attribute("file_creation_time", "now".len() as u64)
        + attribute("flash_version", "FLASH I/O benchmark using Pnetcdf".len() as u64)
        + ["total_blocks", "nsteps", "nxb", "nyb", "nzb"]
            .iter()
            .map(|label| attribute(label, 4))
            .sum::<u64>()
        + attribute("time", 8);
    // Name, dimensions, no attributes, type, size, offset.
    let array = |label: u64, dimensions: u64| name(label) + 8 + 8 * dimensions + list + 4 + 8 + 8;
    let described: u64 =
        [("lrefine", 1), ("nodetype", 1), ("gid", 2), ("coordinates", 2), ("blocksize", 2), ("bndbox", 3)]
            .iter()
            .map(|(label, dimensions)| array(label.len() as u64, *dimensions))
            .sum();
    let arrays = described + unknowns * array(4, 4);
    magic_and_records + list + dimensions + list + attributes + list + arrays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_to_the_left_by_hand() {
        // 80 + 81 + 82 + 80 + 81 ...
        assert_eq!([0, 1, 2, 3, 4, 5].map(|rank| blocks_before(80, rank)), [0, 80, 161, 243, 323, 404]);
    }

    #[test]
    fn header_by_hand() {
        // Magic 4 + records 8 = 12.
        // Dimensions: list 12; names 8 + 16, 3 x (8 + 8), 2 x (8 + 8), 8 + 8, each and a length of 8:
        // 32 + 6 * 24 = 176.
        // Attributes: list 12; file_creation_time 28 + 12 + 4 = 44; flash_version 24 + 12 + 36 = 72; total_blocks
        // 20 + 12 + 4 = 36; nsteps 16 + 12 + 4 = 32; nxb, nyb, nzb 12 + 12 + 4 = 28 each; time 12 + 12 + 8 = 32: 300.
        // Arrays: list 12; 40 bytes each for counts, lists, type, size and begin, and name and dimensions:
        // lrefine 16 + 8, nodetype 16 + 8, gid 12 + 16, coordinates 20 + 16, blocksize 20 + 16, bndbox 16 + 24: 188
        // and 6 * 40 = 240: 428; an unknown 12 + 32 + 40 = 84.
        let described = 12 + 12 + 176 + 12 + 300 + 12 + 428;
        assert_eq!(netcdf_header_bytes(24), described + 24 * 84);
        // Measured with PnetCDF 1.12.3 for a checkpoint and a plot file (strace, ncvalidator).
        assert_eq!((netcdf_header_bytes(24), netcdf_header_bytes(4)), (2968, 1288));
    }

    #[test]
    fn metadata_blocks_of_hdf5_by_hand() {
        let spec =
            FlashIo { ranks: 1, block: [2; 3], blocks: 10, format: FlashFormat::Hdf5, ..FlashIo::default() };
        let layout = Layout::new(&spec, FlashFile::Checkpoint);
        // Arrays 0 to 3 follow the first 2048 bytes: 10 blocks of 4, 4, 60 and 24 B. Then 2048 B for arrays 4 to 10.
        assert_eq!(layout.arrays[0].begin, 2048);
        assert_eq!(layout.arrays[3].begin, 2048 + 10 * (4 + 4 + 60));
        assert_eq!(layout.metadata[1], (2048 + 10 * (4 + 4 + 60 + 24), 2048));
        assert_eq!(layout.arrays[4].begin, layout.metadata[1].0 + 2048);
        // 30 arrays: metadata blocks before arrays 4, 11, 18 and 25.
        assert_eq!(layout.metadata.len(), 5);
    }
}

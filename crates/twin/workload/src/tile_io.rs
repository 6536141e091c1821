//! MPI-Tile-IO: a two-dimensional array divided into tiles.

use crate::collective::{CallRank, Calls, TwoPhase, Union, body, check_collective, check_no_exchange};
use crate::error::{Check, SpecError};
use crate::op::{FileRef, Workload};
use crate::passes::{Access, Ops, Style, SyncWhen, pass, phase_name};
use crate::size::Size;
use crate::subarray::Subarray;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mpi-tile-io");
const FILE: FileRef = FileRef(0);

/// MPI-Tile-IO of the Parallel I/O Benchmarking Consortium.
///
/// The file is a dense array of elements after a header. Rank i has the tile in column `i mod tiles_x` of row
/// `i / tiles_x` and transfers it in one call. Neighbors share `overlap_x` columns and `overlap_y` rows of elements.
///
/// Serves PSA section IV-D and figure 12 (tiles of 8 x 8 elements of 32 KiB, 100 to 400 ranks, no overlap,
/// collective).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MpiTileIo {
    /// Number of ranks: one for each tile.
    pub ranks: u32,
    /// Tiles in a row (`--nr_tiles_x`). By default the most square arrangement, with rows longer than columns.
    pub tiles_x: Option<u32>,
    /// Rows of tiles (`--nr_tiles_y`).
    pub tiles_y: Option<u32>,
    /// Elements of a tile in a row (`--sz_tile_x`).
    pub tile_x: u64,
    /// Rows of elements in a tile (`--sz_tile_y`).
    pub tile_y: u64,
    /// Length of an element (`--sz_element`).
    pub element: Size,
    /// Elements that neighbors in a row share (`--overlap_x`).
    pub overlap_x: u64,
    /// Rows that neighbors in a column share (`--overlap_y`).
    pub overlap_y: u64,
    /// Length of the header before the array (`--header_bytes`).
    pub header: Size,
    /// Direction of the transfers.
    pub access: Access,
    /// When written data is flushed to stable storage; the benchmark does it after the write.
    pub sync: SyncWhen,
    /// Whether the call is collective (`--collective`).
    pub collective: bool,
    /// Collective buffering of MPI-IO. By default each rank transfers the rows of its tile.
    pub two_phase: Option<TwoPhase>,
}

impl Default for MpiTileIo {
    fn default() -> Self {
        Self {
            ranks: 16,
            tiles_x: None,
            tiles_y: None,
            tile_x: 8,
            tile_y: 8,
            element: Size::kib(32),
            overlap_x: 0,
            overlap_y: 0,
            header: Size(0),
            access: Access::Write,
            sync: SyncWhen::Never,
            collective: true,
            two_phase: None,
        }
    }
}

impl MpiTileIo {
    pub(crate) fn build(&self) -> Result<MpiTileIoRun, SpecError> {
        let ranks = CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("tile_x", self.tile_x)?;
        CHECK.positive("tile_y", self.tile_y)?;
        CHECK.positive("element", self.element.0)?;
        let (columns, rows) = match (self.tiles_x, self.tiles_y) {
            (Some(x), Some(y)) => (u64::from(x), u64::from(y)),
            (Some(x), None) => (u64::from(x), ranks / u64::from(x.max(1))),
            (None, Some(y)) => (ranks / u64::from(y.max(1)), u64::from(y)),
            (None, None) => {
                let rows = (1..=ranks.isqrt()).rev().find(|rows| ranks.is_multiple_of(*rows)).unwrap_or(1);
                (ranks / rows, rows)
            }
        };
        if columns.checked_mul(rows) != Some(ranks) {
            return CHECK.fail(
                "tiles_x",
                format!("{columns} x {rows} tiles do not match {ranks} ranks, one for each tile"),
            );
        }
        for (name, overlap, tile) in
            [("overlap_x", self.overlap_x, self.tile_x), ("overlap_y", self.overlap_y, self.tile_y)]
        {
            if overlap >= tile {
                return CHECK
                    .fail(name, format!("an overlap of {overlap} leaves nothing of a tile of {tile}"));
            }
        }
        CHECK.product("tile_x", &[columns, self.tile_x, rows, self.tile_y, self.element.0])?;
        check_collective(CHECK, self.ranks, self.collective, self.two_phase.as_ref())?;
        check_no_exchange(CHECK, self.two_phase.as_ref())?;
        Ok(MpiTileIoRun { spec: self.clone(), columns, rows })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct MpiTileIoRun {
    spec: MpiTileIo,
    columns: u64,
    rows: u64,
}

impl MpiTileIoRun {
    /// Returns the tile of a rank.
    fn tile(&self, rank: u32) -> Subarray {
        let MpiTileIo { tile_x, tile_y, overlap_x, overlap_y, element, .. } = self.spec;
        let (column, row) = (u64::from(rank) % self.columns, u64::from(rank) / self.columns);
        let (step_x, step_y) = (tile_x - overlap_x, tile_y - overlap_y);
        Subarray {
            array: [1, 1, step_y * self.rows + overlap_y, step_x * self.columns + overlap_x],
            part: [1, 1, tile_y, tile_x],
            start: [0, 0, step_y * row, step_x * column],
            element: element.0,
        }
    }

    /// Offset after the last byte.
    fn end(&self) -> u64 {
        let tile = self.tile(0);
        self.spec.header.0 + tile.array.iter().product::<u64>() * tile.element
    }
}

impl Calls for MpiTileIoRun {
    fn calls(&self) -> u64 {
        1
    }

    fn union(&self, _call: u64) -> Union {
        // Tiles of one row interleave row by row. Tiles above each other, or one row high, interleave only if they
        // overlap.
        let MpiTileIo { tile_y, overlap_x, overlap_y, .. } = self.spec;
        let aside = self.columns > 1 && (tile_y > 1 || overlap_x > 0);
        let interleaved = aside || (self.rows > 1 && overlap_y > 0);
        Union::dense(self.spec.header.0, self.end(), interleaved)
    }

    fn pieces(&self, _call: u64, rank: u32) -> Box<dyn Iterator<Item = (u64, u64)> + Send + '_> {
        let header = self.spec.header.0;
        Box::new(self.tile(rank).ranges().map(move |(offset, len)| (header + offset, len)))
    }
}

impl Workload for MpiTileIoRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, _file: FileRef) -> String {
        "mpi-tile-io".to_owned()
    }

    fn phase(&self, phase: u16) -> String {
        phase_name(phase)
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new((self.spec.access.needs_existing_files()).then(|| (FILE, self.end())).into_iter())
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let MpiTileIo { ranks, sync, collective, access, ref two_phase, .. } = self.spec;
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
    use crate::testing::{covered_once, extents, well_formed};

    #[test]
    fn tiles_by_hand() {
        // Requests of mpi-tile-io of 2001 on ROMIO of MPICH 4.0.2 without data sieving (strace; also with overlaps).
        // 3 x 2 tiles of 4 x 2 elements of 10 bytes, header 100: rows of 12 elements. Rank 4: column 1, row 1:
        // element (2 * 12 + 4) and (3 * 12 + 4): 100 + 280 = 380 and 100 + 400 = 500, 40 bytes each.
        let spec = MpiTileIo {
            ranks: 6,
            tiles_x: Some(3),
            tile_x: 4,
            tile_y: 2,
            element: Size(10),
            header: Size(100),
            ..MpiTileIo::default()
        };
        let run = spec.build().unwrap();
        assert_eq!(extents(&run, 4), [(380, 40), (500, 40)]);
        covered_once(&run, FILE, 100..100 + 12 * 4 * 10);
        well_formed(&run);
    }

    #[test]
    fn overlap_by_hand() {
        // 2 x 2 tiles of 4 x 3, sharing 1 column and 1 row: the array has 2 * 3 + 1 = 7 columns and 2 * 2 + 1 = 5 rows.
        let spec = MpiTileIo {
            ranks: 4,
            tile_x: 4,
            tile_y: 3,
            element: Size(1),
            overlap_x: 1,
            overlap_y: 1,
            ..MpiTileIo::default()
        };
        let run = spec.build().unwrap();
        // Rank 3 starts in row 2, column 3: 2 * 7 + 3 = 17, then 24 and 31.
        assert_eq!(extents(&run, 3), [(17, 4), (24, 4), (31, 4)]);
        assert_eq!(run.end(), 35);
    }

    #[test]
    fn tiles_match_psa() {
        // 200 ranks: 20 x 10 tiles. A row of a tile is 8 * 32 KiB = 256 KiB, a row of the array 20 of them.
        let run = MpiTileIo { ranks: 200, ..MpiTileIo::default() }.build().unwrap();
        assert_eq!((run.columns, run.rows), (20, 10));
        let row = 20 * 262_144;
        // Rank 21: column 1, row 1: rows 8 to 15 from byte 262,144 of each.
        let expected: Vec<_> = (8..16).map(|y| (y * row + 262_144, 262_144)).collect();
        assert_eq!(extents(&run, 21), expected);
        assert_eq!(run.end(), 200 * 64 * 32_768);
    }

    #[test]
    fn two_phases_cover_the_array_once() {
        let two_phase = TwoPhase { cb_nodes: Some(3), cb_buffer_size: Size::kib(100), ..TwoPhase::default() };
        let spec =
            MpiTileIo { ranks: 6, two_phase: Some(two_phase), header: Size(7), ..MpiTileIo::default() };
        let run = spec.build().unwrap();
        covered_once(&run, FILE, 7..run.end());
        well_formed(&run);
    }

    #[test]
    fn calls_interleave_where_ranks_do() {
        // ROMIO compares each rank's first byte with the previous rank's last byte.
        for (tiles_x, tile_y, overlap_x, overlap_y) in
            [(3, 2, 0, 0), (3, 1, 0, 0), (3, 1, 1, 0), (1, 2, 0, 0), (1, 2, 0, 1), (6, 2, 0, 1), (3, 2, 1, 1)]
        {
            let spec = MpiTileIo {
                ranks: 6,
                tiles_x: Some(tiles_x),
                tile_x: 4,
                tile_y,
                element: Size(10),
                overlap_x,
                overlap_y,
                ..MpiTileIo::default()
            };
            let run = spec.build().unwrap();
            let range = |rank| {
                let pieces: Vec<_> = run.pieces(0, rank).collect();
                let &(last, len) = pieces.last().unwrap();
                (pieces[0].0, last + len - 1)
            };
            let expected = (1..6).any(|rank| range(rank).0 < range(rank - 1).1);
            assert_eq!(run.union(0).interleaved, expected, "{spec:?}");
        }
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |spec: MpiTileIo| spec.build().expect_err("an invalid description").parameter;
        assert_eq!(refused(MpiTileIo { tiles_x: Some(3), ..MpiTileIo::default() }), "tiles_x");
        assert_eq!(refused(MpiTileIo { overlap_x: 8, ..MpiTileIo::default() }), "overlap_x");
        assert_eq!(refused(MpiTileIo { tile_y: 0, ..MpiTileIo::default() }), "tile_y");
    }
}

//! The second pass: adds bytes to cells.

use super::axis::{Axis, Quantity, View};
use super::survey::{FileHeat, Survey, counts};
use std::collections::BTreeSet;
use weft_core::ByteLen;
use weft_trace::{FileId, Level, Operation, Record};

/// Bytes by cell, row by row from the bottom.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Cells per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Bytes of each cell.
    pub cells: Vec<f64>,
    /// Total bytes.
    pub bytes: ByteLen,
}

impl Grid {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![0.0; width * height], bytes: ByteLen(0) }
    }
}

/// Heat map of a file or a group of files.
#[derive(Clone, Debug)]
pub struct HeatMap {
    files: BTreeSet<FileId>,
    level: Level,
    pub(super) view: View,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Bytes read.
    pub reads: Grid,
    /// Bytes written.
    pub writes: Grid,
    /// Operations of all files seen so far at this level: the position of a record without a time.
    seen: u64,
    /// Marked bytes by cell of the offset axis; empty without marks or without this axis.
    pub(super) marks: Vec<f64>,
}

impl HeatMap {
    /// Empty heat maps, one per group of files. All share the time axis; each has `width` columns and at most `height`
    /// rows. The offsets of a group's files are overlaid.
    pub fn of(
        survey: &Survey,
        level: Level,
        groups: &[Vec<(FileId, FileHeat)>],
        view: View,
        (width, height): (usize, usize),
    ) -> Vec<Self> {
        let spans = || groups.iter().flatten().map(|(_, heat)| heat.span);
        let first = spans().map(|(begin, _)| begin.get()).min().unwrap_or(0);
        let last = spans().map(|(_, end)| end.get()).max().unwrap_or(0);
        // A small initial gap is shown, so that the axis starts with the trace.
        let first = if first > (last - first) / 8 { first } else { 0 };
        let time = if last > first {
            Axis::new(Quantity::Nanoseconds, first, last, width)
        } else {
            Axis::new(Quantity::Operations, 0, survey.operations(level), width)
        };
        let ranks = survey.ranks(level).max(1);
        let rank = Axis::new(Quantity::Ranks, 0, u64::from(ranks), height.min(ranks as usize));
        let map = |files: &Vec<(FileId, FileHeat)>| {
            let axes = (time, rank, |cells| offsets(files, cells));
            Self::new(files, level, view, axes, (width, height))
        };
        groups.iter().map(map).collect()
    }

    fn new(
        files: &[(FileId, FileHeat)],
        level: Level,
        view: View,
        (time, rank, offset): (Axis, Axis, impl Fn(usize) -> Axis),
        (width, height): (usize, usize),
    ) -> Self {
        let (x, y) = match view {
            View::Time => (time, offset(height)),
            View::Ranks => (offset(width), rank),
            View::RankTime => (time, rank),
        };
        let grid = || Grid::new(x.cells, y.cells);
        let files = files.iter().map(|(file, _)| *file).collect();
        Self { files, level, view, x, y, reads: grid(), writes: grid(), seen: 0, marks: Vec::new() }
    }

    /// Whether the map is about this file.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains(&file)
    }

    /// Axis of offsets, if the view has one.
    pub(super) fn offset_axis(&self) -> Option<&Axis> {
        match self.view {
            View::Time => Some(&self.y),
            View::Ranks => Some(&self.x),
            View::RankTime => None,
        }
    }

    /// Marks the bytes from `begin` to `end` of a file beside the offset axis.
    pub fn mark(&mut self, begin: u64, end: u64) {
        let Some(axis) = self.offset_axis().copied() else { return };
        let (begin, end) = (begin.max(axis.low), end.min(axis.high));
        if begin >= end {
            return;
        }
        self.marks.resize(axis.cells, 0.0);
        for share in axis.shares(begin, end) {
            self.marks[share.cell] += (end - begin) as f64 * share.part;
        }
    }

    /// Adds a record if it belongs to a file of this map.
    pub fn add(&mut self, record: &Record) {
        if record.level != self.level || !counts(record) {
            return;
        }
        let number = self.seen;
        self.seen += 1;
        if !self.files.contains(&record.file) {
            return;
        }
        let time = match self.x.quantity {
            Quantity::Operations => (number, number + 1),
            _ => (record.start.get(), record.end.get()),
        };
        let offset = (record.offset.get(), record.end_offset());
        let rank = (u64::from(record.rank.0), u64::from(record.rank.0));
        let (x, y) = match self.view {
            View::Time => (time, offset),
            View::Ranks => (offset, rank),
            View::RankTime => (time, rank),
        };
        let bytes = record.len.get();
        let grid = if record.op == Operation::Write { &mut self.writes } else { &mut self.reads };
        grid.bytes = ByteLen(grid.bytes.get().saturating_add(bytes));
        for row in self.y.shares(y.0, y.1) {
            let line = &mut grid.cells[row.cell * grid.width..][..grid.width];
            let bytes = bytes as f64 * row.part;
            for column in self.x.shares(x.0, x.1) {
                line[column.cell] += bytes * column.part;
            }
        }
    }
}

/// Offset axis of a group of files. It starts at 0, unless all accesses are in the upper half of the file.
fn offsets(files: &[(FileId, FileHeat)], cells: usize) -> Axis {
    let low = files.iter().map(|(_, heat)| heat.begin).min().unwrap_or(0);
    let high = files.iter().map(|(_, heat)| heat.end).max().unwrap_or(0);
    Axis::new(Quantity::Bytes, if low > high / 2 { low } else { 0 }, high, cells)
}

//! Flash translation layer: writes go to free pages, and the pages that they replace become invalid.

use super::SsdSpec;
use super::collect::{self, Victim};
use super::map::{Aged, Map, NONE};
use super::times::Times;
use std::collections::VecDeque;

/// Number of erased blocks below which garbage collection runs.
pub(super) const FREE_MIN: usize = 4;

/// A block across all dies.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Number of valid units.
    pub valid: u32,
    /// Logical units in the order of writing, as runs (first, count). Empty for a block in its initial state.
    pub written: Vec<(u32, u32)>,
    /// Whether it accepts no more units.
    pub is_closed: bool,
    /// Whether it is erased.
    pub is_free: bool,
    /// Whether it has not been erased since the start.
    pub is_aged: bool,
}

/// The block that a writer fills.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    units: u64,
}

/// A page program in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub end: u64,
    /// Bytes of the host in the page.
    pub bytes: u64,
}

/// Writers. Host and garbage collection write to separate blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Host = 0,
    Collector = 1,
}

pub(super) struct Flash {
    pub map: Map,
    pub blocks: Vec<Block>,
    pub free: VecDeque<u32>,
    open: [Option<Open>; 2],
    /// Units of the host in its incomplete page.
    pending: u64,
    pub victim: Option<Victim>,
    /// Bytes of a unit.
    unit: u64,
    /// Units of a page and of a block.
    pub page: u64,
    pub block: u64,
}

impl Flash {
    pub fn new(spec: &SsdSpec) -> Self {
        let (page, block) = spec.block_units();
        let (units, count) = spec.sizes();
        let count = count as usize;
        assert!(count as u64 * block < u64::from(NONE), "physical units have 32 bits");
        let in_use = count - FREE_MIN;
        let filled = (units as f64 * spec.used.clamp(0.0, 1.0)) as u64;
        let aged = Aged { starts: collect::age(filled, in_use as u64, block), block };
        let mut blocks = vec![Block { is_free: true, ..Block::default() }; count];
        let mut free = VecDeque::new();
        for (number, state) in blocks.iter_mut().enumerate() {
            let range = aged.units(number as u64);
            if range.is_empty() {
                free.push_back(number as u32);
            } else {
                let valid = (range.end - range.start) as u32;
                *state = Block { valid, is_closed: true, is_aged: true, ..Block::default() };
            }
        }
        Self {
            map: Map::new(units, aged),
            blocks,
            free,
            open: [None; 2],
            pending: 0,
            victim: None,
            unit: spec.map_kib * 1024,
            page,
            block,
        }
    }

    /// Returns the physical page of a logical unit. A unit that was never written is read from the page that sequential
    /// writing would have used.
    pub fn page_of(&self, unit: u64) -> u64 {
        match self.map.get(unit) {
            NONE => unit / self.page,
            physical => u64::from(physical) / self.page,
        }
    }

    /// Writes a logical unit. Returns the program of the page that it completed.
    pub fn write(&mut self, unit: u64, now: u64, times: &mut Times) -> Option<Program> {
        self.collect(now, times);
        self.append(Writer::Host, unit, now, times)
    }

    /// Programs the incomplete page. Returns `None` if there is none.
    pub fn pad(&mut self, now: u64, times: &mut Times) -> Option<Program> {
        let bytes = self.pending * self.unit;
        let open = self.open[Writer::Host as usize].as_mut()?;
        if self.pending == 0 {
            return None;
        }
        let page = (u64::from(open.block) * self.block + open.units) / self.page;
        // The rest of the page is unusable until the block is collected.
        open.units = open.units.next_multiple_of(self.page);
        self.pending = 0;
        Some(Program { end: times.program(now, page), bytes })
    }

    /// Writes one unit at the end of the writer's block.
    pub fn append(&mut self, writer: Writer, unit: u64, now: u64, times: &mut Times) -> Option<Program> {
        let slot = writer as usize;
        let open = match self.open[slot] {
            Some(open) if open.units < self.block => open,
            full => {
                if let Some(full) = full {
                    self.blocks[full.block as usize].is_closed = true;
                }
                let block = self.free.pop_front().expect("garbage collection keeps erased blocks");
                self.blocks[block as usize] = Block::default();
                Open { block, units: 0 }
            }
        };
        let physical = u64::from(open.block) * self.block + open.units;
        self.invalidate(unit);
        self.map.set(unit, physical as u32);
        let block = &mut self.blocks[open.block as usize];
        block.valid += 1;
        match block.written.last_mut() {
            Some((first, count)) if u64::from(*first) + u64::from(*count) == unit => *count += 1,
            _ => block.written.push((unit as u32, 1)),
        }
        let units = open.units + 1;
        self.open[slot] = Some(Open { block: open.block, units });
        let is_full = units.is_multiple_of(self.page);
        if writer == Writer::Host {
            self.pending += 1;
        }
        if !is_full {
            return None;
        }
        let end = times.program(now, physical / self.page);
        match writer {
            Writer::Host => Some(Program { end, bytes: std::mem::take(&mut self.pending) * self.unit }),
            Writer::Collector => None,
        }
    }

    fn invalidate(&mut self, unit: u64) {
        let before = self.map.get(unit);
        if before != NONE {
            self.blocks[(u64::from(before) / self.block) as usize].valid -= 1;
        }
    }

    pub fn is_short_of_blocks(&self) -> bool {
        self.free.len() < FREE_MIN
    }
}

//! Garbage collection: empties the block with the fewest valid units in small steps while the host writes.

use super::flash::{Block, Flash, Writer};
use super::map::NONE;
use super::times::Times;

/// The block that is being emptied.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    block: u32,
    /// Logical units written to it, as (first, count). A unit is moved if it is still here.
    runs: Vec<(u64, u64)>,
    /// Index of the next run, and the position in it.
    at: (usize, u64),
    /// The page read last.
    page: u64,
    /// Pending moves in units times 2^16, and the moves that each written unit adds.
    pending_moves: u64,
    rate: u64,
}

impl Flash {
    /// Performs the share of collection that one written unit causes.
    pub fn collect(&mut self, now: u64, times: &mut Times) {
        if self.victim.is_none() {
            if !self.is_short_of_blocks() {
                return;
            }
            let Some(victim) = self.choose() else { return };
            self.victim = Some(victim);
        }
        // The collector itself needs a block to write to. The last free block is reserved for it.
        let must_end = self.free.len() <= 1;
        let Some(victim) = self.victim.as_mut() else { return };
        victim.pending_moves += victim.rate;
        while must_end || self.victim.as_ref().is_some_and(|victim| victim.pending_moves >= 1 << 16) {
            if !self.move_one(now, times) {
                return;
            }
        }
    }

    /// Chooses the closed block with the fewest valid units, the first one among equals.
    fn choose(&mut self) -> Option<Victim> {
        let full = self.block as u32;
        let fewest = |(number, block): (usize, &Block)| {
            (block.is_closed && !block.is_free && block.valid < full).then_some((block.valid, number))
        };
        let (valid, number) = self.blocks.iter().enumerate().filter_map(fewest).min()?;
        let block = &mut self.blocks[number];
        block.is_closed = false;
        let runs = if block.is_aged {
            let units = self.map.aged.units(number as u64);
            vec![(units.start, units.end - units.start)]
        } else {
            std::mem::take(&mut block.written)
                .into_iter()
                .map(|(f, c)| (u64::from(f), u64::from(c)))
                .collect()
        };
        // Enough moves per host unit that the block is free when its gain is used up.
        let gain = self.block - u64::from(valid);
        Some(Victim {
            block: number as u32,
            runs,
            at: (0, 0),
            page: u64::MAX,
            pending_moves: 0,
            rate: ((u64::from(valid) << 16) / gain).max(1 << 10),
        })
    }

    /// Moves the next valid unit. Returns false if the block was empty and has been erased instead.
    fn move_one(&mut self, now: u64, times: &mut Times) -> bool {
        loop {
            let victim = self.victim.as_mut().expect("a block is being emptied");
            let Some(&(first, count)) = victim.runs.get(victim.at.0) else {
                let block = victim.block;
                self.victim = None;
                debug_assert_eq!(self.blocks[block as usize].valid, 0, "all that was valid has moved");
                self.blocks[block as usize] = Block { is_free: true, ..Block::default() };
                self.free.push_back(block);
                times.erase(now);
                return false;
            };
            if victim.at.1 == count {
                victim.at = (victim.at.0 + 1, 0);
                continue;
            }
            let unit = first + victim.at.1;
            victim.at.1 += 1;
            let (low, page_units) = (u64::from(victim.block) * self.block, self.page);
            let now_at = self.map.get(unit);
            if now_at == NONE || !(low..low + self.block).contains(&u64::from(now_at)) {
                continue;
            }
            let page = u64::from(now_at) / page_units;
            victim.pending_moves = victim.pending_moves.saturating_sub(1 << 16);
            if victim.page != page {
                victim.page = page;
                times.read_to_move(now, page);
            }
            self.append(Writer::Collector, unit, now, times);
            return true;
        }
    }
}

/// Returns the state that random overwriting leaves on a device with `filled` logical units in `blocks` blocks of
/// `block` units: the first logical unit of each block, and the end of the last one.
///
/// Let `a` be the age of a block: the number of writes since the block was written, divided by the number of logical
/// units. The block still holds a fraction `exp(-a)` of its units. Blocks are written one after another, so `a` is
/// uniform between 0 and `A`, where the mean of `exp(-a)` is the valid fraction of all blocks:
///
/// ```text
/// (1 - exp(-A)) / A = filled / (blocks * block)
/// ```
pub(super) fn age(filled: u64, blocks: u64, block: u64) -> Vec<u64> {
    if filled == 0 {
        return Vec::new();
    }
    let part = (filled as f64 / (blocks * block) as f64).min(1.0 - 1e-9);
    let mean = |age: f64| (1.0 - (-age).exp()) / age;
    let (mut low, mut high) = (1e-12, 2.0 / part + 50.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if mean(middle) > part { low = middle } else { high = middle }
    }
    let whole = 1.0 - (-low).exp();
    // End of each block's run, from the newest block, which is nearly all valid, to the oldest.
    let held = |number: u64| (1.0 - (-low * number as f64 / blocks as f64).exp()) / whole;
    let mut starts = vec![0];
    for number in 1..=blocks {
        let end = ((held(number) * filled as f64).round() as u64).min(filled);
        let last = starts[number as usize - 1];
        starts.push(end.clamp(last, last + block));
    }
    starts
}

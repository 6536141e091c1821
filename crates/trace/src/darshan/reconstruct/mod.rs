//! A likely course of events from the counters of a file.
//!
//! What the counters say is kept: how many reads and writes there were and how many bytes they moved, classes of
//! request sizes (with exact sizes as often as Darshan counted them by value), between which times they ran, the largest
//! byte, whether operations followed each other without gaps, which rank moved most. What they do not say is guessed:
//!
//! * Operations are even in time, and of each size as many in the first half as in the second.
//! * Without gaps they fill the bytes up to the largest one; ranks that share a record have a stretch each.
//! * With gaps, and other ranks at the same file who end where this one ends, ranks take turns: the file is dealt out
//!   in slots, one row of all ranks after another (module `slots`).
//! * Ranks who end a whole stretch apart have stretches of their own.

mod sizes;
mod slots;

pub use slots::{Places, Sharing};

use super::counters::Record as Counters;
use crate::error::Result;
use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use sizes::{Kind, Mixed};
use slots::Place;
use weft_core::{ByteLen, FileOffset, Nanos};

/// Reads or writes, as counters name them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::Write, Self::Read];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITTEN",
        }
    }
}

/// Hands the operations on one file to `each`, those of a rank in order.
pub fn file(
    counters: &Counters<'_>,
    places: &Places,
    file: FileId,
    processes: u32,
    each: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    for direction in Direction::BOTH {
        let plan = Plan::of(counters, direction);
        let dealt = match counters.rank() {
            Some(rank) => Dealt::To(rank, places.of(counters, direction)),
            None => Dealt::of_all(counters, processes, plan.consecutive),
        };
        let op = if direction == Direction::Read { Operation::Read } else { Operation::Write };
        plan.run(&dealt, |rank, offset, len, start, end| {
            each(&Record {
                rank: Rank(rank),
                host: HostId(0),
                file,
                op,
                level: Level::Posix,
                collective: false,
                offset: FileOffset(offset),
                len: ByteLen(len),
                start: Nanos(start),
                end: Nanos(end),
            })
        })?;
    }
    Ok(())
}

/// Whose operations they are.
enum Dealt {
    /// One rank's, who has its place among others.
    To(u32, Place),
    /// Of all so many ranks in turn.
    InTurn(u32),
    /// A stretch of the file for each of so many.
    Stretches(u32),
    /// The large ones are of one rank, the others of so many in turn.
    Most(u32, u32),
}

impl Dealt {
    /// A record that is of all ranks together.
    fn of_all(counters: &Counters<'_>, processes: u32, consecutive: bool) -> Self {
        let bytes = counters.count("POSIX_BYTES_READ").saturating_add(counters.count("POSIX_BYTES_WRITTEN"));
        let slowest = counters.count("POSIX_SLOWEST_RANK").min(u64::from(processes - 1)) as u32;
        match counters.count("POSIX_SLOWEST_RANK_BYTES") > bytes / 2 {
            true => Self::Most(slowest, processes),
            false if consecutive => Self::Stretches(processes),
            false => Self::InTurn(processes),
        }
    }
}

/// One direction.
struct Plan {
    kinds: Vec<Kind>,
    operations: u64,
    bytes: u64,
    start_ns: u64,
    end_ns: u64,
    /// Time in the operations themselves.
    busy_ns: u64,
    /// One past the largest byte.
    extent: u64,
    /// Whether most operations began where the one before ended.
    consecutive: bool,
}

impl Plan {
    fn of(counters: &Counters<'_>, direction: Direction) -> Self {
        let (name, past) = (direction.name(), direction.past());
        let bytes = counters.count(&format!("POSIX_BYTES_{past}"));
        let kinds = sizes::kinds(counters, direction, bytes);
        let operations = sizes::operations(&kinds);
        let ns = |what: &str| (counters.float(&format!("POSIX_F_{name}_{what}")) * 1e9) as u64;
        let start_ns = ns("START_TIMESTAMP");
        Self {
            operations,
            kinds,
            bytes,
            start_ns,
            end_ns: ns("END_TIMESTAMP").max(start_ns),
            busy_ns: ns("TIME"),
            extent: counters.count(&format!("POSIX_MAX_BYTE_{past}")).saturating_add(1).max(bytes),
            consecutive: counters.count(&format!("POSIX_CONSEC_{name}S")).saturating_mul(2) >= operations,
        }
    }

    /// Beside large ones small ones are taken for what stands at the begin of a file.
    fn is_large(&self, kind: &Kind) -> bool {
        kind.size >= self.bytes / self.operations.max(1) / 2
    }

    /// How many large ones there are.
    fn larges(&self) -> u64 {
        self.kinds.iter().filter(|kind| self.is_large(kind)).map(|kind| kind.number).sum()
    }

    /// Deals operations out; hands on rank, offset, length, start and end.
    fn run(&self, dealt: &Dealt, mut each: impl FnMut(u32, u64, u64, u64, u64) -> Result<()>) -> Result<()> {
        let span = self.end_ns - self.start_ns;
        let took = (self.busy_ns / self.operations.max(1)).clamp(1, span.max(1));
        let at = |index: u64, of: u64| {
            self.start_ns + (u128::from(span) * u128::from(index) / u128::from(of.max(1))) as u64
        };
        let larges = self.larges();
        // Large and small ones so far, and what was moved by each.
        let (mut counts, mut moved) = ([0u64; 2], [0u64; 2]);
        for (index, (kind, len)) in Mixed::new(&self.kinds, self.bytes).enumerate() {
            let (index, is_small) = (index as u64, usize::from(!self.is_large(&self.kinds[kind])));
            let (number, before, larger) = (counts[is_small], moved[is_small], counts[0]);
            counts[is_small] += 1;
            moved[is_small] += len;
            let gapless = moved[0] + moved[1] - len;
            let (rank, offset, start) = match *dealt {
                Dealt::To(rank, place) => {
                    let offset = match self.consecutive {
                        true => self.extent - self.bytes + gapless,
                        false => place.offset(larger, larges),
                    };
                    (rank, offset, at(index, self.operations))
                }
                Dealt::InTurn(ranks) => {
                    ((index % u64::from(ranks)) as u32, gapless, at(index, self.operations))
                }
                Dealt::Stretches(ranks) => {
                    let each = self.operations.div_ceil(ranks.into()).max(1);
                    ((index / each) as u32, gapless, at(index % each, each))
                }
                Dealt::Most(rank, ranks) => {
                    let others = u64::from(ranks - 1).max(1);
                    let other = ((u64::from(rank) + 1 + number % others) % u64::from(ranks)) as u32;
                    (if is_small == 0 { rank } else { other }, before, at(index, self.operations))
                }
            };
            each(rank, offset.min(self.extent.saturating_sub(len)), len, start, start.saturating_add(took))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

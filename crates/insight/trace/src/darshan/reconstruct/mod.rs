//! Reconstructs a likely sequence of operations from a file's Darshan counters.
//!
//! The counters of a file give totals, not operations. The reconstruction keeps these totals and guesses the rest:
//!
//! | property | source |
//! | --- | --- |
//! | number of reads and writes | `POSIX_SIZE_READ_*`, `POSIX_SIZE_WRITE_*` |
//! | total bytes | `POSIX_BYTES_READ`, `POSIX_BYTES_WRITTEN` |
//! | sizes | exact for the four most common (`POSIX_ACCESS1` to `4`), otherwise fitted to size class and total |
//! | order of sizes | guess: every size is spread evenly over time |
//! | first start, last end | `POSIX_F_*_START_TIMESTAMP`, `POSIX_F_*_END_TIMESTAMP` |
//! | start times | guess: evenly spaced |
//! | durations | `POSIX_F_*_TIME` divided by the number of operations |
//! | largest offset | `POSIX_MAX_BYTE_READ`, `POSIX_MAX_BYTE_WRITTEN` |
//! | offsets, ranks | guess, by the table below |
//!
//! | records of the file | most operations consecutive | ranks and offsets |
//! | --- | --- | --- |
//! | one per rank | yes | without gaps, up to the rank's largest offset |
//! | one per rank | no | by rank: interleaved slots or one range per rank ([`slots`]) |
//! | one for all ranks, most bytes by the slowest rank | either | large operations: that rank, small ones: the others |
//! | one for all ranks | yes | one contiguous range per rank |
//! | one for all ranks | no | contiguous, ranks in round-robin order |

mod sizes;
mod slots;

pub use slots::{SharedFileSlots, Sharing};

use super::counters::Record as Counters;
use crate::error::Result;
use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use sizes::{Interleaved, SizeGroup};
use slots::RankSlots;
use weft_core::{ByteLen, FileOffset, Nanos};

/// Direction of a transfer.
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

/// Reconstructs the operations on one file and passes them to `each`, those of a rank in order.
pub fn file(
    counters: &Counters<'_>,
    slots: &SharedFileSlots,
    file: FileId,
    processes: u32,
    each: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    for direction in Direction::BOTH {
        let plan = Plan::of(counters, direction);
        let assignment = match counters.rank() {
            Some(rank) => RankAssignment::OneRank(rank, slots.of(counters, direction)),
            None => RankAssignment::of_shared_record(counters, processes, plan.consecutive),
        };
        let op = if direction == Direction::Read { Operation::Read } else { Operation::Write };
        plan.run(&assignment, |rank, offset, len, start, end| {
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

/// Assignment of operations to ranks.
enum RankAssignment {
    /// All operations belong to one rank, in its slots of the file.
    OneRank(u32, RankSlots),
    /// Round-robin over this number of ranks.
    RoundRobin(u32),
    /// One contiguous range for each of this number of ranks.
    Ranges(u32),
    /// Large operations belong to the first-named rank, small ones to the others in round-robin order.
    Dominant(u32, u32),
}

impl RankAssignment {
    /// Chooses the assignment for a record that covers all ranks.
    fn of_shared_record(counters: &Counters<'_>, processes: u32, consecutive: bool) -> Self {
        let bytes = counters.count("POSIX_BYTES_READ").saturating_add(counters.count("POSIX_BYTES_WRITTEN"));
        let slowest = counters.count("POSIX_SLOWEST_RANK").min(u64::from(processes - 1)) as u32;
        match counters.count("POSIX_SLOWEST_RANK_BYTES") > bytes / 2 {
            true => Self::Dominant(slowest, processes),
            false if consecutive => Self::Ranges(processes),
            false => Self::RoundRobin(processes),
        }
    }
}

/// Totals of one direction of a file.
struct Plan {
    kinds: Vec<SizeGroup>,
    operations: u64,
    bytes: u64,
    start_ns: u64,
    end_ns: u64,
    /// Total time in the operations, in nanoseconds.
    busy_ns: u64,
    /// Offset after the last byte.
    extent: u64,
    /// Whether at least half of the operations started where the previous one ended.
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

    /// Whether a size is large. Small operations beside large ones are taken for accesses to a file header.
    fn is_large(&self, kind: &SizeGroup) -> bool {
        kind.size >= self.bytes / self.operations.max(1) / 2
    }

    /// Number of large operations.
    fn large_count(&self) -> u64 {
        self.kinds.iter().filter(|kind| self.is_large(kind)).map(|kind| kind.number).sum()
    }

    /// Generates the operations and passes rank, offset, length, start and end to `each`.
    fn run(
        &self,
        assignment: &RankAssignment,
        mut each: impl FnMut(u32, u64, u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let span = self.end_ns - self.start_ns;
        let took = (self.busy_ns / self.operations.max(1)).clamp(1, span.max(1));
        let at = |index: u64, of: u64| {
            self.start_ns + (u128::from(span) * u128::from(index) / u128::from(of.max(1))) as u64
        };
        let large_count = self.large_count();
        // Number of large and small operations so far, and their bytes.
        let (mut counts, mut moved) = ([0u64; 2], [0u64; 2]);
        for (index, (kind, len)) in Interleaved::new(&self.kinds, self.bytes).enumerate() {
            let (index, is_small) = (index as u64, usize::from(!self.is_large(&self.kinds[kind])));
            let (number, before, larger) = (counts[is_small], moved[is_small], counts[0]);
            counts[is_small] += 1;
            moved[is_small] += len;
            let contiguous = moved[0] + moved[1] - len;
            let (rank, offset, start) = match *assignment {
                RankAssignment::OneRank(rank, slots) => {
                    let offset = match self.consecutive {
                        true => self.extent - self.bytes + contiguous,
                        false => slots.offset(larger, large_count),
                    };
                    (rank, offset, at(index, self.operations))
                }
                RankAssignment::RoundRobin(ranks) => {
                    ((index % u64::from(ranks)) as u32, contiguous, at(index, self.operations))
                }
                RankAssignment::Ranges(ranks) => {
                    let each = self.operations.div_ceil(ranks.into()).max(1);
                    ((index / each) as u32, contiguous, at(index % each, each))
                }
                RankAssignment::Dominant(rank, ranks) => {
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

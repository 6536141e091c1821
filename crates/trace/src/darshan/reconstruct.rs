//! A likely course of events from the counters of a file.
//!
//! What the counters say is kept: how many reads and writes there were and how many bytes they moved, classes of
//! request sizes (with the exact size where it is among the four that Darshan counts by value), between which times
//! they ran, the largest byte, whether operations followed each other without gaps. What they do not say is guessed:
//! operations are even in time; without gaps they fill the bytes up to the largest one; with gaps they spread over all
//! of them, and ranks of like mind lie beside each other.

use super::counters::{Record as Counters, SIZE_CLASSES};
use crate::error::Result;
use crate::names::{FileId, HostId};
use crate::record::{Level, Operation, Rank, Record};
use weft_core::{ByteLen, FileOffset, Nanos};

/// Most operations of a direction of a file: counters of damaged logs may say anything.
const OPERATIONS_MAX: u64 = 1 << 32;

/// Hands the operations on one file to `each`, those of a rank in order.
pub fn file(
    counters: &Counters<'_>,
    file: FileId,
    processes: u32,
    each: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    for (direction, op) in [("WRITE", Operation::Write), ("READ", Operation::Read)] {
        let plan = Plan::of(counters, direction);
        let ranks = match counters.rank() {
            Some(rank) => rank..rank.saturating_add(1),
            None => 0..processes,
        };
        plan.run(ranks, |rank, offset, len, start, end| {
            let offset = plan.placed(counters.rank(), offset, len);
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

/// One direction.
struct Plan {
    /// (size, number), in the order of the sizes.
    sizes: Vec<(u64, u64)>,
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
    fn of(counters: &Counters<'_>, direction: &str) -> Self {
        let past = if direction == "READ" { "READ" } else { "WRITTEN" };
        let bytes = counters.count(&format!("POSIX_BYTES_{past}"));
        let common: Vec<u64> = (1..=4)
            .map(|n| counters.count(&format!("POSIX_ACCESS{n}_ACCESS")))
            .filter(|size| *size > 0)
            .collect();
        let classes = counters.sizes("POSIX", direction);
        let sizes: Vec<(u64, u64)> = classes
            .iter()
            .enumerate()
            .filter(|(_, number)| **number > 0)
            .map(|(class, number)| {
                let low = if class == 0 { 1 } else { SIZE_CLASSES[class - 1] };
                let high = SIZE_CLASSES[class];
                let exact = common.iter().find(|size| (low..high).contains(*size));
                let middle = ((low as f64) * (high.min(low.saturating_mul(10)) as f64)).sqrt() as u64;
                (exact.copied().unwrap_or(middle), *number)
            })
            .collect();
        let operations = sizes.iter().fold(0u64, |sum, (_, number)| sum.saturating_add(*number));
        let ns = |name: &str| (counters.float(&format!("POSIX_F_{direction}_{name}")) * 1e9) as u64;
        let start_ns = ns("START_TIMESTAMP");
        Self {
            operations: operations.min(OPERATIONS_MAX),
            sizes,
            bytes,
            start_ns,
            end_ns: ns("END_TIMESTAMP").max(start_ns),
            busy_ns: ns("TIME"),
            extent: counters.count(&format!("POSIX_MAX_BYTE_{past}")).saturating_add(1).max(bytes),
            consecutive: counters.count(&format!("POSIX_CONSEC_{direction}S")).saturating_mul(2)
                >= operations,
        }
    }

    /// Where an operation is that would be at `offset` if the file had nothing but what this record says.
    fn placed(&self, rank: Option<u32>, offset: u64, len: u64) -> u64 {
        let Some(rank) = rank else {
            // All ranks together: one after the other, from the begin on.
            return offset;
        };
        if self.consecutive {
            return self.extent - self.bytes + offset;
        }
        // As many ranks fit between two operations of one as the bytes of one fit into all.
        let fit = (self.extent / self.bytes.max(1)).max(1);
        let spread = u128::from(offset) * u128::from(self.extent) / u128::from(self.bytes.max(1));
        let place = (spread as u64).saturating_add((u64::from(rank) % fit).saturating_mul(len));
        place.min(self.extent - len)
    }

    /// Deals operations to ranks in turn; sizes are stretched so that their sum is the bytes that were counted.
    fn run(
        &self,
        ranks: std::ops::Range<u32>,
        mut each: impl FnMut(u32, u64, u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let count = u64::from(ranks.end - ranks.start).max(1);
        let sum: u128 = self.sizes.iter().map(|(size, number)| u128::from(*size) * u128::from(*number)).sum();
        if self.operations == 0 || sum == 0 {
            return Ok(());
        }
        let stretched = |sum_before: u128| -> u64 {
            // sum_before <= sum, so that this is at most the bytes counted.
            (sum_before.saturating_mul(u128::from(self.bytes)) / sum) as u64
        };
        let span = self.end_ns - self.start_ns;
        let at = |index: u64| {
            self.start_ns + (u128::from(span) * u128::from(index) / u128::from(self.operations)) as u64
        };
        let took = (self.busy_ns / self.operations).clamp(1, span.max(1));
        let (mut before, mut index) = (0u128, 0u64);
        for (size, number) in &self.sizes {
            for _ in 0..*number {
                if index == self.operations {
                    return Ok(());
                }
                let (from, to) = (stretched(before), stretched(before + u128::from(*size)));
                let start = at(index);
                let rank = ranks.start + (index % count) as u32;
                each(rank, from, to - from, start, start.saturating_add(took))?;
                before += u128::from(*size);
                index += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_those_counted() {
        let plan = Plan {
            sizes: vec![(100, 3), (4096, 5)],
            operations: 8,
            bytes: 30_001,
            start_ns: 1_000,
            end_ns: 9_000,
            busy_ns: 800,
            extent: 30_001,
            consecutive: true,
        };
        let mut seen = Vec::new();
        plan.run(2..5, |rank, offset, len, start, end| {
            seen.push((rank, offset, len, start, end));
            Ok(())
        })
        .expect("nothing fails");
        assert_eq!(seen.len(), 8);
        assert_eq!(seen.iter().map(|op| op.2).sum::<u64>(), 30_001);
        assert!(seen.windows(2).all(|pair| pair[0].1 + pair[0].2 == pair[1].1), "one after another");
        assert_eq!(seen.iter().map(|op| op.0).collect::<Vec<_>>(), [2, 3, 4, 2, 3, 4, 2, 3]);
        assert_eq!((seen[0].3, seen[0].4, seen[7].3), (1_000, 1_100, 8_000));
    }

    #[test]
    fn places_by_hand() {
        let block = Plan {
            sizes: vec![(100, 4)],
            operations: 4,
            bytes: 400,
            start_ns: 0,
            end_ns: 4,
            busy_ns: 4,
            extent: 1_000,
            consecutive: true,
        };
        // A block that ends with the largest byte.
        assert_eq!(block.placed(Some(3), 0, 100), 600);
        assert_eq!(block.placed(Some(3), 300, 100), 900);
        // Every 250 bytes one, rank 3 beside rank 2.
        let spread = Plan { consecutive: false, ..block };
        assert_eq!([0, 100, 200, 300].map(|offset| spread.placed(Some(2), offset, 100)), [0, 250, 500, 750]);
        assert_eq!(
            [0, 100, 200, 300].map(|offset| spread.placed(Some(3), offset, 100)),
            [100, 350, 600, 850]
        );
        // All ranks in one record.
        assert_eq!(spread.placed(None, 300, 100), 300);
    }
}

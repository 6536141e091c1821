//! `--delegates auto`: whether delegates would make a traced program faster.
//!
//! Delegates gain where ranks wait for each other or write a shared file in small, scattered pieces, and more ranks than
//! processors do so. They lose for long, aligned writes of each rank: those go to the file directly at least as fast.

use crate::commands::trace::Input;
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weft_core::units::human_bytes;
use weft_trace::{FileId, Level, Operation, Rank, Record};

/// Length below which a write that does not continue the rank's previous one counts as scattered.
const SMALL: u64 = 256 << 10;
/// Least share of the written bytes, in percent, for which delegates are worthwhile.
const SHARE_MIN: u64 = 10;
/// Share of the ranks, in percent, of which there are delegates.
const DELEGATES_PERCENT: usize = 5;
/// Least number of delegates. The number of processors limits it.
const DELEGATES_MIN: usize = 2;
/// Maximum number of (level, file, rank) triples that are followed. Writes of further ones count as neither collective
/// nor scattered.
const WRITERS_MAX: usize = 1 << 20;

/// Writes to shared files in a trace.
#[derive(Default)]
pub struct Evidence {
    files: BTreeMap<(Level, FileId), FileWrites>,
    writers: usize,
    ranks: BTreeSet<Rank>,
}

#[derive(Default)]
struct FileWrites {
    /// End of the last write of each rank.
    ends: BTreeMap<Rank, u64>,
    bytes: u64,
    collective: u64,
    scattered: u64,
    pieces: u64,
}

/// Result, with the reason for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Start this number of delegates.
    On(u32, String),
    /// Start none.
    Off(String),
}

impl Evidence {
    /// Reads a trace.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn read(trace: &Path) -> Result<Self, Failure> {
        let mut stream = Input { file: trace.to_owned(), reconstruct: false }.open()?;
        let mut evidence = Self::default();
        for record in &mut *stream {
            evidence.add(&record?);
        }
        Ok(evidence)
    }

    fn add(&mut self, record: &Record) {
        self.ranks.insert(record.rank);
        if record.op != Operation::Write || record.len.get() == 0 {
            return;
        }
        let file = self.files.entry((record.level, record.file)).or_default();
        file.bytes += record.len.get();
        let before = file.ends.get(&record.rank).copied();
        if before.is_none() {
            if self.writers == WRITERS_MAX {
                return;
            }
            self.writers += 1;
        }
        file.ends.insert(record.rank, record.end_offset());
        if record.collective {
            file.collective += record.len.get();
            file.pieces += 1;
        } else if record.len.get() < SMALL && before != Some(record.offset.get()) {
            file.scattered += record.len.get();
            file.pieces += 1;
        }
    }

    /// Decides for a program with `ranks` ranks, if that is known, on `processors` processors.
    pub fn verdict(&self, ranks: Option<u32>, processors: usize) -> Verdict {
        let ranks = ranks.map_or(self.ranks.len(), |ranks| ranks as usize);
        // Each level counts alone, because a trace of both contains each transfer twice.
        let written = |level| {
            let of_level = self.files.iter().filter(|((at, _), _)| *at == level);
            of_level.map(|(_, file)| file.bytes).sum::<u64>()
        };
        let total = written(Level::Posix).max(written(Level::MpiIo));
        let shared = self.files.values().filter(|file| file.ends.len() > 1);
        let Some(most) = shared.max_by_key(|file| file.collective + file.scattered) else {
            return Verdict::Off("no file of the trace is written by several ranks".into());
        };
        let gain = most.collective + most.scattered;
        if gain == 0 || gain.saturating_mul(100) < total.saturating_mul(SHARE_MIN) {
            return Verdict::Off(format!(
                "only {} of {} are written to a shared file collectively or in scattered pieces below {}",
                human_bytes(gain),
                human_bytes(total),
                human_bytes(SMALL)
            ));
        }
        let how = if most.collective >= most.scattered { "collectively" } else { "in scattered pieces" };
        let mean = human_bytes(gain / most.pieces.max(1));
        let what = format!(
            "{} ranks write {} {how} to one file, {mean} at a time",
            most.ends.len(),
            human_bytes(gain)
        );
        if ranks <= processors {
            return Verdict::Off(format!(
                "{what}, but {ranks} ranks do not outnumber the {processors} processors"
            ));
        }
        let delegates = (ranks * DELEGATES_PERCENT / 100).max(DELEGATES_MIN).min(processors);
        Verdict::On(
            delegates.max(1) as u32,
            format!("{what}, and {ranks} ranks outnumber the {processors} processors"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ByteLen, FileOffset, Nanos};
    use weft_trace::HostId;

    fn evidence(ranks: u32, len: u64, stride: u64, collective: bool) -> Evidence {
        let mut evidence = Evidence::default();
        for step in 0..10 {
            for rank in 0..ranks {
                evidence.add(&Record {
                    rank: Rank(rank),
                    host: HostId(0),
                    file: FileId(0),
                    op: Operation::Write,
                    level: Level::MpiIo,
                    collective,
                    offset: FileOffset(stride * (step * u64::from(ranks) + u64::from(rank))),
                    len: ByteLen(len),
                    start: Nanos(0),
                    end: Nanos(1),
                });
            }
        }
        evidence
    }

    #[track_caller]
    fn is_off(verdict: Verdict, words: &str) {
        assert!(matches!(&verdict, Verdict::Off(why) if why.contains(words)), "{verdict:?}");
    }

    #[test]
    fn collective_writes_of_more_ranks_than_processors_gain() {
        let verdict = evidence(4, 47_008, 47_008, true).verdict(None, 2);
        let Verdict::On(2, why) = verdict else { panic!("{verdict:?}") };
        assert!(why.contains("4 ranks write 1.79 MiB collectively to one file, 45.9 KiB at a time"), "{why}");
        assert!(matches!(evidence(4, 1000, 1000, true).verdict(Some(128), 16), Verdict::On(6, _)));
    }

    #[test]
    fn small_scattered_writes_gain_and_long_ones_do_not() {
        assert!(matches!(evidence(4, 1000, 1000, false).verdict(None, 2), Verdict::On(2, _)));
        is_off(evidence(4, 1 << 20, 1 << 20, false).verdict(None, 2), "only 0 B of 40.0 MiB");
    }

    #[test]
    fn one_rank_or_enough_processors_need_no_delegates() {
        is_off(evidence(1, 1000, 2000, false).verdict(None, 2), "no file");
        is_off(evidence(2, 1000, 1000, true).verdict(None, 2), "do not outnumber the 2 processors");
        is_off(Evidence::default().verdict(Some(64), 2), "no file");
    }
}

//! `weft fsck --scrub`: verifies checksums at rest on all targets.

use super::bytes;
use super::session::{Weft, why};
use crate::failure::Failure;
use crate::table::human;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_core::{ByteLen, FileId, LocalExtent, LocalOffset, TargetId};
use weft_env::real::block_on;
use weft_wire::data::Damage;

/// Bytes that a server verifies for one request.
const STEP: ByteLen = ByteLen(8 << 20);
/// Inodes asked for at a time.
const PAGE: u32 = 4096;

/// Result of a scrub.
#[derive(Default)]
pub struct Report {
    /// Bytes that were verified.
    pub verified: u64,
    /// Datafiles with checksums.
    pub checked: u64,
    /// Datafiles without checksums.
    pub unchecked: u64,
    /// One sentence for each damaged range of a datafile.
    pub problems: Vec<String>,
}

impl Report {
    /// Sums of the scrub, in one line.
    pub fn summary(&self) -> String {
        let Self { verified, checked, unchecked, .. } = self;
        format!("scrubbed {} in {checked} datafiles with checksums; {unchecked} have none", human(*verified))
    }
}

/// Verifies all targets, at most `rate` bytes a second on each server in turn.
pub fn all(weft: &Weft, rate: Option<ByteLen>, bar: &ProgressBar) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut damaged: BTreeMap<FileId, Vec<(TargetId, Damage)>> = BTreeMap::new();
    for target in weft.cluster.map().targets {
        bar.set_message(format!("MiB verified, target {}", target.id.0));
        let mut pace = Pace::new(rate);
        let mut from = None;
        loop {
            let step = pace.step().min(STEP);
            let done = block_on(weft.client.scrub(target.id, from, step))
                .map_err(|error| Failure::new(format!("target {}", target.id.0), why(&error)))?;
            report.verified += done.verified.0;
            report.checked += done.checked;
            report.unchecked += done.unchecked;
            bar.set_position(report.verified >> 20);
            for damage in done.damaged {
                damaged.entry(damage.file).or_default().push((target.id, damage));
            }
            from = done.next;
            if from.is_none() {
                break;
            }
            pace.wait(done.verified);
        }
    }
    if !damaged.is_empty() {
        name(weft, damaged, &mut report.problems)?;
    }
    Ok(report)
}

/// Says of each damaged range which file it belongs to.
fn name(
    weft: &Weft,
    mut damaged: BTreeMap<FileId, Vec<(TargetId, Damage)>>,
    problems: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut after = FileId(0);
    loop {
        let page = block_on(weft.client.scan_inodes(after, PAGE))
            .map_err(|error| Failure::new("fsck --scrub", why(&error)))?;
        let Some(last) = page.last() else { break };
        after = last.file;
        for inode in page {
            let Some(ranges) = damaged.remove(&inode.file) else { continue };
            let name = match inode.path.is_empty() {
                true => format!("inode {}", inode.file.inode().0),
                false => weft.shown(&bytes::text(&inode.path)),
            };
            for (target, damage) in ranges {
                let len = ByteLen(damage.end - damage.start);
                let local = LocalExtent { offset: LocalOffset(damage.start), len };
                let pieces = inode.layout.iter().flat_map(|layout| layout.file_pieces(damage.object, local));
                let pieces = pieces.filter(|piece| piece.offset.0 < inode.size.0.max(1));
                let ranges: Vec<String> = pieces
                    .map(|piece| format!("{} to {}", piece.offset.0, piece.offset.0 + piece.len.0))
                    .collect();
                let of_file = match ranges.as_slice() {
                    [] => "bytes behind its end".to_owned(),
                    some => format!("bytes {}", some.join(", ")),
                };
                problems.push(format!("{name}: {of_file} are damaged ({})", place(target, &damage)));
            }
        }
    }
    for (target, damage) in damaged.into_values().flatten() {
        problems.push(format!("a file that is gone, or being removed or moved: {}", place(target, &damage)));
    }
    Ok(())
}

fn place(target: TargetId, damage: &Damage) -> String {
    let Damage { file, object, start, end } = damage;
    let (component, column) = (object.component, object.column);
    format!(
        "datafile {:016x}.{component}.{column} on target {}, bytes {start} to {end}, does not match its checksums",
        file.0, target.0
    )
}

/// Holds a rate: no request is longer than a tenth of a second of it.
struct Pace {
    rate: Option<u64>,
    began: Instant,
    done: u64,
}

impl Pace {
    fn new(rate: Option<ByteLen>) -> Self {
        Self { rate: rate.map(|rate| rate.0.max(1)), began: Instant::now(), done: 0 }
    }

    fn step(&self) -> ByteLen {
        ByteLen(self.rate.map_or(u64::MAX, |rate| (rate / 10).max(1 << 20)))
    }

    fn wait(&mut self, verified: ByteLen) {
        let Some(rate) = self.rate else { return };
        self.done += verified.0;
        let due = Duration::from_secs_f64(self.done as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_lasts_as_long_as_its_bytes() {
        let mut pace = Pace::new(Some(ByteLen(100 << 20)));
        assert_eq!(pace.step(), ByteLen(10 << 20));
        pace.wait(ByteLen(2 << 20));
        pace.wait(ByteLen(3 << 20));
        assert!(pace.began.elapsed() >= Duration::from_millis(50));
        let mut free = Pace::new(None);
        free.wait(ByteLen(u64::MAX));
        assert_eq!(free.step(), ByteLen(u64::MAX));
    }
}

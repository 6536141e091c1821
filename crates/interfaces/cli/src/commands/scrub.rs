//! `weft fsck --scrub`: verifies checksums at rest on all targets.

use super::bytes;
use super::session::{Weft, why};
use crate::failure::Failure;
use indicatif::ProgressBar;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Extent, FileId, Integrity, LocalExtent, LocalOffset, ObjectId, TargetId};
use weft_env::real::block_on;
use weft_store::target::DATAFILE_LEN_MAX;
use weft_wire::data::Damage;
use weft_wire::meta::{FileType, ScannedInode};

/// Bytes that a server verifies per request.
const STEP: ByteLen = ByteLen(8 << 20);
/// Number of inodes per request.
const PAGE: u32 = 4096;

/// Result of a scrub.
#[derive(Default)]
pub struct Report {
    /// Bytes verified.
    pub verified: u64,
    /// Datafiles with checksums.
    pub checked: u64,
    /// Datafiles that hold bytes without checksums.
    pub unchecked: u64,
    /// A sentence for each damaged range, and for each datafile with missing checksums.
    pub problems: Vec<String>,
}

impl Report {
    /// Summarizes the scrub in one line.
    pub fn summary(&self) -> String {
        let Self { verified, checked, unchecked, .. } = self;
        format!(
            "scrubbed {} in {checked} datafiles with checksums; {unchecked} have none",
            human_bytes(*verified)
        )
    }
}

/// Verifies all targets in turn, at most `rate` bytes per second.
pub fn all(weft: &Weft, rate: Option<ByteLen>, bar: &ProgressBar) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut found: BTreeMap<FileId, Vec<(TargetId, Finding)>> = BTreeMap::new();
    // Datafiles without checksums may be numerous. Only those of these files are kept.
    let asking = files_that_ask(weft)?;
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
            report.unchecked += done.unchecked.len() as u64;
            bar.set_position(report.verified >> 20);
            for damage in done.damaged {
                found.entry(damage.file).or_default().push((target.id, Finding::Damaged(damage)));
            }
            for (file, object) in done.unchecked.into_iter().filter(|(file, _)| asking.contains(file)) {
                found.entry(file).or_default().push((target.id, Finding::Unchecked(object)));
            }
            from = done.next;
            if from.is_none() {
                break;
            }
            pace.wait(done.verified);
        }
    }
    if !found.is_empty() {
        name(weft, found, &mut report.problems)?;
    }
    Ok(report)
}

/// A problem of a datafile.
enum Finding {
    /// Bytes do not match their checksums.
    Damaged(Damage),
    /// Bytes have no checksums, or no map, although the file requires them.
    Unchecked(ObjectId),
}

/// Calls `each` with all inodes.
fn each_inode(weft: &Weft, mut each: impl FnMut(ScannedInode)) -> Result<(), Failure> {
    let mut after = FileId(0);
    loop {
        let page = block_on(weft.client.scan_inodes(after, PAGE))
            .map_err(|error| Failure::new("fsck --scrub", why(&error)))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.file;
        page.into_iter().for_each(&mut each);
    }
}

/// Returns the files whose own setting requires checksums at rest or compression.
fn files_that_ask(weft: &Weft) -> Result<BTreeSet<FileId>, Failure> {
    let mut files = BTreeSet::new();
    each_inode(weft, |inode| {
        let asks = inode.integrity == Some(Integrity::Crc32c) || inode.compression.is_some();
        if inode.kind == FileType::Regular && asks {
            files.insert(inode.file);
        }
    })?;
    Ok(files)
}

/// Assigns each finding to its file.
fn name(
    weft: &Weft,
    mut found: BTreeMap<FileId, Vec<(TargetId, Finding)>>,
    problems: &mut Vec<String>,
) -> Result<(), Failure> {
    each_inode(weft, |inode| {
        let name = match inode.path.is_empty() {
            true => format!("inode {}", inode.file.inode().0),
            false => weft.shown(&bytes::text(&inode.path)),
        };
        for (target, finding) in found.remove(&inode.file).into_iter().flatten() {
            problems.push(match finding {
                Finding::Damaged(damage) => damaged_file(&name, &inode, target, &damage),
                Finding::Unchecked(object) if inode.compression.is_some() => {
                    format!("{name}: {}", without_map(inode.file, object, target))
                }
                Finding::Unchecked(object) => format!(
                    "{name}: the checksums of {} are missing, so its bytes cannot be verified",
                    datafile(inode.file, object, target)
                ),
            });
        }
    })?;
    for (target, finding) in found.into_values().flatten() {
        // No reader needs a datafile without checksums of a removed file.
        if let Finding::Damaged(damage) = finding {
            problems
                .push(format!("a file that is gone, or being removed or moved: {}", place(target, &damage)));
        }
    }
    Ok(())
}

/// Describes damaged bytes of a file.
fn damaged_file(name: &str, inode: &ScannedInode, target: TargetId, damage: &Damage) -> String {
    if damage.end == DATAFILE_LEN_MAX {
        return format!("{name}: {}", without_map(damage.file, damage.object, target));
    }
    let len = ByteLen(damage.end - damage.start);
    let local = LocalExtent { offset: LocalOffset(damage.start), len };
    let pieces = inode.layout.iter().flat_map(|layout| layout.file_pieces(damage.object, local));
    // The size of an inode is not up to date while the file is open.
    let is_inside = |piece: &Extent| !inode.is_size_valid || piece.offset.0 < inode.size.0;
    let pieces = pieces.filter(is_inside);
    let ranges: Vec<String> =
        pieces.map(|piece| format!("{} to {}", piece.offset.0, piece.offset.0 + piece.len.0)).collect();
    let of_file = match ranges.as_slice() {
        [] => "bytes behind its end".to_owned(),
        some => format!("bytes {}", some.join(", ")),
    };
    format!("{name}: {of_file} are damaged ({})", place(target, damage))
}

fn place(target: TargetId, damage: &Damage) -> String {
    let Damage { file, object, start, end } = damage;
    format!("{}, bytes {start} to {end}, does not match its checksums", datafile(*file, *object, target))
}

/// Describes a compressed datafile that has lost its map.
pub fn without_map(file: FileId, object: ObjectId, target: TargetId) -> String {
    let datafile = datafile(file, object, target);
    format!("the map of {datafile} is missing or damaged, so none of its bytes can be read")
}

fn datafile(file: FileId, object: ObjectId, target: TargetId) -> String {
    let (component, column) = (object.component, object.column);
    format!("datafile {:016x}.{component}.{column} on target {}", file.0, target.0)
}

/// Limits the rate. No request is longer than a tenth of a second at this rate.
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

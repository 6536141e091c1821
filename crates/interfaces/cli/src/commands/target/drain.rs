//! Drains targets: moves the data of all files to other targets.

use super::super::migrate::INTERRUPTED;
use super::super::relayout::{self, Mover};
use super::super::session::Weft;
use super::super::status;
use super::{change, records};
use crate::failure::{FAILED, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Candidate, TargetId, TargetState};
use weft_wire::ClusterMap;
use weft_wire::meta::{ScannedInode, TargetChange};

/// Maximum wait for the removal of datafiles after the last move.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks for remaining datafiles.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of passes over all files. A pass may miss files that are renamed, opened or moved concurrently.
const PASSES_MAX: u32 = 4;

/// Drains targets and returns the exit code.
pub fn run(
    weft: &Weft,
    targets: &[TargetId],
    rate: Option<ByteLen>,
    quiet: bool,
    verbose: bool,
) -> Result<u8, Failure> {
    for target in targets {
        change(weft, *target, TargetChange::Drain)?;
    }
    let leaving: BTreeSet<TargetId> = targets.iter().copied().collect();
    let mut mover = Mover::new(weft, rate, quiet, verbose);
    for _ in 0..PASSES_MAX {
        let (files, _) = there(weft, &leaving)?;
        if files.is_empty() || mover.is_stopped() {
            break;
        }
        let failed = mover.sum.failed;
        pass(weft, &leaving, files, &mut mover)?;
        if mover.sum.failed > failed {
            break;
        }
    }
    let began = Instant::now();
    let (files, removals) = loop {
        let found = there(weft, &leaving)?;
        // Datafiles of moved files are removed in the background.
        if !found.0.is_empty() || found.1 == 0 || mover.is_stopped() || began.elapsed() > REMOVAL_TIMEOUT {
            break found;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    mover.bar.finish_and_clear();
    if !quiet {
        outln!(
            "moved {} ({} copied)",
            super::super::migrate::files(mover.sum.files),
            human_bytes(mover.sum.bytes)
        );
    }
    let names = targets.iter().map(|target| target.0.to_string()).collect::<Vec<_>>().join(" ");
    if mover.sum.stopped {
        errln!("weft: stopped; `weft target drain {names}` resumes");
        return Ok(INTERRUPTED);
    }
    if !files.is_empty() || removals > 0 {
        errln!(
            "weft: {} and {removals} removed ones still have data on target {names}; run the same command again",
            super::super::migrate::files(files.len() as u64)
        );
        return Ok(FAILED);
    }
    if !quiet {
        outln!(
            "target {names} holds no data: `weft target remove {names}`, or `weft target replace` for a new disk"
        );
    }
    Ok(0)
}

/// Returns files with data on these targets, and the number of files being removed or moved by other clients.
fn there(weft: &Weft, leaving: &BTreeSet<TargetId>) -> Result<(Vec<ScannedInode>, usize), Failure> {
    let (mut files, mut removals) = (Vec::new(), 0);
    relayout::scan(weft, |inode| {
        if inode.layout.as_ref().is_some_and(|layout| relayout::names(layout, leaving)) {
            match relayout::is_movable(&inode) {
                true => files.push(inode),
                false => removals += 1,
            }
        }
    })?;
    Ok((files, removals))
}

fn pass(
    weft: &Weft,
    leaving: &BTreeSet<TargetId>,
    files: Vec<ScannedInode>,
    mover: &mut Mover<'_>,
) -> Result<(), Failure> {
    let map = weft.cluster.map();
    let active: BTreeSet<TargetId> = records(weft)?
        .iter()
        .filter(|record| record.state == TargetState::Active)
        .map(|record| record.target)
        .collect();
    let mut load: BTreeMap<TargetId, u64> = BTreeMap::new();
    for answer in status::query_servers(weft) {
        // A target that is unusable, or whose server is down, receives no data.
        let reported = answer.status.map(|status| status.targets).unwrap_or_default();
        let used = reported.iter().filter(|target| target.refused.is_none());
        load.extend(used.map(|target| (target.target, target.total.0 - target.free.0.min(target.total.0))));
    }
    let open = map.candidates();
    let open: Vec<Candidate<'_>> = open
        .into_iter()
        .filter(|found| active.contains(&found.target) && load.contains_key(&found.target))
        .collect();
    mover.files = mover.sum.files + mover.sum.failed + files.len() as u64;
    for inode in files {
        if mover.is_stopped() {
            return Ok(());
        }
        let Some(layout) = &inode.layout else { continue };
        let wanted = relayout::without(layout, leaving, &open, |target| class(&map, target), &load).map_err(
            |class| {
                let why = format!("no other target of class {class} takes its data");
                Failure::new(relayout::shown(weft, &inode), why)
                    .remedy("add a target of that class, or move the file with `weft migrate --class`")
            },
        )?;
        if mover.file(&inode, &wanted) {
            let parts = wanted.objects().count() as u64;
            for (_, target) in wanted.objects() {
                *load.entry(target).or_default() += inode.size.0 / parts.max(1);
            }
        }
    }
    Ok(())
}

fn class(map: &ClusterMap, target: TargetId) -> String {
    let entry = map.targets.iter().find(|entry| entry.id == target);
    entry.map(|entry| entry.class.clone()).unwrap_or_default()
}

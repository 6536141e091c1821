//! Moves the data of files from some targets to others. All other properties of the layouts stay.

use super::migrate::{self, STOP};
use super::session::{Weft, why};
use crate::failure::Failure;
use indicatif::ProgressBar;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use weft_client::{MoveOptions, MoveOutcome, MoveProgress};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, Candidate, FileId, Layout, TargetId};
use weft_env::real::block_on;
use weft_wire::meta::{FileType, InodePath, LayoutSpec, ScannedInode};

/// Number of inodes per request.
const PAGE: u32 = 4096;

/// Counts of moved files, and of the others.
#[derive(Default)]
pub struct Moved {
    pub files: u64,
    pub bytes: u64,
    pub failed: u64,
    /// Whether a signal stopped it.
    pub stopped: bool,
}

/// Calls `each` with every inode, including the datafiles of files being moved or removed.
pub fn scan(weft: &Weft, mut each: impl FnMut(ScannedInode)) -> Result<(), Failure> {
    let mut after = FileId(0);
    loop {
        let page = block_on(weft.client.scan_inodes(after, PAGE))
            .map_err(|error| Failure::new("inodes", why(&error)))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.file;
        page.into_iter().for_each(&mut each);
    }
}

/// Returns the path of a file, or the number of its inode if it has none.
pub fn shown(weft: &Weft, inode: &ScannedInode) -> String {
    match inode.path.is_empty() {
        true => format!("inode {}", inode.file.inode().0),
        false => weft.shown(&super::bytes::text(&inode.path)),
    }
}

/// Whether a layout uses one of these targets.
pub fn names(layout: &Layout, targets: &BTreeSet<TargetId>) -> bool {
    layout.objects().any(|(_, target)| targets.contains(&target))
}

/// Whether the file can be moved.
pub fn is_movable(inode: &ScannedInode) -> bool {
    inode.kind == FileType::Regular && !inode.doomed
}

/// Replaces each target of `leaving` in a layout by the one of its class with the least `load`. A component that uses
/// all targets of the class already gets narrower.
///
/// # Errors
/// The class without any remaining target.
pub fn without(
    layout: &Layout,
    leaving: &BTreeSet<TargetId>,
    open: &[Candidate<'_>],
    class_of: impl Fn(TargetId) -> String,
    load: &BTreeMap<TargetId, u64>,
) -> Result<Layout, String> {
    let mut components = layout.components().to_vec();
    for component in &mut components {
        let mut kept: BTreeSet<TargetId> =
            component.strips.iter().map(|strip| strip.target).filter(|id| !leaving.contains(id)).collect();
        let mut strips = Vec::with_capacity(component.strips.len());
        for strip in &component.strips {
            if !leaving.contains(&strip.target) {
                strips.push(*strip);
                continue;
            }
            let class = class_of(strip.target);
            let free = open.iter().filter(|found| {
                found.class == class && !leaving.contains(&found.target) && !kept.contains(&found.target)
            });
            let least =
                free.min_by_key(|found| (load.get(&found.target).copied().unwrap_or(0), found.target));
            if let Some(found) = least {
                kept.insert(found.target);
                strips.push(weft_core::Strip { target: found.target, ..*strip });
            }
        }
        if strips.is_empty() {
            let class = component.strips.first().map(|strip| class_of(strip.target)).unwrap_or_default();
            return Err(class);
        }
        component.strips = strips;
    }
    Layout::from_components(components).map_err(|error| error.to_string())
}

/// Moves files one after the other and shows their names.
pub struct Mover<'a> {
    pub weft: &'a Weft,
    pub options: MoveOptions,
    pub bar: ProgressBar,
    pub verbose: bool,
    /// Total number of files, for the progress bar.
    pub files: u64,
    pub sum: Moved,
}

impl<'a> Mover<'a> {
    /// Creates a mover that a signal stops at a safe point.
    pub fn new(weft: &'a Weft, rate: Option<ByteLen>, quiet: bool, verbose: bool) -> Self {
        migrate::stop_on_signals();
        Self {
            weft,
            options: MoveOptions { rate_bytes_per_s: rate, ..MoveOptions::default() },
            bar: migrate::bar(quiet),
            verbose,
            files: 0,
            sum: Moved::default(),
        }
    }

    /// Moves one file to this layout. Returns whether it has the layout now. An error is printed and counted.
    pub fn file(&mut self, inode: &ScannedInode, layout: &Layout) -> bool {
        let weft = self.weft;
        let name = shown(weft, inode);
        let nth = self.sum.files + self.sum.failed + 1;
        self.bar.set_message(format!("{nth}/{}: {name}", self.files.max(nth)));
        self.bar.set_position(0);
        let place = InodePath::at_inode(inode.file.inode(), inode.proof);
        let bar = &self.bar;
        let mut go_on = |at: MoveProgress| {
            bar.set_length(at.total.0);
            bar.set_position(at.done.0);
            !STOP.load(Ordering::Relaxed)
        };
        let spec = LayoutSpec::exactly(layout);
        match block_on(weft.client.migrate(&place, &spec, self.options, &mut go_on)) {
            Ok(MoveOutcome::Moved(report)) => {
                self.sum.files += 1;
                self.sum.bytes += report.copied.0;
                if self.verbose {
                    self.bar.suspend(|| outln!("{name}: {}, moved", human_bytes(report.size.0)));
                }
                true
            }
            Ok(MoveOutcome::Already) => true,
            Ok(MoveOutcome::Stopped) => {
                self.sum.stopped = true;
                false
            }
            // The file has been removed since.
            Err(error) if matches!(error.errno(), libc::ENOENT | libc::ESTALE) => true,
            Err(error) => {
                self.sum.failed += 1;
                self.bar.suspend(|| errln!("{}", Failure::new(name, why(&error))));
                false
            }
        }
    }

    /// Whether a signal asked to stop.
    pub fn is_stopped(&mut self) -> bool {
        self.sum.stopped |= STOP.load(Ordering::Relaxed);
        self.sum.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ServerId;

    #[test]
    fn a_leaving_target_is_replaced_by_the_emptiest_of_its_class() {
        let candidate = |id, class| Candidate { target: TargetId(id), server: ServerId(id), class };
        let open = [candidate(0, "hdd"), candidate(1, "hdd"), candidate(2, "hdd"), candidate(3, "ssd")];
        let class = |target: TargetId| if target.0 < 3 || target.0 == 9 { "hdd" } else { "ssd" }.to_owned();
        let load = BTreeMap::from([(TargetId(1), 5), (TargetId(2), 3)]);
        let leaving = |ids: &[u32]| ids.iter().map(|id| TargetId(*id)).collect::<BTreeSet<_>>();
        let striped = |ids: &[u32]| {
            let targets: Vec<_> = ids.iter().map(|id| TargetId(*id)).collect();
            Layout::striped(&targets, ByteLen(4096)).expect("a layout")
        };
        let moved = |ids: &[u32], away: &[u32]| without(&striped(ids), &leaving(away), &open, class, &load);
        assert_eq!(moved(&[0], &[0]), Ok(striped(&[2])));
        assert_eq!(moved(&[0, 2], &[0]), Ok(striped(&[1, 2])), "in its place");
        assert_eq!(moved(&[0, 1, 2], &[0]), Ok(striped(&[1, 2])), "narrower where the class has no more");
        assert_eq!(moved(&[9, 8], &[9, 8]), Ok(striped(&[0, 3])));
        assert_eq!(moved(&[3], &[3]), Err("ssd".to_owned()));
        assert_eq!(moved(&[0, 1], &[5]), Ok(striped(&[0, 1])));
    }
}

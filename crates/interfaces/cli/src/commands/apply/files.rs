//! Existing files of a plan.

use super::PlacedRule;
use crate::commands::bytes;
use crate::commands::session::{Weft, join};
use crate::failure::Failure;
use weft_core::{ByteLen, ClassLayout, FileId, Layout, Pattern};
use weft_env::real::block_on;
use weft_wire::Errno;
use weft_wire::meta::{FileType, LayoutSpec, SpaceReservation};

/// Maximum number of files that are listed.
const NAMED_MAX: usize = 20;

/// Existing files of a plan.
#[derive(Default)]
pub struct ExistingFiles {
    /// Number of files that have the layout already.
    unchanged: u64,
    /// Number of empty files that got the layout.
    set: u64,
    /// Paths of files that hold bytes or are open for writing.
    others: Vec<String>,
}

impl ExistingFiles {
    /// Finds the files of all rules and sets the layout of those that were never written.
    pub fn of(weft: &Weft, placed: &[PlacedRule], dry_run: bool) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut seen = std::collections::BTreeSet::new();
        for rule in placed {
            let mut paths = Vec::new();
            if rule.pattern.as_str().contains('/') {
                let names: Vec<&str> = rule.path.split('/').collect();
                matching(weft, "", &names, &mut paths)?;
            } else {
                below(weft, rule, &mut paths)?;
            }
            for path in paths {
                // A file belongs to the first rule that matches it.
                if seen.insert(path.clone()) {
                    found.one(weft, rule, path, dry_run)?;
                }
            }
        }
        Ok(found)
    }

    fn one(&mut self, weft: &Weft, rule: &PlacedRule, path: String, dry_run: bool) -> Result<(), Failure> {
        let (layout, _) = weft.at(&path, true, |place| block_on(weft.client.get_layout(place)))?;
        let Some(layout) = layout else { return Ok(()) };
        let attr = weft.stat(&path, true)?;
        let reservations = super::reservations(weft);
        if expected(weft, &reservations, &layout, &rule.layout, attr.file)
            .is_some_and(|expected| expected == layout)
        {
            self.unchanged += 1;
            return Ok(());
        }
        if attr.size.0 > 0 {
            self.others.push(path);
            return Ok(());
        }
        let spec = LayoutSpec { by_class: Some(rule.layout.clone()), ..LayoutSpec::default() };
        let mut in_use = false;
        if !dry_run {
            weft.at(&path, true, |place| {
                let set = block_on(weft.client.set_layout(place, &spec));
                match set {
                    // The file holds bytes, or a program has it open for writing.
                    Err(error) if [Errno::EEXIST.0, Errno::EBUSY.0].contains(&error.errno()) => Ok(true),
                    set => set.map(|()| false),
                }
            })
            .map(|refused| in_use = refused)?;
        }
        if in_use {
            self.others.push(path);
        } else {
            self.set += 1;
        }
        Ok(())
    }

    /// Prints the result.
    pub fn show(&self, weft: &Weft, dry_run: bool) {
        let files = |count: u64| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
        if self.unchanged > 0 {
            outln!("{} of the plan with the right layout already", files(self.unchanged));
        }
        if self.set > 0 {
            let done = if dry_run { "would get" } else { "got" };
            outln!(
                "{} that {} never written {done} the layout",
                files(self.set),
                if self.set == 1 { "was" } else { "were" }
            );
        }
        if self.others.is_empty() {
            return;
        }
        match self.others.len() {
            1 => outln!("1 file with bytes or writers keeps its layout; to move it:"),
            count => outln!("{count} files with bytes or writers keep their layout; to move them:"),
        }
        for path in self.others.iter().take(NAMED_MAX) {
            outln!("  weft migrate {}", crate::commands::quoted(&weft.shown(path)));
        }
        if let Some(more) = self.others.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
            outln!("  and {more} more");
        }
    }
}

/// Collects the files whose path matches these names, in which `*` is a number.
fn matching(weft: &Weft, dir: &str, names: &[&str], out: &mut Vec<String>) -> Result<(), Failure> {
    let Some((name, after)) = names.split_first() else { return Ok(()) };
    let mut kept = Vec::new();
    if name.contains('*') {
        let Ok(pattern) = Pattern::of_numbers(name) else { return Ok(()) };
        weft.list(dir, false, |entry| {
            if pattern.matches(&entry.name) {
                kept.push((join(dir, &bytes::text(&entry.name)), entry.kind));
            }
            Ok(())
        })?;
    } else {
        // Unescaped, as paths of files are shown.
        let path = join(dir, &bytes::text(&bytes::bytes(name)));
        if let Some(kind) = weft.kind(&path, true)? {
            kept.push((path, kind));
        }
    }
    for (path, kind) in kept {
        match kind {
            FileType::Regular if after.is_empty() => out.push(path),
            FileType::Directory if !after.is_empty() => matching(weft, &path, after, out)?,
            _ => {}
        }
    }
    Ok(())
}

/// Collects the files below a rule's directory that match the rule.
fn below(weft: &Weft, rule: &PlacedRule, out: &mut Vec<String>) -> Result<(), Failure> {
    weft.walk(&rule.dir, false, &mut |path, known| {
        let name = super::paths::below(path, &rule.dir);
        if known.attr.kind == FileType::Regular && rule.pattern.matches(&bytes::bytes(name)) {
            out.push(path.to_owned());
        }
        Ok(())
    })
}

/// Returns the layout that the plan gives a file now, with the free capacity and the capacity that the file has
/// reserved.
fn expected(
    weft: &Weft,
    left: &[SpaceReservation],
    layout: &Layout,
    planned: &ClassLayout,
    file: FileId,
) -> Option<Layout> {
    let own = layout.space_reservations();
    let left = left.iter().map(|reservation| {
        let own = own.get(&reservation.target).map_or(0, |bytes| bytes.0);
        let left = reservation.capacity.0.saturating_sub(reservation.reserved.0);
        (reservation.target, ByteLen(left.saturating_add(own)))
    });
    let file = weft_server::metadata::placed_as(file);
    planned.place(&weft.cluster.map().candidates(), &left.collect(), file).ok()
}

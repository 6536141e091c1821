//! Files of a plan that are there already.

use super::Placed;
use crate::commands::bytes;
use crate::commands::session::{Weft, join};
use crate::failure::Failure;
use weft_core::{ByteLen, ClassLayout, FileId, Layout, Pattern};
use weft_env::real::block_on;
use weft_wire::Errno;
use weft_wire::meta::{FileType, LayoutSpec, TargetRoom};

/// The most files that are named.
const NAMED_MAX: usize = 20;

/// What is there of a plan's files.
#[derive(Default)]
pub struct Found {
    /// They have the layout already.
    right: u64,
    /// They were never written, and got it.
    set: u64,
    /// They hold bytes, or somebody writes them.
    others: Vec<String>,
}

impl Found {
    /// Looks for the files of all rules, and sets the layout of those that were never written.
    pub fn of(weft: &Weft, placed: &[Placed], dry_run: bool) -> Result<Self, Failure> {
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
                // The first rule that fits is the file's.
                if seen.insert(path.clone()) {
                    found.one(weft, rule, path, dry_run)?;
                }
            }
        }
        Ok(found)
    }

    fn one(&mut self, weft: &Weft, rule: &Placed, path: String, dry_run: bool) -> Result<(), Failure> {
        let (layout, _) = weft.at(&path, true, |place| block_on(weft.client.get_layout(place)))?;
        let Some(layout) = layout else { return Ok(()) };
        let attr = weft.stat(&path, true)?;
        let rooms = super::rooms(weft);
        if expected(weft, &rooms, &layout, &rule.layout, attr.file).is_some_and(|expected| expected == layout)
        {
            self.right += 1;
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
                    // It held bytes once, or somebody has it open for writing.
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

    /// Tells it.
    pub fn show(&self, weft: &Weft, dry_run: bool) {
        let files = |count: u64| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
        if self.right > 0 {
            outln!("{} of the plan already with its layout", files(self.right));
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

/// Files whose path is of these names; `*` is a number.
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
        // As it is told of a file, without the escapes of a rule.
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

/// Files below a rule's directory that it fits.
fn below(weft: &Weft, rule: &Placed, out: &mut Vec<String>) -> Result<(), Failure> {
    weft.walk(&rule.dir, false, &mut |path, known| {
        let name = super::paths::below(path, &rule.dir);
        if known.attr.kind == FileType::Regular && rule.pattern.matches(&bytes::bytes(name)) {
            out.push(path.to_owned());
        }
        Ok(())
    })
}

/// What the plan gives a file now: with the room that is left and what the file has of it.
fn expected(
    weft: &Weft,
    left: &[TargetRoom],
    layout: &Layout,
    planned: &ClassLayout,
    file: FileId,
) -> Option<Layout> {
    let own = layout.promises();
    let left = left.iter().map(|room| {
        let own = own.get(&room.target).map_or(0, |bytes| bytes.0);
        (room.target, ByteLen(room.room.0.saturating_sub(room.promised.0).saturating_add(own)))
    });
    let file = weft_server::metadata::placed_as(file);
    planned.place(&weft.cluster.map().candidates(), &left.collect(), file).ok()
}

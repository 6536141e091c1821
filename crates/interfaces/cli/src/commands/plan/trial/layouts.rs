//! The layouts that a trial compares, as rules for the scratch files, and the space that these take.

use super::scratch::Scratch;
use crate::commands::plan::capacity;
use crate::commands::plan::present::new_file;
use crate::commands::session::{Weft, base_name};
use crate::commands::{mount, replay, stripe};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_core::parts::SpaceLeft;
use weft_core::{COMPRESSION_ATTRIBUTE, FileId, FileOffset, Layout, Pattern, TargetId};
use weft_env::real::block_on;
use weft_planner::Plan;
use weft_planner::live::ClassRenames;
use weft_server::metadata::placed_as;
use weft_trace::prepared::Prepared;
use weft_wire::meta::{FileType, LayoutSpec, RULES_MAX, Rule};

/// Maximum time in which servers free the space of removed scratch files.
const FREE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the free space is asked for.
const FREE_INTERVAL: Duration = Duration::from_millis(50);

/// A side of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The layouts in force.
    Present,
    /// The layouts of the plan.
    Planned,
}

impl Side {
    /// Name in messages, and of the scratch directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Planned => "planned",
        }
    }
}

/// A file of the replay.
struct ScratchFile {
    /// Name in the replay.
    name: String,
    /// Length in bytes.
    len: u64,
    /// Upper bound of the bytes stored, less than the length of a file with holes.
    stored: u64,
    present: LayoutSpec,
    planned: LayoutSpec,
}

impl ScratchFile {
    fn spec(&self, side: Side) -> &LayoutSpec {
        match side {
            Side::Present => &self.present,
            Side::Planned => &self.planned,
        }
    }
}

/// The files of the replay.
pub struct ScratchFiles(Vec<ScratchFile>);

impl ScratchFiles {
    /// Finds the layouts of all files. Files without a rule of the plan keep theirs.
    pub fn of(weft: &Weft, prepared: &Prepared, plan: &Plan) -> Result<Self, Failure> {
        let map = weft.client.map();
        let candidates = map.candidates();
        let mounts = mount::of(&weft.cluster);
        let mut files = Vec::new();
        for (number, file) in prepared.facts.files.iter().enumerate() {
            if file.directory || !(file.written || file.input.is_some()) {
                continue;
            }
            // A file that was elsewhere counts as one in the root.
            let inside = capacity::inside(weft, &mounts, &file.name)
                .unwrap_or_else(|| base_name(&file.name).to_owned());
            let present = present(weft, inside.trim_end_matches('/'))?;
            let planned = match plan.rule(&file.name) {
                None => present.clone(),
                Some(rule) => {
                    let placed = plan.by_class(rule, &candidates, &ClassRenames::new());
                    let (layout, _) = placed.map_err(|why| Failure::misuse("--try", why))?;
                    let compression = present.compression;
                    LayoutSpec { by_class: Some(layout), compression, ..LayoutSpec::default() }
                }
            };
            files.push(ScratchFile {
                name: prepared.name(number as u32),
                len: file.extent.max(file.input.unwrap_or(0)),
                stored: file.space_needed(),
                present,
                planned,
            });
        }
        Ok(Self(files))
    }

    /// Returns rules that give each file its layout. The last rule gives the most frequent one to all other files.
    pub fn rules(&self, side: Side) -> Result<Vec<Rule>, Failure> {
        let mut counts: Vec<(&LayoutSpec, usize)> = Vec::new();
        for file in &self.0 {
            let spec = file.spec(side);
            match counts.iter_mut().find(|(known, _)| *known == spec) {
                Some((_, count)) => *count += 1,
                None => counts.push((spec, 1)),
            }
        }
        let Some((common, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
            return Ok(Vec::new());
        };
        // Names in a replay have no characters with a meaning in patterns.
        let rule = |pattern: &str, layout: &LayoutSpec| Rule {
            pattern: pattern.parse::<Pattern>().expect("a plain name"),
            layout: layout.clone(),
        };
        let others = self.0.iter().filter(|file| file.spec(side) != common);
        let mut rules: Vec<Rule> = others.map(|file| rule(&file.name, file.spec(side))).collect();
        if rules.len() >= RULES_MAX {
            let why = format!("{} files have {} layouts of their own", rules.len(), side.name());
            return Err(Failure::new("--try", format!("{why}, and at most {} can be tried", RULES_MAX - 1))
                .remedy("select fewer files with --only or --without"));
        }
        rules.push(rule("*", common));
        Ok(rules)
    }

    /// Returns the space that the files need.
    pub fn space(&self, weft: &Weft, scratch: &Scratch<'_>, side: Side) -> Result<Space, Failure> {
        let map = weft.client.map();
        let candidates = map.candidates();
        let class: BTreeMap<TargetId, &str> =
            candidates.iter().map(|candidate| (candidate.target, candidate.class)).collect();
        let spaces = capacity::targets(weft)?;
        let mut probed: Vec<(&LayoutSpec, Layout)> = Vec::new();
        let mut space = Space { side, classes: BTreeMap::new(), stored: 0 };
        for (number, file) in self.0.iter().enumerate() {
            let spec = file.spec(side);
            let layout = match &spec.by_class {
                // With all the capacity that it needs, unlike the layout of a probe.
                Some(by_class) => by_class
                    .place(&candidates, &SpaceLeft::new(), placed_as(FileId(number as u64)))
                    .map_err(|why| Failure::new("--try", why))?,
                None => {
                    let known =
                        || probed.iter().find(|(known, _)| *known == spec).map(|(_, layout)| layout.clone());
                    // A probe of exact targets would fail if their capacity is not free.
                    match spec.exact().or_else(known) {
                        Some(layout) => layout,
                        None => {
                            let layout = scratch.layout_of(spec)?;
                            probed.push((spec, layout.clone()));
                            layout
                        }
                    }
                }
            };
            let reserved = layout.space_reservations();
            for (target, stored) in bytes_on_targets(&layout, file) {
                let name = class.get(&target).copied().unwrap_or_default();
                let needed = space.classes.entry(name.to_owned()).or_default();
                needed.stored += stored;
                if spaces.get(&target).is_some_and(|space| space.unreserved().is_some()) {
                    needed.reserved += reserved.get(&target).map_or(0, |bytes| bytes.0);
                }
            }
            space.stored = space.stored.saturating_add(file.stored);
        }
        Ok(space)
    }
}

/// Returns the bytes of a file that each target stores.
fn bytes_on_targets(layout: &Layout, file: &ScratchFile) -> BTreeMap<TargetId, u64> {
    let mut bytes = BTreeMap::new();
    for (object, target) in layout.objects() {
        let len = layout.local_len(object, FileOffset(file.len)).0;
        let stored = u128::from(len) * u128::from(file.stored) / u128::from(file.len.max(1));
        *bytes.entry(target).or_default() += stored as u64;
    }
    bytes
}

/// Returns the layout in force for a path: that of the existing file, else that of a new one.
fn present(weft: &Weft, inside: &str) -> Result<LayoutSpec, Failure> {
    let new = new_file(weft, inside)?;
    let Some(known) = weft.look(inside, true)?.filter(|known| known.attr.kind == FileType::Regular) else {
        return Ok(new);
    };
    let (layout, _) = weft.at(inside, true, |place| block_on(weft.client.get_layout(place)))?;
    let Some(layout) = layout else { return Ok(new) };
    let open = LayoutSpec::default();
    let now = weft.at(inside, true, |place| block_on(weft.client.layout_if_moved(place, &open)));
    // A layout by class that capacity has cut short is not the one that a new file gets.
    let is_whole = new.by_class.as_ref().is_none_or(|by_class| {
        let map = weft.client.map();
        let candidates = map.candidates();
        let whole = by_class.place(&candidates, &SpaceLeft::new(), placed_as(known.attr.file));
        whole.is_ok_and(|whole| whole == layout)
    });
    let compression = stripe::setting(weft, inside, COMPRESSION_ATTRIBUTE)?;
    let compression = compression.and_then(|setting| setting.parse().ok());
    Ok(match is_whole && now.is_ok_and(|now| now == layout) {
        // Files with the layout of a new file share one rule.
        true => LayoutSpec { compression, ..new },
        false => LayoutSpec { compression, ..LayoutSpec::exactly(&layout) },
    })
}

/// Bytes that scratch files need on a class.
#[derive(Clone, Copy, Default)]
struct Needed {
    /// Bytes written.
    stored: u64,
    /// Bytes that layouts reserve on targets with a capacity.
    reserved: u64,
}

/// Space that the scratch files of one side need.
pub struct Space {
    side: Side,
    classes: BTreeMap<String, Needed>,
    /// Bytes on all targets together.
    stored: u64,
}

impl Space {
    /// Refuses files that do not fit.
    pub fn check(&self, weft: &Weft) -> Result<(), Failure> {
        if let Some(refusal) = self.lack(weft)? {
            return Err(refusal);
        }
        // Targets on one file system count once here.
        let free = replay::free_space(&weft.cluster);
        if self.stored > free {
            return Err(self.refusal("all classes together", self.stored, free));
        }
        Ok(())
    }

    /// Waits until the servers have freed the space of files removed before.
    pub fn wait_until_free(&self, weft: &Weft) -> Result<(), Failure> {
        let deadline = Instant::now() + FREE_TIMEOUT;
        while let Some(refusal) = self.lack(weft)? {
            if Instant::now() > deadline || super::is_ended() {
                return Err(refusal);
            }
            std::thread::sleep(FREE_INTERVAL);
        }
        Ok(())
    }

    /// Returns the refusal for a class without enough space.
    fn lack(&self, weft: &Weft) -> Result<Option<Failure>, Failure> {
        let spaces = capacity::targets(weft)?;
        for (class, needed) in &self.classes {
            let map = weft.client.map();
            let of_class = map.targets.iter().filter(|target| target.class == *class);
            let of_class: Vec<_> =
                of_class.map(|target| spaces.get(&target.id).copied().unwrap_or_default()).collect();
            // Layouts use all targets of a class alike, so the fullest one decides.
            let count = of_class.len() as u64;
            let free =
                of_class.iter().map(capacity::TargetSpace::free).min().unwrap_or(0).saturating_mul(count);
            let limited: Vec<u64> = of_class.iter().filter_map(capacity::TargetSpace::unreserved).collect();
            let unreserved = limited.iter().min().copied().unwrap_or(0).saturating_mul(limited.len() as u64);
            for (needed, free) in [(needed.stored, free), (needed.reserved, unreserved)] {
                if needed > free {
                    return Ok(Some(self.refusal(&format!("class {class}"), needed, free)));
                }
            }
        }
        Ok(None)
    }

    fn refusal(&self, place: &str, needed: u64, free: u64) -> Failure {
        let side = self.side.name();
        Failure::new(
            "--try",
            format!("{place}: scratch files with the {side} layouts need {needed} bytes, and {free} bytes are free"),
        )
        .remedy("free space, or try less of the trace with --try-until, --only or --without")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ByteLen;

    fn file(name: &str, stripe_size: u64) -> ScratchFile {
        let spec = LayoutSpec { stripe_size: Some(ByteLen(stripe_size)), ..LayoutSpec::default() };
        let name = name.to_owned();
        ScratchFile { name, len: 8, stored: 8, present: spec, planned: LayoutSpec::default() }
    }

    #[test]
    fn each_file_gets_its_layout_by_few_rules() {
        let files = ["000001-a", "000002-b.h5", "000003-a", "000004-c"].map(|name| file(name, 4096));
        let mut files = ScratchFiles(files.into());
        files.0.push(file("000005-other", 64));
        let rules = files.rules(Side::Present).expect("few");
        assert_eq!(rules.len(), 2);
        for file in &files.0 {
            let found = rules.iter().find(|rule| rule.pattern.matches(file.name.as_bytes()));
            assert_eq!(found.map(|rule| &rule.layout), Some(&file.present), "{}", file.name);
        }
        assert_eq!(files.rules(Side::Planned).expect("one").len(), 1);
        let many = (0..300).map(|n| file(&format!("{n:06}-a"), 1 + n)).collect();
        assert!(ScratchFiles(many).rules(Side::Present).is_err());
    }

    #[test]
    fn holes_take_no_space() {
        let layout = Layout::striped(&[TargetId(0), TargetId(1)], ByteLen(4)).expect("a layout");
        let mut file = file("000001-a", 4);
        assert_eq!(bytes_on_targets(&layout, &file), BTreeMap::from([(TargetId(0), 4), (TargetId(1), 4)]));
        file.stored = 4;
        assert_eq!(bytes_on_targets(&layout, &file), BTreeMap::from([(TargetId(0), 2), (TargetId(1), 2)]));
    }
}

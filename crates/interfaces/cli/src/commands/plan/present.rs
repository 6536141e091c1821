//! The layouts in force of the planned files: those that they have, or those that new files would get.

use super::Surveyed;
use super::capacity;
use crate::commands::session::{Weft, join};
use crate::commands::{bytes, layout_arguments, mount};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use weft_config::Cluster;
use weft_core::parts::SpaceLeft;
use weft_core::{ClassFilter, Factor, FileId, Layout, Placement, Start, TargetId};
use weft_env::real::block_on;
use weft_planner::plan::PresentLayout;
use weft_planner::{Figures, FileGroup};
use weft_wire::meta::{FileType, InodePath, LayoutSpec, RuledDirectory};

/// Maximum number of files of a group whose layouts are looked up. The group counts as having that of the largest.
const FILES_MAX: usize = 16;
/// Maximum number of groups whose files are looked up. A plan covers no more.
const GROUPS_MAX: usize = 64;

/// Where the layouts in force are known.
pub struct InForce {
    /// The cluster file.
    pub cluster: Cluster,
    /// A client of the running cluster; `None` if it does not run.
    pub weft: Option<Weft>,
}

impl InForce {
    /// Returns the present layout of each group of a trace.
    pub fn layouts(&self, surveyed: &Surveyed, figures: &Figures) -> Vec<PresentLayout> {
        let map = self.cluster.map();
        let class_of = |class: &str| figures.classes.iter().position(|known| known.name == class);
        let classes: BTreeMap<TargetId, usize> =
            map.targets.iter().filter_map(|target| Some((target.id, class_of(&target.class)?))).collect();
        let of_file = |layout: &Layout| {
            PresentLayout::of_file(layout, figures, |target| classes.get(&target).copied()).ok()
        };
        let of_new_file = |spec: &LayoutSpec| {
            let layout = of_spec(&self.cluster, spec)?;
            of_file(&layout).map(PresentLayout::for_new_files)
        };
        let mounts = mount::of(&self.cluster);
        let found = |weft: &Weft, group: &FileGroup| {
            let names = surveyed.names.values().filter(|name| group.rule.matches(name)).take(FILES_MAX);
            let names: Vec<String> = names.filter_map(|name| capacity::inside(weft, &mounts, name)).collect();
            let existing = largest(weft, &names).and_then(|layout| of_file(&layout));
            existing.or_else(|| of_new_file(&new_file(weft, names.first()?).ok()?))
        };
        let of_cluster = of_new_file(&LayoutSpec::default()).unwrap_or_else(|| default(figures));
        let groups = surveyed.traced.groups.iter().enumerate();
        let layout = |(number, group): (usize, &FileGroup)| {
            let weft = self.weft.as_ref().filter(|_| number < GROUPS_MAX);
            weft.and_then(|weft| found(weft, group)).unwrap_or_else(|| of_cluster.clone())
        };
        groups.map(layout).collect()
    }
}

/// The layout of new files where no cluster file says otherwise.
pub fn default(figures: &Figures) -> PresentLayout {
    PresentLayout::default_of(figures, Placement::DEFAULT_STRIPE_SIZE.0)
}

/// Returns the layout of the largest of some files that exist.
fn largest(weft: &Weft, names: &[String]) -> Option<Layout> {
    let layout = |name: &String| {
        let place = InodePath::from_root(bytes::bytes(name), true);
        let attr = block_on(weft.client.stat(&place)).ok()?;
        let (layout, _) = block_on(weft.client.get_layout(&place)).ok()?;
        Some((attr.size.0, layout?))
    };
    names.iter().filter_map(layout).max_by_key(|(size, _)| *size).map(|(_, layout)| layout)
}

/// Returns the request for the layout that a new file gets at this path: that of the first rule that matches, completed
/// by the directory's default.
pub fn new_file(weft: &Weft, inside: &str) -> Result<LayoutSpec, Failure> {
    let mut dir = String::new();
    if let Some((above, _)) = inside.rsplit_once('/') {
        for name in above.split('/') {
            let below = join(&dir, name);
            if weft.kind(&below, true)? != Some(FileType::Directory) {
                break;
            }
            dir = below;
        }
    }
    let ruled = weft.at(&dir, true, |place| block_on(weft.client.rules(place)))?;
    let path = bytes::bytes(inside);
    let rule = RuledDirectory::rule_for(&ruled, &path);
    let (_, default) = weft.at(&dir, true, |place| block_on(weft.client.get_layout(place)))?;
    let default = default.unwrap_or_default();
    Ok(rule.map_or_else(|| default.clone(), |rule| over(&rule.layout, &default)))
}

/// Fills open parts of a rule's layout from the default of the directory, as the metadata server does.
fn over(rule: &LayoutSpec, default: &LayoutSpec) -> LayoutSpec {
    let compression = rule.compression.or(default.compression);
    if layout_arguments::leaves_striping_open(rule) {
        return LayoutSpec { compression, ..default.clone() };
    }
    if rule.strips.is_some() || rule.by_class.is_some() {
        return LayoutSpec { compression, ..rule.clone() };
    }
    LayoutSpec {
        stripe_size: rule.stripe_size.or(default.stripe_size),
        stripe_count: rule.stripe_count.or(default.stripe_count),
        first: rule.first.or(default.first),
        class: rule.class.clone().or_else(|| default.class.clone()),
        compression,
        ..LayoutSpec::default()
    }
}

/// Returns the layout of a new file for which `spec` says what the cluster file leaves open. The first target is always
/// the first one, because the model places all files so.
fn of_spec(cluster: &Cluster, spec: &LayoutSpec) -> Option<Layout> {
    let map = cluster.map();
    let candidates = map.candidates();
    if spec.strips.is_some() {
        return spec.exact();
    }
    if let Some(by_class) = &spec.by_class {
        return by_class.place(&candidates, &SpaceLeft::new(), FileId(0)).ok();
    }
    let default = &cluster.placement;
    let factor = match spec.stripe_count {
        None => default.factor,
        // As in Lustre, 0 and -1 mean all.
        Some(count) => {
            u16::try_from(count).ok().and_then(NonZeroU16::new).map_or(Factor::All, Factor::AtMost)
        }
    };
    let class = spec.class.clone().map_or(default.class.clone(), |class| ClassFilter::Only(vec![class]));
    let stripe_size = spec.stripe_size.unwrap_or(default.stripe_size);
    Placement { stripe_size, factor, class, start: Start::First }.choose(&candidates, FileId(0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::ByteLen;

    #[test]
    fn a_rule_takes_what_it_leaves_open_from_the_directory() {
        let spec = |size: Option<u64>, class: Option<&str>| LayoutSpec {
            stripe_size: size.map(ByteLen),
            class: class.map(str::to_owned),
            ..LayoutSpec::default()
        };
        let default = spec(Some(4096), Some("ssd"));
        assert_eq!(over(&spec(None, None), &default), default);
        assert_eq!(over(&spec(Some(64), None), &default), spec(Some(64), Some("ssd")));
        let exact = LayoutSpec::exactly(&Layout::single(TargetId(1)));
        assert_eq!(over(&exact, &default), exact);
    }
}

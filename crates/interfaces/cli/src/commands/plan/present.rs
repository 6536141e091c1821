//! The layouts in force of the planned files: those that they have, or those that new files would get.

use super::Surveyed;
use super::capacity;
use crate::commands::bytes;
use crate::commands::session::Weft;
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use weft_config::Cluster;
use weft_core::parts::SpaceLeft;
use weft_core::{ClassFilter, Factor, FileId, Layout, Placement, Start, TargetId};
use weft_env::real::block_on;
use weft_planner::Figures;
use weft_planner::plan::PresentLayout;
use weft_wire::meta::{InodePath, LayoutSpec, RuledDirectory};

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
        let groups = surveyed.traced.groups.iter().enumerate();
        let layout = |(number, group): (usize, &weft_planner::FileGroup)| {
            let names = surveyed.names.values().filter(|name| group.rule.matches(name)).take(FILES_MAX);
            let found = self.weft.as_ref().filter(|_| number < GROUPS_MAX).and_then(|weft| {
                let names: Vec<String> = names.filter_map(|name| capacity::inside(weft, name)).collect();
                let existing = largest(weft, &names).and_then(|layout| self.of_file(&layout, figures));
                existing.or_else(|| {
                    let ruled = new_file(weft, names.first()?)?;
                    self.of_file(&ruled, figures).map(PresentLayout::for_new_files)
                })
            });
            found
                .or_else(|| {
                    let default = of_spec(&self.cluster, &LayoutSpec::default())?;
                    self.of_file(&default, figures).map(PresentLayout::for_new_files)
                })
                .unwrap_or_else(|| default(figures))
        };
        groups.map(layout).collect()
    }

    fn of_file(&self, layout: &Layout, figures: &Figures) -> Option<PresentLayout> {
        let map = self.cluster.map();
        let classes: BTreeMap<TargetId, usize> = map
            .targets
            .iter()
            .filter_map(|target| {
                let class = figures.classes.iter().position(|class| class.name == target.class)?;
                Some((target.id, class))
            })
            .collect();
        PresentLayout::of_file(layout, figures, |target| classes.get(&target).copied()).ok()
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

/// Returns the layout that a new file would get at this path: by a rule, else by its directory, else by the cluster.
fn new_file(weft: &Weft, name: &str) -> Option<Layout> {
    let mut directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    // Missing directories get the defaults of those that exist.
    let (place, default) = loop {
        let place = InodePath::from_root(bytes::bytes(directory), true);
        match block_on(weft.client.get_layout(&place)) {
            Ok((_, default)) => break (place, default),
            Err(_) if directory.is_empty() => return None,
            Err(_) => directory = directory.rsplit_once('/').map_or("", |(above, _)| above),
        }
    };
    let rules = block_on(weft.client.rules(&place)).unwrap_or_default();
    let rule = RuledDirectory::rule_for(&rules, &bytes::bytes(name)).map(|rule| rule.layout.clone());
    let spec = match (rule, default) {
        (Some(rule), Some(default)) if rule.by_class.is_none() && rule.strips.is_none() => LayoutSpec {
            stripe_size: rule.stripe_size.or(default.stripe_size),
            stripe_count: rule.stripe_count.or(default.stripe_count),
            first: rule.first.or(default.first),
            class: rule.class.or(default.class),
            ..LayoutSpec::default()
        },
        (rule, default) => rule.or(default).unwrap_or_default(),
    };
    of_spec(&weft.cluster, &spec)
}

/// Returns the layout of a new file for which `spec` says what the cluster file leaves open. The first target is always
/// the first one, because the model places all files so.
fn of_spec(cluster: &Cluster, spec: &LayoutSpec) -> Option<Layout> {
    let map = cluster.map();
    let candidates = map.candidates();
    if let Some(strips) = &spec.strips {
        return Layout::variable(strips).ok();
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

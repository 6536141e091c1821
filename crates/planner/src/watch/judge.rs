//! A new plan beside the layouts in force.

use crate::figures::Figures;
use crate::live::{Renamed, class_layout};
use crate::model::{Load, run_files};
use crate::plan::{Options, Plan, PlanError, Rule, plan};
use crate::survey::Traced;
use std::collections::BTreeMap;
use weft_core::parts::RoomLeft;
use weft_core::{Candidate, ClassLayout, Component, FileId, Layout, Strip, TargetId};

/// A unit of a trace under its new layout and under those in force.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which, by its number in the trace.
    pub unit: usize,
    /// How long its requests take in the layouts in force: of rules where there are any, else those that its files have.
    pub in_force_s: f64,
    /// How long in the layouts that its files have.
    pub files_s: f64,
    /// How long in the new one.
    pub planned_s: f64,
    /// The new one.
    pub rule: Rule,
}

/// A file as the cluster has it.
#[derive(Clone, Debug)]
pub struct FileLayout {
    /// Its id.
    pub file: FileId,
    /// Its layout.
    pub layout: Layout,
    /// What a rule would give it if it were made now.
    pub ruled: Option<ClassLayout>,
}

/// Plans for `units` of a trace and says what the layouts in force take, by the planner's model and with the same requests
/// on all. `files` has each file by its number in the trace; `available` are the targets that the
/// figures are of. Units that move too little to be planned for are left out of the answer and of the plan's rules, as are
/// all that were not asked for.
///
/// # Errors
/// As [`plan`]; targets or layouts that do not fit the figures.
pub fn judge(
    traced: &Traced,
    units: &[usize],
    figures: &Figures,
    available: &[Candidate<'_>],
    files: &BTreeMap<u32, FileLayout>,
    options: &Options,
) -> Result<(Plan, Vec<Judged>), PlanError> {
    let numbers = numbers(figures, available)?;
    let numbered: Vec<Candidate<'_>> = available
        .iter()
        .filter_map(|candidate| Some(Candidate { target: *numbers.get(&candidate.target)?, ..*candidate }))
        .collect();
    let mut plan = plan(traced, figures, options)?.plan;
    let mut judged = Vec::new();
    for &unit in units {
        let Some(rule) = plan.rules.iter().find(|rule| rule.path == traced.units[unit].rule) else {
            continue;
        };
        let wrong = |why: String| PlanError(format!("{}: {why}", rule.path));
        let planned = class_layout(&rule.layout, figures, &Renamed::new()).map_err(wrong)?;
        let load = Load::of(traced, Some(unit as u32));
        let (mut in_force, mut had, mut new) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for file in load.files() {
            let found = files.get(&file);
            let found = found.ok_or_else(|| wrong("the layout of a file is not known".into()))?;
            // Files take turns at where they begin, the ones as the others.
            let placed = |layout: &ClassLayout| {
                let placed = layout.place(&numbered, &RoomLeft::new(), found.file);
                placed.map_err(|error| wrong(error.to_string()))
            };
            let layout = renumbered(&found.layout, &numbers).map_err(wrong)?;
            in_force.insert(file, found.ruled.as_ref().map_or(Ok(layout.clone()), placed)?);
            had.insert(file, layout);
            new.insert(file, placed(&planned)?);
        }
        let seconds = |layouts| run_files(figures, &load, layouts).seconds;
        judged.push(Judged {
            unit,
            in_force_s: seconds(&in_force),
            files_s: seconds(&had),
            planned_s: seconds(&new),
            rule: rule.clone(),
        });
    }
    plan.rules = judged.iter().map(|judged| judged.rule.clone()).collect();
    Ok((plan, judged))
}

/// The model counts targets through the classes.
fn numbers(
    figures: &Figures,
    available: &[Candidate<'_>],
) -> Result<BTreeMap<TargetId, TargetId>, PlanError> {
    let mut numbers = BTreeMap::new();
    for class in &figures.classes {
        let before = numbers.len();
        for candidate in available.iter().filter(|candidate| candidate.class == class.name) {
            numbers.insert(candidate.target, TargetId(numbers.len() as u32));
        }
        let (found, known) = (numbers.len() - before, class.targets as usize);
        if found != known {
            let why =
                format!("the figures have {known} targets of class {:?}, the cluster {found}", class.name);
            return Err(PlanError(why));
        }
    }
    Ok(numbers)
}

fn renumbered(layout: &Layout, numbers: &BTreeMap<TargetId, TargetId>) -> Result<Layout, String> {
    let strip = |strip: &Strip| {
        let target = numbers.get(&strip.target).copied();
        let target = target.ok_or_else(|| format!("{} is of no class of the figures", strip.target))?;
        Ok(Strip { target, stripe_size: strip.stripe_size })
    };
    let component = |component: &Component| {
        let strips = component.strips.iter().map(strip).collect::<Result<_, String>>()?;
        Ok(Component { strips, ..component.clone() })
    };
    let components = layout.components().iter().map(component).collect::<Result<_, String>>()?;
    Layout::from_components(components).map_err(|error| error.to_string())
}

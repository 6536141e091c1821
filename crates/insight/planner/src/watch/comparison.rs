//! Compares a new plan with the layouts in force.

use crate::figures::Figures;
use crate::live::{ClassRenames, class_layout};
use crate::model::{Load, run_files};
use crate::plan::{Options, Plan, PlanError, Rule, plan};
use crate::survey::TraceSummary;
use std::collections::BTreeMap;
use weft_core::parts::SpaceLeft;
use weft_core::{Candidate, ClassLayout, Component, FileId, Layout, Strip, TargetId};

/// Predicted times of a file group under its current and its planned layout.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Index of the group in the trace.
    pub group: usize,
    /// Time under the layouts in force, seconds: those of rules where there are any, else those of the files.
    pub in_force_s: f64,
    /// Time under the layouts that the files have, seconds.
    pub files_s: f64,
    /// Time under the planned layout, seconds.
    pub planned_s: f64,
    /// The planned rule.
    pub rule: Rule,
}

/// A file's current layout.
#[derive(Clone, Debug)]
pub struct FileLayout {
    /// File id.
    pub file: FileId,
    /// Its layout.
    pub layout: Layout,
    /// The layout that a rule would give it if it were created now.
    pub ruled: Option<ClassLayout>,
}

/// Plans for `groups` of a trace and compares the result with the layouts in force. All times come from the queueing
/// model with the same requests.
///
/// `files` holds each file by its number in the trace. `available` are the targets described by the figures. Groups
/// outside `groups`, and groups that move too little to be planned, are left out of the result and of the plan's rules.
///
/// # Errors
/// See [`plan`]; also targets or layouts that do not match the figures.
pub fn compare(
    traced: &TraceSummary,
    groups: &[usize],
    figures: &Figures,
    available: &[Candidate<'_>],
    files: &BTreeMap<u32, FileLayout>,
    options: &Options,
) -> Result<(Plan, Vec<Comparison>), PlanError> {
    let numbers = numbers(figures, available)?;
    let numbered: Vec<Candidate<'_>> = available
        .iter()
        .filter_map(|candidate| Some(Candidate { target: *numbers.get(&candidate.target)?, ..*candidate }))
        .collect();
    let mut plan = plan(traced, figures, options)?.plan;
    let mut comparisons = Vec::new();
    for &group in groups {
        let Some(rule) = plan.rules.iter().find(|rule| rule.path == traced.groups[group].rule) else {
            continue;
        };
        let wrong = |why: String| PlanError(format!("{}: {why}", rule.path));
        let planned = class_layout(&rule.layout, figures, &ClassRenames::new()).map_err(wrong)?;
        let load = Load::of(traced, Some(group as u32));
        let (mut in_force, mut had, mut new) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for file in load.files() {
            let found = files.get(&file);
            let found = found.ok_or_else(|| wrong("the layout of a file is not known".into()))?;
            // Both layouts rotate the first target from file to file.
            let placed = |layout: &ClassLayout| {
                let placed = layout.place(&numbered, &SpaceLeft::new(), found.file);
                placed.map_err(|error| wrong(error.to_string()))
            };
            let layout = renumbered(&found.layout, &numbers).map_err(wrong)?;
            in_force.insert(file, found.ruled.as_ref().map_or(Ok(layout.clone()), placed)?);
            had.insert(file, layout);
            new.insert(file, placed(&planned)?);
        }
        let seconds = |layouts| run_files(figures, &load, layouts).seconds;
        comparisons.push(Comparison {
            group,
            in_force_s: seconds(&in_force),
            files_s: seconds(&had),
            planned_s: seconds(&new),
            rule: rule.clone(),
        });
    }
    plan.rules = comparisons.iter().map(|one| one.rule.clone()).collect();
    Ok((plan, comparisons))
}

/// Maps targets to the numbers of the model, which counts through the classes.
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

//! A new plan beside the layouts in force.

use crate::figures::Figures;
use crate::model::{Load, run, run_files};
use crate::placing::Placing;
use crate::plan::{Options, Plan, PlanError, Planned, Rule, SAMPLE, plan};
use crate::survey::Traced;
use std::collections::BTreeMap;
use weft_core::{Component, Layout, Strip, TargetId};

/// A unit of a trace under its new layout and under those in force.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which, by its number in the trace.
    pub unit: usize,
    /// How long its requests take in the layouts that its files have.
    pub in_force_s: f64,
    /// How long in the new one.
    pub planned_s: f64,
    /// The new one.
    pub rule: Rule,
}

/// Plans for `units` of a trace and says what the layouts in force take, both by the planner's model and with the same
/// requests. `layouts` has that of each file, by its number in the trace; `targets` has the targets of each class, in the
/// order of the figures. Units that move too little to be planned for are left out of the answer and of the plan's rules,
/// as are all that were not asked for.
///
/// # Errors
/// As [`plan`]; targets or layouts that do not fit the figures.
pub fn judge(
    traced: &Traced,
    units: &[usize],
    figures: &Figures,
    targets: &[Vec<TargetId>],
    layouts: &BTreeMap<u32, Layout>,
    options: &Options,
) -> Result<(Plan, Vec<Judged>), PlanError> {
    let numbers = numbers(figures, targets)?;
    let Planned { mut plan, placings } = plan(traced, figures, options)?;
    let chosen = placings.iter().find(|(planner, _)| *planner == options.planner);
    let (_, chosen) = chosen.expect("who plans has layouts");
    let mut judged = Vec::new();
    for &unit in units {
        let Some(rule) = plan.rules.iter().find(|rule| rule.path == traced.units[unit].rule) else {
            continue;
        };
        let load = Load::of(traced, Some(unit as u32)).thin(SAMPLE);
        let files = load.files();
        let mut in_force = BTreeMap::new();
        for file in files {
            let layout = layouts.get(&file).ok_or_else(|| {
                PlanError(format!("the layout of a file of {} is not known", traced.units[unit].rule))
            })?;
            in_force.insert(file, renumbered(layout, &numbers)?);
        }
        let placing: &Placing = &chosen[unit];
        let planned_s = run(figures, &load, &vec![placing; traced.units.len()]).seconds;
        let in_force_s = run_files(figures, &load, &in_force).seconds;
        judged.push(Judged { unit, in_force_s, planned_s, rule: rule.clone() });
    }
    plan.rules = judged.iter().map(|judged| judged.rule.clone()).collect();
    Ok((plan, judged))
}

/// The model counts targets through the classes.
fn numbers(figures: &Figures, targets: &[Vec<TargetId>]) -> Result<BTreeMap<TargetId, TargetId>, PlanError> {
    let fits = figures.classes.len() == targets.len()
        && figures
            .classes
            .iter()
            .zip(targets)
            .all(|(class, targets)| class.targets as usize == targets.len());
    if !fits {
        return Err(PlanError("the figures are of a cluster with other targets".into()));
    }
    Ok(targets.iter().flatten().copied().zip((0..).map(TargetId)).collect())
}

fn renumbered(layout: &Layout, numbers: &BTreeMap<TargetId, TargetId>) -> Result<Layout, PlanError> {
    let strip = |strip: &Strip| {
        let target = numbers.get(&strip.target).copied();
        let target = target.ok_or_else(|| PlanError(format!("no class has {}", strip.target)))?;
        Ok(Strip { target, stripe_size: strip.stripe_size })
    };
    let component = |component: &Component| {
        let strips = component.strips.iter().map(strip).collect::<Result<_, PlanError>>()?;
        Ok(Component { strips, ..component.clone() })
    };
    let components = layout.components().iter().map(component).collect::<Result<_, PlanError>>()?;
    Layout::from_components(components).map_err(|error| PlanError(error.to_string()))
}

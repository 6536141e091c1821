//! Plans: a layout for each file group, with predicted times, alternatives and reasons.

mod advice;
mod explanation;
mod file;
mod present;
mod trial;

use crate::best::Search;
use crate::figures::{Class, Figures};
use crate::model::{Load, Outcome, run_averaged, run_layout_averaged, run_layouts};
use crate::paper::{CostParameters, DEF_STRIPE, Problem};
use crate::placement::{ClassPlacement, PlanPart};
use crate::rule::OTHERS;
use crate::survey::{FileGroup, TraceSummary};
pub use advice::{Action, Advice};
use advice::{cost_s, error_of, error_s};
use explanation::rule;
pub use explanation::shape;
use file::VERSION;
pub use file::{Alternative, Plan, PlanError, Planner, Predicted, Rule};
pub use present::PresentLayout;
pub use trial::{DECIDING_PAIRS_MIN, Trial, Verdict};
use weft_core::Layout;
use weft_core::layout::COLUMNS_MAX;
use weft_core::units::human_bytes;

/// Maximum number of planned groups. Further ones move few bytes.
const GROUPS_MAX: usize = 64;
/// Fraction of all bytes below which a group is not planned.
const SHARE_MIN: f64 = 1e-3;
/// Fraction of all bytes from which on a note mentions files without a layout.
const OMITTED_SHARE_MIN: f64 = 0.01;

/// A layout for a file group: a planner's, or the present one.
struct PlannerLayout {
    planner: Planner,
    /// The layout over whole classes; `None` only for a present layout over some targets of a class.
    placement: Option<ClassPlacement>,
    layout: Layout,
    parts: Vec<PlanPart>,
    cost: Option<f64>,
    outcome: Outcome,
}

impl PlannerLayout {
    fn new(
        figures: &Figures,
        planner: Planner,
        placement: ClassPlacement,
        cost: Option<f64>,
        outcome: Outcome,
    ) -> Self {
        let (layout, parts) = (placement.on_figures(figures), placement.to_plan(figures));
        Self { planner, placement: Some(placement), layout, parts, cost, outcome }
    }

    fn placement(&self) -> &ClassPlacement {
        self.placement.as_ref().expect("planners place files over whole classes")
    }
}

/// The decision for a file group.
struct Decided {
    /// Index of the chosen layout.
    chosen: usize,
    advice: Option<Advice>,
    /// Relative error of the model.
    error: f64,
}

/// Result of planning.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Each planner's layouts for all groups of the trace in their order. Groups that were not planned have a default
    /// layout.
    pub placements: Vec<(Planner, Vec<ClassPlacement>)>,
}

/// Planning options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The planner whose layouts the plan uses.
    pub planner: Planner,
    /// Name of the trace, for the plan file.
    pub trace: String,
    /// Notes for the plan file.
    pub notes: Vec<String>,
    /// Whether offsets and times of the trace are estimates.
    pub guessed: bool,
    /// Maximum number of parts of a layout.
    pub parts_max: usize,
    /// Whether all planners run, or only the selected one and DEF.
    pub alternatives: bool,
    /// The present layout of each group of the trace. If given, [`Planner::Best`] changes a layout only if the predicted
    /// gain exceeds the model's error and the cost of the change; the other planners always do.
    pub present: Option<Vec<PresentLayout>>,
    /// Whether [`Planner::Best`] also changes layouts whose gain is uncertain, because the plan will be tried.
    pub uncertain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            planner: Planner::Best,
            trace: String::new(),
            notes: Vec::new(),
            guessed: false,
            parts_max: 64,
            alternatives: true,
            present: None,
            uncertain: false,
        }
    }
}

impl Options {
    /// Whether layouts change. Only the planner `best` keeps present ones.
    fn changes(&self, advice: &Advice) -> bool {
        self.planner != Planner::Best || advice.is_certain() || (self.uncertain && advice.gain_s() > 0.0)
    }
}

/// Plans the layouts for a trace.
///
/// # Errors
/// Invalid figures, or a trace that moves no bytes.
///
/// # Panics
/// If there are present layouts, but not one for each group of the trace.
pub fn plan(traced: &TraceSummary, figures: &Figures, options: &Options) -> Result<Planned, PlanError> {
    figures.check().map_err(|error| PlanError(error.to_string()))?;
    let cluster = figures;
    let figures = &lift_one_limit(cluster);
    if traced.groups.is_empty() {
        return Err(PlanError("the trace moves no bytes: nothing to plan".into()));
    }
    let (mut order, all) = planned_groups(traced);
    if order.is_empty() {
        return Err(PlanError(format!(
            "too many file groups, none of which moves {} % of the bytes: use --only to plan for some of them",
            100.0 * SHARE_MIN
        )));
    }
    let notes: Vec<String> =
        options.notes.iter().cloned().chain(omission_note(&traced.groups, &order, all)).collect();
    // Capacity goes first to the groups that move the most bytes per byte stored.
    let heat =
        |group: usize| traced.groups[group].bytes() as f64 / traced.groups[group].extent_sum.max(1) as f64;
    order.sort_by(|&a, &b| heat(b).total_cmp(&heat(a)).then(a.cmp(&b)));
    let capacities: Vec<u64> = figures.classes.iter().map(crate::figures::Class::capacity).collect();
    let fallback = ClassPlacement::whole(
        figures.classes.iter().map(|class| if class.capacity.is_none() { 1 << 20 } else { 0 }).collect(),
    );
    let fallback = if fallback.parts[0].stripes.iter().all(|size| *size == 0) {
        ClassPlacement::whole(vec![1 << 20; figures.classes.len()])
    } else {
        fallback
    };
    let given = options.present.as_deref();
    assert!(given.is_none_or(|given| given.len() == traced.groups.len()), "a present layout for each group");
    let is_requested =
        |planner: &Planner| options.alternatives || [options.planner, Planner::Def].contains(planner);
    let targets: usize = figures.classes.iter().map(|class| class.targets as usize).sum();
    // Reserves a part, since one may be appended to the layout.
    let parts_max = options.parts_max.min(COLUMNS_MAX / targets - 1);
    let planners: Vec<Planner> = Planner::ALL.into_iter().filter(is_requested).collect();
    let mut placements: Vec<(Planner, Vec<ClassPlacement>)> =
        planners.iter().map(|planner| (*planner, vec![fallback.clone(); traced.groups.len()])).collect();
    // The present layouts come last.
    let mut left = vec![capacities; planners.len() + 1];
    let mut present: Vec<Layout> = given.into_iter().flatten().map(|of| of.layout().clone()).collect();
    let mut recommended = present.clone();
    let (mut rules, mut kept) = (Vec::new(), Vec::new());
    let (mut error, mut cost) = (0.0f64, 0.0);
    for &group in &order {
        let given = given.map(|given| &given[group]);
        let layouts = layouts_of(traced, figures, group, (&planners, &left), parts_max, given);
        if given.is_some() {
            present[group] = layouts.last().expect("the present one").layout.clone();
        }
        for (layout, left) in layouts.iter().zip(&mut left) {
            layout
                .placement
                .iter()
                .for_each(|placement| reserve(figures, left, placement, &traced.groups[group]));
        }
        for (layout, (_, placements)) in layouts.iter().zip(&mut placements) {
            placements[group] = layout.placement().clone();
        }
        let decided = decide(figures, &traced.groups[group], options, &layouts);
        let keeps = layouts[decided.chosen].planner == Planner::Present;
        if let Some(advice) = decided.advice {
            recommended[group] = layouts[decided.chosen].layout.clone();
            error = error.max(decided.error);
            cost += if keeps { 0.0 } else { advice.cost_s };
        }
        let rule = rule(traced, figures, group, &layouts, &decided, options.guessed);
        if keeps { &mut kept } else { &mut rules }.push((group, rule));
    }
    let whole = Load::of(traced, None);
    let seconds = |layouts: Vec<Layout>| run_layouts(figures, &whole, layouts).seconds;
    let of_planner = |(planner, placements): &(Planner, Vec<ClassPlacement>)| {
        let of_group = |(group, placement): (usize, &ClassPlacement)| match present.get(group) {
            Some(present) if !order.contains(&group) => present.clone(),
            _ => placement.on_figures(figures),
        };
        let layouts = placements.iter().enumerate().map(of_group).collect();
        Predicted { planner: *planner, seconds: seconds(layouts) }
    };
    let mut predicted: Vec<Predicted> = placements.iter().map(of_planner).collect();
    let mut advice = None;
    if given.is_some() {
        let (present_s, planned_s) = (seconds(present.clone()), seconds(recommended.clone()));
        predicted.push(Predicted { planner: Planner::Present, seconds: present_s });
        let whole = Advice::decide(present_s, planned_s, error_s(error, present_s, planned_s), cost);
        if !options.changes(&whole) {
            let why = "all changes together gain less than the model's error for the whole run";
            kept.extend(rules.drain(..).map(|(group, rule)| (group, rule.into_kept(why))));
        }
        advice = Some(whole);
    }
    let in_order = |mut rules: Vec<(usize, Rule)>| {
        rules.sort_by_key(|(group, _)| *group);
        rules.into_iter().map(|(_, rule)| rule).collect()
    };
    let plan = Plan {
        version: VERSION,
        planner: options.planner,
        trace: options.trace.clone(),
        notes: notes
            .into_iter()
            .chain(capacity_notes(cluster, traced, &order, &placements, options.planner))
            .collect(),
        advice,
        predicted,
        rules: in_order(rules),
        kept: in_order(kept),
        cluster: cluster.clone(),
        trial: None,
    };
    Ok(Planned { plan, placements })
}

/// Chooses the layout of a group. Without a present layout, or if the user asks for the layouts of a certain planner, it
/// is that planner's.
fn decide(figures: &Figures, group: &FileGroup, options: &Options, layouts: &[PlannerLayout]) -> Decided {
    let position = |planner| layouts.iter().position(|layout| layout.planner == planner);
    let of_planner = position(options.planner).expect("every planner has a layout");
    let Some(present) = position(Planner::Present) else {
        let layout = [&layouts[of_planner].layout];
        let error = error_of(figures, group, &layout, options.guessed);
        return Decided { chosen: of_planner, advice: None, error };
    };
    let mut chosen = of_planner;
    if options.planner == Planner::Best {
        for other in 0..present {
            if layouts[other].outcome.seconds < layouts[chosen].outcome.seconds {
                chosen = other;
            }
        }
    }
    let (now, new) = (&layouts[present], &layouts[chosen]);
    let error = error_of(figures, group, &[&now.layout, &new.layout], options.guessed);
    let (present_s, planned_s) = (now.outcome.seconds, new.outcome.seconds);
    let cost_s = cost_s(figures, group, (&now.layout, &now.outcome), (&new.layout, &new.outcome));
    let advice = Advice::decide(present_s, planned_s, error_s(error, present_s, planned_s), cost_s);
    Decided { chosen: if options.changes(&advice) { chosen } else { present }, advice: Some(advice), error }
}

/// Returns the indices of the groups that are planned, and the bytes of all groups.
pub(crate) fn planned_groups(traced: &TraceSummary) -> (Vec<usize>, u64) {
    let all: u64 = traced.groups.iter().map(FileGroup::bytes).fold(0, u64::saturating_add);
    let worth = |group: &FileGroup| group.bytes() as f64 >= SHARE_MIN * all as f64 && group.rule.0 != OTHERS;
    let first = 0..traced.groups.len().min(GROUPS_MAX);
    (first.filter(|group| worth(&traced.groups[*group])).collect(), all)
}

/// Lifts the limit of the class with the greatest capacity if all classes are limited, so that every file has a place.
/// The papers assume the same of the slowest class.
fn lift_one_limit(cluster: &Figures) -> Figures {
    let mut figures = cluster.clone();
    if figures.classes.iter().all(|class| class.capacity.is_some()) {
        let all = |class: &Class| u128::from(class.capacity()) * u128::from(class.targets);
        if let Some(most) = figures.classes.iter_mut().max_by_key(|class| all(class)) {
            most.capacity = None;
        }
    }
    figures
}

/// Notes about classes with less capacity than the plan uses.
fn capacity_notes(
    cluster: &Figures,
    traced: &TraceSummary,
    order: &[usize],
    placements: &[(Planner, Vec<ClassPlacement>)],
    planner: Planner,
) -> Vec<String> {
    let Some((_, placements)) = placements.iter().find(|(of, _)| *of == planner) else { return Vec::new() };
    let bytes_per_target = |class: usize| {
        let of = |group: &usize| {
            let (placement, group) = (&placements[*group], &traced.groups[*group]);
            placement.bytes_per_target(cluster, class, group.extent).saturating_mul(group.files.max(1))
        };
        order.iter().map(of).fold(0, u64::saturating_add)
    };
    let classes = cluster.classes.iter().enumerate();
    let exceeded = classes.filter(|(number, class)| {
        class.capacity.is_some_and(|capacity| bytes_per_target(*number) > capacity.0)
    });
    let note = |(number, class): (usize, &Class)| {
        let (needed, capacity) = (human_bytes(bytes_per_target(number)), human_bytes(class.capacity()));
        let name = &class.name;
        format!("the files take {needed} on each target of class {name}, which has a capacity of {capacity}")
    };
    exceeded.map(note).collect()
}

/// A note about groups without a layout, if they move a relevant fraction of the bytes.
fn omission_note(groups: &[FileGroup], order: &[usize], all: u64) -> Option<String> {
    let planned = order.iter().map(|group| groups[*group].bytes()).fold(0, u64::saturating_add);
    let share = 1.0 - planned as f64 / all as f64;
    let files: u64 =
        groups.iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, group)| group.files).sum();
    (share >= OMITTED_SHARE_MIN).then(|| {
        format!(
            "{files} files with {:.0} % of the bytes get no layout: the plan covers at most {GROUPS_MAX} groups, those \
             with the most bytes and at least {} % each; use --only to plan for others",
            100.0 * share,
            100.0 * SHARE_MIN
        )
    })
}

/// Every planner's layout for a group, each within the capacity its previous layouts have left, and last the `present` one
/// if it is known.
fn layouts_of(
    traced: &TraceSummary,
    figures: &Figures,
    number: usize,
    (planners, left): (&[Planner], &[Vec<u64>]),
    parts_max: usize,
    present: Option<&PresentLayout>,
) -> Vec<PlannerLayout> {
    let group = &traced.groups[number];
    let load = Load::of(traced, Some(number as u32));
    let per_node = if traced.hosts > 0 {
        f64::from(traced.ranks) / f64::from(traced.hosts)
    } else {
        f64::from(figures.processes_per_node)
    };
    let parameters = CostParameters {
        processes: group.ranks.into(),
        per_node,
        connect_ns: figures.network.connect_us * 1e3,
        byte_ns: 1e3 / figures.network.mb_s,
    };
    // The paper's planners bound each part of a file alone.
    let cut = |placement: ClassPlacement, capacities: &[u64]| {
        placement.within(figures, capacities, group.extent, group.files)
    };
    let paper = |planner, capacities: &[u64]| {
        let problem = Problem::new(figures, group, capacities, parameters);
        let mut layout = match planner {
            Planner::Psa => problem.psa(),
            Planner::Pa => problem.pa(),
            Planner::Best | Planner::Def | Planner::Present => problem.def(DEF_STRIPE),
        };
        layout.placement = cut(layout.placement, capacities);
        layout
    };
    let option = |(planner, capacities): (Planner, &Vec<u64>)| {
        if planner == Planner::Best {
            // DEF comes first, so that it wins ties; the present layout wins against it.
            let present = present.and_then(PresentLayout::placement).cloned();
            let given: Vec<ClassPlacement> = present
                .into_iter()
                .map(|placement| cut(placement, capacities))
                .chain(Planner::ALL[1..].iter().rev().map(|planner| paper(*planner, capacities).placement))
                .collect();
            let given: Vec<&ClassPlacement> = given.iter().collect();
            let found = Search { figures, group, capacities, load: &load, parts_max }.best(&given);
            // Data beyond the traced length needs a place as well.
            let placement = cut(found.placement.bounded(figures, group.extent), capacities);
            return PlannerLayout::new(figures, planner, placement, None, found.outcome);
        }
        let chosen = paper(planner, capacities);
        let outcome = run_averaged(figures, &load, &chosen.placement);
        PlannerLayout::new(figures, planner, chosen.placement, Some(chosen.cost_ns / 1e9), outcome)
    };
    let mut layouts: Vec<PlannerLayout> = planners.iter().copied().zip(left).map(option).collect();
    layouts.extend(present.map(|present| {
        let cut = present.clone().within(figures, &left[planners.len()], group.extent, group.files);
        PlannerLayout {
            planner: Planner::Present,
            outcome: run_layout_averaged(figures, &load, cut.layout()),
            placement: cut.placement().cloned(),
            layout: cut.layout().clone(),
            parts: cut.parts().to_vec(),
            cost: None,
        }
    }));
    layouts
}

/// Reserves the capacity of a group.
fn reserve(figures: &Figures, left: &mut [u64], placement: &ClassPlacement, group: &FileGroup) {
    for (class, left) in left.iter_mut().enumerate().filter(|(_, left)| **left != u64::MAX) {
        let per_file = placement.bytes_per_target(figures, class, group.extent);
        *left = left.saturating_sub(per_file.saturating_mul(group.files.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::survey::{Limits, Survey};
    use crate::testing::{class, hybrid};
    use weft_core::{ByteLen, FileOffset, Nanos, TargetId};
    use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

    fn traced(files: u32) -> TraceSummary {
        requests(files, 2000)
    }

    fn requests(files: u32, count: u64) -> TraceSummary {
        let mut names = Names::default();
        let ids: Vec<_> = (0..files).map(|n| names.file(&format!("/out/part.{n:03}")).unwrap()).collect();
        let log = names.file("/out/log").unwrap();
        let mut survey = Survey::new(&Limits::default());
        for n in 0..count {
            let rank = (n % 8) as u32;
            let record = Record {
                rank: Rank(rank),
                host: HostId(0),
                file: if n % 20 == 19 { log } else { ids[(rank % files) as usize] },
                op: if n < count / 2 { Operation::Write } else { Operation::Read },
                level: Level::Posix,
                collective: false,
                offset: FileOffset((n * 7919 % 1000) * 65_536),
                len: ByteLen(65_536),
                start: Nanos(n * 1000),
                end: Nanos(n * 1000 + 5000),
            };
            survey.add(&record, &names);
        }
        survey.finish(None)
    }

    #[test]
    fn a_plan_survives_a_round_trip_through_its_file() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(10 << 20));
        for files in [1, 4] {
            let planned = {
                let notes = vec!["note".into()];
                let options = Options { trace: "a.wtrace".into(), notes, ..Options::default() };
                plan(&traced(files), &figures, &options).unwrap()
            };
            let text = planned.plan.to_toml();
            let read = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read, planned.plan, "{text}");
            assert_eq!(read.to_toml(), text);
            let rule = read.rule(if files == 1 { "/out/part.000" } else { "/out/part.017" }).expect("a rule");
            assert_eq!((rule.alternatives.len(), rule.files), (4, files.into()));
            assert_eq!(rule.layout, rule.alternatives[0].layout);
            assert!(read.rule("/out/log").is_some() && read.rule("/out/other").is_none());
            assert!((0.0..=1.0).contains(&rule.confidence) && !rule.why.is_empty());
        }
    }

    /// Offsets, lengths, times and ranks up to the maximum of a trace, and beyond that of any file.
    #[test]
    fn numbers_of_any_size_are_accepted() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(10 << 20));
        for seed in 0..2u64 {
            println!("seed {seed}");
            let mut state = seed;
            let mut any = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let mixed = state ^ (state >> 29);
                [mixed, mixed >> 1, mixed >> 2, mixed >> 33, mixed >> 47, u64::MAX, u64::MAX >> 1, 1]
                    [(mixed >> 60) as usize % 8]
            };
            let mut names = Names::default();
            let files: Vec<_> = (0..3).map(|n| names.file(&format!("/{n}")).unwrap()).collect();
            let mut survey = Survey::new(&Limits::default());
            for _ in 0..200 {
                let (start, took) = (any(), any());
                let record = Record {
                    rank: Rank(any() as u32),
                    host: HostId(0),
                    file: files[(any() % 3) as usize],
                    op: if any() % 2 == 0 { Operation::Write } else { Operation::Read },
                    level: Level::Posix,
                    collective: false,
                    offset: FileOffset(any()),
                    len: ByteLen(any()),
                    start: Nanos(start),
                    end: Nanos(start.saturating_add(took)),
                };
                survey.add(&record, &names);
            }
            let traced = survey.finish(None);
            assert!(traced.concurrency >= 0.0 && !traced.groups.is_empty());
            let parameters = CostParameters { processes: 8.0, per_node: 2.0, connect_ns: 34e3, byte_ns: 8.5 };
            for group in &traced.groups {
                let problem = Problem::new(&figures, group, &[u64::MAX, 10 << 20], parameters);
                for chosen in [problem.psa(), problem.pa(), problem.def(DEF_STRIPE)] {
                    assert!(chosen.cost_ns.is_finite(), "{chosen:?}");
                }
            }
        }
    }

    #[test]
    fn a_plan_notes_what_exceeds_the_capacity_of_all_classes() {
        let mut figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(1 << 20));
        let traced = requests(4, 200);
        for (capacity, fits) in [(1 << 40, true), (1 << 20, false), (0, false)] {
            figures.classes[0].capacity = Some(Bytes(capacity));
            for planner in [Planner::Best, Planner::Psa] {
                let options = Options { planner, alternatives: false, ..Options::default() };
                let planned = plan(&traced, &figures, &options).unwrap().plan;
                let notes = planned.notes.iter().any(|note| note.contains("which has a capacity of"));
                assert!(notes != fits, "{planner}, {capacity}: {:?}", planned.notes);
                assert_eq!(planned.cluster, figures);
            }
        }
    }

    #[test]
    fn files_without_a_layout_are_noted() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(10 << 20));
        let planned = |count: usize| {
            let mut names = Names::default();
            let mut survey = Survey::new(&Limits::default());
            for n in 0..count {
                let letter = |place: u32| char::from(b'a' + (n / 26usize.pow(place) % 26) as u8);
                let name: String = (0..3).map(letter).collect();
                let file = names.file(&format!("/out/{name}")).unwrap();
                let start = n as u64 * 1000;
                survey.add(
                    &Record {
                        rank: Rank(0),
                        host: HostId(0),
                        file,
                        op: Operation::Write,
                        level: Level::Posix,
                        collective: false,
                        offset: FileOffset(0),
                        len: ByteLen(65_536),
                        start: Nanos(start),
                        end: Nanos(start + 500),
                    },
                    &names,
                );
            }
            plan(&survey.finish(None), &figures, &Options { alternatives: false, ..Options::default() })
        };
        assert_eq!(planned(4).unwrap().plan.notes, Vec::<String>::new());
        let notes = planned(80).unwrap().plan.notes;
        assert!(
            notes.len() == 1 && notes[0].starts_with("16 files with 20 % of the bytes get no layout"),
            "{notes:?}"
        );
        // More names than there are groups: each group moves too little.
        assert!(planned(2000).unwrap_err().to_string().contains("--only"));
    }

    #[test]
    fn all_planners_keep_within_the_total_capacity() {
        let capacity = 10u64 << 20;
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(capacity));
        let traced = traced(4);
        for planner in Planner::ALL {
            let planned = plan(&traced, &figures, &Options { planner, ..Options::default() }).unwrap();
            let (_, placements) = planned.placements.iter().find(|(of, _)| *of == planner).unwrap();
            let used = traced.groups.iter().zip(placements).map(|(group, placement)| {
                placement.bytes_per_target(&figures, 1, group.extent) * group.files
            });
            assert!(used.sum::<u64>() <= capacity, "{planner}");
            assert_eq!(planned.plan.predicted.len(), 4);
        }
    }

    #[test]
    fn the_maximum_number_of_classes_and_targets_can_be_planned() {
        // Regression: with eight classes, half of them limited, the number of stripe assignments multiplied per class.
        for (count, targets) in [(8, 1), (16, 200), (3, 1100)] {
            let class = |n: u32| {
                let capacity = (n % 2 == 1).then_some(1 << 20);
                class(&format!("c{n}"), targets, f64::from(100 + n), 500.0, capacity)
            };
            let mut figures = hybrid((1, 1.0, 1.0), (1, 1.0, 1.0), None);
            figures.classes = (0..count).map(class).collect();
            let planned = plan(&requests(1, 10), &figures, &Options::default()).expect("planned");
            assert_eq!(Plan::from_toml(&planned.plan.to_toml()).as_ref(), Ok(&planned.plan));
        }
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), None);
        let text = {
            let options = Options { planner: Planner::Def, guessed: true, ..Options::default() };
            plan(&traced(1), &figures, &options).unwrap().plan.to_toml()
        };
        for (from, to, notes) in [
            ("version = 2", "version = 9", "plan again"),
            ("from = \"0 B\"", "from = \"5 B\"", "does not follow"),
            ("name = \"ssd\"", "name = \"sdd\"", "no class is called \"ssd\""),
            ("confidence = ", "confidence = 2", "from 0 to 1"),
            ("path = \"/", "path = \"/**/", "`**` is not allowed in a plan"),
            ("spread = ", "spread = -", "not a valid amount"),
            ("seconds = ", "seconds = nan # ", "not a valid amount"),
        ] {
            let error = Plan::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(notes), "{error}\n{text}");
        }
    }

    #[test]
    fn planners_are_parsed_by_name() {
        for planner in Planner::ALL {
            assert_eq!(planner.name().to_uppercase().parse(), Ok(planner));
        }
        assert!("worst".parse::<Planner>().is_err());
    }

    /// Random 64 KiB requests: a layout on the SSDs is several times as fast as one on the disks.
    fn advised(figures: &Figures, present: PresentLayout, options: Options) -> Planned {
        let traced = traced(1);
        let present = Some(vec![present; traced.groups.len()]);
        plan(&traced, figures, &Options { present, ..options }).unwrap()
    }

    fn seconds(plan: &Plan, planner: Planner) -> f64 {
        plan.predicted.iter().find(|of| of.planner == planner).expect("predicted").seconds
    }

    #[test]
    fn a_layout_changes_only_if_the_gain_exceeds_error_and_cost() {
        let mut figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), None);
        let on_disks = PresentLayout::new_files(ClassPlacement::whole(vec![1 << 20, 0]), &figures);
        let planned = advised(&figures, on_disks.clone(), Options::default());
        let plan = &planned.plan;
        let advice = plan.advice.expect("advice");
        assert_eq!(advice.action, Action::Change);
        assert!(advice.gain_s() > advice.error_s + advice.cost_s && advice.error_s > 0.0, "{advice:?}");
        assert!(!plan.rules.is_empty() && plan.kept.is_empty());
        let rule = &plan.rules[0];
        assert_eq!((rule.alternatives.len(), rule.alternatives[4].planner), (5, Planner::Present));
        assert!(rule.why.contains("it gains") && rule.why.contains("error"), "{}", rule.why);
        // Never slower than another candidate, by the plan's own table.
        let chosen = rule.alternatives.iter().find(|other| other.layout == rule.layout).expect("listed");
        assert!(rule.alternatives.iter().all(|other| other.seconds >= chosen.seconds));
        assert_eq!(Plan::from_toml(&plan.to_toml()).as_ref(), Ok(plan));

        // The layout that the plan chose is kept when it is the present one.
        let placement = ClassPlacement::from_plan(&rule.layout, &plan.cluster).expect("a placement");
        let again = advised(&figures, PresentLayout::new_files(placement, &figures), Options::default()).plan;
        assert!(again.rules.is_empty(), "{:?}", again.rules);
        assert_eq!(again.advice.expect("advice").action, Action::Keep);
        assert!(again.rule("/out/part.000").is_none() && !again.kept.is_empty());
        assert_eq!(Plan::from_toml(&again.to_toml()).as_ref(), Ok(&again));

        // Figures that may be wrong by three times the gain: the present layout is kept, unless a planner is named.
        figures.classes.iter_mut().for_each(|class| class.error = Some(3.0));
        let unsure = advised(&figures, on_disks.clone(), Options::default()).plan;
        assert!(unsure.rules.is_empty() && unsure.kept[0].why.contains("less than the model's error"));
        assert!(unsure.kept[0].confidence < 0.7, "{}", unsure.kept[0].confidence);
        assert_eq!(unsure.kept[0].layout, on_disks.parts());
        let options = Options { planner: Planner::Psa, ..Options::default() };
        let forced = advised(&figures, on_disks, options).plan;
        assert!(!forced.rules.is_empty() && !forced.advice.expect("advice").is_certain());
    }

    #[test]
    fn a_present_layout_on_some_targets_is_costed_as_it_is() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(10 << 20));
        let numbers = figures.targets();
        let one = Layout::striped(&[TargetId(17)], ByteLen(65_536)).expect("a layout");
        let of = |layout: &Layout| {
            PresentLayout::of_file(layout, &figures, |target| (target.0 >= 10).then_some(0))
                .expect("a layout")
        };
        let one = of(&one);
        assert_eq!(one.layout().objects().map(|(_, target)| target).collect::<Vec<_>>(), [numbers[0][0]]);
        assert_eq!(one.parts()[0].to_string(), "all: hdd 64 KiB on 1 target");
        assert_eq!(one.placement(), None);
        let all = of(&Layout::striped(&[10, 11, 12, 13].map(TargetId), ByteLen(65_536)).expect("a layout"));
        assert_eq!(all.placement(), Some(&ClassPlacement::whole(vec![65_536, 0])));
        let (one, all) =
            (advised(&figures, one, Options::default()), advised(&figures, all, Options::default()));
        let slower = seconds(&one.plan, Planner::Present) / seconds(&all.plan, Planner::Present);
        assert!((2.0..6.0).contains(&slower), "{slower}");
        assert_eq!(Plan::from_toml(&one.plan.to_toml()).as_ref(), Ok(&one.plan));
        // Targets that the figures do not know.
        let unknown = Layout::striped(&[TargetId(3)], ByteLen(4096)).expect("a layout");
        assert!(PresentLayout::of_file(&unknown, &figures, |_| None).is_err());
    }

    /// Files of E3SM with 490 GiB on SSDs with 52 GiB: no candidate may use more than there is, and the plan is the
    /// fastest of its own table.
    #[test]
    fn every_candidate_fits_the_capacity() {
        let capacity = 40u64 << 20;
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(capacity));
        let traced = requests(4, 2000);
        let everywhere = PresentLayout::default_of(&figures, 1 << 20);
        let present = Some(vec![everywhere; traced.groups.len()]);
        let planned = plan(&traced, &figures, &Options { present, ..Options::default() }).unwrap();
        for planner in [Planner::Best, Planner::Psa, Planner::Pa, Planner::Def, Planner::Present] {
            let rules = planned.plan.rules.iter().chain(&planned.plan.kept);
            let used: u64 = rules
                .map(|rule| {
                    let of = rule.alternatives.iter().find(|other| other.planner == planner).expect("listed");
                    let placement = ClassPlacement::from_plan(&of.layout, &figures).expect("a placement");
                    placement.bytes_per_target(&figures, 1, rule.extent.0) * rule.files
                })
                .sum();
            assert!(used <= capacity, "{planner}: {used}");
        }
        for rule in planned.plan.rules.iter().chain(&planned.plan.kept) {
            let of = rule.alternatives.iter().find(|other| other.layout == rule.layout).expect("listed");
            let least = rule.alternatives.iter().map(|other| other.seconds).fold(f64::INFINITY, f64::min);
            let margin = rule.advice.expect("advice");
            assert!(of.seconds <= least + margin.error_s + margin.cost_s, "{rule:?}");
        }
    }

    #[test]
    fn small_files_keep_their_layout() {
        let figures = hybrid((4, 1_000.0, 70.0), (2, 150.0, 400.0), None);
        let traced = requests(1, 2);
        let present = Some(vec![PresentLayout::default_of(&figures, 1 << 20); traced.groups.len()]);
        let planned = plan(&traced, &figures, &Options { present, ..Options::default() }).unwrap().plan;
        assert!(planned.rules.is_empty(), "{:?}", planned.rules);
    }
}

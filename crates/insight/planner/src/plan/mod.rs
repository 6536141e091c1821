//! Plans: a layout for each file group, with predicted times, alternatives and reasons.

mod explanation;
mod file;

use crate::best::Search;
use crate::bytes::Bytes;
use crate::figures::{Class, Figures};
use crate::model::{Load, Outcome, run, run_averaged};
use crate::paper::{CostParameters, DEF_STRIPE, Problem};
use crate::placement::ClassPlacement;
use crate::rule::OTHERS;
use crate::survey::{FileGroup, TraceSummary};
use explanation::rule;
pub use explanation::shape;
use file::VERSION;
pub use file::{Alternative, Plan, PlanError, Planner, Predicted, Rule};
use weft_core::layout::COLUMNS_MAX;

/// Maximum number of planned groups. Further ones move few bytes.
const GROUPS_MAX: usize = 64;
/// Fraction of all bytes below which a group is not planned.
const SHARE_MIN: f64 = 1e-3;
/// Fraction of all bytes from which on a note mentions files without a layout.
const OMITTED_SHARE_MIN: f64 = 0.01;

/// A planner's layout for a file group.
struct PlannerLayout {
    planner: Planner,
    placement: ClassPlacement,
    cost: Option<f64>,
    outcome: Outcome,
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
        }
    }
}

/// Plans the layouts for a trace.
///
/// # Errors
/// Invalid figures, or a trace that moves no bytes.
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
    let is_requested =
        |planner: &Planner| options.alternatives || [options.planner, Planner::Def].contains(planner);
    let targets: usize = figures.classes.iter().map(|class| class.targets as usize).sum();
    // Reserves a part, since one may be appended to the layout.
    let parts_max = options.parts_max.min(COLUMNS_MAX / targets - 1);
    let planners: Vec<Planner> = Planner::ALL.into_iter().filter(is_requested).collect();
    let mut placements: Vec<(Planner, Vec<ClassPlacement>)> =
        planners.iter().map(|planner| (*planner, vec![fallback.clone(); traced.groups.len()])).collect();
    let mut left = vec![capacities; planners.len()];
    let mut rules = Vec::new();
    for &group in &order {
        let layouts = layouts_of(traced, figures, group, &planners, &left, parts_max);
        for (layout, (left, placements)) in layouts.iter().zip(left.iter_mut().zip(&mut placements)) {
            reserve(figures, left, &layout.placement, &traced.groups[group]);
            placements.1[group] = layout.placement.clone();
        }
        rules.push((group, rule(traced, figures, group, options, &layouts)));
    }
    rules.sort_by_key(|(group, _)| *group);
    let whole = Load::of(traced, None);
    let predicted = placements.iter().map(|(planner, placements)| {
        let placements: Vec<&ClassPlacement> = placements.iter().collect();
        Predicted { planner: *planner, seconds: run(figures, &whole, &placements).seconds }
    });
    let plan = Plan {
        version: VERSION,
        planner: options.planner,
        trace: options.trace.clone(),
        notes: notes
            .into_iter()
            .chain(capacity_notes(cluster, traced, &order, &placements, options.planner))
            .collect(),
        predicted: predicted.collect(),
        rules: rules.into_iter().map(|(_, rule)| rule).collect(),
        cluster: cluster.clone(),
    };
    Ok(Planned { plan, placements })
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
        let (needed, capacity) = (Bytes(bytes_per_target(number)), Bytes(class.capacity()));
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

/// Every planner's layout for a group, each within the capacity its previous layouts have left.
fn layouts_of(
    traced: &TraceSummary,
    figures: &Figures,
    number: usize,
    planners: &[Planner],
    left: &[Vec<u64>],
    parts_max: usize,
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
    let paper = |planner, capacities: &[u64]| {
        let problem = Problem::new(figures, group, capacities, parameters);
        match planner {
            Planner::Psa => problem.psa(),
            Planner::Pa => problem.pa(),
            Planner::Best | Planner::Def => problem.def(DEF_STRIPE),
        }
    };
    let option = |(planner, capacities): (Planner, &Vec<u64>)| {
        if planner == Planner::Best {
            // DEF comes first, so that it wins ties.
            let given: Vec<ClassPlacement> =
                Planner::ALL[1..].iter().rev().map(|planner| paper(*planner, capacities).placement).collect();
            let given: Vec<&ClassPlacement> = given.iter().collect();
            let found = Search { figures, group, capacities, load: &load, parts_max }.best(&given);
            // Data beyond the traced length needs a place as well.
            let placement = found.placement.bounded(figures, group.extent);
            return PlannerLayout { planner, placement, cost: None, outcome: found.outcome };
        }
        let chosen = paper(planner, capacities);
        let outcome = run_averaged(figures, &load, &chosen.placement);
        PlannerLayout { planner, placement: chosen.placement, cost: Some(chosen.cost_ns / 1e9), outcome }
    };
    planners.iter().copied().zip(left).map(option).collect()
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
    use crate::survey::{Limits, Survey};
    use crate::testing::{class, hybrid};
    use weft_core::{ByteLen, FileOffset, Nanos};
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
            ("version = 1", "version = 9", "plan again"),
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
}

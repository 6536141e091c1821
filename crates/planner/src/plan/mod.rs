//! Plans: which files get which layout, what the alternatives would take, and why.

mod file;
mod told;

use crate::best::Search;
use crate::bytes::Bytes;
use crate::figures::{Class, Figures};
use crate::model::{Load, Outcome, judged, run};
use crate::paper::{DEF_STRIPE, Problem, Setting};
use crate::placing::Placing;
use crate::rule::OTHERS;
use crate::survey::{Traced, Unit};
use file::VERSION;
pub use file::{Alternative, Plan, PlanError, Planner, Predicted, Rule};
use told::rule;
pub use told::shape;
use weft_core::layout::COLUMNS_MAX;

/// Units that are planned for; what comes after them moves little.
const UNITS_MAX: usize = 64;
/// Units that move less of all bytes are left alone.
const SHARE_MIN: f64 = 1e-3;
/// Of so many bytes that are left alone the plan tells.
const LEFT_OUT_MIN: f64 = 0.01;

/// A layout of a planner for a unit.
struct Offer {
    planner: Planner,
    placing: Placing,
    cost: Option<f64>,
    outcome: Outcome,
}

/// What was planned, with the layouts as they are used here.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// For each planner the layout of each unit of the trace, planned for or not, in the order of the units.
    pub placings: Vec<(Planner, Vec<Placing>)>,
}

/// How a plan is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who plans.
    pub planner: Planner,
    /// Which trace it is, for the file.
    pub trace: String,
    /// What should be known of it.
    pub notes: Vec<String>,
    /// Offsets and times of the trace are guesses.
    pub guessed: bool,
    /// Parts that a layout may have.
    pub parts_max: usize,
    /// Whether all planners are asked, or DEF alone beside the one who plans.
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

/// Plans for a trace.
///
/// # Errors
/// Figures that make no cluster; a trace that moves no bytes.
pub fn plan(traced: &Traced, figures: &Figures, options: &Options) -> Result<Planned, PlanError> {
    figures.check().map_err(|error| PlanError(error.to_string()))?;
    let cluster = figures;
    let figures = &spacious(cluster);
    if traced.units.is_empty() {
        return Err(PlanError("the trace moves no bytes: there is nothing to plan for".into()));
    }
    let all: u64 = traced.units.iter().map(Unit::bytes).fold(0, u64::saturating_add);
    let worth = |unit: &Unit| unit.bytes() as f64 >= SHARE_MIN * all as f64 && unit.rule.0 != OTHERS;
    let mut order: Vec<usize> =
        (0..traced.units.len().min(UNITS_MAX)).filter(|unit| worth(&traced.units[*unit])).collect();
    if order.is_empty() {
        return Err(PlanError(format!(
            "it has so many files with names unlike that none moves {} % of the bytes: plan for some of them with --only",
            100.0 * SHARE_MIN
        )));
    }
    let notes: Vec<String> =
        options.notes.iter().cloned().chain(left_out(&traced.units, &order, all)).collect();
    // Room goes first to where most bytes are moved for each byte of room.
    let heat = |unit: usize| traced.units[unit].bytes() as f64 / traced.units[unit].extent_sum.max(1) as f64;
    order.sort_by(|&a, &b| heat(b).total_cmp(&heat(a)).then(a.cmp(&b)));
    let rooms: Vec<u64> = figures.classes.iter().map(crate::figures::Class::room).collect();
    let fallback = Placing::whole(
        figures.classes.iter().map(|class| if class.room.is_none() { 1 << 20 } else { 0 }).collect(),
    );
    let fallback = if fallback.parts[0].stripes.iter().all(|size| *size == 0) {
        Placing::whole(vec![1 << 20; figures.classes.len()])
    } else {
        fallback
    };
    let asked = |planner: &Planner| options.alternatives || [options.planner, Planner::Def].contains(planner);
    let targets: usize = figures.classes.iter().map(|class| class.targets as usize).sum();
    // A part may be put behind the last one.
    let parts_max = options.parts_max.min(COLUMNS_MAX / targets - 1);
    let planners: Vec<Planner> = Planner::ALL.into_iter().filter(asked).collect();
    let mut placings: Vec<(Planner, Vec<Placing>)> =
        planners.iter().map(|planner| (*planner, vec![fallback.clone(); traced.units.len()])).collect();
    let mut left = vec![rooms; planners.len()];
    let mut rules = Vec::new();
    for &unit in &order {
        let offers = offers(traced, figures, unit, &planners, &left, parts_max);
        for (option, (left, placings)) in offers.iter().zip(left.iter_mut().zip(&mut placings)) {
            take(figures, left, &option.placing, &traced.units[unit]);
            placings.1[unit] = option.placing.clone();
        }
        rules.push((unit, rule(traced, figures, unit, options, &offers)));
    }
    rules.sort_by_key(|(unit, _)| *unit);
    let whole = Load::of(traced, None);
    let predicted = placings.iter().map(|(planner, placings)| {
        let placings: Vec<&Placing> = placings.iter().collect();
        Predicted { planner: *planner, seconds: run(figures, &whole, &placings).seconds }
    });
    let plan = Plan {
        version: VERSION,
        planner: options.planner,
        trace: options.trace.clone(),
        notes: notes.into_iter().chain(beyond(cluster, traced, &order, &placings, options.planner)).collect(),
        predicted: predicted.collect(),
        rules: rules.into_iter().map(|(_, rule)| rule).collect(),
        cluster: cluster.clone(),
    };
    Ok(Planned { plan, placings })
}

/// What does not fit anywhere has to be planned for, too: where all classes have limited room, the one with the most is taken
/// to have enough, as the papers take the slowest one to have it.
fn spacious(cluster: &Figures) -> Figures {
    let mut figures = cluster.clone();
    if figures.classes.iter().all(|class| class.room.is_some()) {
        let all = |class: &Class| u128::from(class.room()) * u128::from(class.targets);
        if let Some(most) = figures.classes.iter_mut().max_by_key(|class| all(class)) {
            most.room = None;
        }
    }
    figures
}

/// What is to be said of classes that have less room than the plan takes on them.
fn beyond(
    cluster: &Figures,
    traced: &Traced,
    order: &[usize],
    placings: &[(Planner, Vec<Placing>)],
    planner: Planner,
) -> Vec<String> {
    let Some((_, placings)) = placings.iter().find(|(of, _)| *of == planner) else { return Vec::new() };
    let held = |class: usize| {
        let of = |unit: &usize| {
            let (placing, unit) = (&placings[*unit], &traced.units[*unit]);
            placing.held(cluster, class, unit.extent).saturating_mul(unit.files.max(1))
        };
        order.iter().map(of).fold(0, u64::saturating_add)
    };
    let classes = cluster.classes.iter().enumerate();
    let beyond = classes.filter(|(number, class)| class.room.is_some_and(|room| held(*number) > room.0));
    let told = |(number, class): (usize, &Class)| {
        let (held, room) = (Bytes(held(number)), Bytes(class.room()));
        format!("the files take {held} on each target of class {}, and there is room for {room}", class.name)
    };
    beyond.map(told).collect()
}

/// What is to be said of units that are not planned for, if they matter.
fn left_out(units: &[Unit], order: &[usize], all: u64) -> Option<String> {
    let planned = order.iter().map(|unit| units[*unit].bytes()).fold(0, u64::saturating_add);
    let share = 1.0 - planned as f64 / all as f64;
    let files: u64 =
        units.iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, unit)| unit.files).sum();
    (share >= LEFT_OUT_MIN).then(|| {
        format!(
            "{files} files with {:.0} % of the bytes get no layout: at most {UNITS_MAX} groups do, those with the most \
             bytes, each with {} % at least; --only plans for others",
            100.0 * share,
            100.0 * SHARE_MIN
        )
    })
}

/// Of each planner its layout, each with the room that it left itself.
fn offers(
    traced: &Traced,
    figures: &Figures,
    number: usize,
    planners: &[Planner],
    left: &[Vec<u64>],
    parts_max: usize,
) -> Vec<Offer> {
    let unit = &traced.units[number];
    let load = Load::of(traced, Some(number as u32));
    let per_node = if traced.hosts > 0 {
        f64::from(traced.ranks) / f64::from(traced.hosts)
    } else {
        f64::from(figures.processes_per_node)
    };
    let setting = Setting {
        processes: unit.ranks.into(),
        per_node,
        connect_ns: figures.network.connect_us * 1e3,
        byte_ns: 1e3 / figures.network.mb_s,
    };
    let paper = |planner, rooms: &[u64]| {
        let problem = Problem::new(figures, unit, rooms, setting);
        match planner {
            Planner::Psa => problem.psa(),
            Planner::Pa => problem.pa(),
            Planner::Best | Planner::Def => problem.def(DEF_STRIPE),
        }
    };
    let option = |(planner, rooms): (Planner, &Vec<u64>)| {
        if planner == Planner::Best {
            // DEF first: where nothing is better it stays.
            let given: Vec<Placing> =
                Planner::ALL[1..].iter().rev().map(|planner| paper(*planner, rooms).placing).collect();
            let given: Vec<&Placing> = given.iter().collect();
            let found = Search { figures, unit, rooms, load: &load, parts_max }.best(&given);
            // What the trace did not reach has to lie somewhere, too, when a file grows.
            let placing = found.placing.bounded(figures, unit.extent);
            return Offer { planner, placing, cost: None, outcome: found.outcome };
        }
        let chosen = paper(planner, rooms);
        let outcome = judged(figures, &load, &chosen.placing);
        Offer { planner, placing: chosen.placing, cost: Some(chosen.cost_ns / 1e9), outcome }
    };
    planners.iter().copied().zip(left).map(option).collect()
}

/// Takes the room of a unit.
fn take(figures: &Figures, left: &mut [u64], placing: &Placing, unit: &Unit) {
    for (class, left) in left.iter_mut().enumerate().filter(|(_, left)| **left != u64::MAX) {
        let held = placing.held(figures, class, unit.extent).saturating_mul(unit.files.max(1));
        *left = left.saturating_sub(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::{Limits, Survey};
    use crate::testing::{class, hybrid};
    use weft_core::{ByteLen, FileOffset, Nanos};
    use weft_trace::{HostId, Level, Names, Operation, Rank, Record};

    fn traced(files: u32) -> Traced {
        requests(files, 2000)
    }

    fn requests(files: u32, count: u64) -> Traced {
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
    fn a_plan_goes_through_its_file_unchanged() {
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

    /// Offsets, lengths, times and ranks up to the largest that a trace can have, and such as no file can have.
    #[test]
    fn numbers_of_any_size_are_taken() {
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
            assert!(traced.concurrency >= 0.0 && !traced.units.is_empty());
            let setting = Setting { processes: 8.0, per_node: 2.0, connect_ns: 34e3, byte_ns: 8.5 };
            for unit in &traced.units {
                let problem = Problem::new(&figures, unit, &[u64::MAX, 10 << 20], setting);
                for chosen in [problem.psa(), problem.pa(), problem.def(DEF_STRIPE)] {
                    assert!(chosen.cost_ns.is_finite(), "{chosen:?}");
                }
            }
        }
    }

    #[test]
    fn where_all_classes_have_limited_room_a_plan_says_what_does_not_fit() {
        let mut figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(1 << 20));
        let traced = requests(4, 200);
        for (room, fits) in [(1 << 40, true), (1 << 20, false), (0, false)] {
            figures.classes[0].room = Some(Bytes(room));
            for planner in [Planner::Best, Planner::Psa] {
                let options = Options { planner, alternatives: false, ..Options::default() };
                let planned = plan(&traced, &figures, &options).unwrap().plan;
                let told = planned.notes.iter().any(|note| note.contains("there is room for"));
                assert!(told != fits, "{planner}, {room}: {:?}", planned.notes);
                assert_eq!(planned.cluster, figures);
            }
        }
    }

    #[test]
    fn files_that_get_no_layout_are_told_of() {
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
        // More names than are told apart: each moves too little.
        assert!(planned(2000).unwrap_err().to_string().contains("--only"));
    }

    #[test]
    fn all_planners_keep_to_the_room_of_all_files_together() {
        let room = 10u64 << 20;
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), Some(room));
        let traced = traced(4);
        for planner in Planner::ALL {
            let planned = plan(&traced, &figures, &Options { planner, ..Options::default() }).unwrap();
            let (_, placings) = planned.placings.iter().find(|(of, _)| *of == planner).unwrap();
            let used = traced
                .units
                .iter()
                .zip(placings)
                .map(|(unit, placing)| placing.held(&figures, 1, unit.extent) * unit.files);
            assert!(used.sum::<u64>() <= room, "{planner}");
            assert_eq!(planned.plan.predicted.len(), 4);
        }
    }

    #[test]
    fn as_many_classes_and_targets_as_figures_may_have_are_planned_for() {
        // With eight classes of which half get full, ways to deal bytes out were multiplied for each.
        for (count, targets) in [(8, 1), (16, 200), (3, 1100)] {
            let class = |n: u32| {
                let room = (n % 2 == 1).then_some(1 << 20);
                class(&format!("c{n}"), targets, f64::from(100 + n), 500.0, room)
            };
            let mut figures = hybrid((1, 1.0, 1.0), (1, 1.0, 1.0), None);
            figures.classes = (0..count).map(class).collect();
            let planned = plan(&requests(1, 10), &figures, &Options::default()).expect("planned");
            assert_eq!(Plan::from_toml(&planned.plan.to_toml()).as_ref(), Ok(&planned.plan));
        }
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let figures = hybrid((4, 10_000.0, 70.0), (2, 150.0, 400.0), None);
        let text = {
            let options = Options { planner: Planner::Def, guessed: true, ..Options::default() };
            plan(&traced(1), &figures, &options).unwrap().plan.to_toml()
        };
        for (from, to, told) in [
            ("version = 1", "version = 9", "plan again"),
            ("from = \"0 B\"", "from = \"5 B\"", "does not follow"),
            ("name = \"ssd\"", "name = \"sdd\"", "no class is called \"ssd\""),
            ("confidence = ", "confidence = 2", "from 0 to 1"),
            ("path = \"/", "path = \"/**/", "`**` stands for nothing in a plan"),
            ("spread = ", "spread = -", "no amount"),
            ("seconds = ", "seconds = nan # ", "no amount"),
        ] {
            let error = Plan::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}\n{text}");
        }
    }

    #[test]
    fn planners_by_their_names() {
        for planner in Planner::ALL {
            assert_eq!(planner.name().to_uppercase().parse(), Ok(planner));
        }
        assert!("worst".parse::<Planner>().is_err());
    }
}

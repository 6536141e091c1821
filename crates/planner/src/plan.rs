//! Plans: which files get which layout, what the alternatives would take, and why.

use crate::best::Search;
use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::mix::Direction;
use crate::model::{Load, Outcome, run};
use crate::paper::{DEF_STRIPE, Problem, Setting};
use crate::pattern::Shape;
use crate::placing::{PartFile, Placing};
use crate::rule::{OTHERS, PathRule};
use crate::survey::{Traced, Unit};
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_core::layout::COLUMNS_MAX;

/// Units that are planned for; what comes after them moves little.
const UNITS_MAX: usize = 64;
/// Units that move less of all bytes are left alone.
const SHARE_MIN: f64 = 1e-3;
/// Requests of the sample by which the run as a whole is predicted.
pub(crate) const SAMPLE: usize = 32_768;
/// The version of the format.
const VERSION: u32 = 1;

/// Who plans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planner {
    /// A search over composite layouts by the planner's own model.
    Best,
    /// PSA as printed.
    Psa,
    /// PA as PSA's paper has it.
    Pa,
    /// Stripes of 64 KiB over all.
    Def,
}

impl Planner {
    /// All, the best first.
    pub const ALL: [Self; 4] = [Self::Best, Self::Psa, Self::Pa, Self::Def];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Psa => "psa",
            Self::Pa => "pa",
            Self::Def => "def",
        }
    }
}

impl fmt::Display for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Planner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|planner| planner.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is no planner: use best, psa, pa or def"))
    }
}

/// A plan, as its file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of the format.
    pub version: u32,
    /// Who planned.
    pub planner: Planner,
    /// Which trace was read.
    pub trace: String,
    /// What should be known of it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the whole run takes under each planner, by the planner's own model.
    pub predicted: Vec<Predicted>,
    /// What was planned for.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The cluster that was planned for.
    pub cluster: Figures,
}

/// The whole run under a planner.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// Which.
    pub planner: Planner,
    /// How long, without what the program does besides.
    pub seconds: f64,
}

/// Files and their layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which files: `*` stands for a number.
    pub path: PathRule,
    /// How many the trace has.
    pub files: u64,
    /// The length of the longest.
    pub extent: Bytes,
    /// Read and written in all.
    pub moved: Bytes,
    /// In which order, by whom, how large requests are.
    pub pattern: String,
    /// Why this layout.
    pub why: String,
    /// How sure it is that no other one below is faster, 0 to 1.
    pub confidence: f64,
    /// Its parts.
    pub layout: Vec<PartFile>,
    /// This and the others, with their times.
    pub alternatives: Vec<Alternative>,
}

/// A layout that a planner has for the files of a rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// Which planner.
    pub planner: Planner,
    /// How long the requests to these files take by themselves, by the planner's own model.
    pub seconds: f64,
    /// The sum of the costs of all requests by the paper's tables, in seconds; of its own planners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Part of that time in which the busiest target of each class works.
    pub busy: std::collections::BTreeMap<String, f64>,
    /// Targets that a request touches, on average.
    pub spread: f64,
    /// Its parts.
    pub layout: Vec<PartFile>,
}

/// Why a text is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("plan: {0}")]
pub struct PlanError(pub(crate) String);

impl Plan {
    /// As a file, with comments.
    ///
    /// # Panics
    /// Never: all of it can be written.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("a plan has no value that TOML cannot hold");
        format!("# A plan of `weft plan`. Layouts are by class; all targets of a class take part.\n{text}")
    }

    /// Reads a plan and checks it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        if plan.version != VERSION {
            return Err(PlanError(format!("version {} is not {VERSION}: plan again", plan.version)));
        }
        plan.cluster.check().map_err(|error| PlanError(error.to_string()))?;
        let amount = |what: &dyn fmt::Display, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(PlanError(format!("{what}: {value} is no amount of anything: plan again"))),
        };
        plan.predicted.iter().try_for_each(|of| amount(&of.planner, of.seconds))?;
        for rule in &plan.rules {
            if !(0.0..=1.0).contains(&rule.confidence) {
                return Err(PlanError(format!(
                    "{}: confidence {} is not from 0 to 1",
                    rule.path, rule.confidence
                )));
            }
            for other in &rule.alternatives {
                let values = [other.seconds, other.spread]
                    .into_iter()
                    .chain(other.cost)
                    .chain(other.busy.values().copied());
                values
                    .into_iter()
                    .try_for_each(|value| amount(&format!("{} for {}", other.planner, rule.path), value))?;
            }
            let layouts = rule.alternatives.iter().map(|other| &other.layout).chain([&rule.layout]);
            for layout in layouts {
                Placing::read(layout, &plan.cluster)
                    .map_err(|why| PlanError(format!("layout of {}: {why}", rule.path)))?;
            }
        }
        Ok(plan)
    }

    /// The rule for a path, if there is one.
    pub fn rule(&self, path: &str) -> Option<&Rule> {
        // An exact name goes before a pattern.
        let exact = self.rules.iter().find(|rule| rule.path.0 == path);
        exact.or_else(|| self.rules.iter().find(|rule| rule.path.matches(path)))
    }
}

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
    if traced.units.is_empty() {
        return Err(PlanError("the trace moves no bytes: there is nothing to plan for".into()));
    }
    let all: u64 = traced.units.iter().map(Unit::bytes).fold(0, u64::saturating_add);
    let worth = |unit: &Unit| unit.bytes() as f64 >= SHARE_MIN * all as f64 && unit.rule.0 != OTHERS;
    let mut order: Vec<usize> =
        (0..traced.units.len().min(UNITS_MAX)).filter(|unit| worth(&traced.units[*unit])).collect();
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
    let whole = Load::of(traced, None).thin(SAMPLE);
    let predicted = placings.iter().map(|(planner, placings)| {
        let placings: Vec<&Placing> = placings.iter().collect();
        Predicted { planner: *planner, seconds: run(figures, &whole, &placings).seconds }
    });
    let plan = Plan {
        version: VERSION,
        planner: options.planner,
        trace: options.trace.clone(),
        notes: options.notes.clone(),
        predicted: predicted.collect(),
        rules: rules.into_iter().map(|(_, rule)| rule).collect(),
        cluster: figures.clone(),
    };
    Ok(Planned { plan, placings })
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
    let judged = load.thin(SAMPLE);
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
        let outcome = run(figures, &judged, &[&chosen.placing]);
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

fn rule(traced: &Traced, figures: &Figures, number: usize, asked: &Options, options: &[Offer]) -> Rule {
    let unit = &traced.units[number];
    let chosen =
        options.iter().find(|option| option.planner == asked.planner).expect("every planner has one");
    let alternative = |option: &Offer| Alternative {
        planner: option.planner,
        seconds: option.outcome.seconds,
        cost: option.cost,
        busy: figures
            .classes
            .iter()
            .zip(&option.outcome.busy_s)
            .map(|(class, busy)| (class.name.clone(), rounded(busy / option.outcome.seconds.max(1e-12))))
            .collect(),
        spread: rounded(option.outcome.spread),
        layout: option.placing.written(figures),
    };
    Rule {
        path: unit.rule.clone(),
        files: unit.files,
        extent: Bytes(unit.extent),
        moved: Bytes(unit.bytes()),
        pattern: pattern(traced, unit),
        why: why(figures, unit, chosen, options),
        confidence: rounded(confidence(chosen, options, unit, asked.guessed)),
        layout: chosen.placing.written(figures),
        alternatives: options.iter().map(alternative).collect(),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A half when another layout would take as long, all when every other one takes a quarter longer; less where little
/// is known.
fn confidence(chosen: &Offer, options: &[Offer], unit: &Unit, guessed: bool) -> f64 {
    let others = options.iter().filter(|option| option.placing != chosen.placing);
    let next = others.map(|option| option.outcome.seconds).fold(f64::INFINITY, f64::min);
    let lead = if next.is_finite() { next / chosen.outcome.seconds.max(1e-12) - 1.0 } else { 0.25 };
    let sure = (0.5 + 2.0 * lead).clamp(0.0, 1.0);
    let few = if unit.reads + unit.writes < 100 { 0.7 } else { 1.0 };
    sure * few * if guessed { 0.6 } else { 1.0 }
}

/// In which order, by whom, how large.
fn pattern(traced: &Traced, unit: &Unit) -> String {
    let mut out = format!("{}, {}", shape(&unit.pattern.shape), unit.pattern.sharing.name());
    let all = unit.reads + unit.writes;
    let reads = 100.0 * unit.reads as f64 / all.max(1) as f64;
    out += &match reads {
        100.0 => "; reads".to_owned(),
        0.0 => "; writes".to_owned(),
        reads => format!("; {reads:.0} % reads"),
    };
    let mut sizes: Vec<(Bytes, f64)> = Vec::new();
    for kind in &unit.kinds {
        let len = Bytes(kind.len.round() as u64);
        match sizes.iter_mut().find(|(size, _)| *size == len) {
            Some((_, count)) => *count += kind.count() as f64,
            None => sizes.push((len, kind.count() as f64)),
        }
    }
    let told = sizes
        .iter()
        .take(3)
        .map(|(size, count)| format!("{size} ({:.0} %)", 100.0 * count / all.max(1) as f64));
    out += &format!(" of {}", told.collect::<Vec<_>>().join(", "));
    if sizes.len() > 3 {
        out += &format!(" and {} other lengths", sizes.len() - 3);
    }
    out + &format!("; {} ranks, {:.1} requests at a time over all files", unit.ranks, traced.concurrency)
}

/// A shape for people.
pub fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Strided { stride, block } => format!("strided by {stride} B in blocks of {}", Bytes(*block)),
        Shape::Nested { loops } => {
            let loops: Vec<String> =
                loops.iter().map(|one| format!("{} x {} B", one.count, one.step)).collect();
            format!("nested strides ({})", loops.join(", "))
        }
        Shape::Mixed { phases } => {
            let phases: Vec<&str> = phases.iter().map(Shape::name).collect();
            format!("mixed phases ({})", phases.join(", "))
        }
        other => other.name().to_owned(),
    }
}

fn why(figures: &Figures, unit: &Unit, chosen: &Offer, options: &[Offer]) -> String {
    let def = options.iter().find(|option| option.planner == Planner::Def).expect("every planner has one");
    let mut told = Vec::new();
    for (class, of) in figures.classes.iter().enumerate() {
        let alone = chosen.placing.parts.iter().filter(|part| {
            part.stripes.iter().enumerate().all(|(other, size)| (other == class) == (*size > 0))
        });
        let bytes: u64 = alone
            .map(|part| {
                part.end.unwrap_or(u64::MAX).min(unit.extent).saturating_sub(part.start.min(unit.extent))
            })
            .sum();
        if bytes > 0 && figures.classes.len() > 1 {
            told.push(format!(
                "{:.0} % of the file on {} alone",
                100.0 * bytes as f64 / unit.extent as f64,
                of.name
            ));
        }
    }
    let bottleneck = |outcome: &Outcome| {
        let links = outcome.link_s.iter().enumerate().map(|(class, time)| (*time, class, true));
        let targets = outcome.busy_s.iter().enumerate().map(|(class, time)| (*time, class, false));
        let busiest = links.chain(targets).max_by(|a, b| a.0.total_cmp(&b.0)).expect("a class at least");
        let name = &figures.classes[busiest.1].name;
        let of = if busiest.2 { format!("the network of {name}") } else { name.clone() };
        if outcome.node_s > busiest.0 {
            (outcome.node_s, "the network of the nodes".to_owned())
        } else {
            (busiest.0, of)
        }
    };
    let (time, what) = bottleneck(&chosen.outcome);
    told.push(format!(
        "a request touches {:.1} targets; {what} is busiest, {:.0} % of {:.3} s",
        chosen.outcome.spread,
        100.0 * time / chosen.outcome.seconds.max(1e-12),
        chosen.outcome.seconds
    ));
    if chosen.planner != Planner::Def {
        let (time, what) = bottleneck(&def.outcome);
        told.push(format!(
            "under def {:.1} targets and {what} for {:.0} % of {:.3} s",
            def.outcome.spread,
            100.0 * time / def.outcome.seconds.max(1e-12),
            def.outcome.seconds
        ));
    }
    let faster = options.iter().min_by(|a, b| a.outcome.seconds.total_cmp(&b.outcome.seconds)).expect("some");
    if faster.outcome.seconds < 0.98 * chosen.outcome.seconds {
        told.push(format!("{} would be faster by this model", faster.planner));
    }
    if unit.kinds.iter().any(|kind| kind.direction == Direction::Write)
        && unit.kinds.iter().any(|kind| kind.direction == Direction::Read)
    {
        told.push("reads and writes are weighed as often as they were made".into());
    }
    told.join("; ")
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

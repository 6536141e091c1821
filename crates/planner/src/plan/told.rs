//! What a plan says of a rule: its pattern, why it has its layout, how sure that is.

use super::{Alternative, Offer, Options, Planner, Rule};
use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::mix::Direction;
use crate::model::Outcome;
use crate::pattern::Shape;
use crate::survey::{Traced, Unit};

/// The rule for a unit, with all that was offered.
pub(super) fn rule(
    traced: &Traced,
    figures: &Figures,
    number: usize,
    asked: &Options,
    options: &[Offer],
) -> Rule {
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

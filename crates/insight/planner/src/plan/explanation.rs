//! Human-readable explanations of a rule: pattern, reason, confidence.

use super::{Advice, Alternative, Decided, Planner, PlannerLayout, Rule};
use crate::bytes::Bytes;
use crate::figures::Figures;
use crate::mix::Direction;
use crate::model::Outcome;
use crate::pattern::Shape;
use crate::survey::{FileGroup, TraceSummary};

/// Builds the rule of a group from the layouts of all planners.
pub(super) fn rule(
    traced: &TraceSummary,
    figures: &Figures,
    number: usize,
    layouts: &[PlannerLayout],
    decided: &Decided,
    guessed: bool,
) -> Rule {
    let group = &traced.groups[number];
    let chosen = &layouts[decided.chosen];
    let alternative = |layout: &PlannerLayout| Alternative {
        planner: layout.planner,
        seconds: layout.outcome.seconds,
        cost: layout.cost,
        busy: figures
            .classes
            .iter()
            .zip(&layout.outcome.target_busy_s)
            .map(|(class, busy)| (class.name.clone(), rounded(busy / layout.outcome.seconds.max(1e-12))))
            .collect(),
        spread: rounded(layout.outcome.targets_per_request),
        layout: layout.parts.clone(),
    };
    let why = match decided.advice.filter(|_| chosen.planner == Planner::Present) {
        Some(advice) => kept(&advice),
        None => why(figures, group, chosen, layouts, decided.advice.as_ref()),
    };
    Rule {
        path: group.rule.clone(),
        files: group.files,
        extent: Bytes(group.extent),
        moved: Bytes(group.bytes()),
        pattern: pattern(traced, group),
        why,
        confidence: rounded(confidence(chosen, layouts, group, decided.error, guessed)),
        advice: decided.advice,
        layout: chosen.parts.clone(),
        alternatives: layouts.iter().map(alternative).collect(),
    }
}

/// Why a layout is kept, with the three numbers behind it.
fn kept(advice: &Advice) -> String {
    if advice.gain_s() <= 0.0 {
        return format!(
            "the present layout is the fastest: {:.3} s, the next one takes {:.3} s",
            advice.present_s, advice.planned_s
        );
    }
    format!(
        "the fastest other layout would gain {:.3} of {:.3} s, which is less than the model's error of {:.3} s plus the \
         cost of the change of {:.3} s",
        advice.gain_s(),
        advice.present_s,
        advice.error_s,
        advice.cost_s
    )
}

impl Rule {
    /// Returns the group with its present layout, if it is known, and the reason.
    pub(super) fn into_kept(mut self, why: &str) -> Self {
        if let Some(present) = self.alternatives.iter().find(|other| other.planner == Planner::Present) {
            self.layout.clone_from(&present.layout);
        }
        self.why = why.to_owned();
        self
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Confidence of the choice: 0.5 if another layout takes equally long, 1 if every other layout takes longer by five times
/// the model's relative `error`. Lower for few requests and for estimated traces.
fn confidence(
    chosen: &PlannerLayout,
    layouts: &[PlannerLayout],
    group: &FileGroup,
    error: f64,
    guessed: bool,
) -> f64 {
    let others = layouts.iter().filter(|layout| layout.layout != chosen.layout);
    let next = others.map(|layout| layout.outcome.seconds).fold(f64::INFINITY, f64::min);
    let lead = if next.is_finite() { next / chosen.outcome.seconds.max(1e-12) - 1.0 } else { 5.0 * error };
    let sure = (0.5 + 0.1 * lead / error.max(1e-3)).clamp(0.0, 1.0);
    let few = if group.reads + group.writes < 100 { 0.7 } else { 1.0 };
    sure * few * if guessed { 0.6 } else { 1.0 }
}

/// Describes order, sharing, direction and request lengths.
fn pattern(traced: &TraceSummary, group: &FileGroup) -> String {
    let mut out = format!("{}, {}", shape(&group.pattern.shape), group.pattern.sharing.name());
    let all = group.reads + group.writes;
    let reads = 100.0 * group.reads as f64 / all.max(1) as f64;
    out += &match reads {
        100.0 => "; reads".to_owned(),
        0.0 => "; writes".to_owned(),
        reads => format!("; {reads:.0} % reads"),
    };
    let mut sizes: Vec<(Bytes, f64)> = Vec::new();
    for kind in &group.kinds {
        let len = Bytes(kind.len.round() as u64);
        match sizes.iter_mut().find(|(size, _)| *size == len) {
            Some((_, count)) => *count += kind.count() as f64,
            None => sizes.push((len, kind.count() as f64)),
        }
    }
    let reasons = sizes
        .iter()
        .take(3)
        .map(|(size, count)| format!("{size} ({:.0} %)", 100.0 * count / all.max(1) as f64));
    out += &format!(" of {}", reasons.collect::<Vec<_>>().join(", "));
    if sizes.len() > 3 {
        out += &format!(" and {} other lengths", sizes.len() - 3);
    }
    out + &format!("; {} ranks, {:.1} requests at a time over all files", group.ranks, traced.concurrency)
}

/// Describes a shape.
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

fn why(
    figures: &Figures,
    group: &FileGroup,
    chosen: &PlannerLayout,
    layouts: &[PlannerLayout],
    advice: Option<&Advice>,
) -> String {
    let of = |planner| layouts.iter().find(|layout| layout.planner == planner);
    let before = of(Planner::Present).or_else(|| of(Planner::Def)).expect("every planner has a layout");
    let mut reasons = Vec::new();
    reasons.extend(advice.map(|advice| {
        format!(
            "it gains {:.3} of {:.3} s; the model's error is {:.3} s, the change costs {:.3} s",
            advice.gain_s(),
            advice.present_s,
            advice.error_s,
            advice.cost_s
        )
    }));
    for (class, of) in figures.classes.iter().enumerate() {
        let alone = chosen.placement().parts.iter().filter(|part| {
            part.stripes.iter().enumerate().all(|(other, size)| (other == class) == (*size > 0))
        });
        let bytes: u64 = alone
            .map(|part| {
                part.end.unwrap_or(u64::MAX).min(group.extent).saturating_sub(part.start.min(group.extent))
            })
            .sum();
        if bytes > 0 && figures.classes.len() > 1 {
            reasons.push(format!(
                "{:.0} % of the file on {} alone",
                100.0 * bytes as f64 / group.extent as f64,
                of.name
            ));
        }
    }
    let bottleneck = |outcome: &Outcome| {
        let links = outcome.link_busy_s.iter().enumerate().map(|(class, time)| (*time, class, true));
        let targets = outcome.target_busy_s.iter().enumerate().map(|(class, time)| (*time, class, false));
        let busiest = links.chain(targets).max_by(|a, b| a.0.total_cmp(&b.0)).expect("a class at least");
        let name = &figures.classes[busiest.1].name;
        let of = if busiest.2 { format!("the network of {name}") } else { name.clone() };
        if outcome.node_link_busy_s > busiest.0 {
            (outcome.node_link_busy_s, "the network of the nodes".to_owned())
        } else {
            (busiest.0, of)
        }
    };
    let (time, what) = bottleneck(&chosen.outcome);
    reasons.push(format!(
        "a request touches {:.1} targets; {what} is busiest, {:.0} % of {:.3} s",
        chosen.outcome.targets_per_request,
        100.0 * time / chosen.outcome.seconds.max(1e-12),
        chosen.outcome.seconds
    ));
    if chosen.planner != before.planner {
        let (time, what) = bottleneck(&before.outcome);
        reasons.push(format!(
            "under {} {:.1} targets and {what} for {:.0} % of {:.3} s",
            before.planner,
            before.outcome.targets_per_request,
            100.0 * time / before.outcome.seconds.max(1e-12),
            before.outcome.seconds
        ));
    }
    let faster = layouts.iter().min_by(|a, b| a.outcome.seconds.total_cmp(&b.outcome.seconds)).expect("some");
    if faster.outcome.seconds < 0.98 * chosen.outcome.seconds {
        reasons.push(format!("{} would be faster by this model", faster.planner));
    }
    if group.kinds.iter().any(|kind| kind.direction == Direction::Write)
        && group.kinds.iter().any(|kind| kind.direction == Direction::Read)
    {
        reasons.push("reads and writes count as often as they occurred".into());
    }
    reasons.join("; ")
}

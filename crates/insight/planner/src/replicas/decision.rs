//! The decision for every pattern of a trace, within a budget.

use super::alternatives::{Alternative, Kind, Pattern};
use super::arrangement::Arrangement;
use super::cost::PaperBenefit;
use crate::figures::{Class, Figures, FiguresError};
use crate::pattern::Shape;
use crate::placement::ClassPlacement;
use crate::plan::planned_groups;
use crate::sample::Request;
use crate::survey::TraceSummary;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// Relative gain by the model from which on `best` changes anything.
const GAIN_MIN: f64 = 0.015;

/// Rule by which patterns are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// No replicas; ORIG in the paper.
    Off,
    /// Every non-contiguous pattern, in sequence and with the file's layout, whatever it gains.
    Cida,
    /// Algorithms 1 and 2 by the paper's cost model.
    Ceda,
    /// The fastest alternative by the queueing model.
    Best,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Off, Self::Cida, Self::Ceda, Self::Best];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Cida => "cida",
            Self::Ceda => "ceda",
            Self::Best => "best",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| "write off, cida, ceda or best".to_owned())
    }
}

/// Options of [`decide`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Rule.
    pub policy: Policy,
    /// Bytes that all replicas may take.
    pub budget: u64,
    /// Maximum number of parts of a searched layout.
    pub parts_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { policy: Policy::Best, budget: u64::MAX, parts_max: 8 }
    }
}

/// The decision for one pattern.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Index of the file group in the trace summary.
    pub group: usize,
    /// All alternatives; empty for a pattern that cannot be judged.
    pub alternatives: Vec<Alternative>,
    /// The alternative to carry out.
    pub chosen: Kind,
    /// Why.
    pub reason: String,
    /// Times by the paper's model.
    pub paper: Option<PaperBenefit>,
    /// Places of all bytes; empty for a pattern that cannot be judged.
    pub arrangement: Arrangement,
}

impl Decision {
    /// Returns an alternative.
    pub fn alternative(&self, kind: Kind) -> Option<&Alternative> {
        self.alternatives.iter().find(|alternative| alternative.kind == kind)
    }

    /// Time of one run as chosen, seconds.
    pub fn chosen_s(&self) -> f64 {
        self.alternative(self.chosen).map_or(0.0, Alternative::run_s)
    }

    /// Time of one run without any change, seconds.
    pub fn now_s(&self) -> f64 {
        self.alternative(Kind::Leave).map_or(0.0, Alternative::run_s)
    }
}

/// Decisions for a trace.
#[derive(Clone, Debug)]
pub struct ReplicaPlan {
    /// Rule.
    pub policy: Policy,
    /// One for each considered file group, in the order of the summary.
    pub decisions: Vec<Decision>,
    /// Bytes of all replicas.
    pub bytes: u64,
}

/// Algorithm 2: returns the indices of the patterns to replicate. A pattern is given by its benefit and its bytes. Those
/// with a positive benefit are taken in descending order of benefit while they are smaller than the free space.
pub fn chosen_by_benefit(patterns: &[(f64, u64)], free: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..patterns.len()).filter(|index| patterns[*index].0 > 0.0).collect();
    order.sort_by(|a, b| patterns[*b].0.total_cmp(&patterns[*a].0).then(a.cmp(b)));
    let mut left = free;
    order.retain(|index| {
        let bytes = patterns[*index].1;
        let fits = bytes < left;
        left -= if fits { bytes } else { 0 };
        fits
    });
    order
}

/// Decides for every pattern of a trace. `originals` has the present layout of each file group.
///
/// A replica needs every request of its pattern. A group with requests that the summary has dropped is left.
///
/// # Errors
/// Invalid figures.
pub fn decide(
    traced: &TraceSummary,
    figures: &Figures,
    originals: &[ClassPlacement],
    options: &Options,
) -> Result<ReplicaPlan, FiguresError> {
    decide_by(traced, figures, originals, options, true)
}

/// Like [`decide`], but `best` compares the runs alone: copying written bytes back to the file takes no time. The lab
/// measures runs without that copy.
///
/// # Errors
/// Invalid figures.
pub fn decide_without_copy_back(
    traced: &TraceSummary,
    figures: &Figures,
    originals: &[ClassPlacement],
    options: &Options,
) -> Result<ReplicaPlan, FiguresError> {
    decide_by(traced, figures, originals, options, false)
}

fn decide_by(
    traced: &TraceSummary,
    figures: &Figures,
    originals: &[ClassPlacement],
    options: &Options,
    copy_back: bool,
) -> Result<ReplicaPlan, FiguresError> {
    figures.check()?;
    let capacities: Vec<u64> = figures.classes.iter().map(Class::capacity).collect();
    let mut decisions = Vec::new();
    for number in planned_groups(traced).0 {
        let group = &traced.groups[number];
        let requests: Vec<Request> =
            traced.sample.iter().filter(|request| request.group as usize == number).copied().collect();
        let sampled = requests.iter().filter(|request| !request.is_sync()).count() as u64;
        if sampled != group.reads + group.writes {
            decisions.push(Decision {
                group: number,
                alternatives: Vec::new(),
                chosen: Kind::Leave,
                reason: format!(
                    "{} requests, of which {sampled} are known: too many to place each byte",
                    group.reads + group.writes
                ),
                paper: None,
                arrangement: Arrangement::default(),
            });
            continue;
        }
        let arrangement = Arrangement::of(&requests);
        let original = &originals[number];
        let pattern = Pattern { figures, group, requests: &requests, original, arrangement: &arrangement };
        let (mut alternatives, paper) = pattern.judged(&capacities, options.parts_max);
        if !copy_back {
            alternatives.iter_mut().for_each(|alternative| alternative.sync_s = 0.0);
        }
        decisions.push(Decision {
            group: number,
            alternatives,
            chosen: Kind::Leave,
            reason: String::new(),
            paper,
            arrangement,
        });
    }
    let mut plan = ReplicaPlan { policy: options.policy, decisions, bytes: 0 };
    match options.policy {
        Policy::Off => {
            plan.decisions.iter_mut().for_each(|decision| decision.leave("no replicas by this policy"))
        }
        Policy::Cida => plan.choose_cida(traced, options.budget),
        Policy::Ceda => plan.choose_ceda(options.budget),
        Policy::Best => plan.choose_best(options.budget),
    }
    let bytes = |decision: &Decision| decision.alternative(decision.chosen).map_or(0, |chosen| chosen.bytes);
    plan.bytes = plan.decisions.iter().map(bytes).fold(0, u64::saturating_add);
    Ok(plan)
}

impl Decision {
    fn leave(&mut self, reason: impl Into<String>) {
        if self.reason.is_empty() {
            self.reason = reason.into();
        }
    }

    fn is_judged(&self) -> bool {
        !self.alternatives.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.alternative(Kind::ByServer).map_or(0, |replica| replica.bytes)
    }
}

impl ReplicaPlan {
    fn choose_cida(&mut self, traced: &TraceSummary, budget: u64) {
        let mut left = budget;
        for decision in self.decisions.iter_mut().filter(|decision| decision.is_judged()) {
            if traced.groups[decision.group].pattern.shape == Shape::Contiguous {
                decision.leave("contiguous");
            } else if decision.bytes() > left {
                decision.leave("no space left");
            } else {
                left -= decision.bytes();
                decision.chosen = Kind::InSequence;
                decision.reason = "not contiguous".to_owned();
            }
        }
    }

    fn choose_ceda(&mut self, budget: u64) {
        let benefit = |decision: &Decision| decision.paper.as_ref().map_or(0.0, PaperBenefit::ns);
        let table: Vec<(f64, u64)> =
            self.decisions.iter().map(|decision| (benefit(decision), decision.bytes())).collect();
        let chosen = chosen_by_benefit(&table, budget);
        for (index, decision) in self.decisions.iter_mut().enumerate() {
            let benefit_s = table[index].0 / 1e9;
            if chosen.contains(&index) && decision.is_judged() {
                decision.chosen = Kind::ByServer;
                decision.reason = format!("benefit of {benefit_s:.3} s by the paper's model");
            } else if benefit_s > 0.0 {
                decision.leave("no space left");
            } else {
                decision.leave(format!("benefit of {benefit_s:.3} s by the paper's model"));
            }
        }
    }

    /// Space goes first to the replicas that gain most per byte, beside what the pattern gains without one.
    fn choose_best(&mut self, budget: u64) {
        let gains: Vec<Option<(f64, Kind, Kind)>> = self.decisions.iter().map(Decision::best_kinds).collect();
        let mut order: Vec<usize> = (0..gains.len()).filter(|index| gains[*index].is_some()).collect();
        let per_byte = |index: &usize| {
            gains[*index].map_or(0.0, |(gain, ..)| gain / self.decisions[*index].bytes().max(1) as f64)
        };
        order.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)).then(a.cmp(b)));
        let mut left = budget;
        for index in order {
            let Some((_, best, without)) = gains[index] else { continue };
            let decision = &mut self.decisions[index];
            let needs = decision.alternative(best).map_or(0, |alternative| alternative.bytes);
            let fits = needs <= left;
            decision.chosen = if fits { best } else { without };
            left -= if fits { needs } else { 0 };
            let (now_s, chosen_s) = (decision.now_s(), decision.chosen_s());
            let note = if fits { "" } else { "; no space left for a replica" };
            decision.reason = match decision.chosen {
                Kind::Leave => format!("no alternative gains {:.1} %{note}", 100.0 * GAIN_MIN),
                _ => format!("{:.2} times as fast{note}", now_s / chosen_s.max(f64::MIN_POSITIVE)),
            };
        }
    }
}

impl Decision {
    /// Gain of the fastest alternative over the fastest one that takes no space in seconds, and both kinds. A simpler
    /// alternative wins unless another gains [`GAIN_MIN`].
    fn best_kinds(&self) -> Option<(f64, Kind, Kind)> {
        let fastest = |allowed: &dyn Fn(Kind) -> bool| {
            let mut best: Option<&Alternative> = None;
            for alternative in self.alternatives.iter().filter(|one| allowed(one.kind)) {
                if best.is_none_or(|best| alternative.run_s() < best.run_s() * (1.0 - GAIN_MIN)) {
                    best = Some(alternative);
                }
            }
            best
        };
        let (best, without) = (fastest(&|_| true)?, fastest(&|kind| !kind.is_replica())?);
        Some((without.run_s() - best.run_s(), best.kind, without.kind))
    }
}

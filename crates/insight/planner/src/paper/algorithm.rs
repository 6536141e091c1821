//! PSA's algorithm 1, extended to mixed requests and any number of classes of limited capacity.
//!
//! With two classes and one request length the results equal those of the printed algorithm; a test compares them with
//! a transcription. The paper leaves these points open:
//!
//! | open point | here |
//! | --- | --- |
//! | initial Opt_cost, Total_cost | infinity; 0 for each candidate |
//! | S with mixed lengths | the length that moves most bytes; each request is costed by its own length L |
//! | bytes on the busiest server | `floor(L / R) s + min(s, L mod R)` with stripe s and round R; s if L = R = S |
//! | heterogeneous requests | those that begin before the boundary at which the first class is full |
//! | more than two classes | the algorithm runs again after the boundary, without the full class; the last gets S/m |
//! | capacity of the slowest class | unlimited, as the paper assumes of HServers |

use super::cost::{CostParameters, Servers, table_iii};
use crate::figures::{Figures, Line};
use crate::mix::RequestKind;
use crate::placement::{ClassPlacement, PlacementPart};
use crate::survey::FileGroup;

/// The paper's step, bytes.
pub const STEP: u64 = 4096;
/// Maximum number of steps per class with three classes; a quarter of it with more.
const STEPS_PER_CLASS_MAX: u64 = 16;
/// Maximum number of stripe assignments. The step doubles until there are fewer. Requests of up to some GiB are not
/// affected.
const ASSIGNMENTS_MAX: usize = 1 << 16;
/// Maximum number of stripe assignments with more than three classes.
const ASSIGNMENTS_MAX_MANY_CLASSES: usize = 4096;
/// Approximate number of part sequences tried with more than three classes, whatever the number of limited classes.
const SEQUENCES_MAX: f64 = 20_000.0;
/// Relative difference below which costs are equal, to absorb rounding.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// The input of the paper's planners.
pub struct Problem<'a> {
    figures: &'a Figures,
    parameters: CostParameters,
    /// S, bytes.
    size: u64,
    kinds: &'a [RequestKind],
    /// Capacity of each class per target and file, bytes.
    capacities: Vec<u64>,
    /// Classes from slowest to fastest.
    order: Vec<usize>,
    /// Cost function that replaces the tables.
    stated_cost: Option<StatedCost<'a>>,
}

/// Cost of a request under stripe sizes by class, nanoseconds.
pub type StatedCost<'a> = &'a dyn Fn(&RequestKind, &[u64]) -> f64;

/// Order of the stripe sizes that are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StripeOrder {
    /// Slower servers get larger or equal stripes (PSA).
    LargerOnSlow,
    /// Faster servers get larger or equal stripes (PA).
    LargerOnFast,
}

/// A layout and the total cost of all requests under it.
#[derive(Clone, PartialEq, Debug)]
pub struct PaperLayout {
    /// The layout.
    pub placement: ClassPlacement,
    /// Total_cost, nanoseconds.
    pub cost_ns: f64,
}

impl<'a> Problem<'a> {
    /// The problem of laying out a file group. `capacities` is the capacity in bytes on each target of a class, for all
    /// files.
    pub fn new(
        figures: &'a Figures,
        group: &'a FileGroup,
        capacities: &[u64],
        parameters: CostParameters,
    ) -> Self {
        let files = group.files.max(1);
        let per_file = |capacity: &u64| if *capacity == u64::MAX { u64::MAX } else { capacity / files };
        let capacities = capacities.iter().map(per_file).collect();
        Self::of(figures, &group.kinds, group.request_size(), capacities, parameters)
    }

    /// The problem from its parts; `capacities` is per file.
    pub fn of(
        figures: &'a Figures,
        kinds: &'a [RequestKind],
        size: u64,
        mut capacities: Vec<u64>,
        parameters: CostParameters,
    ) -> Self {
        let mut problem = Self {
            figures,
            parameters,
            size: size.max(1),
            kinds,
            capacities: Vec::new(),
            order: Vec::new(),
            stated_cost: None,
        };
        let targets: u32 = figures.classes.iter().map(|class| class.targets).sum();
        let bytes = size as f64 / f64::from(targets);
        let slowness = |class: usize| {
            let cost = |kind: &RequestKind| kind.count() as f64 * problem.line(kind, class).ns(bytes);
            kinds.iter().map(cost).sum::<f64>()
        };
        let mut order: Vec<usize> = (0..figures.classes.len()).collect();
        order.sort_by(|&a, &b| slowness(b).total_cmp(&slowness(a)));
        capacities[order[0]] = u64::MAX;
        (problem.capacities, problem.order) = (capacities, order);
        problem
    }

    /// Replaces the tables by another cost function, such as the stated costs of the paper's worked example.
    #[must_use]
    pub fn stated_cost(mut self, stated_cost: StatedCost<'a>) -> Self {
        self.stated_cost = Some(stated_cost);
        self
    }

    /// DEF: equal stripes over all classes.
    pub fn def(&self, stripe: u64) -> PaperLayout {
        self.first_part(&vec![stripe; self.capacities.len()], &self.capacities, 0, self.order.clone())
    }

    /// PA: the stripes that minimize the cost of requests on all servers, regardless of capacity.
    pub fn pa(&self) -> PaperLayout {
        let candidates = self.candidates(&self.order, StripeOrder::LargerOnFast);
        let cost = |stripes: &Vec<u64>| {
            self.kinds.iter().map(|kind| kind.count() as f64 * self.request(kind, stripes)).sum()
        };
        let best = least(candidates, cost).unwrap_or_else(|| vec![self.size; self.capacities.len()]);
        self.first_part(&best, &self.capacities, 0, self.order.clone())
    }

    /// PSA: algorithm 1.
    pub fn psa(&self) -> PaperLayout {
        self.best_from(&self.capacities, 0, self.order.clone())
    }

    /// The layout with given stripes in the first part.
    pub fn given(&self, stripes: &[u64]) -> PaperLayout {
        self.first_part(stripes, &self.capacities, 0, self.order.clone())
    }

    /// Lines 1 to 23 of the algorithm for the file from `from` on, over the classes in `order`.
    fn best_from(&self, capacities: &[u64], from: u64, order: Vec<usize>) -> PaperLayout {
        if let [only] = order.as_slice() {
            // The homogeneous part: stripes of S/m.
            let mut stripes = vec![0; capacities.len()];
            stripes[*only] = (self.size / u64::from(self.figures.classes[*only].targets)).max(1);
            let part = PlacementPart { start: from, end: None, stripes: stripes.clone() };
            let placement = ClassPlacement { parts: vec![part] };
            return PaperLayout { placement, cost_ns: self.cost(&stripes, from, u64::MAX) };
        }
        let tried = self.candidates(&order, StripeOrder::LargerOnSlow).into_iter();
        let tried = tried.map(|stripes| self.first_part(&stripes, capacities, from, order.clone()));
        least(tried.collect(), |chosen: &PaperLayout| chosen.cost_ns).expect("each class has a candidate")
    }

    /// Uses these stripes until a class is full, then the best layout of the rest.
    fn first_part(&self, stripes: &[u64], capacities: &[u64], from: u64, order: Vec<usize>) -> PaperLayout {
        let part = PlacementPart { start: from, end: None, stripes: stripes.to_vec() };
        let round = part.round(self.figures);
        let used = |class: &usize| stripes[*class] > 0 && capacities[*class] != u64::MAX;
        let rounds =
            order.iter().filter(|class| used(class)).map(|&class| capacities[class] / stripes[class]).min();
        let boundary = rounds.and_then(|rounds| rounds.checked_mul(round)?.checked_add(from));
        let Some(boundary) = boundary else {
            return PaperLayout {
                placement: ClassPlacement { parts: vec![part] },
                cost_ns: self.cost(stripes, from, u64::MAX),
            };
        };
        let rounds = rounds.expect("there is a boundary");
        let mut left = capacities.to_vec();
        for &class in order.iter().filter(|class| used(class)) {
            left[class] -= rounds * stripes[class];
        }
        let slowest = order[0];
        let order: Vec<usize> = order
            .into_iter()
            .filter(|&class| class == slowest || left[class] >= stripes[class].max(STEP))
            .collect();
        let rest = self.best_from(&left, boundary, order);
        if rounds == 0 {
            return rest;
        }
        let cost_ns = self.cost(stripes, from, boundary) + rest.cost_ns;
        let mut parts = vec![PlacementPart { end: Some(boundary), ..part }];
        parts.extend(rest.placement.parts);
        PaperLayout { placement: ClassPlacement { parts }, cost_ns }
    }

    /// Cost of the requests that begin in a range.
    fn cost(&self, stripes: &[u64], from: u64, to: u64) -> f64 {
        let cost = |kind: &RequestKind| {
            let count = kind.offsets.count_before(to) - kind.offsets.count_before(from);
            if count > 0.0 { count * self.request(kind, stripes) } else { 0.0 }
        };
        self.kinds.iter().map(cost).sum()
    }

    /// Cost of one request by Table III, which for one class equals Table IV.
    fn request(&self, kind: &RequestKind, stripes: &[u64]) -> f64 {
        if let Some(stated_cost) = self.stated_cost {
            return stated_cost(kind, stripes);
        }
        let round: f64 =
            self.counts().zip(stripes).map(|(count, size)| f64::from(count) * *size as f64).sum();
        let (rounds, rest) = ((kind.len / round).floor(), kind.len % round);
        let servers: Vec<Servers> = stripes
            .iter()
            .enumerate()
            .filter(|(_, size)| **size > 0)
            .map(|(class, size)| {
                let line = self.line(kind, class);
                Servers {
                    count: f64::from(self.figures.classes[class].targets),
                    startup_ns: line.startup_ns(),
                    byte_ns: line.byte_ns(),
                    bytes: rounds * *size as f64 + (*size as f64).min(rest),
                }
            })
            .collect();
        table_iii(&self.parameters, kind.len, &servers).total()
    }

    fn counts(&self) -> impl Iterator<Item = u32> + '_ {
        self.figures.classes.iter().map(|class| class.targets)
    }

    fn line(&self, kind: &RequestKind, class: usize) -> Line {
        let service = self.figures.classes[class].service(kind.direction);
        if kind.sequential { service.sequential } else { service.alone() }
    }

    /// Stripe sizes that are tried over these classes.
    fn candidates(&self, order: &[usize], stripes: StripeOrder) -> Vec<Vec<u64>> {
        let steps = match order.len() {
            // The printed step, unless many first parts have to be tried.
            0..=2 if self.order.len() <= 2 => u64::MAX,
            0..=2 => STEPS_PER_CLASS_MAX,
            3 if self.order.len() == 3 => STEPS_PER_CLASS_MAX,
            3 => STEPS_PER_CLASS_MAX / 2,
            _ => STEPS_PER_CLASS_MAX / 4,
        };
        let even = self.size
            / order.iter().map(|&class| u64::from(self.figures.classes[class].targets)).sum::<u64>();
        let step = if steps == u64::MAX { STEP } else { STEP.max((even / steps).next_multiple_of(STEP)) };
        let many = self.order.len() > 3;
        let (mut step, most) = (step, if many { ASSIGNMENTS_MAX_MANY_CLASSES } else { ASSIGNMENTS_MAX });
        let found = loop {
            let current = vec![0; self.capacities.len()];
            let found = Vec::new();
            let mut enumeration = StripeEnumeration { problem: self, step, stripes, current, most, found };
            enumeration.enumerate_stripes(order, self.size, None);
            if enumeration.found.len() < most {
                break enumeration.found;
            }
            step = step.saturating_mul(2);
        };
        if !many {
            return found;
        }
        // Each limited class adds a part, and the choices of the parts multiply. The sequences therefore share a fixed
        // budget.
        let parts = 1 + self.order.iter().filter(|&&class| self.capacities[class] != u64::MAX).count();
        let most = SEQUENCES_MAX.powf(1.0 / parts as f64) as usize;
        let apart = found.len().div_ceil(most.max(1)).max(1);
        found.into_iter().step_by(apart).collect()
    }
}

/// Enumerates the ways to distribute S bytes over classes in steps.
struct StripeEnumeration<'p, 'a> {
    problem: &'p Problem<'a>,
    step: u64,
    stripes: StripeOrder,
    current: Vec<u64>,
    /// The enumeration stops at this number of assignments, since the step is then too small.
    most: usize,
    found: Vec<Vec<u64>>,
}

impl StripeEnumeration<'_, '_> {
    /// Distributes `left` bytes over the classes of `order`. `before` is the stripe of the preceding class.
    fn enumerate_stripes(&mut self, order: &[usize], left: u64, before: Option<u64>) {
        let figures = self.problem.figures;
        let count = |class: usize| u64::from(figures.classes[class].targets);
        let (class, rest) = (order[0], &order[1..]);
        if rest.is_empty() {
            self.current[class] = left / count(class);
            if self.current.iter().all(|size| *size == 0) {
                self.current[class] = 1;
            }
            self.found.push(self.current.clone());
            return;
        }
        let all: u64 = order.iter().map(|&class| count(class)).sum();
        let even = left / all;
        let (low, high) = match self.stripes {
            // With fewer bytes than servers, some servers get one byte.
            StripeOrder::LargerOnSlow => {
                (even.max(1), before.unwrap_or(u64::MAX).min(left / count(class)).max(even).max(1))
            }
            StripeOrder::LargerOnFast => (before.unwrap_or(self.step).min(even.max(1)), even.max(1)),
        };
        let mut size = low;
        while size <= high && self.found.len() < self.most {
            self.current[class] = size;
            let left = left.saturating_sub(size * count(class));
            if left == 0 {
                rest.iter().for_each(|&class| self.current[class] = 0);
                self.found.push(self.current.clone());
            } else {
                self.enumerate_stripes(rest, left, Some(size));
            }
            size = size.saturating_add(self.step);
        }
    }
}

/// The first candidate of least cost.
fn least<T>(candidates: Vec<T>, cost: impl Fn(&T) -> f64) -> Option<T> {
    let mut best: Option<(T, f64)> = None;
    for candidate in candidates {
        let cost = cost(&candidate);
        if best.as_ref().is_none_or(|(_, least)| cost < least * (1.0 - RELATIVE_TOLERANCE)) {
            best = Some((candidate, cost));
        }
    }
    best.map(|(candidate, _)| candidate)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! PSA's algorithm 1, for the real mix of requests and any number of classes with limited room.
//!
//! Changes, all for what the paper leaves open; with two classes and one length it gives what is printed (a test holds
//! it against a transcription):
//!
//! * `Opt_cost` begins at infinity and `Total_cost` at 0 for each candidate, which the paper does not say.
//! * S is the length that moves most bytes; each request costs by its own length L. The most that one request can ask
//!   of a server with a stripe of s in a round of R is `floor(L / R) s + min(s, L mod R)`, which for L = R = S is s.
//! * A request is heterogeneous if it begins before the boundary, where the first class is full.
//! * Behind the boundary the algorithm is asked again with the classes that have room; when one is left it has S/m.
//! * The slowest class is taken to have room enough, as the paper takes the HServers to have.

use super::cost::{Servers, Setting, table_iii};
use crate::figures::{Figures, Line};
use crate::mix::Kind;
use crate::placing::{Part, Placing};
use crate::survey::Unit;

/// The paper's step, bytes.
pub const STEP: u64 = 4096;
/// With three classes no more steps than this for each, and a quarter of it with more.
const STEPS_MAX: u64 = 16;
/// Steps grow until no more ways than this are left to deal out a request; up to GiB of a request none are passed over.
const STRIPES_MAX: usize = 1 << 16;
/// With more than three classes steps grow until no more ways than this are left to deal out a request.
const WAYS_MAX: usize = 4096;
/// With more than three classes about so many rows of parts are tried, whatever the number of classes that get full.
const ROWS_MAX: f64 = 20_000.0;
/// Costs that differ by less are equal: what is left is rounding.
const EQUAL: f64 = 1e-9;

/// What a planner of the paper is asked.
pub struct Problem<'a> {
    figures: &'a Figures,
    setting: Setting,
    /// S, bytes.
    size: u64,
    kinds: &'a [Kind],
    /// Room of each class on each target for each file, bytes.
    rooms: Vec<u64>,
    /// Classes from the slowest to the fastest.
    order: Vec<usize>,
    /// Another cost of a request instead of the tables'.
    stated: Option<Stated<'a>>,
}

/// What a request costs under stripe sizes by class, in nanoseconds.
pub type Stated<'a> = &'a dyn Fn(&Kind, &[u64]) -> f64;

/// Which stripe sizes are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stripes {
    /// Slower servers get as much or more (PSA).
    SlowMore,
    /// Faster servers get as much or more (PA).
    FastMore,
}

/// A layout and what all requests cost under it together, in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    /// The layout.
    pub placing: Placing,
    /// Total_cost.
    pub cost_ns: f64,
}

impl<'a> Problem<'a> {
    /// To lay out a unit on a cluster, with so much room (bytes on each target of a class) for it.
    pub fn new(figures: &'a Figures, unit: &'a Unit, rooms: &[u64], setting: Setting) -> Self {
        let files = unit.files.max(1);
        let rooms =
            rooms.iter().map(|room| if *room == u64::MAX { u64::MAX } else { room / files }).collect();
        Self::of(figures, &unit.kinds, unit.request_size(), rooms, setting)
    }

    /// The same from its parts; `rooms` is for each file.
    pub fn of(
        figures: &'a Figures,
        kinds: &'a [Kind],
        size: u64,
        mut rooms: Vec<u64>,
        setting: Setting,
    ) -> Self {
        let mut problem = Self {
            figures,
            setting,
            size: size.max(1),
            kinds,
            rooms: Vec::new(),
            order: Vec::new(),
            stated: None,
        };
        let targets: u32 = figures.classes.iter().map(|class| class.targets).sum();
        let bytes = size as f64 / f64::from(targets);
        let slowness = |class: usize| {
            let cost = |kind: &Kind| kind.count() as f64 * problem.line(kind, class).ns(bytes);
            kinds.iter().map(cost).sum::<f64>()
        };
        let mut order: Vec<usize> = (0..figures.classes.len()).collect();
        order.sort_by(|&a, &b| slowness(b).total_cmp(&slowness(a)));
        rooms[order[0]] = u64::MAX;
        (problem.rooms, problem.order) = (rooms, order);
        problem
    }

    /// With other costs of a request than the tables', which the paper's worked example states.
    #[must_use]
    pub fn stated(mut self, stated: Stated<'a>) -> Self {
        self.stated = Some(stated);
        self
    }

    /// DEF: stripes of one size over all.
    pub fn def(&self, stripe: u64) -> Chosen {
        self.first_part(&vec![stripe; self.rooms.len()], &self.rooms, 0, self.order.clone())
    }

    /// PA: the stripes with which a request that all servers take part in costs least, whatever room there is.
    pub fn pa(&self) -> Chosen {
        let candidates = self.candidates(&self.order, Stripes::FastMore);
        let cost = |stripes: &Vec<u64>| {
            self.kinds.iter().map(|kind| kind.count() as f64 * self.request(kind, stripes)).sum()
        };
        let best = least(candidates, cost).unwrap_or_else(|| vec![self.size; self.rooms.len()]);
        self.first_part(&best, &self.rooms, 0, self.order.clone())
    }

    /// PSA: algorithm 1.
    pub fn psa(&self) -> Chosen {
        self.best_from(&self.rooms, 0, self.order.clone())
    }

    /// Under given stripes in the first part.
    pub fn given(&self, stripes: &[u64]) -> Chosen {
        self.first_part(stripes, &self.rooms, 0, self.order.clone())
    }

    /// Lines 1 to 23 for what lies from `from` on, over the classes `order`.
    fn best_from(&self, rooms: &[u64], from: u64, order: Vec<usize>) -> Chosen {
        if let [only] = order.as_slice() {
            // The homogeneous part: S/m.
            let mut stripes = vec![0; rooms.len()];
            stripes[*only] = (self.size / u64::from(self.figures.classes[*only].targets)).max(1);
            let placing = Placing { parts: vec![Part { start: from, end: None, stripes: stripes.clone() }] };
            return Chosen { placing, cost_ns: self.cost(&stripes, from, u64::MAX) };
        }
        let tried = self.candidates(&order, Stripes::SlowMore).into_iter();
        let tried = tried.map(|stripes| self.first_part(&stripes, rooms, from, order.clone()));
        least(tried.collect(), |chosen: &Chosen| chosen.cost_ns).expect("each class has a candidate")
    }

    /// These stripes until a class is full, then the best of what is left.
    fn first_part(&self, stripes: &[u64], rooms: &[u64], from: u64, order: Vec<usize>) -> Chosen {
        let part = Part { start: from, end: None, stripes: stripes.to_vec() };
        let round = part.round(self.figures);
        let used = |class: &usize| stripes[*class] > 0 && rooms[*class] != u64::MAX;
        let rounds =
            order.iter().filter(|class| used(class)).map(|&class| rooms[class] / stripes[class]).min();
        let boundary = rounds.and_then(|rounds| rounds.checked_mul(round)?.checked_add(from));
        let Some(boundary) = boundary else {
            return Chosen {
                placing: Placing { parts: vec![part] },
                cost_ns: self.cost(stripes, from, u64::MAX),
            };
        };
        let rounds = rounds.expect("there is a boundary");
        let mut left = rooms.to_vec();
        for &class in order.iter().filter(|class| used(class)) {
            left[class] -= rounds * stripes[class];
        }
        let slowest = order[0];
        let order: Vec<usize> = order
            .into_iter()
            .filter(|&class| class == slowest || left[class] >= stripes[class].max(STEP))
            .collect();
        let behind = self.best_from(&left, boundary, order);
        if rounds == 0 {
            return behind;
        }
        let cost_ns = self.cost(stripes, from, boundary) + behind.cost_ns;
        let mut parts = vec![Part { end: Some(boundary), ..part }];
        parts.extend(behind.placing.parts);
        Chosen { placing: Placing { parts }, cost_ns }
    }

    /// What the requests that begin in a range cost under these stripes.
    fn cost(&self, stripes: &[u64], from: u64, to: u64) -> f64 {
        let cost = |kind: &Kind| {
            let count = kind.places.before(to) - kind.places.before(from);
            if count > 0.0 { count * self.request(kind, stripes) } else { 0.0 }
        };
        self.kinds.iter().map(cost).sum()
    }

    /// What one request costs: table III, which for one class is table IV.
    fn request(&self, kind: &Kind, stripes: &[u64]) -> f64 {
        if let Some(stated) = self.stated {
            return stated(kind, stripes);
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
        table_iii(&self.setting, kind.len, &servers).total()
    }

    fn counts(&self) -> impl Iterator<Item = u32> + '_ {
        self.figures.classes.iter().map(|class| class.targets)
    }

    fn line(&self, kind: &Kind, class: usize) -> Line {
        let service = self.figures.classes[class].service(kind.direction);
        if kind.sequential { service.sequential } else { service.alone() }
    }

    /// The stripe sizes that are tried over these classes.
    fn candidates(&self, order: &[usize], stripes: Stripes) -> Vec<Vec<u64>> {
        let steps = match order.len() {
            // As printed, unless this is asked for many first parts.
            0..=2 if self.order.len() <= 2 => u64::MAX,
            0..=2 => STEPS_MAX,
            3 if self.order.len() == 3 => STEPS_MAX,
            3 => STEPS_MAX / 2,
            _ => STEPS_MAX / 4,
        };
        let even = self.size
            / order.iter().map(|&class| u64::from(self.figures.classes[class].targets)).sum::<u64>();
        let step = if steps == u64::MAX { STEP } else { STEP.max((even / steps).next_multiple_of(STEP)) };
        let many = self.order.len() > 3;
        let (mut step, most) = (step, if many { WAYS_MAX } else { STRIPES_MAX });
        let found = loop {
            let current = vec![0; self.rooms.len()];
            let mut dealing = Dealing { problem: self, step, stripes, current, most, found: Vec::new() };
            dealing.deal(order, self.size, None);
            if dealing.found.len() < most {
                break dealing.found;
            }
            step = step.saturating_mul(2);
        };
        if !many {
            return found;
        }
        // One part for each class that gets full, and as many ways to go on behind each: of all classes, whichever are left,
        // for the ways multiply.
        let parts = 1 + self.order.iter().filter(|&&class| self.rooms[class] != u64::MAX).count();
        let most = ROWS_MAX.powf(1.0 / parts as f64) as usize;
        let apart = found.len().div_ceil(most.max(1)).max(1);
        found.into_iter().step_by(apart).collect()
    }
}

/// All ways to deal S bytes to classes, by steps.
struct Dealing<'p, 'a> {
    problem: &'p Problem<'a>,
    step: u64,
    stripes: Stripes,
    current: Vec<u64>,
    /// So many are enough to know that the step is too small.
    most: usize,
    found: Vec<Vec<u64>>,
}

impl Dealing<'_, '_> {
    /// Deals `left` bytes to the classes of `order`, of which the one before the first got `before`.
    fn deal(&mut self, order: &[usize], left: u64, before: Option<u64>) {
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
            // Of fewer bytes than there are servers some get one.
            Stripes::SlowMore => {
                (even.max(1), before.unwrap_or(u64::MAX).min(left / count(class)).max(even).max(1))
            }
            Stripes::FastMore => (before.unwrap_or(self.step).min(even.max(1)), even.max(1)),
        };
        let mut size = low;
        while size <= high && self.found.len() < self.most {
            self.current[class] = size;
            let left = left.saturating_sub(size * count(class));
            if left == 0 {
                rest.iter().for_each(|&class| self.current[class] = 0);
                self.found.push(self.current.clone());
            } else {
                self.deal(rest, left, Some(size));
            }
            size = size.saturating_add(self.step);
        }
    }
}

/// The first that costs least.
fn least<T>(candidates: Vec<T>, cost: impl Fn(&T) -> f64) -> Option<T> {
    let mut best: Option<(T, f64)> = None;
    for candidate in candidates {
        let cost = cost(&candidate);
        if best.as_ref().is_none_or(|(_, least)| cost < least * (1.0 - EQUAL)) {
            best = Some((candidate, cost));
        }
    }
    best.map(|(candidate, _)| candidate)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

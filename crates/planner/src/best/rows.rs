//! Rows of parts: which classes take part in each, with which stripe sizes.

use super::{BETTER, Search};
use crate::placing::{Part, Placing};

/// Parts of a row at most; ranges that are moved to where they are used may become more.
const PARTS_MAX: usize = 3;
/// With more classes only these sets are tried: each alone, all.
const SETS_CLASSES_MAX: usize = 3;
/// Least stripe, bytes, and what all are multiples of: else a request that ends with a stripe leaves part of a page behind.
pub const STRIPE_MIN: u64 = 4096;
/// Greatest stripe, bytes.
const STRIPE_MAX: u64 = 1 << 26;
/// How stripes beside a stripe compare to it, in quarters.
const BESIDE: [u64; 4] = [2, 3, 6, 8];
/// So much faster have these to be.
const BESIDE_WORTH: f64 = 0.01;
/// Parts of the room that a part may take.
const SHARES: [f64; 5] = [1.0, 0.875, 0.75, 0.5, 0.25];

/// A layout as it is searched for.
#[derive(Clone, Debug)]
pub struct Row {
    parts: Vec<RowPart>,
}

#[derive(Clone, Debug)]
struct RowPart {
    /// Stripe size by class, whole pages, 0 for those that take no part.
    stripes: Vec<u64>,
    /// How much of the room that is left it takes.
    share: f64,
}

impl Row {
    /// As a layout, unless there is no room for it.
    pub fn placing(&self, search: &Search<'_>) -> Option<Placing> {
        let figures = search.figures;
        let extent = search.unit.extent.max(1);
        let files = search.unit.files.max(1);
        let mut left: Vec<u64> =
            search.rooms.iter().map(|room| if *room == u64::MAX { u64::MAX } else { room / files }).collect();
        let mut parts = Vec::new();
        let mut from = 0;
        for (number, row_part) in self.parts.iter().enumerate() {
            let part = Part { start: from, end: None, stripes: row_part.stripes.clone() };
            let last = number + 1 == self.parts.len();
            let fits =
                |left: &[u64]| (0..left.len()).all(|class| part.held(figures, class, extent) <= left[class]);
            if last {
                if !fits(&left) {
                    return None;
                }
                parts.push(part);
                return Some(Placing { parts });
            }
            let limited =
                left.iter().zip(&part.stripes).filter(|(room, size)| **room != u64::MAX && **size > 0);
            let rounds = limited.map(|(room, size)| (*room as f64 * row_part.share) as u64 / size).min();
            let rounds = match rounds {
                // A part without a bound takes a share of the file.
                None if row_part.share < 1.0 => {
                    ((extent - from) as f64 * row_part.share) as u64 / part.round(figures).max(1)
                }
                None => return None,
                Some(rounds) => rounds,
            };
            let end = from.checked_add(rounds.checked_mul(part.round(figures))?)?;
            if rounds == 0 || end >= extent {
                // Nothing is left for those behind it, which another row has.
                return None;
            }
            for (left, size) in left.iter_mut().zip(&part.stripes) {
                if *left != u64::MAX {
                    *left -= rounds * size;
                }
            }
            parts.push(Part { end: Some(end), ..part });
            from = end;
        }
        None
    }

    /// That of a layout, with stripes of whole pages.
    pub fn of(placing: &Placing) -> Self {
        let stripe = |size: &u64| if *size > 0 { paged(*size) } else { 0 };
        let part = |part: &Part| RowPart { stripes: part.stripes.iter().map(stripe).collect(), share: 1.0 };
        Self { parts: placing.parts.iter().map(part).collect() }
    }

    /// Whether the parts have the same classes.
    pub fn same_sets(&self, other: &Self) -> bool {
        let sets = |row: &Self| -> Vec<Vec<bool>> {
            row.parts.iter().map(|part| part.stripes.iter().map(|size| *size > 0).collect()).collect()
        };
        sets(self) == sets(other)
    }

    /// How many things there are to choose: the stripe of each class of each part, all stripes of a part together,
    /// and its share.
    pub fn choices(&self) -> usize {
        self.parts.len() * (self.parts[0].stripes.len() + 2)
    }

    /// The row with every other value of one choice, each with what it has to gain to be taken: what is only beside the
    /// stripe that there is, and no round number, may fit the sample and not the program.
    pub fn variants(&self, choice: usize, search: &Search<'_>) -> Vec<(Self, f64)> {
        let classes = self.parts[0].stripes.len();
        let (part, which) = (choice / (classes + 2), choice % (classes + 2));
        let with = |change: &dyn Fn(&mut RowPart)| {
            let mut row = self.clone();
            change(&mut row.parts[part]);
            row
        };
        let here = &self.parts[part];
        let sizes = sizes(search);
        match which {
            _ if which < classes && here.stripes[which] == 0 => Vec::new(),
            _ if which <= classes => {
                let taking = |part: &mut RowPart, change: &dyn Fn(u64) -> u64| {
                    let chosen = part.stripes.iter_mut().enumerate();
                    let chosen =
                        chosen.filter(|(class, size)| **size > 0 && (which == classes || *class == which));
                    chosen.for_each(|(_, size)| *size = change(*size));
                };
                let round = sizes.iter().map(|size| (with(&|part| taking(part, &|_| *size)), BETTER));
                let beside = BESIDE.iter().map(|quarters| {
                    (with(&|part| taking(part, &|size| times(size, *quarters))), BESIDE_WORTH)
                });
                round.chain(beside).collect()
            }
            _ if part + 1 == self.parts.len() => Vec::new(),
            _ => SHARES.iter().map(|share| (with(&|part| part.share = *share), BETTER)).collect(),
        }
    }
}

/// A stripe so many quarters as long.
fn times(stripe: u64, quarters: u64) -> u64 {
    paged(stripe * quarters / 4)
}

/// A stripe of whole pages that holds so many bytes.
fn paged(bytes: u64) -> u64 {
    bytes.clamp(STRIPE_MIN, STRIPE_MAX).next_multiple_of(STRIPE_MIN)
}

/// Stripe sizes that may be worth trying: powers of two, and parts and multiples of the usual request; one that whole
/// requests fill, however long they are.
fn sizes(search: &Search<'_>) -> Vec<u64> {
    let size = search.unit.request_size();
    let targets: u64 = search.figures.classes.iter().map(|class| u64::from(class.targets)).sum();
    let mut sizes: Vec<u64> = (16..=23).map(|shift| 1 << shift).collect();
    sizes.extend([1, 2, 4, 8].map(|part| size / part));
    sizes.extend([2, 4, 16].map(|times| size.saturating_mul(times)));
    sizes.extend(search.figures.classes.iter().map(|class| size / u64::from(class.targets)));
    sizes.push(size / targets);
    sizes.push(size.saturating_mul(STRIPE_MIN >> size.trailing_zeros().min(STRIPE_MIN.trailing_zeros())));
    sizes.retain(|size| (STRIPE_MIN..=STRIPE_MAX).contains(size));
    sizes.push(size);
    sizes.iter_mut().for_each(|size| *size = paged(*size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Where the search begins.
pub fn rows(search: &Search<'_>) -> Vec<Row> {
    let classes = search.figures.classes.len();
    let sets: Vec<Vec<bool>> = if classes <= SETS_CLASSES_MAX {
        (1..1u32 << classes).map(|set| (0..classes).map(|class| set >> class & 1 == 1).collect()).collect()
    } else {
        let alone = (0..classes).map(|only| (0..classes).map(|class| class == only).collect());
        alone.chain([vec![true; classes]]).collect()
    };
    let mut found = Vec::new();
    let mut chosen = Vec::new();
    sequences(search, &sets, &mut chosen, &mut found);
    found
}

/// All rows of different sets, of which all but the last have a class with limited room.
fn sequences(search: &Search<'_>, sets: &[Vec<bool>], chosen: &mut Vec<Vec<bool>>, found: &mut Vec<Row>) {
    let limited = |set: &[bool]| set.iter().zip(search.rooms).any(|(on, room)| *on && *room != u64::MAX);
    for set in sets.iter().filter(|set| !chosen.contains(set)).cloned().collect::<Vec<_>>() {
        let goes_on = limited(&set) && chosen.len() + 1 < PARTS_MAX.min(search.parts_max);
        chosen.push(set);
        found.extend(begun(search, chosen));
        if goes_on {
            sequences(search, sets, chosen, found);
        }
        chosen.pop();
    }
}

/// A row of sets with a few stripe sizes to begin with.
fn begun(search: &Search<'_>, sets: &[Vec<bool>]) -> Vec<Row> {
    let size = search.unit.request_size();
    let targets = |set: &[bool]| -> u64 {
        let of = set.iter().zip(&search.figures.classes).filter(|(on, _)| **on);
        of.map(|(_, class)| u64::from(class.targets)).sum()
    };
    let even = |part: &dyn Fn(&[bool]) -> u64| {
        let parts = sets.iter().map(|set| {
            let stripe = paged(part(set));
            RowPart { stripes: set.iter().map(|on| if *on { stripe } else { 0 }).collect(), share: 1.0 }
        });
        Row { parts: parts.collect() }
    };
    let mut found = vec![
        // A request to one target; to all of them; to a quarter.
        even(&|_| size),
        even(&|set| size / targets(set)),
        even(&|set| size.saturating_mul(4) / targets(set)),
        even(&|_| 1 << 20),
    ];
    found.push(balanced(search, sets));
    found
}

/// Stripes in proportion to how quickly classes serve, so that all are done at a time.
fn balanced(search: &Search<'_>, sets: &[Vec<bool>]) -> Row {
    let size = search.unit.request_size() as f64;
    let speed = |class: usize| {
        let figures = &search.figures.classes[class];
        let network = 1e3 / search.figures.network.mb_s;
        let of = search.unit.kinds.iter().map(|kind| {
            let service = figures.service(kind.direction);
            let takes = if kind.sequential {
                service.sequential.ns(kind.len)
            } else {
                service.random_ns(8, kind.len)
            };
            (kind.count() as f64, takes.max(kind.len * network))
        });
        let (count, time) = of.fold((0.0, 0.0), |(n, sum), (count, takes)| (n + count, sum + count * takes));
        if time > 0.0 { count / time } else { 1.0 }
    };
    let speeds: Vec<f64> = (0..search.figures.classes.len()).map(speed).collect();
    let part = |set: &Vec<bool>| {
        let all: f64 = set
            .iter()
            .enumerate()
            .filter(|(_, on)| **on)
            .map(|(class, _)| speeds[class] * f64::from(search.figures.classes[class].targets))
            .sum();
        let stripe = |class: usize| {
            let bytes = 4.0 * size * speeds[class] / all;
            paged((bytes / STRIPE_MIN as f64).round() as u64 * STRIPE_MIN)
        };
        let stripes = set.iter().enumerate().map(|(class, on)| if *on { stripe(class) } else { 0 }).collect();
        RowPart { stripes, share: 1.0 }
    };
    Row { parts: sets.iter().map(part).collect() }
}

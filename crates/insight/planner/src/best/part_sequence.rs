//! Layout candidates as the search represents them, the initial candidates, and their neighbors.

use super::{GAIN_MIN_DEFAULT, Search};
use crate::placement::{ClassPlacement, PlacementPart};

/// Maximum number of parts of a candidate. Moving a part to hot ranges may create more.
const PARTS_MAX: usize = 3;
/// With more classes than this, only each class alone and all classes together are tried.
const SUBSET_CLASSES_MAX: usize = 3;
/// Smallest stripe and granularity of all stripes, bytes. With other sizes a request that ends with a stripe would
/// leave a partial page to be read back.
pub const STRIPE_MIN: u64 = 4096;
/// Largest stripe, bytes.
const STRIPE_MAX: u64 = 1 << 26;
/// Neighboring stripe sizes relative to the current one, in quarters.
const NEIGHBOR_QUARTERS: [u64; 4] = [2, 3, 6, 8];
/// Relative gain that a neighboring size needs.
const NEIGHBOR_GAIN_MIN: f64 = 0.01;
/// Fractions of the available capacity that a part may use.
const CAPACITY_FRACTIONS: [f64; 5] = [1.0, 0.875, 0.75, 0.5, 0.25];

/// A layout in the form that the search varies.
#[derive(Clone, Debug)]
pub struct PartSequence {
    parts: Vec<SequencePart>,
}

#[derive(Clone, Debug)]
struct SequencePart {
    /// Stripe size by class in whole pages; 0 for classes that do not take part.
    stripes: Vec<u64>,
    /// Fraction of the remaining capacity that the part uses.
    share: f64,
}

impl PartSequence {
    /// Converts to a layout; `None` if the capacity does not suffice.
    pub fn placement(&self, search: &Search<'_>) -> Option<ClassPlacement> {
        let figures = search.figures;
        let extent = search.group.extent.max(1);
        let files = search.group.files.max(1);
        let per_file = |capacity: &u64| if *capacity == u64::MAX { u64::MAX } else { capacity / files };
        let mut left: Vec<u64> = search.capacities.iter().map(per_file).collect();
        let mut parts = Vec::new();
        let mut from = 0;
        for (number, sequence_part) in self.parts.iter().enumerate() {
            let part = PlacementPart { start: from, end: None, stripes: sequence_part.stripes.clone() };
            let last = number + 1 == self.parts.len();
            let fits = |left: &[u64]| {
                (0..left.len()).all(|class| part.bytes_per_target(figures, class, extent) <= left[class])
            };
            if last {
                if !fits(&left) {
                    return None;
                }
                parts.push(part);
                return Some(ClassPlacement { parts });
            }
            let limited = left
                .iter()
                .zip(&part.stripes)
                .filter(|(capacity, size)| **capacity != u64::MAX && **size > 0);
            let rounds =
                limited.map(|(capacity, size)| (*capacity as f64 * sequence_part.share) as u64 / size).min();
            let rounds = match rounds {
                // A part without a capacity limit takes a fraction of the file.
                None if sequence_part.share < 1.0 => {
                    ((extent - from) as f64 * sequence_part.share) as u64 / part.round(figures).max(1)
                }
                None => return None,
                Some(rounds) => rounds,
            };
            let end = from.checked_add(rounds.checked_mul(part.round(figures))?)?;
            if rounds == 0 || end >= extent {
                // Nothing remains for later parts. Another candidate covers that case.
                return None;
            }
            for (left, size) in left.iter_mut().zip(&part.stripes) {
                if *left != u64::MAX {
                    *left -= rounds * size;
                }
            }
            parts.push(PlacementPart { end: Some(end), ..part });
            from = end;
        }
        None
    }

    /// The candidate of a layout, with stripes rounded to whole pages.
    pub fn of(placement: &ClassPlacement) -> Self {
        let stripe = |size: &u64| if *size > 0 { whole_pages(*size) } else { 0 };
        let part = |part: &PlacementPart| SequencePart {
            stripes: part.stripes.iter().map(stripe).collect(),
            share: 1.0,
        };
        Self { parts: placement.parts.iter().map(part).collect() }
    }

    /// Whether both candidates use the same classes in each part.
    pub fn same_classes(&self, other: &Self) -> bool {
        let sets = |sequence: &Self| -> Vec<Vec<bool>> {
            sequence.parts.iter().map(|part| part.stripes.iter().map(|size| *size > 0).collect()).collect()
        };
        sets(self) == sets(other)
    }

    /// Number of parameters: the stripe size of each class in each part, all stripe sizes of a part together, and the
    /// part's fraction of the capacity.
    pub fn parameters(&self) -> usize {
        self.parts.len() * (self.parts[0].stripes.len() + 2)
    }

    /// All candidates that differ in one parameter, each with the relative gain it needs to be accepted. A neighboring
    /// size that is not a round number needs more, since it may fit the sample rather than the program.
    pub fn variants(&self, parameter: usize, search: &Search<'_>) -> Vec<(Self, f64)> {
        let classes = self.parts[0].stripes.len();
        let (part, which) = (parameter / (classes + 2), parameter % (classes + 2));
        let with = |change: &dyn Fn(&mut SequencePart)| {
            let mut sequence = self.clone();
            change(&mut sequence.parts[part]);
            sequence
        };
        let here = &self.parts[part];
        let stripe_sizes = stripe_sizes(search);
        match which {
            _ if which < classes && here.stripes[which] == 0 => Vec::new(),
            _ if which <= classes => {
                let taking = |part: &mut SequencePart, change: &dyn Fn(u64) -> u64| {
                    let chosen = part.stripes.iter_mut().enumerate();
                    let chosen =
                        chosen.filter(|(class, size)| **size > 0 && (which == classes || *class == which));
                    chosen.for_each(|(_, size)| *size = change(*size));
                };
                let round = stripe_sizes
                    .iter()
                    .map(|size| (with(&|part| taking(part, &|_| *size)), GAIN_MIN_DEFAULT));
                let neighbors = NEIGHBOR_QUARTERS.iter().map(|quarters| {
                    (with(&|part| taking(part, &|size| scaled(size, *quarters))), NEIGHBOR_GAIN_MIN)
                });
                round.chain(neighbors).collect()
            }
            _ if part + 1 == self.parts.len() => Vec::new(),
            _ => CAPACITY_FRACTIONS
                .iter()
                .map(|share| (with(&|part| part.share = *share), GAIN_MIN_DEFAULT))
                .collect(),
        }
    }
}

/// A stripe scaled by `quarters` / 4.
fn scaled(stripe: u64, quarters: u64) -> u64 {
    whole_pages(stripe * quarters / 4)
}

/// Rounds up to whole pages within the limits of a stripe.
fn whole_pages(bytes: u64) -> u64 {
    bytes.clamp(STRIPE_MIN, STRIPE_MAX).next_multiple_of(STRIPE_MIN)
}

/// Stripe sizes worth trying: powers of two, fractions and multiples of the typical request, and a size that whole
/// requests always fill.
fn stripe_sizes(search: &Search<'_>) -> Vec<u64> {
    let size = search.group.request_size();
    let targets: u64 = search.figures.classes.iter().map(|class| u64::from(class.targets)).sum();
    let mut stripe_sizes: Vec<u64> = (16..=23).map(|shift| 1 << shift).collect();
    stripe_sizes.extend([1, 2, 4, 8].map(|part| size / part));
    stripe_sizes.extend([2, 4, 16].map(|factor| size.saturating_mul(factor)));
    stripe_sizes.extend(search.figures.classes.iter().map(|class| size / u64::from(class.targets)));
    stripe_sizes.push(size / targets);
    stripe_sizes
        .push(size.saturating_mul(STRIPE_MIN >> size.trailing_zeros().min(STRIPE_MIN.trailing_zeros())));
    stripe_sizes.retain(|size| (STRIPE_MIN..=STRIPE_MAX).contains(size));
    stripe_sizes.push(size);
    stripe_sizes.iter_mut().for_each(|size| *size = whole_pages(*size));
    stripe_sizes.sort_unstable();
    stripe_sizes.dedup();
    stripe_sizes
}

/// Initial candidates of the search.
pub fn seeds(search: &Search<'_>) -> Vec<PartSequence> {
    let classes = search.figures.classes.len();
    let sets: Vec<Vec<bool>> = if classes <= SUBSET_CLASSES_MAX {
        (1..1u32 << classes).map(|set| (0..classes).map(|class| set >> class & 1 == 1).collect()).collect()
    } else {
        let alone = (0..classes).map(|only| (0..classes).map(|class| class == only).collect());
        alone.chain([vec![true; classes]]).collect()
    };
    let mut found = Vec::new();
    let mut chosen = Vec::new();
    extend_sequences(search, &sets, &mut chosen, &mut found);
    found
}

/// All sequences of different class subsets in which every subset but the last has a class of limited capacity.
fn extend_sequences(
    search: &Search<'_>,
    sets: &[Vec<bool>],
    chosen: &mut Vec<Vec<bool>>,
    found: &mut Vec<PartSequence>,
) {
    let limited =
        |set: &[bool]| set.iter().zip(search.capacities).any(|(on, capacity)| *on && *capacity != u64::MAX);
    for set in sets.iter().filter(|set| !chosen.contains(set)).cloned().collect::<Vec<_>>() {
        let continues = limited(&set) && chosen.len() + 1 < PARTS_MAX.min(search.parts_max);
        chosen.push(set);
        found.extend(seeds_of(search, chosen));
        if continues {
            extend_sequences(search, sets, chosen, found);
        }
        chosen.pop();
    }
}

/// Initial candidates for a sequence of class subsets.
fn seeds_of(search: &Search<'_>, sets: &[Vec<bool>]) -> Vec<PartSequence> {
    let size = search.group.request_size();
    let targets = |set: &[bool]| -> u64 {
        let of = set.iter().zip(&search.figures.classes).filter(|(on, _)| **on);
        of.map(|(_, class)| u64::from(class.targets)).sum()
    };
    let even = |part: &dyn Fn(&[bool]) -> u64| {
        let parts = sets.iter().map(|set| {
            let stripe = whole_pages(part(set));
            SequencePart { stripes: set.iter().map(|on| if *on { stripe } else { 0 }).collect(), share: 1.0 }
        });
        PartSequence { parts: parts.collect() }
    };
    let mut found = vec![
        // A request goes to one target, to all targets, or to a quarter of them.
        even(&|_| size),
        even(&|set| size / targets(set)),
        even(&|set| size.saturating_mul(4) / targets(set)),
        even(&|_| 1 << 20),
    ];
    found.push(balanced(search, sets));
    found
}

/// Stripes proportional to the speed of each class, so that all targets finish a request together.
fn balanced(search: &Search<'_>, sets: &[Vec<bool>]) -> PartSequence {
    let size = search.group.request_size() as f64;
    let speed = |class: usize| {
        let figures = &search.figures.classes[class];
        let network = 1e3 / search.figures.network.mb_s;
        let of = search.group.kinds.iter().map(|kind| {
            let service = figures.service(kind.direction);
            let device_ns = if kind.sequential {
                service.sequential.ns(kind.len)
            } else {
                service.random_ns(8, kind.len)
            };
            (kind.count() as f64, device_ns.max(kind.len * network))
        });
        let (count, time) = of.fold((0.0, 0.0), |(n, sum), (count, ns)| (n + count, sum + count * ns));
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
            whole_pages((bytes / STRIPE_MIN as f64).round() as u64 * STRIPE_MIN)
        };
        let stripes = set.iter().enumerate().map(|(class, on)| if *on { stripe(class) } else { 0 }).collect();
        SequencePart { stripes, share: 1.0 }
    };
    PartSequence { parts: sets.iter().map(part).collect() }
}

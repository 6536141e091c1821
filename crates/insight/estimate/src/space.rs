//! The space of layouts that are tried on the twin: a grid, and the neighbors of a layout.

use weft_planner::{ClassPlacement, Figures, PlacementPart};

/// Stripe sizes that are always tried, KiB.
const SIZES_KIB: [u64; 4] = [64, 256, 1024, 4096];
/// Fractions of a request that are tried as stripes.
const REQUEST_DIVISORS: [u64; 3] = [1, 2, 4];
/// Maximum parts of a layout with more than two classes. Each part then has equal stripes on all its classes.
const PARTS_MAX: usize = 3;
/// Smallest stripe and granularity of all stripes, bytes.
const STRIPE_MIN: u64 = 4096;
/// Neighboring stripe sizes relative to the current one, in quarters.
const NEIGHBOR_QUARTERS: [u64; 4] = [2, 3, 6, 8];
/// Fractions of the remaining capacity that a part may use, in eighths.
const CAPACITY_EIGHTHS: [u64; 4] = [8, 7, 6, 4];

/// A space of layouts for one file on a cluster.
#[derive(Clone, Copy, Debug)]
pub struct SearchSpace<'a> {
    /// Figures of the cluster.
    pub figures: &'a Figures,
    /// Capacity of each target by class, bytes.
    pub capacities: &'a [u64],
    /// Length of the file, bytes.
    pub extent: u64,
    /// Length of the typical request, bytes.
    pub request: u64,
}

/// A layout in the form that the search varies: consecutive parts, each ending at the latest where a class is full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartSequence(Vec<SequencePart>);

/// Stripe sizes by class, and the fraction of the remaining capacity in use, in eighths.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SequencePart {
    stripes: Vec<u64>,
    share: u64,
}

impl SearchSpace<'_> {
    /// All layouts of the grid. With two classes: one or two parts with every pair of stripe sizes. With more: up to
    /// three parts, each over any subset of classes with equal stripes. Every part but the last uses its whole
    /// capacity.
    pub fn all(&self) -> Vec<(PartSequence, ClassPlacement)> {
        let sizes = self.sizes();
        let classes = self.capacities.len();
        let (choices, most) = if classes > 2 {
            let stripes = |set: u32, size: u64| -> Vec<u64> {
                (0..classes).map(|class| if set >> class & 1 == 1 { size } else { 0 }).collect()
            };
            let sets = 1..1u32 << classes;
            (sets.flat_map(|set| sizes.iter().map(move |size| stripes(set, *size))).collect(), PARTS_MAX)
        } else {
            (stripe_assignments(&sizes, classes), 2)
        };
        let mut found = Vec::new();
        let mut sequences = vec![PartSequence(Vec::new())];
        for _ in 0..most {
            let with = |sequence: &PartSequence| {
                let last = sequence.0.last().map(|part| part.stripes.clone());
                let others = choices.iter().filter(|stripes| last.as_ref() != Some(stripes));
                let one = |stripes: &Vec<u64>| {
                    let part = SequencePart { stripes: stripes.clone(), share: CAPACITY_EIGHTHS[0] };
                    PartSequence([sequence.0.as_slice(), &[part]].concat())
                };
                others.map(one).collect::<Vec<_>>()
            };
            sequences = sequences.iter().flat_map(with).collect();
            let placed = |sequence: &PartSequence| Some((sequence.clone(), self.placement(sequence)?));
            found.extend(sequences.iter().filter_map(placed));
            // A part without an end leaves nothing to later parts.
            sequences.retain(|sequence| self.left(sequence).is_some());
        }
        found
    }

    /// Layouts with one stripe size on all targets, each target until it is full.
    pub fn fixed(&self) -> Vec<(PartSequence, ClassPlacement)> {
        let fixed = |size: &u64| {
            let mut left = self.capacities.to_vec();
            let mut sequence = PartSequence(Vec::new());
            loop {
                let stripes: Vec<u64> =
                    left.iter().map(|capacity| if *capacity >= *size { *size } else { 0 }).collect();
                if stripes.iter().all(|size| *size == 0) {
                    return None;
                }
                sequence.0.push(SequencePart { stripes, share: CAPACITY_EIGHTHS[0] });
                if let Some(placement) = self.placement(&sequence) {
                    return Some((sequence, placement));
                }
                left = self.left(&sequence)?.1;
            }
        };
        self.sizes().iter().filter_map(fixed).collect()
    }

    /// Neighbors of a layout: one stripe size, or all of a part, scaled by 0.5, 0.75, 1.5 or 2, or another fraction of
    /// the capacity for one part.
    pub fn neighbors(&self, sequence: &PartSequence) -> Vec<(PartSequence, ClassPlacement)> {
        let mut sequences: Vec<PartSequence> = Vec::new();
        for (number, part) in sequence.0.iter().enumerate() {
            let mut with = |changed: SequencePart| {
                let mut other = sequence.clone();
                other.0[number] = changed;
                if !sequences.contains(&other) {
                    sequences.push(other);
                }
            };
            let taking = (0..part.stripes.len()).filter(|class| part.stripes[*class] > 0);
            let taking: Vec<usize> = taking.collect();
            for quarters in NEIGHBOR_QUARTERS {
                for classes in taking.iter().map(std::slice::from_ref).chain([taking.as_slice()]) {
                    let mut part = part.clone();
                    for class in classes {
                        let size = part.stripes[*class] * quarters / 4;
                        part.stripes[*class] = size.next_multiple_of(STRIPE_MIN);
                    }
                    with(part);
                }
            }
            // The last part takes the rest, so its fraction has no effect.
            let is_last = number + 1 == sequence.0.len();
            let shares = CAPACITY_EIGHTHS.iter().filter(|share| !is_last && **share != part.share);
            for share in shares {
                with(SequencePart { share: *share, ..part.clone() });
            }
        }
        let mut found: Vec<(PartSequence, ClassPlacement)> = Vec::new();
        for sequence in sequences {
            // Different fractions of few rounds may give the same layout.
            let is_new = |it: &ClassPlacement| !found.iter().any(|(_, other)| other == it);
            if let Some(placement) = self.placement(&sequence).filter(is_new) {
                found.push((sequence, placement));
            }
        }
        found
    }

    fn sizes(&self) -> Vec<u64> {
        let mut sizes = SIZES_KIB.map(|kib| kib << 10).to_vec();
        sizes.extend(REQUEST_DIVISORS.map(|part| self.request / part));
        sizes.retain(|size| *size >= STRIPE_MIN);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Converts to a layout, if the last part has capacity for the rest and every other part is non-empty.
    fn placement(&self, sequence: &PartSequence) -> Option<ClassPlacement> {
        let (last, before) = sequence.0.split_last()?;
        let (mut parts, left) = self.left(&PartSequence(before.to_vec()))?;
        let start = parts.last().map_or(0, |part: &PlacementPart| part.end.expect("all but the last end"));
        let last = PlacementPart { start, end: None, stripes: last.stripes.clone() };
        let full = self.ends(&last, &left);
        parts.push(last);
        (full >= self.extent).then_some(ClassPlacement { parts })
    }

    /// Parts that all end before the file does, and the capacity they leave.
    fn left(&self, sequence: &PartSequence) -> Option<(Vec<PlacementPart>, Vec<u64>)> {
        let (mut parts, mut left, mut start) = (Vec::new(), self.capacities.to_vec(), 0);
        for SequencePart { stripes, share } in &sequence.0 {
            let part = PlacementPart { start, end: None, stripes: stripes.clone() };
            let round = part.round(self.figures);
            let full = self.ends(&part, &left);
            if full == u64::MAX {
                return None;
            }
            let rounds = (full - start) / round * share / CAPACITY_EIGHTHS[0];
            let end = start + rounds * round;
            if rounds == 0 || end >= self.extent {
                return None;
            }
            for (left, size) in left.iter_mut().zip(&part.stripes).filter(|(left, _)| **left != u64::MAX) {
                *left -= rounds * size;
            }
            parts.push(PlacementPart { end: Some(end), ..part });
            start = end;
        }
        Some((parts, left))
    }

    /// End of a part in whole rounds, where a class is full.
    fn ends(&self, part: &PlacementPart, left: &[u64]) -> u64 {
        let limited = (0..left.len()).filter(|class| part.stripes[*class] > 0 && left[*class] != u64::MAX);
        let rounds = limited.map(|class| left[class] / part.stripes[class]).min().unwrap_or(u64::MAX);
        rounds.saturating_mul(part.round(self.figures)).saturating_add(part.start)
    }
}

/// Every assignment of a stripe size or none to each class, except none for all.
fn stripe_assignments(sizes: &[u64], classes: usize) -> Vec<Vec<u64>> {
    let mut stripes: Vec<Vec<u64>> = vec![Vec::new()];
    for _ in 0..classes {
        let with = |before: &Vec<u64>| {
            let one = |size: &u64| [before.as_slice(), &[*size]].concat();
            [0].iter().chain(sizes).map(one).collect::<Vec<_>>()
        };
        stripes = stripes.iter().flat_map(with).collect();
    }
    stripes.retain(|stripes| stripes.iter().any(|size| *size > 0));
    stripes
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_planner::Bytes;

    fn figures(capacities: &[Option<u64>]) -> Figures {
        let class = |(number, capacity): (usize, &Option<u64>)| {
            format!(
                "[[classes]]\nname = \"c{number}\"\ntargets = 2\n{}\n\
                 read = {{ sequential = {{ startup_us = 1, mb_s = 1 }}, random = [{{ depth = 1, startup_us = 1, mb_s = 1 }}] }}\n\
                 write = {{ sequential = {{ startup_us = 1, mb_s = 1 }}, random = [{{ depth = 1, startup_us = 1, mb_s = 1 }}] }}\n",
                capacity.map_or_else(String::new, |capacity| format!("capacity = \"{}\"", Bytes(capacity)))
            )
        };
        let classes: String = capacities.iter().enumerate().map(class).collect();
        Figures::from_toml(&format!("[network]\nconnect_us = 1\nmb_s = 100\n{classes}")).unwrap()
    }

    #[test]
    fn all_layouts_fit_and_are_distinct() {
        for capacities in [vec![None, Some(8 << 20)], vec![None, Some(2 << 20), Some(8 << 20)]] {
            let figures = figures(&capacities);
            let capacities: Vec<u64> =
                capacities.iter().map(|capacity| capacity.unwrap_or(u64::MAX)).collect();
            let (extent, request) = (64 << 20, 512 << 10);
            let space = SearchSpace { figures: &figures, capacities: &capacities, extent, request };
            let all = space.all();
            let neighbors = all.iter().step_by(7).map(|(sequence, _)| space.neighbors(sequence));
            for layouts in [space.all(), space.fixed()].into_iter().chain(neighbors) {
                assert!(layouts.len() > 3);
                for (number, (_, placement)) in layouts.iter().enumerate() {
                    assert!(placement.fits(&figures, &capacities, 64 << 20, 1), "{placement:?}");
                    assert!(!layouts[..number].iter().any(|(_, other)| other == placement), "{placement:?}");
                }
            }
            // All parts have the same stripe size, and the first one uses all classes.
            for (_, placement) in space.fixed() {
                let sizes: Vec<u64> = placement.parts.iter().flat_map(|part| part.stripes.clone()).collect();
                assert!(sizes.iter().all(|size| *size == 0 || *size == sizes[0]), "{placement:?}");
            }
        }
    }

    #[test]
    fn neighbors_differ_in_one_parameter() {
        let figures = figures(&[None, Some(8 << 20)]);
        let space = SearchSpace {
            figures: &figures,
            capacities: &[u64::MAX, 8 << 20],
            extent: 64 << 20,
            request: 512 << 10,
        };
        let part = |stripes: [u64; 2], share| SequencePart { stripes: stripes.to_vec(), share };
        let sequence = PartSequence(vec![part([0, 1 << 20], 8), part([1 << 20, 0], 8)]);
        let neighbors = space.neighbors(&sequence);
        for ((hdd, ssd, end), is_there) in [
            ((1 << 20, 2 << 20, 16 << 20), true),
            ((768 << 10, 1 << 20, 16 << 20), true),
            ((1 << 20, 1 << 20, 14 << 20), true),
            ((1 << 20, 1 << 20, 8 << 20), true),
            ((2 << 20, 2 << 20, 16 << 20), false),
            ((1 << 20, 4 << 20, 16 << 20), false),
        ] {
            let wanted = ClassPlacement::two(vec![0, ssd], end, vec![hdd, 0]);
            assert_eq!(neighbors.iter().any(|(_, placement)| *placement == wanted), is_there, "{wanted:?}");
        }
    }
}

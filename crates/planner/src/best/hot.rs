//! Which ranges of a file deserve the room of fast classes.

use super::Search;
use crate::figures::Figures;
use crate::mix::Kind;
use crate::placing::{Part, Placing};

/// Slices of the file that are told apart.
const SLICES: usize = 256;
/// Ranges of fast classes at most.
const RANGES_MAX: usize = 16;
/// So much more than where they are must be gained by moving ranges.
const GAIN_MIN: f64 = 1.05;

/// The layout with its first part, which has limited room, where it saves most: one range, or several.
pub fn moved(search: &Search<'_>, placing: &Placing) -> Vec<Placing> {
    let [first, rest] = placing.parts.as_slice() else { return Vec::new() };
    let extent = search.unit.extent.max(1);
    let Some(room) = first.end.filter(|end| *end < extent) else { return Vec::new() };
    let (round, rest_round) = (first.round(search.figures), rest.round(search.figures));
    let width = extent.div_ceil(SLICES as u64).next_multiple_of(align(round, rest_round)).max(1);
    let saved = savings(search.figures, &search.unit.kinds, first, rest, extent, width);
    let slices = (room / width) as usize;
    if slices == 0 || slices >= saved.len() {
        return Vec::new();
    }
    let sum = |begin: usize| saved[begin..begin + slices].iter().sum::<f64>();
    let mut found = Vec::new();
    let best = (0..=saved.len() - slices).max_by(|&a, &b| sum(a).total_cmp(&sum(b)).then(b.cmp(&a)));
    if let Some(best) = best.filter(|&best| sum(best) > GAIN_MIN * sum(0)) {
        found.push(std::iter::once(best..best + slices).collect());
    }
    let mut order: Vec<usize> = (0..saved.len()).collect();
    order.sort_by(|&a, &b| saved[b].total_cmp(&saved[a]).then(a.cmp(&b)));
    let mut hot = vec![false; saved.len()];
    order.into_iter().take(slices).for_each(|slice| hot[slice] = true);
    let mut ranges = ranges(&hot);
    ranges.sort_by(|a, b| {
        let density = |range: &std::ops::Range<usize>| saved[range.clone()].iter().sum::<f64>();
        density(b).total_cmp(&density(a)).then(a.start.cmp(&b.start))
    });
    ranges.truncate(RANGES_MAX);
    let several: f64 = ranges.iter().map(|range| saved[range.clone()].iter().sum::<f64>()).sum();
    if ranges.len() > 1 && several > GAIN_MIN * best.map_or(0.0, sum) {
        ranges.sort_by_key(|range| range.start);
        found.push(ranges);
    }
    let placing = |ranges: Vec<std::ops::Range<usize>>| laid_out(first, rest, width, &ranges);
    found.into_iter().map(placing).filter(|placing| search.fits(placing)).collect()
}

/// A width at whose multiples neither part cuts a round, where that is not too wide.
fn align(a: u64, b: u64) -> u64 {
    let larger = a.max(b);
    if larger.is_multiple_of(a.min(b).max(1)) { larger } else { a }
}

/// Time that the first part saves over the second in each slice, by requests one at a time.
fn savings(
    figures: &Figures,
    kinds: &[Kind],
    first: &Part,
    rest: &Part,
    extent: u64,
    width: u64,
) -> Vec<f64> {
    let mut saved = vec![0.0; extent.div_ceil(width) as usize];
    for kind in kinds {
        let saving = (takes(figures, kind, rest) - takes(figures, kind, first)).max(0.0);
        for (slice, saved) in saved.iter_mut().enumerate() {
            let begin = slice as u64 * width;
            let count = kind.places.before(begin.saturating_add(width)) - kind.places.before(begin);
            *saved += count * saving;
        }
    }
    saved
}

/// What a request keeps the targets of a part busy, all together.
fn takes(figures: &Figures, kind: &Kind, part: &Part) -> f64 {
    let round = part.round(figures) as f64;
    let mut sum = 0.0;
    for (class, stripe) in part.stripes.iter().enumerate().filter(|(_, stripe)| **stripe > 0) {
        let targets = f64::from(figures.classes[class].targets);
        let service = figures.classes[class].service(kind.direction);
        let bytes = kind.len * *stripe as f64 / round;
        // So many of them take part in a request.
        let touched = targets * (kind.len / round).max(*stripe as f64 / round).min(1.0);
        let line = if kind.sequential { service.sequential } else { service.alone() };
        sum += touched * line.startup_ns() + bytes * targets * line.byte_ns();
    }
    sum
}

fn ranges(hot: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for slice in (0..hot.len()).filter(|slice| hot[*slice]) {
        match ranges.last_mut().filter(|range| range.end == slice) {
            Some(range) => range.end += 1,
            None => ranges.push(slice..slice + 1),
        }
    }
    ranges
}

/// The fast part in these slices, the other one elsewhere.
fn laid_out(first: &Part, rest: &Part, width: u64, ranges: &[std::ops::Range<usize>]) -> Placing {
    let mut parts = Vec::new();
    let mut from = 0;
    for range in ranges {
        let (start, end) = (range.start as u64 * width, range.end as u64 * width);
        if start > from {
            parts.push(Part { start: from, end: Some(start), stripes: rest.stripes.clone() });
        }
        parts.push(Part { start, end: Some(end), stripes: first.stripes.clone() });
        from = end;
    }
    parts.push(Part { start: from, end: None, stripes: rest.stripes.clone() });
    Placing { parts }
}

//! Chooses the ranges of a file that a limited fast class should hold.
//!
//! The file is cut into at most 256 slices. The saving of a slice is the device time that its requests would save on
//! the fast part. The capacity goes to the contiguous range with the greatest total saving, or to up to 16 separate
//! ranges if that saves more.

use super::Search;
use crate::figures::Figures;
use crate::mix::RequestKind;
use crate::placement::{ClassPlacement, PlacementPart};

/// Maximum number of slices of a file.
const SLICES: usize = 256;
/// Maximum number of ranges on the fast part.
const RANGES_MAX: usize = 16;
/// Factor by which the saving must exceed that of the current position.
const GAIN_MIN: f64 = 1.05;

/// Variants of a two-part layout whose limited first part covers the hottest range, or several ranges.
pub fn variants(search: &Search<'_>, placement: &ClassPlacement) -> Vec<ClassPlacement> {
    let [first, rest] = placement.parts.as_slice() else { return Vec::new() };
    let extent = search.group.extent.max(1);
    let Some(capacity) = first.end.filter(|end| *end < extent) else { return Vec::new() };
    let (round, rest_round) = (first.round(search.figures), rest.round(search.figures));
    let width = extent.div_ceil(SLICES as u64).next_multiple_of(align(round, rest_round)).max(1);
    let saved = savings(search.figures, &search.group.kinds, first, rest, extent, width);
    let slices = (capacity / width) as usize;
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
    let mut is_hot = vec![false; saved.len()];
    order.into_iter().take(slices).for_each(|slice| is_hot[slice] = true);
    let mut ranges = ranges(&is_hot);
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
    let placement = |ranges: Vec<std::ops::Range<usize>>| interleaved(first, rest, width, &ranges);
    found.into_iter().map(placement).filter(|placement| search.fits(placement)).collect()
}

/// A slice width at whose multiples neither part cuts a stripe round, if that is not too wide.
fn align(a: u64, b: u64) -> u64 {
    let larger = a.max(b);
    if larger.is_multiple_of(a.min(b).max(1)) { larger } else { a }
}

/// Device time that the first part saves over the second in each slice, for requests served one at a time.
fn savings(
    figures: &Figures,
    kinds: &[RequestKind],
    first: &PlacementPart,
    rest: &PlacementPart,
    extent: u64,
    width: u64,
) -> Vec<f64> {
    let mut saved = vec![0.0; extent.div_ceil(width) as usize];
    for kind in kinds {
        let saving = (device_ns(figures, kind, rest) - device_ns(figures, kind, first)).max(0.0);
        for (slice, saved) in saved.iter_mut().enumerate() {
            let begin = slice as u64 * width;
            let count =
                kind.offsets.count_before(begin.saturating_add(width)) - kind.offsets.count_before(begin);
            *saved += count * saving;
        }
    }
    saved
}

/// Device time of a request summed over all targets of a part.
fn device_ns(figures: &Figures, kind: &RequestKind, part: &PlacementPart) -> f64 {
    let round = part.round(figures) as f64;
    let mut sum = 0.0;
    for (class, stripe) in part.stripes.iter().enumerate().filter(|(_, stripe)| **stripe > 0) {
        let targets = f64::from(figures.classes[class].targets);
        let service = figures.classes[class].service(kind.direction);
        let bytes = kind.len * *stripe as f64 / round;
        // Number of targets that a request touches.
        let touched = targets * (kind.len / round).max(*stripe as f64 / round).min(1.0);
        let line = if kind.sequential { service.sequential } else { service.alone() };
        sum += touched * line.startup_ns() + bytes * targets * line.byte_ns();
    }
    sum
}

fn ranges(is_hot: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for slice in (0..is_hot.len()).filter(|slice| is_hot[*slice]) {
        match ranges.last_mut().filter(|range| range.end == slice) {
            Some(range) => range.end += 1,
            None => ranges.push(slice..slice + 1),
        }
    }
    ranges
}

/// Covers these slices with the fast part and the rest of the file with the other one.
fn interleaved(
    first: &PlacementPart,
    rest: &PlacementPart,
    width: u64,
    ranges: &[std::ops::Range<usize>],
) -> ClassPlacement {
    let mut parts = Vec::new();
    let mut from = 0;
    for range in ranges {
        let (start, end) = (range.start as u64 * width, range.end as u64 * width);
        if start > from {
            parts.push(PlacementPart { start: from, end: Some(start), stripes: rest.stripes.clone() });
        }
        parts.push(PlacementPart { start, end: Some(end), stripes: first.stripes.clone() });
        from = end;
    }
    parts.push(PlacementPart { start: from, end: None, stripes: rest.stripes.clone() });
    ClassPlacement { parts }
}

//! Layouts by class: which classes hold which range of a file, and with which stripe sizes.

use crate::bytes::Bytes;
use crate::figures::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_core::{ByteLen, Component, FileOffset, Layout, LayoutError, Strip, TargetId};

/// A range of a file, striped over all targets of some classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementPart {
    /// First byte.
    pub start: u64,
    /// One past the last byte; `None` for the end of the file.
    pub end: Option<u64>,
    /// Stripe size by class in the order of the figures; 0 for classes that do not take part.
    pub stripes: Vec<u64>,
}

/// Stripe size beyond the planned length of a file, bytes.
const BEYOND_STRIPE: u64 = 1 << 20;

impl PlacementPart {
    /// Bytes of one round over all targets.
    pub fn round(&self, figures: &Figures) -> u64 {
        self.stripes.iter().zip(&figures.classes).map(|(size, class)| size * u64::from(class.targets)).sum()
    }

    /// Maximum bytes that a target of `class` holds of this part, for a file of `extent` bytes.
    pub fn bytes_per_target(&self, figures: &Figures, class: usize, extent: u64) -> u64 {
        let len = self.end.unwrap_or(u64::MAX).min(extent).saturating_sub(self.start);
        let round = self.round(figures).max(1);
        len / round * self.stripes[class] + self.stripes[class].min(len % round)
    }
}

/// A layout by class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassPlacement {
    /// The parts, which cover the file without gaps.
    pub parts: Vec<PlacementPart>,
}

impl ClassPlacement {
    /// A single part for the whole file.
    pub fn whole(stripes: Vec<u64>) -> Self {
        Self { parts: vec![PlacementPart { start: 0, end: None, stripes }] }
    }

    /// Ends the last part if it uses a class of limited capacity, so that a file that outgrows `extent` continues
    /// elsewhere. The part ends with the round that holds byte `extent`. The new last part covers the unlimited
    /// classes, with their stripe sizes or else 1 MiB.
    #[must_use]
    pub fn bounded(mut self, figures: &Figures, extent: u64) -> Self {
        let last = self.parts.last_mut().expect("a layout covers the file");
        let is_limited = |class: usize| figures.classes[class].capacity.is_some();
        let used = |class: usize| last.stripes[class] > 0;
        let classes = 0..figures.classes.len();
        if !classes.clone().any(|class| used(class) && is_limited(class)) {
            return self;
        }
        let goes_on = classes.clone().any(|class| used(class) && !is_limited(class));
        let stripe = |class: usize| match is_limited(class) {
            true => 0,
            false if goes_on => last.stripes[class],
            false => BEYOND_STRIPE,
        };
        let stripes: Vec<u64> = classes.map(stripe).collect();
        if stripes.iter().all(|size| *size == 0) {
            return self;
        }
        let round = last.round(figures).max(1);
        let rounds = extent.saturating_sub(last.start).div_ceil(round).max(1);
        let end = last.start.saturating_add(rounds.saturating_mul(round));
        last.end = Some(end);
        self.parts.push(PlacementPart { start: end, end: None, stripes });
        self
    }

    /// A part up to `boundary` and another one after it; either may be empty.
    pub fn two(head: Vec<u64>, boundary: u64, tail: Vec<u64>) -> Self {
        match boundary {
            0 => Self::whole(tail),
            u64::MAX => Self::whole(head),
            _ => Self {
                parts: vec![
                    PlacementPart { start: 0, end: Some(boundary), stripes: head },
                    PlacementPart { start: boundary, end: None, stripes: tail },
                ],
            },
        }
    }

    /// Maximum bytes that a target of `class` holds of a file of `extent` bytes.
    pub fn bytes_per_target(&self, figures: &Figures, class: usize, extent: u64) -> u64 {
        self.parts.iter().map(|part| part.bytes_per_target(figures, class, extent)).sum()
    }

    /// Whether `files` files of at most `extent` bytes fit the capacity of every class.
    pub fn fits(&self, figures: &Figures, capacities: &[u64], extent: u64, files: u64) -> bool {
        let needed = |class: usize| self.bytes_per_target(figures, class, extent).saturating_mul(files);
        (0..capacities.len()).all(|class| needed(class) <= capacities[class])
    }

    /// Converts to a layout over concrete targets; `targets` lists those of each class.
    ///
    /// # Errors
    /// When the parts are not a valid layout.
    pub fn layout(&self, targets: &[Vec<TargetId>]) -> Result<Layout, LayoutError> {
        let component = |part: &PlacementPart| Component {
            start: FileOffset(part.start),
            end: part.end.map(FileOffset),
            strips: part
                .stripes
                .iter()
                .zip(targets)
                .filter(|(size, _)| **size > 0)
                .flat_map(|(size, targets)| {
                    targets.iter().map(|&target| Strip { target, stripe_size: ByteLen(*size) })
                })
                .collect(),
        };
        Layout::from_components(self.parts.iter().map(component).collect())
    }

    /// Converts to a layout over the targets of the figures.
    ///
    /// # Panics
    /// When the placement is not a valid layout.
    pub fn on_figures(&self, figures: &Figures) -> Layout {
        self.layout(&figures.targets()).expect("a placement is a layout")
    }

    /// Cuts the placement to the capacity of the classes, for `files` files of at most `extent` bytes. Where a class is
    /// full, the file continues on the other classes of the part, with their stripe sizes. If there are none, it continues
    /// on all classes of unlimited capacity, in stripes of 1 MiB. `capacities` is in bytes per target, for all files.
    ///
    /// The result fits if a class is unlimited. It has at most one further part for each part and limited class.
    #[must_use]
    pub fn within(self, figures: &Figures, capacities: &[u64], extent: u64, files: u64) -> Self {
        let files = files.max(1);
        if self.fits(figures, capacities, extent, files) {
            return self;
        }
        let per_file = |capacity: &u64| if *capacity == u64::MAX { u64::MAX } else { capacity / files };
        let mut left: Vec<u64> = capacities.iter().map(per_file).collect();
        let unlimited: Vec<u64> =
            left.iter().map(|left| if *left == u64::MAX { BEYOND_STRIPE } else { 0 }).collect();
        let mut parts = Vec::new();
        for mut rest in self.parts {
            loop {
                let full: Vec<usize> = (0..left.len())
                    .filter(|&class| rest.bytes_per_target(figures, class, extent) > left[class])
                    .collect();
                // Up to here all classes have space: to the end of the part, or until the first class is full.
                let rounds = full.iter().map(|&class| left[class] / rest.stripes[class]).min();
                let end = rounds.map_or(rest.end, |rounds| {
                    Some(rest.start.saturating_add(rounds.saturating_mul(rest.round(figures))))
                });
                let fitting = PlacementPart { end, ..rest.clone() };
                for (class, left) in left.iter_mut().enumerate().filter(|(_, left)| **left != u64::MAX) {
                    *left = left.saturating_sub(fitting.bytes_per_target(figures, class, extent));
                }
                if rounds != Some(0) {
                    parts.push(fitting);
                }
                if full.is_empty() {
                    break;
                }
                rest.start = end.unwrap_or(rest.start);
                let stripes = rest.stripes.clone();
                for class in full {
                    if left[class] < stripes[class] {
                        rest.stripes[class] = 0;
                    }
                }
                if rest.stripes.iter().all(|size| *size == 0) {
                    if unlimited.iter().all(|size| *size == 0) {
                        // No class has space for the rest.
                        parts.push(PlacementPart { stripes, ..rest });
                        break;
                    }
                    rest.stripes.clone_from(&unlimited);
                }
            }
        }
        Self { parts }
    }

    /// The form used in plan files.
    pub fn to_plan(&self, figures: &Figures) -> Vec<PlanPart> {
        let stripes = |part: &PlacementPart| {
            let named = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
            named.map(|(size, class)| (class.name.clone(), Bytes(*size))).collect()
        };
        let part = |part: &PlacementPart| PlanPart {
            from: Bytes(part.start),
            to: part.end.map(Bytes),
            stripes: stripes(part),
            targets: BTreeMap::new(),
        };
        self.parts.iter().map(part).collect()
    }

    /// Parses the form written by [`to_plan`](Self::to_plan).
    ///
    /// # Errors
    /// An unknown class, or parts that are not consecutive.
    pub fn from_plan(parts: &[PlanPart], figures: &Figures) -> Result<Self, String> {
        let mut next = Some(0);
        let mut read = Vec::new();
        for part in parts {
            if !part.targets.is_empty() {
                return Err(format!("the part from {} uses only some targets of a class", part.from));
            }
            let mut stripes = vec![0; figures.classes.len()];
            for (name, size) in &part.stripes {
                let class = figures.classes.iter().position(|class| class.name == *name);
                stripes[class.ok_or_else(|| format!("no class is called {name:?}"))?] = size.0;
            }
            if next != Some(part.from.0) || part.to.is_some_and(|to| to <= part.from) {
                return Err(format!("the part from {} does not follow the one before it", part.from));
            }
            if stripes.iter().all(|size| *size == 0) {
                return Err(format!("the part from {} has no stripes", part.from));
            }
            next = part.to.map(|to| to.0);
            read.push(PlacementPart { start: part.from.0, end: part.to.map(|to| to.0), stripes });
        }
        if read.is_empty() || next.is_some() {
            return Err("the last part must extend to the end of the file".into());
        }
        Ok(Self { parts: read })
    }
}

/// A part in a plan file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanPart {
    /// First byte of the file.
    pub from: Bytes,
    /// One past the last byte; absent for the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Bytes>,
    /// Stripe size by class.
    pub stripes: BTreeMap<String, Bytes>,
    /// Number of targets by class, for classes of which not all targets take part. Only present layouts have them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, u32>,
}

impl PlanPart {
    fn class_text(&self, class: &str, size: Bytes) -> String {
        match self.targets.get(class) {
            Some(1) => format!("{class} {size} on 1 target"),
            Some(count) => format!("{class} {size} on {count} targets"),
            None => format!("{class} {size}"),
        }
    }
}

impl fmt::Display for PlanPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            _ if self.from.0 == 0 && self.to.is_none() => write!(f, "all: ")?,
            Some(to) => write!(f, "{}..{to}: ", self.from)?,
            None => write!(f, "from {}: ", self.from)?,
        }
        let stripes: Vec<String> =
            self.stripes.iter().map(|(class, size)| self.class_text(class, *size)).collect();
        f.write_str(&stripes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{class, hybrid};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_that_outgrows_the_plan_continues_on_unlimited_classes() {
        let figures = hybrid((6, 9_000.0, 70.0), (2, 100.0, 400.0), Some(24 * MIB));
        let part = |start, end, hdd, ssd| PlacementPart { start, end, stripes: vec![hdd, ssd] };

        // SSDs alone: 20 MiB are two and a half rounds of 8 MiB.
        let on_ssds = ClassPlacement::whole(vec![0, 4 * MIB]).bounded(&figures, 20 * MIB);
        assert_eq!(
            on_ssds.parts,
            [part(0, Some(24 * MIB), 0, 4 * MIB), part(24 * MIB, None, BEYOND_STRIPE, 0)]
        );

        // All targets: a round is 6 * 1 + 2 * 2 MiB, and the disks keep their stripe size after it.
        let on_all = ClassPlacement::whole(vec![MIB, 2 * MIB]).bounded(&figures, 20 * MIB);
        assert_eq!(on_all.parts, [part(0, Some(20 * MIB), MIB, 2 * MIB), part(20 * MIB, None, MIB, 0)]);

        // Unchanged without a limited class in the last part, or without an unlimited class.
        let two = ClassPlacement::two(vec![0, MIB], 4 * MIB, vec![MIB, 0]);
        assert_eq!(two.clone().bounded(&figures, 20 * MIB), two);
        let mut all_limited = figures;
        all_limited.classes = vec![class("ssd", 2, 100.0, 400.0, Some(24 * MIB))];
        let whole = ClassPlacement::whole(vec![MIB]);
        assert_eq!(whole.clone().bounded(&all_limited, 20 * MIB), whole);
    }

    #[test]
    fn a_cut_layout_fits() {
        let mut state = 7u64;
        let mut any = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut cut = 0;
        for case in 0..2000 {
            let mut figures =
                hybrid((1 + any(4) as u32, 9_000.0, 70.0), (1 + any(3) as u32, 100.0, 400.0), None);
            figures.classes.push(class("nvme", 1 + any(2) as u32, 20.0, 2000.0, None));
            let capacities = [u64::MAX, any(40) << 18, any(40) << 18];
            let (extent, files) = (any(1 << 26), 1 + any(3));
            let mut parts = Vec::new();
            let mut start = 0;
            for number in 0..=any(3) {
                let mut stripes: Vec<u64> = (0..3).map(|_| any(5) * 65_536).collect();
                if stripes.iter().all(|size| *size == 0) {
                    stripes[any(3) as usize] = 65_536;
                }
                let end = start + (1 + any(1 << 10)) * 4096;
                parts.push(PlacementPart { start, end: Some(end), stripes });
                start = end;
                assert!(number <= 3);
            }
            parts.last_mut().expect("a part").end = None;
            let before = ClassPlacement { parts };
            let fits = before.fits(&figures, &capacities, extent, files);
            let after = before.clone().within(&figures, &capacities, extent, files);
            assert!(after.fits(&figures, &capacities, extent, files), "case {case}: {before:?} {after:?}");
            assert!(!fits || after == before, "case {case}");
            assert!(after.parts.len() <= 4 * before.parts.len(), "case {case}: {after:?}");
            let layout = after.on_figures(&figures);
            assert_eq!(layout.components().len(), after.parts.len());
            cut += u32::from(!fits);
        }
        assert!(cut > 200, "{cut}");
        // Without an unlimited class, the rest stays where it was.
        let mut figures = hybrid((1, 1.0, 1.0), (1, 1.0, 1.0), Some(MIB));
        figures.classes[0].capacity = Some(Bytes(MIB));
        let whole = ClassPlacement::whole(vec![MIB, MIB]);
        let cut = whole.within(&figures, &[MIB, MIB], 8 * MIB, 1);
        assert_eq!(cut.parts.len(), 2, "{cut:?}");
    }
}

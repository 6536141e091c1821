//! Layouts by class: which classes hold which range of a file, with which stripe sizes.

use crate::bytes::Bytes;
use crate::figures::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_core::{ByteLen, Component, FileOffset, Layout, LayoutError, Strip, TargetId};

/// A range of the file and the classes that it is dealt out over, all targets of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// First byte.
    pub start: u64,
    /// One past the last; `None` to the end of the file.
    pub end: Option<u64>,
    /// Stripe size of each class, in the order of the figures; 0 for a class that takes no part.
    pub stripes: Vec<u64>,
}

/// The stripes of what nobody planned for.
const BEYOND_STRIPE: u64 = 1 << 20;

impl Part {
    /// Bytes of a round.
    pub fn round(&self, figures: &Figures) -> u64 {
        self.stripes.iter().zip(&figures.classes).map(|(size, class)| size * u64::from(class.targets)).sum()
    }

    /// The most that a target of `class` holds of the part of a file of `extent` bytes.
    pub fn held(&self, figures: &Figures, class: usize, extent: u64) -> u64 {
        let len = self.end.unwrap_or(u64::MAX).min(extent).saturating_sub(self.start);
        let round = self.round(figures).max(1);
        len / round * self.stripes[class] + self.stripes[class].min(len % round)
    }
}

/// A layout by class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placing {
    /// Its parts, which cover the file.
    pub parts: Vec<Part>,
}

impl Placing {
    /// One part over all of the file.
    pub fn whole(stripes: Vec<u64>) -> Self {
        Self { parts: vec![Part { start: 0, end: None, stripes }] }
    }

    /// The same for a file of `extent` bytes, but one that grows beyond goes on where there is room for all: a last part
    /// over a class with limited room ends with the round in which the file does, and behind it is a part over the classes
    /// without limit, with the same stripes or else 1 MiB.
    #[must_use]
    pub fn bounded(mut self, figures: &Figures, extent: u64) -> Self {
        let last = self.parts.last_mut().expect("a layout covers the file");
        let is_limited = |class: usize| figures.classes[class].room.is_some();
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
        self.parts.push(Part { start: end, end: None, stripes });
        self
    }

    /// A first part up to `boundary` and a second one behind it; either may be empty.
    pub fn two(head: Vec<u64>, boundary: u64, tail: Vec<u64>) -> Self {
        match boundary {
            0 => Self::whole(tail),
            u64::MAX => Self::whole(head),
            _ => Self {
                parts: vec![
                    Part { start: 0, end: Some(boundary), stripes: head },
                    Part { start: boundary, end: None, stripes: tail },
                ],
            },
        }
    }

    /// Most bytes that a target of `class` holds of a file of `extent` bytes.
    pub fn held(&self, figures: &Figures, class: usize, extent: u64) -> u64 {
        self.parts.iter().map(|part| part.held(figures, class, extent)).sum()
    }

    /// Whether files of together `extent_sum` bytes, each of at most `extent`, fit the room of every class.
    pub fn fits(&self, figures: &Figures, rooms: &[u64], extent: u64, files: u64) -> bool {
        (0..rooms.len()).all(|class| self.held(figures, class, extent).saturating_mul(files) <= rooms[class])
    }

    /// As a layout of targets; `targets` has those of each class.
    ///
    /// # Errors
    /// As layouts are checked.
    pub fn layout(&self, targets: &[Vec<TargetId>]) -> Result<Layout, LayoutError> {
        let component = |part: &Part| Component {
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

    /// As it stands in a plan.
    pub fn written(&self, figures: &Figures) -> Vec<PartFile> {
        let stripes = |part: &Part| {
            let named = part.stripes.iter().zip(&figures.classes).filter(|(size, _)| **size > 0);
            named.map(|(size, class)| (class.name.clone(), Bytes(*size))).collect()
        };
        let part = |part: &Part| PartFile {
            from: Bytes(part.start),
            to: part.end.map(Bytes),
            stripes: stripes(part),
        };
        self.parts.iter().map(part).collect()
    }

    /// What [`written`](Self::written) wrote.
    ///
    /// # Errors
    /// A class that there is not; parts that do not follow each other.
    pub fn read(parts: &[PartFile], figures: &Figures) -> Result<Self, String> {
        let mut next = Some(0);
        let mut read = Vec::new();
        for part in parts {
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
            read.push(Part { start: part.from.0, end: part.to.map(|to| to.0), stripes });
        }
        if read.is_empty() || next.is_some() {
            return Err("the last part has to go to the end of the file".into());
        }
        Ok(Self { parts: read })
    }
}

/// A part as it stands in a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFile {
    /// First byte of the file.
    pub from: Bytes,
    /// One past the last; without it to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Bytes>,
    /// Stripe size by class.
    pub stripes: BTreeMap<String, Bytes>,
}

impl fmt::Display for PartFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            _ if self.from.0 == 0 && self.to.is_none() => write!(f, "all: ")?,
            Some(to) => write!(f, "{}..{to}: ", self.from)?,
            None => write!(f, "from {}: ", self.from)?,
        }
        let stripes: Vec<String> =
            self.stripes.iter().map(|(class, size)| format!("{class} {size}")).collect();
        f.write_str(&stripes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{class, hybrid};

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_grows_beyond_the_plan_goes_on_where_there_is_room() {
        let figures = hybrid((6, 9_000.0, 70.0), (2, 100.0, 400.0), Some(24 * MIB));
        let part = |start, end, hdd, ssd| Part { start, end, stripes: vec![hdd, ssd] };

        // On SSDs alone: 20 MiB are two and a half rounds of 8 MiB.
        let on_ssds = Placing::whole(vec![0, 4 * MIB]).bounded(&figures, 20 * MIB);
        assert_eq!(
            on_ssds.parts,
            [part(0, Some(24 * MIB), 0, 4 * MIB), part(24 * MIB, None, BEYOND_STRIPE, 0)]
        );

        // On all: a round is 6 * 1 + 2 * 2 MiB, and disks keep their stripes behind it.
        let on_all = Placing::whole(vec![MIB, 2 * MIB]).bounded(&figures, 20 * MIB);
        assert_eq!(on_all.parts, [part(0, Some(20 * MIB), MIB, 2 * MIB), part(20 * MIB, None, MIB, 0)]);

        // Nothing limited in the last part, or no class without limit: as it was.
        let two = Placing::two(vec![0, MIB], 4 * MIB, vec![MIB, 0]);
        assert_eq!(two.clone().bounded(&figures, 20 * MIB), two);
        let mut all_limited = figures;
        all_limited.classes = vec![class("ssd", 2, 100.0, 400.0, Some(24 * MIB))];
        let whole = Placing::whole(vec![MIB]);
        assert_eq!(whole.clone().bounded(&all_limited, 20 * MIB), whole);
    }
}

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

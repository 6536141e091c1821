//! Access patterns, recognized incrementally from requests.

mod nest;
mod overlap;
mod stream;

pub use nest::{LEVELS_MAX, Loop};
pub use overlap::Overlap;
pub use stream::{Shape, Stream};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the ranks share a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// A single rank uses the file.
    One,
    /// Each rank accesses a range of its own.
    Segmented,
    /// The ranges of the ranks overlap or interleave.
    Interleaved,
}

impl Sharing {
    /// Human-readable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one rank each",
            Self::Segmented => "segmented by rank",
            Self::Interleaved => "ranks interleaved",
        }
    }
}

/// The access pattern of a file or file group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pattern {
    /// The order in which a rank accesses a file: the shape of most bytes.
    #[serde(flatten)]
    pub shape: Shape,
    /// How the ranks share a file.
    pub sharing: Sharing,
    /// Fraction of the bytes whose streams have this shape, 0 to 1.
    pub share: f64,
}

/// Fraction of the bytes that must have one shape; otherwise the pattern is mixed.
const SHARE_MIN: f64 = 0.6;

impl Pattern {
    /// Combines the streams of all ranks; each item holds the streams of one file.
    pub fn of<'a>(files: impl Iterator<Item = Vec<&'a Stream>>) -> Self {
        // Grouped by name, because strides differ between ranks with parts of different size.
        let mut shapes: BTreeMap<&'static str, (u128, Shape, u64)> = BTreeMap::new();
        let (mut one, mut segmented, mut interleaved, mut all) = (0u128, 0u128, 0u128, 0u128);
        for mut streams in files {
            let bytes: u128 = streams.iter().map(|stream| u128::from(stream.bytes)).sum();
            all += bytes;
            streams.sort_by_key(|stream| stream.low);
            match streams.as_slice() {
                [] | [_] => one += bytes,
                streams if disjoint(streams) => segmented += bytes,
                _ => interleaved += bytes,
            }
            for stream in streams {
                let shape = stream.shape();
                let entry = shapes.entry(shape.name()).or_insert((0, shape.clone(), 0));
                entry.0 += u128::from(stream.bytes);
                if stream.requests > entry.2 {
                    (entry.1, entry.2) = (shape, stream.requests);
                }
            }
        }
        let sharing = match one.max(segmented).max(interleaved) {
            most if most == one => Sharing::One,
            most if most == segmented => Sharing::Segmented,
            _ => Sharing::Interleaved,
        };
        let mut found: Vec<(u128, Shape)> =
            shapes.into_values().map(|(bytes, shape, _)| (bytes, shape)).collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let share = |bytes: u128| if all == 0 { 0.0 } else { bytes as f64 / all as f64 };
        let Some((most, shape)) = found.first().cloned() else {
            return Self { shape: Shape::Few, sharing, share: 0.0 };
        };
        if share(most) >= SHARE_MIN {
            return Self { shape, sharing, share: share(most) };
        }
        let significant: Vec<(u128, Shape)> =
            found.into_iter().filter(|(bytes, _)| share(*bytes) >= 0.1).collect();
        let sum = significant.iter().map(|(bytes, _)| bytes).sum();
        Self {
            shape: Shape::Mixed { phases: significant.into_iter().map(|(_, shape)| shape).collect() },
            sharing,
            share: share(sum),
        }
    }
}

/// Whether no two streams overlap. The streams are sorted by their first byte.
fn disjoint(streams: &[&Stream]) -> bool {
    streams.windows(2).all(|pair| pair[0].high <= pair[1].low)
}

#[cfg(test)]
mod tests;

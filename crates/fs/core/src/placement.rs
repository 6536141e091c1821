//! Placement of new files without an explicit layout.

use crate::layout::{Layout, LayoutError};
use crate::random::mix64;
use crate::units::{ByteLen, FileId, ServerId, TargetId};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// Striping policy for new files, per cluster, path rule or create hint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// Stripe size in bytes (`striping_unit`).
    pub stripe_size: ByteLen,
    /// Number of targets per file (`striping_factor`).
    pub factor: Factor,
    /// Classes of targets that may be used.
    pub class: ClassFilter,
    /// First target of a file.
    pub start: Start,
}

impl Placement {
    /// Default stripe size: 1 MiB. A request costs one message per target that it touches. With the papers' 64 KiB, 72
    /// % of the 47,008-byte transfers of IO500's ior-hard cross a stripe boundary; with 1 MiB, 4.5 %.
    pub const DEFAULT_STRIPE_SIZE: ByteLen = ByteLen::from_mib(1);
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            stripe_size: Self::DEFAULT_STRIPE_SIZE,
            factor: Factor::All,
            class: ClassFilter::Any,
            start: Start::Rotate,
        }
    }
}

/// Number of targets per file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// All targets that the class filter admits.
    All,
    /// At most this many.
    AtMost(NonZeroU16),
}

/// Classes of targets that a file may use.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassFilter {
    /// Every class.
    Any,
    /// Only these classes.
    Only(Vec<String>),
}

impl ClassFilter {
    fn admits(&self, class: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(classes) => classes.iter().any(|c| c == class),
        }
    }
}

/// First target of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Rotates from file to file, so that small files and first stripes spread evenly.
    Rotate,
    /// Always the first one.
    First,
}

/// A target that could hold a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<'a> {
    /// The target.
    pub target: TargetId,
    /// Its server.
    pub server: ServerId,
    /// Its class.
    pub class: &'a str,
}

/// Reason why no layout can be chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// No target is available.
    #[error(
        "no target is available for a new file ({admitted}); start a server that has one, or widen the class"
    )]
    NoTarget {
        /// The admitted classes, in words.
        admitted: String,
    },
    /// The stripe size or the number of targets is invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl Placement {
    /// Chooses the layout for `file` over the available targets, given in any order.
    ///
    /// Neighboring columns are on different servers where possible. Equal arguments give equal layouts everywhere.
    ///
    /// # Errors
    /// When no target has an admitted class, or the stripe size is invalid.
    pub fn choose(&self, available: &[Candidate<'_>], file: FileId) -> Result<Layout, PlacementError> {
        let mut targets = by_server(available.iter().filter(|c| self.class.admits(c.class)));
        if targets.is_empty() {
            let admitted = match &self.class {
                ClassFilter::Any => "of any class".into(),
                ClassFilter::Only(classes) => format!("of class {}", classes.join(", ")),
            };
            return Err(PlacementError::NoTarget { admitted });
        }
        if self.start == Start::Rotate {
            let start = rotation(file, targets.len());
            targets.rotate_left(start);
        }
        if let Factor::AtMost(factor) = self.factor {
            targets.truncate(usize::from(factor.get()));
        }
        Ok(Layout::striped(&targets, self.stripe_size)?)
    }
}

/// Returns targets in the order of a round: neighbors are on different servers where possible.
pub(crate) fn by_server<'a>(candidates: impl Iterator<Item = &'a Candidate<'a>>) -> Vec<TargetId> {
    let mut targets: Vec<(ServerId, TargetId)> = candidates.map(|c| (c.server, c.target)).collect();
    targets.sort_unstable();
    targets.dedup();
    interleave(&targets)
}

/// Orders targets: the first of each server, then the second of each, and so on.
fn interleave(sorted: &[(ServerId, TargetId)]) -> Vec<TargetId> {
    let mut ranked = Vec::with_capacity(sorted.len());
    for (index, &(server, target)) in sorted.iter().enumerate() {
        let first = sorted.partition_point(|&(s, _)| s < server);
        ranked.push((index - first, server, target));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, target)| target).collect()
}

/// Returns the index of the first target of a file.
///
/// Every aligned group of `targets` consecutive ids starts exactly once on each target, which a hash of the id would
/// not achieve. A hash shifts the order from group to group, so that ids a constant step apart (a directory for every
/// file, one creator among several) spread as well, which a plain remainder would not achieve.
pub(crate) fn rotation(file: FileId, targets: usize) -> usize {
    let targets = targets as u64;
    ((file.0 % targets + mix64(file.0 / targets) % targets) % targets) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: [Candidate<'static>; 6] = {
        const fn of(target: u32, server: u32, class: &'static str) -> Candidate<'static> {
            Candidate { target: TargetId(target), server: ServerId(server), class }
        }
        [of(5, 0, "hdd"), of(1, 0, "ssd"), of(2, 1, "hdd"), of(3, 1, "ssd"), of(4, 2, "hdd"), of(6, 2, "hdd")]
    };

    fn chosen(placement: &Placement, file: u64) -> Vec<u32> {
        let layout = placement.choose(&CLUSTER, FileId(file)).unwrap();
        layout.objects().map(|(_, target)| target.0).collect()
    }

    #[test]
    fn neighbors_are_on_different_servers() {
        assert_eq!(chosen(&Placement::default(), 0), [1, 2, 4, 5, 3, 6]);
        assert_eq!(chosen(&Placement::default(), 1), [2, 4, 5, 3, 6, 1]);
    }

    #[test]
    fn class_and_factor_are_respected() {
        let class = ClassFilter::Only(vec!["ssd".into(), "nvme".into()]);
        let ssd = Placement { class, ..Placement::default() };
        assert_eq!(chosen(&ssd, 0), [1, 3]);
        let two = Placement { factor: Factor::AtMost(NonZeroU16::new(2).unwrap()), ..Placement::default() };
        assert_eq!(chosen(&two, 2), [4, 5]);
        let first = Placement { start: Start::First, ..two.clone() };
        assert_eq!(chosen(&first, 2), [1, 2]);
        let many = Placement { factor: Factor::AtMost(NonZeroU16::MAX), ..Placement::default() };
        assert_eq!(chosen(&many, 0).len(), 6);
    }

    #[test]
    fn the_order_of_the_candidates_does_not_matter() {
        let mut reversed = CLUSTER;
        reversed.reverse();
        let placement = Placement::default();
        assert_eq!(placement.choose(&reversed, FileId(77)), placement.choose(&CLUSTER, FileId(77)));
    }

    #[test]
    fn first_targets_are_even_for_every_step_of_ids() {
        for targets in 1..=12usize {
            for step in 1..=24u64 {
                let mut begun = vec![0u32; targets];
                let files = targets as u64 * 400;
                for file in 0..files {
                    begun[rotation(FileId(1000 + file * step), targets)] += 1;
                }
                for (target, count) in begun.iter().enumerate() {
                    let even = 300..=500;
                    assert!(
                        even.contains(count),
                        "{count} of {files} on {target}/{targets} by steps of {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn aligned_groups_of_ids_start_once_on_each_target() {
        for targets in 1..=9usize {
            for run in 0..200u64 {
                let mut begun: Vec<_> = (0..targets as u64)
                    .map(|i| rotation(FileId(run * targets as u64 + i), targets))
                    .collect();
                begun.sort_unstable();
                assert!(begun.into_iter().eq(0..targets));
            }
        }
    }

    #[test]
    fn errors_name_the_missing_class() {
        let class = ClassFilter::Only(vec!["tape".into()]);
        let error = Placement { class, ..Placement::default() }.choose(&CLUSTER, FileId(0)).unwrap_err();
        assert!(error.to_string().contains("of class tape"), "{error}");
        let error = Placement::default().choose(&[], FileId(0)).unwrap_err();
        assert!(matches!(error, PlacementError::NoTarget { .. }));
        let zero = Placement { stripe_size: ByteLen::ZERO, ..Placement::default() };
        let error = zero.choose(&CLUSTER, FileId(0)).unwrap_err();
        assert!(matches!(error, PlacementError::Layout(LayoutError::ZeroStripe { .. })));
    }
}

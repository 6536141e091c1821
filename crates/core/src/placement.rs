//! The layout that a new file gets when nobody asked for a particular one.

use crate::layout::{Layout, LayoutError};
use crate::units::{ByteLen, FileId, ServerId, TargetId};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// How new files are striped: a policy value, per cluster, path rule or create hint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// Bytes per stripe (`striping_unit`).
    pub stripe_size: ByteLen,
    /// Targets per file (`striping_factor`).
    pub factor: Factor,
    /// Which targets may be used.
    pub class: ClassFilter,
    /// Where a file begins.
    pub start: Start,
}

impl Placement {
    /// 1 MiB. A request costs one message per target that it touches: at the papers' 64 KiB, 72 % of the
    /// 47,008-byte transfers of IO500's ior-hard cross a stripe boundary, at 1 MiB 4.5 %.
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

/// Over how many targets a file is striped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// Over all that the class filter leaves.
    All,
    /// Over this many, or all where there are fewer.
    AtMost(NonZeroU16),
}

/// Which classes of target a file may use.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassFilter {
    /// Every class.
    Any,
    /// Targets of these classes only.
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

/// On which target a file begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// On another one from file to file, so that small files and first stripes spread evenly.
    Rotate,
    /// On the first one.
    First,
}

/// A target that could take a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<'a> {
    /// The target.
    pub target: TargetId,
    /// Its server.
    pub server: ServerId,
    /// Its class.
    pub class: &'a str,
}

/// Why no layout could be chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// No target is left to choose from.
    #[error(
        "no target is available for a new file ({admitted}); start a server that has one, or widen the class"
    )]
    NoTarget {
        /// What the class filter admits, in words.
        admitted: String,
    },
    /// The stripe size or the number of targets is out of bounds.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl Placement {
    /// The layout for `file` over the targets that are available now, in any order.
    ///
    /// Neighboring columns are on different servers as far as that goes, and the same arguments give the same
    /// layout everywhere.
    ///
    /// # Errors
    /// When no target has an admitted class, or the stripe size is one that no layout may have.
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

/// Targets in the order of a round: neighbors are on different servers as far as that goes.
pub(crate) fn by_server<'a>(candidates: impl Iterator<Item = &'a Candidate<'a>>) -> Vec<TargetId> {
    let mut targets: Vec<(ServerId, TargetId)> = candidates.map(|c| (c.server, c.target)).collect();
    targets.sort_unstable();
    targets.dedup();
    interleave(&targets)
}

/// The first target of each server, then the second of each, and so on.
fn interleave(sorted: &[(ServerId, TargetId)]) -> Vec<TargetId> {
    let mut ranked = Vec::with_capacity(sorted.len());
    for (index, &(server, target)) in sorted.iter().enumerate() {
        let first = sorted.partition_point(|&(s, _)| s < server);
        ranked.push((index - first, server, target));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, target)| target).collect()
}

/// Where the file begins.
///
/// Every aligned run of `targets` ids begins once on each target, exactly, which a hash of the id would not give;
/// from run to run the order is turned by a hash, so that ids a constant step apart (a directory for every file,
/// one creator among several) spread too, which a plain remainder would not give.
pub(crate) fn rotation(file: FileId, targets: usize) -> usize {
    let targets = targets as u64;
    ((file.0 % targets + mix(file.0 / targets) % targets) % targets) as usize
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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
    fn class_and_factor_are_kept() {
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
    fn files_begin_evenly_on_all_targets_at_every_step_of_ids() {
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
    fn aligned_runs_of_ids_begin_once_on_each_target() {
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
    fn errors_say_what_is_missing() {
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

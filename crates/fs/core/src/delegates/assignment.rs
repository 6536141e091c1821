//! Assignment of the ranks of a job to delegates, in consecutive blocks (IODC, section III.A).

use crate::units::split_number;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A delegate of a job, from 0 to below the number of delegates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DelegateIndex(pub u32);

impl fmt::Display for DelegateIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delegate {}", self.0)
    }
}

/// Requested number of delegates. Round trips through its text form, such as `2` or `5%`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DelegateCount {
    /// This many delegates.
    Number(u32),
    /// This percentage of the ranks, rounded down.
    Percent(u8),
}

/// Error: the text is not a [`DelegateCount`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is not a number of delegates: use a whole number from \"1\", or a percentage of the ranks from \"1%\" to \
     \"100%\""
)]
pub struct DelegateCountError(pub String);

impl DelegateCount {
    /// Returns the number of delegates of a job: at least 1 and at most `ranks`.
    ///
    /// # Panics
    /// If `ranks` is zero.
    pub fn of(self, ranks: u32) -> u32 {
        assert!(ranks > 0, "a job has at least one rank");
        let requested = match self {
            Self::Number(number) => u64::from(number),
            Self::Percent(percent) => u64::from(ranks) * u64::from(percent) / 100,
        };
        requested.clamp(1, u64::from(ranks)) as u32
    }
}

impl FromStr for DelegateCount {
    type Err = DelegateCountError;

    fn from_str(text: &str) -> Result<Self, DelegateCountError> {
        let count = match split_number(text) {
            Some((number @ 1.., "")) => u32::try_from(number).ok().map(Self::Number),
            Some((percent @ 1..=100, "%")) => Some(Self::Percent(percent as u8)),
            _ => None,
        };
        count.ok_or_else(|| DelegateCountError(text.to_owned()))
    }
}

impl fmt::Display for DelegateCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Returns the delegate that serves a rank, the inverse of [`ranks_of`].
///
/// # Panics
/// If `rank` is not below `ranks`, or `delegates` is zero.
pub fn delegate_of(rank: u32, ranks: u32, delegates: u32) -> DelegateIndex {
    assert!(rank < ranks, "rank {rank} is not below the number of ranks, {ranks}");
    assert!(delegates > 0, "a job has at least one delegate");
    // The last delegate whose block starts at or before `rank`: start(d) <= rank is d * ranks < (rank + 1) * delegates.
    let behind = (u64::from(rank) + 1) * u64::from(delegates);
    DelegateIndex(((behind - 1) / u64::from(ranks)) as u32)
}

/// Returns the ranks that a delegate serves. The sizes of any two blocks differ by at most one. With more delegates
/// than ranks, some blocks are empty.
///
/// # Panics
/// If `delegate` is not below `delegates`.
pub fn ranks_of(delegate: DelegateIndex, ranks: u32, delegates: u32) -> Range<u32> {
    assert!(delegate.0 < delegates, "{delegate} is not below the number of delegates, {delegates}");
    // Products of two u32 fit u64, and the quotient is at most `ranks`.
    let start = |index: u64| (index * u64::from(ranks) / u64::from(delegates)) as u32;
    start(u64::from(delegate.0))..start(u64::from(delegate.0) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn with_two_ranks_per_delegate_ranks_0_and_1_are_at_delegate_0() {
        // The example of IODC, section III.A.
        let delegates: Vec<u32> = (0..6).map(|rank| delegate_of(rank, 6, 3).0).collect();
        assert_eq!(delegates, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn blocks_of_the_largest_job_do_not_overflow() {
        const MAX: u32 = u32::MAX;
        assert_eq!(ranks_of(DelegateIndex(0), MAX, 1), 0..MAX);
        assert_eq!(delegate_of(MAX - 1, MAX, 1), DelegateIndex(0));
        assert_eq!(ranks_of(DelegateIndex(MAX - 1), MAX, MAX), MAX - 1..MAX);
        assert_eq!(delegate_of(MAX - 1, MAX, MAX), DelegateIndex(MAX - 1));
        assert_eq!(ranks_of(DelegateIndex(MAX - 1), 1, MAX), 0..1);
        assert_eq!(delegate_of(0, 1, MAX), DelegateIndex(MAX - 1));
    }

    #[test]
    #[should_panic(expected = "rank 4 is not below the number of ranks, 4")]
    fn a_rank_beyond_the_job_panics() {
        delegate_of(4, 4, 2);
    }

    #[test]
    #[should_panic(expected = "delegate 2 is not below the number of delegates, 2")]
    fn a_delegate_beyond_the_job_panics() {
        ranks_of(DelegateIndex(2), 4, 2);
    }

    #[test]
    fn counts_parse_and_round_trip() {
        for (text, count) in [
            ("1", DelegateCount::Number(1)),
            ("4294967295", DelegateCount::Number(u32::MAX)),
            ("1%", DelegateCount::Percent(1)),
            ("100%", DelegateCount::Percent(100)),
        ] {
            assert_eq!(text.parse(), Ok(count));
            assert_eq!(count.to_string(), text);
        }
        assert_eq!(" 5 % ".parse(), Ok(DelegateCount::Percent(5)));
    }

    #[test]
    fn other_texts_are_rejected_with_a_remedy() {
        for text in ["", "0", "-1", "4294967296", "0%", "101%", "2.5%", "%", "two", "2 nodes"] {
            let error = text.parse::<DelegateCount>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("percentage"), "{error}");
        }
    }

    #[test]
    fn a_job_has_at_least_one_delegate_and_no_more_than_ranks() {
        for (count, ranks, delegates) in [
            (DelegateCount::Number(2), 8, 2),
            (DelegateCount::Number(9), 8, 8),
            (DelegateCount::Number(0), 8, 1),
            (DelegateCount::Percent(5), 1000, 50),
            (DelegateCount::Percent(5), 39, 1),
            (DelegateCount::Percent(5), 40, 2),
            (DelegateCount::Percent(1), 1, 1),
            (DelegateCount::Percent(100), u32::MAX, u32::MAX),
            (DelegateCount::Percent(u8::MAX), 8, 8),
        ] {
            assert_eq!(count.of(ranks), delegates, "{count:?} of {ranks}");
        }
    }

    /// Numbers of ranks or delegates: small ones, which have uneven blocks, and any.
    fn counts() -> impl Strategy<Value = u32> {
        prop_oneof![1u32..100, 1..=u32::MAX]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn blocks_cover_the_ranks_in_order(ranks in 1u32..2000, delegates in 1u32..300) {
            let blocks: Vec<_> = (0..delegates).map(|d| ranks_of(DelegateIndex(d), ranks, delegates)).collect();
            let covered: Vec<u32> = blocks.iter().cloned().flatten().collect();
            prop_assert!(covered.into_iter().eq(0..ranks));
            let (min, max) = (blocks.iter().map(Range::len).min(), blocks.iter().map(Range::len).max());
            prop_assert!(max.unwrap() - min.unwrap() <= 1, "blocks of {:?} to {:?} ranks", min, max);
        }

        #[test]
        fn a_rank_is_in_the_block_of_its_delegate(ranks in counts(), delegates in counts(), position: u64) {
            let rank = (position % u64::from(ranks)) as u32;
            let delegate = delegate_of(rank, ranks, delegates);
            let block = ranks_of(delegate, ranks, delegates);
            prop_assert!(block.contains(&rank), "rank {} is not in {:?} of {}", rank, block, delegate);
        }

        #[test]
        fn every_rank_of_a_block_has_its_delegate(ranks in counts(), delegates in counts(), position: u64) {
            let delegate = DelegateIndex((position % u64::from(delegates)) as u32);
            let block = ranks_of(delegate, ranks, delegates);
            for rank in [Some(block.start), block.clone().last()].into_iter().flatten().filter(|r| block.contains(r)) {
                prop_assert_eq!(delegate_of(rank, ranks, delegates), delegate);
            }
        }
    }
}

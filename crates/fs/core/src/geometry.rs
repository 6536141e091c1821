//! Arithmetic of one component, with precomputed divisors and prefix sums.
//!
//! Offsets in this module are plain `u64`, relative to the component's start ("rel").

use crate::layout::Component;

/// A divisor with a fast path for powers of two, which most stripe sizes are: a shift is far cheaper than a division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    value: u64,
    /// Shift count, or `NO_SHIFT`.
    shift: u32,
}

const NO_SHIFT: u32 = u32::MAX;

impl Divisor {
    fn new(value: u64) -> Self {
        assert!(value > 0, "the layout check rejects empty stripes");
        let shift = if value.is_power_of_two() { value.trailing_zeros() } else { NO_SHIFT };
        Self { value, shift }
    }

    #[inline]
    pub(crate) fn div_rem(self, x: u64) -> (u64, u64) {
        if self.shift == NO_SHIFT {
            (x / self.value, x % self.value)
        } else {
            (x >> self.shift, x & (self.value - 1))
        }
    }
}

/// Method of finding the column of an offset within a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// All stripes are equal: divide.
    Even(Divisor),
    /// Binary search in the prefix sums.
    Prefix,
}

/// A position in a component: number of complete rounds before it, and offset within its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoundPosition {
    pub rounds: u64,
    pub within: u64,
}

/// The precomputed form of a component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// First byte of the file in the component.
    pub start: u64,
    /// One past the last byte. For a component without an end 2^64 - 1, the maximum file size.
    pub end: u64,
    round: Divisor,
    search: Search,
    /// `prefix[c]` is the number of bytes of a round before column `c`; one entry more than there are columns.
    prefix: Box<[u64]>,
    /// Position of `end`.
    full: RoundPosition,
}

impl Geometry {
    pub(crate) fn new(component: &Component) -> Self {
        let strips = &component.strips;
        let mut prefix = Vec::with_capacity(strips.len() + 1);
        let mut sum = 0u64;
        prefix.push(0);
        for strip in strips {
            sum = sum.checked_add(strip.stripe_size.0).expect("stripe limits keep a round below 2^63");
            prefix.push(sum);
        }
        let even = strips.iter().all(|s| s.stripe_size == strips[0].stripe_size);
        let search = if even { Search::Even(Divisor::new(strips[0].stripe_size.0)) } else { Search::Prefix };
        let (start, end) = (component.start.0, component.end.map_or(u64::MAX, |end| end.0));
        let mut this = Self {
            start,
            end,
            round: Divisor::new(sum),
            search,
            prefix: prefix.into_boxed_slice(),
            full: RoundPosition { rounds: 0, within: 0 },
        };
        this.full = this.position(end - start);
        this
    }

    #[inline]
    pub(crate) fn columns(&self) -> usize {
        self.prefix.len() - 1
    }

    /// Returns the length of a round in bytes.
    #[inline]
    pub(crate) fn round(&self) -> u64 {
        self.round.value
    }

    /// Returns the number of bytes of a round before `column`.
    #[inline]
    pub(crate) fn before(&self, column: usize) -> u64 {
        self.prefix[column]
    }

    /// Returns the stripe size of `column` in bytes.
    #[inline]
    pub(crate) fn stripe(&self, column: usize) -> u64 {
        self.prefix[column + 1] - self.prefix[column]
    }

    #[inline]
    pub(crate) fn position(&self, rel: u64) -> RoundPosition {
        let (rounds, within) = self.round.div_rem(rel);
        RoundPosition { rounds, within }
    }

    /// Returns the column that holds byte `within` of a round.
    #[inline]
    pub(crate) fn column(&self, within: u64) -> usize {
        match self.search {
            Search::Even(stripe) => stripe.div_rem(within).0 as usize,
            Search::Prefix => self.prefix.partition_point(|&before| before <= within) - 1,
        }
    }

    /// Returns the number of bytes of `column` before `position`: the length of its datafile if the component is full
    /// up to there.
    #[inline]
    pub(crate) fn held(&self, column: usize, position: RoundPosition) -> u64 {
        let stripe = self.stripe(column);
        position.rounds * stripe + position.within.saturating_sub(self.before(column)).min(stripe)
    }

    /// Returns the number of bytes of `column` in the whole component.
    #[inline]
    pub(crate) fn share(&self, column: usize) -> u64 {
        self.held(column, self.full)
    }

    /// Returns the position in the component of byte `local` of `column`, which must be below the column's share.
    #[inline]
    pub(crate) fn rel(&self, column: usize, local: u64) -> u64 {
        let stripe = self.stripe(column);
        (local / stripe) * self.round() + self.before(column) + local % stripe
    }
}

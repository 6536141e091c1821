//! The arithmetic of one component, with divisors and prefix sums computed once.
//!
//! Inside this module offsets are relative to the component's start ("rel") and plain `u64`.

use crate::layout::Component;

/// A divisor that knows whether it is a power of two: most stripes are, and a shift is far cheaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    value: u64,
    /// Bits to shift by, or `NO_SHIFT`.
    shift: u32,
}

const NO_SHIFT: u32 = u32::MAX;

impl Divisor {
    fn new(value: u64) -> Self {
        assert!(value > 0, "layouts with empty stripes are refused by their check");
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

/// How a column is found inside a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// All stripes are equal: divide.
    Even(Divisor),
    /// Binary search in the prefix sums.
    Prefix,
}

/// A position in a component: complete rounds before it, and bytes into its own round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub rounds: u64,
    pub within: u64,
}

/// The precomputed form of one component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// First byte of the file in the component.
    pub start: u64,
    /// One past its last byte. A component without an end reaches 2^64 - 1, the largest file size there is.
    pub end: u64,
    round: Divisor,
    search: Search,
    /// `prefix[c]` bytes of a round lie before column `c`; one entry more than there are columns.
    prefix: Box<[u64]>,
    /// The position of `end`.
    full: Turn,
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
            full: Turn { rounds: 0, within: 0 },
        };
        this.full = this.turn(end - start);
        this
    }

    #[inline]
    pub(crate) fn columns(&self) -> usize {
        self.prefix.len() - 1
    }

    /// Bytes in one round.
    #[inline]
    pub(crate) fn round(&self) -> u64 {
        self.round.value
    }

    /// Bytes of one round before `column`.
    #[inline]
    pub(crate) fn before(&self, column: usize) -> u64 {
        self.prefix[column]
    }

    /// Bytes of one round in `column`.
    #[inline]
    pub(crate) fn stripe(&self, column: usize) -> u64 {
        self.prefix[column + 1] - self.prefix[column]
    }

    #[inline]
    pub(crate) fn turn(&self, rel: u64) -> Turn {
        let (rounds, within) = self.round.div_rem(rel);
        Turn { rounds, within }
    }

    /// The column that holds byte `within` of a round.
    #[inline]
    pub(crate) fn column(&self, within: u64) -> usize {
        match self.search {
            Search::Even(stripe) => stripe.div_rem(within).0 as usize,
            Search::Prefix => self.prefix.partition_point(|&before| before <= within) - 1,
        }
    }

    /// Bytes of `column` that lie before `turn`: the length of its datafile when the component is full up to it.
    #[inline]
    pub(crate) fn held(&self, column: usize, turn: Turn) -> u64 {
        let stripe = self.stripe(column);
        turn.rounds * stripe + turn.within.saturating_sub(self.before(column)).min(stripe)
    }

    /// Bytes of `column` in the whole component.
    #[inline]
    pub(crate) fn share(&self, column: usize) -> u64 {
        self.held(column, self.full)
    }

    /// Where byte `local` of `column` lies in the component. `local` must be below the column's share.
    #[inline]
    pub(crate) fn rel(&self, column: usize, local: u64) -> u64 {
        let stripe = self.stripe(column);
        (local / stripe) * self.round() + self.before(column) + local % stripe
    }
}

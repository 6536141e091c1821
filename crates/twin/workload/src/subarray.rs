//! Blocks of multi-dimensional arrays as ranges of a file, like `MPI_Type_create_subarray`.

/// Maximum number of dimensions. The slowest dimension is the first, x the last.
pub(crate) const DIMS: usize = 4;

/// A block of an array of [`DIMS`] dimensions that is stored in C order from byte 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subarray {
    /// Elements of the whole array in each dimension; 1 for unused dimensions.
    pub(crate) array: [u64; DIMS],
    /// Elements of the block in each dimension.
    pub(crate) part: [u64; DIMS],
    /// First element of the block in each dimension.
    pub(crate) start: [u64; DIMS],
    /// Length of an element in bytes.
    pub(crate) element: u64,
}

impl Subarray {
    /// Returns the block's rows along the last dimension as `(offset, bytes)`, in ascending order.
    pub(crate) fn rows(self) -> impl Iterator<Item = (u64, u64)> + Send {
        self.ranges_from(DIMS - 1)
    }

    /// Returns the block's contiguous ranges as `(offset, bytes)`, in ascending order. Adjacent rows are merged.
    pub(crate) fn ranges(self) -> impl Iterator<Item = (u64, u64)> + Send {
        let mut dim = DIMS - 1;
        while dim > 0 && self.part[dim] == self.array[dim] {
            dim -= 1;
        }
        self.ranges_from(dim)
    }

    /// Returns contiguous ranges that span all dimensions from `dim` on.
    fn ranges_from(self, dim: usize) -> impl Iterator<Item = (u64, u64)> + Send {
        let count: u64 = self.part[..dim].iter().product();
        let len = self.part[dim..].iter().product::<u64>() * self.element;
        (0..count).filter(move |_| len > 0).map(move |run| {
            let mut at = self.start;
            let mut rest = run;
            for d in (0..dim).rev() {
                at[d] += rest % self.part[d];
                rest /= self.part[d];
            }
            let elements = (0..DIMS).fold(0, |sum, d| sum * self.array[d] + at[d]);
            (elements * self.element, len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_runs_by_hand() {
        // A 3 x 4 block of a 5 x 6 array of 2-byte elements that starts in row 1, column 2.
        let block = Subarray { array: [1, 1, 5, 6], part: [1, 1, 3, 4], start: [0, 0, 1, 2], element: 2 };
        // Row 1: (1 * 6 + 2) * 2 = 16; row 2: (12 + 2) * 2 = 28; row 3: (18 + 2) * 2 = 40.
        assert_eq!(block.rows().collect::<Vec<_>>(), [(16, 8), (28, 8), (40, 8)]);
        assert_eq!(block.ranges().collect::<Vec<_>>(), [(16, 8), (28, 8), (40, 8)]);
        // Complete rows are adjacent: one range of 3 * 6 * 2 bytes from row 1.
        let block = Subarray { part: [1, 1, 3, 6], start: [0, 0, 1, 0], ..block };
        assert_eq!(block.rows().collect::<Vec<_>>(), [(12, 12), (24, 12), (36, 12)]);
        assert_eq!(block.ranges().collect::<Vec<_>>(), [(12, 36)]);
    }

    #[test]
    fn four_dimensions_by_hand() {
        let block = Subarray { array: [2, 3, 4, 5], part: [2, 1, 2, 3], start: [0, 2, 1, 1], element: 8 };
        // ((((m * 3) + 2) * 4) + y) * 5 + 1, y = 1, 2: m = 0: 46, 51; m = 1: 106, 111; times 8.
        let expected = [46, 51, 106, 111].map(|element| (element * 8, 24));
        assert_eq!(block.ranges().collect::<Vec<_>>(), expected);
    }
}

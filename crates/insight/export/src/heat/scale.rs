//! Maps bytes to colors.

/// Number of colors.
pub(super) const LEVELS: usize = 8;

/// A logarithmic scale: each color stands for `base` times the bytes of the previous one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    /// Upper end, a power of two.
    top: f64,
    base: f64,
}

impl Scale {
    /// A scale that shows the largest of `cells`, and if possible all but the smallest twentieth. `None` if all cells
    /// are empty.
    pub fn of(cells: impl Iterator<Item = f64>) -> Option<Self> {
        let mut filled: Vec<f64> = cells.filter(|bytes| *bytes > 0.0).collect();
        filled.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*filled.get(filled.len() / 20)?, *filled.last()?);
        let mut top = 1.0;
        while top < most {
            top *= 2.0;
        }
        let reaches = |base: &f64| top / base.powi(LEVELS as i32) <= least;
        let base = [2.0, 4.0, 8.0].into_iter().find(reaches).unwrap_or(8.0);
        Some(Self { top, base })
    }

    /// Upper bound in bytes of the colors below `number`.
    pub fn bound(&self, number: usize) -> f64 {
        self.top / self.base.powi((LEVELS - number) as i32)
    }

    /// Color of a cell; `None` if it is empty.
    pub fn level(&self, bytes: f64) -> Option<usize> {
        (bytes > 0.0).then(|| (1..LEVELS).find(|number| bytes <= self.bound(*number)).unwrap_or(LEVELS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_covers_the_largest_and_smallest_cells() {
        assert_eq!(Scale::of([0.0, 0.0].into_iter()), None);
        let scale = Scale::of([0.0, 4096.0, 1_000_000.0].into_iter()).expect("filled cells");
        assert_eq!(scale, Scale { top: (1 << 20) as f64, base: 2.0 });
        assert_eq!(
            (scale.level(0.0), scale.level(4096.0), scale.level(1_000_000.0)),
            (None, Some(0), Some(7))
        );
        let wide = Scale::of([1.0, 1e12].into_iter()).expect("filled cells");
        assert_eq!((wide.level(1.0), wide.level(1e12)), (Some(0), Some(7)));
        let even = Scale::of([65536.0; 4].into_iter()).expect("filled cells");
        assert_eq!((even.level(65536.0), even.level(65537.0)), (Some(7), Some(7)));
        assert_eq!((even.level(32768.0), even.bound(7)), (Some(6), 32768.0));
    }
}

//! From bytes to colors.

/// Number of colors.
pub(super) const LEVELS: usize = 8;

/// Powers: each color stands for `base` times as many bytes as the one before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    /// The most bytes, a power of two.
    top: f64,
    base: f64,
}

impl Scale {
    /// Which shows the largest of `cells`, and the smallest but for a twentieth of them if the steps can be made so;
    /// `None` when all are empty.
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

    /// The bytes below color `number`, or above the last.
    pub fn bound(&self, number: usize) -> f64 {
        self.top / self.base.powi((LEVELS - number) as i32)
    }

    /// The color of a cell; none for an empty one.
    pub fn level(&self, bytes: f64) -> Option<usize> {
        (bytes > 0.0).then(|| (1..LEVELS).find(|number| bytes <= self.bound(*number)).unwrap_or(LEVELS) - 1)
    }
}

/// Bytes with a binary unit.
pub(super) fn human(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 99.95 || (value - value.round()).abs() < 0.005 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cell_has_the_last_color_and_steps_fit_the_smallest() {
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

    #[test]
    fn bytes_are_told_briefly() {
        let told = [1.0, 1000.0, 4096.0, 1.5e6, 2e9, 2e15].map(human);
        assert_eq!(told, ["1 B", "0.98 KiB", "4 KiB", "1.43 MiB", "1.86 GiB", "1.78 PiB"]);
    }
}

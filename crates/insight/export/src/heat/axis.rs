//! Axes: mapping of times, offsets and ranks to cells, and readable tick marks.

/// The axes of a heat map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Time on the x axis, offset on the y axis.
    Time,
    /// Offset on the x axis, rank on the y axis.
    Ranks,
    /// Time on the x axis, rank on the y axis.
    RankTime,
}

/// The quantity on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
    Nanoseconds,
    Bytes,
    Ranks,
    /// Position of an operation in the trace, used if there are no times.
    Operations,
}

/// A range of a quantity, divided into cells of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Axis {
    pub quantity: Quantity,
    /// Lower end.
    pub low: u64,
    /// Upper end, exclusive; above `low`.
    pub high: u64,
    pub cells: usize,
}

/// The part of a range that falls into a cell, as a fraction of the range.
pub(super) struct Share {
    pub cell: usize,
    pub part: f64,
}

impl Axis {
    pub fn new(quantity: Quantity, low: u64, high: u64, cells: usize) -> Self {
        assert!(cells > 0, "an axis has cells");
        Self { quantity, low, high: high.max(low.saturating_add(1)), cells }
    }

    /// The cells that `begin..end` touches, with the fraction of the range in each. The fractions add up to 1. An empty
    /// range is in one cell.
    pub fn shares(&self, begin: u64, end: u64) -> impl Iterator<Item = Share> + use<> {
        let width = (self.high - self.low) as f64 / self.cells as f64;
        let place = |at: u64| at.saturating_sub(self.low) as f64 / width;
        let last = self.cells - 1;
        let (from, to) = (place(begin), place(end.max(begin)));
        let first = (from as usize).min(last);
        // A range that ends where a cell begins does not touch that cell.
        let until = if to > from { (to.ceil() as usize).saturating_sub(1).clamp(first, last) } else { first };
        let whole = to - from;
        (first..=until).map(move |cell| {
            let part = if first == until {
                1.0
            } else {
                let upper = if cell == until { to } else { (cell + 1) as f64 };
                (upper - from.max(cell as f64)) / whole
            };
            Share { cell, part }
        })
    }

    /// Axis title with unit, and ticks as positions between 0 and 1 with their labels.
    pub fn ticks(&self, most: usize) -> (String, Vec<(f64, String)>) {
        let most = most.max(2);
        let span = (self.high - self.low) as f64;
        let (name, unit, step) = match self.quantity {
            Quantity::Nanoseconds => {
                let (name, unit) = match span {
                    s if s >= 2e9 => ("s", 1e9),
                    s if s >= 2e6 => ("ms", 1e6),
                    s if s >= 2e3 => ("µs", 1e3),
                    _ => ("ns", 1.0),
                };
                (format!("time ({name})"), unit, decimal_step(span / unit / most as f64) * unit)
            }
            Quantity::Bytes => {
                let units = [
                    ("EiB", 60),
                    ("PiB", 50),
                    ("TiB", 40),
                    ("GiB", 30),
                    ("MiB", 20),
                    ("KiB", 10),
                    ("bytes", 0),
                ];
                let fits = |(_, shift): &&(&str, u32)| self.high as f64 >= 2.0 * (1u64 << shift) as f64;
                let (name, shift) = units.iter().find(fits).copied().unwrap_or(("bytes", 0));
                let mut step = 1.0;
                while span / step > most as f64 {
                    step *= 2.0;
                }
                (format!("offset ({name})"), (1u64 << shift) as f64, step)
            }
            Quantity::Ranks => ("rank".to_owned(), 1.0, decimal_step(span / most as f64).max(1.0)),
            Quantity::Operations => {
                ("operation, in the trace's order".to_owned(), 1.0, decimal_step(span / most as f64).max(1.0))
            }
        };
        // A rank's tick is in the middle of its row.
        let base = self.low as f64;
        let middle = if self.quantity == Quantity::Ranks { 0.5 } else { 0.0 };
        let first = (base / step).ceil();
        let mut ticks = Vec::new();
        for number in 0..=most * 2 {
            let value = (first + number as f64) * step;
            let place = (value - base + middle) / span;
            if place > 1.0 + 1e-9 {
                break;
            }
            ticks.push((place.min(1.0), tick(value / unit, step / unit)));
        }
        (name, ticks)
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn decimal_step(least: f64) -> f64 {
    let power = 10f64.powi(least.max(1e-12).log10().floor() as i32);
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(power * 10.0)
}

/// Formats a value with the decimals that the step needs.
fn tick(value: f64, step: f64) -> String {
    let digits = (0..6).find(|digits| {
        let scaled = step * 10f64.powi(*digits);
        (scaled - scaled.round()).abs() < 1e-6
    });
    format!("{value:.*}", digits.unwrap_or(6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_add_up_and_cover_exactly_the_range() {
        let axis = Axis::new(Quantity::Bytes, 100, 1100, 10);
        for (begin, end) in
            [(100, 1100), (150, 151), (199, 201), (200, 300), (1099, 1100), (100, 100), (137, 942)]
        {
            let shares: Vec<_> = axis.shares(begin, end).collect();
            let sum: f64 = shares.iter().map(|share| share.part).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{begin}..{end}: {sum}");
            let expected: Vec<usize> = (0..10)
                .filter(|cell| {
                    let (low, high) = (100 + cell * 100, 200 + cell * 100);
                    (begin < high && end > low) || (begin == end && (low..high).contains(&begin))
                })
                .map(|cell| cell as usize)
                .collect();
            let found: Vec<usize> = shares.iter().map(|share| share.cell).collect();
            assert_eq!(found, expected, "{begin}..{end}");
            for share in &shares {
                let low = (100 + share.cell as u64 * 100).max(begin);
                let high = (200 + share.cell as u64 * 100).min(end);
                if end > begin {
                    let part = (high - low) as f64 / (end - begin) as f64;
                    assert!((share.part - part).abs() < 1e-12, "{begin}..{end} in {}", share.cell);
                }
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers_in_suitable_units() {
        let text = |axis: Axis| {
            let (name, ticks) = axis.ticks(6);
            (name, ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" "))
        };
        let times = text(Axis::new(Quantity::Nanoseconds, 500, 13_600_000_500, 10));
        assert_eq!(times, ("time (s)".into(), "5 10".into()));
        let short = text(Axis::new(Quantity::Nanoseconds, 0, 2_970_000, 10));
        assert_eq!(short, ("time (ms)".into(), "0.0 0.5 1.0 1.5 2.0 2.5".into()));
        let bytes = text(Axis::new(Quantity::Bytes, 0, 2 << 30, 10));
        assert_eq!(bytes, ("offset (GiB)".into(), "0.0 0.5 1.0 1.5 2.0".into()));
        let ranks = text(Axis::new(Quantity::Ranks, 0, 32, 10));
        assert_eq!(ranks, ("rank".into(), "0 10 20 30".into()));
        let one = text(Axis::new(Quantity::Ranks, 0, 1, 1));
        assert_eq!(one, ("rank".into(), "0".into()));
    }
}

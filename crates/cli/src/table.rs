//! Plain tables for terminals and pipes.

/// Columns that line up; numbers to the right, words to the left.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With a line of column names.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    /// Adds a line.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// The whole table, each line with its end.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let number = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column)).peekable();
            cells.peek().is_some()
                && cells.all(|cell| {
                    cell.is_empty() || cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit())
                })
        };
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width(column) - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line += gap;
                line += &if number(column) { pad + cell } else { cell.clone() + &pad };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// A number of bytes for people: three digits and a binary unit.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(["name", "bytes"]);
        table.row(["a".into(), "5".into()]);
        table.row(["long name".into(), "1024".into()]);
        assert_eq!(table.render(), "name       bytes\na              5\nlong name   1024\n");
    }

    #[test]
    fn people_read_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (47_008, "45.9 KiB"),
            (1 << 20, "1.00 MiB"),
            (999 << 20, "999 MiB"),
            (1023 << 20, "1.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}

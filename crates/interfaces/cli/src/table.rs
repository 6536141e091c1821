//! Plain tables for terminals and pipes.

/// A table with aligned columns: numbers to the right, words to the left.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with column headings.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    /// Creates a table with any number of columns.
    pub fn with_head(head: Vec<String>) -> Self {
        Self { rows: vec![head] }
    }

    /// Adds a row with as many cells as the head has.
    pub fn add(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Renders the table, each line with its end.
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
}

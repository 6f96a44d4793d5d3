//! Tables of text with aligned columns.

use std::fmt::Write as _;

/// On which side a column is flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that is filled row by row.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// A column of a table whose rows are made from `T`s.
#[derive(Debug)]
pub struct Column<T> {
    name: &'static str,
    align: Align,
    cell: fn(&T) -> String,
}

/// A column of words.
pub const fn words<T>(name: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { name, align: Align::Left, cell }
}

/// A column of numbers; the unit belongs into `name`.
pub const fn numbers<T>(name: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { name, align: Align::Right, cell }
}

impl Table {
    /// A table of these rows.
    pub fn of<'a, T: 'a>(columns: &[Column<T>], rows: impl IntoIterator<Item = &'a T>) -> Self {
        let heads = columns.iter().map(|column| (column.name.to_owned(), column.align)).collect();
        let row = |row: &T| columns.iter().map(|column| (column.cell)(row)).collect();
        Self { columns: heads, rows: rows.into_iter().map(row).collect() }
    }

    /// A table with these columns; units belong into their headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|&(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with a cell per column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell per column");
        self.rows.push(cells);
    }

    /// The columns.
    pub fn columns(&self) -> &[(String, Align)] {
        &self.columns
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as lines, each after `indent`, without blanks at their ends.
    pub fn render(&self, indent: &str) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        let header = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = indent.to_owned();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(line, "{cell:width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words are flush left, numbers flush right, and no line ends in blanks.
    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("name", Align::Left), ("ms", Align::Right)]);
        table.row(vec!["a".to_owned(), "1.25".to_owned()]);
        table.row(vec!["longer".to_owned(), "10".to_owned()]);
        let text = " name      ms\n a       1.25\n longer    10\n";
        assert_eq!(table.render(" "), text);
        let columns = [
            words("name", |row: &(&str, &str)| row.0.to_owned()),
            numbers("ms", |row: &(&str, &str)| row.1.to_owned()),
        ];
        assert_eq!(Table::of(&columns, &[("a", "1.25"), ("longer", "10")]).render(" "), text);
    }
}

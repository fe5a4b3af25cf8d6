//! The declaration of a public table: its columns, the column that orders it, and the columns that it can be filtered
//! by.
//!
//! A declaration does not know how a backend stores rows and indexes.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    Text,
    /// JSON, stored as the text it arrived as.
    Json,
    Integer,
    /// A time in milliseconds of UTC since 1970.
    Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The name, as other programs see it.
    pub name: &'static str,
    pub column_type: ColumnType,
    /// True if every row must have the column.
    pub required: bool,
}

/// Text columns that can be filtered together, by equality.
pub type IndexColumns = &'static [&'static str];

/// The declaration of a public table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSchema {
    /// The number of the table in stored keys; never reused.
    pub tag: u8,
    /// The name, as other programs see it.
    pub name: &'static str,
    pub columns: &'static [Column],
    /// The required [`ColumnType::Time`] column that rows are ordered by. A row never changes its value.
    pub order_column: &'static str,
    /// Every filterable column has an index of its own; pairs that are often queried together have one too. The more
    /// selective come first.
    pub indexes: &'static [IndexColumns],
}

impl TableSchema {
    pub fn column(&self, name: &str) -> Option<&'static Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// True if rows can be filtered by this column.
    pub fn can_filter_by(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| *index == [name])
    }

    /// The index that covers most of these columns, with its position; the first of equals; `None` if there are no
    /// columns.
    pub fn best_index(&self, names: &[&str]) -> Option<(usize, IndexColumns)> {
        let covering =
            |(_, index): &(usize, &IndexColumns)| index.iter().all(|column| names.contains(column));
        let mut best: Option<(usize, IndexColumns)> = None;
        for (position, index) in self.indexes.iter().enumerate().filter(covering) {
            if best.is_none_or(|(_, other)| index.len() > other.len()) {
                best = Some((position, index));
            }
        }
        best
    }
}

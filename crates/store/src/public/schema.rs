//! What a public table declares: its columns, the one that orders it, and by which columns it can be asked.

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// JSON, kept as the text it came as.
    Json,
    /// A whole number.
    Integer,
    /// A moment, in milliseconds of UTC since 1970.
    Time,
}

/// One column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name, as the outside world spells it.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row must have it.
    pub required: bool,
}

/// Text columns that can be asked for together, by equality.
pub type Index = &'static [&'static str];

/// The declaration of a public table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSchema {
    /// Its number in stored keys; never reused.
    pub tag: u8,
    /// Its name, as the outside world spells it.
    pub name: &'static str,
    /// Every column.
    pub columns: &'static [Column],
    /// The required [`Kind::Time`] column that rows are ordered by. It does not change in a row's life.
    pub ordered_by: &'static str,
    /// Every filterable column has an index of its own; pairs that people ask for together have one too. The more selective
    /// come first.
    pub indexes: &'static [Index],
}

impl TableSchema {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&'static Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Whether rows can be asked for by this column.
    pub fn filters_by(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| *index == [name])
    }

    /// The index, by its place, that covers most of these columns; the first of equals; none if nothing is filtered.
    pub fn index_for(&self, names: &[&str]) -> Option<(usize, Index)> {
        let covering = |(_, index): &(usize, &Index)| index.iter().all(|column| names.contains(column));
        let mut best: Option<(usize, Index)> = None;
        for (place, index) in self.indexes.iter().enumerate().filter(covering) {
            if best.is_none_or(|(_, other)| index.len() > other.len()) {
                best = Some((place, index));
            }
        }
        best
    }
}

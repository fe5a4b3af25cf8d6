//! Scans: a key range, a direction, a page at a time.

use std::ops::Bound;

use super::{Key, Limits, Row};

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Smallest key first.
    Forwards,
    /// Largest key first.
    Backwards,
}

/// Which rows to scan, in which direction, and how many at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Where the range begins.
    pub from: Bound<Key>,
    /// Where the range ends.
    pub until: Bound<Key>,
    /// Which end comes first.
    pub direction: Direction,
    /// At most this many rows; [`Limits::SCAN_ROWS_MAX`] bounds it further.
    pub rows_max: usize,
}

/// One page of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    /// The rows, in the scan's direction.
    pub rows: Vec<Row>,
    /// The scan of what is left, or `None` when the range was walked to its end.
    pub next: Option<Scan>,
}

impl Scan {
    /// Every row of the partition.
    pub fn all() -> Self {
        Self::between(Bound::Unbounded, Bound::Unbounded)
    }

    /// Every row whose key begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::between(Bound::Included(Key::new(prefix)), after_prefix(prefix))
    }

    /// From `from`, included, until `until`, excluded.
    pub fn range(from: Key, until: Key) -> Self {
        Self::between(Bound::Included(from), Bound::Excluded(until))
    }

    /// Between two bounds.
    pub fn between(from: Bound<Key>, until: Bound<Key>) -> Self {
        Self { from, until, direction: Direction::Forwards, rows_max: Limits::SCAN_ROWS_MAX }
    }

    /// The same range, largest key first.
    #[must_use]
    pub fn backwards(mut self) -> Self {
        self.direction = Direction::Backwards;
        self
    }

    /// The same range, at most `rows` of it.
    #[must_use]
    pub fn at_most(mut self, rows: usize) -> Self {
        self.rows_max = rows;
        self
    }

    /// Rows a page of this scan may have.
    pub fn page_rows(&self) -> usize {
        self.rows_max.min(Limits::SCAN_ROWS_MAX)
    }

    /// The rest of this scan once the row at `last` has been seen.
    #[must_use]
    pub fn after(mut self, last: Key) -> Self {
        match self.direction {
            Direction::Forwards => self.from = Bound::Excluded(last),
            Direction::Backwards => self.until = Bound::Excluded(last),
        }
        self
    }

    /// Whether no key can be in the range. Backends ask before they make an iterator of it: an inverted range is an empty
    /// page, not an error.
    pub fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.from, &self.until) {
            (Unbounded, Excluded(until)) => until.as_bytes().is_empty() || self.rows_max == 0,
            (Unbounded, _) | (_, Unbounded) => self.rows_max == 0,
            (Included(from), Included(until)) => from > until || self.rows_max == 0,
            (Included(from) | Excluded(from), Excluded(until)) | (Excluded(from), Included(until)) => {
                from >= until || self.rows_max == 0
            }
        }
    }
}

/// The least bound above every key with this prefix: the prefix with its last byte that can grow, grown.
fn after_prefix(prefix: &[u8]) -> Bound<Key> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(grown) = last.checked_add(1) {
            end.push(grown);
            return Bound::Excluded(Key::new(end));
        }
    }
    Bound::Unbounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_byte_that_can_grow() {
        assert_eq!(after_prefix(b"ab"), Bound::Excluded(Key::new(*b"ac")));
        assert_eq!(after_prefix(&[1, 0xff, 0xff]), Bound::Excluded(Key::new([2])));
        assert_eq!(after_prefix(&[0xff]), Bound::Unbounded);
        assert_eq!(after_prefix(b""), Bound::Unbounded);
    }

    #[test]
    fn inverted_ranges_are_empty_and_single_keys_are_not() {
        let key = |byte: u8| Key::new([byte]);
        assert!(Scan::range(key(2), key(1)).is_empty());
        assert!(Scan::range(key(1), key(1)).is_empty());
        assert!(Scan::all().at_most(0).is_empty());
        assert!(!Scan::between(Bound::Included(key(1)), Bound::Included(key(1))).is_empty());
        assert!(Scan::between(Bound::Excluded(key(1)), Bound::Included(key(1))).is_empty());
        assert!(!Scan::all().is_empty());
    }
}

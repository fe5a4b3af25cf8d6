//! Scans: a key range and a direction, read one page at a time.
//!
//! A scan only describes the rows to read; backends run it.

use std::ops::Bound;

use super::{Key, Row, StoreLimits};

/// The order in which a scan returns rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Smallest key first.
    Forwards,
    /// Largest key first.
    Backwards,
}

/// The rows to read: a key range, a direction and a maximum number of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    pub from: Bound<Key>,
    pub until: Bound<Key>,
    pub direction: Direction,
    /// The most rows of one page; [`StoreLimits::SCAN_ROWS_MAX`] bounds it further.
    pub rows_max: usize,
}

/// One page of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    /// The rows, in the scan's direction.
    pub rows: Vec<Row>,
    /// The scan of the remaining rows, or `None` at the end of the range.
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

    pub fn between(from: Bound<Key>, until: Bound<Key>) -> Self {
        Self { from, until, direction: Direction::Forwards, rows_max: StoreLimits::SCAN_ROWS_MAX }
    }

    /// The same range, largest key first.
    #[must_use]
    pub fn backwards(mut self) -> Self {
        self.direction = Direction::Backwards;
        self
    }

    /// The same range, at most `rows` rows per page.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.rows_max = rows;
        self
    }

    /// The most rows that a page of this scan may have.
    pub fn page_rows_max(&self) -> usize {
        self.rows_max.min(StoreLimits::SCAN_ROWS_MAX)
    }

    /// The rest of this scan after the row at `last`.
    #[must_use]
    pub fn resume_after(mut self, last: Key) -> Self {
        match self.direction {
            Direction::Forwards => self.from = Bound::Excluded(last),
            Direction::Backwards => self.until = Bound::Excluded(last),
        }
        self
    }

    /// True if no key can be in the range. Backends check this before they build an iterator: an inverted range gives
    /// an empty page, not an error.
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

/// The least bound above every key with this prefix: the last byte below 255 is incremented, and the bytes after it are
/// cut.
fn after_prefix(prefix: &[u8]) -> Bound<Key> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(incremented) = last.checked_add(1) {
            end.push(incremented);
            return Bound::Excluded(Key::new(end));
        }
    }
    Bound::Unbounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_below_255_is_incremented() {
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
        assert!(Scan::all().limit(0).is_empty());
        assert!(!Scan::between(Bound::Included(key(1)), Bound::Included(key(1))).is_empty());
        assert!(Scan::between(Bound::Excluded(key(1)), Bound::Included(key(1))).is_empty());
        assert!(!Scan::all().is_empty());
    }
}

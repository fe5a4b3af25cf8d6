//! The numbers of a run, of its history pages and of its commands. The shard, the instance or the run counts them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a run within its shard, never reused. The rows of a run are stored under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId(pub u64);

impl RunId {
    /// The first run id after this one; saturates instead of overflowing.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a row or message within its shard, in the order the shard wrote them. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first one.
    pub const ZERO: Self = Self(0);

    /// The number after this one; saturates instead of overflowing.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a run within its instance, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunNumber(pub u32);

impl RunNumber {
    /// The first run of an instance.
    pub const FIRST: Self = Self(1);

    /// The number of the run after this one; saturates instead of overflowing.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a history page within its run, from 1. A turn writes one page, or several if it is large.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// Before the first page.
    pub const ZERO: Self = Self(0);
    pub const FIRST: Self = Self(1);

    /// The number of the page after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number of the page before this one.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The number of pages from `earlier` to this one; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for PageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a command within its run, from 1 without gaps. Results name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct CommandId(pub u64);

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_as_the_value_inside() {
        let stored = postcard::to_stdvec(&(RunId(300), RunNumber(7), PageNumber(8), CommandId(9))).unwrap();
        assert_eq!(stored, postcard::to_stdvec(&(300u64, 7u32, 8u64, 9u64)).unwrap());
    }

    #[test]
    fn numbers_are_shown_with_the_width_that_is_asked_for() {
        assert_eq!(format!("{} {:010}", RunId(7), RunNumber(3)), "7 0000000003");
    }
}

//! What a check finds when a rule does not hold: what was expected, and what was found instead.

use std::fmt::Display;

use crate::exchange::Lost;

/// Why a check did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unmet {
    /// A rule is broken.
    Broken { expected: String, found: String },
    /// There was nothing to find out.
    Skipped(String),
    /// Nobody was there.
    Unreachable(String),
}

/// What checks come to.
pub(crate) type Met<T = ()> = Result<T, Unmet>;

impl Unmet {
    pub(crate) fn broken(expected: impl Display, found: impl Display) -> Self {
        Self::Broken { expected: expected.to_string(), found: found.to_string() }
    }

    /// With what it was about before both sides.
    #[must_use]
    pub(crate) fn of(self, what: impl Display) -> Self {
        match self {
            Self::Broken { expected, found } => {
                Self::Broken { expected: format!("{what}: {expected}"), found }
            }
            other => other,
        }
    }
}

impl From<Lost> for Unmet {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Unreachable(why) => Self::Unreachable(why),
            other => Self::broken("an answer", other),
        }
    }
}

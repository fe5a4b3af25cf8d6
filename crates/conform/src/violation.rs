//! Why a check did not pass: a broken rule with what was expected and found, or a reason why nothing could be checked.
//!
//! It does not know the rules.

use std::fmt::Display;

use crate::http_client::ExchangeError;

/// Why a check did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CheckFailure {
    /// The receiver broke the rule.
    Violation { expected: String, found: String },
    /// The rule could not be checked; the text says why.
    Skipped(String),
    /// No connection could be made.
    Unreachable(String),
}

/// The result of a check.
pub(crate) type CheckResult<T = ()> = Result<T, CheckFailure>;

impl CheckFailure {
    pub(crate) fn violation(expected: impl Display, found: impl Display) -> Self {
        Self::Violation { expected: expected.to_string(), found: found.to_string() }
    }

    /// The same failure, with the tested case before the expectation.
    #[must_use]
    pub(crate) fn with_context(self, case: impl Display) -> Self {
        match self {
            Self::Violation { expected, found } => {
                Self::Violation { expected: format!("{case}: {expected}"), found }
            }
            other => other,
        }
    }
}

impl From<ExchangeError> for CheckFailure {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Unreachable(why) => Self::Unreachable(why),
            other => Self::violation("a response", other),
        }
    }
}

//! Failures inside a run, as data: the error that a state raises, `onError` matches and `$.error` shows.
//!
//! Not for broken definitions (findings) or broken stored bytes ([`crate::instance::CorruptInstance`]).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::evaluation::EvaluationLimitExceeded;

/// Codes the interpreter itself raises. Activities have their own.
pub mod code {
    /// A step, a wait or the whole workflow took longer than allowed.
    pub const TIMEOUT: &str = "Timeout";
    /// One attempt took longer than its limit. Reported by dispatch; retryable.
    pub const ATTEMPT_TIMEOUT: &str = "AttemptTimeout";
    /// A secret that the input refers to cannot be resolved. Reported by dispatch; the call is not sent.
    pub const SECRET_UNAVAILABLE: &str = "SecretUnavailable";
    /// The workflow does not exist, or not in the requested range of versions. Reported by the runtime that starts
    /// child runs.
    pub const WORKFLOW_NOT_FOUND: &str = "WorkflowNotFound";
    /// A required path had no value.
    pub const PATH_MISSING: &str = "PathMissing";
    /// A path had a value of the wrong type: a duration, a timestamp or an array was expected.
    pub const TYPE_MISMATCH: &str = "TypeMismatch";
    /// No choice matched and there is no default.
    pub const NO_CHOICE_MATCHED: &str = "NoChoiceMatched";
    /// The run's data would exceed its limit.
    pub const DATA_LIMIT_EXCEEDED: &str = "DataLimitExceeded";
    /// One input, result or event exceeds its limit.
    pub const PAYLOAD_TOO_LARGE: &str = "PayloadTooLarge";
    /// A value would be nested more deeply than the limit for JSON that enters.
    pub const DEPTH_EXCEEDED: &str = "DepthExceeded";
    /// A path, a template or a condition would have needed more steps or memory on this data than allowed.
    pub const EVALUATION_LIMIT_EXCEEDED: &str = "EvaluationLimitExceeded";
    /// A map or parallel has more branches than allowed.
    pub const FAN_OUT_TOO_WIDE: &str = "FanOutTooWide";
    /// Fewer branches can still succeed than `join.atLeast` requires.
    pub const JOIN_UNREACHABLE: &str = "JoinUnreachable";
    /// A child's instance id is not valid.
    pub const CHILD_ID_INVALID: &str = "ChildIdInvalid";
    /// A child would have more runs above it than allowed.
    pub const CHILD_TOO_DEEP: &str = "ChildTooDeep";
    /// The input of the next run does not fit the definition's schema.
    pub const INPUT_INVALID: &str = "InputInvalid";
    /// A `fail` state without an error of its own and without a caught one.
    pub const FAILED: &str = "Failed";
}

impl From<EvaluationLimitExceeded> for Failure {
    fn from(exceeded: EvaluationLimitExceeded) -> Self {
        Self::permanent(code::EVALUATION_LIMIT_EXCEEDED, exceeded.to_string())
    }
}

/// An error as a run sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Matched by `onError` and `nonRetryable`.
    pub code: String,
    /// A description for people.
    pub message: String,
    /// The name of the state that raised it, once raised.
    pub state: Option<String>,
    /// True if another attempt may succeed.
    pub retryable: bool,
}

impl Failure {
    /// A permanent error: another attempt does not help.
    pub fn permanent(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), state: None, retryable: false }
    }

    /// An error that may go away with another attempt.
    pub fn retryable(code: &str, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::permanent(code, message) }
    }

    /// The value of `$.error` for this failure.
    pub fn to_json(&self) -> Value {
        json!({"code": self.code, "message": self.message, "state": self.state, "retryable": self.retryable})
    }

    /// Truncates long texts from outside, because they end up in history and in `$.error`.
    pub fn truncated(mut self) -> Self {
        const MESSAGE_CHARS_MAX: usize = 4_096;
        const CODE_CHARS_MAX: usize = 256;
        let state = self.state.get_or_insert_default();
        for (text, max) in [
            (&mut self.message, MESSAGE_CHARS_MAX),
            (&mut self.code, CODE_CHARS_MAX),
            (state, CODE_CHARS_MAX),
        ] {
            if text.chars().count() > max {
                *text = text.chars().take(max).chain(['…']).collect();
            }
        }
        self.state = self.state.filter(|state| !state.is_empty());
        self
    }
}

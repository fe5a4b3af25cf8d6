//! The contract of one activity, checked and compiled once: every input is checked against it before the call, and
//! every output after it, over every transport.
//!
//! Knows nothing about how an activity is reached.

use serde_json::Value;

use crate::declaration::ActivityDeclaration;
use crate::duration;
use crate::schema::PayloadSchema;
use crate::transport::CallFailure;

/// Why a declaration is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContractError {
    /// The activity has no name.
    #[error("an activity has an empty name")]
    EmptyName,
    /// The schema is invalid.
    #[error("activity {activity:?}: invalid {field} schema: {reason}")]
    Schema {
        activity: String,
        /// `input` or `output`.
        field: &'static str,
        reason: String,
    },
    /// The attempt timeout is not an ISO-8601 duration.
    #[error("activity {activity:?}: attempt timeout {text:?} is not an ISO-8601 duration such as PT30S")]
    AttemptTimeout { activity: String, text: String },
}

/// A declaration with its schemas compiled.
#[derive(Debug)]
pub(crate) struct ActivityContract {
    declaration: ActivityDeclaration,
    input: Option<PayloadSchema>,
    output: Option<PayloadSchema>,
}

impl ActivityContract {
    /// Checks a declaration.
    pub(crate) fn new(declaration: ActivityDeclaration) -> Result<Self, ContractError> {
        let activity = &declaration.name;
        if activity.is_empty() {
            return Err(ContractError::EmptyName);
        }
        let compile = |schema: &Option<Value>, field| {
            let wrong = |reason| ContractError::Schema { activity: activity.clone(), field, reason };
            schema.as_ref().map(PayloadSchema::compile).transpose().map_err(wrong)
        };
        let (input, output) =
            (compile(&declaration.input, "input")?, compile(&declaration.output, "output")?);
        let timeout = declaration.attempt_timeout.as_ref();
        if let Some(text) = timeout.filter(|text| duration::parse(text).is_none()) {
            let activity = activity.clone();
            let text = text.clone();
            return Err(ContractError::AttemptTimeout { activity, text });
        }
        Ok(Self { declaration, input, output })
    }

    pub(crate) fn declaration(&self) -> &ActivityDeclaration {
        &self.declaration
    }

    /// An input that does not match is a permanent failure: the activity is not called with it.
    pub(crate) fn check_input(&self, input: &Value) -> Result<(), CallFailure> {
        let Some(schema) = &self.input else { return Ok(()) };
        schema.check(input).map_err(|mismatch| input_invalid(&mismatch))
    }

    /// An output that does not match is a permanent failure: a repeated call would return the same output.
    pub(crate) fn check_output(&self, output: &Value) -> Result<(), CallFailure> {
        let Some(schema) = &self.output else { return Ok(()) };
        schema.check(output).map_err(|mismatch| output_invalid(&format!("is invalid at {mismatch}")))
    }
}

/// The failure for an input that does not match; `mismatch` says where and why.
pub(crate) fn input_invalid(mismatch: &str) -> CallFailure {
    CallFailure::permanent("InputInvalid", format!("the input is invalid at {mismatch}")).with_not_sent()
}

/// The failure for an output that cannot be used; `problem` completes the sentence "the output …".
pub(crate) fn output_invalid(problem: &str) -> CallFailure {
    CallFailure::permanent("OutputInvalid", format!("the output {problem}"))
}

//! What an activity promises, checked and compiled once: every input is held against it before, and every output after, whatever wire is
//! between.
//!
//! Knows nothing of how an activity is reached.

use serde_json::Value;

use crate::declaration::Declaration;
use crate::duration;
use crate::schema::Schema;
use crate::transport::Failure;

/// What is wrong with a declaration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContractError {
    /// Nobody could name it.
    #[error("an activity has an empty name")]
    EmptyName,
    /// A schema that is none.
    #[error("activity {activity:?}: its {field} schema: {reason}")]
    Schema {
        /// Whose.
        activity: String,
        /// `input` or `output`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A limit that is no ISO-8601 duration.
    #[error("activity {activity:?}: its attempt timeout {text:?} is not an ISO-8601 duration such as PT30S")]
    AttemptTimeout {
        /// Whose.
        activity: String,
        /// What was given.
        text: String,
    },
}

/// A declaration with its schemas compiled.
#[derive(Debug)]
pub(crate) struct Contract {
    declaration: Declaration,
    input: Option<Schema>,
    output: Option<Schema>,
}

impl Contract {
    /// Checks a declaration.
    pub(crate) fn new(declaration: Declaration) -> Result<Self, ContractError> {
        let activity = &declaration.name;
        if activity.is_empty() {
            return Err(ContractError::EmptyName);
        }
        let compile = |schema: &Option<Value>, field| {
            let wrong = |reason| ContractError::Schema { activity: activity.clone(), field, reason };
            schema.as_ref().map(Schema::compile).transpose().map_err(wrong)
        };
        let (input, output) =
            (compile(&declaration.input, "input")?, compile(&declaration.output, "output")?);
        let timeout = declaration.attempt_timeout.as_ref();
        if let Some(text) = timeout.filter(|text| duration::parse(text).is_none()) {
            let (activity, text) = (activity.clone(), text.clone());
            return Err(ContractError::AttemptTimeout { activity, text });
        }
        Ok(Self { declaration, input, output })
    }

    /// What was declared.
    pub(crate) fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// An input that does not fit is final: the activity is not called with it.
    pub(crate) fn check_input(&self, input: &Value) -> Result<(), Failure> {
        let Some(schema) = &self.input else { return Ok(()) };
        schema.check(input).map_err(|mismatch| input_invalid(&mismatch))
    }

    /// An output that does not fit is final: a duplicate would be answered with the same.
    pub(crate) fn check_output(&self, output: &Value) -> Result<(), Failure> {
        let Some(schema) = &self.output else { return Ok(()) };
        schema.check(output).map_err(|mismatch| output_invalid(&format!("at {mismatch}")))
    }
}

/// An input that an activity cannot work with; `mismatch` says where and why.
pub(crate) fn input_invalid(mismatch: &str) -> Failure {
    Failure::for_good("InputInvalid", format!("the input at {mismatch}")).with_not_sent()
}

/// An output that nobody can work with; `what` is wrong with it.
pub(crate) fn output_invalid(what: &str) -> Failure {
    Failure::for_good("OutputInvalid", format!("the output {what}"))
}

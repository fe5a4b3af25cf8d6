//! A workflow definition as its author wrote it: typed, with every path compiled. It does not check the definition as a
//! whole; `validate` does.
//!
//! States of all blocks are numbered in one list, depth first, states of a block in the order of their names.
//! Transitions name their target and are looked up in their block. These types accept exactly the definitions that
//! `workflow-schema-v1.json` accepts; a test checks this.

mod conditions;
mod fields;
mod read;
mod state;
mod states;

use std::collections::BTreeMap;

pub(crate) use fields::closest_name;
use serde_json::Value;
pub use state::{
    ChildCall, CompensationStep, ErrorHandler, EventWait, Join, State, StateKind, Task, WaitTime,
};

use crate::finding::Finding;
use crate::ids::StateId;
use crate::path::Template;
use crate::schema::Schema;
use crate::time::Duration;

/// The result of parsing: a definition as far as it could be read, and findings about the rest. Only validation turns
/// it into something that can run.
#[derive(Debug)]
pub struct ParsedDefinition {
    pub(crate) definition: Option<Definition>,
    pub(crate) findings: Vec<Finding>,
}

impl ParsedDefinition {
    /// Parses a definition's text.
    pub fn parse(text: &str) -> Self {
        read::read(text)
    }

    /// The definition, as far as it could be read.
    pub fn definition(&self) -> Option<&Definition> {
        self.definition.as_ref()
    }
}

/// A workflow definition.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub id: String,
    pub version: semver::Version,
    pub description: Option<String>,
    /// The schema of a run's input.
    pub input: Option<Schema>,
    pub configuration: Configuration,
    /// Block 0 is the workflow's own; the others belong to parallels and maps.
    pub blocks: Vec<Block>,
    /// All states of all blocks.
    pub states: Vec<State>,
    /// The JSON it was read from.
    pub source: Value,
}

/// The object `configuration`: defaults and limits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configuration {
    /// `timeout` of tasks and event waits that have none.
    pub default_timeout: Option<Duration>,
    /// Time limit of the whole workflow.
    pub timeout: Option<Duration>,
    /// For tasks without a policy, whose activity has none either.
    pub retry_policy: Option<RetryPolicy>,
    /// Time after which a run is reported as stuck.
    pub stuck_after: Option<Duration>,
    /// States a run may enter before it is parked.
    pub max_transitions: Option<u64>,
    /// The steps taken when the whole workflow times out.
    pub escalation: Option<EscalationPolicy>,
}

/// The object `configuration.escalation`.
#[derive(Clone, PartialEq, Debug)]
pub struct EscalationPolicy {
    /// The activity that notifies the escalation channel.
    pub notify: Option<ActivityCall>,
    /// The state that may still save the run.
    pub recover: Option<String>,
    /// Time limit of the recovery.
    pub recover_within: Duration,
}

impl EscalationPolicy {
    /// The default of `recoverWithin`.
    pub const RECOVER_WITHIN: Duration = Duration::hours(1);
}

/// An activity with its input.
#[derive(Clone, PartialEq, Debug)]
pub struct ActivityCall {
    /// The activity's name.
    pub activity: String,
    /// `None` where the author omitted the input.
    pub input: Option<Template>,
}

/// How often and how fast a call is retried.
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    /// Number of failed attempts after which the step fails.
    pub max_attempts: u32,
    /// Wait before the second attempt.
    pub initial_interval: Duration,
    /// Factor by which each further wait grows.
    pub backoff_coefficient: f64,
    /// Upper limit of a wait.
    pub max_interval: Option<Duration>,
    /// Error codes that fail the step without a retry.
    pub non_retryable: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_interval: Duration::seconds(5),
            backoff_coefficient: 2.0,
            max_interval: None,
            non_retryable: Vec::new(),
        }
    }
}

/// States that transition among each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// JSON pointer to the block; empty for the top-level block.
    pub pointer: String,
    /// The parallel or map that contains the block.
    pub owner: Option<StateId>,
    /// The name of the first state; `None` if it could not be read.
    pub start_at: Option<String>,
    pub states: BTreeMap<String, StateId>,
}

//! A workflow definition as its author wrote it: typed, every path compiled, nothing yet known to make sense as a whole.
//!
//! States of all blocks are numbered in one list, depth first, states of a block in the order of their names; transitions name
//! their target and are looked up in their block. What the types here accept and what `workflow-schema-v1.json` accepts is the
//! same, which a test checks.

mod conditions;
mod fields;
mod read;
mod state;
mod states;

use std::collections::BTreeMap;

pub(crate) use fields::closest;
use serde_json::Value;
pub use state::{ChildCall, ErrorHandler, EventWait, Join, Moment, State, StateKind, Task, UndoStep};

use crate::finding::Finding;
use crate::ids::StateId;
use crate::path::Template;
use crate::schema::Schema;
use crate::time::Duration;

/// What parsing yields: a definition as far as it could be read, and what was wrong with the rest. Only validation turns it
/// into something that can run.
#[derive(Debug)]
pub struct Authored {
    pub(crate) definition: Option<Definition>,
    pub(crate) findings: Vec<Finding>,
}

impl Authored {
    /// Reads a definition's text.
    pub fn parse(text: &str) -> Self {
        read::read(text)
    }

    /// The definition, as far as it could be read.
    pub fn definition(&self) -> Option<&Definition> {
        self.definition.as_ref()
    }
}

/// A workflow.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: semver::Version,
    /// For people.
    pub description: Option<String>,
    /// What a start's input must be.
    pub input: Option<Schema>,
    /// Defaults and limits.
    pub configuration: Configuration,
    /// Block 0 is the workflow's own; the others belong to parallels and maps.
    pub blocks: Vec<Block>,
    /// All states of all blocks.
    pub states: Vec<State>,
    /// The JSON it was read from.
    pub source: Value,
}

/// `configuration`
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configuration {
    /// `timeout` of tasks and event waits that have none.
    pub default_timeout: Option<Duration>,
    /// The whole workflow's.
    pub timeout: Option<Duration>,
    /// For tasks without one, whose activity has none either.
    pub retry_policy: Option<RetryPolicy>,
    /// When to call a run stuck.
    pub stuck_after: Option<Duration>,
    /// States a run may enter before it is parked.
    pub max_transitions: Option<u64>,
    /// What happens when the whole workflow times out.
    pub escalation: Option<EscalationPolicy>,
}

/// `configuration.escalation`
#[derive(Clone, PartialEq, Debug)]
pub struct EscalationPolicy {
    /// Whom to tell.
    pub notify: Option<ActivityCall>,
    /// The state that may still save the run.
    pub recover: Option<String>,
    /// How long it may take to.
    pub recover_within: Duration,
}

impl EscalationPolicy {
    /// Recovery's time unless said otherwise.
    pub const RECOVER_WITHIN: Duration = Duration::hours(1);
}

/// An activity with its input.
#[derive(Clone, PartialEq, Debug)]
pub struct ActivityCall {
    /// The activity.
    pub activity: String,
    /// Its input; `None` where the author left it out.
    pub input: Option<Template>,
}

/// How often and how fast to try again.
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    /// Failed deliveries that end the step.
    pub max_attempts: u32,
    /// Wait before the second delivery.
    pub initial_interval: Duration,
    /// Each further wait is this much longer.
    pub backoff_coefficient: f64,
    /// No wait is longer.
    pub max_interval: Option<Duration>,
    /// Codes that end the step at once.
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
    /// Where it is in the JSON; empty for the top.
    pub pointer: String,
    /// The parallel or map it belongs to.
    pub owner: Option<StateId>,
    /// Where it starts; `None` if that could not be read.
    pub start_at: Option<String>,
    /// Its states by name.
    pub states: BTreeMap<String, StateId>,
}

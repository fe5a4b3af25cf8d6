//! A validated definition with its defaults filled in, ready to run. It does not know any instance.
//!
//! A `Plan` can only be made from a [`ValidatedDefinition`], so a definition that was not validated cannot run.

mod stuck;

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_ids::Digest;
use serde_json::Value;

use crate::definition::{Block, Definition, RetryPolicy, State, StateKind};
use crate::evaluation::{EvaluationBudget, EvaluationLimitExceeded};
use crate::flow::{self, Flow};
use crate::ids::{BlockId, PlanHash, StateId};
use crate::instance::CorruptInstance;
use crate::registry::RegisteredActivity;
use crate::schema::{Mismatch, ShownValues};
use crate::time::Duration;
use crate::validate::ValidatedDefinition;

/// The compiled definition that `advance` runs.
#[derive(Clone, Debug)]
pub struct Plan {
    definition: Definition,
    hash: PlanHash,
    default_policy: RetryPolicy,
    activities: BTreeMap<String, RegisteredActivity>,
    flow: Arc<Flow>,
    /// States that a branch can enter more than once.
    repeatable: Vec<bool>,
    stuck_after: Option<Duration>,
}

impl ValidatedDefinition {
    /// Fills in the defaults: the task's own value, else the activity's, else the configuration's, else the language's.
    pub fn compile(self) -> Plan {
        let Self { mut definition, activities, .. } = self;
        let hash = PlanHash(Digest::of_parts(&[definition.source.to_string().as_bytes()]));
        let flow = Flow::of(&definition);
        let repeatable = repeatable_states(&definition, &flow);
        let stuck_after = stuck::stuck_after(&definition, &flow);
        let default_policy = definition.configuration.retry_policy.clone().unwrap_or_default();
        let default_timeout = definition.configuration.default_timeout;
        for state in &mut definition.states {
            match &mut state.kind {
                StateKind::Task(task) => {
                    let activity = activities.get(&task.call.activity);
                    state.timeout = state.timeout.or(default_timeout);
                    task.attempt_timeout = task.attempt_timeout.or(activity.and_then(|a| a.attempt_timeout));
                    if task.compensate_with.is_none() {
                        task.compensate_with = activity
                            .and_then(|a| a.compensation.clone())
                            .map(|activity| crate::definition::ActivityCall { activity, input: None });
                    }
                }
                StateKind::WaitEvent(_) => state.timeout = state.timeout.or(default_timeout),
                _ => {}
            }
        }
        Plan { definition, hash, default_policy, activities, flow: flow.into(), repeatable, stuck_after }
    }
}

impl Plan {
    /// The definition's id.
    pub fn id(&self) -> &str {
        &self.definition.id
    }

    pub fn version(&self) -> &semver::Version {
        &self.definition.version
    }

    /// The hash of the definition's content.
    pub fn hash(&self) -> PlanHash {
        self.hash
    }

    /// The definition with its defaults filled in.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Time after which a run is reported as stuck; `None` if it may wait forever.
    pub fn stuck_after(&self) -> Option<Duration> {
        self.stuck_after
    }

    /// Checks a start's input against the definition's schema. A check that exceeds its budget is a mismatch too.
    pub fn check_input(&self, input: &Value) -> Result<(), Vec<Mismatch>> {
        let mismatches =
            self.definition.input.as_ref().map(|schema| schema.mismatches(input)).unwrap_or_default();
        if mismatches.is_empty() { Ok(()) } else { Err(mismatches) }
    }

    /// The first mismatch of the next run's input, found on the budget of the state that leads there.
    pub(crate) fn mismatch_of_next_input(
        &self,
        input: &Value,
        budget: &EvaluationBudget,
    ) -> Result<Option<Mismatch>, EvaluationLimitExceeded> {
        let Some(schema) = &self.definition.input else { return Ok(None) };
        Ok(schema.check(input, budget, ShownValues::Truncated, 1)?.into_iter().next())
    }

    pub(crate) fn state(&self, id: StateId) -> Result<&State, CorruptInstance> {
        flow::state_of(&self.definition, id)
            .ok_or_else(|| CorruptInstance::new(format!("the plan has no state with number {}", id.0)))
    }

    pub(crate) fn block(&self, id: BlockId) -> Result<&Block, CorruptInstance> {
        let block = self.definition.blocks.get(id.0 as usize);
        block.ok_or_else(|| CorruptInstance::new(format!("the plan has no block with number {}", id.0)))
    }

    /// The target of a transition.
    pub(crate) fn target(&self, block: BlockId, name: &str) -> Result<StateId, CorruptInstance> {
        let target = self.block(block)?.states.get(name).copied();
        target.ok_or_else(|| {
            CorruptInstance::new(format!("the plan has no state {name:?} in block {}", block.0))
        })
    }

    /// The first state of a block.
    pub(crate) fn start_state(&self, block: BlockId) -> Result<StateId, CorruptInstance> {
        self.target(block, self.block(block)?.start_at.as_deref().unwrap_or_default())
    }

    pub(crate) fn can_repeat(&self, state: StateId) -> bool {
        self.repeatable.get(state.0 as usize).copied().unwrap_or(true)
    }

    /// True if the success of a state can lead to another state.
    pub(crate) fn success_leads_to(&self, from: StateId, to: StateId) -> Result<bool, CorruptInstance> {
        let state = self.state(from)?;
        let Some(next) = &state.next else { return Ok(false) };
        // `fail` and `compensation` are where errors end, including errors of states that are not on this path.
        let target = self.state(to)?;
        if matches!(target.kind, StateKind::Fail { .. } | StateKind::Compensation { .. }) {
            return Ok(false);
        }
        Ok(self.flow.reachable([self.target(state.block, next)?]).contains(&to))
    }

    /// The retry policy of a step: its own, else its activity's, else the configuration's, else the language's.
    pub(crate) fn retry_policy<'a>(
        &'a self,
        own: Option<&'a RetryPolicy>,
        activity: &str,
    ) -> &'a RetryPolicy {
        let registered = || self.activities.get(activity).and_then(|activity| activity.retry_policy.as_ref());
        own.or_else(registered).unwrap_or(&self.default_policy)
    }

    pub(crate) fn attempt_timeout(&self, own: Option<Duration>, activity: &str) -> Option<Duration> {
        own.or_else(|| self.activities.get(activity).and_then(|activity| activity.attempt_timeout))
    }
}

/// States in a loop, and all states that a recovery may enter a second time.
fn repeatable_states(definition: &Definition, flow: &Flow) -> Vec<bool> {
    let mut repeatable = vec![false; definition.states.len()];
    let mut mark = |state: StateId| {
        if let Some(is_repeatable) = repeatable.get_mut(state.0 as usize) {
            *is_repeatable = true;
        }
    };
    for component in flow.components().iter().filter(|component| flow.is_loop(component)) {
        component.iter().copied().for_each(&mut mark);
    }
    let recover =
        definition.configuration.escalation.as_ref().and_then(|escalation| escalation.recover.as_ref());
    let recover = recover.and_then(|name| flow::resolve(definition, BlockId::TOP, name));
    flow.reachable(recover).into_iter().for_each(mark);
    repeatable
}

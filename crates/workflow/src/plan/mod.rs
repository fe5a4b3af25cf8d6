//! A validated definition, ready to run: defaults filled in, nothing left to fail but the world.
//!
//! A `Plan` can only be made from a [`Validated`], so what was not validated cannot run. It does not know any instance.

mod stuck;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::definition::{Block, Definition, RetryPolicy, State, StateKind};
use crate::flow::{self, Flow};
use crate::ids::{BlockId, PlanHash, StateId, digest};
use crate::instance::Corrupt;
use crate::registry::Activity;
use crate::schema::Mismatch;
use crate::time::Duration;
use crate::validate::Validated;

/// What `advance` runs.
#[derive(Clone, Debug)]
pub struct Plan {
    definition: Definition,
    hash: PlanHash,
    default_policy: RetryPolicy,
    activities: BTreeMap<String, Activity>,
    flow: Arc<Flow>,
    /// States that a branch can enter more than once.
    repeats: Vec<bool>,
    stuck_after: Option<Duration>,
}

impl Validated {
    /// Fills in the defaults: the task's own, else the activity's, else the configuration's, else the language's.
    pub fn compile(self) -> Plan {
        let Self { mut definition, activities, .. } = self;
        let hash = PlanHash(digest(&[definition.source.to_string().as_bytes()]));
        let flow = Flow::of(&definition);
        let repeats = repeating(&definition, &flow);
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
        Plan { definition, hash, default_policy, activities, flow: flow.into(), repeats, stuck_after }
    }
}

impl Plan {
    /// The definition's id.
    pub fn id(&self) -> &str {
        &self.definition.id
    }

    /// Its version.
    pub fn version(&self) -> &semver::Version {
        &self.definition.version
    }

    /// Its content.
    pub fn hash(&self) -> PlanHash {
        self.hash
    }

    /// The definition behind it, defaults filled in.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// When a run of it is to be called stuck; `None` if it may wait for ever.
    pub fn stuck_after(&self) -> Option<Duration> {
        self.stuck_after
    }

    /// Checks a start's input against the definition's schema.
    pub fn check_input(&self, input: &Value) -> Result<(), Vec<Mismatch>> {
        let mismatches =
            self.definition.input.as_ref().map(|schema| schema.mismatches(input)).unwrap_or_default();
        if mismatches.is_empty() { Ok(()) } else { Err(mismatches) }
    }

    pub(crate) fn state(&self, id: StateId) -> Result<&State, Corrupt> {
        flow::state_of(&self.definition, id)
            .ok_or_else(|| Corrupt::new(format!("the plan has no state number {}", id.0)))
    }

    pub(crate) fn block(&self, id: BlockId) -> Result<&Block, Corrupt> {
        let block = self.definition.blocks.get(id.0 as usize);
        block.ok_or_else(|| Corrupt::new(format!("the plan has no block number {}", id.0)))
    }

    /// Where a transition leads.
    pub(crate) fn target(&self, block: BlockId, name: &str) -> Result<StateId, Corrupt> {
        let target = self.block(block)?.states.get(name).copied();
        target.ok_or_else(|| Corrupt::new(format!("the plan has no state {name:?} in block {}", block.0)))
    }

    /// Where a block starts.
    pub(crate) fn start_of(&self, block: BlockId) -> Result<StateId, Corrupt> {
        self.target(block, self.block(block)?.start_at.as_deref().unwrap_or_default())
    }

    pub(crate) fn repeats(&self, state: StateId) -> bool {
        self.repeats.get(state.0 as usize).copied().unwrap_or(true)
    }

    /// Whether a state's success can lead to another.
    pub(crate) fn leads_on_to(&self, from: StateId, to: StateId) -> Result<bool, Corrupt> {
        let state = self.state(from)?;
        let Some(next) = &state.next else { return Ok(false) };
        // `fail` is where errors end, also for those who come from elsewhere.
        let target = self.state(to)?;
        if matches!(target.kind, StateKind::Fail { .. } | StateKind::Compensation { .. }) {
            return Ok(false);
        }
        Ok(self.flow.reachable([self.target(state.block, next)?]).contains(&to))
    }

    /// The policy of a step: its own, else its activity's, else the configuration's, else the language's.
    pub(crate) fn policy<'a>(&'a self, own: Option<&'a RetryPolicy>, activity: &str) -> &'a RetryPolicy {
        let registered = || self.activities.get(activity).and_then(|activity| activity.retry_policy.as_ref());
        own.or_else(registered).unwrap_or(&self.default_policy)
    }

    pub(crate) fn attempt_timeout(&self, own: Option<Duration>, activity: &str) -> Option<Duration> {
        own.or_else(|| self.activities.get(activity).and_then(|activity| activity.attempt_timeout))
    }
}

/// States in a loop, and all that a recovery may enter a second time.
fn repeating(definition: &Definition, flow: &Flow) -> Vec<bool> {
    let mut repeats = vec![false; definition.states.len()];
    let mut mark = |state: StateId| {
        if let Some(repeats) = repeats.get_mut(state.0 as usize) {
            *repeats = true;
        }
    };
    for component in flow.components().iter().filter(|component| flow.is_loop(component)) {
        component.iter().copied().for_each(&mut mark);
    }
    let recover =
        definition.configuration.escalation.as_ref().and_then(|escalation| escalation.recover.as_ref());
    let recover = recover.and_then(|name| flow::resolve(definition, BlockId::TOP, name));
    flow.reachable(recover).into_iter().for_each(mark);
    repeats
}

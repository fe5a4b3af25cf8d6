//! When a run that has not ended is to be called stuck: the longest way through its waits, and two hours.
//!
//! Counted are the time limits that authors wrote on states, and what event waits and timers wait for. The default timeout of
//! tasks is not: it bounds the worst case of a step, which is days where the step takes seconds. A loop that waits and a wait
//! without an end may take for ever; then only the workflow's own timeout says what is too long.

use std::collections::BTreeMap;

use crate::definition::{Definition, Moment, State, StateKind};
use crate::flow::{self, Flow};
use crate::ids::StateId;
use crate::time::Duration;

const MARGIN: Duration = Duration::hours(2);

/// `None` where a wait has no end.
pub(super) fn stuck_after(definition: &Definition, flow: &Flow) -> Option<Duration> {
    if definition.configuration.stuck_after.is_some() {
        return definition.configuration.stuck_after;
    }
    // Components come after all they lead to, inner blocks' states have higher numbers: two passes would do, but the inner
    // ones must be known first, so blocks are taken from the last to the first.
    let mut longest: BTreeMap<StateId, Option<Duration>> = BTreeMap::new();
    let components = flow.components();
    for block in (0..definition.blocks.len()).rev() {
        for component in &components {
            let in_block = |id: &StateId| {
                flow::state_of(definition, *id).is_some_and(|state| state.block.0 as usize == block)
            };
            if component.first().is_some_and(in_block) {
                let way = longest_from(definition, flow, component, &longest);
                longest.extend(component.iter().map(|state| (*state, way)));
            }
        }
    }
    let top = definition.blocks.first()?;
    let start = top.states.get(top.start_at.as_ref()?)?;
    let way = longest.get(start).copied().flatten();
    let limit = match (way, definition.configuration.timeout) {
        (Some(way), Some(timeout)) => Some(way.min(timeout)),
        (way, timeout) => way.or(timeout),
    };
    limit.map(|limit| limit.plus(MARGIN))
}

fn longest_from(
    definition: &Definition,
    flow: &Flow,
    component: &[StateId],
    longest: &BTreeMap<StateId, Option<Duration>>,
) -> Option<Duration> {
    let mut own = Duration::ZERO;
    let mut after = Duration::ZERO;
    for id in component {
        let state = flow::state_of(definition, *id)?;
        own = own.plus(own_time(definition, state, longest)?);
        for next in flow.successors(*id).iter().filter(|next| !component.contains(next)) {
            after = after.max(longest.get(next).copied().flatten()?);
        }
    }
    if flow.is_loop(component) && own > Duration::ZERO {
        return None;
    }
    Some(own.plus(after))
}

fn own_time(
    definition: &Definition,
    state: &State,
    longest: &BTreeMap<StateId, Option<Duration>>,
) -> Option<Duration> {
    let inner = |block: &crate::ids::BlockId| {
        let block = definition.blocks.get(block.0 as usize)?;
        longest.get(block.states.get(block.start_at.as_ref()?)?).copied().flatten()
    };
    match &state.kind {
        StateKind::WaitUntil(Moment::After(duration)) => Some(*duration),
        StateKind::WaitUntil(_) => None,
        StateKind::WaitEvent(_) => state.timeout.or(definition.configuration.default_timeout),
        StateKind::Parallel { .. } | StateKind::Map { .. } => {
            state.blocks().iter().map(inner).try_fold(Duration::ZERO, |longest, way| Some(longest.max(way?)))
        }
        StateKind::Workflow(_) => state.timeout,
        _ => Some(state.timeout.unwrap_or(Duration::ZERO)),
    }
}

//! Computes the time after which a run is reported as stuck: the longest path through its waits, plus two hours. It
//! does not watch runs.
//!
//! The time limits that authors wrote on states count, and so do the durations of event waits and timers. The default
//! timeout of tasks does not: it bounds the worst case of a step, which is days where the step takes seconds. A loop
//! that waits and a wait without an end may take forever; then only the workflow's own timeout defines what is too
//! long.

use std::collections::BTreeMap;

use crate::definition::{Definition, State, StateKind, WaitTime};
use crate::flow::{self, Flow};
use crate::ids::StateId;
use crate::time::Duration;

const MARGIN: Duration = Duration::hours(2);

/// `None` where a wait has no end.
pub(super) fn stuck_after(definition: &Definition, flow: &Flow) -> Option<Duration> {
    if definition.configuration.stuck_after.is_some() {
        return definition.configuration.stuck_after;
    }
    // Within a block, components come after all components they lead to. A state's own time includes its inner blocks,
    // which have higher numbers, so blocks are processed from the last to the first.
    let mut longest: BTreeMap<StateId, Option<Duration>> = BTreeMap::new();
    let components = flow.components();
    for block in (0..definition.blocks.len()).rev() {
        for component in &components {
            let in_block = |id: &StateId| {
                flow::state_of(definition, *id).is_some_and(|state| state.block.0 as usize == block)
            };
            if component.first().is_some_and(in_block) {
                let longest_path = longest_from(definition, flow, component, &longest);
                longest.extend(component.iter().map(|state| (*state, longest_path)));
            }
        }
    }
    let top = definition.blocks.first()?;
    let start = top.states.get(top.start_at.as_ref()?)?;
    let longest_path = longest.get(start).copied().flatten();
    let limit = match (longest_path, definition.configuration.timeout) {
        (Some(longest_path), Some(timeout)) => Some(longest_path.min(timeout)),
        (longest_path, timeout) => longest_path.or(timeout),
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
        StateKind::WaitUntil(WaitTime::After(duration)) => Some(*duration),
        StateKind::WaitUntil(_) => None,
        StateKind::WaitEvent(_) => state.timeout.or(definition.configuration.default_timeout),
        StateKind::Parallel { .. } | StateKind::Map { .. } => state
            .blocks()
            .iter()
            .map(inner)
            .try_fold(Duration::ZERO, |longest, inner| Some(longest.max(inner?))),
        StateKind::Workflow(_) => state.timeout,
        _ => Some(state.timeout.unwrap_or(Duration::ZERO)),
    }
}

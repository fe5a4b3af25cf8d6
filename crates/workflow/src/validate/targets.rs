//! Checks transitions: every target exists, every state can be reached, and every state can reach an end. It does not
//! evaluate conditions.
//!
//! A state that is unreachable only because a transition has no target is reported as a consequence of that transition:
//! fixing the one fixes the other.

use std::collections::BTreeSet;

use crate::definition::{Definition, State, closest_name};
use crate::finding::{Code, Finding, is_within};
use crate::flow::{Flow, resolve, state_of};
use crate::ids::{BlockId, StateId};

/// Number of dangling targets reported with a suggestion and with consequences. A definition may have thousands.
const DETAILED_FINDINGS_MAX: usize = 20;

pub(super) fn check(definition: &Definition, flow: &Flow, findings: &mut Vec<Finding>) {
    for (number, block) in (0_u32..).zip(&definition.blocks) {
        let block_id = BlockId(number);
        if block.states.is_empty() {
            continue;
        }
        let mut dangling = Vec::new();
        let mut starts = Vec::new();
        let mut start = |pointer: String, name: &str| match resolve(definition, block_id, name) {
            Some(state) => starts.push(state),
            None => dangling.push(dangling_target(definition, block_id, pointer, name, 0)),
        };
        // A startAt that could not be read has its own finding.
        if let Some(name) = &block.start_at {
            start(format!("{}/startAt", block.pointer), name);
        }
        let recover =
            definition.configuration.escalation.as_ref().and_then(|escalation| escalation.recover.as_ref());
        if let (BlockId::TOP, Some(recover)) = (block_id, recover) {
            start("/configuration/escalation/recover".to_owned(), recover);
        }
        let reachable = flow.reachable(starts.iter().copied());
        let mut open_ended: BTreeSet<StateId> = BTreeSet::new();
        for id in block.states.values() {
            let Some(state) = state_of(definition, *id) else { continue };
            for (place, name) in state.targets() {
                if resolve(definition, block_id, name).is_none() {
                    open_ended.insert(*id);
                    let pointer = format!("{}/{place}", state.pointer);
                    let before = dangling.len();
                    dangling.push(dangling_target(definition, block_id, pointer, name, before));
                }
            }
        }
        let unread: Vec<&State> = block
            .states
            .values()
            .filter_map(|id| state_of(definition, *id))
            .filter(|state| state.has_unreadable_exits)
            .collect();
        report_unreachable(definition, block_id, &reachable, &unread, &mut dangling, findings);
        report_endless(definition, flow, block_id, &reachable, &open_ended, findings);
        findings.append(&mut dangling);
    }
}

fn dangling_target(
    definition: &Definition,
    block: BlockId,
    pointer: String,
    name: &str,
    reported_before: usize,
) -> Finding {
    let plain = || format!("add a state {name:?} to this block, or name an existing one");
    let hint = if name.is_empty() {
        "name the state to go to".to_owned()
    } else if reported_before >= DETAILED_FINDINGS_MAX {
        plain()
    } else if definition.states.iter().any(|state| state.name == name) {
        format!(
            "{name:?} is in another block, and no transition can cross blocks: end this branch with its own succeed or fail"
        )
    } else {
        let block = definition.blocks.get(block.0 as usize);
        let known = block.into_iter().flat_map(|block| block.states.keys()).map(String::as_str);
        closest_name(name, known)
            .map_or_else(plain, |near| format!("did you mean {near:?}? Otherwise add a state {name:?}"))
    };
    Finding::new(Code::DanglingTarget, pointer, format!("there is no state {name:?} to go to"), hint)
}

/// Reports unreachable states: as consequences of dangling targets if there are any, otherwise as findings of their
/// own.
fn report_unreachable(
    definition: &Definition,
    block: BlockId,
    reachable: &BTreeSet<StateId>,
    unread: &[&State],
    dangling: &mut [Finding],
    findings: &mut Vec<Finding>,
) {
    let Some(block) = definition.blocks.get(block.0 as usize) else { return };
    if block.start_at.is_none() {
        return;
    }
    for (name, id) in block.states.iter().filter(|(_, id)| !reachable.contains(id)) {
        let Some(state) = state_of(definition, *id) else { continue };
        let consequence = format!("so state {name:?} ({}) cannot be reached", state.pointer);
        // A state whose exits could not be read already has a finding; this one follows from it.
        let of_unread =
            |finding: &&mut Finding| unread.iter().any(|state| is_within(&finding.pointer, &state.pointer));
        for finding in findings.iter_mut().filter(of_unread).take(DETAILED_FINDINGS_MAX) {
            finding.add_consequence(&consequence);
        }
        if dangling.is_empty() && unread.is_empty() {
            let message = format!("no transition leads to state {name:?}");
            let hint = "add a transition to it, or remove it";
            findings.push(Finding::new(Code::UnreachableState, state.pointer.clone(), message, hint));
        }
        for finding in dangling.iter_mut().take(DETAILED_FINDINGS_MAX) {
            finding.add_consequence(&consequence);
        }
    }
}

/// Reports reachable states that cannot reach a terminal state. A dangling target counts as an exit: it may have been
/// meant as one.
fn report_endless(
    definition: &Definition,
    flow: &Flow,
    block: BlockId,
    reachable: &BTreeSet<StateId>,
    open_ended: &BTreeSet<StateId>,
    findings: &mut Vec<Finding>,
) {
    let is_end = |id: &StateId| {
        state_of(definition, *id).is_some_and(|state| state.is_terminal() || has_no_exit(state))
    };
    let Some(block) = definition.blocks.get(block.0 as usize) else { return };
    let ends = block.states.values().copied().filter(|id| is_end(id) || open_ended.contains(id));
    let can_end = flow.leading_to(ends);
    for id in block.states.values().filter(|id| reachable.contains(id) && !can_end.contains(id)) {
        let Some(state) = state_of(definition, *id) else { continue };
        let message = format!("from state {:?} no succeed, fail or continueAsNew can be reached", state.name);
        let hint = "add a way out; a loop that is meant to run forever ends each round with continueAsNew";
        findings.push(Finding::new(Code::NoWayToEnd, state.pointer.clone(), message, hint));
    }
}

/// True for a state whose `next` could not be read; it already has a finding.
fn has_no_exit(state: &State) -> bool {
    state.targets().is_empty()
}

//! An index over the branches: by awaited command, by awaited event and by parent.
//!
//! It is never stored. It is rebuilt when an instance is loaded, so it cannot disagree with the parts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Branch, Phase};
use crate::ids::{BranchId, CommandId};

#[derive(Clone, Default, Debug)]
pub(crate) struct BranchIndex {
    by_command: BTreeMap<CommandId, BranchId>,
    event_waiters: BTreeMap<String, BTreeSet<(u64, BranchId)>>,
    children: BTreeMap<BranchId, BTreeSet<BranchId>>,
}

impl BranchIndex {
    /// The branch that waits for the result of a command.
    pub(crate) fn branch_of(&self, command: CommandId) -> Option<BranchId> {
        self.by_command.get(&command).copied()
    }

    /// Branches that wait for an event with this name, longest wait first.
    pub(crate) fn event_waiters(&self, name: &str) -> impl Iterator<Item = BranchId> {
        self.event_waiters.get(&name.to_lowercase()).into_iter().flatten().map(|(_, branch)| *branch)
    }

    /// The newest child of a branch.
    pub(crate) fn last_child(&self, branch: BranchId) -> Option<BranchId> {
        self.children.get(&branch)?.last().copied()
    }

    /// The children of a branch, oldest first.
    pub(crate) fn children(&self, branch: BranchId) -> impl DoubleEndedIterator<Item = BranchId> {
        self.children.get(&branch).into_iter().flatten().copied()
    }

    pub(crate) fn insert(&mut self, id: BranchId, branch: &Branch) {
        for command in awaited_commands(&branch.phase) {
            self.by_command.insert(command, id);
        }
        if let Phase::Event { name, since, .. } = &branch.phase {
            self.event_waiters.entry(name.to_lowercase()).or_default().insert((*since, id));
        }
        if let Some(parent) = branch.parent {
            self.children.entry(parent.branch).or_default().insert(id);
        }
    }

    pub(crate) fn remove(&mut self, id: BranchId, branch: &Branch) {
        for command in awaited_commands(&branch.phase) {
            self.by_command.remove(&command);
        }
        if let Phase::Event { name, since, .. } = &branch.phase {
            remove_member(&mut self.event_waiters, &name.to_lowercase(), &(*since, id));
        }
        if let Some(parent) = branch.parent {
            remove_member(&mut self.children, &parent.branch, &id);
        }
    }
}

fn remove_member<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// The commands whose results a phase waits for.
fn awaited_commands(phase: &Phase) -> impl Iterator<Item = CommandId> {
    let (first, second) = match phase {
        Phase::Task(progress) | Phase::Notifying(progress) => (Some(progress.call), None),
        Phase::Compensating(compensation) => (compensation.call.map(|progress| progress.call), None),
        Phase::Timer { timer } => (Some(*timer), None),
        Phase::Event { timer, .. } => (*timer, None),
        Phase::Child { child, timer } => (Some(*child), *timer),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

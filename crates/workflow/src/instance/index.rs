//! Look-ups derived from the branches: which branch an answer is for, who waits for an event, who descends from whom.
//!
//! Never stored: rebuilt when an instance is loaded, so it cannot disagree with the parts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Branch, Phase};
use crate::ids::{BranchId, CommandId};

#[derive(Clone, Default, Debug)]
pub(crate) struct Index {
    pending: BTreeMap<CommandId, BranchId>,
    waiting: BTreeMap<String, BTreeSet<(u64, BranchId)>>,
    children: BTreeMap<BranchId, BTreeSet<BranchId>>,
}

impl Index {
    /// The branch that waits for the answer to a command.
    pub(crate) fn branch_of(&self, command: CommandId) -> Option<BranchId> {
        self.pending.get(&command).copied()
    }

    /// Branches that wait for an event of this name, longest wait first.
    pub(crate) fn waiting_for(&self, name: &str) -> impl Iterator<Item = BranchId> {
        self.waiting.get(&name.to_lowercase()).into_iter().flatten().map(|(_, branch)| *branch)
    }

    /// The youngest child of a branch.
    pub(crate) fn last_child(&self, branch: BranchId) -> Option<BranchId> {
        self.children.get(&branch)?.last().copied()
    }

    /// The children of a branch, oldest first.
    pub(crate) fn children(&self, branch: BranchId) -> impl DoubleEndedIterator<Item = BranchId> {
        self.children.get(&branch).into_iter().flatten().copied()
    }

    pub(crate) fn remember(&mut self, id: BranchId, branch: &Branch) {
        for command in commands(&branch.phase) {
            self.pending.insert(command, id);
        }
        if let Phase::Event { name, since, .. } = &branch.phase {
            self.waiting.entry(name.to_lowercase()).or_default().insert((*since, id));
        }
        if let Some(parent) = branch.parent {
            self.children.entry(parent.branch).or_default().insert(id);
        }
    }

    pub(crate) fn forget(&mut self, id: BranchId, branch: &Branch) {
        for command in commands(&branch.phase) {
            self.pending.remove(&command);
        }
        if let Phase::Event { name, since, .. } = &branch.phase {
            forget_member(&mut self.waiting, &name.to_lowercase(), &(*since, id));
        }
        if let Some(parent) = branch.parent {
            forget_member(&mut self.children, &parent.branch, &id);
        }
    }
}

fn forget_member<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(member);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// The commands whose answers a phase waits for.
fn commands(phase: &Phase) -> impl Iterator<Item = CommandId> {
    let (first, second) = match phase {
        Phase::Task(delivery) | Phase::Notifying(delivery) => (Some(delivery.dispatch), None),
        Phase::Undoing(undoing) => (undoing.delivery.map(|delivery| delivery.dispatch), None),
        Phase::Timer { timer } => (Some(*timer), None),
        Phase::Event { timer, .. } => (*timer, None),
        Phase::Child { child, timer } => (Some(*child), *timer),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

//! Access to the branches of an instance. It does not know what a state means.
//!
//! Branches are changed only through this file, so the index never disagrees with them.

use std::collections::BTreeMap;

use super::{Branch, BranchIndex, BranchParent, CorruptInstance, Instance, PartKey, Phase, SlotName};
use crate::ids::{BlockId, BranchId, StateId};
use crate::time::Timestamp;

impl Instance {
    pub(crate) fn branch(&self, id: BranchId) -> Result<&Branch, CorruptInstance> {
        self.branches.get(&id).ok_or_else(|| CorruptInstance::new(format!("branch {} is missing", id.0)))
    }

    /// Changes a branch and updates the index: the only way to change one.
    pub(crate) fn change_branch<T>(
        &mut self,
        id: BranchId,
        change: impl FnOnce(&mut Branch) -> T,
    ) -> Result<T, CorruptInstance> {
        let branch = self
            .branches
            .get_mut(&id)
            .ok_or_else(|| CorruptInstance::new(format!("branch {} is missing", id.0)))?;
        self.index.remove(id, branch);
        let result = change(branch);
        self.index.insert(id, branch);
        self.changed.insert(PartKey::Branch(id));
        Ok(result)
    }

    pub(crate) fn set_phase(&mut self, id: BranchId, phase: Phase) -> Result<(), CorruptInstance> {
        self.change_branch(id, |branch| branch.phase = phase)
    }

    pub(crate) fn add_branch(
        &mut self,
        parent: Option<BranchParent>,
        block: BlockId,
        state: StateId,
        now: Timestamp,
    ) -> BranchId {
        let id = BranchId(self.header.branch_count);
        self.header_mut().branch_count = id.0.saturating_add(1);
        let branch = Branch {
            parent,
            block,
            state,
            visit: 0,
            redrive: 0,
            visits: BTreeMap::new(),
            entered_at: now,
            phase: Phase::Ready,
        };
        self.index.insert(id, &branch);
        self.branches.insert(id, branch);
        self.changed.insert(PartKey::Branch(id));
        id
    }

    pub(crate) fn remove_branch(&mut self, id: BranchId) {
        if let Some(branch) = self.branches.remove(&id) {
            self.index.remove(id, &branch);
            self.changed.insert(PartKey::Branch(id));
        }
        let slots = self.slots.remove(&id).unwrap_or_default();
        for (name, slot) in slots.state {
            self.release_slot_bytes(&slot);
            self.changed.insert(PartKey::Slot(id, SlotName::State(name)));
        }
        for (name, slot) in slots.others {
            self.release_slot_bytes(&slot);
            self.changed.insert(PartKey::Slot(id, name));
        }
    }

    pub(crate) fn index(&self) -> &BranchIndex {
        &self.index
    }

    pub(crate) fn live_branches(&self) -> usize {
        self.branches.len()
    }

    /// The branch with the highest number below `limit`.
    pub(crate) fn branch_below(&self, limit: u32) -> Option<BranchId> {
        self.branches.range(..BranchId(limit)).next_back().map(|(id, _)| *id)
    }

    /// The branch with the lowest number from `first` on.
    pub(crate) fn branch_from(&self, first: u32) -> Option<BranchId> {
        self.branches.range(BranchId(first)..).next().map(|(id, _)| *id)
    }

    pub(crate) fn branches(&self) -> impl Iterator<Item = (BranchId, &Branch)> {
        self.branches.iter().map(|(id, branch)| (*id, branch))
    }
}

//! The data slots of branches, which hold `$.state`, `$.event` and `$.error`, and the size of that data.
//!
//! It knows nothing of scoping: `scope` decides which slots a branch sees.

use super::{DataSlot, Instance, PartKey, SlotName};
use crate::ids::BranchId;
use crate::json::{self, Json};

impl Instance {
    pub(crate) fn state_slot(&self, branch: BranchId, name: &str) -> Option<&Json> {
        self.slots.get(&branch)?.state.get(name).map(|slot| &slot.value)
    }

    pub(crate) fn state_slots(&self, branch: BranchId) -> impl Iterator<Item = (&String, &Json)> {
        self.slots
            .get(&branch)
            .into_iter()
            .flat_map(|slots| &slots.state)
            .map(|(name, slot)| (name, &slot.value))
    }

    pub(crate) fn slot(&self, branch: BranchId, name: &SlotName) -> Option<&Json> {
        self.slots.get(&branch)?.others.get(name).map(|slot| &slot.value)
    }

    /// Removes a slot and returns its value.
    pub(crate) fn take_slot(&mut self, branch: BranchId, name: &SlotName) -> Option<Json> {
        let slot = self.slots.get_mut(&branch)?.others.remove(name)?;
        self.release_slot_bytes(&slot);
        self.changed.insert(PartKey::Slot(branch, name.clone()));
        Some(slot.value)
    }

    /// Puts a value, unless the run's data would grow beyond `bytes_max`; the error is the size it would have.
    pub(crate) fn put_slot(
        &mut self,
        branch: BranchId,
        name: SlotName,
        value: Json,
        bytes_max: u64,
    ) -> Result<(), u64> {
        let slots = self.slots.entry(branch).or_default();
        let old = match &name {
            SlotName::State(name) => slots.state.get(name),
            other => slots.others.get(other),
        };
        let old_bytes = old.map_or(0, |slot| slot.bytes);
        let bytes = json::size(&value);
        let total = self.header.data_bytes.saturating_sub(old_bytes).saturating_add(bytes);
        if total > bytes_max && bytes > old_bytes {
            return Err(total);
        }
        let slot = DataSlot { value, bytes };
        match name.clone() {
            SlotName::State(name) => slots.state.insert(name, slot),
            other => slots.others.insert(other, slot),
        };
        self.header_mut().data_bytes = total;
        self.changed.insert(PartKey::Slot(branch, name));
        Ok(())
    }

    pub(super) fn release_slot_bytes(&mut self, slot: &DataSlot) {
        let header = self.header_mut();
        header.data_bytes = header.data_bytes.saturating_sub(slot.bytes);
    }
}

//! Loads an instance from its stored parts and encodes the parts a turn changed. It does no I/O.
//!
//! Loading checks that every part can be decoded and that every branch has a path of parents to the root. A failed
//! check is an error to park the instance with, never a panic and never a guess.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::{decode, encode};
use super::{BranchData, BranchIndex, CorruptInstance, Instance, PartKey, SlotName};
use crate::ids::BranchId;
use crate::turn::PartChange;

impl Instance {
    /// Decodes a run from its parts, in any order.
    pub fn load<'a>(parts: impl IntoIterator<Item = (PartKey, &'a [u8])>) -> Result<Self, CorruptInstance> {
        let mut origin = None;
        let mut header = None;
        let mut outcome = None;
        let (mut unanswered_calls, mut rewinding) = (BTreeMap::new(), None);
        let (mut compensation_tally, mut compensation_retry) = (None, None);
        let mut failed_compensations = BTreeMap::new();
        let (mut branches, mut slots) = (BTreeMap::new(), BTreeMap::<BranchId, BranchData>::new());
        let (mut buffered_events, mut compensations, mut held_messages) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (key, bytes) in parts {
            let in_part = |error: CorruptInstance| CorruptInstance::new(format!("{key:?}: {}", error.reason));
            match &key {
                PartKey::Origin => origin = Some(decode(bytes).map_err(in_part)?),
                PartKey::Header => header = Some(decode(bytes).map_err(in_part)?),
                PartKey::Outcome => outcome = Some(decode(bytes).map_err(in_part)?),
                PartKey::Branch(id) => {
                    branches.insert(*id, decode(bytes).map_err(in_part)?);
                }
                PartKey::Slot(id, name) => {
                    let slot = decode(bytes).map_err(in_part)?;
                    let slots = slots.entry(*id).or_default();
                    match name {
                        SlotName::State(name) => slots.state.insert(name.clone(), slot),
                        other => slots.others.insert(other.clone(), slot),
                    };
                }
                PartKey::BufferedEvent(name, arrival) => {
                    buffered_events.insert((name.clone(), *arrival), decode(bytes).map_err(in_part)?);
                }
                PartKey::Compensation(arrival) => {
                    compensations.insert(*arrival, decode(bytes).map_err(in_part)?);
                }
                PartKey::UnansweredCall(place) => {
                    unanswered_calls.insert(*place, decode(bytes).map_err(in_part)?);
                }
                PartKey::CompensationTally => compensation_tally = Some(decode(bytes).map_err(in_part)?),
                PartKey::CompensationRetry => compensation_retry = Some(decode(bytes).map_err(in_part)?),
                PartKey::FailedCompensation(arrival) => {
                    failed_compensations.insert(*arrival, decode(bytes).map_err(in_part)?);
                }
                PartKey::Rewinding => rewinding = Some(decode(bytes).map_err(in_part)?),
                PartKey::HeldMessage(arrival) => {
                    held_messages.insert(*arrival, decode(bytes).map_err(in_part)?);
                }
            }
        }
        let mut instance = Self {
            origin: origin.ok_or_else(|| CorruptInstance::new("the origin is missing"))?,
            header: header.ok_or_else(|| CorruptInstance::new("the header is missing"))?,
            branches,
            slots,
            buffered_events,
            compensations,
            held_messages,
            unanswered_calls,
            rewinding,
            compensation_tally,
            failed_compensations,
            compensation_retry,
            outcome,
            index: BranchIndex::default(),
            changed: BTreeSet::new(),
        };
        instance.check_branch_links()?;
        for (id, branch) in &instance.branches {
            instance.index.insert(*id, branch);
        }
        Ok(instance)
    }

    /// Parents have lower numbers than their children, so walking up always ends; every ready branch exists.
    fn check_branch_links(&self) -> Result<(), CorruptInstance> {
        for (id, branch) in &self.branches {
            if id.0 >= self.header.branch_count {
                return Err(CorruptInstance::new(format!("branch {} is beyond the branch count", id.0)));
            }
            match branch.parent {
                Some(parent) if parent.branch >= *id || !self.branches.contains_key(&parent.branch) => {
                    return Err(CorruptInstance::new(format!(
                        "branch {} has the invalid parent {}",
                        id.0, parent.branch.0
                    )));
                }
                None if *id != BranchId::ROOT => {
                    return Err(CorruptInstance::new(format!("branch {} has no parent", id.0)));
                }
                _ => {}
            }
        }
        match self.header.ready_branches.iter().find(|id| !self.branches.contains_key(id)) {
            Some(id) => Err(CorruptInstance::new(format!("the ready branch {} is missing", id.0))),
            None => Ok(()),
        }
    }

    /// Returns the encoded parts that changed since the last call, in key order. A turn takes them itself; before a
    /// run's first turn they are all its parts.
    pub fn take_changes(&mut self) -> Result<Vec<PartChange>, CorruptInstance> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| Ok(PartChange { value: self.encode_part(&key)?, key })).collect()
    }

    fn encode_part(&self, key: &PartKey) -> Result<Option<Vec<u8>>, CorruptInstance> {
        match key {
            PartKey::Origin => encode(&self.origin).map(Some),
            PartKey::Header => encode(&self.header).map(Some),
            PartKey::Outcome => self.outcome.as_ref().map(encode).transpose(),
            PartKey::Branch(id) => self.branches.get(id).map(encode).transpose(),
            PartKey::Slot(id, name) => {
                let slot = self.slots.get(id).and_then(|slots| match name {
                    SlotName::State(name) => slots.state.get(name),
                    other => slots.others.get(other),
                });
                slot.map(encode).transpose()
            }
            PartKey::BufferedEvent(name, arrival) => {
                self.buffered_events.get(&(name.clone(), *arrival)).map(encode).transpose()
            }
            PartKey::Compensation(arrival) => self.compensations.get(arrival).map(encode).transpose(),
            PartKey::UnansweredCall(place) => self.unanswered_calls.get(place).map(encode).transpose(),
            PartKey::CompensationTally => self.compensation_tally.as_ref().map(encode).transpose(),
            PartKey::CompensationRetry => self.compensation_retry.as_deref().map(encode).transpose(),
            PartKey::FailedCompensation(arrival) => {
                self.failed_compensations.get(arrival).map(encode).transpose()
            }
            PartKey::Rewinding => self.rewinding.as_ref().map(encode).transpose(),
            PartKey::HeldMessage(arrival) => self.held_messages.get(arrival).map(encode).transpose(),
        }
    }
}

//! An instance from its stored parts and back: what a turn changed becomes bytes, and bytes become an instance again.
//!
//! Loading checks that every part can be read and that branches lead up to the root. What does not fit is an error to park the instance with, never a panic and
//! never a guess.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::{decode, encode};
use super::{Corrupt, Index, Instance, PartKey, SlotName, Slots};
use crate::ids::BranchId;
use crate::turn::PartChange;

impl Instance {
    /// Reads a run from its parts, in any order.
    pub fn load<'a>(parts: impl IntoIterator<Item = (PartKey, &'a [u8])>) -> Result<Self, Corrupt> {
        let (mut origin, mut header, mut outcome) = (None, None, None);
        let (mut branches, mut slots) = (BTreeMap::new(), BTreeMap::<BranchId, Slots>::new());
        let (mut buffered, mut undo, mut held) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (key, bytes) in parts {
            let in_part = |error: Corrupt| Corrupt::new(format!("{key:?}: {}", error.reason));
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
                PartKey::Buffered(name, arrival) => {
                    buffered.insert((name.clone(), *arrival), decode(bytes).map_err(in_part)?);
                }
                PartKey::Undo(arrival) => {
                    undo.insert(*arrival, decode(bytes).map_err(in_part)?);
                }
                PartKey::Held(arrival) => {
                    held.insert(*arrival, decode(bytes).map_err(in_part)?);
                }
            }
        }
        let mut instance = Self {
            origin: origin.ok_or_else(|| Corrupt::new("its origin is missing"))?,
            header: header.ok_or_else(|| Corrupt::new("its header is missing"))?,
            branches,
            slots,
            buffered,
            undo,
            held,
            outcome,
            index: Index::default(),
            changed: BTreeSet::new(),
        };
        instance.check_links()?;
        for (id, branch) in &instance.branches {
            instance.index.remember(*id, branch);
        }
        Ok(instance)
    }

    /// Parents come before their children, so walking up always ends; nothing ready is missing.
    fn check_links(&self) -> Result<(), Corrupt> {
        for (id, branch) in &self.branches {
            if id.0 >= self.header.branches {
                return Err(Corrupt::new(format!("branch {} was never counted", id.0)));
            }
            match branch.parent {
                Some(parent) if parent.branch >= *id || !self.branches.contains_key(&parent.branch) => {
                    return Err(Corrupt::new(format!("branch {} has no parent {}", id.0, parent.branch.0)));
                }
                None if *id != BranchId::ROOT => {
                    return Err(Corrupt::new(format!("branch {} has no parent", id.0)));
                }
                _ => {}
            }
        }
        match self.header.ready.iter().find(|id| !self.branches.contains_key(id)) {
            Some(id) => Err(Corrupt::new(format!("branch {} is ready and missing", id.0))),
            None => Ok(()),
        }
    }

    /// The parts changed since the last call, encoded, in key order. A turn has taken them; a run that has had none has all its parts here.
    pub fn take_changes(&mut self) -> Result<Vec<PartChange>, Corrupt> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| Ok(PartChange { value: self.encode_part(&key)?, key })).collect()
    }

    fn encode_part(&self, key: &PartKey) -> Result<Option<Vec<u8>>, Corrupt> {
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
            PartKey::Buffered(name, arrival) => {
                self.buffered.get(&(name.clone(), *arrival)).map(encode).transpose()
            }
            PartKey::Undo(arrival) => self.undo.get(arrival).map(encode).transpose(),
            PartKey::Held(arrival) => self.held.get(arrival).map(encode).transpose(),
        }
    }
}

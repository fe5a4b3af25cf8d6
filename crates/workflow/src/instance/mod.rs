//! A run as it stands: explicit state in parts. To go on, nothing but these parts is needed; history is never replayed.
//!
//! `Instance` tracks which parts a turn changed and keeps derived look-ups (who waits for what) in step with them. It does not
//! know what a state means: that is `advance`.

pub(crate) mod codec;
mod index;
mod load;
mod parts;
mod view;

use std::collections::{BTreeMap, BTreeSet};

pub use codec::FORMAT;
pub(crate) use index::Index;
pub(crate) use parts::{
    Branch, BranchParent, BufferedEvent, Closing, Delivery, Ending, Escalation, FailedAt, FanOut, Phase,
    Slot, Then, UndoRecord, Undoing,
};
pub use parts::{Header, Origin, Outcome, ParentLink, Status};
pub use view::{CurrentState, WaitingFor};

use crate::ids::{BlockId, BranchId, CommandId, RunNumber, StateId};
use crate::json::{self, Json};
use crate::message::Message;
use crate::time::Timestamp;

/// Stored bytes, or an instance, that do not fit together. The instance is to be parked with this reason; nothing is guessed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the instance is corrupt: {reason}")]
pub struct Corrupt {
    /// What does not fit.
    pub reason: String,
}

impl Corrupt {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Which part of an instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PartKey {
    /// What the run began with.
    Origin,
    /// Counters and status.
    Header,
    /// A live branch.
    Branch(BranchId),
    /// A piece of a branch's data.
    Slot(BranchId, SlotName),
    /// An event nobody has waited for yet: name in lower case, arrival.
    Buffered(String, u64),
    /// A completed task that can be undone.
    Undo(u64),
    /// A message that arrived while suspended.
    Held(u64),
    /// What the run ended with.
    Outcome,
}

/// A named piece of a branch's data.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SlotName {
    /// `$.state.<name>`
    State(String),
    /// `$.event`
    Event,
    /// `$.error`
    Error,
    /// The items of the map this branch runs.
    Items,
    /// The results of branches already joined.
    Results,
    /// What this branch ended with.
    Result,
}

/// One run of one instance.
#[derive(Clone, Debug)]
pub struct Instance {
    origin: Origin,
    header: Header,
    branches: BTreeMap<BranchId, Branch>,
    slots: BTreeMap<BranchId, Slots>,
    buffered: BTreeMap<(String, u64), BufferedEvent>,
    undo: BTreeMap<u64, UndoRecord>,
    held: BTreeMap<u64, Message>,
    outcome: Option<Outcome>,
    index: Index,
    changed: BTreeSet<PartKey>,
}

/// One branch's data. `$.state` is looked up by borrowed name on every path, hence its own map.
#[derive(Clone, Default, Debug)]
pub(crate) struct Slots {
    pub(crate) state: BTreeMap<String, Slot>,
    pub(crate) others: BTreeMap<SlotName, Slot>,
}

impl Instance {
    /// An accepted run before its first turn. The first turn writes all its parts.
    pub fn pending(origin: Origin, accepted_at: Timestamp) -> Self {
        let header = Header {
            status: Status::Pending,
            started_at: accepted_at,
            updated_at: accepted_at,
            commands: 0,
            branches: 0,
            history: 0,
            arrivals: 0,
            transitions: 0,
            transitions_allowed: 0,
            transitions_warned: false,
            redrives: 0,
            compensated: false,
            data_bytes: 0,
            buffered_bytes: 0,
            ready: Vec::new(),
            suspended: false,
            closing: None,
            timer: None,
            escalation: None,
            failed_at: None,
        };
        Self {
            origin,
            header,
            branches: BTreeMap::new(),
            slots: BTreeMap::new(),
            buffered: BTreeMap::new(),
            undo: BTreeMap::new(),
            held: BTreeMap::new(),
            outcome: None,
            index: Index::default(),
            changed: BTreeSet::from([PartKey::Origin, PartKey::Header]),
        }
    }

    /// What the run began with.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        self.header.status
    }

    /// What it ended with.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The time of its first turn.
    pub fn started_at(&self) -> Timestamp {
        self.header.started_at
    }

    /// The time of its last turn.
    pub fn updated_at(&self) -> Timestamp {
        self.header.updated_at
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn header_mut(&mut self) -> &mut Header {
        self.changed.insert(PartKey::Header);
        &mut self.header
    }

    pub(crate) fn branch(&self, id: BranchId) -> Result<&Branch, Corrupt> {
        self.branches.get(&id).ok_or_else(|| Corrupt::new(format!("branch {} is missing", id.0)))
    }

    /// Changes a branch and keeps the look-ups in step: the only way to change one.
    pub(crate) fn change_branch<T>(
        &mut self,
        id: BranchId,
        change: impl FnOnce(&mut Branch) -> T,
    ) -> Result<T, Corrupt> {
        let branch =
            self.branches.get_mut(&id).ok_or_else(|| Corrupt::new(format!("branch {} is missing", id.0)))?;
        self.index.forget(id, branch);
        let result = change(branch);
        self.index.remember(id, branch);
        self.changed.insert(PartKey::Branch(id));
        Ok(result)
    }

    pub(crate) fn set_phase(&mut self, id: BranchId, phase: Phase) -> Result<(), Corrupt> {
        self.change_branch(id, |branch| branch.phase = phase)
    }

    pub(crate) fn add_branch(
        &mut self,
        parent: Option<BranchParent>,
        block: BlockId,
        state: StateId,
        now: Timestamp,
    ) -> BranchId {
        let id = BranchId(self.header.branches);
        self.header_mut().branches = id.0.saturating_add(1);
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
        self.index.remember(id, &branch);
        self.branches.insert(id, branch);
        self.changed.insert(PartKey::Branch(id));
        id
    }

    pub(crate) fn remove_branch(&mut self, id: BranchId) {
        if let Some(branch) = self.branches.remove(&id) {
            self.index.forget(id, &branch);
            self.changed.insert(PartKey::Branch(id));
        }
        let slots = self.slots.remove(&id).unwrap_or_default();
        for (name, slot) in slots.state {
            self.forget_slot_bytes(&slot);
            self.changed.insert(PartKey::Slot(id, SlotName::State(name)));
        }
        for (name, slot) in slots.others {
            self.forget_slot_bytes(&slot);
            self.changed.insert(PartKey::Slot(id, name));
        }
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn live_branches(&self) -> usize {
        self.branches.len()
    }

    /// The branch with the highest number below `limit`.
    pub(crate) fn branch_below(&self, limit: u32) -> Option<BranchId> {
        self.branches.range(..BranchId(limit)).next_back().map(|(id, _)| *id)
    }

    pub(crate) fn branches(&self) -> impl Iterator<Item = (BranchId, &Branch)> {
        self.branches.iter().map(|(id, branch)| (*id, branch))
    }

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

    /// Takes a value out, leaving nothing.
    pub(crate) fn take_slot(&mut self, branch: BranchId, name: &SlotName) -> Option<Json> {
        let slot = self.slots.get_mut(&branch)?.others.remove(name)?;
        self.forget_slot_bytes(&slot);
        self.changed.insert(PartKey::Slot(branch, name.clone()));
        Some(slot.value)
    }

    /// Puts a value, unless the run's data would grow beyond `bytes_max`; then answers how large it would be.
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
        let slot = Slot { value, bytes };
        match name.clone() {
            SlotName::State(name) => slots.state.insert(name, slot),
            other => slots.others.insert(other, slot),
        };
        self.header_mut().data_bytes = total;
        self.changed.insert(PartKey::Slot(branch, name));
        Ok(())
    }

    fn forget_slot_bytes(&mut self, slot: &Slot) {
        let header = self.header_mut();
        header.data_bytes = header.data_bytes.saturating_sub(slot.bytes);
    }

    pub(crate) fn next_command(&mut self) -> CommandId {
        let header = self.header_mut();
        header.commands = header.commands.saturating_add(1);
        CommandId(header.commands)
    }

    pub(crate) fn next_arrival(&mut self) -> u64 {
        let header = self.header_mut();
        header.arrivals = header.arrivals.saturating_add(1);
        header.arrivals
    }

    pub(crate) fn buffer_event(&mut self, name: &str, payload: Json) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(json::size(&payload));
        self.header_mut().buffered_bytes = bytes;
        let key = (name.to_lowercase(), arrival);
        self.changed.insert(PartKey::Buffered(key.0.clone(), key.1));
        self.buffered.insert(key, BufferedEvent { payload });
    }

    /// The buffered events of one name, oldest first.
    pub(crate) fn buffered_events(&self, name: &str) -> impl Iterator<Item = (u64, &Json)> {
        let name = name.to_lowercase();
        let range = (name.clone(), 0)..=(name, u64::MAX);
        self.buffered.range(range).map(|((_, arrival), event)| (*arrival, &event.payload))
    }

    pub(crate) fn take_buffered(&mut self, name: &str, arrival: u64) -> Option<Json> {
        let key = (name.to_lowercase(), arrival);
        let event = self.buffered.remove(&key)?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(json::size(&event.payload));
        self.changed.insert(PartKey::Buffered(key.0, key.1));
        Some(event.payload)
    }

    /// Events and held messages that wait in the instance.
    pub(crate) fn buffered_count(&self) -> usize {
        self.buffered.len() + self.held.len()
    }

    pub(crate) fn hold(&mut self, message: Message) {
        let arrival = self.next_arrival();
        let bytes = self.header.buffered_bytes.saturating_add(message.payload_bytes());
        self.header_mut().buffered_bytes = bytes;
        self.held.insert(arrival, message);
        self.changed.insert(PartKey::Held(arrival));
    }

    pub(crate) fn take_held(&mut self) -> Option<Message> {
        let (arrival, message) = self.held.pop_first()?;
        let header = self.header_mut();
        header.buffered_bytes = header.buffered_bytes.saturating_sub(message.payload_bytes());
        self.changed.insert(PartKey::Held(arrival));
        Some(message)
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Records what undoes a completed task. Never refused: the task's effect is out there already.
    pub(crate) fn record_undo(&mut self, record: UndoRecord) {
        let arrival = self.next_arrival();
        let bytes = self.header.data_bytes.saturating_add(json::size(&record.input));
        self.header_mut().data_bytes = bytes;
        self.undo.insert(arrival, record);
        self.changed.insert(PartKey::Undo(arrival));
    }

    /// What `branch` and its descendants can undo, newest first.
    pub(crate) fn undo_records(&self, branch: BranchId) -> impl Iterator<Item = (u64, &UndoRecord)> {
        let mine = move |record: &&UndoRecord| record.branches.contains(&branch);
        self.undo
            .iter()
            .rev()
            .map(|(arrival, record)| (*arrival, record))
            .filter(move |(_, record)| mine(record))
    }

    pub(crate) fn undo_record(&self, arrival: u64) -> Option<&UndoRecord> {
        self.undo.get(&arrival)
    }

    pub(crate) fn remove_undo(&mut self, arrival: u64) {
        if let Some(record) = self.undo.remove(&arrival) {
            let header = self.header_mut();
            header.data_bytes = header.data_bytes.saturating_sub(json::size(&record.input));
            self.changed.insert(PartKey::Undo(arrival));
        }
    }

    pub(crate) fn set_outcome(&mut self, outcome: Option<Outcome>) {
        self.outcome = outcome;
        self.changed.insert(PartKey::Outcome);
    }

    /// The run after this one, with the events nobody has waited for.
    pub(crate) fn next_run(&self, input: Json, now: Timestamp) -> Self {
        let run = RunNumber(self.origin.run.0.saturating_add(1));
        let seed = Origin::seed_of(&self.origin.instance_id, run);
        let mut next = Self::pending(Origin { run, seed, input, event: None, ..self.origin.clone() }, now);
        next.header.arrivals = self.header.arrivals;
        next.header.buffered_bytes = self.buffered.values().map(|event| json::size(&event.payload)).sum();
        next.buffered.clone_from(&self.buffered);
        next.changed
            .extend(self.buffered.keys().map(|(name, arrival)| PartKey::Buffered(name.clone(), *arrival)));
        // Held answers are for commands of this run; held events are for whoever will wait.
        for message in self.held.values() {
            if let Message::EventRaised { name, payload } = message {
                next.buffer_event(name, payload.clone());
            }
        }
        next
    }
}

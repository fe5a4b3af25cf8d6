//! A run as it stands: explicit state in parts. To go on, nothing but these parts is needed; history is never replayed.
//!
//! `Instance` tracks which parts a turn changed and keeps derived look-ups (who waits for what) in step with them. It does not
//! know what a state means: that is `advance`.

mod branches;
pub(crate) mod codec;
mod data;
mod index;
mod load;
mod parts;
mod phase;
mod queues;
mod view;

use std::collections::{BTreeMap, BTreeSet};

pub use codec::FORMAT;
pub(crate) use index::Index;
pub(crate) use parts::{
    Branch, BranchParent, BufferedEvent, Closing, Ending, Escalation, FailedAt, Slot, UndoRecord,
};
pub use parts::{Header, Origin, Outcome, ParentLink, Status};
pub(crate) use phase::{Delivery, FanOut, Phase, Then, Undoing};
pub use view::{CurrentState, WaitingFor};

use crate::ids::{BranchId, CommandId, RunNumber};
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
            entered_since_message: 0,
            rewind_from: None,
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

    /// Stops the run where it is: orders still take effect, and nothing else does before them. For one that cannot go on and is to be ended.
    pub fn halt(&mut self) {
        self.header_mut().suspended = true;
    }

    /// Forgets an input that must not be stored.
    pub(crate) fn drop_input(&mut self) {
        self.origin.input = Json::default();
        self.changed.insert(PartKey::Origin);
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn header_mut(&mut self) -> &mut Header {
        self.changed.insert(PartKey::Header);
        &mut self.header
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

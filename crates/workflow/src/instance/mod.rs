//! The current state of a run, explicit and in parts. A run continues from these parts alone; history is never
//! replayed.
//!
//! `Instance` tracks which parts a turn changed and keeps the index of its branches consistent with them. It does not
//! know what a state means: `advance` does.

mod branches;
pub(crate) mod codec;
mod compensations;
mod data_slots;
mod index;
mod load;
mod parts;
mod phase;
mod queues;
mod unanswered_calls;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use abide_ids::Digest;

pub use codec::FORMAT;
pub use compensations::CompensationCounts;
pub(crate) use compensations::{CompensationRetry, CompensationTally, FailedCompensation};
pub(crate) use index::BranchIndex;
pub(crate) use parts::{
    Branch, BranchParent, BufferedEvent, ClosingProgress, CompensationRecord, DataSlot, Ending,
    EscalationStage, RewindPoint,
};
pub use parts::{Header, Outcome, ParentLink, RunOrigin, Status};
pub(crate) use phase::{AfterCollapse, CallProgress, CompensationProgress, FanOutProgress, Phase};
pub(crate) use unanswered_calls::{Rewinding, UnansweredCall};
pub use view::{CurrentState, WaitingFor};

use crate::ids::{BranchId, CommandId, RunNumber};
use crate::json::{self, Json};
use crate::message::Message;
use crate::time::Timestamp;

/// Stored bytes or an instance that are inconsistent. The caller parks the instance with this reason; nothing is
/// guessed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the instance is corrupt: {reason}")]
pub struct CorruptInstance {
    pub reason: String,
}

impl CorruptInstance {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// The key of one part of an instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PartKey {
    /// The data a run starts with; written once.
    Origin,
    /// Counters, status and everything else that changes every turn.
    Header,
    /// A live branch.
    Branch(BranchId),
    /// A piece of a branch's data.
    Slot(BranchId, SlotName),
    /// An event that no branch has consumed yet: name in lower case, arrival.
    BufferedEvent(String, u64),
    /// A completed task that can be compensated.
    Compensation(u64),
    /// A message that arrived while the run was suspended.
    HeldMessage(u64),
    /// The result of an ended run.
    Outcome,
    /// A call whose outcome is unknown, by the digest of its place in the run.
    UnansweredCall(Digest),
    /// Present until a rewind has restarted all branches.
    Rewinding,
    /// The counts of the run's compensation steps.
    CompensationTally,
    /// A compensation step that failed for good.
    FailedCompensation(u64),
    /// Present while an ended run runs its failed compensation steps again.
    CompensationRetry,
}

/// A named piece of a branch's data.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SlotName {
    /// The value of `$.state.<name>`.
    State(String),
    /// The value of `$.event`.
    Event,
    /// The value of `$.error`.
    Error,
    /// The items of the map that this branch runs.
    Items,
    /// The collected results of a map's or parallel's branches.
    Results,
    /// The result of this branch, until the join.
    Result,
}

/// One run of one instance.
#[derive(Clone, Debug)]
pub struct Instance {
    origin: RunOrigin,
    header: Header,
    branches: BTreeMap<BranchId, Branch>,
    slots: BTreeMap<BranchId, BranchData>,
    buffered_events: BTreeMap<(String, u64), BufferedEvent>,
    compensations: BTreeMap<u64, CompensationRecord>,
    held_messages: BTreeMap<u64, Message>,
    unanswered_calls: BTreeMap<Digest, UnansweredCall>,
    rewinding: Option<Rewinding>,
    compensation_tally: Option<CompensationTally>,
    failed_compensations: BTreeMap<u64, FailedCompensation>,
    compensation_retry: Option<Box<CompensationRetry>>,
    outcome: Option<Outcome>,
    index: BranchIndex,
    changed: BTreeSet<PartKey>,
}

/// One branch's data. `$.state` is looked up by borrowed name on every path, hence its own map.
#[derive(Clone, Default, Debug)]
pub(crate) struct BranchData {
    pub(crate) state: BTreeMap<String, DataSlot>,
    pub(crate) others: BTreeMap<SlotName, DataSlot>,
}

impl Instance {
    /// An accepted run before its first turn. The first turn writes all its parts.
    pub fn pending(origin: RunOrigin, accepted_at: Timestamp) -> Self {
        let header = Header {
            status: Status::Pending,
            started_at: accepted_at,
            updated_at: accepted_at,
            command_count: 0,
            branch_count: 0,
            history_count: 0,
            arrival_count: 0,
            transitions: 0,
            transitions_allowed: 0,
            transitions_warned: false,
            redrives: 0,
            compensated: false,
            data_bytes: 0,
            buffered_bytes: 0,
            ready_branches: Vec::new(),
            suspended: false,
            closing: None,
            workflow_timer: None,
            escalation: None,
            rewind_point: None,
            entered_since_message: 0,
            rewind_next_branch: None,
        };
        Self {
            origin,
            header,
            branches: BTreeMap::new(),
            slots: BTreeMap::new(),
            buffered_events: BTreeMap::new(),
            compensations: BTreeMap::new(),
            held_messages: BTreeMap::new(),
            unanswered_calls: BTreeMap::new(),
            rewinding: None,
            compensation_tally: None,
            failed_compensations: BTreeMap::new(),
            compensation_retry: None,
            outcome: None,
            index: BranchIndex::default(),
            changed: BTreeSet::from([PartKey::Origin, PartKey::Header]),
        }
    }

    /// The data the run started with.
    pub fn origin(&self) -> &RunOrigin {
        &self.origin
    }

    pub fn status(&self) -> Status {
        self.header.status
    }

    /// The result of the run, once it has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The time of the first turn.
    pub fn started_at(&self) -> Timestamp {
        self.header.started_at
    }

    /// The time of the last turn.
    pub fn updated_at(&self) -> Timestamp {
        self.header.updated_at
    }

    /// Suspends the run where it is: only control operations take effect from now on. For a run that cannot continue
    /// and is going to be ended.
    pub fn suspend_unconditionally(&mut self) {
        self.header_mut().suspended = true;
    }

    /// Discards an input that must not be stored.
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
        header.command_count = header.command_count.saturating_add(1);
        CommandId(header.command_count)
    }

    pub(crate) fn next_arrival(&mut self) -> u64 {
        let header = self.header_mut();
        header.arrival_count = header.arrival_count.saturating_add(1);
        header.arrival_count
    }

    pub(crate) fn set_outcome(&mut self, outcome: Option<Outcome>) {
        self.outcome = outcome;
        self.changed.insert(PartKey::Outcome);
    }

    /// The run after this one, with the events that no branch has consumed.
    pub(crate) fn next_run(&self, input: Json, now: Timestamp) -> Self {
        let run = RunNumber(self.origin.run.0.saturating_add(1));
        let seed = RunOrigin::derive_seed(&self.origin.instance_id, run);
        let mut next = Self::pending(RunOrigin { run, seed, input, event: None, ..self.origin.clone() }, now);
        next.header.arrival_count = self.header.arrival_count;
        next.header.buffered_bytes =
            self.buffered_events.values().map(|event| json::size(&event.payload)).sum();
        next.buffered_events.clone_from(&self.buffered_events);
        next.changed.extend(
            self.buffered_events.keys().map(|(name, arrival)| PartKey::BufferedEvent(name.clone(), *arrival)),
        );
        // Held results belong to commands of this run; held events may be consumed by the next run.
        for message in self.held_messages.values() {
            if let Message::EventRaised { name, payload } = message {
                next.buffer_event(name, payload.clone());
            }
        }
        next
    }
}

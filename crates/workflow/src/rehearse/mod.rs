//! Rehearsals: definitions run in memory with mocked activities and skipped time. Authors test their workflows with it,
//! and it drives this crate's own tests.
//!
//! It simulates the runtime around `advance` (dispatch, timers, children, time) as simply as the contract allows. It
//! promises nothing about durability: that is the runtime's task.

mod mocks;
mod virtual_runtime;

pub use mocks::{MockError, MockOutcome, Mocks, Stimulus, parse_stimuli};

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::HistoryEvent;
use crate::ids::InstanceId;
use crate::instance::{CorruptInstance, CurrentState, Outcome, Status};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::time::{Duration, Timestamp};

/// A workflow to rehearse, with its input, mocks and limits.
#[derive(Debug)]
pub struct Rehearsal<'a> {
    pub plan: &'a Plan,
    /// Definitions that `workflow` states really start instead of using a mock.
    pub children: BTreeMap<String, &'a Plan>,
    /// Outcomes of activities, and of workflows that are not among the children.
    pub mocks: Mocks,
    /// Events and control operations from outside, each with its time after the start.
    pub stimuli: Vec<(Duration, Stimulus)>,
    pub input: Value,
    /// The virtual time of the start.
    pub start: Timestamp,
    pub limits: Limits,
    /// True to rebuild the instance from its stored parts after every turn, as after a crash.
    pub reload: bool,
    /// The rehearsal stops after this number of turns.
    pub turns_max: usize,
}

impl<'a> Rehearsal<'a> {
    /// A rehearsal without mocks, events or input.
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            children: BTreeMap::new(),
            mocks: Mocks::default(),
            stimuli: Vec::new(),
            input: Value::Object(serde_json::Map::new()),
            start: Timestamp(1_767_225_600_000),
            limits: Limits::default(),
            reload: false,
            turns_max: 100_000,
        }
    }

    /// Runs until nothing more is scheduled.
    pub fn play(self) -> Result<Playback, CorruptInstance> {
        virtual_runtime::VirtualRuntime::new(self).play()
    }
}

/// The record of a rehearsal.
#[derive(Debug)]
pub struct Playback {
    /// The status of the main instance's last run.
    pub status: Status,
    /// The result of the main run; `None` if it still waits.
    pub outcome: Option<Outcome>,
    /// The current states of the main run, if it still waits.
    pub current_states: Vec<CurrentState>,
    /// The history of all instances, in the order it happened.
    pub timeline: Vec<(InstanceId, HistoryEvent)>,
    /// All attempts of activities, in order.
    pub attempts: Vec<ActivityAttempt>,
    /// Activities that were called and had no mock: their result was null. Workflows among them were not found.
    pub unmocked: Vec<String>,
    /// Mocks that were never used.
    pub unused_mocks: Vec<String>,
    /// Names of events that no branch consumed.
    pub unconsumed_events: Vec<String>,
    /// Why messages from outside were refused.
    pub refusals: Vec<String>,
    /// Number of turns.
    pub turns: usize,
    /// True if the rehearsal was stopped after `turns_max` turns.
    pub turn_limit_reached: bool,
}

/// One attempt of an activity call.
#[derive(Clone, PartialEq, Debug)]
pub struct ActivityAttempt {
    pub instance: InstanceId,
    pub activity: String,
    /// The step's path in the definition.
    pub step: String,
    pub input: Value,
    /// Number of the attempt, from 0.
    pub attempt: u32,
    pub at: Timestamp,
    /// True if the attempt returned a result.
    pub succeeded: bool,
}

/// Time limit of one attempt, unless the activity or the task sets its own.
pub const DEFAULT_ATTEMPT_TIMEOUT: Duration = Duration::seconds(10);

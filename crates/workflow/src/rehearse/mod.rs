//! A rehearsal: definitions run in memory with mocked activities and skipped time. The author's test bench, and the driver of
//! this crate's own tests.
//!
//! It plays the world around `advance` (dispatch, timers, children, time) as simply as the contract allows. It promises
//! nothing about durability: that is the runtime's.

mod mocks;
mod world;

pub use mocks::{Answer, MockError, Mocks, Stimulus, parse_stimuli};

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::HistoryEvent;
use crate::ids::InstanceId;
use crate::instance::{Corrupt, CurrentState, Outcome, Status};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::time::{Duration, Timestamp};

/// Everything a rehearsal needs besides the plan.
#[derive(Debug)]
pub struct Rehearsal<'a> {
    /// The workflow.
    pub plan: &'a Plan,
    /// Definitions that `workflow` states may start for real.
    pub children: BTreeMap<String, &'a Plan>,
    /// Answers of activities, and of workflows that are not among the children.
    pub mocks: Mocks,
    /// What happens from outside, and when.
    pub stimuli: Vec<(Duration, Stimulus)>,
    /// The run's input.
    pub input: Value,
    /// When it starts.
    pub start: Timestamp,
    /// Limits of the run and its turns.
    pub limits: Limits,
    /// Rebuild the instance from its stored parts after every turn, as after a crash.
    pub reload: bool,
    /// Turns after which to give up.
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

    /// Plays it until nothing is left to happen.
    pub fn play(self) -> Result<Playback, Corrupt> {
        world::World::new(self).play()
    }
}

/// What happened.
#[derive(Debug)]
pub struct Playback {
    /// The status of the main instance's last run.
    pub status: Status,
    /// What it ended with; `None` if it still waits.
    pub outcome: Option<Outcome>,
    /// Where it still is, if it waits.
    pub waiting: Vec<CurrentState>,
    /// All history of all instances, in the order it happened.
    pub timeline: Vec<(InstanceId, HistoryEvent)>,
    /// Activity deliveries in order: name, input, attempt.
    pub deliveries: Vec<Delivered>,
    /// Activities that were called and had no mock: they answered null. Workflows among them could not be found.
    pub unmocked: Vec<String>,
    /// Mocks that nothing asked for.
    pub unused_mocks: Vec<String>,
    /// Names of events nobody has taken.
    pub untaken_events: Vec<String>,
    /// Why outside messages were refused.
    pub refusals: Vec<String>,
    /// Turns played.
    pub turns: usize,
    /// It was given up after `turns_max` turns.
    pub gave_up: bool,
}

/// One delivery of an activity.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivered {
    /// Whose.
    pub instance: InstanceId,
    /// The activity.
    pub activity: String,
    /// The step's path.
    pub step: String,
    /// Its input.
    pub input: Value,
    /// From 0.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// Whether it answered with a result.
    pub succeeded: bool,
}

/// The time one delivery may take unless the activity or the task says otherwise.
pub const ATTEMPT_TIMEOUT: Duration = Duration::seconds(10);

//! What a run's compensation has achieved: the counts of its steps, and the steps that failed for good, with all that
//! is needed to run them again. It does not decide when a step runs; `advance` does.
//!
//! The types are stored: fields are append-only (docs/formats/instance.md).

use serde::{Deserialize, Serialize};

use super::{Instance, Outcome, PartKey, Phase, Status, codec};
use crate::command::{FanOutPosition, StepIdentity};
use crate::ids::StateId;
use crate::json::Json;

/// How many compensation steps of a run have ended well, have failed for good, and are still to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompensationCounts {
    pub done: u32,
    pub failed: u32,
    pub pending: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct CompensationTally {
    /// The steps of all compensations that have begun.
    pub(crate) planned: u32,
    pub(crate) done: u32,
    pub(crate) failed: u32,
}

/// A compensation step that failed for good.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FailedCompensation {
    pub(crate) activity: String,
    #[serde(with = "codec::json")]
    pub(crate) input: Json,
    pub(crate) secret_pointers: Vec<String>,
    /// The `compensation` state and the position of the step in it; `None` if a completed task had recorded it.
    pub(crate) explicit: Option<(StateId, u32)>,
    /// The identity of its last call: path, visit, redrive.
    pub(crate) path: String,
    pub(crate) visit: u32,
    pub(crate) redrive: u32,
    /// Visit, redrive and position of each fan-out, outermost first.
    pub(crate) fan_outs: Vec<(u32, u32, u32)>,
    pub(crate) fan_out_path: Option<String>,
    /// An attempt may have run without an answer: the next call has the same identity.
    pub(crate) outcome_unknown: bool,
}

impl FailedCompensation {
    /// The identity of the next call.
    pub(crate) fn next_identity(&self) -> StepIdentity {
        let position = |(visit, redrive, index)| FanOutPosition { visit, redrive, index };
        StepIdentity {
            path: self.path.clone(),
            visit: self.visit,
            redrive: self.redrive.saturating_add(u32::from(!self.outcome_unknown)),
            fan_outs: self.fan_outs.iter().copied().map(position).collect(),
            fan_out_path: self.fan_out_path.clone(),
        }
    }
}

/// An ended run is running its failed compensation steps again; this is what it is restored to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CompensationRetry {
    pub(crate) status: Status,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) root_phase: Phase,
    /// The last failed step that was taken up.
    pub(crate) last: u64,
}

impl Instance {
    /// The counts of the run's compensation steps; `None` if it has compensated nothing, or an older release did it.
    pub fn compensation_counts(&self) -> Option<CompensationCounts> {
        let CompensationTally { planned, done, failed } = self.compensation_tally?;
        let pending = planned.saturating_sub(done).saturating_sub(failed);
        Some(CompensationCounts { done, failed, pending })
    }

    pub(crate) fn change_compensation_tally(&mut self, change: impl FnOnce(&mut CompensationTally)) {
        change(self.compensation_tally.get_or_insert_default());
        self.changed.insert(PartKey::CompensationTally);
    }

    pub(crate) fn failed_compensation(&self, arrival: u64) -> Option<&FailedCompensation> {
        self.failed_compensations.get(&arrival)
    }

    /// The oldest failed step after this one.
    pub(crate) fn failed_compensation_after(&self, arrival: u64) -> Option<u64> {
        self.failed_compensations.range(arrival.saturating_add(1)..).next().map(|(arrival, _)| *arrival)
    }

    pub(crate) fn failed_compensations_len(&self) -> usize {
        self.failed_compensations.len()
    }

    pub(crate) fn add_failed_compensation(&mut self, failed: FailedCompensation) {
        let arrival = self.next_arrival();
        self.put_failed_compensation(arrival, Some(failed));
    }

    pub(crate) fn put_failed_compensation(&mut self, arrival: u64, failed: Option<FailedCompensation>) {
        match failed {
            Some(failed) => self.failed_compensations.insert(arrival, failed),
            None => self.failed_compensations.remove(&arrival),
        };
        self.changed.insert(PartKey::FailedCompensation(arrival));
    }

    /// True while the failed compensation steps of a run that has ended run again.
    pub fn is_retrying_compensation(&self) -> bool {
        self.compensation_retry.is_some()
    }

    pub(crate) fn compensation_retry(&self) -> Option<&CompensationRetry> {
        self.compensation_retry.as_deref()
    }

    pub(crate) fn set_compensation_retry(&mut self, retry: Option<CompensationRetry>) {
        self.compensation_retry = retry.map(Box::new);
        self.changed.insert(PartKey::CompensationRetry);
    }
}

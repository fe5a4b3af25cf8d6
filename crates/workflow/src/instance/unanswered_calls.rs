//! The calls of a run whose outcome is unknown: if a rewind runs their step again, it uses the same identity, so that a
//! receiver which has done the work recognises it. Which calls these are is decided in `advance`.
//!
//! An entry stays until a call with its identity is answered, or until no rewind can lead to its step any more. Its
//! place is its identity without the numbers of redrives, which are what it restores.
//!
//! The types are stored: fields are append-only (docs/formats/instance.md).

use abide_ids::Digest;
use serde::{Deserialize, Serialize};

use super::{Instance, PartKey};
use crate::command::{FanOutPosition, StepIdentity};
use crate::time::Timestamp;

/// A call that may have run and was not answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UnansweredCall {
    /// The state's path.
    pub(crate) path: String,
    pub(crate) visit: u32,
    pub(crate) redrive: u32,
    /// Visit, redrive and position in each fan-out, outermost first.
    pub(crate) fan_outs: Vec<(u32, u32, u32)>,
    /// When the branch entered the state: the input is rendered as of then, so that the same key comes with the same
    /// input.
    pub(crate) entered_at: Timestamp,
    /// False if the call failed for good; true if it was cancelled because the run failed elsewhere.
    pub(crate) interrupted: bool,
}

/// A rewind that has not restarted all branches yet. Beside `rewind_next_branch` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Rewinding {
    /// Branches from this number on were started by the rewind itself: they are not restarted.
    pub(crate) branches_end: u32,
    /// Every call gets a new key.
    pub(crate) new_keys: bool,
}

impl UnansweredCall {
    fn new(step: &StepIdentity, entered_at: Timestamp, interrupted: bool) -> Self {
        let fan_outs = step.fan_outs.iter().map(|at| (at.visit, at.redrive, at.index)).collect();
        let StepIdentity { path, visit, redrive, .. } = step.clone();
        Self { path, visit, redrive, fan_outs, entered_at, interrupted }
    }

    /// The identity of the call, for a step at the same place.
    pub(crate) fn identity(&self, step: &StepIdentity) -> StepIdentity {
        let position = |(visit, redrive, index)| FanOutPosition { visit, redrive, index };
        let fan_outs = self.fan_outs.iter().copied().map(position).collect();
        StepIdentity { redrive: self.redrive, fan_outs, ..step.clone() }
    }

    /// True if the call belongs to this visit of a state of the top level, directly or in a branch of it.
    pub(crate) fn is_below(&self, path: &str, visit: u32) -> bool {
        let within = self.path.strip_prefix(path);
        let outermost = self.fan_outs.first().map_or(self.visit, |(visit, ..)| *visit);
        outermost == visit && within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The place of a step in its run.
fn place_of(step: &StepIdentity) -> Digest {
    let positions: Vec<u8> = step
        .fan_outs
        .iter()
        .flat_map(|at| [at.visit.to_be_bytes(), at.index.to_be_bytes()].concat())
        .collect();
    Digest::of_parts(&[step.path.as_bytes(), &step.visit.to_be_bytes(), &positions])
}

impl Instance {
    pub(crate) fn has_unanswered_calls(&self) -> bool {
        !self.unanswered_calls.is_empty()
    }

    /// The unanswered call at the place of this step.
    pub(crate) fn unanswered_call(&self, step: &StepIdentity) -> Option<&UnansweredCall> {
        // Almost always: then no digest is made.
        if self.unanswered_calls.is_empty() {
            return None;
        }
        self.unanswered_calls.get(&place_of(step))
    }

    /// Remembers the identity of a call that may have run. One that is remembered already keeps it.
    pub(crate) fn remember_unanswered(
        &mut self,
        step: &StepIdentity,
        entered_at: Timestamp,
        interrupted: bool,
    ) {
        let place = place_of(step);
        let known = self.unanswered_calls.get(&place);
        let call = match known {
            Some(known) if known.interrupted == interrupted => return,
            Some(known) => UnansweredCall { interrupted, ..known.clone() },
            None => UnansweredCall::new(step, entered_at, interrupted),
        };
        self.unanswered_calls.insert(place, call);
        self.changed.insert(PartKey::UnansweredCall(place));
    }

    /// The call at the place of this step has been answered.
    pub(crate) fn forget_unanswered(&mut self, step: &StepIdentity) {
        let place = place_of(step);
        if self.unanswered_calls.remove(&place).is_some() {
            self.changed.insert(PartKey::UnansweredCall(place));
        }
    }

    /// Forgets all unanswered calls but these.
    pub(crate) fn retain_unanswered(&mut self, mut keep: impl FnMut(&UnansweredCall) -> bool) {
        let changed = &mut self.changed;
        self.unanswered_calls.retain(|place, call| {
            let kept = keep(call);
            if !kept {
                changed.insert(PartKey::UnansweredCall(*place));
            }
            kept
        });
    }

    /// True during a rewind that gives every call a new key.
    pub(crate) fn wants_new_keys(&self) -> bool {
        self.rewinding.is_some_and(|rewinding| rewinding.new_keys)
    }

    /// The branches that existed when the rewind began have lower numbers. A rewind that an older build began knows no
    /// bound.
    pub(crate) fn rewound_branches_end(&self) -> u32 {
        self.rewinding.map_or(u32::MAX, |rewinding| rewinding.branches_end)
    }

    pub(crate) fn set_rewinding(&mut self, rewinding: Option<Rewinding>) {
        self.rewinding = rewinding;
        self.changed.insert(PartKey::Rewinding);
    }
}

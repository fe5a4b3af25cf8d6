//! The calls of the shard that are held back, by reason: what metrics show.
//!
//! Only memory: a call that was held under the last owner is counted again when this one takes it up. Why a call is
//! held, and what becomes of it, is not known here.

use std::collections::BTreeMap;

use abide_dispatch::HoldReason;
use abide_ids::RunId;
use abide_workflow::CommandId;

/// The held calls; see above.
#[derive(Debug, Default)]
pub(in crate::shard) struct HeldCalls {
    by_call: BTreeMap<(RunId, CommandId), HoldReason>,
    counts: BTreeMap<HoldReason, usize>,
}

impl HeldCalls {
    /// A call is held for this reason now.
    pub(in crate::shard) fn note(&mut self, run_id: RunId, command: CommandId, reason: HoldReason) {
        let before = self.by_call.insert((run_id, command), reason);
        self.uncount(before);
        *self.counts.entry(reason).or_default() += 1;
    }

    /// A call is not held any more, if it was.
    pub(in crate::shard) fn forget(&mut self, run_id: RunId, command: CommandId) {
        let before = self.by_call.remove(&(run_id, command));
        self.uncount(before);
    }

    /// No call of the run is held any more.
    pub(in crate::shard) fn forget_run(&mut self, run_id: RunId) {
        while let Some((&(held_run, command), _)) = self
            .by_call
            .range((run_id, CommandId(0))..)
            .next()
            .filter(|((held_run, _), _)| *held_run == run_id)
        {
            self.forget(held_run, command);
        }
    }

    /// How many calls are held for this reason.
    pub(in crate::shard) fn count(&self, reason: HoldReason) -> usize {
        self.counts.get(&reason).copied().unwrap_or(0)
    }

    fn uncount(&mut self, before: Option<HoldReason>) {
        if let Some(count) = before.and_then(|before| self.counts.get_mut(&before)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_once_by_their_latest_reason_until_they_or_their_run_are_forgotten() {
        let mut held = HeldCalls::default();
        let counts = |held: &HeldCalls| HoldReason::ALL.map(|reason| held.count(reason));
        held.note(RunId(1), CommandId(1), HoldReason::NotConnected);
        held.note(RunId(1), CommandId(2), HoldReason::NotConnected);
        held.note(RunId(2), CommandId(1), HoldReason::RateLimit);
        assert_eq!(counts(&held), [2, 0, 1, 0]);
        held.note(RunId(1), CommandId(1), HoldReason::CircuitOpen);
        assert_eq!(counts(&held), [1, 1, 1, 0]);
        held.forget(RunId(1), CommandId(2));
        held.forget(RunId(1), CommandId(2));
        assert_eq!(counts(&held), [0, 1, 1, 0]);
        held.forget_run(RunId(1));
        assert_eq!(counts(&held), [0, 0, 1, 0]);
    }
}

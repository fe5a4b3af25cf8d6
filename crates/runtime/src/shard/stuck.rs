//! Reports stuck runs: those that have not ended within the time their definition allows, once each.
//!
//! A run gets a stuck timer only when it may take long: it is older than a minute, or waits for anything but the first
//! attempt of a short call. Until then its open call stands in for the timer; an attempt that exceeds a minute brings
//! it. Nothing here changes what a run does.

use abide_ids::RunId;
use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::Timestamp;

use super::commit_queue::OnCommit;
use super::instance_slot::WorkItem;
use super::run_state::ResidentRun;
use super::schedule::DueKey;
use super::{Shard, later};
use crate::event::{AttemptId, Effect, OperatorEvent};
use crate::request::BranchView;
use crate::run::{EntryChange, StuckWatch};

/// Calls with a timeout up to this, in milliseconds, are short: a run that only waits for the first attempt of one
/// needs no stuck timer yet. It needs one when the attempt, or the run, gets older than this.
const SLOW_AFTER_MS: u64 = 60_000;
/// How often slow calls are searched for, and how many of them are handled at once.
const SLOW_CALL_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
const SLOW_CALLS_PER_CHECK: usize = 256;

/// An attempt in flight, for the search for slow calls.
#[derive(Debug)]
pub(super) struct InFlightAttempt {
    sent_at: Timestamp,
    stuck_watched: bool,
}

impl InFlightAttempt {
    /// The run of a call that may take long got its stuck timer with the turn that made the call.
    pub(super) fn new(sent_at: Timestamp, attempt_timeout_ms: u64) -> Self {
        Self { sent_at, stuck_watched: attempt_timeout_ms > SLOW_AFTER_MS }
    }
}

impl Shard {
    /// Sets the stuck timer of a run that may take long, and deletes that of an ended run.
    pub(super) fn update_stuck_timer(&mut self, run: &mut ResidentRun, changes: &mut Vec<EntryChange>) {
        if run.has_ended() {
            if let Some(watch) = run.bookkeeping.stuck_watch {
                changes.push(run.bookkeeping.set_stuck_watch(None));
                self.delete_stuck_timer(run.row.run_id, watch);
            }
            return;
        }
        let (None, Some(after)) = (run.bookkeeping.stuck_watch, run.plan.stuck_after()) else { return };
        let created_at = run.row.created_at;
        let old = self.now.wall.since(created_at).0 > SLOW_AFTER_MS;
        let slow = |call: &super::run_state::OpenCall| {
            call.row.attempt > 0 || call.row.attempt_timeout_ms > SLOW_AFTER_MS
        };
        let waits = !run.unfinished && (run.calls.is_empty() || run.calls.values().any(slow));
        if old || waits {
            let due_at = created_at.plus(after);
            changes.push(run.bookkeeping.set_stuck_watch(Some(StuckWatch::Due(due_at))));
            self.write_timer(run, TimerPurpose::StuckCheck, due_at, None);
        }
    }

    /// Sets the stuck timer of runs whose attempt is slow, possibly because it waits for a permit. Such a run takes no
    /// turn while it waits, and otherwise only a turn sets its stuck timer. The queued items are processed at once.
    pub(super) fn watch_slow_attempts(&mut self) {
        let now = self.now;
        if self.slow_calls_checked_at.is_some_and(|at| later(at, SLOW_CALL_CHECK_INTERVAL) > now.mono) {
            return;
        }
        self.slow_calls_checked_at = Some(now.mono);
        let is_slow = |attempt: &InFlightAttempt| {
            !attempt.stuck_watched && now.wall.since(attempt.sent_at).0 > SLOW_AFTER_MS
        };
        let mut slow: Vec<AttemptId> = self
            .attempts_in_flight
            .iter()
            .filter(|(_, attempt)| is_slow(attempt))
            .map(|(attempt_id, _)| attempt_id.clone())
            .collect();
        // In an order that does not depend on the hash map.
        slow.sort_unstable();
        slow.truncate(SLOW_CALLS_PER_CHECK);
        for attempt_id in slow {
            if let Some(attempt) = self.attempts_in_flight.get_mut(&attempt_id) {
                attempt.stuck_watched = true;
            }
            let watch = WorkItem::WatchStuck { run_id: attempt_id.run_id };
            self.enqueue(&attempt_id.instance_id, watch);
        }
    }

    /// An attempt of the run takes long: sets its stuck timer.
    pub(super) fn watch_slow_run(&mut self, run: &mut ResidentRun) {
        let mut changes = Vec::new();
        self.update_stuck_timer(run, &mut changes);
        if !changes.is_empty() {
            self.write_pages(run, &[], Vec::new(), changes);
            run.written_batch = self.commits.batch_number();
        }
    }

    fn delete_stuck_timer(&mut self, run_id: RunId, watch: StuckWatch) {
        if let StuckWatch::Due(due_at) = watch {
            let key = TimerKey { due_at, run_id, purpose: TimerPurpose::StuckCheck, command: None };
            self.schedule.remove(&DueKey::of_timer(&key));
            self.commits.delete(key.key());
        }
    }

    /// The run is stuck: reports it to the operator, once, with the things its branches wait for.
    pub(super) fn on_stuck_timer(&mut self, run: &mut ResidentRun, timer: &TimerKey) {
        self.commits.reserve(4, 4 * 1024);
        let watch = StuckWatch::Due(timer.due_at);
        if run.has_ended() || run.bookkeeping.stuck_watch != Some(watch) {
            return self.delete_timer(timer);
        }
        self.delete_stuck_timer(run.row.run_id, watch);
        let change = run.bookkeeping.set_stuck_watch(Some(StuckWatch::Reported));
        self.write_pages(run, &[], Vec::new(), vec![change]);
        run.written_batch = self.commits.batch_number();
        let instance_id = run.instance.origin().instance_id.clone();
        let waiting_for = self.describe_waits(run);
        self.commits
            .on_commit(OnCommit::Effect(Effect::Notify(OperatorEvent::Stuck { instance_id, waiting_for })));
    }

    /// The things that the branches of a run wait for, in words.
    fn describe_waits(&self, run: &ResidentRun) -> String {
        let states = self.run_view(run).current_states;
        let words: Vec<String> = states.iter().take(5).map(BranchView::describe).collect();
        words.join("; ")
    }
}

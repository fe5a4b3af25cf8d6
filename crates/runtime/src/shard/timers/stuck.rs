//! Reports stuck runs: those that have not ended within the time their definition expects, once each; and those that
//! took longer than it allows.
//!
//! A run gets a stuck timer only when it may take long: it is older than a minute, or waits for anything but the first
//! attempt of a short call. Until then its open call stands in for the timer; an attempt that exceeds a minute brings
//! it. Nothing here changes what a run does.

use abide_ids::RunId;
use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::history::{Fact, HistoryEvent, Note};

use crate::event::OperatorEvent;
use crate::request::BranchView;
use crate::run::{EntryChange, StuckWatch};
use crate::shard::calls::attempts_in_flight::SLOW_AFTER_MS;
use crate::shard::calls::open_call::OpenCall;
use crate::shard::run::history_pages;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::schedule::DueKey;
use crate::shard::timers;
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Sets the stuck timer of a run that may take long, and deletes that of an ended run. Called by every turn; the caller
/// writes the change to the run's entries into a page.
pub(in crate::shard) fn update_stuck_timer(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    changes: &mut Vec<EntryChange>,
) {
    if run.has_ended() {
        if let Some(watch) = run.bookkeeping.stuck_watch {
            changes.push(run.bookkeeping.set_stuck_watch(None));
            delete_stuck_timer(work, run.row.run_id, watch);
        }
        return;
    }
    let (None, Some(after)) = (run.bookkeeping.stuck_watch, run.plan.stuck_after()) else { return };
    let created_at = run.row.created_at;
    let old = work.ctx.now.wall.since(created_at).0 > SLOW_AFTER_MS;
    let slow = |call: &OpenCall| {
        let record = call.journal.record();
        record.attempt > 0 || record.attempt_timeout_ms > SLOW_AFTER_MS || call.hold.is_some()
    };
    let waits = !run.unfinished && (run.calls.is_empty() || run.calls.values().any(slow));
    if old || waits {
        let due_at = created_at.plus(after);
        changes.push(run.bookkeeping.set_stuck_watch(Some(StuckWatch::Due(due_at))));
        timers::write_timer(work, run, TimerPurpose::StuckCheck, due_at, None);
    }
}

/// An attempt of the run has become slow between two turns: sets the stuck timer of the run.
pub(in crate::shard) fn watch_slow_run(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    let mut changes = Vec::new();
    update_stuck_timer(work, run, &mut changes);
    if !changes.is_empty() {
        history_pages::write_pages(work, run, &[], Vec::new(), changes);
        work.note_newest_rows();
    }
}

/// The turn consumed a timer: if it was that of the whole workflow, tells the operator where the run was.
pub(in crate::shard) fn report_workflow_timeout(
    work: &mut UnitOfWork<'_>,
    run: &ResidentRun,
    history: &[HistoryEvent],
) {
    for event in history {
        if let Fact::GenericEvent { note: Note::WorkflowTimedOut { timeout, states } } = &event.fact {
            let instance_id = run.instance.origin().instance_id.clone();
            let (timeout, states) = (timeout.to_string(), states.join(", "));
            work.notify_on_commit(OperatorEvent::WorkflowTimedOut { instance_id, timeout, states });
        }
    }
}

fn delete_stuck_timer(work: &mut UnitOfWork<'_>, run_id: RunId, watch: StuckWatch) {
    if let StuckWatch::Due(due_at) = watch {
        let key = TimerKey { due_at, run_id, purpose: TimerPurpose::StuckCheck, command: None };
        work.add(Step::Unschedule(DueKey::of_timer(&key)));
        work.delete(key.key());
    }
}

/// The run is stuck: reports it to the operator, once, with the things its branches wait for.
pub(in crate::shard) fn on_stuck_timer(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, timer: &TimerKey) {
    let watch = StuckWatch::Due(timer.due_at);
    if run.has_ended() || run.bookkeeping.stuck_watch != Some(watch) {
        return timers::delete_timer(work, timer);
    }
    delete_stuck_timer(work, run.row.run_id, watch);
    let change = run.bookkeeping.set_stuck_watch(Some(StuckWatch::Reported));
    history_pages::write_pages(work, run, &[], Vec::new(), vec![change]);
    work.note_newest_rows();
    let instance_id = run.instance.origin().instance_id.clone();
    let waiting_for = describe_waits(run);
    work.notify_on_commit(OperatorEvent::Stuck { instance_id, waiting_for });
}

/// The things that the branches of a run wait for, in words.
fn describe_waits(run: &ResidentRun) -> String {
    let states = run.view().current_states;
    let words: Vec<String> = states.iter().take(5).map(BranchView::describe).collect();
    words.join("; ")
}

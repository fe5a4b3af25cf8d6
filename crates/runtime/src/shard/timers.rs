//! Writes the timers of a run: one row each, which makes it fire, or fire again after a restart.
//!
//! A timer may fire only after its row is durable. The timers of the next minute are kept in memory by
//! [`timer_window`], and due work of every kind, call attempts included, is in the
//! [`schedule`](crate::shard::schedule); `shard/mod.rs` fires it.

pub(super) mod stuck;
pub(super) mod timer_window;

use abide_store::tables::encode;
use abide_store::tables::timers::{TimerKey, TimerPurpose, TimerRow};
use abide_workflow::{CommandId, Timestamp};

use crate::run::EntryChange;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Carries out the command of a turn that sets a timer: notes it in the run, and writes its row.
pub(super) fn set_timer(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    fire_at: Timestamp,
    changes: &mut Vec<EntryChange>,
) {
    changes.push(run.bookkeeping.set_timer(command, fire_at));
    write_timer(work, run, TimerPurpose::Wait, fire_at, Some(command));
}

/// Writes the row of a timer. It is armed once that is durable.
pub(super) fn write_timer(
    work: &mut UnitOfWork<'_>,
    run: &ResidentRun,
    purpose: TimerPurpose,
    due_at: Timestamp,
    command: Option<CommandId>,
) {
    let key = TimerKey { due_at, run_id: run.row.run_id, purpose, command };
    let id = run.instance.origin().instance_id.clone();
    let timer = TimerRow { instance_id: id.as_str().to_owned(), set_at: work.ctx.now.wall };
    work.create(key.key(), encode(&timer));
    work.on_commit(OnCommit::ArmTimer(key, id));
}

/// Carries out the command of a turn that cancels a timer: takes it out of the run, the schedule and the store. If it
/// has fired meanwhile, its message stays queued.
pub(super) fn cancel_timer(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    changes: &mut Vec<EntryChange>,
) {
    let Some((due_at, change)) = run.bookkeeping.clear_timer(command) else { return };
    changes.push(change);
    let key =
        TimerKey { due_at, run_id: run.row.run_id, purpose: TimerPurpose::Wait, command: Some(command) };
    work.add(Step::Unschedule(DueKey::of_timer(&key)));
    work.delete(key.key());
}

/// The run consumed the message of a fired timer.
pub(super) fn on_timer_consumed(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    timer: &TimerKey,
    changes: &mut Vec<EntryChange>,
) {
    delete_timer(work, timer);
    if let Some((_, change)) = timer.command.and_then(|command| run.bookkeeping.clear_timer(command)) {
        changes.push(change);
    }
}

/// Deletes the row of a timer that has fired: its message was consumed, or nothing waits for it.
pub(super) fn delete_timer(work: &mut UnitOfWork<'_>, timer: &TimerKey) {
    work.delete(timer.key());
}

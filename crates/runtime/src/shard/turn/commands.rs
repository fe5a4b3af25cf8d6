//! Applies the commands of a turn: calls, timers, children, and the end of the run.
//!
//! Everything goes into the batch of the turn. The interpreter decides on the commands; this file only carries them
//! out.

use abide_store::tables::instances::Lineage;
use abide_workflow::command::{Command, CommandKind, StartChild};
use abide_workflow::failure::code;
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Failure, Message};

use crate::event::OperatorEvent;
use crate::fault_check::fault_injected;
use crate::run::EntryChange;
use crate::run_message::{ChildStart, RunMessage};
use crate::shard::calls::{cancel, retry, work_keys};
use crate::shard::messages::{put_in_inbox, send_run_message};
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::{calls, timers};

/// Carries out one command of the turn. The changes to the run's own entries join `changes`, for the page of the turn.
pub(in crate::shard) fn apply_command(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: Command,
    changes: &mut Vec<EntryChange>,
) {
    let id = command.id;
    match command.kind {
        CommandKind::StartActivity(start) => calls::start_call(work, run, id, start),
        // The row counts the attempts itself and arrives at the same number.
        CommandKind::RetryActivity { call, not_before, .. } => retry::retry_call(work, run, call, not_before),
        CommandKind::CancelActivity { call } => cancel::cancel_call(work, run, call),
        CommandKind::StartTimer { fire_at } => timers::set_timer(work, run, id, fire_at, changes),
        CommandKind::CancelTimer { timer } => timers::cancel_timer(work, run, timer, changes),
        CommandKind::StartChild(child) => start_child(work, run, id, child, changes),
        CommandKind::TerminateChild { child } => {
            if let Some((child_id, change)) = run.bookkeeping.clear_child(child) {
                changes.push(change);
                let parent = parent_link(run, child);
                let message = match &run.bookkeeping.tree_order {
                    Some(reason) => RunMessage::TerminateTree { parent, reason: reason.clone() },
                    None => {
                        let reason = "the parent run ended or moved on".to_owned();
                        RunMessage::TerminateChild { parent, reason }
                    }
                };
                send_run_message(work, child_id, message);
            }
        }
        CommandKind::Complete { output } => {
            on_run_ended(work, run, |command| Message::ChildCompleted { command, output });
        }
        CommandKind::Fail { failure } => {
            on_run_ended(work, run, |command| Message::ChildFailed { command, failure });
        }
        CommandKind::Terminate { reason } => {
            let failure = Failure::permanent("Terminated", reason);
            on_run_ended(work, run, |command| Message::ChildFailed { command, failure });
        }
        // The turn replaces the run itself, after all commands.
        CommandKind::ContinueAsNew => {}
    }
}

/// Notes the child in the run, and asks the child's shard, by a run message, to start it. A child that would be too
/// deep in the tree of runs is never asked for: the run gets the failure as if the child had ended.
fn start_child(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    id: CommandId,
    child: StartChild,
    changes: &mut Vec<EntryChange>,
) {
    changes.push(run.bookkeeping.set_child(id, child.instance_id.clone()));
    let origin = run.instance.origin();
    let lineage = lineage_of_child(run);
    let depth_max = work.ctx.config.run_limits.depth_max;
    if lineage.depth > depth_max {
        let message = format!(
            "a child of run {} would have {} runs above it, from root {}/{} on; the limit is {depth_max}",
            origin.execution_id(),
            lineage.depth,
            lineage.root_id,
            lineage.root_run.0
        );
        let failure = Failure::permanent(code::CHILD_TOO_DEEP, message);
        let message = Message::ChildFailed { command: id, failure };
        let own_id = origin.instance_id.clone();
        return put_in_inbox(work, own_id, RunMessage::ChildEnded { parent: parent_link(run, id), message });
    }
    let start = ChildStart {
        parent: parent_link(run, id),
        workflow: child.workflow,
        version: child.version.map(|range| range.to_string()),
        input: child.input.to_string(),
        correlation_id: origin.correlation_id.clone(),
        entity_id: origin.entity_id.clone(),
    };
    let execution = origin.execution_id().to_string();
    let (item, _) = work_keys(&origin.workflow, &execution, &child.step);
    send_run_message(work, child.instance_id, RunMessage::StartDescendant { item, lineage, start });
}

/// The place of a child of this run in the tree of runs.
fn lineage_of_child(run: &ResidentRun) -> Lineage {
    let depth = run.row.depth().saturating_add(1);
    match run.row.lineage.as_deref() {
        Some(own) => Lineage { depth, ..own.clone() },
        None => {
            let origin = run.instance.origin();
            Lineage { root_id: origin.instance_id.as_str().to_owned(), root_run: origin.run, depth }
        }
    }
}

/// The run has ended: its parent gets a message, the operator an event.
fn on_run_ended(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    message: impl FnOnce(CommandId) -> Message,
) {
    if let Some(parent) = run.instance.origin().parent.clone() {
        let message = message(parent.command);
        if fault_injected!(work.ctx, ChildEndDoubled) {
            let again = RunMessage::ChildEnded { parent: parent.clone(), message: message.clone() };
            send_run_message(work, parent.instance_id.clone(), again);
        }
        send_run_message(work, parent.instance_id.clone(), RunMessage::ChildEnded { parent, message });
    }
    let took_ms = work.ctx.now.wall.since(run.instance.started_at()).0;
    let notice = OperatorEvent::RunEnded { status: run.instance.status(), duration_ms: took_ms };
    work.notify_on_commit(notice);
}

/// The run as the parent of the child that this command started.
fn parent_link(run: &ResidentRun, command: CommandId) -> ParentLink {
    let origin = run.instance.origin();
    ParentLink { instance_id: origin.instance_id.clone(), run: origin.run, command }
}

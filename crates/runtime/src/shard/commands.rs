//! Applies the commands of a turn: calls, timers, children, and the end of the run.
//!
//! Everything goes into the batch of the turn. The interpreter decides on the commands; this file only carries them
//! out.

use abide_workflow::command::{Command, CommandKind, StartChild};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Failure, Message};

use super::calls::work_keys;
use super::commit_queue::OnCommit;
use super::run_state::ResidentRun;
use super::{Shard, fault_injected};
use crate::event::{Effect, OperatorEvent};
use crate::request::ShardReply;
use crate::run::EntryChange;
use crate::run_message::{ChildStart, RunMessage};

impl Shard {
    pub(super) fn apply_command(
        &mut self,
        run: &mut ResidentRun,
        command: Command,
        changes: &mut Vec<EntryChange>,
    ) {
        let id = command.id;
        match command.kind {
            CommandKind::StartActivity(start) => self.start_call(run, id, start),
            // The row counts the attempts itself and arrives at the same number.
            CommandKind::RetryActivity { call, not_before, .. } => self.retry_call(run, call, not_before),
            CommandKind::CancelActivity { call } => self.cancel_call(run, call),
            CommandKind::StartTimer { fire_at } => self.set_timer(run, id, fire_at, changes),
            CommandKind::CancelTimer { timer } => self.cancel_timer(run, timer, changes),
            CommandKind::StartChild(child) => self.start_child(run, id, child, changes),
            CommandKind::TerminateChild { child } => {
                if let Some((child_id, change)) = run.bookkeeping.clear_child(child) {
                    changes.push(change);
                    let reason = "the parent run ended or moved on".to_owned();
                    self.send_run_message(
                        child_id,
                        RunMessage::TerminateChild { parent: parent_link(run, child), reason },
                    );
                }
            }
            CommandKind::Complete { output } => {
                self.on_run_ended(run, |command| Message::ChildCompleted { command, output });
            }
            CommandKind::Fail { failure } => {
                self.on_run_ended(run, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::Terminate { reason } => {
                let failure = Failure::permanent("Terminated", reason);
                self.on_run_ended(run, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::ContinueAsNew => {}
        }
    }

    fn start_child(
        &mut self,
        run: &mut ResidentRun,
        id: CommandId,
        child: StartChild,
        changes: &mut Vec<EntryChange>,
    ) {
        changes.push(run.bookkeeping.set_child(id, child.instance_id.clone()));
        let origin = run.instance.origin();
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
        self.send_run_message(child.instance_id, RunMessage::StartChildOf { item, start });
    }

    /// The run has ended: its parent gets a message, the operator an event.
    fn on_run_ended(&mut self, run: &mut ResidentRun, message: impl FnOnce(CommandId) -> Message) {
        if let Some(parent) = run.instance.origin().parent.clone() {
            let message = message(parent.command);
            if fault_injected!(self, ChildEndDoubled) {
                let again = RunMessage::ChildEnded { parent: parent.clone(), message: message.clone() };
                self.send_run_message(parent.instance_id.clone(), again);
            }
            self.send_run_message(parent.instance_id.clone(), RunMessage::ChildEnded { parent, message });
        }
        let took_ms = self.now.wall.since(run.instance.started_at()).0;
        let notice = OperatorEvent::RunEnded { status: run.instance.status(), duration_ms: took_ms };
        self.commits.on_commit(OnCommit::Effect(Effect::Notify(notice)));
    }

    /// Replies to the clients that wait for the end of the run, once the end is durable.
    pub(super) fn reply_to_end_waiters(&mut self, run: &ResidentRun) {
        if self.end_waiters.is_empty() || !run.has_ended() {
            return;
        }
        let Some(waiters) = self.end_waiters.remove(&run.instance.origin().instance_id) else { return };
        let view = self.run_view(run);
        for request_id in waiters {
            let reply = Effect::Reply(request_id, ShardReply::Ended(Box::new(view.clone())));
            if let Some(action) = self.commits.defer_until_durable(run.written_batch, OnCommit::Effect(reply))
            {
                self.run_on_commit(action);
            }
        }
    }
}

fn parent_link(run: &ResidentRun, command: CommandId) -> ParentLink {
    let origin = run.instance.origin();
    ParentLink { instance_id: origin.instance_id.clone(), run: origin.run, command }
}

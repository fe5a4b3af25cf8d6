//! What a turn asks for beside calls: timers, children, the end of the run, the next run.

use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::command::{Command, CommandKind, StartChild};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Failure, Instance, Message, PartChange, Turn};

use super::calls::keys;
use super::commits::After;
use super::slot::{Envelope, From, Run};
use super::turn::of_part;
use super::{Shard, planted};
use crate::event::{Effect, Notice};
use crate::post::{ChildStart, Post};
use crate::request::Reply;
use crate::run::Change;

impl Shard {
    pub(super) fn obey(&mut self, run: &mut Run, command: Command, changes: &mut Vec<Change>) {
        let id = command.id;
        match command.kind {
            CommandKind::StartActivity(start) => self.start_call(run, id, start),
            // The record counts attempts itself, and comes to the same.
            CommandKind::Redeliver { dispatch, not_before, .. } => self.redeliver(run, dispatch, not_before),
            CommandKind::CancelActivity { dispatch } => self.cancel_call(run, dispatch),
            CommandKind::StartTimer { fire_at } => self.set_timer(run, id, fire_at, changes),
            CommandKind::CancelTimer { timer } => self.cancel_timer(run, timer, changes),
            CommandKind::StartChild(child) => self.start_child(run, id, child, changes),
            CommandKind::TerminateChild { child } => {
                if let Some((child_id, change)) = run.book.clear_child(child) {
                    changes.push(change);
                    let reason = "the parent run ended or moved on".to_owned();
                    self.post(child_id, Post::TerminateChild { parent: link(run, child), reason });
                }
            }
            CommandKind::Complete { output } => {
                self.ended(run, |command| Message::ChildCompleted { command, output });
            }
            CommandKind::Fail { failure } => {
                self.ended(run, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::Terminate { reason } => {
                let failure = Failure::last("Terminated", reason);
                self.ended(run, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::ContinueAsNew => {}
        }
    }

    fn start_child(&mut self, run: &mut Run, id: CommandId, child: StartChild, changes: &mut Vec<Change>) {
        changes.push(run.book.set_child(id, child.instance_id.clone()));
        let origin = run.instance.origin();
        let start = ChildStart {
            parent: link(run, id),
            workflow: child.workflow,
            version: child.version.map(|range| range.to_string()),
            input: child.input.to_string(),
            correlation_id: origin.correlation_id.clone(),
            entity_id: origin.entity_id.clone(),
        };
        let execution = origin.execution_id().to_string();
        let (item, _) = keys(&origin.workflow, &execution, &child.step);
        self.post(child.instance_id, Post::StartChildOf { item, start });
    }

    /// The run has ended: whoever waits is told.
    fn ended(&mut self, run: &mut Run, message: impl FnOnce(CommandId) -> Message) {
        if let Some(parent) = run.instance.origin().parent.clone() {
            let message = message(parent.command);
            if planted!(self, ChildEndDoubled) {
                let again = Post::ToParent { parent: parent.clone(), message: message.clone() };
                self.post(parent.instance_id.clone(), again);
            }
            self.post(parent.instance_id.clone(), Post::ToParent { parent, message });
        }
        let took_ms = self.now.wall.since(run.instance.started_at()).0;
        let notice = Notice::Ended { status: run.instance.status(), took_ms };
        self.commits.then(After::Effect(Effect::Tell(notice)));
    }

    /// Clients that wait for the end are answered when it is durable.
    pub(super) fn answer_awaiting(&mut self, run: &Run) {
        if self.awaiting.is_empty() || !run.has_ended() {
            return;
        }
        let Some(awaiting) = self.awaiting.remove(&run.instance.origin().instance_id) else { return };
        let view = self.view(run);
        for ticket in awaiting {
            let reply = Effect::Reply(ticket, Reply::Ended(Box::new(view.clone())));
            if let Some(after) = self.commits.when_durable(run.written, After::Effect(reply)) {
                self.follow(after);
            }
        }
    }

    /// The run that this turn has ended into, if it continued as new.
    pub(super) fn next_run(&self, turn: &mut Turn) -> Option<Instance> {
        let next = *turn.next_run.take()?;
        #[cfg(feature = "faults")]
        if planted!(self, EventLostAtContinue) {
            return Some(Instance::pending(next.origin().clone(), self.now.wall));
        }
        Some(next)
    }

    /// The next run of the instance is there in the commit that ends this one. Its turns follow, like anybody's.
    pub(super) fn continue_as_new(&mut self, run: &mut Run, next: Instance, parts: Vec<PartChange>) {
        self.feed_last(run);
        self.note_earlier(&run.instance.origin().instance_id, run.row.run_number, run.row.run);
        let number = self.next_sequence();
        let mut row = run.row.clone();
        row.run = number;
        row.run_number = next.origin().run.0;
        row.status = RunStatus::Pending;
        row.folded_turn = 0;
        row.last_turn = 0;
        row.created_at = self.now.wall.0;
        let (messages, froms) = (std::mem::take(&mut run.messages), std::mem::take(&mut run.froms));
        let mut begun = Run::begin(row, run.plan.clone(), next, run.written);
        // Answers name commands of the run that ended. Their rows have gone with it, or go with them.
        for (message, from) in messages.into_iter().zip(froms) {
            match from {
                From::Client(..) | From::Routed(..) => begun.push(Envelope { message, from }),
                From::Call { .. } => {}
                From::Timer(due) => self.drop_timer(&due),
                // An order of the parent is for whoever lives.
                From::Inbox(_) if matches!(message, Message::Terminate { .. }) => {
                    begun.push(Envelope { message, from });
                }
                From::Inbox(sequence) => {
                    self.commits.delete(inbox::key(sequence));
                }
            }
        }
        if let Some(sequence) = run.continuation.take() {
            self.commits.delete(inbox::key(sequence));
        }
        begun.queued = run.queued;
        begun.resting = run.resting;
        begun.continued = run.continued + 1;
        *run = begun;
        self.write_begun(run, parts);
    }

    /// A run that has had no turn, as it will have its first: its parts, its row, and a note that it is to go on.
    pub(super) fn write_begun(&mut self, run: &mut Run, parts: Vec<PartChange>) {
        self.write_pages(run, &[], Vec::new(), parts.into_iter().map(of_part).collect());
        self.note_continuation(run, true);
        self.write_row(run);
        run.written = self.commits.number();
    }
}

fn link(run: &Run, command: CommandId) -> ParentLink {
    let origin = run.instance.origin();
    ParentLink { instance_id: origin.instance_id.clone(), run: origin.run, command }
}

//! What a turn asks for beside calls: timers, children, the end of the run, the next run. And setting a run aside.

use abide_store::tables::instances::RunStatus;
use abide_store::tables::pages::{self, Page};
use abide_store::tables::{encode, instances};
use abide_workflow::command::{Command, CommandKind, StartChild};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Corrupt, Failure, Instance, InstanceId, Message, Status};

use super::commits::After;
use super::slot::{Envelope, First, From, Item, Known, Run, Slot};
use super::{Shard, planted};
use crate::event::{Effect, Notice};
use crate::post::{ChildStart, Post};
use crate::request::{Refused, Reply};
use crate::run::Change;

impl Shard {
    pub(super) fn obey(&mut self, run: &mut Run, command: Command, changes: &mut Vec<Change>) {
        let id = command.id;
        match command.kind {
            CommandKind::StartActivity(start) => self.start_call(run, id, start),
            CommandKind::Redeliver { dispatch, attempt, not_before } => {
                self.redeliver(run, dispatch, attempt, not_before);
            }
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
        self.post(child.instance_id, Post::StartChild(start));
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

    /// The next run of the instance begins in the same commit as this one ends.
    pub(super) fn continue_as_new(&mut self, run: &mut Run, next: Instance) -> Result<(), Corrupt> {
        #[cfg(feature = "faults")]
        let next = if planted!(self, EventLostAtContinue) {
            Instance::pending(next.origin().clone(), self.now.wall)
        } else {
            next
        };
        self.feed_last(run);
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
                From::Client(..) | From::Routed(..) => {
                    begun.messages.push_back(message);
                    begun.froms.push_back(from);
                }
                From::Call(_) => {}
                From::Timer(due) => self.drop_timer(&due),
                // An order of the parent is for whoever lives.
                From::Inbox(_) if matches!(message, Message::Terminate { .. }) => {
                    begun.messages.push_back(message);
                    begun.froms.push_back(from);
                }
                From::Inbox(sequence) => {
                    self.commits.delete(abide_store::tables::inbox::key(sequence));
                }
            }
        }
        if let Some(sequence) = run.continuation.take() {
            self.commits.delete(abide_store::tables::inbox::key(sequence));
        }
        begun.queued = run.queued;
        begun.resting = run.resting;
        begun.continued = run.continued + 1;
        *run = begun;
        self.turn_of(run, false)
    }

    /// Sets a run aside: its bytes stay as they are, its id says why, everybody else goes on. What waited for it waits until it is resumed.
    pub(super) fn park(&mut self, id: &InstanceId, slot: &mut Slot, run: Run, reason: String) {
        let last_page = run.last_page;
        let refused = Refused::Parked { instance_id: id.clone(), reason: reason.clone() };
        self.tell(Notice::Parked { instance_id: id.clone(), reason: reason.clone() });
        let number = run.row.run;
        for (message, from) in run.messages.into_iter().zip(run.froms) {
            match from {
                From::Client(ticket, _) => self.refuse(ticket, refused.clone()),
                // For whichever run lives when it can be served.
                From::Routed(sequence, routed) => {
                    slot.set_aside.push_back(Item::Post { sequence, post: Post::Routed(routed) });
                }
                from => {
                    let envelope = Envelope { message, from };
                    slot.set_aside.push_back(Item::Message { run: number, envelope });
                }
            }
        }
        for first in run.first {
            if let First::After(After::Effect(Effect::Reply(ticket, _))) = first {
                self.refuse(ticket, refused.clone());
            }
        }
        for ticket in self.awaiting.remove(id).unwrap_or_default() {
            self.refuse(ticket, refused.clone());
        }
        if run.last_page == 0 {
            // Nothing of it was ever written.
            slot.known = Known::Nothing;
            return;
        }
        let mut row = run.row;
        row.status = RunStatus::Parked;
        row.parked = Some(reason.clone());
        row.updated_at = self.now.wall.0;
        self.commits.make_room(8, 64 * 1024);
        self.write_parked(id, &row);
        slot.written = self.commits.number();
        slot.known = Known::Unreadable { row: Some(Box::new(row)), last_page, reason };
    }

    /// Ends a run that cannot be read: its history says so, and its id is free again.
    pub(super) fn terminate_unreadable(
        &mut self,
        id: &InstanceId,
        row: &mut instances::Instance,
        last_page: u64,
        reason: &str,
    ) {
        let event = serde_json::json!([{
            "timestamp": self.now.wall.to_string(), "eventType": "ExecutionTerminated", "reason": reason,
        }]);
        let page = Page {
            first_event: 0,
            events_count: 1,
            at: self.now.wall.0,
            events: event.to_string().into_bytes(),
            changes: Vec::new(),
        };
        self.commits.put(pages::key(row.run, last_page + 1), encode(&page));
        row.status = RunStatus::Terminated;
        row.parked = None;
        row.updated_at = self.now.wall.0;
        self.commits.put(instances::key(id.as_str()), encode(row));
        self.mark_row_for_feed(id, row);
        let notice = Notice::Ended { status: Status::Terminated, took_ms: 0 };
        self.commits.then(After::Effect(Effect::Tell(notice)));
    }
}

fn link(run: &Run, command: CommandId) -> ParentLink {
    let origin = run.instance.origin();
    ParentLink { instance_id: origin.instance_id.clone(), run: origin.run, command }
}

//! Setting a run aside that cannot go on, and ending one that cannot be read. Everybody else goes on.

use abide_store::tables::encode;
use abide_store::tables::instances::{self, Instance as InstanceRow, RunStatus};
use abide_store::tables::pages::{self, Page};
use abide_workflow::instance::ParentLink;
use abide_workflow::{
    CommandId, Failure, Instance, InstanceId, Message, Refusal, RunNumber, Status, Timestamp,
};

use super::Shard;
use super::commits::After;
use super::room::bytes_of;
use super::slot::{Envelope, From, Item, Known, Run, Slot};
use crate::event::{CallId, Effect, Notice};
use crate::post::Post;
use crate::request::{Refused, Reply, Ticket};

impl Shard {
    /// Sets a run aside: what is stored of it stays as it is, its id says why. What waited for it waits until it is resumed.
    pub(super) fn park(&mut self, id: &InstanceId, slot: &mut Slot, mut run: Run, reason: String) {
        // It was set aside before, was to be ended, and even that it could not.
        if run.row.parked.is_some() {
            return self.end_in_its_place(id, slot, run);
        }
        self.commits.make_room(8, 64 * 1024);
        if run.last_page == 0 {
            self.keep_as_begun(&mut run);
        }
        let (number, last_page) = (run.row.run, run.last_page);
        let refused = Refused::Parked { instance_id: id.clone(), reason: reason.clone() };
        if let Some(sequence) = run.continuation {
            slot.set_aside.push_back(Item::Post { sequence, post: Post::Continue { run: number } });
        }
        for (message, from) in run.messages.into_iter().zip(run.froms) {
            match from {
                From::Client(ticket, _) => self.refuse_with_commit(ticket, refused.clone()),
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
        for ticket in self.awaiting.remove(id).unwrap_or_default() {
            self.refuse_with_commit(ticket, refused.clone());
        }
        let mut row = run.row;
        self.write_parked(id, &mut row, &reason);
        slot.written = self.commits.number();
        slot.known = Known::Unreadable { row: Some(Box::new(row)), last_page, last_event: 0, reason };
    }

    /// Its first turn could not be taken: it is there all the same, as it began, and whoever asked for it is told so.
    fn keep_as_begun(&mut self, run: &mut Run) {
        let origin = run.instance.origin().clone();
        run.instance = Instance::pending(origin, Timestamp(run.row.created_at));
        // Encoding fails for nothing that was decoded from JSON.
        let parts = run.instance.take_changes().unwrap_or_default();
        self.commits.make_room(9, bytes_of(&parts) + 64 * 1024);
        self.take_first(run);
        self.write_begun(run, parts);
    }

    /// The row of an instance that cannot go on says so.
    pub(super) fn write_parked(&mut self, id: &InstanceId, row: &mut InstanceRow, reason: &str) {
        row.status = RunStatus::Parked;
        row.parked = Some(reason.to_owned());
        row.updated_at = self.now.wall.0;
        self.commits.put(instances::key(id.as_str()), encode(row));
        self.mark_row_for_feed(id, row);
        let notice = Notice::Parked { instance_id: id.clone(), reason: reason.to_owned() };
        self.commits.then(After::Effect(Effect::Tell(notice)));
        self.commits.then(After::Forget(id.clone()));
    }

    fn refuse_with_commit(&mut self, ticket: Ticket, why: Refused) {
        self.commits.then(After::Effect(Effect::Reply(ticket, Reply::Refused(why))));
    }

    /// Ends a run that was told to end and cannot take a turn: in its place, as one that cannot be read.
    fn end_in_its_place(&mut self, id: &InstanceId, slot: &mut Slot, run: Run) {
        let (mut order, number) = (None, run.row.run);
        for (message, from) in run.messages.into_iter().zip(run.froms) {
            match (message, from) {
                (Message::Terminate { reason }, From::Client(ticket, repeat)) if order.is_none() => {
                    order = Some((ticket, repeat, reason));
                }
                (_, From::Client(ticket, _)) => {
                    let ended = Refusal::RunEnded { status: Status::Terminated };
                    self.refuse_with_commit(ticket, Refused::Message(ended));
                }
                (_, From::Routed(sequence, routed)) => {
                    slot.set_aside.push_back(Item::Post { sequence, post: Post::Routed(routed) });
                }
                (message, from) => {
                    let envelope = Envelope { message, from };
                    slot.set_aside.push_back(Item::Message { run: number, envelope });
                }
            }
        }
        self.commits.make_room(8, 64 * 1024);
        let reason = order.as_ref().map_or("", |(.., reason)| reason);
        self.end_unread(id, slot, run.row, (run.last_page, 0), reason);
        if let Some((ticket, repeat, _)) = order {
            self.accept(ticket, repeat);
        }
    }

    /// Ends a run that cannot be read: its history says so, whoever waits for it is told, its calls are stopped, and its id is free again. Of its
    /// own children nothing is known; they go on.
    pub(super) fn end_unread(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        mut row: InstanceRow,
        (last_page, last_event): (u64, u64),
        reason: &str,
    ) {
        let mut event = serde_json::json!({
            "timestamp": self.now.wall.to_string(), "eventType": "ExecutionTerminated", "reason": reason,
        });
        // Its number, if it is known how many there were before it.
        let sequence = if last_event > 0 { last_event.saturating_add(1) } else { 0 };
        if let (1.., Some(event)) = (sequence, event.as_object_mut()) {
            event.insert("sequence".to_owned(), sequence.into());
        }
        let page = Page {
            first_event: sequence,
            events_count: 1,
            at: self.now.wall.0,
            events: serde_json::json!([event]).to_string().into_bytes(),
            changes: Vec::new(),
            settled: Vec::new(),
            troubled: Vec::new(),
        };
        self.commits.put(pages::key(row.run, last_page + 1), encode(&page));
        row.status = RunStatus::Terminated;
        row.parked = None;
        row.updated_at = self.now.wall.0;
        self.commits.put(instances::key(id.as_str()), encode(&row));
        self.mark_row_for_feed(id, &row);
        if let Some(parent) = row.parent.as_deref().and_then(link_of) {
            let failure = Failure::last("Terminated", reason);
            let message = Message::ChildFailed { command: parent.command, failure };
            self.post(parent.instance_id.clone(), Post::ToParent { parent, message });
        }
        self.cancel_calls_of(row.run);
        let notice = Notice::Ended { status: Status::Terminated, took_ms: 0 };
        self.commits.then(After::Effect(Effect::Tell(notice)));
        self.commits.then(After::Forget(id.clone()));
        slot.written = self.commits.number();
        slot.known = Known::Row(Some(row));
        self.restore(slot);
    }

    /// Nobody waits for the calls of a run any more, whatever it has out.
    fn cancel_calls_of(&mut self, run: u64) {
        let out: Vec<CallId> = self.calling.keys().filter(|call| call.run == run).cloned().collect();
        for call in out {
            self.calling.remove(&call);
            self.commits.then(After::Effect(Effect::CancelCall(call)));
        }
    }
}

fn link_of(parent: &instances::Parent) -> Option<ParentLink> {
    let instance_id = InstanceId::new(parent.instance_id.clone()).ok()?;
    Some(ParentLink { instance_id, run: RunNumber(parent.run_number), command: CommandId(parent.command) })
}

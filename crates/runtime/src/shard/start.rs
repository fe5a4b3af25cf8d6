//! Beginning a run: by a client, or as another run's child.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use abide_store::tables::dispatches::DispatchInput;
use abide_store::tables::earlier_runs::{self, EarlierRun};
use abide_store::tables::instances::{Instance as InstanceRow, Parent, RunStatus};
use abide_store::tables::{encode, inbox};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Failure, Instance, InstanceId, Message, Origin, Plan, RunNumber, Timestamp};
use semver::VersionReq;

use super::commits::After;
use super::slot::{First, Known, OpenCall, Promised, Run, Slot, is_over};
use super::{Shard, planted};
use crate::event::{Effect, Notice, PlanError};
use crate::post::Post;
use crate::request::{Refused, Reply, Start, Started, Ticket};
use crate::run::{Book, StoredRun};

impl Run {
    /// A run before its first turn.
    pub(super) fn begin(row: InstanceRow, plan: Arc<Plan>, instance: Instance, written: u64) -> Self {
        Self {
            row,
            plan,
            instance,
            book: Book::default(),
            calls: BTreeMap::new(),
            held: Vec::new(),
            settled: Vec::new(),
            messages: VecDeque::new(),
            froms: VecDeque::new(),
            unfinished: true,
            continuation: None,
            last_page: 0,
            unfolded: BTreeMap::new(),
            unfolded_bytes: 0,
            folding: None,
            written,
            first: Vec::new(),
            continued: 0,
            queued: false,
            resting: None,
        }
    }

    /// A run as it lies in the store. Its calls are not out from here until they are delivered.
    pub(super) fn load(stored: StoredRun) -> Self {
        let mut run = Self::begin(stored.row, stored.plan, stored.instance, 0);
        run.unfinished = false;
        run.book = stored.book;
        run.last_page = stored.last_page;
        for (name, bytes) in stored.unfolded {
            run.unfolded_bytes += name.len() + bytes.as_ref().map_or(0, Vec::len);
            run.unfolded.insert(name, (bytes, stored.last_page));
        }
        for stored in stored.calls {
            let mut dispatch = stored.dispatch;
            let (input, bytes) =
                match std::mem::replace(&mut dispatch.input, DispatchInput::Inline(Vec::new())) {
                    DispatchInput::Inline(bytes) => {
                        (serde_json::from_slice(&bytes).unwrap_or_default(), bytes.len())
                    }
                    DispatchInput::Stored(_) => (serde_json::Value::Null, 0),
                };
            let command = CommandId(dispatch.command);
            let mut call = OpenCall::new(stored.idempotency_key, dispatch, Arc::new(input));
            (call.recorded, call.bytes) = (true, bytes);
            if let Some(failure) = run.instance.held_failure(command) {
                call.remember(failure);
                run.held.push(command);
            }
            run.calls.insert(command, call);
        }
        run
    }
}

impl Shard {
    pub(super) fn serve_start(&mut self, slot: &mut Slot, ticket: Ticket, start: Start) {
        let id = start.instance_id.clone();
        let previous = match &slot.known {
            Known::Row(row) => row.as_ref(),
            Known::Run(run) => Some(&run.row),
            Known::Unreadable { row: Some(row), .. } => Some(&**row),
            other => {
                let why = Self::why_unreadable(&id, other);
                return self.refuse(ticket, why);
            }
        };
        if previous.is_some() && start.repeat.is_some_and(|repeat| repeat.names_instance) {
            // Nobody else makes this id: its work was done or is under way, though the answer is not kept any more.
            return self.refuse_when_durable(slot, ticket, Refused::KeyExpired { instance_id: id });
        }
        if let Some(row) = previous.filter(|row| !is_over(row.status)) {
            let refused = Refused::Live { instance_id: id, run: RunNumber(row.run_number) };
            return self.refuse_when_durable(slot, ticket, refused);
        }
        let run_number = previous.map_or(1, |row| row.run_number.saturating_add(1));
        let replaced = previous.and_then(replaced);
        self.feed_replaced(&id, slot);
        let mut origin = Origin::new(id.clone(), RunNumber(run_number), &start.plan);
        origin.input = start.input;
        origin.event = start.event;
        origin.correlation_id = start.correlation_id;
        origin.entity_id = start.entity_id;
        let mut run = self.begin_run(start.plan, origin, replaced);
        if let Some(awaiting) = start.await_end {
            self.awaiting.entry(id.clone()).or_default().push(awaiting);
        }
        let (run_number, created_at) = (RunNumber(run_number), self.now.wall);
        let mut started = Started { instance_id: id, run: run_number, created_at, repeat_until: None };
        if let Some(repeat) = start.repeat {
            let answer = self.answer_to(&repeat, &started);
            started.repeat_until = Some(Timestamp(answer.expires_at));
            run.first.push(First::Keep(repeat.key, answer));
        }
        let reply = Reply::Started(started);
        if planted!(self, EarlyAcknowledgement) {
            self.reply(ticket, reply);
        } else {
            run.first.push(First::After(After::Effect(Effect::Reply(ticket, reply))));
        }
        slot.known = Known::Run(Box::new(run));
    }

    /// What belongs to the first turn of a run goes with it.
    pub(super) fn take_first(&mut self, run: &mut Run) {
        for first in std::mem::take(&mut run.first) {
            match first {
                First::After(after) => self.commits.then(after),
                First::Inbox(sequence) => self.commits.delete(inbox::key(sequence)),
                First::Keep(key, answer) => self.keep(key, answer),
                First::Replace { run_number, run: earlier } => {
                    self.note_earlier(&run.instance.origin().instance_id, run_number, earlier);
                }
            }
        }
    }

    /// Something that follows from what memory knows of an instance, once that is durable.
    pub(super) fn after_slot(&mut self, slot: &mut Slot, after: After) {
        let written = match slot.run_mut() {
            Some(run) if !run.first.is_empty() => return run.first.push(First::After(after)),
            Some(run) => run.written,
            None => slot.written,
        };
        if let Some(after) = self.commits.when_durable(written, after) {
            self.follow(after);
        }
    }

    /// A run that another one replaces under its id can be found by its number from now on, as long as it is kept.
    pub(super) fn note_earlier(&mut self, id: &InstanceId, run_number: u32, run: u64) {
        if planted!(self, EarlierRunLost) {
            return;
        }
        let earlier = EarlierRun { replaced_at: self.now.wall.0 };
        self.commits.create(earlier_runs::key(id.as_str(), run_number, run), encode(&earlier));
    }

    /// A run in memory, with nothing of it written: its first turn writes all. It may take the place of another one.
    pub(super) fn begin_run(&mut self, plan: Arc<Plan>, origin: Origin, replaced: Option<First>) -> Run {
        let row = InstanceRow {
            run: self.next_sequence(),
            run_number: origin.run.0,
            status: RunStatus::Pending,
            definition: origin.workflow.clone(),
            version: origin.version.clone(),
            definition_hash: origin.plan_hash.0,
            folded_turn: 0,
            last_turn: 0,
            created_at: self.now.wall.0,
            updated_at: self.now.wall.0,
            correlation_id: origin.correlation_id.clone(),
            entity_id: origin.entity_id.clone(),
            parked: None,
            parent: origin.parent.as_ref().map(|parent| {
                let instance_id = parent.instance_id.as_str().to_owned();
                Box::new(Parent { instance_id, run_number: parent.run.0, command: parent.command.0 })
            }),
            parent_item: None,
        };
        let mut run = Run::begin(row, plan, Instance::pending(origin, self.now.wall), 0);
        run.first.push(First::After(After::Effect(Effect::Tell(Notice::Began))));
        run.first.extend(replaced);
        run
    }

    /// A child's plan is looked for; the child waits in front of everything else for its id.
    pub(super) fn find_plan(&mut self, id: &InstanceId, slot: &mut Slot, child: Promised) {
        let range = child.start.version.as_deref().map(VersionReq::parse).transpose();
        let workflow = child.start.workflow.clone();
        slot.child = Some(child);
        match range {
            Ok(range) => {
                slot.ask();
                self.effects.push(Effect::FindPlan { instance_id: id.clone(), workflow, range });
            }
            Err(error) => {
                let failure = Failure::last(code::WORKFLOW_NOT_FOUND, error.to_string());
                self.refuse_child(slot, failure);
            }
        }
    }

    pub(super) fn on_plan_found(&mut self, id: &InstanceId, result: Result<Arc<Plan>, PlanError>) {
        let Some(mut slot) = self.slots.remove(id) else { return };
        if slot.routed.is_some() && slot.asked() {
            self.routed_plan_found(id, &mut slot, result);
        } else if slot.child.is_some() && slot.asked() {
            match result {
                Ok(plan) => self.begin_child(id, &mut slot, plan),
                Err(PlanError::NotFound(reason)) => {
                    self.refuse_child(&mut slot, Failure::last(code::WORKFLOW_NOT_FOUND, reason));
                }
                Err(PlanError::Unavailable(_)) => {
                    if let Some(child) = slot.child.take() {
                        slot.items.push_front(child.into_item());
                        self.waiting += 1;
                        let depth = crate::event::Depth::Row { repeat: None };
                        let at = super::later(self.now.mono, super::back_off(4));
                        self.again.push_back((at, id.clone()));
                        slot.known = Known::LookAgain(depth, at);
                    }
                }
            }
        }
        self.slots.insert(id.clone(), slot);
        self.serve(id);
    }

    fn begin_child(&mut self, id: &InstanceId, slot: &mut Slot, plan: Arc<Plan>) {
        let previous = match &slot.known {
            Known::Row(row) => row.clone(),
            Known::Run(run) => Some(run.row.clone()),
            Known::Unreadable { row, .. } => row.as_deref().cloned(),
            _ => None,
        };
        if previous.as_ref().is_some_and(|row| !is_over(row.status)) {
            let failure = Failure::last("InstanceLive", format!("instance {id} is live already"));
            return self.refuse_child(slot, failure);
        }
        let Some(Promised { sequence, item, start }) = slot.child.take() else { return };
        let input: serde_json::Value = serde_json::from_str(&start.input).unwrap_or_default();
        if let Err(mismatches) = plan.check_input(&input) {
            let reason = mismatches.first().map(ToString::to_string).unwrap_or_default();
            slot.child = Some(Promised { sequence, item, start });
            return self.refuse_child(slot, Failure::last(code::INPUT_INVALID, reason));
        }
        let run_number = previous.as_ref().map_or(1, |row| row.run_number.saturating_add(1));
        let mut origin = Origin::new(id.clone(), RunNumber(run_number), &plan);
        origin.input = Arc::new(input);
        origin.correlation_id = start.correlation_id;
        origin.entity_id = start.entity_id;
        origin.parent = Some(start.parent);
        self.feed_replaced(id, slot);
        let mut run = self.begin_run(plan, origin, previous.as_ref().and_then(replaced));
        run.row.parent_item = item.map(Box::new);
        run.first.push(First::Inbox(sequence));
        slot.known = Known::Run(Box::new(run));
    }

    /// The child cannot be: its parent is told, in the commit that forgets the request.
    fn refuse_child(&mut self, slot: &mut Slot, failure: Failure) {
        let Some(Promised { sequence, start, .. }) = slot.child.take() else { return };
        self.commits.make_room(4, 64 * 1024);
        self.commits.delete(inbox::key(sequence));
        let message = Message::ChildFailed { command: start.parent.command, failure };
        let parent = start.parent;
        self.post(parent.instance_id.clone(), Post::ToParent { parent, message });
    }
}

/// What is to be noted of a run whose place another one takes. One that was forgotten is not found any more.
pub(super) fn replaced(previous: &InstanceRow) -> Option<First> {
    let InstanceRow { run_number, run, .. } = *previous;
    (previous.status != RunStatus::Purged).then_some(First::Replace { run_number, run })
}

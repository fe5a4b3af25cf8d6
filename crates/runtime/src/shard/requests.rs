//! What clients ask, served one instance at a time.

use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message, RunNumber};

use super::Shard;
use super::claim::Phase;
use super::commits::After;
use super::slot::{Envelope, From, Item, Known, Slot, is_over};
use crate::event::Effect;
use crate::request::{Done, Refused, Repeat, Reply, Request, Ticket};

impl Shard {
    /// Requests that came together are taken in their order, or none of them is: if some were refused for want of room and later ones taken, those
    /// that come again would come too late.
    pub(super) fn on_asked(&mut self, requests: Vec<(Ticket, Request)>) {
        let full = self.config.waiting_max;
        let why = match &self.phase {
            Phase::Working(_) if self.waiting < full && self.ready.len() < full => {
                return requests.into_iter().for_each(|(ticket, request)| self.take(ticket, request));
            }
            // What was under way is being found; it does not take long.
            Phase::Recovering(_) if self.early.len() < full => return self.early.push_back(requests),
            Phase::Working(_) => Refused::Busy,
            Phase::Draining(_) => Refused::Draining,
            _ => Refused::NotReady,
        };
        for (ticket, _) in requests {
            self.refuse(ticket, why.clone());
        }
    }

    fn take(&mut self, ticket: Ticket, request: Request) {
        if let Request::Operate(operate) = request {
            return self.on_operate(ticket, operate);
        }
        let Some(id) = request.instance_id().cloned() else { return };
        self.offer(&id, Item::Asked(ticket, request));
    }

    /// Requests that came while the shard was being recovered.
    pub(super) fn serve_early(&mut self) {
        while let Some(requests) = self.early.pop_front() {
            self.on_asked(requests);
        }
    }

    /// One request, with enough known of its instance.
    pub(super) fn serve_request(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        request: Request,
    ) {
        let repeat = request.repeat();
        if let Some(repeat) = repeat
            && let Some(reply) = self.repeated(slot, repeat, request.begins())
        {
            return self.answer_again(id, slot, ticket, request, reply);
        }
        let request = if let Request::Once(_, request) = request { *request } else { request };
        match request {
            Request::Start(mut start) => {
                start.repeat = repeat;
                self.serve_start(slot, ticket, *start);
            }
            Request::Deliver { message, .. } => self.serve_deliver(id, slot, ticket, message, repeat),
            Request::Restart { .. } => self.serve_restart(id, slot, ticket, repeat),
            Request::Purge { run, .. } => self.serve_purge(id, slot, ticket, run, repeat),
            Request::PurgeEarlier { run, number, .. } => {
                self.serve_purge_earlier(id, slot, ticket, (run, number));
            }
            Request::Operate(operate) => self.on_operate(ticket, operate),
            Request::AwaitEnd { run, .. } => self.serve_await_end(id, slot, ticket, run),
            Request::Recall { .. } => self.refuse(ticket, Refused::NotFound { instance_id: id.clone() }),
            // One key is enough.
            Request::Once(..) => self.refuse(ticket, Refused::KeyReused),
        }
    }

    /// A request that was done before: answered as it was then.
    fn answer_again(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        request: Request,
        reply: Reply,
    ) {
        if let (Request::Start(start), Reply::Started(started)) = (request, &reply)
            && let Some(awaiting) = start.await_end
        {
            // The run may not be in memory: then it is looked up for this one.
            let request = Request::AwaitEnd { instance_id: id.clone(), run: Some(started.run) };
            slot.items.push_front(Item::Asked(awaiting, request));
            self.waiting += 1;
        }
        self.after_slot(slot, After::Effect(Effect::Reply(ticket, reply)));
    }

    fn serve_await_end(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        wanted: Option<RunNumber>,
    ) {
        match (&slot.known, wanted) {
            (Known::Run(run), Some(wanted)) if run.row.run_number != wanted.0 => {
                self.refuse(ticket, Refused::NotCurrent { instance_id: id.clone(), run: wanted });
            }
            (Known::Run(_), _) => self.awaiting.entry(id.clone()).or_default().push(ticket),
            (other, _) => {
                let why = Self::why_unreadable(id, other);
                self.refuse_when_durable(slot, ticket, why);
            }
        }
    }

    fn serve_deliver(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        message: Message,
        repeat: Option<Repeat>,
    ) {
        match &mut slot.known {
            Known::Run(run) => {
                let resumes = matches!(message, Message::Resume { .. });
                if run.row.parked.is_some() && matches!(message, Message::Terminate { .. }) {
                    // What it could not do it need not do any more.
                    run.instance.halt();
                } else if run.row.parked.take().is_some() {
                    // It can be read, so it may go on. Whether it is suspended besides is its own business.
                    run.row.status = super::slot::row_status(run.instance.status());
                    self.commits.make_room(8, 64 * 1024);
                    self.note_continuation(run, true);
                    self.write_row(run);
                    run.written = self.commits.number();
                    self.mark_for_feed(run);
                    if resumes {
                        return self.accept(ticket, repeat);
                    }
                }
                if super::planted!(self, TerminalReopened) && run.has_ended() {
                    run.row.status = RunStatus::Running;
                    self.write_row(run);
                    run.written = self.commits.number();
                    return self.commits.then(After::Effect(Effect::Reply(ticket, Reply::Accepted)));
                }
                let dropped = matches!(message, Message::Terminate { .. }) && !run.has_ended();
                if super::planted!(self, TerminateDropped) && dropped {
                    return self.commits.then(After::Effect(Effect::Reply(ticket, Reply::Accepted)));
                }
                run.push(Envelope { message, from: From::Client(ticket, repeat) });
            }
            Known::Unreadable { row: Some(row), last_page, last_event, .. } if !is_over(row.status) => {
                let tries = matches!(message, Message::Resume { .. } | Message::Terminate { .. });
                if tries && !slot.resuming {
                    // It may be readable by now.
                    slot.resuming = true;
                    slot.known = Known::Nothing;
                    let request = Request::Deliver { instance_id: id.clone(), message };
                    let request = match repeat {
                        Some(repeat) => Request::Once(repeat, Box::new(request)),
                        None => request,
                    };
                    slot.items.push_front(Item::Asked(ticket, request));
                    self.waiting += 1;
                    return;
                }
                slot.resuming = false;
                if let Message::Terminate { reason } = message {
                    let (row, last) = (row.clone(), (*last_page, *last_event));
                    self.end_unread(id, slot, *row, last, &reason);
                    self.accept(ticket, repeat);
                } else {
                    let why = Self::why_unreadable(id, &slot.known);
                    self.refuse_when_durable(slot, ticket, why);
                }
            }
            Known::Row(Some(row)) if row.status == RunStatus::Terminated => {
                let status = abide_workflow::Status::Terminated;
                let why = Refused::Message(abide_workflow::Refusal::RunEnded { status });
                self.refuse_when_durable(slot, ticket, why);
            }
            Known::Unreadable { row: Some(_), .. } => {
                let status = abide_workflow::Status::Terminated;
                let why = Refused::Message(abide_workflow::Refusal::RunEnded { status });
                self.refuse_when_durable(slot, ticket, why);
            }
            other => {
                let why = Self::why_unreadable(id, other);
                self.refuse_when_durable(slot, ticket, why);
            }
        }
    }

    pub(super) fn accept(&mut self, ticket: Ticket, repeat: Option<Repeat>) {
        let reply = self.done(Done::Accepted, repeat);
        self.commits.then(After::Effect(Effect::Reply(ticket, reply)));
    }

    fn serve_restart(&mut self, id: &InstanceId, slot: &mut Slot, ticket: Ticket, repeat: Option<Repeat>) {
        let run = match &mut slot.known {
            Known::Run(run) if run.has_ended() => run,
            Known::Run(run) => {
                let refused = Refused::Live { instance_id: id.clone(), run: RunNumber(run.row.run_number) };
                return self.refuse_when_durable(slot, ticket, refused);
            }
            other => {
                let why = Self::why_unreadable(id, other);
                return self.refuse_when_durable(slot, ticket, why);
            }
        };
        let origin = run.instance.origin();
        let start = crate::request::Start {
            instance_id: id.clone(),
            plan: run.plan.clone(),
            input: origin.input.clone(),
            event: origin.event.clone(),
            correlation_id: origin.correlation_id.clone(),
            entity_id: origin.entity_id.clone(),
            repeat,
            await_end: None,
        };
        self.serve_start(slot, ticket, start);
    }

    fn serve_purge(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        run: Option<RunNumber>,
        repeat: Option<Repeat>,
    ) {
        self.commits.make_room(8, 64 * 1024);
        let last = match &slot.known {
            Known::Row(row) => row.clone(),
            Known::Run(run) => Some(run.row.clone()),
            Known::Unreadable { row: Some(row), .. } => Some((**row).clone()),
            other => {
                let why = Self::why_unreadable(id, other);
                return self.refuse_when_durable(slot, ticket, why);
            }
        };
        let not_found = Refused::NotFound { instance_id: id.clone() };
        let Some(row) = last.filter(|row| run.is_none_or(|run| run.0 == row.run_number)) else {
            return self.refuse_when_durable(slot, ticket, not_found);
        };
        if row.status == RunStatus::Purged {
            if run.is_none() {
                // What is left of the instance is earlier runs, if anything is.
                self.forget_earlier_runs(id, row.run);
            }
            return self.refuse_when_durable(slot, ticket, not_found);
        }
        if !is_over(row.status) {
            let refused = Refused::Live { instance_id: id.clone(), run: RunNumber(row.run_number) };
            return self.refuse_when_durable(slot, ticket, refused);
        }
        if run.is_none() {
            self.forget_earlier_runs(id, row.run);
        }
        slot.known = Known::Row(Some(self.purge(id, row)));
        slot.written = self.commits.number();
        self.commits.then(After::Forget(id.clone()));
        let reply = self.done(Done::Purged, repeat);
        self.commits.then(After::Effect(Effect::Reply(ticket, reply)));
    }

    fn serve_purge_earlier(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ticket: Ticket,
        (run, number): (RunNumber, u64),
    ) {
        let current = match &slot.known {
            Known::Row(row) => row.as_ref().map(|row| row.run),
            Known::Run(run) => Some(run.row.run),
            Known::Unreadable { row: Some(row), .. } => Some(row.run),
            other => {
                let why = Self::why_unreadable(id, other);
                return self.refuse_when_durable(slot, ticket, why);
            }
        };
        if current == Some(number) {
            return self.refuse_when_durable(slot, ticket, Refused::NotFound { instance_id: id.clone() });
        }
        self.commits.make_room(8, 64 * 1024);
        let instance_id = id.as_str().to_owned();
        let revision = self.next_sequence();
        self.forget_earlier(&EndedRun { instance_id, run: number, run_number: run.0, revision });
        self.commits.then(After::Effect(Effect::Reply(ticket, Reply::Purged)));
    }

    /// Refuses because of a run that may be ahead of the store: what is said of it must not be undone by a crash.
    pub(super) fn refuse_when_durable(&mut self, slot: &mut Slot, ticket: Ticket, why: Refused) {
        self.after_slot(slot, After::Effect(Effect::Reply(ticket, Reply::Refused(why))));
    }

    /// Clients that do not wait any more.
    pub(super) fn on_gone(&mut self, gone: &[Ticket]) {
        self.awaiting.retain(|_, tickets| {
            tickets.retain(|ticket| !gone.contains(ticket));
            !tickets.is_empty()
        });
    }
}

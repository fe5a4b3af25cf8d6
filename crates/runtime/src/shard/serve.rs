//! Serving an instance: look up what must be known of it, then do what waits, in the order it came.

use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message};

use super::slot::{Item, Known, Run, Slot, is_over};
use super::{Shard, back_off, later};
use crate::event::{Depth, Effect, LookedUp, Notice};
use crate::lease::Monotonic;
use crate::post::Post;
use crate::request::{Refused, Request};
use crate::run::StoredRun;

/// A run that rests in memory.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) since: Monotonic,
    id: InstanceId,
    bytes: usize,
}

impl Shard {
    /// Something for an instance; served at once if enough is known, else when it is.
    pub(super) fn offer(&mut self, id: &InstanceId, item: Item) {
        match self.slots.get_mut(id) {
            Some(slot) => slot.items.push_back(item),
            None => {
                let mut slot = Slot::new();
                slot.items.push_back(item);
                self.slots.insert(id.clone(), slot);
            }
        }
        self.waiting += 1;
        self.serve(id);
    }

    /// What turns of other runs have sent to instances of this shard.
    pub(super) fn serve_posted(&mut self) {
        while let Some((id, item)) = self.posted.pop_front() {
            self.offer(&id, item);
        }
    }

    /// Does what waits for an instance, as far as it can be done.
    pub(super) fn serve(&mut self, id: &InstanceId) {
        let Some(mut slot) = self.slots.remove(id) else { return };
        while let Some(item) = slot.items.front() {
            let depth = item.depth();
            match &mut slot.known {
                Known::LookingUp(_) | Known::Asking(_) => break,
                Known::LookAgain(_, at) if *at > self.now.mono => break,
                Known::LookAgain(depth, _) => {
                    let depth = depth.clone();
                    self.effects.push(Effect::LookUp(id.clone(), depth.clone()));
                    slot.known = Known::LookingUp(depth);
                    break;
                }
                Known::Nothing => {
                    self.effects.push(Effect::LookUp(id.clone(), depth.clone()));
                    slot.known = Known::LookingUp(depth);
                    break;
                }
                Known::Row(Some(_)) if depth == Depth::Run => {
                    slot.known = Known::Nothing;
                    continue;
                }
                _ => {}
            }
            if let Some(key) = slot.key_to_look_for() {
                self.effects.push(Effect::LookUp(id.clone(), Depth::Row { repeat: Some(key) }));
                slot.ask();
                break;
            }
            let Some(item) = slot.items.pop_front() else { break };
            self.waiting = self.waiting.saturating_sub(1);
            if !self.serve_item(id, &mut slot, item) {
                break;
            }
        }
        if let Known::Run(run) = &mut slot.known {
            let outcome = self.take_turns(id, run);
            self.answer_awaiting(run);
            if let Err(corrupt) = outcome
                && let Known::Run(run) = std::mem::replace(&mut slot.known, Known::Nothing)
            {
                slot.known = self.park(id, *run, corrupt.reason);
            }
        }
        self.put_back(id, slot);
    }

    /// Keeps a slot that is needed, or may be soon.
    fn put_back(&mut self, id: &InstanceId, mut slot: Slot) {
        let keep = match &mut slot.known {
            Known::Run(run) => {
                let over = run.has_ended() && run.rests(self.commits.durable);
                if !over {
                    self.note_resting(id, run);
                }
                !over
            }
            Known::Unreadable { row, .. } => row.is_some(),
            Known::Asking(_) | Known::LookingUp(_) => true,
            _ => !slot.items.is_empty(),
        };
        if keep || !slot.items.is_empty() {
            self.slots.insert(id.clone(), slot);
        }
    }

    /// One item, with enough known. False if it waits for more and stays at the front.
    fn serve_item(&mut self, id: &InstanceId, slot: &mut Slot, item: Item) -> bool {
        match item {
            Item::Asked(ticket, request) => self.serve_request(id, slot, ticket, request),
            Item::Feed { run } => {
                self.serve_feed(id, slot, run);
                true
            }
            Item::Expire { run, expiry } => {
                self.serve_expire(id, slot, run, &expiry);
                true
            }
            Item::Post { sequence, post: Post::StartChild(start) } => {
                self.find_plan(id, slot, sequence, start);
                true
            }
            item => match &mut slot.known {
                Known::Run(run) => {
                    self.serve_run(run, item);
                    true
                }
                // It may be resumed, and then these are needed.
                Known::Unreadable { .. } => {
                    slot.items.push_front(item);
                    self.waiting += 1;
                    false
                }
                _ => {
                    self.discard(item);
                    true
                }
            },
        }
    }

    /// Something for a run in memory.
    fn serve_run(&mut self, run: &mut Run, item: Item) {
        match item {
            Item::Message { run: number, mut envelope } => {
                if number != run.row.run {
                    return self.discard(Item::Message { run: number, envelope });
                }
                self.note_answer(run, &mut envelope);
                run.push(envelope);
            }
            Item::Deliver { run: number, command } if number == run.row.run => {
                self.deliver_call(run, command)
            }
            Item::Stuck { run: number, due } if number == run.row.run => self.found_stuck(run, &due),
            Item::Post { sequence, post } => self.serve_post(run, sequence, post),
            other => self.discard(other),
        }
    }

    fn serve_post(&mut self, run: &mut Run, sequence: u64, post: Post) {
        let origin = run.instance.origin();
        let message = match post {
            Post::ToParent { parent, message } if parent.run == origin.run => message,
            Post::TerminateChild { parent, reason } if origin.parent.as_ref() == Some(&parent) => {
                Message::Terminate { reason }
            }
            Post::Continue { run: number } if number == run.row.run => {
                run.unfinished = true;
                run.continuation = Some(sequence);
                return;
            }
            _ => {
                self.commits.delete(inbox::key(sequence));
                return;
            }
        };
        run.push(super::slot::Envelope { message, from: super::slot::From::Inbox(sequence) });
    }

    /// Nobody is there to take it: its row, if it has one, goes.
    fn discard(&mut self, item: Item) {
        match item {
            Item::Message { envelope, .. } => match envelope.from {
                super::slot::From::Timer(due) => self.drop_timer(&due),
                super::slot::From::Inbox(sequence) => self.commits.delete(inbox::key(sequence)),
                super::slot::From::Client(_) | super::slot::From::Call(_) => {}
            },
            Item::Post { sequence, .. } => {
                self.commits.delete(inbox::key(sequence));
            }
            Item::Stuck { due, .. } => self.drop_timer(&due),
            _ => {}
        }
    }

    pub(super) fn on_looked_up(&mut self, id: &InstanceId, found: LookedUp) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get_mut(id) else { return };
        if let Known::Asking(_) = &slot.known {
            return self.on_answer_looked_up(id, found);
        }
        let Known::LookingUp(depth) = &slot.known else { return };
        let depth = depth.clone();
        slot.known = match found {
            LookedUp::Unavailable(_) => {
                let at = later(now, back_off(3));
                self.again.push_back((at, id.clone()));
                Known::LookAgain(depth, at)
            }
            LookedUp::Row(row, answer) => {
                if let Depth::Row { repeat: Some(key) } = depth {
                    slot.looked_for = Some(key);
                    slot.answer = answer;
                }
                Known::Row(row)
            }
            LookedUp::Run(None) => Known::Row(None),
            LookedUp::Run(Some(stored)) => Self::loaded(*stored, slot),
            LookedUp::Unreadable(unreadable) => {
                let notice = Notice::Parked { instance_id: id.clone(), reason: unreadable.reason.clone() };
                let parked = unreadable.row.as_ref().is_some_and(|row| row.status == RunStatus::Parked);
                if !parked {
                    self.effects.push(Effect::Tell(notice));
                }
                Known::Unreadable {
                    row: unreadable.row.map(Box::new),
                    last_page: unreadable.last_page,
                    reason: unreadable.reason,
                }
            }
        };
        if let Known::Unreadable { row: Some(row), reason, .. } = &mut slot.known
            && row.status != RunStatus::Parked
            && !is_over(row.status)
        {
            row.status = RunStatus::Parked;
            row.parked = Some(reason.clone());
            let row = (**row).clone();
            self.write_parked(id, &row);
        }
        self.serve(id);
    }

    /// A run from the store. One that was parked stays parked until it is resumed.
    fn loaded(stored: StoredRun, slot: &Slot) -> Known {
        let resumes = |item: &Item| {
            matches!(item, Item::Asked(_, Request::Deliver { message: Message::Resume { .. }, .. }))
        };
        if stored.row.status == RunStatus::Parked && !slot.items.front().is_some_and(resumes) {
            let reason = stored.row.parked.clone().unwrap_or_default();
            return Known::Unreadable {
                row: Some(Box::new(stored.row)),
                last_page: stored.last_page,
                reason,
            };
        }
        if stored.row.status == RunStatus::Purged {
            return Known::Row(Some(stored.row));
        }
        Known::Run(Box::new(Run::load(stored)))
    }

    /// What is kept under a client's key, for an instance that is in memory.
    fn on_answer_looked_up(&mut self, id: &InstanceId, found: LookedUp) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        if slot.child.is_some() || !slot.asked() {
            return;
        }
        if matches!(found, LookedUp::Unavailable(_)) {
            return self.again.push_back((later(self.now.mono, back_off(3)), id.clone()));
        }
        if let (LookedUp::Row(_, answer), Some(key)) = (found, slot.key_to_look_for()) {
            slot.looked_for = Some(key);
            slot.answer = answer;
        }
        self.serve(id);
    }

    /// Remembers that a run rests.
    fn note_resting(&mut self, id: &InstanceId, run: &mut Run) {
        if run.wants_turn() {
            return;
        }
        if run.resting.replace(self.now.mono).is_none() {
            let bytes = run.bytes();
            self.resting_bytes += bytes;
            self.resting.push_back(Resting { since: self.now.mono, id: id.clone(), bytes });
        }
    }

    /// Drops runs that have rested long enough, and the oldest ones when there is no room for so many.
    pub(super) fn drop_resting(&mut self) {
        for _ in 0..self.resting.len() {
            let Some(oldest) = self.resting.front() else { return };
            let long = later(oldest.since, self.config.resting_max) <= self.now.mono;
            if !long && self.resting_bytes <= self.config.resting_bytes_max {
                return;
            }
            let Some(mut oldest) = self.resting.pop_front() else { return };
            self.resting_bytes = self.resting_bytes.saturating_sub(oldest.bytes);
            let Some(slot) = self.slots.get_mut(&oldest.id) else { continue };
            let empty = slot.items.is_empty();
            let Known::Run(run) = &mut slot.known else { continue };
            if run.resting == Some(oldest.since) && run.rests(self.commits.durable) && empty && !run.queued {
                self.slots.remove(&oldest.id);
                continue;
            }
            // It has moved since, or is not durable yet.
            let since = run.resting.unwrap_or(self.now.mono);
            run.resting = Some(since);
            oldest.since = since;
            oldest.bytes = run.bytes();
            self.resting_bytes += oldest.bytes;
            self.resting.push_back(oldest);
        }
    }

    /// Serves instances again that the store could not tell of.
    pub(super) fn serve_again(&mut self) {
        while self.again.front().is_some_and(|(at, _)| *at <= self.now.mono) {
            if let Some((_, id)) = self.again.pop_front() {
                self.serve(&id);
            }
        }
    }

    /// Forgets a run that has ended.
    pub(super) fn forget(&mut self, id: &InstanceId) {
        let Some(slot) = self.slots.get(id) else { return };
        if let Known::Run(run) = &slot.known
            && run.has_ended()
            && run.rests(self.commits.durable)
            && slot.items.is_empty()
            && !run.queued
        {
            self.slots.remove(id);
        }
    }

    /// Why a client cannot be served by an instance in this state.
    pub(super) fn why_unreadable(id: &InstanceId, known: &Known) -> Refused {
        match known {
            Known::Unreadable { row: Some(_), reason, .. } => {
                Refused::Parked { instance_id: id.clone(), reason: reason.clone() }
            }
            Known::Unreadable { reason, .. } => {
                Refused::Damaged { instance_id: id.clone(), reason: reason.clone() }
            }
            _ => Refused::NotFound { instance_id: id.clone() },
        }
    }
}

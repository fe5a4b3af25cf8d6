//! Serving an instance: do what waits for it, in the order it came, as soon as enough is known; then take its turns.

use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message};

use super::Shard;
use super::commits::After;
use super::slot::{Envelope, From, Item, Known, Promised, Run, Slot, is_over};
use crate::event::{Depth, Effect};
use crate::post::Post;
use crate::request::{Refused, Request};

/// Rows and bytes that anything but a turn adds at most, large messages aside.
const SMALL_ROWS: usize = 8;
const SMALL_BYTES: usize = 64 * 1024;

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
        loop {
            self.serve_items(id, &mut slot);
            let Known::Run(run) = &mut slot.known else { break };
            let outcome = self.take_turns(id, run);
            self.answer_awaiting(run);
            let mut waits = run.wants_turn();
            if let Err(corrupt) = outcome
                && let Known::Run(run) = std::mem::replace(&mut slot.known, Known::Nothing)
            {
                self.park(id, &mut slot, *run, corrupt.reason);
                (waits, slot.blocked) = (false, true);
            }
            // What had to wait for these turns.
            if waits || slot.items.is_empty() || !slot.blocked {
                break;
            }
        }
        self.put_back(id, slot);
    }

    fn serve_items(&mut self, id: &InstanceId, slot: &mut Slot) {
        slot.blocked = false;
        self.waiting += std::mem::take(&mut slot.found);
        while let Some(item) = slot.items.front() {
            let depth = item.depth();
            match &mut slot.known {
                Known::LookingUp(_) | Known::Asking(_) => return,
                Known::LookAgain(_, at) if *at > self.now.mono => return,
                Known::LookAgain(depth, _) => {
                    let depth = depth.clone();
                    self.effects.push(Effect::LookUp(id.clone(), depth.clone()));
                    slot.known = Known::LookingUp(depth);
                    return;
                }
                // What was written last would be read as it was before.
                Known::Nothing if slot.written > self.commits.durable => {
                    let now = self.commits.when_durable(slot.written, After::Serve(id.clone()));
                    debug_assert!(now.is_none(), "it is not durable yet");
                    return;
                }
                Known::Nothing => {
                    self.effects.push(Effect::LookUp(id.clone(), depth.clone()));
                    slot.known = Known::LookingUp(depth);
                    return;
                }
                // A row that is not durable yet would be read as it was before.
                Known::Row(Some(row)) if depth == Depth::Run && !is_gone(row.status, slot.written) => {
                    slot.known = Known::Nothing;
                    continue;
                }
                // What replaces a run comes after what the run was given before; so does what may be a copy of that.
                Known::Run(run) if item.waits_for_turns() && run.wants_turn() => {
                    slot.blocked = true;
                    return;
                }
                _ => {}
            }
            if let Some(key) = slot.key_to_look_for()
                && self.fresh_answer(&key).is_none()
            {
                self.effects.push(Effect::LookUp(id.clone(), Depth::Row { repeat: Some(key) }));
                return slot.ask();
            }
            let Some(item) = slot.items.pop_front() else { return };
            self.waiting = self.waiting.saturating_sub(1);
            self.serve_item(id, slot, item);
        }
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
            Known::Asking(_) | Known::LookingUp(_) => true,
            _ => slot.written > self.commits.durable || !slot.set_aside.is_empty(),
        };
        if keep || !slot.items.is_empty() {
            self.slots.insert(id.clone(), slot);
        }
    }

    /// One item, with enough known.
    fn serve_item(&mut self, id: &InstanceId, slot: &mut Slot, item: Item) {
        self.commits.make_room(SMALL_ROWS, SMALL_BYTES);
        match item {
            Item::Asked(ticket, request) => self.serve_request(id, slot, ticket, request),
            Item::Feed { run, revision, whole } => self.serve_feed(id, slot, (run, revision), whole),
            Item::Expire { ended, expiry } => self.serve_expire(id, slot, &ended, &expiry),
            Item::Inspect => self.inspect(id, slot),
            Item::Post { sequence, post: Post::StartChild(start) } => {
                self.find_plan(id, slot, Promised { sequence, item: None, start });
            }
            Item::Post { sequence, post: Post::StartChildOf { item, start } } => {
                self.find_plan(id, slot, Promised { sequence, item: Some(item), start });
            }
            Item::Post { sequence, post: Post::Routed(routed) } => {
                self.serve_routed(id, slot, sequence, routed);
            }
            item => match &mut slot.known {
                Known::Run(run) => self.serve_run(run, item),
                // It may be resumed, and then these are needed.
                Known::Unreadable { row, .. } if row.as_ref().is_none_or(|row| !is_over(row.status)) => {
                    slot.set_aside.push_back(item);
                }
                _ => self.discard(item),
            },
        }
    }

    /// What was set aside with its run is served again.
    pub(super) fn restore(&mut self, slot: &mut Slot) {
        self.waiting += slot.set_aside.len();
        slot.items.append(&mut slot.set_aside);
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
                self.deliver_call(run, command);
            }
            Item::Withdrawn { run: number, command, attempt } if number == run.row.run => {
                self.take_back(run, command, attempt);
            }
            Item::Stuck { run: number, due } if number == run.row.run => self.found_stuck(run, &due),
            Item::LookAfter { run: number } if number == run.row.run => self.look_after(run),
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
                // One note is enough.
                if let Some(other) = run.continuation.replace(sequence).filter(|other| *other != sequence) {
                    self.commits.delete(inbox::key(other));
                }
                return;
            }
            _ => {
                self.commits.delete(inbox::key(sequence));
                return;
            }
        };
        run.push(Envelope { message, from: From::Inbox(sequence) });
    }

    /// Nobody is there to take it: its row, if it has one, goes.
    fn discard(&mut self, item: Item) {
        match item {
            Item::Message { envelope, .. } => match envelope.from {
                From::Timer(due) => self.drop_timer(&due),
                From::Inbox(sequence) | From::Routed(sequence, _) => {
                    self.commits.delete(inbox::key(sequence));
                }
                From::Client(..) | From::Call { .. } => {}
            },
            Item::Post { sequence, .. } => self.commits.delete(inbox::key(sequence)),
            Item::Stuck { due, .. } => self.drop_timer(&due),
            _ => {}
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

impl Item {
    /// Whether it puts another run, or none, in the place of the one that is there; or may be a copy of what waits for a turn.
    fn waits_for_turns(&self) -> bool {
        match self {
            Self::Asked(
                _,
                Request::Restart { .. }
                | Request::Purge { .. }
                | Request::PurgeEarlier { .. }
                | Request::Start(_),
            ) => true,
            Self::Asked(_, request) => request.repeat().is_some(),
            Self::Expire { .. } | Self::Post { post: Post::Routed(_), .. } => true,
            Self::Post { post, .. } => post.starts_child(),
            _ => false,
        }
    }
}

/// Whether there is no run to look for behind a row: it is purged, or it was ended here without being read.
fn is_gone(status: RunStatus, written: u64) -> bool {
    status == RunStatus::Purged || written > 0
}

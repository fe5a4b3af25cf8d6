//! One turn of one run, and the rows it becomes: all of them in one gathering, so all of them or none.

use abide_store::tables::dispatches::PastDelivery;
use abide_store::tables::pages::{self, Page};
use abide_store::tables::parts::{self, Part};
use abide_store::tables::{encode, inbox, instances};
use abide_workflow::history::HistoryEvent;
use abide_workflow::{
    CommandId, Corrupt, Instance, InstanceId, Message, PartChange, PartKey, Refusal, Status, Turn, advance,
};

use super::commits::After;
use super::journal::Kept;
use super::slot::{Folding, From, Item, Run, Slot, row_status};
use super::{Shard, planted};
use crate::event::Effect;
use crate::post::{self, Post};
use crate::request::{Done, Refused, Reply};
use crate::run::Change;

/// Turns one run takes before others come.
const TURNS_AT_ONCE: usize = 8;
/// Pages after which the changed parts are folded into rows of their own.
const FOLD_PAGES: u64 = 32;
/// Bytes of changed parts after which they are folded.
const FOLD_BYTES: usize = 64 * 1024;
/// Part rows written beside one turn, and their bytes, the one that crosses the bound included.
const FOLD_ROWS: usize = 64;
const FOLD_SLICE_BYTES: usize = 256 * 1024;
/// Bytes of such a row without its name and its part, and of the id's row that goes with the last.
const PART_ROW_BYTES: usize = 4 * 1024;
/// Runs that may follow each other without taking anything: what spins is set aside.
const CONTINUED_MAX: u32 = 16;

impl Shard {
    /// Takes the turns of runs that had no room before, as far as there is room now.
    pub(super) fn take_ready_turns(&mut self) {
        self.serve_posted();
        let mut rounds = self.ready.len();
        while rounds > 0 && self.commits.has_room() {
            rounds -= 1;
            let Some(id) = self.ready.pop_front() else { return };
            if let Some(run) = self.slots.get_mut(&id).and_then(Slot::run_mut) {
                run.queued = false;
            }
            self.serve(&id);
            self.serve_posted();
        }
    }

    /// Turns until the run rests, or others must come first.
    pub(super) fn take_turns(&mut self, id: &InstanceId, run: &mut Run) -> Result<(), Corrupt> {
        for _ in 0..TURNS_AT_ONCE {
            if !run.wants_turn() {
                return Ok(());
            }
            if !self.commits.has_room() {
                break;
            }
            self.turn_of(run)?;
        }
        if run.wants_turn() && !run.queued {
            run.queued = true;
            self.ready.push_back(id.clone());
        }
        Ok(())
    }

    /// One turn, and what it asks for, all of it in one gathering.
    fn turn_of(&mut self, run: &mut Run) -> Result<(), Corrupt> {
        let (now, limits) = (self.now.wall, self.limits_of(run));
        let inbox = run.messages.make_contiguous();
        let mut turn = advance(&run.plan, &mut run.instance, inbox, now, &limits)?;
        if turn.consumed > 0 || turn.changes.iter().any(is_taken) {
            run.continued = 0;
        }
        let mut next = self.next_run(&mut turn);
        let parts = next.as_mut().map(Instance::take_changes).transpose()?.unwrap_or_default();
        let events = serde_json::to_vec(&turn.history).unwrap_or_default();
        let room = self.room_for(run, &turn, events.len(), &parts)?;
        self.commits.make_room(room.rows + self.fold_rows(), room.bytes + FOLD_SLICE_BYTES);
        let (touched, before) = (self.commits.touched, self.commits.gathered());
        self.take_first(run);
        let mut changes: Vec<Change> = turn.changes.drain(..).map(of_part).collect();
        let answered = self.take_messages(run, &turn, &mut changes);
        for command in std::mem::take(&mut turn.commands) {
            self.obey(run, command, &mut changes);
        }
        for (command, completed) in answered {
            let given_up = turn.given_up.iter().find(|(given_up, _)| *given_up == command);
            self.settle_call(run, command, completed, given_up.map(|(_, why)| *why));
        }
        self.note_continuation(run, turn.unfinished);
        self.note_stuck(run, &mut changes);
        self.write_pages(run, &turn.history, events, changes);
        self.note_status(run);
        if self.commits.touched > touched {
            run.written = self.commits.number();
        }
        if let Some(next) = next {
            self.continue_as_new(run, next, parts);
        }
        let after = self.commits.gathered();
        debug_assert!(
            after.0 <= before.0 + room.rows && after.1 <= before.1 + room.bytes,
            "{before:?} {after:?} {room:?}"
        );
        self.fold(run);
        if run.continued > CONTINUED_MAX {
            let reason =
                format!("{CONTINUED_MAX} runs continued as new one after the other without taking anything");
            return Err(Corrupt { reason });
        }
        Ok(())
    }

    /// What is to be done for each message taken. Gives back the calls that were answered, and whether with success.
    fn take_messages(
        &mut self,
        run: &mut Run,
        turn: &Turn,
        changes: &mut Vec<Change>,
    ) -> Vec<(CommandId, bool)> {
        let held = std::mem::take(&mut run.held);
        let mut answered: Vec<(CommandId, bool)> = held.into_iter().map(|command| (command, false)).collect();
        for position in 0..turn.consumed {
            let (Some(message), Some(from)) = (run.messages.pop_front(), run.froms.pop_front()) else {
                break;
            };
            let refusal = turn.refused.iter().find(|(at, _)| *at == position).map(|(_, refusal)| refusal);
            match from {
                From::Client(ticket, repeat) => {
                    let reply = match refusal {
                        Some(refusal) => Reply::Refused(Refused::Message(refusal.clone())),
                        None => self.done(Done::Accepted, repeat),
                    };
                    if planted!(self, EarlyAcknowledgement) {
                        self.reply(ticket, reply);
                    } else {
                        self.commits.then(After::Effect(Effect::Reply(ticket, reply)));
                    }
                }
                From::Call { command, .. } => {
                    answered.push((command, matches!(message, Message::ActivityCompleted { .. })));
                }
                From::Timer(due) => self.timer_taken(run, &due, changes),
                From::Routed(sequence, routed) => match refusal {
                    // It ended first: the next run is for this event.
                    Some(Refusal::RunEnded { .. }) => {
                        let id = run.instance.origin().instance_id.clone();
                        self.posted.push_back((id, Item::Post { sequence, post: Post::Routed(routed) }));
                    }
                    Some(refusal) => self.give_up_routed(sequence, &routed, &refusal.to_string()),
                    None => {
                        self.commits.delete(inbox::key(sequence));
                        self.commits.hurry();
                    }
                },
                From::Inbox(sequence) => {
                    self.commits.delete(inbox::key(sequence));
                    self.commits.hurry();
                    if let Message::ChildCompleted { command, .. } | Message::ChildFailed { command, .. } =
                        message
                        && let Some((_, change)) = run.book.clear_child(command)
                    {
                        changes.push(change);
                    }
                }
            }
        }
        answered
    }

    /// A turn that was cut short leaves a note, so that a crash does not leave the run waiting for nothing.
    pub(super) fn note_continuation(&mut self, run: &mut Run, unfinished: bool) {
        run.unfinished = unfinished;
        match (unfinished, run.continuation) {
            (true, None) => {
                let sequence = self.next_sequence();
                run.continuation = Some(sequence);
                let post = Post::Continue { run: run.row.run };
                let waiting = inbox::Waiting {
                    instance_id: run.instance.origin().instance_id.as_str().to_owned(),
                    received_at: self.now.wall.0,
                    message: post::encode(&post),
                };
                self.commits.create(inbox::key(sequence), encode(&waiting));
            }
            (false, Some(sequence)) => {
                self.commits.delete(inbox::key(sequence));
                run.continuation = None;
            }
            _ => {}
        }
    }

    /// The turn's page: what it told and what it changed. More than one if that is too much for one row.
    pub(super) fn write_pages(
        &mut self,
        run: &mut Run,
        history: &[HistoryEvent],
        events: Vec<u8>,
        changes: Vec<Change>,
    ) {
        if history.is_empty() && changes.is_empty() && run.settled.is_empty() {
            return;
        }
        let bytes_max = self.page_bytes();
        let size = |change: &Change| change.0.len() + change.1.as_ref().map_or(0, Vec::len) + 16;
        let settled: usize = run.settled.iter().map(settled_bytes).sum();
        let total = settled + changes.iter().map(size).sum::<usize>();
        let first_event = history.first().map_or(0, |event| event.sequence);
        if events.len() + total <= bytes_max {
            let count = u32::try_from(history.len()).unwrap_or(u32::MAX);
            return self.write_page(run, first_event, count, events, changes);
        }
        self.write_settled(run);
        // As many events as fit, at least one.
        let (mut page, mut count, mut first_event) = (Vec::new(), 0, first_event);
        for event in history {
            let event_bytes = serde_json::to_vec(event).unwrap_or_default();
            if count > 0 && page.len() + event_bytes.len() + 2 > bytes_max {
                page.push(b']');
                self.write_page(run, first_event, count, std::mem::take(&mut page), Vec::new());
                (count, first_event) = (0, event.sequence);
            }
            page.push(if count == 0 { b'[' } else { b',' });
            page.extend(event_bytes);
            count += 1;
        }
        if count > 0 {
            page.push(b']');
            self.write_page(run, first_event, count, page, Vec::new());
        }
        let (mut some, mut bytes) = (Vec::new(), 0);
        for change in changes {
            if bytes + size(&change) > bytes_max && !some.is_empty() {
                self.write_page(run, 0, 0, Vec::new(), std::mem::take(&mut some));
                bytes = 0;
            }
            bytes += size(&change);
            some.push(change);
        }
        self.write_page(run, 0, 0, Vec::new(), some);
    }

    /// Calls that were settled, on pages of their own: beside a page full of events they would be too much for one row.
    fn write_settled(&mut self, run: &mut Run) {
        let bytes_max = self.page_bytes();
        let (mut some, mut bytes) = (Vec::new(), 0);
        for kept in std::mem::take(&mut run.settled) {
            let size = settled_bytes(&kept);
            if bytes + size > bytes_max && !some.is_empty() {
                run.settled = std::mem::take(&mut some);
                self.write_page(run, 0, 0, Vec::new(), Vec::new());
                bytes = 0;
            }
            bytes += size;
            some.push(kept);
        }
        if !some.is_empty() {
            run.settled = some;
            self.write_page(run, 0, 0, Vec::new(), Vec::new());
        }
    }

    fn write_page(
        &mut self,
        run: &mut Run,
        first_event: u64,
        events_count: u32,
        events: Vec<u8>,
        changes: Vec<Change>,
    ) {
        run.last_page += 1;
        let (mut settled, mut troubled) = (Vec::with_capacity(run.settled.len()), Vec::new());
        for (place, Kept { call, trouble }) in (0..).zip(run.settled.drain(..)) {
            settled.push(call);
            troubled.extend((!trouble.is_none()).then_some((place, trouble)));
        }
        let at = self.now.wall.0;
        let page = Page { first_event, events_count, at, events, changes, settled, troubled };
        self.commits.create(pages::key(run.row.run, run.last_page), encode(&page));
        self.commits.hurry();
        for (name, bytes) in page.changes {
            run.unfolded_bytes += name.len() + bytes.as_ref().map_or(0, Vec::len);
            run.unfolded.insert(name, (bytes, run.last_page));
        }
    }

    /// Folds the changed parts into rows of their own when there are many pages over the last fold, a slice beside each turn. A row may be
    /// newer than the fold says: the pages laid over it end in the same bytes.
    fn fold(&mut self, run: &mut Run) {
        if run.has_ended() {
            run.folding = None;
            return;
        }
        let pages = run.last_page - run.row.folded_turn;
        if run.folding.is_none() && (pages >= FOLD_PAGES || run.unfolded_bytes >= FOLD_BYTES && pages > 1) {
            let names = run.unfolded.keys().cloned().collect();
            run.folding = Some(Folding { until_page: run.last_page, names });
        }
        let rows = self.fold_rows();
        let Some(folding) = &mut run.folding else { return };
        let mut written = 0;
        for _ in 0..rows {
            if written > FOLD_SLICE_BYTES {
                break;
            }
            let Some(name) = folding.names.front() else { break };
            let size = run.unfolded.get(name).and_then(|(bytes, _)| bytes.as_ref()).map_or(0, Vec::len);
            // Beside a large turn there may be no room: then beside another.
            if !self.commits.fits(2, size + 2 * name.len() + PART_ROW_BYTES) {
                break;
            }
            let Some(name) = folding.names.pop_front() else { break };
            let Some((bytes, page)) = run.unfolded.get(&name) else { continue };
            written += size;
            let key = parts::key(run.row.run, &name);
            match bytes {
                Some(bytes) => self.commits.put(key, encode(&Part::new(&name, *page, bytes.clone()))),
                None => self.commits.delete(key),
            }
        }
        if !folding.names.is_empty() {
            return;
        }
        let until = folding.until_page;
        run.folding = None;
        run.row.folded_turn = until;
        run.unfolded.retain(|_, (_, page)| *page > until);
        run.unfolded_bytes = run
            .unfolded
            .iter()
            .map(|(name, (bytes, _))| name.len() + bytes.as_ref().map_or(0, Vec::len))
            .sum();
        self.write_row(run);
    }

    fn fold_rows(&self) -> usize {
        FOLD_ROWS.min(self.config.store.commit_rows_max / 8)
    }

    /// The row of the id says what the run's status says, in the same commit.
    fn note_status(&mut self, run: &mut Run) {
        let early = planted!(self, EarlyCompletion) && run.calls.len() == 1 && run.last_page > 2;
        let status = row_status(if early { Status::Completed } else { run.instance.status() });
        if status == run.row.status {
            return;
        }
        run.row.status = status;
        run.row.parked = None;
        if planted!(self, StatusApart) && run.has_ended() {
            return;
        }
        self.write_row(run);
        self.mark_for_feed(run);
        if run.has_ended() {
            self.commits.then(After::Forget(run.instance.origin().instance_id.clone()));
        }
    }

    /// Writes the row of the run's id.
    pub(super) fn write_row(&mut self, run: &mut Run) {
        run.row.last_turn = run.last_page;
        run.row.updated_at = self.now.wall.0;
        let key = instances::key(run.instance.origin().instance_id.as_str());
        self.commits.put(key, encode(&run.row));
        self.commits.hurry();
    }
}

/// Bytes of what is kept of a call, at most.
fn settled_bytes(Kept { call, trouble }: &Kept) -> usize {
    const FIXED: usize = 160;
    let texts = [
        Some(&call.activity),
        Some(&call.step),
        call.target.as_ref(),
        call.reason.as_ref(),
        trouble.status.as_ref(),
    ];
    FIXED
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + trouble.past.len() * PastDelivery::BYTES_MAX
}

/// A part as pages have it.
pub(super) fn of_part(part: PartChange) -> Change {
    (part.key.to_bytes(), part.value)
}

/// Whether something that the run had kept was taken: an event, or a message it held.
fn is_taken(part: &PartChange) -> bool {
    part.value.is_none() && matches!(part.key, PartKey::Buffered(..) | PartKey::Held(_))
}

//! Runs one turn of a run and writes its rows, all in one batch: all of them become durable, or none.
//!
//! ```text
//!  messages ──> advance() ──> events, changed parts, commands
//!                                 │          │         └──> commands.rs: calls, timers, children, end
//!                                 └──────────┴──> history_pages.rs (one page), fold.rs (now and then)
//! ```
//!
//! Replies and attempts wait as on-commit actions of the same batch. The interpreter decides what a turn does; this
//! file only supplies its input and stores its result. A turn that no commit can hold, or that fails to run, parks its
//! run.

use abide_ids::PageNumber;
use abide_store::tables::{encode, inbox, instances};
use abide_workflow::{
    CommandId, CorruptInstance, Instance, InstanceId, Message, MessageRefusal, PartChange, PartKey, Status,
    Turn, advance,
};

use super::commit_queue::OnCommit;
use super::fold::FOLD_SLICE_BYTES;
use super::history_pages::part_change;
use super::instance_slot::{InstanceSlot, MessageSource, WorkItem, row_status};
use super::run_state::ResidentRun;
use super::{Shard, fault_injected};
use crate::event::Effect;
use crate::request::{IdempotentReply, RequestError, ShardReply};
use crate::run::EntryChange;
use crate::run_message::{self, RunMessage};

/// Turns of one run before other runs get theirs.
const TURNS_PER_ROUND: usize = 8;
/// Runs that may continue as new in a row without consuming a message. A run that spins is parked.
const EMPTY_CONTINUATIONS_MAX: u32 = 16;

impl Shard {
    /// Runs the turns of runs that had no room in a batch before, as far as there is room now.
    pub(super) fn run_ready_turns(&mut self) {
        self.process_local_messages();
        let mut rounds = self.ready_runs.len();
        while rounds > 0 && self.commits.has_capacity() {
            rounds -= 1;
            let Some(id) = self.ready_runs.pop_front() else { return };
            if let Some(run) = self.slots.get_mut(&id).and_then(InstanceSlot::run_mut) {
                run.in_ready_queue = false;
            }
            self.process_instance(&id);
            self.process_local_messages();
        }
    }

    /// Runs turns until the run needs none, or others must come first.
    pub(super) fn run_turns(
        &mut self,
        id: &InstanceId,
        run: &mut ResidentRun,
    ) -> Result<(), CorruptInstance> {
        for _ in 0..TURNS_PER_ROUND {
            if !run.needs_turn() {
                return Ok(());
            }
            if !self.commits.has_capacity() {
                break;
            }
            self.run_turn(run)?;
        }
        if run.needs_turn() && !run.in_ready_queue {
            run.in_ready_queue = true;
            self.ready_runs.push_back(id.clone());
        }
        Ok(())
    }

    /// Runs one turn and applies its commands, all in one batch.
    fn run_turn(&mut self, run: &mut ResidentRun) -> Result<(), CorruptInstance> {
        let origin = run.instance.origin();
        let _span =
            tracing::debug_span!("turn", instance_id = %origin.instance_id, run = origin.run.0).entered();
        let now = self.now.wall;
        let limits = self.turn_limits(run);
        let inbox = run.messages.make_contiguous();
        let mut turn = advance(&run.plan, &mut run.instance, inbox, now, &limits)?;
        if turn.consumed > 0 || turn.changes.iter().any(removes_buffered) {
            run.empty_continuations = 0;
        }
        let mut next = self.take_next_run(&mut turn);
        let parts = next.as_mut().map(Instance::take_changes).transpose()?.unwrap_or_default();
        let events = serde_json::to_vec(&turn.history).unwrap_or_default();
        let size = self.turn_size(run, &turn, events.len(), &parts)?;
        self.commits.reserve(size.rows + self.fold_slice_rows(), size.bytes + FOLD_SLICE_BYTES);
        let touched = self.commits.rows_touched;
        let before = self.commits.open_batch_size();
        self.apply_first_turn_actions(run);
        let mut changes: Vec<EntryChange> = turn.changes.drain(..).map(part_change).collect();
        let finished_calls = self.consume_messages(run, &turn, &mut changes);
        for command in std::mem::take(&mut turn.commands) {
            self.apply_command(run, command, &mut changes);
        }
        for (command, completed) in finished_calls {
            let no_retry = turn.failed_calls.iter().find(|(failed, _)| *failed == command);
            self.settle_call(run, command, completed, no_retry.map(|(_, reason)| *reason));
        }
        self.write_continuation(run, turn.has_more_work);
        self.update_stuck_timer(run, &mut changes);
        self.write_pages(run, &turn.history, events, changes);
        self.update_status(run);
        if self.commits.rows_touched > touched {
            run.written_batch = self.commits.batch_number();
        }
        if let Some(next) = next {
            self.continue_as_new(run, next, parts);
        }
        let after = self.commits.open_batch_size();
        debug_assert!(
            after.0 <= before.0 + size.rows && after.1 <= before.1 + size.bytes,
            "{before:?} {after:?} {size:?}"
        );
        self.fold_parts(run);
        if run.empty_continuations > EMPTY_CONTINUATIONS_MAX {
            let reason = format!(
                "continued as new {EMPTY_CONTINUATIONS_MAX} times in a row without consuming a message"
            );
            return Err(CorruptInstance { reason });
        }
        Ok(())
    }

    /// Does what the source of each consumed message asks for. Returns the calls with a result, and whether each
    /// succeeded.
    fn consume_messages(
        &mut self,
        run: &mut ResidentRun,
        turn: &Turn,
        changes: &mut Vec<EntryChange>,
    ) -> Vec<(CommandId, bool)> {
        let held = std::mem::take(&mut run.held_calls);
        let mut finished_calls: Vec<(CommandId, bool)> =
            held.into_iter().map(|command| (command, false)).collect();
        for position in 0..turn.consumed {
            let (Some(message), Some(source)) = (run.messages.pop_front(), run.sources.pop_front()) else {
                break;
            };
            let refusal = turn.refusals.iter().find(|(at, _)| *at == position).map(|(_, refusal)| refusal);
            match source {
                MessageSource::Client(request_id, idempotency) => {
                    let reply = match refusal {
                        Some(refusal) => ShardReply::Refused(RequestError::Message(refusal.clone())),
                        None => self.complete_request(IdempotentReply::Accepted, idempotency),
                    };
                    if fault_injected!(self, EarlyReply) {
                        self.reply(request_id, reply);
                    } else {
                        self.commits.on_commit(OnCommit::Effect(Effect::Reply(request_id, reply)));
                    }
                }
                MessageSource::Call { command, .. } => {
                    finished_calls.push((command, matches!(message, Message::ActivityCompleted { .. })));
                }
                MessageSource::Timer(timer) => self.on_timer_consumed(run, &timer, changes),
                MessageSource::SessionEvent(sequence, session_event) => match refusal {
                    // The run ended first: the event is for the next run.
                    Some(MessageRefusal::RunEnded { .. }) => {
                        let id = run.instance.origin().instance_id.clone();
                        self.local_messages.push_back((
                            id,
                            WorkItem::RunMessage {
                                sequence,
                                message: RunMessage::SessionEvent(session_event),
                            },
                        ));
                    }
                    Some(refusal) => self.dead_letter_event(sequence, &session_event, &refusal.to_string()),
                    None => {
                        self.commits.delete(inbox::key(sequence));
                        self.commits.mark_urgent();
                    }
                },
                MessageSource::Inbox(sequence) => {
                    self.commits.delete(inbox::key(sequence));
                    self.commits.mark_urgent();
                    if let Message::ChildCompleted { command, .. } | Message::ChildFailed { command, .. } =
                        message
                        && let Some((_, change)) = run.bookkeeping.clear_child(command)
                    {
                        changes.push(change);
                    }
                }
            }
        }
        finished_calls
    }

    /// A turn that was cut short leaves a row in the inbox, so that recovery goes on with the run.
    pub(super) fn write_continuation(&mut self, run: &mut ResidentRun, unfinished: bool) {
        run.unfinished = unfinished;
        match (unfinished, run.continuation_row) {
            (true, None) => {
                let sequence = self.next_sequence();
                run.continuation_row = Some(sequence);
                let message = RunMessage::Continue { run_id: run.row.run_id };
                let row = inbox::InboxRow {
                    instance_id: run.instance.origin().instance_id.as_str().to_owned(),
                    received_at: self.now.wall,
                    message: run_message::encode(&message),
                };
                self.commits.create(inbox::key(sequence), encode(&row));
            }
            (false, Some(sequence)) => {
                self.commits.delete(inbox::key(sequence));
                run.continuation_row = None;
            }
            _ => {}
        }
    }

    /// Writes the status if the turn changed it: into the instance row and the public row, in the batch of the turn. A
    /// run that has ended leaves memory once that is durable.
    fn update_status(&mut self, run: &mut ResidentRun) {
        // A planted fault: the run completes while a call is open.
        let early =
            fault_injected!(self, EarlyCompletion) && run.calls.len() == 1 && run.last_page > PageNumber(2);
        let status = row_status(if early { Status::Completed } else { run.instance.status() });
        if status == run.row.status {
            return;
        }
        run.row.status = status;
        run.row.park_reason = None;
        if fault_injected!(self, InstanceRowNotWritten) && run.has_ended() {
            return;
        }
        self.write_instance_row(run);
        self.index_run(run);
        if run.has_ended() {
            self.commits.on_commit(OnCommit::Evict(run.instance.origin().instance_id.clone()));
        }
    }

    /// Writes the instance row with the time and the last page of now, without delay.
    pub(super) fn write_instance_row(&mut self, run: &mut ResidentRun) {
        run.row.last_page = run.last_page;
        run.row.updated_at = self.now.wall;
        let key = instances::key(run.instance.origin().instance_id.as_str());
        self.commits.put(key, encode(&run.row));
        self.commits.mark_urgent();
    }
}

/// Returns whether the change consumes something that the run had buffered: an event, or a held message.
fn removes_buffered(part: &PartChange) -> bool {
    part.value.is_none() && matches!(part.key, PartKey::BufferedEvent(..) | PartKey::HeldMessage(_))
}

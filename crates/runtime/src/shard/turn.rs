//! Runs one turn of a run and writes its rows, all in one unit of work: all of them become durable, or none.
//!
//! ```text
//!  messages ──> advance() ──> events, changed parts, commands
//!                                 │          │         └──> commands.rs: calls, timers, children, end
//!                                 └──────────┴──> history_pages.rs (one page), fold.rs (now and then)
//! ```
//!
//! Replies and attempts follow the commit of the same unit. The interpreter decides what a turn does; this
//! file only supplies its input and stores its result. A turn that no commit can hold, or that fails to run or panics,
//! parks its run.

pub(super) mod commands;
pub(super) mod continue_as_new;
mod reading;
pub(super) mod turn_limits;

use abide_ids::{PageNumber, Sequence, Timestamp};
use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::history::{Fact, HistoryEvent};
use abide_workflow::{
    CommandId, CorruptInstance, Instance, Limits, Message, MessageRefusal, PartChange, PartKey, Status, Turn,
    advance,
};

use crate::fault_check::fault_injected;
use crate::panics;
use crate::request::{IdempotentReply, RequestError, ShardReply};
use crate::run::EntryChange;
use crate::run::run_status::row_status;
use crate::run_message::RunMessage;
use crate::shard::calls::attempt_results;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::context::Context;
use crate::shard::instances::{index_runs, session_events, start, tree_orders};
use crate::shard::requests::idempotency;
use crate::shard::run::history_pages::part_change;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::run::{fold, history_pages, run_rows};
use crate::shard::timers;
use crate::shard::timers::stuck;
use crate::shard::unit_of_work::{Mark, Step, UnitOfWork};
use crate::shard::work_item::{MessageSource, WorkItem};

/// What is needed to undo a turn that no commit can hold: the run is then parked as it was before the turn.
#[derive(Debug)]
pub(super) struct TurnUndo {
    /// Where the turn begins in its unit. Before it are the actions of the run's start, which happen all the same.
    pub(super) mark: Mark,
    before: RunBefore,
    consumed: Vec<(Message, MessageSource)>,
    /// How many messages the turn left. The messages after these are its own: failures of calls that it could not send.
    messages_left: usize,
    /// The run that this turn ended, if it continued as new.
    ended: Option<Box<ResidentRun>>,
}

/// The fields that a turn may change and that a parked run needs. The others go with the run: a run whose turn was
/// dropped leaves memory, and is loaded again when it is resumed.
#[derive(Debug)]
struct RunBefore {
    status: RunStatus,
    folded_page: PageNumber,
    row_last_page: PageNumber,
    updated_at: Timestamp,
    park_reason: Option<String>,
    last_page: PageNumber,
    continuation_row: Option<Sequence>,
}

impl TurnUndo {
    /// Gives the run back what it needs to be parked: its messages, its row and its place in the store.
    pub(super) fn restore(self, run: &mut ResidentRun) {
        if let Some(ended) = self.ended {
            *run = *ended;
        }
        run.messages.truncate(self.messages_left);
        run.sources.truncate(self.messages_left);
        for (message, source) in self.consumed.into_iter().rev() {
            run.messages.push_front(message);
            run.sources.push_front(source);
        }
        let before = self.before;
        run.row.status = before.status;
        run.row.folded_page = before.folded_page;
        run.row.last_page = before.row_last_page;
        run.row.updated_at = before.updated_at;
        run.row.park_reason = before.park_reason;
        run.last_page = before.last_page;
        run.continuation_row = before.continuation_row;
    }
}

/// Runs one turn and applies its commands, all in one unit of work. The run in memory is ahead at once; the caller
/// merges the unit, or drops it and restores the run. An error is the reason to park the run; the unit is then empty,
/// and of the run only the interpreter state has changed.
pub(super) fn run_turn(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) -> Result<TurnUndo, String> {
    let origin = run.instance.origin();
    let _span = tracing::debug_span!("turn", instance_id = %origin.instance_id, run = origin.run.0).entered();
    let limits = turn_limits::limits_of(work.ctx, run);
    let mut turn = advance_run(work.ctx, run, &limits)?;
    if turn.consumed > 0 || turn.changes.iter().any(removes_buffered) {
        run.empty_continuations = 0;
    }
    let mut next = continue_as_new::take_next_run(work, &mut turn);
    let parts = next.as_mut().map(Instance::take_changes).transpose().map_err(reason_of)?.unwrap_or_default();
    let events = serde_json::to_vec(&turn.history).unwrap_or_default();
    start::apply_first_turn_actions(work, run);
    let mut undo = TurnUndo {
        mark: work.mark(),
        before: RunBefore {
            status: run.row.status,
            folded_page: run.row.folded_page,
            row_last_page: run.row.last_page,
            last_page: run.last_page,
            updated_at: run.row.updated_at,
            park_reason: run.row.park_reason.clone(),
            continuation_row: run.continuation_row,
        },
        consumed: run.messages.drain(..turn.consumed).zip(run.sources.drain(..turn.consumed)).collect(),
        messages_left: run.messages.len(),
        ended: None,
    };
    let mut changes: Vec<EntryChange> = turn.changes.drain(..).map(part_change).collect();
    let finished_calls = consume_messages(work, run, &undo.consumed, &turn, &mut changes);
    for command in std::mem::take(&mut turn.commands) {
        commands::apply_command(work, run, command, &mut changes);
    }
    if run.bookkeeping.tree_order.is_some() {
        tree_orders::order_remaining_children(work, run, &mut changes);
    }
    for (command, completed) in finished_calls {
        let no_retry = turn.failed_calls.iter().find(|(failed, _)| *failed == command);
        attempt_results::settle_call(work, run, command, completed, no_retry.map(|(_, reason)| *reason));
    }
    run_rows::write_continuation(work, run, turn.has_more_work);
    stuck::update_stuck_timer(work, run, &mut changes);
    history_pages::write_pages(work, run, &turn.history, events, changes);
    update_status(work, run);
    if let Some(next) = next {
        undo.ended = Some(Box::new(continue_as_new::continue_as_new(work, run, next, parts)));
    }
    fold::fold_parts(work, run);
    if work.row_count() > 0 {
        work.note_newest_rows();
    }
    Ok(undo)
}

/// Lets the interpreter move the run. A panic in it is an error of this run alone.
fn advance_run(ctx: &Context, run: &mut ResidentRun, limits: &Limits) -> Result<Turn, String> {
    #[cfg(feature = "faults")]
    crate::fault_injection::begin_turn(&ctx.config, &run.instance, run.messages.front());
    let inbox = run.messages.make_contiguous();
    let (plan, instance, now) = (&run.plan, &mut run.instance, ctx.now.wall);
    let advanced = panics::catch(|| {
        #[cfg(feature = "faults")]
        crate::fault_injection::begin_evaluation(&ctx.config, &instance.origin().instance_id);
        advance(plan, instance, inbox, now, limits)
    });
    match advanced {
        Ok(turn) => turn.map_err(reason_of),
        Err(message) => Err(format!("the turn panicked: {message}")),
    }
}

fn reason_of(corrupt: CorruptInstance) -> String {
    corrupt.reason
}

/// Does what the source of each consumed message asks for. Returns the calls to be settled after the commands, and
/// whether each succeeded: those with a result, and those whose failure the run held.
fn consume_messages(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    consumed: &[(Message, MessageSource)],
    turn: &Turn,
    changes: &mut Vec<EntryChange>,
) -> Vec<(CommandId, bool)> {
    let held = std::mem::take(&mut run.held_calls);
    let mut finished_calls: Vec<(CommandId, bool)> =
        held.into_iter().map(|command| (command, false)).collect();
    let mut rewinds = turn.history.iter();
    for (position, (message, source)) in consumed.iter().enumerate() {
        let refusal = turn.refusals.iter().find(|(at, _)| *at == position).map(|(_, refusal)| refusal);
        let ordered = matches!(message, Message::TerminateTree { .. })
            && tree_orders::note_order(run, message, refusal, changes);
        if refusal.is_none() && is_rewind(message) {
            changes.extend(run.bookkeeping.clear_tree_order());
        }
        match source {
            MessageSource::Client(request_id, idempotency) => {
                // Of a run that has ended, an order for its tree ends the children that are left.
                let refusal = refusal.filter(|_| !ordered);
                let reply = match refusal {
                    Some(refusal) => ShardReply::Refused(RequestError::Message(refusal.clone())),
                    None => {
                        idempotency::complete_request(work, reply_to(message, &mut rewinds), *idempotency)
                    }
                };
                if fault_injected!(work.ctx, EarlyReply) {
                    work.ctx.reply(*request_id, reply);
                } else {
                    work.reply_on_commit(*request_id, reply);
                }
            }
            MessageSource::Call { command, .. } => {
                if let Message::ActivityCompleted { result, .. } = message {
                    changes.extend(reading::note_events_read(run, *command, result, &turn.history));
                }
                finished_calls.push((*command, matches!(message, Message::ActivityCompleted { .. })));
            }
            MessageSource::Timer(timer) => {
                timers::on_timer_consumed(work, run, timer, changes);
                // Once for all timers of the turn: the note of the history names no timer.
                if !consumed
                    .iter()
                    .take(position)
                    .any(|(_, source)| matches!(source, MessageSource::Timer(_)))
                {
                    stuck::report_workflow_timeout(work, run, &turn.history);
                }
            }
            MessageSource::SessionEvent(sequence, session_event) => match refusal {
                // The run ended first: the event is for the next run.
                Some(MessageRefusal::RunEnded { .. }) => {
                    let id = run.instance.origin().instance_id.clone();
                    let message = RunMessage::SessionEvent(session_event.clone());
                    work.add(Step::QueueMessage(
                        id,
                        Box::new(WorkItem::RunMessage { sequence: *sequence, message }),
                    ));
                }
                Some(refusal) => {
                    session_events::dead_letter_event(work, *sequence, session_event, &refusal.to_string());
                }
                None => {
                    work.delete(inbox::key(*sequence));
                    work.mark_urgent();
                }
            },
            MessageSource::Inbox(sequence) => {
                work.delete(inbox::key(*sequence));
                work.mark_urgent();
                if let Message::ChildCompleted { command, .. } | Message::ChildFailed { command, .. } =
                    message
                    && let Some((_, change)) = run.bookkeeping.clear_child(*command)
                {
                    changes.push(change);
                }
            }
        }
    }
    finished_calls
}

/// The reply to a client's message that the run has accepted. `rewinds` has the history of the turn, from the last
/// rewind of it that was replied to.
fn reply_to<'h>(message: &Message, rewinds: &mut impl Iterator<Item = &'h HistoryEvent>) -> IdempotentReply {
    let steps = is_rewind(message).then(|| {
        rewinds.find_map(|event| match &event.fact {
            Fact::ExecutionRewound { steps, .. } => Some(steps.clone()),
            _ => None,
        })
    });
    match steps.flatten() {
        Some(steps) => IdempotentReply::Rewound(steps),
        None => IdempotentReply::Accepted,
    }
}

fn is_rewind(message: &Message) -> bool {
    matches!(message, Message::Rewind { .. } | Message::RewindWithNewKeys { .. })
}

/// Writes the status if the turn changed it: into the instance row and the public row, in the batch of the turn. A
/// run that has ended leaves memory once that is durable.
fn update_status(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    // A planted fault: the run completes while a call is open.
    let early =
        fault_injected!(work.ctx, EarlyCompletion) && run.calls.len() == 1 && run.last_page > PageNumber(2);
    let status = row_status(if early { Status::Completed } else { run.instance.status() });
    if status == run.row.status {
        return;
    }
    run.row.status = status;
    run.row.park_reason = None;
    run_rows::write_instance_row(work, run);
    index_runs::index_run(work, run);
    if run.has_ended() {
        work.on_commit(OnCommit::Evict(run.instance.origin().instance_id.clone()));
    }
}

/// Returns whether the change consumes something that the run had buffered: an event, or a held message.
fn removes_buffered(part: &PartChange) -> bool {
    part.value.is_none() && matches!(part.key, PartKey::BufferedEvent(..) | PartKey::HeldMessage(_))
}

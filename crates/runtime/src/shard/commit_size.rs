//! Computes an upper bound of the rows and bytes that a turn adds to a commit, before any of them is written.
//!
//! A batch cannot be rolled back, and a commit that is too large is refused as a whole, with all runs in it. So a turn
//! that would not fit is found here, and only its own run is parked. The limits on turns make that rare. The bound must
//! cover all rows of a turn: a row added in [`turn`](super::turn) or in a file it calls must be counted here too.

use std::borrow::Cow;
use std::collections::BTreeSet;

use abide_store::tables::calls::PastAttempt;
use abide_workflow::command::{Command, CommandKind};
use abide_workflow::{CommandId, CorruptInstance, Limits, Message, PartChange, Turn, TurnLimits, json};

use super::Shard;
use super::dead_letters::call_dead_letter_bytes;
use super::instance_slot::MessageSource;
use super::run_state::{OpenCall, ResidentRun};
use super::session_events::event_dead_letter_bytes;

/// Rows that a turn writes besides those of its messages, its commands and its pages: the instance row, the marker of
/// the public index, a stored reply and its expiry, the request it came from, the continuation row, the stuck timer,
/// the run it replaces, and the same of a next run.
const OTHER_ROWS: usize = 14;
/// Bytes of these rows without names, and of any one row without its payload.
const OTHER_BYTES: usize = 4 * 1024;
const ROW_BYTES: usize = 512;

/// A number of rows, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CommitSize {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Shard {
    /// The limits for this turn. A run whose failed calls have large inputs advances step by step: the row of each call
    /// is written again when the run decides about it, and only the row knows how large it is.
    pub(super) fn turn_limits(&self, run: &ResidentRun) -> Cow<'_, Limits> {
        let limits = &self.config.run_limits;
        let failed = run.messages.iter().take(limits.turn.messages_max).filter_map(failed_command);
        let rewritten: usize =
            failed.chain(run.held_calls.iter().copied()).map(|command| call_row_bytes(run, command)).sum();
        if rewritten <= self.config.store_limits.commit_bytes_max / 8 {
            return Cow::Borrowed(limits);
        }
        let turn = TurnLimits { messages_max: 1, steps_max: 1, ..limits.turn };
        Cow::Owned(Limits { turn, ..limits.clone() })
    }

    /// The most that a turn will write: its pages with `events` bytes of history, its commands, and the parts of a next
    /// run. An error if no commit can hold it.
    pub(super) fn turn_size(
        &self,
        run: &ResidentRun,
        turn: &Turn,
        events: usize,
        next: &[PartChange],
    ) -> Result<CommitSize, CorruptInstance> {
        let names = run_name_bytes(run);
        let settled: usize = settled_calls(run, turn).map(open_call_bytes).sum();
        let paged = events + settled + parts_bytes(&turn.changes) + parts_bytes(next);
        let commands: usize =
            turn.commands.iter().map(|command| command_bytes(command) + ROW_BYTES + 3 * names).sum();
        let rewritten: usize =
            rewritten_calls(run, turn).into_iter().map(|command| call_row_bytes(run, command)).sum();
        let refused = turn.refusals.iter().filter_map(|(position, _)| run.sources.get(*position));
        let refusals: usize = refused.map(refusal_bytes).sum();
        let failed = failed_calls(run, turn);
        let dead_letters: usize = failed.iter().map(|call| call_dead_letter_bytes(call) + 4 * names).sum();
        let small = turn.consumed * ROW_BYTES + OTHER_BYTES + 8 * names;
        let size = CommitSize {
            // Any two consecutive pages hold more than one full page, and each of three kinds may end with a small
            // page.
            rows: turn.consumed
                + turn.refusals.len()
                + turn.commands.len()
                + failed.len()
                + OTHER_ROWS
                + 4
                + 2 * paged / self.page_bytes_max(),
            bytes: paged + commands + rewritten + refusals + dead_letters + small,
        };
        if self.commits.fits_in_commit(size.rows, size.bytes) {
            return Ok(size);
        }
        let CommitSize { rows, bytes } = size;
        let reason = format!(
            "the turn needs {rows} rows and {bytes} bytes, more than one commit of this store can hold"
        );
        Err(CorruptInstance { reason })
    }

    /// The most bytes of one history page.
    pub(super) fn page_bytes_max(&self) -> usize {
        let value = self.config.store_limits.value_bytes_max;
        value - value / 64
    }
}

/// About how many bytes these parts take in a page.
pub(super) fn parts_bytes(changes: &[PartChange]) -> usize {
    changes
        .iter()
        .map(|change| change.key.to_bytes().len() + change.value.as_ref().map_or(0, Vec::len) + 16)
        .sum()
}

/// Bytes of the names that rows of a run repeat.
fn run_name_bytes(run: &ResidentRun) -> usize {
    let row = &run.row;
    let origin = run.instance.origin();
    let texts = [&row.definition_id, &row.version, &row.correlation_id];
    texts.into_iter().map(String::len).sum::<usize>()
        + origin.instance_id.as_str().len()
        + row.entity_id.as_ref().map_or(0, String::len)
        + row.parent.as_ref().map_or(0, |parent| parent.instance_id.len())
}

/// Bytes of a command's payload in the row it becomes.
fn command_bytes(command: &Command) -> usize {
    let size = |value: &json::Json| usize::try_from(json::size(value)).unwrap_or(usize::MAX);
    match &command.kind {
        CommandKind::StartActivity(start) => {
            let secrets: usize = start.secret_pointers.iter().map(|place| place.len() + 8).sum();
            size(&start.input) + start.activity.len() + start.step.path.len() + secrets
        }
        CommandKind::StartChild(child) => {
            size(&child.input) + child.workflow.len() + 4 * child.instance_id.as_str().len() + ROW_BYTES
        }
        CommandKind::Complete { output } => size(output),
        CommandKind::Fail { failure } => {
            failure.message.len() + failure.code.len() + failure.state.as_ref().map_or(0, String::len)
        }
        CommandKind::Terminate { reason } => reason.len(),
        // The id of the child, twice.
        CommandKind::TerminateChild { .. } => ROW_BYTES,
        _ => 0,
    }
}

/// Calls whose rows are written again with this turn.
fn rewritten_calls(run: &ResidentRun, turn: &Turn) -> BTreeSet<CommandId> {
    let failed = run.messages.iter().zip(&run.sources).take(turn.consumed);
    let failed = failed
        .filter(|(_, source)| matches!(source, MessageSource::Call { .. }))
        .filter_map(|(message, _)| failed_command(message));
    let again = turn.commands.iter().filter_map(|command| match &command.kind {
        CommandKind::RetryActivity { call, .. } => Some(*call),
        _ => None,
    });
    failed.chain(again).collect()
}

/// Calls that may be settled with this turn.
fn settled_calls<'r>(run: &'r ResidentRun, turn: &'r Turn) -> impl Iterator<Item = &'r OpenCall> {
    let answered = run.sources.iter().take(turn.consumed).filter_map(|source| match source {
        MessageSource::Call { command, .. } => Some(*command),
        _ => None,
    });
    let cancelled = turn.commands.iter().filter_map(|command| match command.kind {
        CommandKind::CancelActivity { call } => Some(call),
        _ => None,
    });
    let commands = answered.chain(cancelled).chain(run.held_calls.iter().copied());
    commands.filter_map(|command| run.calls.get(&command))
}

/// Calls that may fail permanently with this turn.
fn failed_calls<'r>(run: &'r ResidentRun, turn: &Turn) -> Vec<&'r OpenCall> {
    let failed = run.messages.iter().take(turn.consumed).filter_map(failed_command);
    failed.chain(run.held_calls.iter().copied()).filter_map(|command| run.calls.get(&command)).collect()
}

/// Bytes of a settled call in a page.
fn open_call_bytes(call: &OpenCall) -> usize {
    const FIXED: usize = 160;
    let row = &call.row;
    let texts = [row.target.as_deref(), row.failure_reason.as_deref(), row.failure_status.as_deref()];
    FIXED
        + row.activity.len()
        + row.step.len()
        + attempts_bytes(call)
        + texts.into_iter().flatten().map(str::len).sum::<usize>()
}

fn failed_command(message: &Message) -> Option<CommandId> {
    match message {
        Message::ActivityFailed { command, .. } | Message::ActivityDeferred { command, .. } => Some(*command),
        _ => None,
    }
}

/// Bytes that are written if a message from this source is refused.
fn refusal_bytes(source: &MessageSource) -> usize {
    match source {
        MessageSource::SessionEvent(_, session_event) => event_dead_letter_bytes(session_event),
        _ => 0,
    }
}

/// Bytes of a call's row, if the call is open.
fn call_row_bytes(run: &ResidentRun, command: CommandId) -> usize {
    let Some(call) = run.calls.get(&command) else { return 0 };
    let texts = call.row.activity.len() + call.row.step.len();
    call.input_bytes + texts + attempts_bytes(call) + ROW_BYTES + run_name_bytes(run)
}

/// Bytes of a call's past attempts, the one in flight included.
fn attempts_bytes(call: &OpenCall) -> usize {
    (call.row.past_attempts.len() + 1) * PastAttempt::BYTES_MAX
}

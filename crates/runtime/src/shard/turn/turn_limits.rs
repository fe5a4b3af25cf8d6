//! Chooses the limits of a turn: those of the configuration, or small ones for a run whose failed calls are large.
//!
//! The limits are an input of the interpreter, so they are chosen before the turn. Whether the turn fits into a commit
//! is checked afterwards, before its unit of work is merged.

use std::borrow::Cow;

use abide_store::tables::calls::PastAttempt;
use abide_workflow::{CommandId, Limits, Message, TurnLimits};

use crate::shard::context::Context;
use crate::shard::run::run_state::ResidentRun;

/// Bytes of a row without its payload.
const ROW_BYTES: usize = 512;

/// The limits for the next turn. A run whose failed calls have large inputs advances step by step: the row of each call
/// is written again when the run decides about it, and only the row knows how large it is.
pub(in crate::shard) fn limits_of<'c>(ctx: &'c Context, run: &ResidentRun) -> Cow<'c, Limits> {
    let limits = &ctx.config.run_limits;
    let failed = run.messages.iter().take(limits.turn.messages_max).filter_map(failed_command);
    let rewritten: usize =
        failed.chain(run.held_calls.iter().copied()).map(|command| call_row_bytes(run, command)).sum();
    if rewritten <= ctx.config.store_limits.commit_bytes_max / 8 {
        return Cow::Borrowed(limits);
    }
    let turn = TurnLimits { messages_max: 1, steps_max: 1, ..limits.turn };
    Cow::Owned(Limits { turn, ..limits.clone() })
}

fn failed_command(message: &Message) -> Option<CommandId> {
    message.call_failure().map(|(command, _)| command)
}

/// Bytes of a call's row, if the call is open.
fn call_row_bytes(run: &ResidentRun, command: CommandId) -> usize {
    let Some(call) = run.calls.get(&command) else { return 0 };
    let texts = call.activity.len() + call.step.len();
    let attempts = (call.past_attempts.len() + 1) * PastAttempt::BYTES_MAX;
    call.input_bytes + texts + attempts + ROW_BYTES + run_name_bytes(run)
}

/// Bytes of the names that rows of a run repeat.
fn run_name_bytes(run: &ResidentRun) -> usize {
    let row = &run.row;
    let origin = run.instance.origin();
    let texts = [&row.definition_id, &row.version, &row.correlation_id];
    texts.into_iter().map(String::len).sum::<usize>()
        + origin.instance_id.as_str().len()
        + row.entity_id.as_ref().map_or(0, String::len)
        + row.entity_type.as_ref().map_or(0, |entity_type| entity_type.len())
        + row.parent.as_ref().map_or(0, |parent| parent.instance_id.len())
}

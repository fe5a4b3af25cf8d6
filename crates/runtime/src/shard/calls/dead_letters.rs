//! Dead-letters calls that failed permanently: an operator event, and a row in the public table of dead letters. The
//! commit that settles the call has a marker with that row; the row itself is written afterwards.
//!
//! The run continues as its definition says. The row has only a digest of the input, because the input may contain data
//! that operators must not see.

use abide_dispatch::call_journal::{FailedFinal, FinalReason};
use abide_ids::Digest;
use abide_store::tables::dead_letters::{self, DeadLetterRow, DeadLetterStatus};
use serde_json::json;

use crate::event::{FailedCall, OperatorEvent};
use crate::run::transport_and_target;
use crate::shard::calls::open_call::OpenCall;
use crate::shard::public_index::changes::index_dead_letter;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;

/// The call that the turn is settling failed permanently: tells the operator, and adds a dead letter.
pub(in crate::shard) fn dead_letter_call(
    work: &mut UnitOfWork<'_>,
    run: &ResidentRun,
    call: &OpenCall,
    ended: &FailedFinal,
) {
    let instance_id = run.instance.origin().instance_id.clone();
    let activity = call.activity.clone();
    let failed = FailedCall {
        instance_id,
        activity,
        step: call.step.clone(),
        attempt: ended.record.attempt,
        terminal_reason: ended.reason.as_str(),
        failure: call.failure_reason.clone().unwrap_or_default(),
    };
    work.notify_on_commit(OperatorEvent::CallFailed(Box::new(failed)));
    if ended.reason != FinalReason::Cancelled {
        let number = work.ctx.next_sequence();
        index_dead_letter(work, number, &dead_letter_of(run, call, ended));
    }
}

/// The dead letter of a call. Its `engine` is the definition of the run.
fn dead_letter_of(run: &ResidentRun, call: &OpenCall, ended: &FailedFinal) -> DeadLetterRow {
    let origin = run.instance.origin();
    let key = call.idempotency_key.to_string();
    let (transport, target) = transport_and_target(call.target.as_deref());
    let attempts = call.journal.attempts_made();
    let message = json!({
        "executionId": origin.execution_id().to_string(),
        "step": call.step,
        "activity": call.activity,
        "idempotencyKey": key,
        "terminalReason": ended.reason.as_str(),
        "transport": transport,
        "target": target,
        "attempts": attempts,
        "outcomeUnknown": ended.record.may_have_run,
        "lastStatus": call.failure_status,
        "inputDigest": Digest::of(&serde_json::to_vec(&*call.input).unwrap_or_default()).to_string(),
    });
    DeadLetterRow {
        row_key: dead_letters::row_key(&key, call.journal.record().created_at),
        engine: run.row.definition_id.clone(),
        instance_id: origin.instance_id.as_str().to_owned(),
        original_queue: call.activity.clone(),
        original_message: message.to_string(),
        error_message: call.failure_reason.clone().unwrap_or_else(|| ended.reason.as_str().to_owned()),
        dequeue_count: attempts,
        first_failure_at: call.first_failure_at.unwrap_or(ended.settled_at),
        last_failure_at: ended.settled_at,
        status: DeadLetterStatus::Pending,
        resolution_notes: None,
        resolved_at: None,
        resolved_by: None,
        correlation_id: origin.correlation_id.clone(),
    }
}

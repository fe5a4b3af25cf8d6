//! Dead-letters calls that failed permanently: an operator event, and a row in the dead-letter queue, in the commit
//! that settles the call.
//!
//! The run continues as its definition says. The row has only a digest of the input, because the input may contain data
//! that operators must not see.

use abide_dispatch::call_journal::{FailedFinal, FinalReason};
use abide_ids::{Digest, IdempotencyKey};
use abide_store::tables::calls::CallRow;
use abide_store::tables::dead_letters::{self, DeadLetterRow, DeadLetterStatus};
use abide_workflow::json::Json;
use serde_json::json;

use super::run_state::ResidentRun;
use super::unit_of_work::Work;
use super::{call_record, public_index};
use crate::event::OperatorEvent;

/// A call failed permanently.
pub(super) fn dead_letter_call(
    work: &mut Work<'_>,
    run: &ResidentRun,
    key: &IdempotencyKey,
    row: &CallRow,
    input: &Json,
    ended: &FailedFinal,
) {
    let instance_id = run.instance.origin().instance_id.clone();
    let activity = row.activity.clone();
    let notice = OperatorEvent::CallFailed { instance_id, activity, attempt: ended.record.attempt };
    work.notify_on_commit(notice);
    if ended.reason != FinalReason::Cancelled {
        let number = work.ctx.next_sequence();
        public_index::index_dead_letter(work, number, &dead_letter_of(run, key, row, input, ended));
    }
}

/// The dead letter of a call. Its `engine` is the definition of the run.
fn dead_letter_of(
    run: &ResidentRun,
    key: &IdempotencyKey,
    row: &CallRow,
    input: &Json,
    ended: &FailedFinal,
) -> DeadLetterRow {
    let key = key.to_string();
    let (transport, target) = match row.target.as_deref().map(|target| target.split_once(' ')) {
        Some(Some((transport, target))) => (transport, Some(target)),
        _ => ("local", None),
    };
    let attempts = call_record::attempts_made(row);
    let message = json!({
        "executionId": format!("{}/{}", row.instance_id, row.run_number),
        "step": row.step,
        "activity": row.activity,
        "idempotencyKey": key,
        "terminalReason": ended.reason.as_str(),
        "transport": transport,
        "target": target,
        "attempts": attempts,
        "outcomeUnknown": ended.record.may_have_run,
        "lastStatus": row.failure_status,
        "inputDigest": Digest::of(&serde_json::to_vec(&**input).unwrap_or_default()).to_string(),
    });
    DeadLetterRow {
        row_key: dead_letters::row_key(&key, row.created_at),
        engine: run.row.definition_id.clone(),
        instance_id: row.instance_id.clone(),
        original_queue: row.activity.clone(),
        original_message: message.to_string(),
        error_message: row.failure_reason.clone().unwrap_or_else(|| ended.reason.as_str().to_owned()),
        dequeue_count: attempts,
        first_failure_at: row.first_failure_at.unwrap_or(ended.settled_at),
        last_failure_at: ended.settled_at,
        status: DeadLetterStatus::Pending,
        resolution_notes: None,
        resolved_at: None,
        resolved_by: None,
        correlation_id: row.correlation_id.clone(),
    }
}

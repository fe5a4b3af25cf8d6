//! Calls that failed for good: somebody is told, and the dead-letter queue has a row for each, in the commit that settles the call.
//!
//! The run goes on as its definition says. What the activity was given is not in the row, only its digest: it may hold what operators must
//! not see.

use abide_dispatch::identity::{self, IdempotencyKey};
use abide_dispatch::journal::{FailedFinal, FinalReason};
use abide_store::tables::dispatches::Dispatch;
use abide_store::tables::engine_dlq::{self, DeadLetter, DeadLetterStatus};
use abide_workflow::json::Json;
use serde_json::json;

use super::commits::After;
use super::slot::{OpenCall, Run};
use super::{Shard, journal};
use crate::event::{Effect, Notice};

/// Bytes of the row of a call, without the names of its run, each of which it has up to four times.
pub(super) fn letter_bytes(call: &OpenCall) -> usize {
    const FIXED: usize = 2 * 1024;
    let dispatch = &call.dispatch;
    let texts = [&dispatch.target, &dispatch.reason, &dispatch.status];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    // In JSON a character may take six times its bytes.
    FIXED + 6 * (dispatch.step.len() + dispatch.activity.len() + texts)
}

impl Shard {
    /// A call has failed for good.
    pub(super) fn give_up_call(
        &mut self,
        run: &Run,
        key: &[u8; 32],
        dispatch: &Dispatch,
        input: &Json,
        ended: &FailedFinal,
    ) {
        let instance_id = run.instance.origin().instance_id.clone();
        let activity = dispatch.activity.clone();
        let notice = Notice::CallFailed { instance_id, activity, attempt: ended.record.attempt };
        self.commits.then(After::Effect(Effect::Tell(notice)));
        if ended.reason != FinalReason::Cancelled {
            let number = self.next_sequence();
            self.feed_dead_letter(number, &letter(run, key, dispatch, input, ended));
        }
    }
}

/// Outside of an engine the definition stands for it.
fn letter(run: &Run, key: &[u8; 32], dispatch: &Dispatch, input: &Json, ended: &FailedFinal) -> DeadLetter {
    let key = IdempotencyKey(*key).to_string();
    let (transport, target) = match dispatch.target.as_deref().map(|target| target.split_once(' ')) {
        Some(Some((transport, target))) => (transport, Some(target)),
        _ => ("local", None),
    };
    let deliveries = journal::deliveries(dispatch);
    let message = json!({
        "executionId": format!("{}/{}", dispatch.instance_id, dispatch.run_number),
        "step": dispatch.step,
        "activity": dispatch.activity,
        "idempotencyKey": key,
        "terminalReason": ended.reason.as_str(),
        "transport": transport,
        "target": target,
        "attempts": deliveries,
        "outcomeUnknown": ended.record.may_have_run,
        "lastStatus": dispatch.status,
        "inputDigest": identity::digest(&serde_json::to_vec(&**input).unwrap_or_default()),
    });
    DeadLetter {
        row_key: engine_dlq::row_key(&key, dispatch.created_at),
        engine: run.row.definition.clone(),
        instance_id: dispatch.instance_id.clone(),
        original_queue: dispatch.activity.clone(),
        original_message: message.to_string(),
        error_message: dispatch.reason.clone().unwrap_or_else(|| ended.reason.as_str().to_owned()),
        dequeue_count: deliveries,
        first_failure_at: dispatch.first_failure_at.unwrap_or(ended.settled_at),
        last_failure_at: ended.settled_at,
        status: DeadLetterStatus::Pending,
        resolution_notes: None,
        resolved_at: None,
        resolved_by: None,
        correlation_id: dispatch.correlation_id.clone(),
    }
}

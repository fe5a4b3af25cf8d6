//! Plants faults where events enter the shard and effects leave it. Only in test builds.
//!
//! The components do not know of them. A fault that only makes sense inside a decision stands there instead, behind
//! `fault_injected!`.

use std::sync::Arc;

use abide_dispatch::{AttemptResult, CallAttempt, Metadata};
use abide_store::rows::{Batch, CommitOutcome, CommitReceipt, Row, RowWrite};
use abide_store::tables::calls::{self, CallInput, CallRow, CallRowState, NotBefore};
use abide_store::tables::instances::InstanceRow;
use abide_store::tables::{TableId, decode, encode};
use abide_workflow::{InstanceId, Timestamp};

use crate::event::{AttemptId, Effect, Event, ScanPurpose};
use crate::fault_injection::Fault;
use crate::request::{ShardReply, ShardRequest};
use crate::run::run_status::is_terminal;
use crate::shard::Shard;
use crate::shard::ownership::OwnershipPhase;

impl Shard {
    /// The event as a shard with the planted fault perceives it; none if it never learns of it.
    pub(in crate::shard) fn plant_in_event(&mut self, mut event: Event) -> Option<Event> {
        let Some(fault) = self.ctx.config.fault else { return Some(event) };
        match (fault, &mut event) {
            (Fault::PublicRowStale, Event::PublicIndexWritten(result)) => *result = Ok(()),
            (Fault::UnknownOutcomeAsSuccess, Event::CommitFinished(_, outcome))
                if matches!(outcome, CommitOutcome::Unknown { .. }) =>
            {
                let receipt = CommitReceipt { head_version: None, row_versions: Vec::new() };
                *outcome = CommitOutcome::Committed(receipt);
            }
            (Fault::PermanentFailureRetried, Event::AttemptFinished(_, AttemptResult::Failed(failure))) => {
                failure.retryable = true;
            }
            (
                Fault::OrphanedCallsLost,
                Event::Scanned(ScanPurpose::Calls | ScanPurpose::Reconciliation, Ok(scanned)),
            ) => scanned.page.rows.clear(),
            (Fault::StaleRecovery, Event::Scanned(ScanPurpose::Calls, Ok(scanned)))
                if matches!(self.ctx.phase, OwnershipPhase::Acquiring(..)) =>
            {
                let rows = scanned.page.rows.iter();
                self.ctx.effects.extend(rows.filter_map(|row| stale_attempt(row, self.ctx.now.wall)));
                return None;
            }
            (Fault::TerminateDropped, Event::RequestReceived(request_id, request))
                if terminates(request) && self.is_working() =>
            {
                self.ctx.reply(*request_id, ShardReply::Accepted);
                return None;
            }
            _ => {}
        }
        Some(event)
    }

    /// The effects as a shard with the planted fault would have them.
    pub(in crate::shard) fn plant_in_effects(&self, mut effects: Vec<Effect>) -> Vec<Effect> {
        let Some(fault) = self.ctx.config.fault else { return effects };
        for effect in &mut effects {
            match effect {
                Effect::Commit(_, batch) => {
                    // The shard keeps its own batch, for the case that it must be committed again.
                    let Batch { writes, .. } = Arc::make_mut(batch);
                    writes.retain_mut(|write| plant_in_write(fault, write));
                }
                Effect::StartAttempt(_, call) if fault == Fault::AttemptNotPersisted && call.probe_first => {
                    call.metadata.retry_attempt = call.metadata.retry_attempt.saturating_sub(1);
                }
                _ => {}
            }
        }
        let acquires = fault == Fault::StaleRecovery
            && matches!(self.ctx.phase, OwnershipPhase::Acquiring(..))
            && effects.iter().any(|effect| matches!(effect, Effect::Commit(..)));
        if acquires {
            effects.insert(0, Effect::Scan(ScanPurpose::Calls, calls::all()));
        }
        effects
    }
}

/// Changes a write of a commit. False if it is not written at all.
fn plant_in_write(fault: Fault, write: &mut RowWrite) -> bool {
    let table = TableId::of_key(&write.key);
    match (fault, table, &write.value) {
        (Fault::LostTimer, Some(TableId::Timer), Some(_))
        | (Fault::MessageDeletedEarly, Some(TableId::Inbox), Some(_))
        | (Fault::DuplicateMessage, Some(TableId::InboundWatermark), Some(_))
        | (Fault::EarlierRunLost, Some(TableId::EarlierRun), Some(_))
        | (Fault::EarlierRunKept, Some(TableId::EarlierRun), None) => return false,
        (Fault::InstanceRowNotWritten, Some(TableId::Instance), Some(value)) => {
            return !decode::<InstanceRow>(value).is_ok_and(|row| is_terminal(row.status));
        }
        (Fault::AttemptNotPersisted | Fault::WithdrawnAttemptLost, Some(TableId::Call), Some(value)) => {
            if let Ok(call) = decode::<CallRow<'_>>(value) {
                write.value = plant_in_call(fault, call);
            }
        }
        _ => {}
    }
    true
}

/// The row of a call as it is written; none if it is deleted.
fn plant_in_call(fault: Fault, mut call: CallRow<'_>) -> Option<Vec<u8>> {
    let withdrawn = call.state == CallRowState::FailedRetryable
        && call.last_attempt_unsent
        && call.not_before == Some(NotBefore::Anytime);
    if fault == Fault::WithdrawnAttemptLost && withdrawn {
        return None;
    }
    if fault == Fault::AttemptNotPersisted && call.state == CallRowState::Sent && call.may_have_run {
        call.attempt = call.attempt.saturating_sub(1);
    }
    Some(encode(&call))
}

fn terminates(request: &ShardRequest) -> bool {
    match request {
        ShardRequest::SendMessage { message, .. } => message.terminates(),
        ShardRequest::Idempotent(_, request) => terminates(request),
        _ => false,
    }
}

/// Another attempt of a stored call, under the number of the last one.
fn stale_attempt(row: &Row, now: Timestamp) -> Option<Effect> {
    let (run_id, key) = calls::read_key(&row.key).ok()?;
    let call: CallRow<'_> = decode(&row.value).ok()?;
    let instance_id = InstanceId::new(call.instance_id.as_ref()).ok()?;
    let input: serde_json::Value = match &call.input {
        CallInput::Inline(bytes) => serde_json::from_slice(bytes).ok()?,
        CallInput::Stored(_) => return None,
    };
    let metadata = Metadata {
        correlation_id: call.correlation_id.into_owned(),
        execution_id: format!("{}/{}", call.instance_id, call.run_number),
        idempotency_key: key.to_string(),
        retry_attempt: call.attempt,
        deadline: call.deadline_at,
        dispatched_at: now,
        parent_item_id: call.parent_item_key.map(|key| key.to_string()),
    };
    let attempt = CallAttempt {
        activity: call.activity.into_owned(),
        input: input.into(),
        metadata,
        attempt_timeout_ms: call.attempt_timeout_ms,
        probe_first: false,
        secret_pointers: call.secret_pointers.into_owned(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    };
    let id = AttemptId { instance_id, run_id, command: call.command, attempt: call.attempt };
    Some(Effect::StartAttempt(id, Box::new(attempt)))
}

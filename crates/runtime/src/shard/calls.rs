//! Starts calls: from the command of a turn to the effect that sends an attempt, or to the failure of a call that
//! cannot be sent.
//!
//! The row of a call is durable before an attempt is sent, and counts the attempt. The turn of the run decides whether
//! there is another one ([`retry`](super::retry)). The result of an attempt is processed in
//! [`attempt_results`](super::attempt_results).

use abide_dispatch::call_journal::{AttemptStart, CONSECUTIVE_UNANSWERED_MAX, FailedFinal, FinalReason};
use abide_dispatch::identity::{CallIdentity, FanOutStep, IdempotencyKey};
use abide_dispatch::{CallAttempt, Metadata};
use abide_ids::RunId;
use abide_store::tables::calls::{self, CallInput, CallRow, CallRowState, NotBefore};
use abide_store::tables::encode;
use abide_workflow::command::{StartActivity, StepIdentity};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Failure, Message, Timestamp};

use super::attempts_in_flight::InFlightAttempt;
#[cfg(feature = "faults")]
use super::context::Context;
use super::run_state::{OpenCall, ResidentRun};
use super::unit_of_work::{Step, Work};
use super::work_item::{MessageSource, QueuedMessage};
use super::{call_record, fault_injected};
use crate::config::ShardConfig;
use crate::event::{AttemptId, Effect};

/// Records a new call, and sends its first attempt once the record is durable.
pub(super) fn start_call(
    work: &mut Work<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    start: StartActivity,
) {
    // Only an owner runs turns.
    let Some(fencing_token) = work.ctx.fencing_token() else { return };
    let origin = run.instance.origin();
    let execution = origin.execution_id().to_string();
    let keyed_by =
        if fault_injected!(work.ctx, KeyWithoutRun) { origin.instance_id.as_str() } else { &execution };
    let (key, fanned_out) = work_keys(&origin.workflow, keyed_by, &start.step);
    // Outside any fan-out, the calls of a child belong to the parent's item that started it.
    let parent_item = fanned_out.or_else(|| run.row.parent_item_key.as_deref().copied());
    let timeout = start.attempt_timeout.unwrap_or(ShardConfig::ATTEMPT_TIMEOUT);
    let row = CallRow {
        instance_id: origin.instance_id.as_str().to_owned(),
        run_number: origin.run,
        correlation_id: origin.correlation_id.clone(),
        command,
        activity: start.activity,
        step: start.step.path,
        parent_item_key: parent_item,
        state: CallRowState::Pending,
        attempt: 0,
        unanswered_attempts: 0,
        fencing_token,
        created_at: work.ctx.now.wall,
        sent_at: work.ctx.now.wall,
        deadline_at: start.deadline,
        attempt_timeout_ms: timeout.0,
        not_before: None,
        failure_reason: None,
        secret_paths: start.secret_pointers,
        input: CallInput::Inline(Vec::new()),
        target: None,
        first_failure_at: None,
        failure_status: None,
        may_have_run: false,
        last_attempt_unsent: false,
        past_attempts: Vec::new(),
    };
    let call = OpenCall::new(key, row, start.input);
    run.calls.insert(command, call);
    send_attempt(work, run, command);
}

/// Records an attempt and sends it once the record is durable; or fails the call, if there can be no attempt. A
/// draining shard sends nothing new, and records that it did not.
pub(super) fn send_attempt(work: &mut Work<'_>, run: &mut ResidentRun, command: CommandId) {
    let Some(fencing_token) = work.ctx.fencing_token() else { return };
    let run_id = run.row.run_id;
    let attempt_start = |call: &OpenCall| AttemptStart {
        fencing_token,
        sent_at: work.ctx.now.wall,
        attempt_timeout_ms: call.row.attempt_timeout_ms,
    };
    let Some(call) = run.calls.get_mut(&command) else { return };
    if work.ctx.is_draining() {
        if call.row.state == CallRowState::FailedRetryable {
            call.row.not_before = Some(NotBefore::Anytime);
        }
        return write_call(work, run_id, call);
    }
    call.row.target = work.ctx.config.targets.target_of(&call.row.activity);
    if let Some(failure) = unresolved_secret(work, call) {
        if !call.recorded {
            write_call(work, run_id, call);
        }
        return fail_unsent(work, run, command, failure);
    }
    let sent = match call_record::state_of(&call.row).send(attempt_start(call)) {
        Ok(sent) => sent,
        Err(ended) => {
            if !call.recorded {
                write_call(work, run_id, call);
            }
            return fail_permanently(work, run, command, ended);
        }
    };
    let probe_first = sent.record.may_have_run;
    let attempt = call.row.attempt;
    call_record::record_sent(&mut call.row, &sent);
    if fault_injected!(work.ctx, AttemptNotPersisted) && probe_first {
        call.row.attempt = attempt;
    }
    write_call(work, run_id, call);
    if fault_injected!(work.ctx, AttemptLost) {
        return;
    }
    call.in_flight = true;
    call.has_result = false;
    call.is_held = false;
    call.final_failure = None;
    call.last_outcome = None;
    let Some((id, outgoing)) = outgoing_call(run_id, command, call, probe_first, work.ctx.now.wall) else {
        return;
    };
    let in_flight = InFlightAttempt::new(work.ctx.now.wall, call.row.attempt_timeout_ms);
    work.add(Step::StartAttempt(id, Box::new(outgoing), in_flight));
}

pub(super) fn write_call(work: &mut Work<'_>, run: RunId, call: &mut OpenCall) {
    let bytes = serde_json::to_vec(&*call.input).unwrap_or_default();
    call.input_bytes = bytes.len();
    call.row.input = CallInput::Inline(bytes);
    let row = encode(&call.row);
    call.row.input = CallInput::Inline(Vec::new());
    let key = calls::key(run, &call.idempotency_key);
    if call.recorded {
        work.put(key, row)
    } else {
        work.create(key, row)
    }
    call.recorded = true;
}

#[cfg(feature = "faults")]
pub(super) fn send_unrecorded(ctx: &mut Context, run: RunId, key: IdempotencyKey, row: CallRow) {
    let command = row.command;
    let input = match &row.input {
        CallInput::Inline(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
        CallInput::Stored(_) => serde_json::Value::Null,
    };
    let call = OpenCall::new(key, row, input.into());
    if let Some((id, call)) = outgoing_call(run, command, &call, false, ctx.now.wall) {
        ctx.effects.push(Effect::StartAttempt(id, Box::new(call)));
    }
}

/// There will be no other attempt: the run gets the permanent failure.
fn fail_permanently(work: &mut Work<'_>, run: &mut ResidentRun, command: CommandId, ended: FailedFinal) {
    let failure = match ended.reason {
        FinalReason::Poison => Failure::permanent(
            OpenCall::POISON,
            format!("{CONSECUTIVE_UNANSWERED_MAX} deliveries in a row were never answered"),
        ),
        _ => OpenCall::deadline_failure(),
    };
    if let Some(call) = run.calls.get_mut(&command) {
        call.final_failure = Some(ended);
    }
    fail_unsent(work, run, command, failure);
}

/// Fails a call without sending anything.
fn fail_unsent(work: &mut Work<'_>, run: &mut ResidentRun, command: CommandId, failure: Failure) {
    let Some(call) = run.calls.get_mut(&command) else { return };
    call.has_result = true;
    call.row.not_before = None;
    call.record_failure(&failure, None, work.ctx.now.wall);
    // The number of the attempt that is not made. The run has counted the earlier ones and would ignore their
    // numbers as outdated.
    let attempt = call_record::attempts_made(&call.row);
    let message = Message::ActivityFailed { command, attempt, failure };
    run.push_message(QueuedMessage {
        message,
        source: MessageSource::Call { command, status: None, outcome: None },
    });
}

/// The failure of a call whose input refers to a secret, if secrets are not resolved here. The activity must not
/// see the reference.
fn unresolved_secret(work: &Work<'_>, call: &OpenCall) -> Option<Failure> {
    let place = call.row.secret_paths.first().filter(|_| !work.ctx.config.resolves_secrets)?;
    let reference = call.input.pointer(place).and_then(|secret| secret.get("secretRef"));
    let reference = reference.and_then(serde_json::Value::as_str).unwrap_or_default();
    let message = format!(
        "the secret {reference:?} at {place} of the input cannot be resolved: this server has no secret source; the call was not sent"
    );
    Some(Failure::permanent(code::SECRET_UNAVAILABLE, message))
}

/// The idempotency key of a step, and the key of the item of this run that fanned out into it.
pub(super) fn work_keys(
    pipeline: &str,
    execution_id: &str,
    step: &StepIdentity,
) -> (IdempotencyKey, Option<IdempotencyKey>) {
    let lineage: Vec<FanOutStep> = step
        .fan_outs
        .iter()
        .map(|l| FanOutStep { visit: l.visit, redrive: l.redrive, index: l.index })
        .collect();
    let key_of = |step_path: &str, visit, redrive, lineage: &[FanOutStep]| {
        CallIdentity { pipeline, step: step_path, execution_id, visit, redrive, lineage }.idempotency_key()
    };
    let own = key_of(&step.path, step.visit, step.redrive, &lineage);
    // The item is the fan-out itself: the map or parallel, without the steps below it.
    let parent = step
        .fan_out_path
        .as_deref()
        .zip(lineage.split_last())
        .map(|(path, (last, outer))| key_of(path, last.visit, last.redrive, outer));
    (own, parent)
}

fn outgoing_call(
    run: RunId,
    command: CommandId,
    call: &OpenCall,
    probe_first: bool,
    now: Timestamp,
) -> Option<(AttemptId, CallAttempt)> {
    let row = &call.row;
    let instance_id = abide_workflow::InstanceId::new(row.instance_id.clone()).ok()?;
    let execution_id = format!("{}/{}", row.instance_id, row.run_number);
    let id = AttemptId { instance_id, run_id: run, command, attempt: row.attempt };
    let remaining_ms = row.deadline_at.map(|deadline| deadline.since(now).0);
    let metadata = Metadata {
        correlation_id: row.correlation_id.clone(),
        execution_id,
        idempotency_key: call.idempotency_key.to_string(),
        retry_attempt: row.attempt,
        deadline: row.deadline_at,
        dispatched_at: now,
        parent_item_id: row.parent_item_key.map(|key| key.to_string()),
    };
    let attempt_timeout_ms =
        remaining_ms.map_or(row.attempt_timeout_ms, |left| left.min(row.attempt_timeout_ms));
    let activity = row.activity.clone();
    let input = call.input.clone();
    let secrets = row.secret_paths.clone();
    let waited = std::time::Duration::ZERO;
    let call = CallAttempt {
        activity,
        input,
        metadata,
        attempt_timeout_ms,
        probe_first,
        secret_pointers: secrets,
        elapsed_since_dispatch: waited,
    };
    Some((id, call))
}

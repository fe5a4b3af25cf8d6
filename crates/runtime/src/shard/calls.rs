//! Starts calls: from the command of a turn to the effect that sends an attempt, or to the failure of a call that
//! cannot be sent.
//!
//! The row of a call is durable before an attempt is sent, and counts the attempt. The turn of the run decides whether
//! there is another one ([`retry`]). The result of an attempt is processed in
//! [`attempt_results`].

pub(super) mod attempt_results;
pub(super) mod attempts_in_flight;
pub(super) mod cancel;
pub(super) mod dead_letters;
pub(super) mod held_calls;
pub(super) mod hold;
pub(super) mod hold_report;
pub(super) mod open_call;
pub(super) mod reconciliation;
pub(super) mod retry;

use abide_dispatch::call_journal::{
    CONSECUTIVE_UNANSWERED_MAX, FailedFinal, FinalReason, JournalRecord, PendingCall, UnsettledCall,
};
use abide_dispatch::identity::{CallIdentity, FanOutStep, IdempotencyKey};
use abide_dispatch::{CallAttempt, Metadata};
use abide_ids::RunId;
use abide_store::tables::calls::{self, NotBefore};
use abide_store::tables::encode;
use abide_workflow::command::{StartActivity, StepIdentity};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Failure, Message, RunOrigin, Timestamp};

use crate::config::ShardConfig;
use crate::event::AttemptId;
use crate::fault_check::fault_injected;
use crate::run::held_back::hold_reason;
use crate::shard::calls::attempts_in_flight::InFlightAttempt;
use crate::shard::calls::open_call::OpenCall;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::{MessageSource, QueuedMessage};

/// Carries out the command of a turn that starts an activity: opens the call in the run, and sends its first attempt
/// once the record is durable.
pub(super) fn start_call(
    work: &mut UnitOfWork<'_>,
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
    let mut record = JournalRecord::new(work.ctx.now.wall, start.deadline, timeout.0, fencing_token);
    record.may_have_run = start.may_have_run;
    let journal = UnsettledCall::Pending(PendingCall::new(record));
    let mut call = OpenCall::new((command, key), (start.activity, start.step.path), journal, start.input);
    call.parent_item_key = parent_item;
    call.secret_pointers = start.secret_pointers;
    run.calls.insert(command, call);
    send_attempt(work, run, command);
}

/// Records an attempt and sends it once the record is durable; or fails the call, if there can be no attempt. First
/// attempts, retries and calls that are taken up all come here. A draining shard sends nothing new, and records that it
/// did not.
pub(super) fn send_attempt(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, command: CommandId) {
    let Some(fencing_token) = work.ctx.fencing_token() else { return };
    let Some(call) = run.calls.get_mut(&command) else { return };
    if work.ctx.is_draining() {
        // The row of a held call says already that nothing was sent.
        if call.hold.is_some() {
            return;
        }
        if let UnsettledCall::FailedRetryable(_) = call.journal {
            call.not_before = Some(NotBefore::Anytime);
        }
        return write_call(work, run, command);
    }
    call.target = work.ctx.config.targets.target_of(&call.activity);
    if let Some(failure) = unresolved_secret(work, call) {
        if !call.recorded {
            write_call(work, run, command);
        }
        return fail_unsent(work, run, command, failure);
    }
    if call.hold.is_some() {
        return try_held_call(work, run, command);
    }
    let sent = match call.journal.clone().send(fencing_token, work.ctx.now.wall) {
        Ok(sent) => sent,
        Err(ended) => {
            if !call.recorded {
                write_call(work, run, command);
            }
            return fail_permanently(work, run, command, ended);
        }
    };
    call.record_sent(sent);
    if fault_injected!(work.ctx, AttemptLost) {
        call.in_flight = false;
        return write_call(work, run, command);
    }
    write_call(work, run, command);
    let Some(call) = run.calls.get(&command) else { return };
    let record = call.journal.record();
    let (id, attempt) = attempt_of(run.row.run_id, run.instance.origin(), call, record, work.ctx.now.wall);
    let timeout_ms = record.attempt_timeout_ms;
    let in_flight = InFlightAttempt::new(work.ctx.now.wall, timeout_ms);
    work.add(Step::StartAttempt(id, Box::new(attempt), in_flight));
}

/// Tries to send a held call. The row still says that it was not sent, so no byte of the work leaves before the driver
/// has asked. Fails the call if its time is up.
fn try_held_call(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, command: CommandId) {
    let Some(fencing_token) = work.ctx.fencing_token() else { return };
    let now = work.ctx.now.wall;
    let Some(call) = run.calls.get_mut(&command) else { return };
    let Some(hold) = call.hold else { return };
    match call.journal.clone().send(fencing_token, now) {
        Ok(sent) => {
            call.in_flight = true;
            call.not_before = None;
            let origin = run.instance.origin();
            let (id, attempt) = attempt_of(run.row.run_id, origin, call, &sent.record, now);
            let in_flight = InFlightAttempt::new(now, sent.record.attempt_timeout_ms);
            work.add(Step::NoteHold(run.row.run_id, command, hold_reason(hold.reason)));
            work.add(Step::TryHeldCall(id, Box::new(attempt), in_flight));
        }
        Err(ended) => {
            work.add(Step::ForgetHold(run.row.run_id, command));
            fail_permanently(work, run, command, ended);
        }
    }
}

/// Writes the row of an open call, and notes the size of its input, by which the limits of turns are chosen.
pub(super) fn write_call(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, command: CommandId) {
    let Some(call) = run.calls.get_mut(&command) else { return };
    let input = serde_json::to_vec(&*call.input).unwrap_or_default();
    call.input_bytes = input.len();
    let row = encode(&call.to_row(run.instance.origin(), input));
    let key = calls::key(run.row.run_id, &call.idempotency_key);
    if std::mem::replace(&mut call.recorded, true) { work.put(key, row) } else { work.create(key, row) }
}

/// The journal allows no other attempt: the deadline has passed, or too many attempts in a row were never answered.
fn fail_permanently(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    ended: FailedFinal,
) {
    let failure = match ended.reason {
        FinalReason::Poison => Failure::permanent(
            OpenCall::POISON,
            format!("{CONSECUTIVE_UNANSWERED_MAX} deliveries in a row were never answered"),
        ),
        _ => {
            run.calls.get(&command).map_or_else(OpenCall::deadline_failure, OpenCall::missed_deadline_failure)
        }
    };
    if let Some(call) = run.calls.get_mut(&command) {
        call.final_failure = Some(ended);
    }
    fail_unsent(work, run, command, failure);
}

/// Fails a call without sending anything: queues the failure for the run. The turn that consumes it settles the call.
fn fail_unsent(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, command: CommandId, failure: Failure) {
    let Some(call) = run.calls.get_mut(&command) else { return };
    call.has_result = true;
    call.not_before = None;
    call.hold = None;
    call.record_failure(&failure, None, work.ctx.now.wall);
    // The number of the attempt that is not made. The run has counted the earlier ones and would ignore their
    // numbers as outdated.
    let attempt = call.journal.attempts_made();
    let mut message = Message::ActivityFailed { command, attempt, failure };
    call.note_unanswered(&mut message);
    run.push_message(QueuedMessage {
        message,
        source: MessageSource::Call { command, status: None, outcome: None },
    });
}

/// The failure of a call whose input refers to a secret, if no transport of this server resolves secrets. The activity
/// must not see the reference.
fn unresolved_secret(work: &UnitOfWork<'_>, call: &OpenCall) -> Option<Failure> {
    let place = call.secret_pointers.first().filter(|_| !work.ctx.config.resolves_secrets)?;
    let reference = call.input.pointer(place).and_then(|secret| secret.get("secretRef"));
    let reference = reference.and_then(serde_json::Value::as_str).unwrap_or_default();
    let message = format!(
        "the secret {reference:?} at {place} of the input cannot be resolved: this server has no secret source; the call was not sent"
    );
    Some(Failure::permanent(code::SECRET_UNAVAILABLE, message))
}

/// The idempotency key of a step, and the key of the innermost map or parallel around it, which all its items or
/// branches share; none outside of any.
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
    // The map or parallel itself, not one of its items: its last index is left out.
    let parent = step
        .fan_out_path
        .as_deref()
        .zip(lineage.split_last())
        .map(|(path, (last, outer))| key_of(path, last.visit, last.redrive, outer));
    (own, parent)
}

/// The attempt of a call as it is sent, and its id, by the record of that attempt.
fn attempt_of(
    run_id: RunId,
    origin: &RunOrigin,
    call: &OpenCall,
    record: &JournalRecord,
    now: Timestamp,
) -> (AttemptId, CallAttempt) {
    let instance_id = origin.instance_id.clone();
    let id = AttemptId { instance_id, run_id, command: call.command, attempt: record.attempt };
    let metadata = Metadata {
        correlation_id: origin.correlation_id.clone(),
        execution_id: origin.execution_id().to_string(),
        idempotency_key: call.idempotency_key.to_string(),
        retry_attempt: record.attempt,
        deadline: record.deadline_at,
        dispatched_at: now,
        parent_item_id: call.parent_item_key.map(|key| key.to_string()),
    };
    let remaining_ms = record.deadline_at.map(|deadline| deadline.since(now).0);
    let attempt = CallAttempt {
        activity: call.activity.clone(),
        input: call.input.clone(),
        metadata,
        attempt_timeout_ms: remaining_ms
            .map_or(record.attempt_timeout_ms, |left| left.min(record.attempt_timeout_ms)),
        probe_first: record.may_have_run,
        secret_pointers: call.secret_pointers.clone(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    };
    (id, attempt)
}

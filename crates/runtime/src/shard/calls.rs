//! Calls: from the command that asks for one to its deliveries, or to the end without any.
//!
//! The record of a call is durable before its delivery begins, and counts the delivery. Whether there is another is decided by the run's turn;
//! what comes of a delivery is `answers`' to note.

use abide_dispatch::identity::{FanOut, IdempotencyKey, WorkIdentity};
use abide_dispatch::journal::{FailedFinal, FinalReason, Open, Sending, UNANSWERED_MAX};
use abide_dispatch::{Call, Metadata};
use abide_store::tables::dispatches::{self, DeliveryEnd, Dispatch, DispatchInput, DispatchState};
use abide_store::tables::encode;
use abide_workflow::command::{StartActivity, StepIdentity};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Failure, Message, Timestamp};

use super::claim::Phase;
use super::commits::After;
use super::schedule::{DueKey, What};
use super::slot::{Envelope, From, OpenCall, Run};
use super::timers::Since;
use super::{Shard, journal, planted};
use crate::config::Config;
use crate::event::{CallId, Effect, Notice};

impl Shard {
    /// Deliveries under way from here.
    pub(super) fn calls_out(&self) -> usize {
        self.calling.len()
    }

    /// A new call: recorded and, once that is durable, delivered.
    pub(super) fn start_call(&mut self, run: &mut Run, command: CommandId, start: StartActivity) {
        let origin = run.instance.origin();
        let execution = origin.execution_id().to_string();
        let keyed_by = if planted!(self, KeyWithoutRun) { origin.instance_id.as_str() } else { &execution };
        let (key, fanned_out) = keys(&origin.workflow, keyed_by, &start.step);
        // Outside all fan-outs a child's calls belong to what started it.
        let parent_item = fanned_out.or_else(|| run.row.parent_item.as_deref().copied());
        let timeout = start.attempt_timeout.unwrap_or(Config::ATTEMPT_TIMEOUT);
        let dispatch = Dispatch {
            instance_id: origin.instance_id.as_str().to_owned(),
            run_number: origin.run.0,
            correlation_id: origin.correlation_id.clone(),
            command: command.0,
            activity: start.activity,
            step: start.step.path,
            parent_item,
            state: DispatchState::Pending,
            attempt: 0,
            unanswered: 0,
            fencing_token: self.fencing_token(),
            created_at: self.now.wall.0,
            sent_at: self.now.wall.0,
            deadline_at: start.deadline.map(|deadline| deadline.0),
            attempt_timeout_ms: timeout.0,
            not_before: None,
            reason: None,
            secrets: start.secrets,
            input: DispatchInput::Inline(Vec::new()),
            target: None,
            first_failure_at: None,
            status: None,
            may_have_run: false,
            unsent: false,
            past: Vec::new(),
        };
        let call = OpenCall::new(key, dispatch, start.input);
        run.calls.insert(command, call);
        self.send(run, command);
    }

    /// Records a delivery and makes it once the record is durable; or the call fails, if there can be none. What goes down sends nothing new: it
    /// records that it did not.
    fn send(&mut self, run: &mut Run, command: CommandId) {
        let number = run.row.run;
        let sending = |call: &OpenCall| Sending {
            fencing_token: self.fencing_token(),
            at: self.now.wall.0,
            attempt_timeout_ms: call.dispatch.attempt_timeout_ms,
        };
        let Some(call) = run.calls.get_mut(&command) else { return };
        if matches!(self.phase, Phase::Draining(_)) {
            if call.dispatch.state == DispatchState::FailedRetryable {
                call.dispatch.not_before = Some(Dispatch::AT_ONCE);
            }
            return self.write_call(number, call);
        }
        call.dispatch.target = self.config.targets.of(&call.dispatch.activity);
        if let Some(failure) = self.unresolved(call) {
            if !call.recorded {
                self.write_call(number, call);
            }
            return self.fail_call(run, command, failure);
        }
        let sent = match journal::open(&call.dispatch).send(sending(call)) {
            Ok(sent) => sent,
            Err(ended) => {
                if !call.recorded {
                    self.write_call(number, call);
                }
                return self.end_call(run, command, ended);
            }
        };
        let ask_first = sent.record.may_have_run;
        let attempt = call.dispatch.attempt;
        journal::note_sent(&mut call.dispatch, &sent);
        if planted!(self, AttemptNotPersisted) && ask_first {
            call.dispatch.attempt = attempt;
        }
        self.write_call(number, call);
        if planted!(self, DeliveryForgotten) {
            return;
        }
        call.out = true;
        call.answered = false;
        call.held = false;
        call.ended = None;
        call.came = None;
        let Some((id, outgoing)) = outgoing(number, command, call, ask_first, self.now.wall) else { return };
        self.calling.insert(id.clone(), Since::new(self.now.wall, call.dispatch.attempt_timeout_ms));
        self.commits.then(After::Effect(Effect::Call(id, Box::new(outgoing))));
    }

    pub(super) fn write_call(&mut self, run: u64, call: &mut OpenCall) {
        let bytes = serde_json::to_vec(&*call.input).unwrap_or_default();
        call.bytes = bytes.len();
        call.dispatch.input = DispatchInput::Inline(bytes);
        let row = encode(&call.dispatch);
        call.dispatch.input = DispatchInput::Inline(Vec::new());
        let key = dispatches::key(run, &call.key);
        if call.recorded {
            self.commits.put(key, row)
        } else {
            self.commits.create(key, row)
        }
        call.recorded = true;
    }

    /// The run wants another delivery.
    pub(super) fn redeliver(&mut self, run: &mut Run, command: CommandId, not_before: Timestamp) {
        let number = run.row.run;
        let Some(call) = run.calls.get_mut(&command) else { return };
        journal::note_ended(&mut call.dispatch, call.came, self.now.wall.0);
        call.out = false;
        call.answered = false;
        if not_before <= self.now.wall {
            return self.send(run, command);
        }
        call.dispatch.not_before = Some(not_before.0);
        self.write_call(number, call);
        let due = delivery_due(not_before.0, number, command);
        let id = run.instance.origin().instance_id.clone();
        self.commits.then(After::Due(due, id));
    }

    /// A delivery is due, or was under way when the last owner stopped, or nothing is known of it any more.
    pub(super) fn deliver_call(&mut self, run: &mut Run, command: CommandId) {
        let (number, token, now) = (run.row.run, self.fencing_token(), self.now.wall.0);
        let id = run.instance.origin().instance_id.clone();
        let Some(call) = run.calls.get_mut(&command) else { return };
        let attempt = call.dispatch.attempt;
        let called = CallId { instance_id: id.clone(), run: number, command, attempt };
        if call.out || call.answered || self.calling.contains_key(&called) {
            return;
        }
        // Answered; the run holds the answer and will decide.
        if run.instance.held_failure(command).is_some() {
            return;
        }
        match (journal::open(&call.dispatch), call.dispatch.not_before) {
            (Open::Pending(_), _) => {}
            (Open::FailedRetryable(_), Some(not_before)) if not_before > now => {
                return self.schedule.add(delivery_due(not_before, number, command), id);
            }
            (Open::FailedRetryable(_), _) => {}
            (Open::Sent(sent), _) if !sent.is_orphan(token, now) => return,
            // It may have been delivered, and nobody will ever tell.
            (Open::Sent(sent), _) => {
                journal::note_failed(&mut call.dispatch, sent.orphaned(), DeliveryEnd::Orphaned, now);
                self.effects.push(Effect::Tell(Notice::Redelivered));
            }
        }
        self.commits.make_room(2, call.bytes + 1024);
        self.send(run, command);
        run.written = self.commits.number();
    }

    #[cfg(feature = "faults")]
    pub(super) fn deliver_unrecorded(&mut self, run: u64, key: [u8; 32], dispatch: Dispatch) {
        let command = CommandId(dispatch.command);
        let input = match &dispatch.input {
            DispatchInput::Inline(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
            DispatchInput::Stored(_) => serde_json::Value::Null,
        };
        let call = OpenCall::new(key, dispatch, input.into());
        if let Some((id, call)) = outgoing(run, command, &call, false, self.now.wall) {
            self.effects.push(Effect::Call(id, Box::new(call)));
        }
    }

    /// There will be no other delivery: the run is told why.
    fn end_call(&mut self, run: &mut Run, command: CommandId, ended: FailedFinal) {
        let failure = match ended.reason {
            FinalReason::Poison => Failure::last(
                OpenCall::POISON,
                format!("{UNANSWERED_MAX} deliveries in a row were never answered"),
            ),
            _ => OpenCall::out_of_time(),
        };
        if let Some(call) = run.calls.get_mut(&command) {
            call.ended = Some(ended);
        }
        self.fail_call(run, command, failure);
    }

    /// Nothing was sent, and nothing will be.
    fn fail_call(&mut self, run: &mut Run, command: CommandId, failure: Failure) {
        let Some(call) = run.calls.get_mut(&command) else { return };
        call.answered = true;
        call.dispatch.not_before = None;
        call.note_failure(&failure, None, self.now.wall);
        // The number of the delivery there is not: the run has counted those before it, and would take theirs for an old story.
        let attempt = journal::deliveries(&call.dispatch);
        let message = Message::ActivityFailed { command, attempt, failure };
        run.push(Envelope { message, from: From::Call { command, status: None, came: None } });
    }

    /// Why a call cannot be made as it is: a reference to a secret is not for whoever is called.
    fn unresolved(&self, call: &OpenCall) -> Option<Failure> {
        let place = call.dispatch.secrets.first().filter(|_| !self.config.resolves_secrets)?;
        let reference = call.input.pointer(place).and_then(|secret| secret.get("secretRef"));
        let reference = reference.and_then(serde_json::Value::as_str).unwrap_or_default();
        let message =
            format!("there is no source for the secret {reference:?} at {place}; the call was not sent");
        Some(Failure::last(code::SECRET_UNAVAILABLE, message))
    }

    /// Nobody waits for the call any more.
    pub(super) fn cancel_call(&mut self, run: &mut Run, command: CommandId) {
        let Some(call) = run.calls.remove(&command) else { return };
        self.commits.delete(dispatches::key(run.row.run, &call.key));
        // Also one that was begun before the run was loaded again.
        let instance_id = run.instance.origin().instance_id.clone();
        let id = CallId { instance_id, run: run.row.run, command, attempt: call.dispatch.attempt };
        if self.calling.remove(&id).is_some() {
            self.commits.then(After::Effect(Effect::CancelCall(id)));
        }
        let ended = journal::open(&call.dispatch).cancel(self.now.wall.0);
        run.settled.push(journal::failed(call.key, call.dispatch, None, &ended));
    }
}

fn delivery_due(at: i64, run: u64, command: CommandId) -> DueKey {
    DueKey { at, run, what: What::Delivery, number: command.0 }
}

/// The key of the work, and of the item of this run that fanned out into it.
pub(super) fn keys(pipeline: &str, execution_id: &str, step: &StepIdentity) -> ([u8; 32], Option<[u8; 32]>) {
    let lineage: Vec<FanOut> =
        step.lineage.iter().map(|l| FanOut { visit: l.visit, redrive: l.redrive, index: l.index }).collect();
    let of = |step_path: &str, visit, redrive, lineage: &[FanOut]| {
        IdempotencyKey::of(&WorkIdentity { pipeline, step: step_path, execution_id, visit, redrive, lineage })
            .0
    };
    let own = of(&step.path, step.visit, step.redrive, &lineage);
    // The item is the fan-out itself, as a piece of work: the map or parallel, without what is below it.
    let parent = step
        .fanned_out_by
        .as_deref()
        .zip(lineage.split_last())
        .map(|(path, (last, outer))| of(path, last.visit, last.redrive, outer));
    (own, parent)
}

fn outgoing(
    run: u64,
    command: CommandId,
    call: &OpenCall,
    ask_first: bool,
    now: Timestamp,
) -> Option<(CallId, Call)> {
    let dispatch = &call.dispatch;
    let instance_id = abide_workflow::InstanceId::new(dispatch.instance_id.clone()).ok()?;
    let execution_id = format!("{}/{}", dispatch.instance_id, dispatch.run_number);
    let id = CallId { instance_id, run, command, attempt: dispatch.attempt };
    let left =
        dispatch.deadline_at.map(|deadline| u64::try_from(deadline.saturating_sub(now.0)).unwrap_or(0));
    let metadata = Metadata {
        correlation_id: dispatch.correlation_id.clone(),
        execution_id,
        idempotency_key: IdempotencyKey(call.key).to_string(),
        retry_attempt: dispatch.attempt,
        deadline_epoch_ms: dispatch.deadline_at,
        dispatched_at_epoch_ms: now.0,
        parent_item_id: dispatch.parent_item.map(|key| IdempotencyKey(key).to_string()),
    };
    let attempt_timeout_ms =
        left.map_or(dispatch.attempt_timeout_ms, |left| left.min(dispatch.attempt_timeout_ms));
    let (activity, input) = (dispatch.activity.clone(), call.input.clone());
    let secrets = dispatch.secrets.clone();
    let waited = std::time::Duration::ZERO;
    let call = Call { activity, input, metadata, attempt_timeout_ms, ask_first, secrets, waited };
    Some((id, call))
}

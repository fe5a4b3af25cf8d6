//! Answers: from what came of a delivery to the commit that settles its call.
//!
//! What is known is noted on the record; whether there is another delivery is decided by the run's turn. Makes no delivery.

use abide_dispatch::Answer;
use abide_dispatch::journal::{Open, Verdict};
use abide_dispatch::status::RETRY_AFTER_MS_MAX;
use abide_dispatch::transport::DEADLINE_EXCEEDED;
use abide_store::tables::dispatches::{self, DeliveryEnd, Dispatch, DispatchState};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Duration, Failure, GivenUp, Message};

use super::slot::{Came, Envelope, From, Item, OpenCall, Run};
use super::{Shard, journal, planted};
use crate::event::CallId;

impl Shard {
    /// An activity answered, or its delivery failed.
    pub(super) fn on_answered(&mut self, call: CallId, answer: Answer) {
        self.calling.remove(&call);
        let CallId { instance_id, run, command, attempt } = call;
        let (message, status, came) = match answer {
            Answer::Completed(result) => (Message::ActivityCompleted { command, result }, None, Came::Answer),
            Answer::Failed(failure) => {
                let came = Came::of(&failure);
                let retryable = failure.retryable || planted!(self, FinalRetried);
                let told = Failure { code: failure.code, message: failure.message, state: None, retryable };
                let wait = failure.retry_after_ms.filter(|_| retryable).map(|ms| ms.min(RETRY_AFTER_MS_MAX));
                (self.failed(command, attempt, told, wait, came), failure.status, came)
            }
        };
        let envelope = Envelope { message, from: From::Call { command, status, came: Some(came) } };
        self.offer(&instance_id, Item::Message { run, envelope });
    }

    /// A delivery will not be made after all. That is nobody's failure, so the run is not told: the next owner delivers it under the same number.
    pub(super) fn on_withdrawn(&mut self, call: CallId) {
        self.calling.remove(&call);
        let CallId { instance_id, run, command, attempt } = call;
        self.offer(&instance_id, Item::Withdrawn { run, command, attempt });
    }

    pub(super) fn take_back(&mut self, run: &mut Run, command: CommandId, attempt: u32) {
        let number = run.row.run;
        let Some(call) = run.calls.get_mut(&command) else { return };
        let Open::Sent(sent) = journal::open(&call.dispatch) else { return };
        if call.answered || sent.record.attempt != attempt {
            return;
        }
        call.out = false;
        journal::note_failed(&mut call.dispatch, sent.withdrawn(), DeliveryEnd::NotSent, self.now.wall.0);
        call.dispatch.not_before = Some(Dispatch::AT_ONCE);
        if planted!(self, WithdrawnForgotten) {
            return self.commits.delete(dispatches::key(number, &call.key));
        }
        self.commits.make_room(2, call.bytes + 1024);
        self.write_call(number, call);
        self.commits.hurry();
        run.written = self.commits.number();
    }

    /// What a run is told of a failure. A wait that was asked for begins now, however long the run takes to hear of it.
    fn failed(
        &self,
        command: CommandId,
        attempt: u32,
        failure: Failure,
        wait_ms: Option<u64>,
        came: Came,
    ) -> Message {
        let sent = came != Came::Back;
        if sent && wait_ms.is_none() {
            return Message::ActivityFailed { command, attempt, failure };
        }
        let not_before = self.now.wall.plus(Duration(wait_ms.unwrap_or(0)));
        Message::ActivityDeferred { command, attempt, failure, not_before, sent }
    }

    /// An answer reaches its run. A delivery that ran into the step's deadline is the end of the step, not of one delivery.
    pub(super) fn note_answer(&mut self, run: &mut Run, envelope: &mut Envelope) {
        let From::Call { command, status, came } = &mut envelope.from else { return };
        let Some(call) = run.calls.get_mut(command) else { return };
        if let Some(came) = *came {
            journal::note_came(&mut call.dispatch, came);
            call.came = Some(came);
        }
        call.out = false;
        call.answered = true;
        if let Message::ActivityFailed { failure, .. } | Message::ActivityDeferred { failure, .. } =
            &mut envelope.message
        {
            let now = self.now.wall.0;
            let passed = call.dispatch.deadline_at.is_some_and(|deadline| deadline <= now);
            let ran_out = match failure.code.as_str() {
                code::ATTEMPT_TIMEOUT => passed,
                // What was not sent for this was held against a clock that does not jump, as this one may.
                DEADLINE_EXCEEDED => passed || *came == Some(Came::Back),
                _ => false,
            };
            if ran_out {
                *failure = OpenCall::out_of_time();
                journal::note_ended(&mut call.dispatch, call.came, now);
                call.ended = Some(journal::open(&call.dispatch).expire(now));
            }
            call.note_failure(failure, status.take(), self.now.wall);
        }
    }

    /// After the turn that took an answer: the call is settled unless the run asked for another delivery, or keeps the answer for later.
    pub(super) fn settle_call(
        &mut self,
        run: &mut Run,
        command: CommandId,
        completed: bool,
        given_up: Option<GivenUp>,
    ) {
        let held = !completed && run.instance.expects(command);
        let number = run.row.run;
        let Some(call) = run.calls.get_mut(&command) else { return };
        if call.out || call.dispatch.not_before.is_some() {
            return;
        }
        if held {
            run.held.push(command);
            // What was never sent stays so, and whoever finds it asks the run.
            if !std::mem::replace(&mut call.held, true) && call.dispatch.state != DispatchState::Pending {
                journal::note_ended(&mut call.dispatch, call.came, self.now.wall.0);
                self.write_call(number, call);
            }
            return;
        }
        let Some(mut call) = run.calls.remove(&command) else { return };
        self.commits.delete(dispatches::key(number, &call.key));
        let now = self.now.wall.0;
        if completed {
            return run.settled.push(journal::acked(call.key, call.dispatch, now));
        }
        let ended = match (call.ended, given_up) {
            (Some(ended), _) => ended,
            (None, Some(GivenUp::NoTime)) => {
                journal::note_ended(&mut call.dispatch, call.came, now);
                journal::open(&call.dispatch).expire(now)
            }
            (None, Some(GivenUp::Exhausted)) => {
                journal::open(&call.dispatch).fail_final(Verdict::RetryExhausted, now)
            }
            (None, Some(GivenUp::Final) | None) => {
                journal::open(&call.dispatch).fail_final(Verdict::NonRetryable, now)
            }
        };
        self.give_up_call(run, &call.key, &call.dispatch, &call.input, &ended);
        run.settled.push(journal::failed(call.key, call.dispatch, call.came, &ended));
    }
}

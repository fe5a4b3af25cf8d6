//! Answers: from what came of a delivery to the commit that settles its call.
//!
//! What is known is noted on the record; whether there is another delivery is decided by the run's turn. Makes no delivery.

use abide_dispatch::Answer;
use abide_dispatch::journal::FinalReason;
use abide_dispatch::status::RETRY_AFTER_MS_MAX;
use abide_dispatch::transport::DEADLINE_EXCEEDED;
use abide_store::tables::dispatches::{self, DispatchState};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Duration, Failure, Message};

use super::slot::{Came, Envelope, From, Item, Run};
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
        }
        call.out = false;
        call.answered = true;
        if let Message::ActivityFailed { failure, .. } | Message::ActivityDeferred { failure, .. } =
            &mut envelope.message
        {
            if matches!(failure.code.as_str(), code::ATTEMPT_TIMEOUT | DEADLINE_EXCEEDED)
                && call.dispatch.deadline_at.is_some_and(|deadline| deadline <= self.now.wall.0)
            {
                *failure = Failure::last(code::TIMEOUT, "the step's deadline has passed");
                if *came == Some(Came::Back) {
                    let open = journal::open(&call.dispatch);
                    call.ended = Some(open.fail_final(FinalReason::DeadlineExpired, self.now.wall.0));
                }
            }
            call.note_failure(failure, status.take(), self.now.wall);
        }
    }

    /// After the turn that took an answer: the call is settled unless the run asked for another delivery, or keeps the answer for later.
    pub(super) fn settle_call(&mut self, run: &mut Run, command: CommandId, completed: bool) {
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
                journal::note_ended(&mut call.dispatch);
                self.write_call(number, call);
            }
            return;
        }
        let Some(call) = run.calls.remove(&command) else { return };
        self.commits.delete(dispatches::key(number, &call.key));
        let now = self.now.wall.0;
        if completed {
            return run.settled.push(journal::acked(call.key, call.dispatch, now));
        }
        let reason = if call.retryable { FinalReason::RetryExhausted } else { FinalReason::NonRetryable };
        let ended = call.ended.unwrap_or_else(|| journal::open(&call.dispatch).fail_final(reason, now));
        self.give_up_call(run, &call.key, &call.dispatch, &call.input, &ended);
        run.settled.push(journal::failed(call.key, call.dispatch, &ended));
    }
}

//! The workflow's own timeout: record where everything is, tell the channel, let a recovery state try, undo, fail.

use std::sync::Arc;

use crate::definition::EscalationPolicy;
use crate::failure::{Failure, code};
use crate::history::Note;
use crate::ids::{BlockId, BranchId};
use crate::instance::{Corrupt, Escalation, Phase, SlotName, Then};

use super::pass::Pass;
use super::task::{Dispatch, secrets_of};

/// States named in the note of a workflow timeout.
const STATES_TOLD_MAX: usize = 20;

impl Pass<'_> {
    pub(super) fn start_workflow_timer(&mut self) {
        if let Some(timeout) = self.plan.definition().configuration.timeout {
            let timer = self.start_timer(None, self.now.plus(timeout));
            self.instance.header_mut().timer = Some(timer);
        }
    }

    pub(super) fn on_workflow_timer(&mut self) -> Result<(), Corrupt> {
        let failure = self.workflow_timeout();
        let root = BranchId::ROOT;
        let states = self.instance.current_states(self.plan);
        self.instance.header_mut().timer = None;
        // A run that is undoing its work is on its way to an end; cutting that short would leave things half undone. It is
        // looked at again later, so that a run which then goes on cannot hang for ever.
        if matches!(self.instance.branch(root)?.phase, Phase::Undoing(_)) {
            let escalation = self.plan.definition().configuration.escalation.as_ref();
            let later =
                escalation.map_or(EscalationPolicy::RECOVER_WITHIN, |escalation| escalation.recover_within);
            let timer = self.start_timer(None, self.now.plus(later));
            self.instance.header_mut().timer = Some(timer);
            return Ok(());
        }
        let header = self.instance.header_mut();
        // It is the workflow that failed, not a state of it: there is nothing to rewind to.
        header.failed_at = None;
        if header.escalation == Some(Escalation::Recovering) {
            let message = "recovery did not end in time";
            self.note(Note::RecoveryFailed { error: Failure::last(code::TIMEOUT, message) });
            self.instance.header_mut().escalation = Some(Escalation::Compensating);
            self.cancel_work(root)?;
            return self.collapse(root, Then::Compensate(failure));
        }
        let timeout = self.plan.definition().configuration.timeout.unwrap_or_default();
        // A wide fan-out is told by its first branches.
        let states = states.into_iter().take(STATES_TOLD_MAX).map(|state| state.state).collect();
        self.note(Note::WorkflowTimedOut { timeout, states });
        self.instance.header_mut().escalation = Some(Escalation::Notifying);
        let error = Arc::new(failure.to_json());
        let fits = self.instance.put_slot(root, SlotName::Error, error, u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        self.cancel_work(root)?;
        self.collapse(root, Then::Escalate)
    }

    pub(super) fn workflow_timeout(&self) -> Failure {
        let timeout = self.plan.definition().configuration.timeout.unwrap_or_default();
        let state = self.place(BranchId::ROOT).ok().map(|(_, state)| state.name.clone());
        Failure {
            state,
            ..Failure::last(code::TIMEOUT, format!("the workflow was not done within {timeout}"))
        }
    }

    pub(super) fn notify_activity(&self) -> &str {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        escalation.and_then(|escalation| escalation.notify.as_ref()).map_or("", |call| &call.activity)
    }

    /// Everything else has stopped: tell the channel.
    pub(super) fn notify_channel(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        let Some(call) = escalation.and_then(|escalation| escalation.notify.as_ref()) else {
            return self.notified(branch);
        };
        let (input, _) = match &call.input {
            Some(template) => template.render_lenient(&self.scope(branch), self.limits.payload_bytes_max),
            None => (serde_json::Value::Null, None),
        };
        if let Err(failure) = self.admit(&input) {
            return self.notify_failed(branch, failure);
        }
        let attempt_timeout = self.plan.attempt_timeout(None, &call.activity);
        let timeout = self.plan.definition().configuration.default_timeout;
        let delivery = self.dispatch(
            branch,
            Dispatch {
                activity: &call.activity,
                input: Arc::new(input),
                secrets: secrets_of(call.input.as_ref()),
                below: "/escalation".to_owned(),
                timeout,
                attempt_timeout,
            },
        )?;
        self.rest(branch);
        self.set_phase(branch, Phase::Notifying(delivery))
    }

    /// Failing to notify is recorded and stops nothing.
    pub(super) fn notify_failed(&mut self, branch: BranchId, error: Failure) -> Result<(), Corrupt> {
        self.note(Note::EscalationNotifyFailed { error });
        self.notified(branch)
    }

    /// The channel knows: recover if there is a way, else undo and fail.
    pub(super) fn notified(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        let recovery =
            escalation.and_then(|escalation| Some((escalation.recover.as_ref()?, escalation.recover_within)));
        // What has been undone cannot be recovered.
        let Some((state, within)) = recovery.filter(|_| !self.instance.header().compensated) else {
            self.instance.header_mut().escalation = Some(Escalation::Compensating);
            let failure = self.caught_error(branch).unwrap_or_else(|| self.workflow_timeout());
            return self.compensate_then_fail(branch, failure);
        };
        self.instance.header_mut().escalation = Some(Escalation::Recovering);
        let timer = self.start_timer(None, self.now.plus(within));
        self.instance.header_mut().timer = Some(timer);
        self.note(Note::RecoveryStarted { state: state.clone() });
        let target = self.plan.target(BlockId::TOP, state)?;
        self.move_to(branch, target)
    }
}

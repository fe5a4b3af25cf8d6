//! Escalation after the workflow's own timeout: record the current states, notify the channel, try the recovery state,
//! compensate, fail. Timeouts of single states are not its concern.

use std::sync::Arc;

use crate::definition::EscalationPolicy;
use crate::failure::{Failure, code};
use crate::history::Note;
use crate::ids::{BlockId, BranchId};
use crate::instance::{AfterCollapse, CorruptInstance, EscalationStage, Phase, SlotName};

use super::interpreter::Interpreter;
use super::task::{NewCall, secret_pointers};

/// Number of states listed in the history note of a workflow timeout.
const STATES_REPORTED_MAX: usize = 20;

impl Interpreter<'_> {
    pub(super) fn start_workflow_timer(&mut self) {
        if let Some(timeout) = self.plan.definition().configuration.timeout {
            let timer = self.start_timer(None, self.now.plus(timeout));
            self.instance.header_mut().workflow_timer = Some(timer);
        }
    }

    pub(super) fn on_workflow_timer(&mut self) -> Result<(), CorruptInstance> {
        let failure = self.workflow_timeout_failure();
        let root = BranchId::ROOT;
        let states = self.instance.current_states(self.plan);
        self.instance.header_mut().workflow_timer = None;
        // A run that is compensating is about to end, and interrupting it would leave work half compensated. The timer
        // is set again, so that a run which continues afterwards cannot hang forever.
        if matches!(self.instance.branch(root)?.phase, Phase::Compensating(_)) {
            let escalation = self.plan.definition().configuration.escalation.as_ref();
            let later =
                escalation.map_or(EscalationPolicy::RECOVER_WITHIN, |escalation| escalation.recover_within);
            let timer = self.start_timer(None, self.now.plus(later));
            self.instance.header_mut().workflow_timer = Some(timer);
            return Ok(());
        }
        let header = self.instance.header_mut();
        // The workflow failed, not one of its states: there is nothing to rewind to.
        header.rewind_point = None;
        if header.escalation == Some(EscalationStage::Recovering) {
            let message = "recovery did not end in time";
            self.record_note(Note::RecoveryFailed { error: Failure::permanent(code::TIMEOUT, message) });
            self.instance.header_mut().escalation = Some(EscalationStage::Compensating);
            self.cancel_work(root)?;
            return self.collapse(root, AfterCollapse::Compensate(failure));
        }
        let timeout = self.plan.definition().configuration.timeout.unwrap_or_default();
        // Of a wide fan-out only the first branches are listed.
        let states = states.into_iter().take(STATES_REPORTED_MAX).map(|state| state.state).collect();
        self.record_note(Note::WorkflowTimedOut { timeout, states });
        self.instance.header_mut().escalation = Some(EscalationStage::Notifying);
        let error = Arc::new(failure.to_json());
        let fits = self.instance.put_slot(root, SlotName::Error, error, u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        self.cancel_work(root)?;
        self.collapse(root, AfterCollapse::Escalate)
    }

    pub(super) fn workflow_timeout_failure(&self) -> Failure {
        let timeout = self.plan.definition().configuration.timeout.unwrap_or_default();
        let state = self.branch_and_state(BranchId::ROOT).ok().map(|(_, state)| state.name.clone());
        Failure {
            state,
            ..Failure::permanent(code::TIMEOUT, format!("the workflow was not done within {timeout}"))
        }
    }

    pub(super) fn notify_activity(&self) -> &str {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        escalation.and_then(|escalation| escalation.notify.as_ref()).map_or("", |call| &call.activity)
    }

    /// Called when all other work has stopped: notifies the escalation channel.
    pub(super) fn notify_channel(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        let Some(call) = escalation.and_then(|escalation| escalation.notify.as_ref()) else {
            return self.recover_or_compensate(branch);
        };
        let (input, _) = match &call.input {
            Some(template) => template.render_lenient(&self.scope(branch), self.limits.payload_bytes_max),
            None => (serde_json::Value::Null, None),
        };
        if let Err(failure) = self.admit_payload(&input) {
            return self.on_notify_failed(branch, failure);
        }
        let attempt_timeout = self.plan.attempt_timeout(None, &call.activity);
        let timeout = self.plan.definition().configuration.default_timeout;
        let call = self.start_call(
            branch,
            NewCall {
                activity: &call.activity,
                input: Arc::new(input),
                secret_pointers: secret_pointers(call.input.as_ref()),
                path_suffix: "/escalation".to_owned(),
                timeout,
                attempt_timeout,
            },
        )?;
        self.mark_idle(branch);
        self.set_phase(branch, Phase::Notifying(call))
    }

    /// A failed notification is recorded and does not stop the escalation.
    pub(super) fn on_notify_failed(
        &mut self,
        branch: BranchId,
        error: Failure,
    ) -> Result<(), CorruptInstance> {
        self.record_note(Note::EscalationNotifyFailed { error });
        self.recover_or_compensate(branch)
    }

    /// Called when the channel has been notified: recover if there is a recovery state, else compensate and fail.
    pub(super) fn recover_or_compensate(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let escalation = self.plan.definition().configuration.escalation.as_ref();
        let recovery =
            escalation.and_then(|escalation| Some((escalation.recover.as_ref()?, escalation.recover_within)));
        // A run that has compensated cannot be recovered.
        let Some((state, within)) = recovery.filter(|_| !self.instance.header().compensated) else {
            self.instance.header_mut().escalation = Some(EscalationStage::Compensating);
            let failure = self.caught_error(branch).unwrap_or_else(|| self.workflow_timeout_failure());
            return self.compensate_then_fail(branch, failure);
        };
        self.instance.header_mut().escalation = Some(EscalationStage::Recovering);
        let timer = self.start_timer(None, self.now.plus(within));
        self.instance.header_mut().workflow_timer = Some(timer);
        self.record_note(Note::RecoveryStarted { state: state.clone() });
        let target = self.plan.target(BlockId::TOP, state)?;
        self.move_to(branch, target)
    }
}

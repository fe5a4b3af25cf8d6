//! Rewinds a failed run, and sees to it that a call which may have run is made again under the same identity. It does
//! not derive idempotency keys from identities; the runtime does.
//!
//! Only a call that was answered gets a new key. Who may have done the work without our knowing must not be asked to do
//! it once more (docs/adr/0021).

use crate::definition::StateKind;
use crate::history::{Fact, KeyChoice, KeyReason, RedrivenStep};
use crate::ids::BranchId;
use crate::instance::{AfterCollapse, CorruptInstance, Phase, RewindPoint, Rewinding, Status};

use super::interpreter::Interpreter;

/// The most steps that history lists for one rewind.
const STEPS_LISTED_MAX: usize = 50;

impl Interpreter<'_> {
    /// Continues at the failed state. Branches that were interrupted start their state again; completed steps keep
    /// their results.
    pub(super) fn rewind(&mut self, reason: &str, keys: KeyChoice) -> Result<(), CorruptInstance> {
        let Some(point) = self.instance.header().rewind_point else {
            return Ok(());
        };
        let new_keys = keys == KeyChoice::New;
        if new_keys {
            self.instance.retain_unanswered(|_| false);
        }
        let branches_end = self.instance.header().branch_count;
        self.instance.set_rewinding(Some(Rewinding { branches_end, new_keys }));
        let header = self.instance.header_mut();
        header.redrives = header.redrives.saturating_add(1);
        header.status = Status::Running;
        header.rewind_point = None;
        header.escalation = None;
        header.entered_since_message = 0;
        let redrive = header.redrives;
        self.instance.change_branch(point.branch, |at| {
            (at.state, at.visit) = (point.state, point.visit);
            at.phase = Phase::Ready;
        })?;
        let steps = self.redriven_steps(point.branch)?;
        self.record(Fact::ExecutionRewound { reason: reason.to_owned(), redrive, steps });
        self.instance.set_outcome(None);
        self.instance.header_mut().rewind_next_branch = Some(0);
        self.start_workflow_timer();
        Ok(())
    }

    /// Restarts one branch, the oldest first. It moves as far as it can before the next one is restarted.
    pub(super) fn rewind_step(&mut self) -> Result<(), CorruptInstance> {
        let from = self.instance.header().rewind_next_branch.unwrap_or(0);
        let end = self.instance.rewound_branches_end();
        let Some(branch) = self.instance.branch_from(from).filter(|branch| branch.0 < end) else {
            self.instance.header_mut().rewind_next_branch = None;
            self.instance.set_rewinding(None);
            return Ok(());
        };
        self.instance.header_mut().rewind_next_branch = Some(branch.0.saturating_add(1));
        match &self.instance.branch(branch)?.phase {
            Phase::Task(_) => {
                if !self.instance.wants_new_keys() {
                    self.remember_task(branch, true)?;
                }
                self.set_phase(branch, Phase::Ready)?;
            }
            Phase::Timer { .. } | Phase::Event { .. } | Phase::Child { .. } => {
                self.set_phase(branch, Phase::Ready)?;
            }
            Phase::Succeeded | Phase::Failed(_) => return Ok(()),
            _ => {}
        }
        self.mark_ready(branch);
        Ok(())
    }

    /// The steps that the rewind does again, the failed one first.
    fn redriven_steps(&self, failed: BranchId) -> Result<Vec<RedrivenStep>, CorruptInstance> {
        let interrupted = self.instance.branches().filter(|(id, branch)| {
            *id != failed && matches!(branch.phase, Phase::Task(_) | Phase::Child { .. })
        });
        let branches: Vec<BranchId> =
            std::iter::once(failed).chain(interrupted.map(|(id, _)| id)).take(STEPS_LISTED_MAX).collect();
        let steps = branches.into_iter().map(|branch| self.redriven_step(branch, branch == failed));
        steps.filter_map(Result::transpose).collect()
    }

    fn redriven_step(
        &self,
        branch: BranchId,
        has_failed: bool,
    ) -> Result<Option<RedrivenStep>, CorruptInstance> {
        let identity = self.step_identity(branch, "")?;
        let unanswered = self.instance.unanswered_call(&identity);
        let (key, reason) = match &self.branch_and_state(branch)?.1.kind {
            StateKind::Task(_) if self.instance.wants_new_keys() => (KeyChoice::New, KeyReason::Requested),
            StateKind::Task(_) => match unanswered {
                Some(call) if has_failed && !call.interrupted => (KeyChoice::Same, KeyReason::OutcomeUnknown),
                None if has_failed => (KeyChoice::New, KeyReason::OutcomeKnown),
                _ => (KeyChoice::Same, KeyReason::Interrupted),
            },
            StateKind::Map { .. } | StateKind::Parallel { .. } => {
                (KeyChoice::New, KeyReason::BranchesStartAgain)
            }
            StateKind::Workflow(_) => (KeyChoice::New, KeyReason::NewChild),
            _ => return Ok(None),
        };
        let items = identity.fan_outs.iter().map(|at| at.index).collect();
        Ok(Some(RedrivenStep { step: identity.path, items, key, reason }))
    }

    /// A task is entered whose call may have run: it continues as the work it was.
    pub(super) fn resume_unanswered_task(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        if !self.instance.has_unanswered_calls() {
            return Ok(());
        }
        let step = self.step_identity(branch, "")?;
        let Some(call) = self.instance.unanswered_call(&step) else { return Ok(()) };
        let (redrive, entered_at) = (call.redrive, call.entered_at);
        self.instance.change_branch(branch, |at| {
            at.redrive = redrive;
            at.entered_at = entered_at;
        })
    }

    /// A task has ended. If its outcome is unknown, a rewind makes its call again under the same identity.
    pub(super) fn note_task_outcome(
        &mut self,
        branch: BranchId,
        outcome_unknown: bool,
    ) -> Result<(), CorruptInstance> {
        if outcome_unknown {
            return self.remember_task(branch, false);
        }
        if self.instance.has_unanswered_calls() {
            let step = self.step_identity(branch, "")?;
            self.instance.forget_unanswered(&step);
        }
        Ok(())
    }

    fn remember_task(&mut self, branch: BranchId, interrupted: bool) -> Result<(), CorruptInstance> {
        let step = self.step_identity(branch, "")?;
        let entered_at = self.instance.branch(branch)?.entered_at;
        if step.fan_outs.is_empty() && self.instance.has_unanswered_calls() {
            // A task that times out in every round of a loop must not leave an entry for each.
            let point = self.instance.header().rewind_point;
            let failed =
                point.map(|point| Ok((&self.plan.state(point.state)?.path, point.visit))).transpose()?;
            self.instance.retain_unanswered(|call| {
                call.is_below(&step.path, step.visit)
                    || failed.is_some_and(|(path, visit)| call.is_below(path, visit))
            });
        }
        self.instance.remember_unanswered(&step, entered_at, interrupted);
        Ok(())
    }

    /// A branch is removed because the collapsing one above it fails. A rewind may start the whole map or parallel
    /// again; the call that is cancelled now then keeps its key.
    pub(super) fn keep_key_of_collapsed(
        &mut self,
        collapsing: BranchId,
        removed: BranchId,
    ) -> Result<(), CorruptInstance> {
        let fails = matches!(
            self.instance.branch(collapsing)?.phase,
            Phase::Collapsing(AfterCollapse::Raise(_) | AfterCollapse::FailBranch(_))
        );
        match self.instance.branch(removed)?.phase {
            Phase::Task(_) if fails => self.remember_task(removed, true),
            _ => Ok(()),
        }
    }

    /// A map or parallel has its results. At the top level no rewind leads back into it.
    pub(super) fn forget_unanswered_calls_of_join(
        &mut self,
        branch: BranchId,
    ) -> Result<(), CorruptInstance> {
        if self.instance.has_unanswered_calls() && self.instance.branch(branch)?.parent.is_none() {
            self.instance.retain_unanswered(|_| false);
        }
        Ok(())
    }

    /// A state of the top level has failed: a rewind can only lead to it, so what is remembered of others is forgotten.
    pub(super) fn forget_unanswered_calls_outside(
        &mut self,
        point: RewindPoint,
    ) -> Result<(), CorruptInstance> {
        if !self.instance.has_unanswered_calls() || self.instance.branch(point.branch)?.parent.is_some() {
            return Ok(());
        }
        let path = &self.plan.state(point.state)?.path;
        self.instance.retain_unanswered(|call| call.is_below(path, point.visit));
        Ok(())
    }
}

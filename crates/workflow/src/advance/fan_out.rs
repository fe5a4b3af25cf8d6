//! The `parallel` and `map` states: branches are spawned, joined and removed one at a time, so that no turn grows with
//! their number. It does not know what the branches do.
//!
//! Ended branches keep their result until the join. A success is decided only when no branch is to be spawned for now;
//! a failure after which the join is out of reach decides at once.

use std::sync::Arc;

use serde_json::Value;

use crate::command::CommandKind;
use crate::definition::{Join, StateKind};
use crate::failure::{Failure, code};
use crate::history::{BranchOutcome, Fact};
use crate::ids::BranchId;
use crate::instance::{
    AfterCollapse, BranchParent, CorruptInstance, Ending, FanOutProgress, Phase, SlotName,
};
use crate::json::Json;
use crate::path::Path;

use super::interpreter::{Interpreter, read_failure};

/// More branches than any limit allows: stored bytes with a higher number are corrupt, and no memory is allocated for
/// it.
const FAN_OUT_SANITY_MAX: u32 = 1_000_000;

impl Interpreter<'_> {
    pub(super) fn start_map(
        &mut self,
        branch: BranchId,
        items: &Path,
        join: Join,
    ) -> Result<(), CorruptInstance> {
        let scope = self.scope(branch);
        let value = match items.get(&scope) {
            Ok(value) => value,
            Err(error) => return self.raise(branch, read_failure(&error)),
        };
        let Some(array) = value.as_array() else {
            let message = format!("{} is not an array", items.text());
            return self.raise(branch, Failure::permanent(code::TYPE_MISMATCH, message));
        };
        let total = array.len();
        // The result of a query is stored. The value at a plain path stays where it is, because nothing writes there
        // meanwhile.
        if let std::borrow::Cow::Owned(items) = value
            && let Err(failure) = self.put_data(branch, SlotName::Items, Arc::new(items))
        {
            return self.raise(branch, failure);
        }
        self.start_fan_out(branch, total, join)
    }

    pub(super) fn start_fan_out(
        &mut self,
        branch: BranchId,
        total: usize,
        join: Join,
    ) -> Result<(), CorruptInstance> {
        let max = self.limits.fan_out_max;
        let total = match u32::try_from(total) {
            Ok(total) if total <= max => total,
            _ => {
                self.instance.take_slot(branch, &SlotName::Items);
                let message = format!("{total} branches exceed the limit of {max}");
                return self.raise(branch, Failure::permanent(code::FAN_OUT_TOO_WIDE, message));
            }
        };
        if let Join::AtLeast(wanted) = join
            && wanted > total
        {
            self.instance.take_slot(branch, &SlotName::Items);
            let message = format!("{wanted} branches must succeed, but there are only {total}");
            return self.raise(branch, Failure::permanent(code::JOIN_UNREACHABLE, message));
        }
        self.set_phase(
            branch,
            Phase::FanOut(FanOutProgress {
                total,
                reached_concurrency: false,
                spawned: 0,
                succeeded: 0,
                failed: 0,
            }),
        )
    }

    fn fan_out_progress(&self, branch: BranchId) -> Result<(FanOutProgress, Join, u32), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let (join, cap) = match &state.kind {
            StateKind::Parallel { join, .. } => (*join, u32::MAX),
            StateKind::Map { join, max_concurrency, .. } => (*join, max_concurrency.unwrap_or(u32::MAX)),
            _ => return Err(CorruptInstance::new(format!("state {} has no branches", state.path))),
        };
        match at.phase {
            Phase::FanOut(fan_out) => Ok((fan_out, join, cap)),
            _ => Err(CorruptInstance::new(format!("state {} is not fanning out", state.path))),
        }
    }

    /// Spawns the next branch, or decides the join, or waits.
    pub(super) fn fan_out_step(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let (fan_out, join, cap) = self.fan_out_progress(branch)?;
        let wanted = match join {
            Join::All => fan_out.total,
            Join::AtLeast(wanted) => wanted,
        };
        let done = fan_out.succeeded >= wanted;
        if fan_out.spawned < fan_out.total
            && fan_out.running() < cap
            && !(done && fan_out.reached_concurrency)
        {
            return self.spawn_branch(branch, fan_out);
        }
        if !done {
            self.mark_idle(branch);
            return self
                .set_phase(branch, Phase::FanOut(FanOutProgress { reached_concurrency: true, ..fan_out }));
        }
        self.collect_results(branch, fan_out.total)?;
        self.collapse(branch, AfterCollapse::Join)
    }

    fn spawn_branch(&mut self, branch: BranchId, fan_out: FanOutProgress) -> Result<(), CorruptInstance> {
        let (_, state) = self.branch_and_state(branch)?;
        let index = fan_out.spawned;
        let block = match &state.kind {
            StateKind::Parallel { branches, .. } => branches.get(index as usize).copied(),
            StateKind::Map { iterator, .. } => Some(*iterator),
            _ => None,
        };
        let block = block
            .ok_or_else(|| CorruptInstance::new(format!("state {} has no branch {index}", state.path)))?;
        let max = self.limits.live_branches_max;
        if self.instance.live_branches() >= max as usize {
            let message = format!("the run already has {max} branches, which is the limit");
            return self
                .collapse(branch, AfterCollapse::Raise(Failure::permanent(code::FAN_OUT_TOO_WIDE, message)));
        }
        let start = self.plan.start_state(block)?;
        self.set_phase(
            branch,
            Phase::FanOut(FanOutProgress { spawned: index.saturating_add(1), ..fan_out }),
        )?;
        let child = self.instance.add_branch(Some(BranchParent { branch, index }), block, start, self.now);
        self.record(Fact::BranchStarted { branch: child, parent: branch, index });
        self.mark_ready(child);
        Ok(())
    }

    /// Called when a branch reached its `succeed` state: at the top level the run completes, elsewhere the join may.
    pub(super) fn on_branch_succeeded(
        &mut self,
        branch: BranchId,
        output: Json,
    ) -> Result<(), CorruptInstance> {
        let Some(parent) = self.instance.branch(branch)?.parent else {
            self.record_state_left(branch, None, None)?;
            return self.complete_run(output);
        };
        if let Err(failure) = self.put_data(branch, SlotName::Result, output) {
            return self.raise(branch, failure);
        }
        self.record_state_left(branch, None, None)?;
        self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Succeeded });
        self.set_phase(branch, Phase::Succeeded)?;
        self.mark_idle(branch);
        self.count_ended_branch(parent.branch, |fan_out| {
            fan_out.succeeded = fan_out.succeeded.saturating_add(1)
        })
    }

    fn count_ended_branch(
        &mut self,
        owner: BranchId,
        count: impl FnOnce(&mut FanOutProgress),
    ) -> Result<(), CorruptInstance> {
        let (mut fan_out, _, _) = self.fan_out_progress(owner)?;
        count(&mut fan_out);
        self.set_phase(owner, Phase::FanOut(fan_out))?;
        self.mark_ready(owner);
        Ok(())
    }

    /// True if enough branches can still succeed after one more failure.
    pub(super) fn tolerates_failure(&self, owner: BranchId) -> Result<bool, CorruptInstance> {
        let (fan_out, join, _) = self.fan_out_progress(owner)?;
        Ok(match join {
            Join::All => false,
            Join::AtLeast(wanted) => fan_out.total.saturating_sub(fan_out.failed.saturating_add(1)) >= wanted,
        })
    }

    /// Collects the results in order; branches that failed or were cancelled have null.
    fn collect_results(&mut self, branch: BranchId, total: u32) -> Result<(), CorruptInstance> {
        if total > FAN_OUT_SANITY_MAX {
            return Err(CorruptInstance::new(format!(
                "branch {} has an invalid number of branches: {total}",
                branch.0
            )));
        }
        let mut results = vec![Value::Null; total as usize];
        for child in self.instance.index().children(branch) {
            let position = self.instance.branch(child)?.parent.map_or(0, |parent| parent.index as usize);
            if let (Some(place), Some(result)) =
                (results.get_mut(position), self.instance.slot(child, &SlotName::Result))
            {
                *place = (**result).clone();
            }
        }
        // Not counted against the limit: the branches' own results, which are counted, are removed next.
        let fits =
            self.instance.put_slot(branch, SlotName::Results, Arc::new(Value::Array(results)), u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        Ok(())
    }

    /// Starts to remove all descendants of a branch; `then` follows when all are removed.
    pub(super) fn collapse(&mut self, branch: BranchId, then: AfterCollapse) -> Result<(), CorruptInstance> {
        let ready = self.instance.header().ready_branches.clone();
        let mut still_ready = Vec::new();
        for other in ready {
            let compensating = matches!(self.instance.branch(other)?.phase, Phase::Compensating(_));
            if other != branch && (compensating || !self.is_descendant(other, branch)?) {
                still_ready.push(other);
            }
        }
        still_ready.push(branch);
        self.instance.header_mut().ready_branches = still_ready;
        self.set_phase(branch, Phase::Collapsing(then))
    }

    fn is_descendant(&self, branch: BranchId, from: BranchId) -> Result<bool, CorruptInstance> {
        let mut at = branch;
        while let Some(parent) = self.instance.branch(at)?.parent {
            if parent.branch == from {
                return Ok(true);
            }
            at = parent.branch;
        }
        Ok(false)
    }

    /// The outermost ancestor that waits for this branch to be removed.
    pub(super) fn outermost_collapsing_ancestor(
        &self,
        branch: BranchId,
    ) -> Result<Option<BranchId>, CorruptInstance> {
        let mut at = branch;
        let mut outermost = None;
        while let Some(parent) = self.instance.branch(at)?.parent {
            at = parent.branch;
            if matches!(self.instance.branch(at)?.phase, Phase::Collapsing(_)) {
                outermost = Some(at);
            }
        }
        Ok(outermost)
    }

    /// The newest leaf below a branch that may be removed. A branch that is compensating finishes first, because
    /// interrupting it would leave work half compensated.
    fn removable_leaf(&self, branch: BranchId) -> Result<Option<BranchId>, CorruptInstance> {
        for child in self.instance.index().children(branch).rev() {
            if self.instance.index().last_child(child).is_some() {
                if let Some(leaf) = self.removable_leaf(child)? {
                    return Ok(Some(leaf));
                }
            } else if !matches!(self.instance.branch(child)?.phase, Phase::Compensating(_)) {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// Removes one leaf below the branch; if none is left, the action after the collapse follows.
    pub(super) fn collapse_step(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let Some(leaf) = self.removable_leaf(branch)? else {
            if self.instance.index().last_child(branch).is_none() {
                return self.finish_collapse(branch);
            }
            // The remaining branches are compensating, and mark this branch ready when they are done.
            self.mark_idle(branch);
            return Ok(());
        };
        let ended = matches!(self.instance.branch(leaf)?.phase, Phase::Succeeded | Phase::Failed(_));
        if !ended {
            self.keep_key_of_collapsed(branch, leaf)?;
            self.cancel_work(leaf)?;
            self.record(Fact::BranchEnded { branch: leaf, outcome: BranchOutcome::Cancelled });
        }
        self.instance.remove_branch(leaf);
        Ok(())
    }

    fn finish_collapse(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let at = self.instance.branch(branch)?;
        let (parent, Phase::Collapsing(then)) = (at.parent, at.phase.clone()) else {
            return Err(CorruptInstance::new(format!("branch {} is not collapsing", branch.0)));
        };
        self.instance.take_slot(branch, &SlotName::Items);
        let results = self.instance.take_slot(branch, &SlotName::Results);
        match then {
            AfterCollapse::Join => {
                self.forget_unanswered_calls_of_join(branch)?;
                self.complete_state(branch, Some(results.unwrap_or_default()))
            }
            AfterCollapse::Raise(failure) => self.raise(branch, failure),
            AfterCollapse::FailBranch(failure) => {
                let owner = parent.ok_or_else(|| CorruptInstance::new("the root branch has no parent"))?;
                // While this branch was compensating, others may have failed: its failure may no longer be tolerable.
                if !self.tolerates_failure(owner.branch)? {
                    return self.fail_branch(branch, failure);
                }
                self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Failed });
                self.set_phase(branch, Phase::Failed(failure))?;
                self.mark_idle(branch);
                self.count_ended_branch(owner.branch, |fan_out| {
                    fan_out.failed = fan_out.failed.saturating_add(1)
                })
            }
            AfterCollapse::Escalate => self.notify_channel(branch),
            AfterCollapse::Compensate(failure) => self.compensate_then_fail(branch, failure),
            AfterCollapse::FailRun(failure) => {
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.begin_closing(Ending::Fail(failure));
                Ok(())
            }
        }
    }

    /// Cancels the call, timer or child that this branch waits for.
    pub(super) fn cancel_work(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let (call, timer, child) = match &at.phase {
            Phase::Task(progress) | Phase::Notifying(progress) => (Some(progress.call), None, None),
            Phase::Compensating(compensation) => {
                (compensation.call.map(|progress| progress.call), None, None)
            }
            Phase::Timer { timer } => (None, Some(*timer), None),
            Phase::Event { timer, .. } => (None, *timer, None),
            Phase::Child { child, timer } => (None, *timer, Some(*child)),
            _ => (None, None, None),
        };
        let abandon = matches!(&state.kind, StateKind::Workflow(call) if call.abandon);
        if let Some(call) = call {
            self.emit(CommandKind::CancelActivity { call });
        }
        if let Some(timer) = timer {
            self.emit(CommandKind::CancelTimer { timer });
        }
        if let Some(child) = child.filter(|_| !abandon) {
            self.emit(CommandKind::TerminateChild { child });
        }
        Ok(())
    }
}

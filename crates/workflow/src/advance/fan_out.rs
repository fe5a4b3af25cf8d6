//! `parallel` and `map`: branches are spawned, joined, and removed one step at a time, so that no turn grows with their number.
//!
//! Ended branches keep their result until the join. A success is decided only when nothing is left to spawn for now; a failure
//! that cannot be made good decides at once.

use std::sync::Arc;

use serde_json::Value;

use crate::command::CommandKind;
use crate::definition::{Join, StateKind};
use crate::failure::{Failure, code};
use crate::history::{BranchOutcome, Fact};
use crate::ids::BranchId;
use crate::instance::{BranchParent, Corrupt, Ending, FanOut, Phase, SlotName, Then};
use crate::json::Json;
use crate::path::Path;

use super::pass::Pass;

/// More branches than any limit allows: stored bytes that say so are broken, and are not allocated for.
const FAN_OUT_EVER_MAX: u32 = 1_000_000;

impl Pass<'_> {
    pub(super) fn start_map(&mut self, branch: BranchId, items: &Path, join: Join) -> Result<(), Corrupt> {
        let scope = self.scope(branch);
        let found = match items.get(&scope) {
            Ok(found) => found,
            Err(missing) => {
                return self.raise(branch, Failure::last(code::PATH_MISSING, missing.to_string()));
            }
        };
        let Some(array) = found.as_array() else {
            let message = format!("{} is not an array", items.text());
            return self.raise(branch, Failure::last(code::TYPE_MISMATCH, message));
        };
        let total = array.len();
        // What a query found is kept; what a plain path leads to stays where it is, because nothing writes there meanwhile.
        if let std::borrow::Cow::Owned(found) = found
            && let Err(failure) = self.put(branch, SlotName::Items, Arc::new(found))
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
    ) -> Result<(), Corrupt> {
        let max = self.limits.fan_out_max;
        let total = match u32::try_from(total) {
            Ok(total) if total <= max => total,
            _ => {
                self.instance.take_slot(branch, &SlotName::Items);
                let message = format!("{total} branches are more than the {max} that are allowed here");
                return self.raise(branch, Failure::last(code::FAN_OUT_TOO_WIDE, message));
            }
        };
        if let Join::AtLeast(wanted) = join
            && wanted > total
        {
            self.instance.take_slot(branch, &SlotName::Items);
            let message = format!("{wanted} branches are to succeed and there are {total}");
            return self.raise(branch, Failure::last(code::JOIN_UNREACHABLE, message));
        }
        self.set_phase(
            branch,
            Phase::FanOut(FanOut { total, filled: false, spawned: 0, succeeded: 0, failed: 0 }),
        )
    }

    fn fan_out(&self, branch: BranchId) -> Result<(FanOut, Join, u32), Corrupt> {
        let (at, state) = self.place(branch)?;
        let (join, cap) = match &state.kind {
            StateKind::Parallel { join, .. } => (*join, u32::MAX),
            StateKind::Map { join, max_concurrency, .. } => (*join, max_concurrency.unwrap_or(u32::MAX)),
            _ => return Err(Corrupt::new(format!("state {} has no branches", state.path))),
        };
        match at.phase {
            Phase::FanOut(fan_out) => Ok((fan_out, join, cap)),
            _ => Err(Corrupt::new(format!("state {} is not fanning out", state.path))),
        }
    }

    /// Spawns the next branch, or decides the join, or waits.
    pub(super) fn expand(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let (fan_out, join, cap) = self.fan_out(branch)?;
        let wanted = match join {
            Join::All => fan_out.total,
            Join::AtLeast(wanted) => wanted,
        };
        let done = fan_out.succeeded >= wanted;
        if fan_out.spawned < fan_out.total && fan_out.running() < cap && !(done && fan_out.filled) {
            return self.spawn(branch, fan_out);
        }
        if !done {
            self.rest(branch);
            return self.set_phase(branch, Phase::FanOut(FanOut { filled: true, ..fan_out }));
        }
        self.gather(branch, fan_out.total)?;
        self.collapse(branch, Then::Join)
    }

    fn spawn(&mut self, branch: BranchId, fan_out: FanOut) -> Result<(), Corrupt> {
        let (_, state) = self.place(branch)?;
        let index = fan_out.spawned;
        let block = match &state.kind {
            StateKind::Parallel { branches, .. } => branches.get(index as usize).copied(),
            StateKind::Map { iterator, .. } => Some(*iterator),
            _ => None,
        };
        let block =
            block.ok_or_else(|| Corrupt::new(format!("state {} has no branch {index}", state.path)))?;
        let max = self.limits.live_branches_max;
        if self.instance.live_branches() >= max as usize {
            let message = format!("the run has {max} branches already, which is the limit");
            return self.collapse(branch, Then::Raise(Failure::last(code::FAN_OUT_TOO_WIDE, message)));
        }
        let start = self.plan.start_of(block)?;
        self.set_phase(branch, Phase::FanOut(FanOut { spawned: index.saturating_add(1), ..fan_out }))?;
        let child = self.instance.add_branch(Some(BranchParent { branch, index }), block, start, self.now);
        self.record(Fact::BranchStarted { branch: child, parent: branch, index });
        self.wake(child);
        Ok(())
    }

    /// A branch reached its `succeed` state: at the top the run is done, elsewhere the join may be.
    pub(super) fn branch_succeeded(&mut self, branch: BranchId, output: Json) -> Result<(), Corrupt> {
        let Some(parent) = self.instance.branch(branch)?.parent else {
            self.record_left(branch, None, None)?;
            return self.complete_run(output);
        };
        if let Err(failure) = self.put(branch, SlotName::Result, output) {
            return self.raise(branch, failure);
        }
        self.record_left(branch, None, None)?;
        self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Succeeded });
        self.set_phase(branch, Phase::Succeeded)?;
        self.rest(branch);
        self.count_end(parent.branch, |fan_out| fan_out.succeeded = fan_out.succeeded.saturating_add(1))
    }

    fn count_end(&mut self, owner: BranchId, count: impl FnOnce(&mut FanOut)) -> Result<(), Corrupt> {
        let (mut fan_out, _, _) = self.fan_out(owner)?;
        count(&mut fan_out);
        self.set_phase(owner, Phase::FanOut(fan_out))?;
        self.wake(owner);
        Ok(())
    }

    /// Whether enough branches can still succeed if one more fails.
    pub(super) fn tolerates_failure(&self, owner: BranchId) -> Result<bool, Corrupt> {
        let (fan_out, join, _) = self.fan_out(owner)?;
        Ok(match join {
            Join::All => false,
            Join::AtLeast(wanted) => fan_out.total.saturating_sub(fan_out.failed.saturating_add(1)) >= wanted,
        })
    }

    /// Collects the results in order; branches that failed or lost have null.
    fn gather(&mut self, branch: BranchId, total: u32) -> Result<(), Corrupt> {
        if total > FAN_OUT_EVER_MAX {
            return Err(Corrupt::new(format!("branch {} claims {total} branches", branch.0)));
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
        // Not counted against the limit: the branches' own results, which are, go away next.
        let fits =
            self.instance.put_slot(branch, SlotName::Results, Arc::new(Value::Array(results)), u64::MAX);
        debug_assert!(fits.is_ok(), "an unlimited slot is never refused");
        Ok(())
    }

    /// Starts to remove all descendants of a branch; `then` follows when they are gone.
    pub(super) fn collapse(&mut self, branch: BranchId, then: Then) -> Result<(), Corrupt> {
        let ready = self.instance.header().ready.clone();
        let mut kept = Vec::new();
        for other in ready {
            let undoing = matches!(self.instance.branch(other)?.phase, Phase::Undoing(_));
            if other != branch && (undoing || !self.descends(other, branch)?) {
                kept.push(other);
            }
        }
        kept.push(branch);
        self.instance.header_mut().ready = kept;
        self.set_phase(branch, Phase::Collapsing(then))
    }

    fn descends(&self, branch: BranchId, from: BranchId) -> Result<bool, Corrupt> {
        let mut at = branch;
        while let Some(parent) = self.instance.branch(at)?.parent {
            if parent.branch == from {
                return Ok(true);
            }
            at = parent.branch;
        }
        Ok(false)
    }

    /// The outermost branch above that waits for this one to be gone.
    pub(super) fn collapsing_above(&self, branch: BranchId) -> Result<Option<BranchId>, Corrupt> {
        let (mut at, mut outermost) = (branch, None);
        while let Some(parent) = self.instance.branch(at)?.parent {
            at = parent.branch;
            if matches!(self.instance.branch(at)?.phase, Phase::Collapsing(_)) {
                outermost = Some(at);
            }
        }
        Ok(outermost)
    }

    /// The youngest leaf below a branch that may go: one that is undoing its work ends that first, because cutting it short
    /// would leave things half undone.
    fn removable_leaf(&self, branch: BranchId) -> Result<Option<BranchId>, Corrupt> {
        for child in self.instance.index().children(branch).rev() {
            if self.instance.index().last_child(child).is_some() {
                if let Some(leaf) = self.removable_leaf(child)? {
                    return Ok(Some(leaf));
                }
            } else if !matches!(self.instance.branch(child)?.phase, Phase::Undoing(_)) {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// Removes one leaf below the branch; without any, goes on with what was to follow.
    pub(super) fn collapse_step(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let Some(leaf) = self.removable_leaf(branch)? else {
            if self.instance.index().last_child(branch).is_none() {
                return self.collapsed(branch);
            }
            // What is left is undoing its work, and wakes this branch when it is through.
            self.rest(branch);
            return Ok(());
        };
        let ended = matches!(self.instance.branch(leaf)?.phase, Phase::Succeeded | Phase::Failed(_));
        if !ended {
            self.cancel_work(leaf)?;
            self.record(Fact::BranchEnded { branch: leaf, outcome: BranchOutcome::Cancelled });
        }
        self.instance.remove_branch(leaf);
        Ok(())
    }

    fn collapsed(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let at = self.instance.branch(branch)?;
        let (parent, Phase::Collapsing(then)) = (at.parent, at.phase.clone()) else {
            return Err(Corrupt::new(format!("branch {} is not collapsing", branch.0)));
        };
        self.instance.take_slot(branch, &SlotName::Items);
        let results = self.instance.take_slot(branch, &SlotName::Results);
        match then {
            Then::Join => self.complete(branch, Some(results.unwrap_or_default())),
            Then::Raise(failure) => self.raise(branch, failure),
            Then::FailBranch(failure) => {
                let owner = parent.ok_or_else(|| Corrupt::new("the root branch cannot fail alone"))?;
                // While this branch was left to undo its work, others may have failed: what was tolerable may no longer be.
                if !self.tolerates_failure(owner.branch)? {
                    return self.fail_branch(branch, failure);
                }
                self.record(Fact::BranchEnded { branch, outcome: BranchOutcome::Failed });
                self.set_phase(branch, Phase::Failed(failure))?;
                self.rest(branch);
                self.count_end(owner.branch, |fan_out| fan_out.failed = fan_out.failed.saturating_add(1))
            }
            Then::Escalate => self.notify_channel(branch),
            Then::Compensate(failure) => self.compensate_then_fail(branch, failure),
            Then::FailRun(failure) => {
                self.set_phase(branch, Phase::Failed(failure.clone()))?;
                self.close(Ending::Fail(failure));
                Ok(())
            }
        }
    }

    /// Nobody waits for what this branch has out any more.
    pub(super) fn cancel_work(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        let (at, state) = self.place(branch)?;
        let (dispatch, timer, child) = match &at.phase {
            Phase::Task(delivery) | Phase::Notifying(delivery) => (Some(delivery.dispatch), None, None),
            Phase::Undoing(undoing) => (undoing.delivery.map(|delivery| delivery.dispatch), None, None),
            Phase::Timer { timer } => (None, Some(*timer), None),
            Phase::Event { timer, .. } => (None, *timer, None),
            Phase::Child { child, timer } => (None, *timer, Some(*child)),
            _ => (None, None, None),
        };
        let abandon = matches!(&state.kind, StateKind::Workflow(call) if call.abandon);
        if let Some(dispatch) = dispatch {
            self.emit(CommandKind::CancelActivity { dispatch });
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

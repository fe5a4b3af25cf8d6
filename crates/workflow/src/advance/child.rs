//! The `workflow` state: starts a child run and waits for its end. It does not know how the runtime places the child.

use abide_ids::Digest;

use crate::command::{CommandKind, StartChild};
use crate::definition::{ChildCall, State, StateKind};
use crate::failure::{Failure, code};
use crate::history::Fact;
use crate::ids::{BranchId, CommandId, InstanceId};
use crate::instance::{CorruptInstance, Phase};
use crate::json::Json;

use super::interpreter::Interpreter;

impl Interpreter<'_> {
    pub(super) fn start_child(
        &mut self,
        branch: BranchId,
        state: &State,
        call: &ChildCall,
    ) -> Result<(), CorruptInstance> {
        let input = match self.render(branch, call.input.as_ref()) {
            Ok(input) => input,
            Err(failure) => return self.raise(branch, failure),
        };
        let instance_id = match self.derive_child_id(call.spread) {
            Ok(id) => id,
            Err(failure) => return self.raise(branch, failure),
        };
        let step = self.step_identity(branch, "")?;
        let child = self.emit(CommandKind::StartChild(StartChild {
            instance_id: instance_id.clone(),
            workflow: call.workflow.clone(),
            version: call.version.clone(),
            input: input.clone(),
            step,
        }));
        let name = call.workflow.clone();
        self.record(Fact::SubOrchestrationInstanceCreated {
            command: child,
            branch,
            instance_id,
            name,
            input,
        });
        let timer = state.timeout.map(|timeout| self.start_timer(Some(branch), self.now.plus(timeout)));
        self.mark_idle(branch);
        self.set_phase(branch, Phase::Child { child, timer })
    }

    /// Beside its parent, the id has the same placement key, then run and command. With `spread` it is a hash of them.
    fn derive_child_id(&self, spread: bool) -> Result<InstanceId, Failure> {
        let origin = self.instance.origin();
        let command = self.instance.header().command_count + 1;
        let id = if spread {
            let parent = origin.execution_id().to_string();
            let digest = Digest::of_parts(&[b"child", parent.as_bytes(), &command.to_be_bytes()]);
            digest.as_bytes().iter().take(16).fold("child-".to_owned(), |id, byte| format!("{id}{byte:02x}"))
        } else {
            format!("{}~{}.{command}", origin.instance_id, origin.run.0)
        };
        InstanceId::new(id).map_err(|error| Failure::permanent(code::CHILD_ID_INVALID, error.to_string()))
    }

    pub(super) fn on_child_completed(
        &mut self,
        command: CommandId,
        output: Json,
    ) -> Result<(), CorruptInstance> {
        let Some(branch) = self.branch_of_child(command)? else {
            let result = self.late_result(output);
            self.record(Fact::SubOrchestrationInstanceCompleted { command, result, late: true });
            return Ok(());
        };
        if let Err(failure) = self.admit_payload(&output) {
            return self.on_child_failed(command, failure);
        }
        self.record(Fact::SubOrchestrationInstanceCompleted { command, result: output.clone(), late: false });
        self.cancel_child_timer(branch)?;
        self.complete_state(branch, Some(output))
    }

    pub(super) fn on_child_failed(
        &mut self,
        command: CommandId,
        failure: Failure,
    ) -> Result<(), CorruptInstance> {
        let Some(branch) = self.branch_of_child(command)? else {
            self.record(Fact::SubOrchestrationInstanceFailed { command, error: failure, late: true });
            return Ok(());
        };
        self.count_failure(&failure);
        self.record(Fact::SubOrchestrationInstanceFailed { command, error: failure.clone(), late: false });
        self.cancel_child_timer(branch)?;
        // In this run the error comes from this state, whichever state of the child raised it.
        self.raise(branch, Failure { state: None, ..failure })
    }

    /// The branch that waits for this child; `None` if the number belongs to something else.
    fn branch_of_child(&self, command: CommandId) -> Result<Option<BranchId>, CorruptInstance> {
        let Some(branch) = self.instance.index().branch_of(command) else { return Ok(None) };
        let waits =
            matches!(self.instance.branch(branch)?.phase, Phase::Child { child, .. } if child == command);
        Ok(waits.then_some(branch))
    }

    fn cancel_child_timer(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        if let Phase::Child { timer: Some(timer), .. } = self.instance.branch(branch)?.phase {
            self.emit(CommandKind::CancelTimer { timer });
        }
        Ok(())
    }

    pub(super) fn on_child_timeout(
        &mut self,
        branch: BranchId,
        child: CommandId,
    ) -> Result<(), CorruptInstance> {
        let (_, state) = self.branch_and_state(branch)?;
        if !matches!(&state.kind, StateKind::Workflow(call) if call.abandon) {
            self.emit(CommandKind::TerminateChild { child });
        }
        self.on_state_timeout(branch)
    }
}

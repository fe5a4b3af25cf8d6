//! The working state of one turn: its history and commands so far, and the rest of its budget.
//!
//! It emits commands, records history and reads data; it knows no state type.

use std::sync::Arc;

use serde_json::Value;

use crate::command::{Command, CommandKind, FanOutPosition, StepIdentity};
use crate::definition::State;
use crate::evaluation::EvaluationBudget;
use crate::failure::{Failure, code};
use crate::history::{Fact, HistoryEvent, Note};
use crate::ids::{BlockId, BranchId, CommandId};
use crate::instance::{Branch, CorruptInstance, Ending, Instance, Phase, Status};
use crate::json::{self, Json};
use crate::limits::{Limits, TurnLimits, definition::JSON_DEPTH_MAX};
use crate::message::MessageRefusal;
use crate::path::{ReadError, RenderError, Template};
use crate::plan::Plan;
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::turn::{NoRetryReason, Turn};

/// The most commands that one step emits: a child with its timer, or cancelling both.
const STEP_COMMANDS_MAX: usize = 4;

/// A turn in progress.
pub(super) struct Interpreter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) instance: &'a mut Instance,
    pub(super) now: Timestamp,
    pub(super) limits: &'a Limits,
    turn_limits: TurnLimits,
    /// Charged by everything that the current step evaluates. Each step has the whole budget: where a turn ends decides
    /// nothing.
    pub(super) budget: EvaluationBudget,
    history: Vec<HistoryEvent>,
    commands: Vec<Command>,
    pub(super) failed_calls: Vec<(CommandId, NoRetryReason)>,
    pub(super) refusals: Vec<(usize, MessageRefusal)>,
    pub(super) next_run: Option<Box<Instance>>,
    bytes: u64,
    steps: usize,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        instance: &'a mut Instance,
        now: Timestamp,
        limits: &'a Limits,
    ) -> Self {
        // If the clock jumps back, history must not.
        let now = now.max(instance.updated_at());
        Self {
            plan,
            instance,
            now,
            limits,
            turn_limits: limits.turn.at_least_floor(limits.payload_bytes_max),
            budget: EvaluationBudget::new(limits.evaluation),
            history: Vec::new(),
            commands: Vec::new(),
            failed_calls: Vec::new(),
            refusals: Vec::new(),
            next_run: None,
            bytes: 0,
            steps: 0,
        }
    }

    /// Starts the run if this is its first turn.
    pub(super) fn begin_run(&mut self) -> Result<(), CorruptInstance> {
        if self.instance.status() != Status::Pending {
            return Ok(());
        }
        let now = self.now;
        let header = self.instance.header_mut();
        header.status = Status::Running;
        header.started_at = now;
        let input = self.instance.origin().input.clone();
        let admitted = self.admit_payload(&input);
        if admitted.is_err() {
            // An input beyond the limits must not be stored: it might not be readable again.
            self.instance.drop_input();
        }
        let origin = self.instance.origin().clone();
        self.record(Fact::ExecutionStarted {
            name: origin.workflow,
            version: origin.version,
            run: origin.run,
            input: origin.input,
            correlation_id: origin.correlation_id,
            parent: origin.parent.map(|parent| parent.instance_id),
        });
        let start = self.plan.start_state(BlockId::TOP)?;
        let root = self.instance.add_branch(None, BlockId::TOP, start, now);
        self.mark_ready(root);
        self.start_workflow_timer();
        if let Err(failure) = admitted {
            self.begin_closing(Ending::Fail(failure));
        }
        Ok(())
    }

    /// True if another step fits into the turn, whatever it does.
    pub(super) fn has_budget(&self) -> bool {
        let (evaluation_steps, evaluation_bytes) = self.budget.used();
        evaluation_steps < self.turn_limits.evaluation.steps_max
            && evaluation_bytes < self.turn_limits.evaluation.bytes_max
            && self.commands.len() + STEP_COMMANDS_MAX <= self.turn_limits.commands_max
            && self.bytes.saturating_add(self.limits.payload_bytes_max) <= self.turn_limits.bytes_max
            && self.steps < self.turn_limits.steps_max
    }

    pub(super) fn messages_max(&self) -> usize {
        self.turn_limits.messages_max
    }

    /// Does one step that needs no message; false if there is none.
    pub(super) fn step(&mut self) -> Result<bool, CorruptInstance> {
        self.budget.renew();
        let header = self.instance.header();
        if header.status.is_terminal() {
            return Ok(false);
        }
        if header.closing.is_some() {
            self.steps += 1;
            self.closing_step()?;
        } else if header.suspended {
            return Ok(false);
        } else if let Some(branch) = header.ready_branches.last().copied() {
            self.steps += 1;
            self.run_branch(branch)?;
        } else if header.rewind_next_branch.is_some() {
            self.steps += 1;
            self.rewind_step()?;
        } else if let Some(message) = self.instance.take_held_message() {
            self.steps += 1;
            self.instance.header_mut().entered_since_message = 0;
            self.apply_message(message)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn has_work(&self) -> bool {
        let header = self.instance.header();
        let has_step = !header.ready_branches.is_empty()
            || header.rewind_next_branch.is_some()
            || self.instance.has_held_messages();
        let can_move = !header.suspended && has_step;
        !header.status.is_terminal() && (header.closing.is_some() || can_move)
    }

    fn run_branch(&mut self, branch: BranchId) -> Result<(), CorruptInstance> {
        match &self.instance.branch(branch)?.phase {
            Phase::Ready => self.enter_state(branch),
            Phase::FanOut(_) => self.fan_out_step(branch),
            Phase::Collapsing(_) => self.collapse_step(branch),
            Phase::Compensating(progress) if progress.call.is_none() => self.compensation_step(branch),
            _ => {
                self.mark_idle(branch);
                Ok(())
            }
        }
    }

    /// Ends the turn and returns its output.
    pub(super) fn finish(mut self, consumed: usize) -> Result<Turn, CorruptInstance> {
        if !self.history.is_empty() {
            self.record(Fact::OrchestratorCompleted);
        }
        Ok(Turn {
            consumed,
            has_more_work: self.has_work(),
            changes: self.instance.take_changes()?,
            status: self.instance.status(),
            refusals: self.refusals,
            history: self.history,
            commands: self.commands,
            failed_calls: self.failed_calls,
            next_run: self.next_run,
        })
    }

    pub(super) fn emit(&mut self, kind: CommandKind) -> CommandId {
        let id = self.instance.next_command();
        self.commands.push(Command { id, kind });
        id
    }

    /// Appends to history. Before the first fact of a turn, it records `OrchestratorStarted`.
    pub(super) fn record(&mut self, fact: Fact) {
        if self.history.is_empty() {
            self.append(Fact::OrchestratorStarted);
        }
        self.append(fact);
    }

    fn append(&mut self, fact: Fact) {
        let now = self.now;
        let header = self.instance.header_mut();
        header.history_count = header.history_count.saturating_add(1);
        header.updated_at = now;
        self.history.push(HistoryEvent { sequence: header.history_count, timestamp: now, fact });
    }

    pub(super) fn record_note(&mut self, note: Note) {
        self.record(Fact::GenericEvent { note });
    }

    /// Makes a branch the next one to run.
    pub(super) fn mark_ready(&mut self, branch: BranchId) {
        if !self.instance.header().ready_branches.contains(&branch) {
            self.instance.header_mut().ready_branches.push(branch);
        }
    }

    /// Removes a branch from the ready branches.
    pub(super) fn mark_idle(&mut self, branch: BranchId) {
        self.instance.header_mut().ready_branches.retain(|ready| *ready != branch);
    }

    pub(super) fn set_phase(&mut self, branch: BranchId, phase: Phase) -> Result<(), CorruptInstance> {
        self.instance.set_phase(branch, phase)
    }

    pub(super) fn scope(&self, branch: BranchId) -> Scope<'_> {
        self.scope_at(branch, self.now)
    }

    /// As `scope`, but with another current time.
    pub(super) fn scope_at(&self, branch: BranchId, now: Timestamp) -> Scope<'_> {
        Scope { plan: self.plan, instance: self.instance, branch, now, event: None, budget: &self.budget }
    }

    /// A branch and its current state.
    pub(super) fn branch_and_state(&self, branch: BranchId) -> Result<(&Branch, &'a State), CorruptInstance> {
        let branch = self.instance.branch(branch)?;
        Ok((branch, self.plan.state(branch.state)?))
    }

    /// Renders a template within the payload limits.
    pub(super) fn render(&mut self, branch: BranchId, template: Option<&Template>) -> Result<Json, Failure> {
        self.render_within(branch, template, self.now, self.limits.payload_bytes_max)
    }

    /// Renders the input of a task's activity, which may be larger than other payloads, as of this time.
    pub(super) fn render_call_at(
        &mut self,
        branch: BranchId,
        template: Option<&Template>,
        now: Timestamp,
    ) -> Result<Json, Failure> {
        self.render_within(
            branch,
            template,
            now,
            self.limits.call_bytes_max.max(self.limits.payload_bytes_max),
        )
    }

    fn render_within(
        &mut self,
        branch: BranchId,
        template: Option<&Template>,
        now: Timestamp,
        bytes_max: u64,
    ) -> Result<Json, Failure> {
        let Some(template) = template else {
            return Ok(Arc::new(Value::Null));
        };
        let value = template
            .render(&Scope { now, ..self.scope(branch) }, bytes_max)
            .map_err(|error| render_failure(&error))?;
        check_storable(&value, bytes_max)?;
        self.count_bytes(json::size(&value));
        Ok(Arc::new(value))
    }

    /// Counts a payload that is already known to be within limits.
    pub(super) fn count_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts an error from outside, with all its copies: it is recorded where it arrives and where it leads, and
    /// stored for `$.error` and the outcome.
    pub(super) fn count_failure(&mut self, failure: &Failure) {
        const COPIES: u64 = 4;
        self.count_bytes(COPIES * (failure.message.len() + failure.code.len()) as u64);
    }

    /// Counts a payload against the turn, or rejects it.
    pub(super) fn admit_payload(&mut self, value: &Value) -> Result<(), Failure> {
        check_storable(value, self.limits.payload_bytes_max)?;
        self.count_bytes(json::size(value));
        Ok(())
    }

    /// The identity of a branch's current piece of work; `below` distinguishes several pieces of one state.
    pub(super) fn step_identity(
        &self,
        branch: BranchId,
        below: &str,
    ) -> Result<StepIdentity, CorruptInstance> {
        let (at, state) = self.branch_and_state(branch)?;
        let visit = at.visit;
        let redrive = at.redrive;
        let mut parent = at.parent;
        let fan_out_path = match parent {
            Some(link) => Some(self.branch_and_state(link.branch)?.1.path.clone()),
            None => None,
        };
        let mut fan_outs = Vec::new();
        while let Some(link) = parent {
            let owner = self.instance.branch(link.branch)?;
            fan_outs.push(FanOutPosition { visit: owner.visit, redrive: owner.redrive, index: link.index });
            parent = owner.parent;
        }
        fan_outs.reverse();
        Ok(StepIdentity { path: format!("{}{below}", state.path), visit, redrive, fan_outs, fan_out_path })
    }
}

/// Checks that a value may be stored: its size is within the limit, and its depth can be read again. The depth is
/// checked first, because measuring the size recurses.
pub(super) fn check_storable(value: &Value, max: u64) -> Result<(), Failure> {
    if !json::depth_within(value, JSON_DEPTH_MAX) {
        let message = format!("a value is nested more than {JSON_DEPTH_MAX} levels deep");
        return Err(Failure::permanent(code::DEPTH_EXCEEDED, message));
    }
    let bytes = json::size(value);
    if bytes > max {
        let message = format!("a payload of {bytes} bytes exceeds the limit of {max}");
        return Err(Failure::permanent(code::PAYLOAD_TOO_LARGE, message));
    }
    Ok(())
}

/// The error that a state raises for a template that could not be rendered.
pub(super) fn render_failure(error: &RenderError) -> Failure {
    match error {
        RenderError::Read(error) => read_failure(error),
        RenderError::TooLarge { .. } => Failure::permanent(code::PAYLOAD_TOO_LARGE, error.to_string()),
    }
}

/// The error that a state raises for a path that could not be read.
pub(super) fn read_failure(error: &ReadError) -> Failure {
    let code = match error {
        ReadError::Missing(_) => code::PATH_MISSING,
        ReadError::LimitExceeded(_) => code::EVALUATION_LIMIT_EXCEEDED,
    };
    Failure::permanent(code, error.to_string())
}

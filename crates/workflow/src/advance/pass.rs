//! The hands of a turn: what it has recorded and asked for so far, and how much room is left.
//!
//! Knows how to emit, record and read; knows no state type.

use std::sync::Arc;

use serde_json::Value;

use crate::command::{Command, CommandKind, Lineage, StepIdentity};
use crate::definition::State;
use crate::failure::{Failure, code};
use crate::history::{Fact, HistoryEvent, Note};
use crate::ids::{BlockId, BranchId, CommandId};
use crate::instance::{Branch, Corrupt, Ending, Instance, Phase, Status};
use crate::json::{self, Json};
use crate::limits::{Limits, TurnLimits, definition::JSON_DEPTH_MAX};
use crate::message::Refusal;
use crate::path::{Template, Unfilled};
use crate::plan::Plan;
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::turn::{GivenUp, Turn};

/// Commands one step emits at most: a child with its timer, or cancelling both.
const STEP_COMMANDS_MAX: usize = 4;

/// A turn in the making.
pub(super) struct Pass<'a> {
    pub(super) plan: &'a Plan,
    pub(super) instance: &'a mut Instance,
    pub(super) now: Timestamp,
    pub(super) limits: &'a Limits,
    turn: TurnLimits,
    history: Vec<HistoryEvent>,
    commands: Vec<Command>,
    pub(super) given_up: Vec<(CommandId, GivenUp)>,
    pub(super) refused: Vec<(usize, Refusal)>,
    pub(super) next_run: Option<Box<Instance>>,
    bytes: u64,
    steps: usize,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        instance: &'a mut Instance,
        now: Timestamp,
        limits: &'a Limits,
    ) -> Self {
        // A clock that jumps back must not make history go back.
        let now = now.max(instance.updated_at());
        Self {
            plan,
            instance,
            now,
            limits,
            turn: limits.turn.at_least_floor(limits.payload_bytes_max),
            history: Vec::new(),
            commands: Vec::new(),
            given_up: Vec::new(),
            refused: Vec::new(),
            next_run: None,
            bytes: 0,
            steps: 0,
        }
    }

    /// The first turn of a run.
    pub(super) fn begin(&mut self) -> Result<(), Corrupt> {
        if self.instance.status() != Status::Pending {
            return Ok(());
        }
        let now = self.now;
        let header = self.instance.header_mut();
        header.status = Status::Running;
        header.started_at = now;
        let input = self.instance.origin().input.clone();
        let admitted = self.admit(&input);
        if admitted.is_err() {
            // What cannot be kept must not be stored: it might not be readable again.
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
        let start = self.plan.start_of(BlockId::TOP)?;
        let root = self.instance.add_branch(None, BlockId::TOP, start, now);
        self.wake(root);
        self.start_workflow_timer();
        if let Err(failure) = admitted {
            self.close(Ending::Fail(failure));
        }
        Ok(())
    }

    /// Whether another step fits, whatever it does.
    pub(super) fn has_room(&self) -> bool {
        self.commands.len() + STEP_COMMANDS_MAX <= self.turn.commands_max
            && self.bytes.saturating_add(self.limits.payload_bytes_max) <= self.turn.bytes_max
            && self.steps < self.turn.steps_max
    }

    pub(super) fn messages_max(&self) -> usize {
        self.turn.messages_max
    }

    /// Does one piece of work that needs no message; false if there is none.
    pub(super) fn step(&mut self) -> Result<bool, Corrupt> {
        let header = self.instance.header();
        if header.status.is_terminal() {
            return Ok(false);
        }
        if header.closing.is_some() {
            self.steps += 1;
            self.close_step()?;
        } else if header.suspended {
            return Ok(false);
        } else if let Some(branch) = header.ready.last().copied() {
            self.steps += 1;
            self.run_branch(branch)?;
        } else if header.rewind_from.is_some() {
            self.steps += 1;
            self.rewind_step()?;
        } else if let Some(message) = self.instance.take_held() {
            self.steps += 1;
            self.instance.header_mut().entered_since_message = 0;
            self.apply(message)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn has_work(&self) -> bool {
        let header = self.instance.header();
        let in_hand = !header.ready.is_empty() || header.rewind_from.is_some() || self.instance.has_held();
        let moving = !header.suspended && in_hand;
        !header.status.is_terminal() && (header.closing.is_some() || moving)
    }

    fn run_branch(&mut self, branch: BranchId) -> Result<(), Corrupt> {
        match &self.instance.branch(branch)?.phase {
            Phase::Ready => self.enter(branch),
            Phase::FanOut(_) => self.expand(branch),
            Phase::Collapsing(_) => self.collapse_step(branch),
            Phase::Undoing(undoing) if undoing.delivery.is_none() => self.undo_next(branch),
            _ => {
                self.rest(branch);
                Ok(())
            }
        }
    }

    /// What the turn came to.
    pub(super) fn finish(mut self, consumed: usize) -> Result<Turn, Corrupt> {
        if !self.history.is_empty() {
            self.record(Fact::OrchestratorCompleted);
        }
        Ok(Turn {
            consumed,
            unfinished: self.has_work(),
            changes: self.instance.take_changes()?,
            status: self.instance.status(),
            refused: self.refused,
            history: self.history,
            commands: self.commands,
            given_up: self.given_up,
            next_run: self.next_run,
        })
    }

    pub(super) fn emit(&mut self, kind: CommandKind) -> CommandId {
        let id = self.instance.next_command();
        self.commands.push(Command { id, kind });
        id
    }

    /// Appends to history. The first fact of a turn opens it.
    pub(super) fn record(&mut self, fact: Fact) {
        if self.history.is_empty() {
            self.append(Fact::OrchestratorStarted);
        }
        self.append(fact);
    }

    fn append(&mut self, fact: Fact) {
        let now = self.now;
        let header = self.instance.header_mut();
        header.history = header.history.saturating_add(1);
        header.updated_at = now;
        self.history.push(HistoryEvent { sequence: header.history, timestamp: now, fact });
    }

    pub(super) fn note(&mut self, note: Note) {
        self.record(Fact::GenericEvent { note });
    }

    /// Puts a branch in front of whatever is to be done.
    pub(super) fn wake(&mut self, branch: BranchId) {
        if !self.instance.header().ready.contains(&branch) {
            self.instance.header_mut().ready.push(branch);
        }
    }

    /// Takes a branch off what is to be done.
    pub(super) fn rest(&mut self, branch: BranchId) {
        self.instance.header_mut().ready.retain(|ready| *ready != branch);
    }

    pub(super) fn set_phase(&mut self, branch: BranchId, phase: Phase) -> Result<(), Corrupt> {
        self.instance.set_phase(branch, phase)
    }

    pub(super) fn scope(&self, branch: BranchId) -> Scope<'_> {
        Scope { plan: self.plan, instance: self.instance, branch, now: self.now, event: None }
    }

    /// A branch with the state it is in.
    pub(super) fn place(&self, branch: BranchId) -> Result<(&Branch, &'a State), Corrupt> {
        let branch = self.instance.branch(branch)?;
        Ok((branch, self.plan.state(branch.state)?))
    }

    /// Fills a template, within the limits on what may leave.
    pub(super) fn render(&mut self, branch: BranchId, template: Option<&Template>) -> Result<Json, Failure> {
        let Some(template) = template else {
            return Ok(Arc::new(Value::Null));
        };
        let value = template
            .render(&self.scope(branch), self.limits.payload_bytes_max)
            .map_err(|error| unfilled(&error))?;
        self.admit(&value)?;
        Ok(Arc::new(value))
    }

    /// Counts a payload that is already known to be within limits.
    pub(super) fn count_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts an error from outside: it is recorded where it came in and where it goes, and kept where it is seen.
    pub(super) fn count_failure(&mut self, failure: &Failure) {
        const COPIES: u64 = 4;
        self.count_bytes(COPIES * (failure.message.len() + failure.code.len()) as u64);
    }

    /// Counts a payload against the turn, or refuses it.
    pub(super) fn admit(&mut self, value: &Value) -> Result<(), Failure> {
        keepable(value, self.limits)?;
        self.count_bytes(json::size(value));
        Ok(())
    }

    /// Which piece of work a branch is at; `below` tells apart several pieces of one state.
    pub(super) fn identity(&self, branch: BranchId, below: &str) -> Result<StepIdentity, Corrupt> {
        let (at, state) = self.place(branch)?;
        let (visit, redrive, mut parent) = (at.visit, at.redrive, at.parent);
        let fanned_out_by = match parent {
            Some(link) => Some(self.place(link.branch)?.1.path.clone()),
            None => None,
        };
        let mut lineage = Vec::new();
        while let Some(link) = parent {
            let owner = self.instance.branch(link.branch)?;
            lineage.push(Lineage { visit: owner.visit, redrive: owner.redrive, index: link.index });
            parent = owner.parent;
        }
        lineage.reverse();
        Ok(StepIdentity { path: format!("{}{below}", state.path), visit, redrive, lineage, fanned_out_by })
    }
}

/// Whether a value may be kept: within the limits on size, and of a depth that can be read again. Depth first: what measures
/// recurses.
pub(super) fn keepable(value: &Value, limits: &Limits) -> Result<(), Failure> {
    if !json::depth_within(value, JSON_DEPTH_MAX) {
        let message = format!("a value is nested more than {JSON_DEPTH_MAX} levels deep");
        return Err(Failure::last(code::DEPTH_EXCEEDED, message));
    }
    let (bytes, max) = (json::size(value), limits.payload_bytes_max);
    if bytes > max {
        let message = format!("a payload of {bytes} bytes exceeds the limit of {max}");
        return Err(Failure::last(code::PAYLOAD_TOO_LARGE, message));
    }
    Ok(())
}

/// The error a state raises for a template that could not be filled.
pub(super) fn unfilled(unfilled: &Unfilled) -> Failure {
    let code = match unfilled {
        Unfilled::Missing(_) => code::PATH_MISSING,
        Unfilled::TooLarge { .. } => code::PAYLOAD_TOO_LARGE,
    };
    Failure::last(code, unfilled.to_string())
}

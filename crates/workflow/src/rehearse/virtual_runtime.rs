//! The simulated runtime of a rehearsal: one queue of scheduled events, ordered by virtual time. It stores nothing.

mod children;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::{ActivityAttempt, DEFAULT_ATTEMPT_TIMEOUT, MockOutcome, Playback, Rehearsal, Stimulus};
use crate::advance::advance;
use crate::command::{Command, CommandKind, StartActivity};
use crate::failure::{Failure, code};
use crate::history::HistoryEvent;
use crate::ids::{CommandId, InstanceId, RunNumber};
use crate::instance::{CorruptInstance, Instance, Outcome, PartKey, RunOrigin};
use crate::message::{Message, MessageRefusal};
use crate::plan::Plan;
use crate::time::Timestamp;

pub(super) struct VirtualRuntime<'a> {
    rehearsal: Rehearsal<'a>,
    instances: Vec<RehearsedInstance<'a>>,
    queue: BTreeMap<(Timestamp, u64), ScheduledEvent>,
    sequence: u64,
    now: Timestamp,
    call_count: usize,
    mock_positions: BTreeMap<String, usize>,
    unmocked: BTreeSet<String>,
    attempts: Vec<ActivityAttempt>,
    timeline: Vec<(InstanceId, HistoryEvent)>,
    refusals: Vec<String>,
    turns: usize,
}

/// An instance with its stored parts, inbox, calls and children.
struct RehearsedInstance<'a> {
    plan: &'a Plan,
    instance: Instance,
    parent: Option<(usize, CommandId)>,
    parts: BTreeMap<PartKey, Vec<u8>>,
    inbox: VecDeque<Message>,
    calls: BTreeMap<CommandId, (StartActivity, bool)>,
    children: BTreeMap<CommandId, usize>,
    cancelled: BTreeSet<CommandId>,
}

enum ScheduledEvent {
    Attempt { instance: usize, call: CommandId, attempt: u32 },
    Message { instance: usize, message: Message },
}

impl<'a> VirtualRuntime<'a> {
    pub(super) fn new(rehearsal: Rehearsal<'a>) -> Self {
        Self {
            now: rehearsal.start,
            instances: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            call_count: 0,
            mock_positions: BTreeMap::new(),
            unmocked: BTreeSet::new(),
            attempts: Vec::new(),
            timeline: Vec::new(),
            refusals: Vec::new(),
            turns: 0,
            rehearsal,
        }
    }

    pub(super) fn play(mut self) -> Result<Playback, CorruptInstance> {
        let id = InstanceId::new("rehearsal").map_err(|error| CorruptInstance::new(error.to_string()))?;
        let mut origin = RunOrigin::new(id, RunNumber(1), self.rehearsal.plan);
        origin.input = Arc::new(std::mem::take(&mut self.rehearsal.input));
        self.add_instance(self.rehearsal.plan, origin, None);
        for (at, stimulus) in std::mem::take(&mut self.rehearsal.stimuli) {
            let message = stimulus_message(stimulus);
            self.schedule(self.now.plus(at), ScheduledEvent::Message { instance: 0, message });
        }
        self.run_turns(0)?;
        while self.turns < self.rehearsal.turns_max {
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            match event {
                ScheduledEvent::Attempt { instance, call, attempt } => {
                    self.run_attempt(instance, call, attempt)
                }
                ScheduledEvent::Message { instance, message } => self.deliver_message(instance, message)?,
            }
        }
        self.playback()
    }

    fn playback(self) -> Result<Playback, CorruptInstance> {
        let turn_limit_reached = !self.queue.is_empty();
        let mocks = &self.rehearsal.mocks;
        let workflows = mocks.workflows.keys().map(|name| format!("workflow {name}"));
        let unused_mocks = mocks
            .activities
            .keys()
            .cloned()
            .chain(workflows)
            .filter(|name| !self.mock_positions.contains_key(name))
            .collect();
        let main = self
            .instances
            .into_iter()
            .next()
            .ok_or_else(|| CorruptInstance::new("the rehearsal has no instance"))?;
        let outcome = main.instance.outcome().cloned();
        Ok(Playback {
            status: main.instance.status(),
            current_states: if outcome.is_none() {
                main.instance.current_states(main.plan)
            } else {
                Vec::new()
            },
            outcome,
            timeline: self.timeline,
            attempts: self.attempts,
            unmocked: self.unmocked.into_iter().collect(),
            unused_mocks,
            unconsumed_events: main.instance.unconsumed_events(),
            refusals: self.refusals,
            turns: self.turns,
            turn_limit_reached,
        })
    }

    fn add_instance(
        &mut self,
        plan: &'a Plan,
        origin: RunOrigin,
        parent: Option<(usize, CommandId)>,
    ) -> usize {
        self.instances.push(RehearsedInstance {
            plan,
            instance: Instance::pending(origin, self.now),
            parent,
            parts: BTreeMap::new(),
            inbox: VecDeque::new(),
            calls: BTreeMap::new(),
            children: BTreeMap::new(),
            cancelled: BTreeSet::new(),
        });
        self.instances.len() - 1
    }

    fn schedule(&mut self, at: Timestamp, event: ScheduledEvent) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    fn deliver_message(&mut self, number: usize, message: Message) -> Result<(), CorruptInstance> {
        let Some(rehearsed) = self.instances.get_mut(number) else { return Ok(()) };
        let is_cancelled = match &message {
            Message::TimerFired { timer: command }
            | Message::ActivityCompleted { command, .. }
            | Message::ActivityFailed { command, .. }
            | Message::ActivityDeferred { command, .. }
            | Message::ActivityUnanswered { command, .. } => rehearsed.cancelled.contains(command),
            _ => false,
        };
        if is_cancelled {
            return Ok(());
        }
        rehearsed.inbox.push_back(message);
        self.run_turns(number)
    }

    /// Runs turns until the instance waits.
    fn run_turns(&mut self, number: usize) -> Result<(), CorruptInstance> {
        loop {
            if self.turns >= self.rehearsal.turns_max {
                return Ok(());
            }
            self.turns += 1;
            let Some(rehearsed) = self.instances.get_mut(number) else { return Ok(()) };
            let inbox: Vec<Message> = rehearsed.inbox.iter().cloned().collect();
            let mut turn =
                advance(rehearsed.plan, &mut rehearsed.instance, &inbox, self.now, &self.rehearsal.limits)?;
            rehearsed.inbox.drain(..turn.consumed.min(rehearsed.inbox.len()));
            if self.rehearsal.reload {
                rehearsed.store(&turn.changes);
                rehearsed.reload()?;
            }
            let id = rehearsed.instance.origin().instance_id.clone();
            self.timeline.extend(turn.history.drain(..).map(|event| (id.clone(), event)));
            let from_outside = |(position, _): &&(usize, MessageRefusal)| {
                inbox.get(*position).is_some_and(|m| !is_command_result(m))
            };
            self.refusals
                .extend(turn.refusals.iter().filter(from_outside).map(|(_, refusal)| refusal.to_string()));
            let next_run = turn.next_run.take();
            let has_more_work = turn.has_more_work || next_run.is_some();
            for command in turn.commands {
                self.execute_command(number, command)?;
            }
            if let Some(next) = next_run {
                self.begin_next_run(number, *next);
            }
            let has_messages =
                self.instances.get(number).is_some_and(|rehearsed| !rehearsed.inbox.is_empty());
            if !has_more_work && !has_messages {
                return Ok(());
            }
        }
    }

    /// A command's number means nothing in the next run: results for the old run must not reach it.
    fn begin_next_run(&mut self, number: usize, next: Instance) {
        self.queue.retain(|_, event| !event.is_result_for(number));
        if let Some(rehearsed) = self.instances.get_mut(number) {
            rehearsed.instance = next;
            rehearsed.parts.clear();
            rehearsed.calls.clear();
            rehearsed.children.clear();
            rehearsed.cancelled.clear();
        }
    }

    fn execute_command(&mut self, number: usize, command: Command) -> Result<(), CorruptInstance> {
        let Some(rehearsed) = self.instances.get_mut(number) else { return Ok(()) };
        match command.kind {
            CommandKind::StartActivity(call) => {
                let has_fault = self.rehearsal.mocks.fault_at_call == Some(self.call_count);
                self.call_count += 1;
                rehearsed.calls.insert(command.id, (call, has_fault));
                let event = ScheduledEvent::Attempt { instance: number, call: command.id, attempt: 0 };
                self.schedule(self.now, event);
            }
            CommandKind::RetryActivity { call, attempt, not_before } => {
                self.schedule(not_before, ScheduledEvent::Attempt { instance: number, call, attempt });
            }
            CommandKind::CancelActivity { call: command } | CommandKind::CancelTimer { timer: command } => {
                rehearsed.cancelled.insert(command);
            }
            CommandKind::StartTimer { fire_at } => {
                let message = Message::TimerFired { timer: command.id };
                self.schedule(fire_at, ScheduledEvent::Message { instance: number, message });
            }
            CommandKind::StartChild(child) => return self.start_child(number, command.id, child),
            CommandKind::TerminateChild { child } => {
                if let Some(child) = rehearsed.children.get(&child).copied() {
                    let message =
                        Message::Terminate { reason: "the parent run ended or moved on".to_owned() };
                    self.schedule(self.now, ScheduledEvent::Message { instance: child, message });
                }
            }
            CommandKind::Complete { output } => {
                self.notify_parent(number, |command| Message::ChildCompleted { command, output });
            }
            CommandKind::Fail { failure } => {
                self.notify_parent(number, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::Terminate { reason } => {
                let failure = Failure::permanent("Terminated", reason);
                self.notify_parent(number, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::ContinueAsNew => {}
        }
        Ok(())
    }

    /// Runs one attempt: the mocked outcome, within the attempt's time limit and before the step's deadline.
    fn run_attempt(&mut self, number: usize, command: CommandId, attempt: u32) {
        let Some(rehearsed) = self.instances.get(number) else { return };
        if rehearsed.cancelled.contains(&command) {
            return;
        }
        let Some((call, has_fault)) = rehearsed.calls.get(&command).cloned() else { return };
        let instance = rehearsed.instance.origin().instance_id.clone();
        let outcome = if has_fault {
            let message = "fault injection: this call was made to fail";
            MockOutcome::Error(Default::default(), Failure::permanent("Sabotaged", message))
        } else {
            let mocked = self.next_mock_outcome(&call.activity, |mocks| mocks.activities.get(&call.activity));
            mocked.unwrap_or_else(|| {
                self.unmocked.insert(call.activity.clone());
                MockOutcome::Result(Default::default(), Value::Null)
            })
        };
        let attempt_end = self.now.plus(call.attempt_timeout.unwrap_or(DEFAULT_ATTEMPT_TIMEOUT));
        let limit = call.deadline.map_or(attempt_end, |deadline| deadline.min(attempt_end));
        let failed = |failure| Message::ActivityFailed { command, attempt, failure };
        let completed = |result| Message::ActivityCompleted { command, result };
        let (at, message) = match outcome {
            MockOutcome::Result(after, value) => (Some(self.now.plus(after)), completed(Arc::new(value))),
            MockOutcome::Echo(after) => (Some(self.now.plus(after)), completed(call.input.clone())),
            MockOutcome::Error(after, failure) => (Some(self.now.plus(after)), failed(failure)),
            MockOutcome::Never => (None, completed(Arc::default())),
        };
        let (at, message) = match at {
            Some(at) if at <= limit => (at, message),
            _ if call.deadline == Some(limit) => {
                (limit, failed(Failure::permanent(code::TIMEOUT, "the step's deadline has passed")))
            }
            _ => (limit, failed(Failure::retryable(code::ATTEMPT_TIMEOUT, "the attempt timed out"))),
        };
        self.attempts.push(ActivityAttempt {
            instance,
            activity: call.activity.clone(),
            step: call.step.path.clone(),
            input: (*call.input).clone(),
            attempt,
            at: self.now,
            succeeded: matches!(message, Message::ActivityCompleted { .. }),
        });
        self.schedule(at, ScheduledEvent::Message { instance: number, message });
    }

    fn next_mock_outcome(
        &mut self,
        key: &str,
        outcomes: impl FnOnce(&super::Mocks) -> Option<&Vec<MockOutcome>>,
    ) -> Option<MockOutcome> {
        let outcomes = outcomes(&self.rehearsal.mocks)?;
        let position = self.mock_positions.entry(key.to_owned()).or_insert(0);
        let outcome = outcomes.get(*position).or_else(|| outcomes.last()).cloned();
        *position += 1;
        outcome
    }
}

impl RehearsedInstance<'_> {
    fn store(&mut self, changes: &[crate::turn::PartChange]) {
        for change in changes {
            match &change.value {
                Some(bytes) => self.parts.insert(change.key.clone(), bytes.clone()),
                None => self.parts.remove(&change.key),
            };
        }
    }

    fn reload(&mut self) -> Result<(), CorruptInstance> {
        self.instance =
            Instance::load(self.parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice())))?;
        Ok(())
    }
}

impl ScheduledEvent {
    /// True if it is the result of a command of this instance's run, rather than a message from outside.
    fn is_result_for(&self, number: usize) -> bool {
        match self {
            Self::Attempt { instance, .. } => *instance == number,
            Self::Message { instance, message } => *instance == number && is_command_result(message),
        }
    }
}

/// True if a message is the result of a command, rather than coming from outside.
fn is_command_result(message: &Message) -> bool {
    matches!(
        message,
        Message::TimerFired { .. }
            | Message::ActivityCompleted { .. }
            | Message::ActivityFailed { .. }
            | Message::ActivityDeferred { .. }
            | Message::ActivityUnanswered { .. }
            | Message::ActivityResultRejected { .. }
            | Message::ChildCompleted { .. }
            | Message::ChildFailed { .. }
    )
}

fn stimulus_message(stimulus: Stimulus) -> Message {
    let reason = "the rehearsal's events file".to_owned();
    match stimulus {
        Stimulus::Event { name, data } => Message::EventRaised { name, payload: Arc::new(data) },
        Stimulus::Suspend => Message::Suspend { reason },
        Stimulus::Resume => Message::Resume { reason },
        Stimulus::Terminate => Message::Terminate { reason },
        Stimulus::Rewind => Message::Rewind { reason },
    }
}

impl Playback {
    /// True if the main run completed.
    pub fn succeeded(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Completed(_)))
    }
}

//! The world of a rehearsal: one queue of what is going to happen, ordered by virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::{ATTEMPT_TIMEOUT, Answer, Delivered, Playback, Rehearsal, Stimulus};
use crate::advance::advance;
use crate::command::{Command, CommandKind, StartActivity, StartChild};
use crate::failure::{Failure, code};
use crate::history::HistoryEvent;
use crate::ids::{CommandId, InstanceId, RunNumber};
use crate::instance::{Corrupt, Instance, Origin, Outcome, ParentLink, PartKey};
use crate::message::{Message, Refusal};
use crate::plan::Plan;
use crate::time::Timestamp;

pub(super) struct World<'a> {
    rehearsal: Rehearsal<'a>,
    actors: Vec<Actor<'a>>,
    queue: BTreeMap<(Timestamp, u64), Happening>,
    sequence: u64,
    now: Timestamp,
    dispatches: usize,
    answered: BTreeMap<String, usize>,
    unmocked: BTreeSet<String>,
    playback_deliveries: Vec<Delivered>,
    timeline: Vec<(InstanceId, HistoryEvent)>,
    refusals: Vec<String>,
    turns: usize,
}

/// An instance with what belongs to it.
struct Actor<'a> {
    plan: &'a Plan,
    instance: Instance,
    parent: Option<(usize, CommandId)>,
    parts: BTreeMap<PartKey, Vec<u8>>,
    inbox: VecDeque<Message>,
    calls: BTreeMap<CommandId, (StartActivity, bool)>,
    children: BTreeMap<CommandId, usize>,
    dropped: BTreeSet<CommandId>,
}

enum Happening {
    Deliver { actor: usize, dispatch: CommandId, attempt: u32 },
    Arrive { actor: usize, message: Message },
}

impl<'a> World<'a> {
    pub(super) fn new(rehearsal: Rehearsal<'a>) -> Self {
        Self {
            now: rehearsal.start,
            actors: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            dispatches: 0,
            answered: BTreeMap::new(),
            unmocked: BTreeSet::new(),
            playback_deliveries: Vec::new(),
            timeline: Vec::new(),
            refusals: Vec::new(),
            turns: 0,
            rehearsal,
        }
    }

    pub(super) fn play(mut self) -> Result<Playback, Corrupt> {
        let id = InstanceId::new("rehearsal").map_err(|error| Corrupt::new(error.to_string()))?;
        let mut origin = Origin::new(id, RunNumber(1), self.rehearsal.plan);
        origin.input = Arc::new(std::mem::take(&mut self.rehearsal.input));
        self.add_actor(self.rehearsal.plan, origin, None);
        for (at, stimulus) in std::mem::take(&mut self.rehearsal.stimuli) {
            let message = outside(stimulus);
            self.schedule(self.now.plus(at), Happening::Arrive { actor: 0, message });
        }
        self.run_actor(0)?;
        while self.turns < self.rehearsal.turns_max {
            let Some(((at, _), happening)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            match happening {
                Happening::Deliver { actor, dispatch, attempt } => self.deliver(actor, dispatch, attempt),
                Happening::Arrive { actor, message } => self.arrive(actor, message)?,
            }
        }
        self.playback()
    }

    fn playback(self) -> Result<Playback, Corrupt> {
        let gave_up = !self.queue.is_empty();
        let mocks = &self.rehearsal.mocks;
        let workflows = mocks.workflows.keys().map(|name| format!("workflow {name}"));
        let unused_mocks = mocks
            .activities
            .keys()
            .cloned()
            .chain(workflows)
            .filter(|name| !self.answered.contains_key(name))
            .collect();
        let main = self.actors.into_iter().next().ok_or_else(|| Corrupt::new("nothing was played"))?;
        let outcome = main.instance.outcome().cloned();
        Ok(Playback {
            status: main.instance.status(),
            waiting: if outcome.is_none() { main.instance.current_states(main.plan) } else { Vec::new() },
            outcome,
            timeline: self.timeline,
            deliveries: self.playback_deliveries,
            unmocked: self.unmocked.into_iter().collect(),
            unused_mocks,
            untaken_events: main.instance.untaken_events(),
            refusals: self.refusals,
            turns: self.turns,
            gave_up,
        })
    }

    fn add_actor(&mut self, plan: &'a Plan, origin: Origin, parent: Option<(usize, CommandId)>) -> usize {
        self.actors.push(Actor {
            plan,
            instance: Instance::pending(origin, self.now),
            parent,
            parts: BTreeMap::new(),
            inbox: VecDeque::new(),
            calls: BTreeMap::new(),
            children: BTreeMap::new(),
            dropped: BTreeSet::new(),
        });
        self.actors.len() - 1
    }

    fn schedule(&mut self, at: Timestamp, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    fn arrive(&mut self, actor: usize, message: Message) -> Result<(), Corrupt> {
        let Some(to) = self.actors.get_mut(actor) else { return Ok(()) };
        let dropped = match &message {
            Message::TimerFired { timer: command }
            | Message::ActivityCompleted { command, .. }
            | Message::ActivityFailed { command, .. }
            | Message::ActivityDeferred { command, .. } => to.dropped.contains(command),
            _ => false,
        };
        if dropped {
            return Ok(());
        }
        to.inbox.push_back(message);
        self.run_actor(actor)
    }

    /// Turns until the instance rests.
    fn run_actor(&mut self, number: usize) -> Result<(), Corrupt> {
        loop {
            if self.turns >= self.rehearsal.turns_max {
                return Ok(());
            }
            self.turns += 1;
            let Some(actor) = self.actors.get_mut(number) else { return Ok(()) };
            let inbox: Vec<Message> = actor.inbox.iter().cloned().collect();
            let mut turn =
                advance(actor.plan, &mut actor.instance, &inbox, self.now, &self.rehearsal.limits)?;
            actor.inbox.drain(..turn.consumed.min(actor.inbox.len()));
            if self.rehearsal.reload {
                actor.store(&turn.changes);
                actor.reload()?;
            }
            let id = actor.instance.origin().instance_id.clone();
            self.timeline.extend(turn.history.drain(..).map(|event| (id.clone(), event)));
            let from_outside =
                |(position, _): &&(usize, Refusal)| inbox.get(*position).is_some_and(|m| !is_answer(m));
            self.refusals
                .extend(turn.refused.iter().filter(from_outside).map(|(_, refusal)| refusal.to_string()));
            let next_run = turn.next_run.take();
            let unfinished = turn.unfinished || next_run.is_some();
            for command in turn.commands {
                self.obey(number, command)?;
            }
            if let Some(next) = next_run {
                self.begin_next_run(number, *next);
            }
            let waiting = self.actors.get(number).is_some_and(|actor| !actor.inbox.is_empty());
            if !unfinished && !waiting {
                return Ok(());
            }
        }
    }

    /// A command's number means nothing in the next run: what the old one has out must not reach it.
    fn begin_next_run(&mut self, number: usize, next: Instance) {
        self.queue.retain(|_, happening| !happening.answers(number));
        if let Some(actor) = self.actors.get_mut(number) {
            actor.instance = next;
            actor.parts.clear();
            actor.calls.clear();
            actor.children.clear();
            actor.dropped.clear();
        }
    }

    fn obey(&mut self, number: usize, command: Command) -> Result<(), Corrupt> {
        let Some(actor) = self.actors.get_mut(number) else { return Ok(()) };
        match command.kind {
            CommandKind::StartActivity(call) => {
                let sabotaged = self.rehearsal.mocks.sabotage == Some(self.dispatches);
                self.dispatches += 1;
                actor.calls.insert(command.id, (call, sabotaged));
                let happening = Happening::Deliver { actor: number, dispatch: command.id, attempt: 0 };
                self.schedule(self.now, happening);
            }
            CommandKind::Redeliver { dispatch, attempt, not_before } => {
                self.schedule(not_before, Happening::Deliver { actor: number, dispatch, attempt });
            }
            CommandKind::CancelActivity { dispatch: command }
            | CommandKind::CancelTimer { timer: command } => {
                actor.dropped.insert(command);
            }
            CommandKind::StartTimer { fire_at } => {
                let message = Message::TimerFired { timer: command.id };
                self.schedule(fire_at, Happening::Arrive { actor: number, message });
            }
            CommandKind::StartChild(child) => return self.start_child(number, command.id, child),
            CommandKind::TerminateChild { child } => {
                if let Some(child) = actor.children.get(&child).copied() {
                    let message =
                        Message::Terminate { reason: "the parent run ended or moved on".to_owned() };
                    self.schedule(self.now, Happening::Arrive { actor: child, message });
                }
            }
            CommandKind::Complete { output } => {
                self.tell_parent(number, |command| Message::ChildCompleted { command, output });
            }
            CommandKind::Fail { failure } => {
                self.tell_parent(number, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::Terminate { reason } => {
                let failure = Failure::last("Terminated", reason);
                self.tell_parent(number, |command| Message::ChildFailed { command, failure });
            }
            CommandKind::ContinueAsNew => {}
        }
        Ok(())
    }

    fn tell_parent(&mut self, number: usize, message: impl FnOnce(CommandId) -> Message) {
        if let Some((parent, command)) = self.actors.get(number).and_then(|actor| actor.parent) {
            self.schedule(self.now, Happening::Arrive { actor: parent, message: message(command) });
        }
    }

    fn start_child(&mut self, number: usize, command: CommandId, child: StartChild) -> Result<(), Corrupt> {
        let Some(parent) = self.actors.get(number) else { return Ok(()) };
        let link = ParentLink {
            instance_id: parent.instance.origin().instance_id.clone(),
            run: parent.instance.origin().run,
            command,
        };
        let plan = self.rehearsal.children.get(&child.workflow).copied();
        let plan =
            plan.filter(|plan| child.version.as_ref().is_none_or(|range| range.matches(plan.version())));
        let Some(plan) = plan else {
            let answer = self.next_answer(&format!("workflow {}", child.workflow), |mocks| {
                mocks.workflows.get(&child.workflow)
            });
            let message = match answer {
                None => {
                    self.unmocked.insert(format!("workflow {}", child.workflow));
                    let failure = Failure::last(code::WORKFLOW_NOT_FOUND, self.why_not_found(&child));
                    Some((self.now, Message::ChildFailed { command, failure }))
                }
                Some(Answer::Result(after, output)) => Some((
                    self.now.plus(after),
                    Message::ChildCompleted { command, output: Arc::new(output) },
                )),
                Some(Answer::Echo(after)) => {
                    Some((self.now.plus(after), Message::ChildCompleted { command, output: child.input }))
                }
                Some(Answer::Error(after, failure)) => {
                    Some((self.now.plus(after), Message::ChildFailed { command, failure }))
                }
                Some(Answer::Never) => None,
            };
            if let Some((at, message)) = message {
                self.schedule(at, Happening::Arrive { actor: number, message });
            }
            return Ok(());
        };
        if let Err(mismatches) = plan.check_input(&child.input) {
            let reason = mismatches.first().map(ToString::to_string).unwrap_or_default();
            let failure = Failure::last(code::INPUT_INVALID, reason);
            let message = Message::ChildFailed { command, failure };
            self.schedule(self.now, Happening::Arrive { actor: number, message });
            return Ok(());
        }
        let mut origin = Origin::new(child.instance_id, RunNumber(1), plan);
        origin.input = child.input;
        origin.parent = Some(link);
        let child = self.add_actor(plan, origin, Some((number, command)));
        if let Some(parent) = self.actors.get_mut(number) {
            parent.children.insert(command, child);
        }
        self.run_actor(child)
    }

    fn why_not_found(&self, child: &StartChild) -> String {
        let there = self.rehearsal.children.get(&child.workflow).map(|plan| plan.version());
        match (there, &child.version) {
            (Some(there), Some(asked)) => {
                format!("workflow {:?} is there in version {there}, and {asked} is asked for", child.workflow)
            }
            _ => format!("there is no workflow {:?}", child.workflow),
        }
    }

    /// One delivery: what the mock says, within the attempt's time and before the step's deadline.
    fn deliver(&mut self, number: usize, dispatch: CommandId, attempt: u32) {
        let Some(actor) = self.actors.get(number) else { return };
        if actor.dropped.contains(&dispatch) {
            return;
        }
        let Some((call, sabotaged)) = actor.calls.get(&dispatch).cloned() else { return };
        let instance = actor.instance.origin().instance_id.clone();
        let answer = if sabotaged {
            Answer::Error(Default::default(), Failure::last("Sabotaged", "this dispatch was made to fail"))
        } else {
            let known = self.next_answer(&call.activity, |mocks| mocks.activities.get(&call.activity));
            known.unwrap_or_else(|| {
                self.unmocked.insert(call.activity.clone());
                Answer::Result(Default::default(), Value::Null)
            })
        };
        let attempt_end = self.now.plus(call.attempt_timeout.unwrap_or(ATTEMPT_TIMEOUT));
        let limit = call.deadline.map_or(attempt_end, |deadline| deadline.min(attempt_end));
        let failed = |failure| Message::ActivityFailed { command: dispatch, attempt, failure };
        let completed = |result| Message::ActivityCompleted { command: dispatch, result };
        let (at, message) = match answer {
            Answer::Result(after, value) => (Some(self.now.plus(after)), completed(Arc::new(value))),
            Answer::Echo(after) => (Some(self.now.plus(after)), completed(call.input.clone())),
            Answer::Error(after, failure) => (Some(self.now.plus(after)), failed(failure)),
            Answer::Never => (None, completed(Arc::default())),
        };
        let (at, message) = match at {
            Some(at) if at <= limit => (at, message),
            _ if call.deadline == Some(limit) => {
                (limit, failed(Failure::last(code::TIMEOUT, "the step's deadline has passed")))
            }
            _ => (limit, failed(Failure::retryable(code::ATTEMPT_TIMEOUT, "the delivery took too long"))),
        };
        self.playback_deliveries.push(Delivered {
            instance,
            activity: call.activity.clone(),
            step: call.step.path.clone(),
            input: (*call.input).clone(),
            attempt,
            at: self.now,
            succeeded: matches!(message, Message::ActivityCompleted { .. }),
        });
        self.schedule(at, Happening::Arrive { actor: number, message });
    }

    fn next_answer(
        &mut self,
        key: &str,
        answers: impl FnOnce(&super::Mocks) -> Option<&Vec<Answer>>,
    ) -> Option<Answer> {
        let answers = answers(&self.rehearsal.mocks)?;
        let position = self.answered.entry(key.to_owned()).or_insert(0);
        let answer = answers.get(*position).or_else(|| answers.last()).cloned();
        *position += 1;
        answer
    }
}

impl Actor<'_> {
    fn store(&mut self, changes: &[crate::turn::PartChange]) {
        for change in changes {
            match &change.value {
                Some(bytes) => self.parts.insert(change.key.clone(), bytes.clone()),
                None => self.parts.remove(&change.key),
            };
        }
    }

    fn reload(&mut self) -> Result<(), Corrupt> {
        self.instance =
            Instance::load(self.parts.iter().map(|(key, bytes)| (key.clone(), bytes.as_slice())))?;
        Ok(())
    }
}

impl Happening {
    /// Whether it is an answer to a command of this actor's run, rather than something from outside.
    fn answers(&self, number: usize) -> bool {
        match self {
            Self::Deliver { actor, .. } => *actor == number,
            Self::Arrive { actor, message } => *actor == number && is_answer(message),
        }
    }
}

/// Whether a message answers a command, rather than coming from outside.
fn is_answer(message: &Message) -> bool {
    matches!(
        message,
        Message::TimerFired { .. }
            | Message::ActivityCompleted { .. }
            | Message::ActivityFailed { .. }
            | Message::ActivityDeferred { .. }
            | Message::ActivityUnkeepable { .. }
            | Message::ChildCompleted { .. }
            | Message::ChildFailed { .. }
    )
}

fn outside(stimulus: Stimulus) -> Message {
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
    /// Whether the main run ended well.
    pub fn succeeded(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Completed(_)))
    }
}

//! A run as people see it, from memory or from the store.

use std::collections::BTreeMap;

use abide_store::tables::instances::Instance as InstanceRow;
use abide_workflow::instance::WaitingFor;
use abide_workflow::{CommandId, Instance, Outcome, Plan, RunNumber, Timestamp};

use super::Shard;
use super::slot::Run;
use crate::request::{RunView, Standing, ViewStatus};
use crate::run::{Book, StoredRun};

/// What is known of a call: its activity, the delivery that is out, and when it is given up or made again.
type KnownCall = (String, u32, Option<i64>);

impl Shard {
    pub(super) fn view(&self, run: &Run) -> RunView {
        view(&run.row, &run.plan, &run.instance, &run.book, |command| {
            let call = run.calls.get(&command)?;
            Some((
                call.dispatch.activity.clone(),
                call.dispatch.attempt,
                call.dispatch.not_before.or(call.dispatch.deadline_at),
            ))
        })
    }

    /// What a run's branches wait for, in words.
    pub(super) fn why_waiting(&self, run: &Run) -> String {
        let states = self.view(run).current_states;
        let words: Vec<String> = states.iter().take(5).map(Standing::in_words).collect();
        words.join("; ")
    }
}

impl Standing {
    /// In words, for people.
    pub fn in_words(&self) -> String {
        let (state, since) = (&self.state.state, self.state.since);
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        match &self.state.waiting_for {
            WaitingFor::Nothing => format!("{state}: about to go on since {since}"),
            WaitingFor::Activity { .. } => {
                let activity = self.activity.as_deref().unwrap_or("an activity");
                let attempt = self.attempt.unwrap_or(0);
                format!("{state}: activity {activity}, attempt {attempt}, since {since}{until}")
            }
            WaitingFor::Timer { .. } => format!("{state}: timer since {since}{until}"),
            WaitingFor::Event { name } => format!("{state}: event {name} since {since}{until}"),
            WaitingFor::Child { .. } => {
                let child = self.child.as_ref().map_or("a child", |child| child.as_str());
                format!("{state}: child {child} since {since}{until}")
            }
            WaitingFor::Branches { total, ended } => {
                format!("{state}: {ended} of {total} branches have ended, since {since}")
            }
        }
    }
}

/// A run as it lies in the store.
pub(crate) fn view_of_stored(stored: &StoredRun) -> RunView {
    let calls: BTreeMap<u64, KnownCall> = stored
        .calls
        .iter()
        .map(|call| {
            let d = &call.dispatch;
            (d.command, (d.activity.clone(), d.attempt, d.not_before.or(d.deadline_at)))
        })
        .collect();
    view(&stored.row, &stored.plan, &stored.instance, &stored.book, |command| calls.get(&command.0).cloned())
}

fn view(
    row: &InstanceRow,
    plan: &Plan,
    instance: &Instance,
    book: &Book,
    call: impl Fn(CommandId) -> Option<KnownCall>,
) -> RunView {
    let origin = instance.origin();
    let (output, error) = match instance.outcome() {
        Some(Outcome::Completed(output)) => (Some(output.clone()), None),
        Some(Outcome::Failed(failure)) => (None, Some(failure.clone())),
        _ => (None, None),
    };
    let states = if instance.status().is_terminal() { Vec::new() } else { instance.current_states(plan) };
    let standing = |state: abide_workflow::instance::CurrentState| {
        let mut standing = Standing { activity: None, attempt: None, until: None, child: None, state };
        match &standing.state.waiting_for {
            WaitingFor::Activity { dispatch, deadline, .. } => {
                standing.until = *deadline;
                if let Some((activity, attempt, until)) = call(*dispatch) {
                    standing.activity = Some(activity);
                    standing.attempt = Some(attempt);
                    standing.until = until.map(Timestamp).or(standing.until);
                }
            }
            WaitingFor::Timer { timer } => standing.until = book.timers.get(timer).copied().map(Timestamp),
            WaitingFor::Child { child } => standing.child = book.children.get(child).cloned(),
            _ => {}
        }
        standing
    };
    let status = match &row.parked {
        Some(reason) => ViewStatus::Parked(reason.clone()),
        None => ViewStatus::Run(instance.status()),
    };
    RunView {
        instance_id: origin.instance_id.clone(),
        run: RunNumber(row.run_number),
        workflow: row.definition.clone(),
        version: row.version.clone(),
        status,
        input: origin.input.clone(),
        output,
        error,
        correlation_id: origin.correlation_id.clone(),
        entity_id: origin.entity_id.clone(),
        created_at: Timestamp(row.created_at),
        updated_at: instance.updated_at(),
        current_states: states.into_iter().map(standing).collect(),
    }
}

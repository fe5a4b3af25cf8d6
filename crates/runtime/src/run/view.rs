//! Builds the view of a run for the API, from memory or from the store.
//!
//! It reads only: nothing here changes a run or waits for one.

use std::collections::BTreeMap;

use abide_store::tables::calls::NotBefore;
use abide_store::tables::instances::InstanceRow;
use abide_workflow::instance::WaitingFor;
use abide_workflow::{CommandId, Instance, Outcome, Plan, Timestamp};

use crate::request::{BranchView, RunView, ViewStatus};
use crate::run::held_back::HeldBack;
use crate::run::{RunBookkeeping, StoredRun};

/// What is shown of the open call that a branch waits for.
#[derive(Clone, Debug)]
pub(crate) struct CallSummary {
    pub(crate) activity: String,
    /// Its current attempt.
    pub(crate) attempt: u32,
    /// The time of its next attempt, or of its deadline.
    pub(crate) until: Option<Timestamp>,
    pub(crate) held: Option<HeldBack>,
}

impl BranchView {
    /// A description for operators, in the report that the run is stuck.
    pub fn describe(&self) -> String {
        let state = &self.state.state;
        let since = self.state.since;
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        match &self.state.waiting_for {
            WaitingFor::Nothing => format!("{state}: ready to continue since {since}"),
            WaitingFor::Activity { .. } => {
                let activity = self.activity.as_deref().unwrap_or("an activity");
                let attempt = self.attempt.unwrap_or(0);
                let held = self
                    .held
                    .map(|held| format!(", held back by {} since {}", held.reason.as_str(), held.since));
                let held = held.unwrap_or_default();
                format!("{state}: activity {activity}, attempt {attempt}, since {since}{until}{held}")
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

/// The view of a run as the store has it, whether or not a shard has it in memory.
pub(crate) fn view_of_stored(stored: &StoredRun) -> RunView {
    let calls: BTreeMap<CommandId, CallSummary> = stored
        .calls
        .iter()
        .map(|(_, row)| {
            let until = waits_until(row.not_before, row.deadline_at);
            let summary = CallSummary {
                activity: row.activity.clone().into_owned(),
                attempt: row.attempt,
                until,
                held: row.hold.map(HeldBack::of),
            };
            (row.command, summary)
        })
        .collect();
    view(&stored.row, &stored.plan, &stored.instance, &stored.bookkeeping, |command| {
        calls.get(&command).cloned()
    })
}

/// The time of the next attempt, or of the deadline.
pub(crate) fn waits_until(
    not_before: Option<NotBefore>,
    deadline_at: Option<Timestamp>,
) -> Option<Timestamp> {
    not_before.and_then(NotBefore::time).or(deadline_at)
}

/// The view of a run, stored or in memory. `call` summarises its open calls by command.
pub(crate) fn view(
    row: &InstanceRow,
    plan: &Plan,
    instance: &Instance,
    bookkeeping: &RunBookkeeping,
    call: impl Fn(CommandId) -> Option<CallSummary>,
) -> RunView {
    let origin = instance.origin();
    let (output, error) = match instance.outcome() {
        Some(Outcome::Completed(output)) => (Some(output.clone()), None),
        Some(Outcome::Failed(failure)) => (None, Some(failure.clone())),
        _ => (None, None),
    };
    let states = if instance.status().is_terminal() { Vec::new() } else { instance.current_states(plan) };
    let branch = |state: abide_workflow::instance::CurrentState| {
        let mut branch =
            BranchView { activity: None, attempt: None, until: None, held: None, child: None, state };
        match &branch.state.waiting_for {
            WaitingFor::Activity { call: command, deadline, .. } => {
                branch.until = *deadline;
                if let Some(CallSummary { activity, attempt, until, held }) = call(*command) {
                    branch.activity = Some(activity);
                    branch.attempt = Some(attempt);
                    branch.until = until.or(branch.until);
                    branch.held = held;
                }
            }
            WaitingFor::Timer { timer } => branch.until = bookkeeping.timers.get(timer).copied(),
            WaitingFor::Child { child } => branch.child = bookkeeping.children.get(child).cloned(),
            _ => {}
        }
        branch
    };
    let status = match &row.park_reason {
        Some(reason) => ViewStatus::Parked(reason.clone()),
        None => ViewStatus::Run(instance.status()),
    };
    RunView {
        instance_id: origin.instance_id.clone(),
        run_number: row.run_number,
        workflow: row.definition_id.clone(),
        version: row.version.clone(),
        status,
        input: origin.input.clone(),
        output,
        error,
        correlation_id: origin.correlation_id.clone(),
        entity_id: origin.entity_id.clone(),
        entity_type: row.entity_type.as_deref().map(str::to_owned),
        created_at: row.created_at,
        updated_at: instance.updated_at(),
        current_states: states.into_iter().map(branch).collect(),
        compensation: instance.compensation_counts(),
    }
}

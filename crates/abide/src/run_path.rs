//! Computes the path of a run from its history: the visited states in order, each with its mark, and branches below the
//! state that started them. It prints nothing.
//!
//! ```text
//! ✓ done   ✗ failed   ● now   ↩ compensated   ○ abandoned
//! ```

use std::collections::BTreeMap;

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_client::{Failure, Timestamp};

/// The outcome of one visit of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepMark {
    /// The state was left without an error.
    Completed,
    /// The state was left with an error.
    Failed,
    /// The run is in this state.
    Current,
    /// The state completed, and a compensation has undone it.
    Compensated,
    /// The state was entered and never left, because its branch or its run ended.
    Abandoned,
}

impl StepMark {
    pub(crate) fn symbol(self) -> char {
        match self {
            Self::Completed => '✓',
            Self::Failed => '✗',
            Self::Current => '●',
            Self::Compensated => '↩',
            Self::Abandoned => '○',
        }
    }
}

/// One visit of a state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PathStep {
    /// The state's path in the definition.
    pub(crate) state: String,
    pub(crate) visit: u32,
    pub(crate) entered: Timestamp,
    pub(crate) left: Option<Timestamp>,
    pub(crate) error: Option<Failure>,
    /// The activity it called last, and the number of attempts.
    pub(crate) activity: Option<(String, u32)>,
    /// The numbers of succeeded and failed compensations of a compensation state.
    pub(crate) compensation_counts: Option<(u32, u32)>,
    is_compensated: bool,
    is_branch_ended: bool,
    /// Branches that it started, in the order of their index.
    pub(crate) branches: Vec<u32>,
}

impl PathStep {
    pub(crate) fn mark(&self) -> StepMark {
        match (self.is_compensated, &self.error, self.left) {
            (true, ..) => StepMark::Compensated,
            (false, Some(_), Some(_)) => StepMark::Failed,
            (false, None, Some(_)) if self.compensation_counts.is_some_and(|(_, failed)| failed > 0) => {
                StepMark::Failed
            }
            (false, None, Some(_)) => StepMark::Completed,
            (false, _, None) if self.is_branch_ended => StepMark::Abandoned,
            (false, _, None) => StepMark::Current,
        }
    }
}

/// One line of execution.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PathBranch {
    /// Its position among its siblings.
    pub(crate) index: u32,
    pub(crate) steps: Vec<PathStep>,
    /// How it ended, or `None` while it is live.
    pub(crate) outcome: Option<String>,
}

/// The path of a run so far. The first branch of every run has the number 0.
#[derive(Debug, Default)]
pub(crate) struct RunPath {
    branches: BTreeMap<u32, PathBranch>,
    /// The step of each command: its branch and its index in the branch.
    commands: BTreeMap<u64, (u32, usize)>,
    /// The state that each compensating command undoes.
    compensating: BTreeMap<u64, String>,
    /// The failed compensations of the ended run run again.
    retries_compensation: bool,
}

const ROOT: u32 = 0;

impl RunPath {
    pub(crate) fn branch(&self, number: u32) -> Option<&PathBranch> {
        self.branches.get(&number)
    }

    pub(crate) fn root(&self) -> Option<&PathBranch> {
        self.branch(ROOT)
    }

    /// Applies the next event of the history.
    pub(crate) fn apply_event(&mut self, event: &HistoryEvent) {
        match &event.fact {
            Fact::StateEntered { branch, state, visit } => {
                let step = PathStep {
                    state: state.clone(),
                    visit: *visit,
                    entered: event.timestamp,
                    left: None,
                    error: None,
                    activity: None,
                    compensation_counts: None,
                    is_compensated: false,
                    is_branch_ended: false,
                    branches: Vec::new(),
                };
                self.branches.entry(*branch).or_default().steps.push(step);
            }
            Fact::StateLeft { branch, error, .. } => {
                if let Some(step) = self.current_step(*branch) {
                    step.left = Some(event.timestamp);
                    step.error.clone_from(error);
                }
            }
            Fact::BranchStarted { branch, parent, index } => {
                self.branches.entry(*branch).or_default().index = *index;
                if let Some(step) = self.current_step(*parent) {
                    step.branches.push(*branch);
                }
            }
            Fact::BranchEnded { branch, outcome } => {
                let branch = self.branches.entry(*branch).or_default();
                branch.outcome = Some(outcome.clone());
                branch.steps.iter_mut().for_each(|step| step.is_branch_ended = true);
            }
            Fact::TaskScheduled { command, branch, activity, step, .. } => {
                if let Some((state, _)) = step.split_once("/undo/") {
                    self.compensating.insert(*command, state.to_owned());
                } else if let Some(index) = self.last_step_index(*branch) {
                    self.commands.insert(*command, (*branch, index));
                }
                if let Some(current) = self.current_step(*branch) {
                    current.activity = Some((activity.clone(), 1));
                }
            }
            Fact::TaskFailed { command, attempt, retry_at, .. } => {
                if let Some(step) = self.step_of(*command)
                    && let Some((_, attempts)) = &mut step.activity
                {
                    // Attempts are numbered from 0, and those whose result was lost are numbered too.
                    *attempts = (*attempts).max(attempt + 1 + u32::from(retry_at.is_some()));
                }
            }
            Fact::TaskCompleted { command, .. } => {
                if let Some(state) = self.compensating.remove(command) {
                    self.mark_compensated(&state);
                }
            }
            Fact::GenericEvent { note: Note::CompensationRetried { .. } } => self.retries_compensation = true,
            Fact::GenericEvent { note: Note::CompensationCompleted { succeeded, .. } }
                if std::mem::take(&mut self.retries_compensation) =>
            {
                self.count_retried(*succeeded);
            }
            Fact::GenericEvent { note: Note::CompensationCompleted { branch, succeeded, failed } } => {
                if let Some(step) = self.current_step(*branch) {
                    step.compensation_counts = Some((*succeeded, *failed));
                }
            }
            Fact::ExecutionRewound { .. } => self.for_each_step(|step| step.is_branch_ended = false),
            Fact::ExecutionCompleted { .. }
            | Fact::ExecutionFailed { .. }
            | Fact::ExecutionTerminated { .. }
            | Fact::ContinueAsNew { .. } => self.for_each_step(|step| step.is_branch_ended = true),
            _ => {}
        }
    }

    fn last_step_index(&self, branch: u32) -> Option<usize> {
        self.branches.get(&branch)?.steps.len().checked_sub(1)
    }

    fn current_step(&mut self, branch: u32) -> Option<&mut PathStep> {
        self.branches.get_mut(&branch)?.steps.last_mut()
    }

    fn step_of(&mut self, command: u64) -> Option<&mut PathStep> {
        let (branch, index) = *self.commands.get(&command)?;
        self.branches.get_mut(&branch)?.steps.get_mut(index)
    }

    /// Failed compensations have succeeded after all.
    fn count_retried(&mut self, mut succeeded: u32) {
        for step in self.branches.values_mut().flat_map(|branch| &mut branch.steps) {
            if let Some((done, failed)) = &mut step.compensation_counts {
                let mended = succeeded.min(*failed);
                (*done, *failed, succeeded) = (*done + mended, *failed - mended, succeeded - mended);
            }
        }
    }

    /// Marks the newest completed visit of a state: compensation goes backwards.
    fn mark_compensated(&mut self, state: &str) {
        let is_candidate = |step: &&mut PathStep| step.state == state && step.mark() == StepMark::Completed;
        let steps = self.branches.values_mut().flat_map(|branch| &mut branch.steps);
        if let Some(step) = steps.filter(is_candidate).max_by_key(|step| step.left) {
            step.is_compensated = true;
        }
    }

    fn for_each_step(&mut self, change: impl Fn(&mut PathStep)) {
        self.branches.values_mut().flat_map(|branch| &mut branch.steps).for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::rehearse::{Mocks, Rehearsal, parse_stimuli};
    use abide_workflow::{ParsedDefinition, Registry};

    /// The path of one case of an example.
    fn played(example: &str, case: &str) -> RunPath {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let registry = Registry::parse(&read("activities.json").unwrap()).unwrap();
        let plan = ParsedDefinition::parse(&read("workflow.json").unwrap())
            .validate(Some(&registry))
            .unwrap()
            .compile();
        let mut rehearsal = Rehearsal::new(&plan);
        rehearsal.input = serde_json::from_str(&read(&format!("cases/{case}/input.json")).unwrap()).unwrap();
        rehearsal.mocks = Mocks::parse(&read(&format!("cases/{case}/mock.json")).unwrap()).unwrap();
        if let Some(events) = read(&format!("cases/{case}/events.json")) {
            rehearsal.stimuli = parse_stimuli(&events).unwrap();
        }
        let mut path = RunPath::default();
        for (_, event) in rehearsal.play().unwrap().timeline {
            path.apply_event(&serde_json::from_value(serde_json::to_value(&event).unwrap()).unwrap());
        }
        path
    }

    fn drawn(branch: &PathBranch) -> Vec<String> {
        let name = |step: &PathStep| step.state.rsplit('/').next().unwrap().to_owned();
        branch.steps.iter().map(|step| format!("{} {}", step.mark().symbol(), name(step))).collect()
    }

    #[test]
    fn compensated_and_failed_steps_have_different_marks() {
        let path = played("device-onboarding", "failure-with-compensation");
        assert_eq!(
            drawn(path.root().unwrap()),
            [
                "↩ Initialize",
                "✓ WaitForExternalProcess",
                "✓ CollectAccumulatedEvents",
                "✗ ProcessEventBatch",
                "✓ CompensateOnboarding",
                "✓ NotifyFailure",
                "✗ Failed"
            ]
        );
        let compensation = &path.root().unwrap().steps[4];
        assert_eq!(compensation.compensation_counts, Some((1, 0)));
    }

    #[test]
    fn branches_belong_to_the_state_that_started_them_and_a_cancelled_one_is_abandoned() {
        let path = played("quorum-write", "all-fast");
        let fan = &path.root().unwrap().steps[1];
        let branches: Vec<&PathBranch> =
            fan.branches.iter().map(|number| path.branch(*number).unwrap()).collect();
        assert_eq!(drawn(branches[0]), ["✓ WriteA", "✓ WrittenA"]);
        assert_eq!(
            (drawn(branches[1]), branches[1].outcome.as_deref()),
            (vec!["○ WriteB".to_owned()], Some("cancelled"))
        );
        assert_eq!((branches[2].index, branches[2].outcome.as_deref()), (2, Some("succeeded")));
    }

    #[test]
    fn attempts_are_counted_and_each_visit_is_a_step() {
        let path = played("fleet-health-check", "some-unhealthy");
        let fan = &path.root().unwrap().steps[1];
        let second = path.branch(fan.branches[1]).unwrap();
        assert_eq!(second.steps[0].activity, Some(("ProbeDevice".to_owned(), 3)));
        assert_eq!(drawn(second), ["✗ Probe", "✓ Unhealthy"]);
    }
}

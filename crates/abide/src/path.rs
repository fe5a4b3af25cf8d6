//! The path a run has taken, drawn from its history: states in order, branches below the state that made them, each with its mark.
//!
//! ```text
//! ✓ done   ✗ failed   ● now   ↩ undone by a compensation   ○ left behind
//! ```

use std::collections::BTreeMap;

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_client::{Failure, Timestamp};

/// What became of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// It was left for another.
    Done,
    /// It was left with an error.
    Failed,
    /// The run is there.
    Now,
    /// It was done, and a compensation has undone it.
    Undone,
    /// It was entered and never left: its branch or its run was ended.
    LeftBehind,
}

impl Mark {
    pub(crate) fn sign(self) -> char {
        match self {
            Self::Done => '✓',
            Self::Failed => '✗',
            Self::Now => '●',
            Self::Undone => '↩',
            Self::LeftBehind => '○',
        }
    }
}

/// One visit of a state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    /// The state's path in the definition.
    pub(crate) state: String,
    pub(crate) visit: u32,
    pub(crate) entered: Timestamp,
    pub(crate) left: Option<Timestamp>,
    pub(crate) error: Option<Failure>,
    /// The activity it called last, and how often it was delivered.
    pub(crate) activity: Option<(String, u32)>,
    /// What a compensation came to: undone and failed.
    pub(crate) compensated: Option<(u32, u32)>,
    /// A compensation has undone it.
    undone: bool,
    /// It stands still for good.
    ended: bool,
    /// Branches that it made, in the order of their index.
    pub(crate) branches: Vec<u32>,
}

impl Step {
    pub(crate) fn mark(&self) -> Mark {
        match (self.undone, &self.error, self.left) {
            (true, ..) => Mark::Undone,
            (false, Some(_), Some(_)) => Mark::Failed,
            (false, None, Some(_)) => Mark::Done,
            (false, _, None) if self.ended => Mark::LeftBehind,
            (false, _, None) => Mark::Now,
        }
    }
}

/// One line of execution.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Branch {
    /// Its place among its siblings.
    pub(crate) index: u32,
    /// Its steps, in order.
    pub(crate) steps: Vec<Step>,
    /// How it ended; none while it is alive.
    pub(crate) outcome: Option<String>,
}

/// The path of a run so far. The branch that every run begins with is number 0.
#[derive(Debug, Default)]
pub(crate) struct Path {
    branches: BTreeMap<u32, Branch>,
    /// Which step a command belongs to: branch, place.
    commands: BTreeMap<u64, (u32, usize)>,
    /// States that commands undo.
    undoing: BTreeMap<u64, String>,
}

const ROOT: u32 = 0;

impl Path {
    pub(crate) fn branch(&self, number: u32) -> Option<&Branch> {
        self.branches.get(&number)
    }

    pub(crate) fn root(&self) -> Option<&Branch> {
        self.branch(ROOT)
    }

    /// Goes on with the next event.
    pub(crate) fn follow(&mut self, event: &HistoryEvent) {
        match &event.fact {
            Fact::StateEntered { branch, state, visit } => {
                let step = Step {
                    state: state.clone(),
                    visit: *visit,
                    entered: event.timestamp,
                    left: None,
                    error: None,
                    activity: None,
                    compensated: None,
                    undone: false,
                    ended: false,
                    branches: Vec::new(),
                };
                self.branches.entry(*branch).or_default().steps.push(step);
            }
            Fact::StateLeft { branch, error, .. } => {
                if let Some(step) = self.current(*branch) {
                    step.left = Some(event.timestamp);
                    step.error.clone_from(error);
                }
            }
            Fact::BranchStarted { branch, parent, index } => {
                self.branches.entry(*branch).or_default().index = *index;
                if let Some(step) = self.current(*parent) {
                    step.branches.push(*branch);
                }
            }
            Fact::BranchEnded { branch, outcome } => {
                let branch = self.branches.entry(*branch).or_default();
                branch.outcome = Some(outcome.clone());
                branch.steps.iter_mut().for_each(|step| step.ended = true);
            }
            Fact::TaskScheduled { command, branch, activity, step, .. } => {
                if let Some((undone, _)) = step.split_once("/undo/") {
                    self.undoing.insert(*command, undone.to_owned());
                } else if let Some(place) = self.place(*branch) {
                    self.commands.insert(*command, (*branch, place));
                }
                if let Some(current) = self.current(*branch) {
                    current.activity = Some((activity.clone(), 1));
                }
            }
            Fact::TaskFailed { command, retry_at: Some(_), .. } => {
                if let Some(step) = self.step_of(*command)
                    && let Some((_, deliveries)) = &mut step.activity
                {
                    *deliveries += 1;
                }
            }
            Fact::TaskCompleted { command, .. } => {
                if let Some(state) = self.undoing.remove(command) {
                    self.undo(&state);
                }
            }
            Fact::GenericEvent { note: Note::CompensationCompleted { branch, succeeded, failed } } => {
                if let Some(step) = self.current(*branch) {
                    step.compensated = Some((*succeeded, *failed));
                }
            }
            Fact::ExecutionRewound { .. } => self.all_steps(|step| step.ended = false),
            Fact::ExecutionCompleted { .. }
            | Fact::ExecutionFailed { .. }
            | Fact::ExecutionTerminated { .. }
            | Fact::ContinueAsNew { .. } => self.all_steps(|step| step.ended = true),
            _ => {}
        }
    }

    fn place(&self, branch: u32) -> Option<usize> {
        self.branches.get(&branch)?.steps.len().checked_sub(1)
    }

    fn current(&mut self, branch: u32) -> Option<&mut Step> {
        self.branches.get_mut(&branch)?.steps.last_mut()
    }

    fn step_of(&mut self, command: u64) -> Option<&mut Step> {
        let (branch, place) = *self.commands.get(&command)?;
        self.branches.get_mut(&branch)?.steps.get_mut(place)
    }

    /// The newest visit of a state that is done and not undone yet: compensation goes backwards.
    fn undo(&mut self, state: &str) {
        let done = |step: &&mut Step| step.state == state && step.mark() == Mark::Done;
        let steps = self.branches.values_mut().flat_map(|branch| &mut branch.steps);
        if let Some(step) = steps.filter(done).max_by_key(|step| step.left) {
            step.undone = true;
        }
    }

    fn all_steps(&mut self, change: impl Fn(&mut Step)) {
        self.branches.values_mut().flat_map(|branch| &mut branch.steps).for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::rehearse::{Mocks, Rehearsal, parse_stimuli};
    use abide_workflow::{Authored, Registry};

    /// The path of a case of an example.
    fn played(example: &str, case: &str) -> Path {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let registry = Registry::parse(&read("activities.json").unwrap()).unwrap();
        let plan =
            Authored::parse(&read("workflow.json").unwrap()).validate(Some(&registry)).unwrap().compile();
        let mut rehearsal = Rehearsal::new(&plan);
        rehearsal.input = serde_json::from_str(&read(&format!("cases/{case}/input.json")).unwrap()).unwrap();
        rehearsal.mocks = Mocks::parse(&read(&format!("cases/{case}/mock.json")).unwrap()).unwrap();
        if let Some(events) = read(&format!("cases/{case}/events.json")) {
            rehearsal.stimuli = parse_stimuli(&events).unwrap();
        }
        let mut path = Path::default();
        for (_, event) in rehearsal.play().unwrap().timeline {
            path.follow(&serde_json::from_value(serde_json::to_value(&event).unwrap()).unwrap());
        }
        path
    }

    fn drawn(branch: &Branch) -> Vec<String> {
        let name = |step: &Step| step.state.rsplit('/').next().unwrap().to_owned();
        branch.steps.iter().map(|step| format!("{} {}", step.mark().sign(), name(step))).collect()
    }

    #[test]
    fn what_was_undone_and_what_failed_are_told_apart() {
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
        assert_eq!(compensation.compensated, Some((1, 0)));
    }

    #[test]
    fn branches_hang_on_the_state_that_made_them_and_the_losing_one_is_left_behind() {
        let path = played("quorum-write", "all-fast");
        let fan = &path.root().unwrap().steps[1];
        let branches: Vec<&Branch> =
            fan.branches.iter().map(|number| path.branch(*number).unwrap()).collect();
        assert_eq!(drawn(branches[0]), ["✓ WriteA", "✓ WrittenA"]);
        assert_eq!(
            (drawn(branches[1]), branches[1].outcome.as_deref()),
            (vec!["○ WriteB".to_owned()], Some("cancelled"))
        );
        assert_eq!((branches[2].index, branches[2].outcome.as_deref()), (2, Some("succeeded")));
    }

    #[test]
    fn attempts_are_counted_and_visits_are_steps_of_their_own() {
        let path = played("fleet-health-check", "some-unhealthy");
        let fan = &path.root().unwrap().steps[1];
        let second = path.branch(fan.branches[1]).unwrap();
        assert_eq!(second.steps[0].activity, Some(("ProbeDevice".to_owned(), 3)));
        assert_eq!(drawn(second), ["✗ Probe", "✓ Unhealthy"]);
    }
}

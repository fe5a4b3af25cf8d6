//! The types of a state as its author wrote it: the common fields and those of each state type. `states` reads them
//! from JSON; `advance` runs them.

use super::{ActivityCall, RetryPolicy};
use crate::condition::Condition;
use crate::ids::BlockId;
use crate::path::{Path, Reference, Template};
use crate::time::{Duration, Timestamp};

/// A node of a definition.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The name within its block.
    pub name: String,
    /// Names from the top level down, such as `CheckAll/iterator/Check`.
    pub path: String,
    /// JSON pointer to the state.
    pub pointer: String,
    pub block: BlockId,
    /// The next state; `None` for terminal states and choices.
    pub next: Option<String>,
    /// The place in `$.state` that receives the result.
    pub output: Option<Reference>,
    /// Error handlers; the first that matches is used.
    pub on_error: Vec<ErrorHandler>,
    pub timeout: Option<Duration>,
    /// The next state after a timeout; without it the error `Timeout` is raised.
    pub timeout_next: Option<String>,
    pub kind: StateKind,
    /// True if the state's transitions could not be read, so nothing is known about what it leads to.
    pub has_unreadable_exits: bool,
}

/// The type of a state, with the fields of that type.
#[derive(Clone, PartialEq, Debug)]
pub enum StateKind {
    /// Calls an activity.
    Task(Task),
    /// Waits for a point in time.
    WaitUntil(WaitTime),
    /// Waits for an event.
    WaitEvent(EventWait),
    /// Takes the first transition whose condition holds.
    Choice {
        /// Conditions in order, each with its target.
        choices: Vec<(Condition, String)>,
        /// The target if no condition holds.
        default: Option<String>,
    },
    /// Runs blocks concurrently.
    Parallel { branches: Vec<BlockId>, join: Join },
    /// Runs a block for every item.
    Map {
        items: Path,
        /// Number of items that run at once.
        max_concurrency: Option<u32>,
        iterator: BlockId,
        join: Join,
    },
    /// Runs another workflow and waits for it.
    Workflow(ChildCall),
    /// Ends this run and begins the next.
    ContinueAsNew {
        /// The next run's input.
        input: Option<Template>,
    },
    /// Compensates completed work.
    Compensation {
        /// Explicit steps; `None` = the compensations recorded by completed tasks, newest first.
        steps: Option<Vec<CompensationStep>>,
    },
    /// Ends its block successfully.
    Succeed {
        /// The output; null if absent.
        output: Option<Template>,
    },
    /// Ends with an error.
    Fail {
        /// The error code; that of the last caught error if absent.
        error: Option<Template>,
        message: Option<Template>,
    },
}

/// The fields of a `task` state.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    pub call: ActivityCall,
    /// The task's own policy.
    pub retry_policy: Option<RetryPolicy>,
    /// Time limit of one attempt.
    pub attempt_timeout: Option<Duration>,
    /// The call that compensates this task.
    pub compensate_with: Option<ActivityCall>,
}

/// An explicit step of a compensation.
#[derive(Clone, PartialEq, Debug)]
pub struct CompensationStep {
    pub call: ActivityCall,
    /// The step's own policy.
    pub retry_policy: Option<RetryPolicy>,
    /// Time limit of the whole step, retries included.
    pub timeout: Option<Duration>,
    /// Time limit of one attempt.
    pub attempt_timeout: Option<Duration>,
}

/// When a wait ends.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitTime {
    /// After a fixed duration.
    After(Duration),
    /// After a duration from the run's data.
    AfterPath(Path),
    /// At a fixed time.
    At(Timestamp),
    /// At a time from the run's data.
    AtPath(Path),
}

/// The fields of a `wait` state for an external event.
#[derive(Clone, PartialEq, Debug)]
pub struct EventWait {
    /// The event's name; case does not matter.
    pub name: String,
    /// The payloads to accept; `$.event` is the payload.
    pub matching: Option<Condition>,
}

/// The fields of a `workflow` state.
#[derive(Clone, PartialEq, Debug)]
pub struct ChildCall {
    /// The id of the child's definition.
    pub workflow: String,
    /// The acceptable versions.
    pub version: Option<semver::VersionReq>,
    pub input: Option<Template>,
    /// True if the child outlives this run.
    pub abandon: bool,
    /// True if the child may be placed on any shard, instead of beside its parent.
    pub spread: bool,
}

/// When a map or parallel is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// When all branches have succeeded.
    All,
    /// When this many branches have succeeded.
    AtLeast(u32),
}

/// One entry of `onError`.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorHandler {
    /// The codes it handles; empty = all.
    pub codes: Vec<String>,
    pub next: String,
    /// The place in `$.state` that receives the error, besides `$.error`.
    pub output: Option<Reference>,
    /// True if it was written as `"onError": "State"`, not as a list.
    pub shorthand: bool,
}

impl ErrorHandler {
    /// True if it handles this code.
    pub fn handles(&self, code: &str) -> bool {
        self.handles_all() || self.codes.iter().any(|known| known == code)
    }

    /// True if it handles every code.
    pub fn handles_all(&self) -> bool {
        self.codes.is_empty() || self.codes.iter().any(|known| known == "*")
    }
}

impl State {
    /// The state's transitions: the place of each within the state, and the target's name.
    pub fn targets(&self) -> Vec<(String, &str)> {
        let mut targets: Vec<(String, &str)> = Vec::new();
        targets.extend(self.next.iter().map(|next| ("next".to_owned(), next.as_str())));
        targets.extend(self.timeout_next.iter().map(|next| ("timeoutNext".to_owned(), next.as_str())));
        for (position, handler) in self.on_error.iter().enumerate() {
            let place =
                if handler.shorthand { "onError".to_owned() } else { format!("onError/{position}/next") };
            targets.push((place, &handler.next));
        }
        if let StateKind::Choice { choices, default } = &self.kind {
            for (position, (_, next)) in choices.iter().enumerate() {
                targets.push((format!("choices/{position}/next"), next));
            }
            targets.extend(default.iter().map(|next| ("default".to_owned(), next.as_str())));
        }
        targets
    }

    /// True if the state ends its block.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.kind,
            StateKind::Succeed { .. } | StateKind::Fail { .. } | StateKind::ContinueAsNew { .. }
        )
    }

    /// The name of the state's type in JSON.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            StateKind::Task(_) => "task",
            StateKind::WaitUntil(_) | StateKind::WaitEvent(_) => "wait",
            StateKind::Choice { .. } => "choice",
            StateKind::Parallel { .. } => "parallel",
            StateKind::Map { .. } => "map",
            StateKind::Workflow(_) => "workflow",
            StateKind::ContinueAsNew { .. } => "continueAsNew",
            StateKind::Compensation { .. } => "compensation",
            StateKind::Succeed { .. } => "succeed",
            StateKind::Fail { .. } => "fail",
        }
    }

    /// The blocks inside the state.
    pub fn blocks(&self) -> &[BlockId] {
        match &self.kind {
            StateKind::Parallel { branches, .. } => branches,
            StateKind::Map { iterator, .. } => std::slice::from_ref(iterator),
            _ => &[],
        }
    }
}

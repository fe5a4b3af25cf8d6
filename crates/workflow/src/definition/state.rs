//! A state as its author wrote it: what every state has, and what each type adds.

use super::{ActivityCall, RetryPolicy};
use crate::condition::Condition;
use crate::ids::BlockId;
use crate::path::{Path, Reference, Template};
use crate::time::{Duration, Timestamp};

/// A node of a definition.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// Its name within its block.
    pub name: String,
    /// Names from the top, such as `CheckAll/iterator/Check`.
    pub path: String,
    /// Where it is in the JSON.
    pub pointer: String,
    /// Its block.
    pub block: BlockId,
    /// Where it goes; `None` for terminal states and choices.
    pub next: Option<String>,
    /// Where its result goes.
    pub output: Option<Reference>,
    /// Who takes its errors, in order.
    pub on_error: Vec<ErrorHandler>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Where it goes when it takes longer; without it the error `Timeout` is raised.
    pub timeout_next: Option<String>,
    /// What it does.
    pub kind: StateKind,
    /// Where it goes could not be read, so nothing can be said about what it leads to.
    pub exits_unread: bool,
}

/// What a state does.
#[derive(Clone, PartialEq, Debug)]
pub enum StateKind {
    /// Calls an activity.
    Task(Task),
    /// Waits for a moment.
    WaitUntil(Moment),
    /// Waits for an event.
    WaitEvent(EventWait),
    /// Goes one of several ways.
    Choice {
        /// Conditions in order.
        choices: Vec<(Condition, String)>,
        /// Where to without a match.
        default: Option<String>,
    },
    /// Runs blocks side by side.
    Parallel {
        /// The blocks.
        branches: Vec<BlockId>,
        /// When it is done.
        join: Join,
    },
    /// Runs a block for every item.
    Map {
        /// The items.
        items: Path,
        /// How many at once.
        max_concurrency: Option<u32>,
        /// The block.
        iterator: BlockId,
        /// When it is done.
        join: Join,
    },
    /// Runs another workflow and waits for it.
    Workflow(ChildCall),
    /// Ends this run and begins the next.
    ContinueAsNew {
        /// The next run's input.
        input: Option<Template>,
    },
    /// Undoes.
    Compensation {
        /// Explicit steps; `None` = what completed tasks have recorded, newest first.
        steps: Option<Vec<UndoStep>>,
    },
    /// Ends well.
    Succeed {
        /// The output; null without.
        output: Option<Template>,
    },
    /// Ends with an error.
    Fail {
        /// The code; the last caught error without.
        error: Option<Template>,
        /// The message.
        message: Option<Template>,
    },
}

/// `task`
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// What to call, with what.
    pub call: ActivityCall,
    /// Its own policy.
    pub retry_policy: Option<RetryPolicy>,
    /// One delivery's limit.
    pub attempt_timeout: Option<Duration>,
    /// What undoes it.
    pub compensate_with: Option<ActivityCall>,
}

/// A compensation's step.
#[derive(Clone, PartialEq, Debug)]
pub struct UndoStep {
    /// What to call, with what.
    pub call: ActivityCall,
    /// Its own policy.
    pub retry_policy: Option<RetryPolicy>,
    /// The whole step's limit.
    pub timeout: Option<Duration>,
    /// One delivery's limit.
    pub attempt_timeout: Option<Duration>,
}

/// When a wait ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Moment {
    /// After a while.
    After(Duration),
    /// After a while that data tells.
    AfterPath(Path),
    /// At a moment.
    At(Timestamp),
    /// At a moment that data tells.
    AtPath(Path),
}

/// `wait` for an external event.
#[derive(Clone, PartialEq, Debug)]
pub struct EventWait {
    /// Its name; case does not matter.
    pub name: String,
    /// Which payloads will do; `$.event` in it is the payload.
    pub matching: Option<Condition>,
}

/// `workflow`
#[derive(Clone, PartialEq, Debug)]
pub struct ChildCall {
    /// The definition.
    pub workflow: String,
    /// The versions that will do.
    pub version: Option<semver::VersionReq>,
    /// Its input.
    pub input: Option<Template>,
    /// Whether it outlives this run.
    pub abandon: bool,
    /// Whether it may be placed anywhere, instead of beside its parent.
    pub spread: bool,
}

/// When a map or parallel is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// When all branches have succeeded.
    All,
    /// When so many have.
    AtLeast(u32),
}

/// One entry of `onError`.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorHandler {
    /// The codes it takes; empty = all.
    pub codes: Vec<String>,
    /// Where to.
    pub next: String,
    /// Where the error is written, besides `$.error`.
    pub output: Option<Reference>,
    /// Written as `"onError": "State"`, not as a list.
    pub shorthand: bool,
}

impl ErrorHandler {
    /// Whether it takes this code.
    pub fn takes(&self, code: &str) -> bool {
        self.takes_all() || self.codes.iter().any(|known| known == code)
    }

    /// Whether it takes every code.
    pub fn takes_all(&self) -> bool {
        self.codes.is_empty() || self.codes.iter().any(|known| known == "*")
    }
}

impl State {
    /// Its transitions: the place of each within the state, and the target's name.
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

    /// Whether it ends its block.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.kind,
            StateKind::Succeed { .. } | StateKind::Fail { .. } | StateKind::ContinueAsNew { .. }
        )
    }

    /// Its type's name in JSON.
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

    /// The blocks inside it.
    pub fn blocks(&self) -> &[BlockId] {
        match &self.kind {
            StateKind::Parallel { branches, .. } => branches,
            StateKind::Map { iterator, .. } => std::slice::from_ref(iterator),
            _ => &[],
        }
    }
}

//! All limits of the language, and what happens when one is reached. The limits are enforced elsewhere.

use crate::evaluation::EvaluationLimits;

/// Limits on definitions; exceeding one is a finding.
pub mod definition {
    /// Bytes of a definition's text.
    pub const BYTES_MAX: usize = 1024 * 1024;
    /// States in a definition, those of nested blocks included.
    pub const STATES_MAX: usize = 1_000;
    /// Nesting of any JSON that enters: definitions, inputs, results, events.
    pub const JSON_DEPTH_MAX: usize = 64;
    /// Characters of an id, and of the name of a state, an activity or an event.
    pub const NAME_CHARS_MAX: usize = 128;
    /// Characters of a JSONPath.
    pub const PATH_CHARS_MAX: usize = 1_024;
    /// Nesting of brackets and parentheses in a JSONPath, and of and/or/not in a condition.
    pub const EXPRESSION_DEPTH_MAX: usize = 16;
    /// Descendant segments (`..`) in a JSONPath: two would make its cost quadratic in the data.
    pub const PATH_DESCENDANTS_MAX: usize = 1;
    /// Commas in a JSONPath: each may double the number of nodes.
    pub const PATH_COMMAS_MAX: usize = 8;
    /// Bytes of a glob; a longer one matches nothing.
    pub const GLOB_BYTES_MAX: usize = 256;
    /// Bytes of a text that is matched against a glob; a longer one does not match.
    pub const GLOB_TEXT_BYTES_MAX: usize = 64 * 1024;
    /// Attempts that a retry policy may allow.
    pub const RETRY_ATTEMPTS_MAX: u32 = 1_000;
}

/// Limits on one run and on one turn of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    pub turn: TurnLimits,
    /// Bytes of `$.state` and other data a run holds; an assignment beyond it raises `DataLimitExceeded`.
    pub data_bytes_max: u64,
    /// Bytes of one input of a run, output or event; beyond it the state raises `PayloadTooLarge`, or the event is
    /// refused.
    pub payload_bytes_max: u64,
    /// Bytes of one input or result of a task's activity; beyond it the state raises `PayloadTooLarge`. A turn that has
    /// taken or made one of more than a payload does nothing else.
    pub call_bytes_max: u64,
    /// States a run may enter before it is parked; `configuration.maxTransitions` overrides it. Resuming allows as many
    /// again. A run that enters this many without consuming a message is parked in any case: it spins, and control
    /// operations must be able to reach it.
    pub transitions_max: u64,
    /// Branches of one map or parallel; beyond it the state raises `FanOutTooWide`.
    pub fan_out_max: u32,
    /// Branches alive in a run at once; beyond it the state raises `FanOutTooWide`.
    pub live_branches_max: u32,
    /// Runs above a run that was started as a child; a child beyond it is not started, and its state raises
    /// `ChildTooDeep`.
    pub depth_max: u32,
    /// Events buffered before a branch waits for them, and messages held while suspended; more are refused.
    pub buffered_max: u32,
    /// Bytes of these events and messages; more are refused.
    pub buffered_bytes_max: u64,
    /// What one state evaluates when it is entered, or one message when it is applied; beyond it the state raises
    /// `EvaluationLimitExceeded`.
    pub evaluation: EvaluationLimits,
}

/// Limits on the input and output of one turn. A turn that reaches one reports more work and continues in the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnLimits {
    /// Messages consumed from the inbox.
    pub messages_max: usize,
    pub commands_max: usize,
    /// Bytes of payload read and written.
    pub bytes_max: u64,
    /// Single steps (states entered, branches spawned or removed): bounds the time and the rows of a turn.
    pub steps_max: usize,
    /// Steps and bytes of the evaluations in these. The step that reaches them is the last of its turn.
    pub evaluation: EvaluationLimits,
}

impl TurnLimits {
    /// The smallest usable limits: below them one step might not fit. The bytes follow from the largest payload.
    pub const FLOOR: Self = Self {
        messages_max: 1,
        commands_max: 40,
        bytes_max: 0,
        steps_max: 1,
        evaluation: EvaluationLimits { steps_max: 1, bytes_max: 1 },
    };

    /// These limits, raised to the floor where they are below it: one payload read and one written must fit.
    #[must_use]
    pub fn at_least_floor(self, payload_bytes_max: u64) -> Self {
        Self {
            messages_max: self.messages_max.max(Self::FLOOR.messages_max),
            commands_max: self.commands_max.max(Self::FLOOR.commands_max),
            bytes_max: self.bytes_max.max(payload_bytes_max.saturating_mul(2)),
            steps_max: self.steps_max.max(Self::FLOOR.steps_max),
            evaluation: EvaluationLimits {
                steps_max: self.evaluation.steps_max.max(Self::FLOOR.evaluation.steps_max),
                bytes_max: self.evaluation.bytes_max.max(Self::FLOOR.evaluation.bytes_max),
            },
        }
    }
}

impl Limits {
    /// The largest `call_bytes_max`: the history of a turn has such a payload in one row, and its commit has it twice.
    pub const CALL_BYTES_MAX: u64 = 7 * 512 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turn: TurnLimits {
                messages_max: 64,
                commands_max: 256,
                bytes_max: 2 * 1024 * 1024,
                steps_max: 1_000,
                evaluation: EvaluationLimits { steps_max: 2_000_000, bytes_max: 16 * 1024 * 1024 },
            },
            data_bytes_max: 4 * 1024 * 1024,
            payload_bytes_max: 1024 * 1024 - 4 * 1024,
            call_bytes_max: Self::CALL_BYTES_MAX,
            transitions_max: 100_000,
            fan_out_max: 10_000,
            live_branches_max: 20_000,
            depth_max: 32,
            buffered_max: 10_000,
            buffered_bytes_max: 4 * 1024 * 1024,
            evaluation: EvaluationLimits::default(),
        }
    }
}

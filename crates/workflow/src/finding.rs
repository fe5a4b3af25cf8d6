//! Findings of validation: a stable code, the place in the definition, a message and a hint. The checks are in
//! `definition` and `validate`.
//!
//! Every code has a section in docs/guides/validation.md; a test compares the two.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// For information only.
    Note,
    /// The definition can be published, but should be reviewed.
    Warning,
    /// The definition cannot be published.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident;)*) => {
        /// The kind of a finding. Codes are stable: tools match on them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as printed and matched on.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// The text is not JSON, or is JSON that cannot be stored exactly.
    MalformedJson = "malformed-json", Error;
    /// A limit on definitions is exceeded.
    LimitExceeded = "limit-exceeded", Error;
    /// A required field is missing.
    MissingField = "missing-field", Error;
    /// A field is not part of the language.
    UnknownField = "unknown-field", Error;
    /// A field has a value of the wrong type.
    WrongType = "wrong-type", Error;
    /// A field has a value of the right type that is invalid.
    InvalidValue = "invalid-value", Error;
    /// A duration or timestamp cannot be read.
    InvalidTime = "invalid-time", Error;
    /// A path is not RFC 9535, has no known root, or could cost too much.
    InvalidPath = "invalid-path", Error;
    /// `output` is not a place in `$.state`.
    InvalidReference = "invalid-reference", Error;
    /// `input` is not a JSON Schema.
    InvalidSchema = "invalid-schema", Error;
    /// A transition leads to a state that does not exist.
    DanglingTarget = "dangling-target", Error;
    /// No path leads to a state.
    UnreachableState = "unreachable-state", Error;
    /// From a state no terminal state can be reached.
    NoWayToEnd = "no-way-to-end", Error;
    /// A loop in which nothing ever waits.
    LoopWithoutRest = "loop-without-rest", Error;
    /// A loop of activities with neither a wait nor a limit.
    LoopWithoutWait = "loop-without-wait", Warning;
    /// An activity the registry does not have.
    UnknownActivity = "unknown-activity", Error;
    /// Activities were not checked, because no registry was given.
    ActivitiesUnchecked = "activities-unchecked", Note;
    /// A task's input cannot satisfy the activity's schema.
    InputSchemaMismatch = "input-schema-mismatch", Error;
    /// A timeout of zero.
    ZeroTimeout = "zero-timeout", Error;
    /// A state may take longer than the whole workflow.
    TimeoutBeyondWorkflow = "timeout-beyond-workflow", Warning;
    /// The retries do not fit into the timeout.
    RetriesBeyondTimeout = "retries-beyond-timeout", Warning;
    /// Work that can be compensated never is.
    CompensationGap = "compensation-gap", Warning;
    /// A compensation with nothing to compensate.
    CompensationEmpty = "compensation-empty", Warning;
    /// A literal that looks like a secret.
    LiteralSecret = "literal-secret", Error;
    /// `$.item` or `$.index` outside a map.
    ItemOutsideMap = "item-outside-map", Error;
    /// `continueAsNew` inside a branch.
    ContinueInBranch = "continue-in-branch", Error;
    /// A join that requires more branches than there are.
    JoinTooLarge = "join-too-large", Error;
    /// A handler that an earlier one always hides.
    HandlerHidden = "handler-hidden", Warning;
    /// A field that has no effect without another.
    UnusedField = "unused-field", Warning;
    /// A secret reference where no activity receives it.
    MisplacedSecret = "misplaced-secret", Error;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem that validation reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub code: Code,
    /// JSON pointer into the definition.
    pub pointer: String,
    pub message: String,
    /// How to fix it.
    pub hint: String,
    /// Problems that only follow from this one and are not reported on their own.
    pub consequences: Vec<String>,
    /// Line and column, from 1, if the text is not JSON and a pointer cannot lead into it.
    pub position: Option<(usize, usize)>,
}

impl Finding {
    /// A finding without consequences.
    pub fn new(
        code: Code,
        pointer: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code,
            pointer: pointer.into(),
            message: message.into(),
            hint: hint.into(),
            consequences: Vec::new(),
            position: None,
        }
    }

    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Adds a consequence; beyond a readable number, only a note that there are more.
    pub(crate) fn add_consequence(&mut self, consequence: &str) {
        const CONSEQUENCES_MAX: usize = 20;
        match self.consequences.len() {
            0..CONSEQUENCES_MAX => self.consequences.push(consequence.to_owned()),
            CONSEQUENCES_MAX => self.consequences.push("and more".to_owned()),
            _ => {}
        }
    }
}

/// Sorts findings by severity, worst first, then by pointer.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        b.severity()
            .cmp(&a.severity())
            .then_with(|| a.pointer.cmp(&b.pointer))
            .then_with(|| a.code.cmp(&b.code))
    });
}

/// True if a pointer leads to a place or below it.
pub(crate) fn is_within(pointer: &str, place: &str) -> bool {
    pointer == place || pointer.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
}

/// One name as it is written in a JSON pointer.
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

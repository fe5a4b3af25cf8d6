//! What `abide doctor` looks at, and how it is told. One file per thing that is looked at.

pub(crate) mod folder;
pub(crate) mod server;

/// What was found, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    pub(crate) advice: Option<String>,
}

/// Whether somebody must act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Fine,
    Doubtful,
    Bad,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Doubtful => "doubtful",
            Self::Bad => "bad",
        }
    }
}

impl Finding {
    fn fine(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fine, found: found.into(), advice: None }
    }

    fn doubtful(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Doubtful, found: found.into(), advice: Some(advice.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Bad, found: found.into(), advice: Some(advice.into()) }
    }
}

//! The checks of `abide doctor`, one file per subject. They find and advise, but change and print nothing.

pub(crate) mod folder;
pub(crate) mod server;

/// The result of one check, with advice if something is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DoctorFinding {
    pub(crate) check: &'static str,
    pub(crate) verdict: CheckStatus,
    pub(crate) message: String,
    pub(crate) advice: Option<String>,
}

/// The severity of a finding: an error must be fixed, a warning should be examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckStatus {
    Ok,
    Warning,
    Error,
}

impl CheckStatus {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl DoctorFinding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: CheckStatus::Ok, message: message.into(), advice: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: CheckStatus::Warning, message: message.into(), advice: Some(advice.into()) }
    }

    fn error(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: CheckStatus::Error, message: message.into(), advice: Some(advice.into()) }
    }
}

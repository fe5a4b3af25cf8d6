//! Runs the checks in sequence, within the total time limit, and collects their verdicts.
//!
//! It does not know what the checks do. The first check decides: if it fails, all others are skipped.

use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::time::Instant;

use crate::checks::{self, ContractCheck};
use crate::harness::Harness;
use crate::http_client::ReceiverClient;
use crate::receiver_url::ReceiverUrl;
use crate::violation::CheckFailure;
use crate::{ConformError, ConformOptions};

/// The verdict of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    pub check: &'static str,
    /// The rule, in one line.
    pub rule: &'static str,
    pub verdict: CheckVerdict,
}

/// The outcome of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckVerdict {
    Passed,
    Failed {
        /// The response of a receiver that keeps the rule.
        expected: String,
        /// The response of this receiver.
        found: String,
    },
    /// The rule could not be checked, or is optional and not supported.
    Skipped {
        reason: String,
    },
}

impl CheckVerdict {
    /// The verdict as reports print it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Failed { .. } => "FAIL",
            Self::Skipped { .. } => "skipped",
        }
    }
}

/// The verdicts of all checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConformReport {
    /// In the order in which they ran.
    pub checks: Vec<CheckReport>,
}

impl ConformReport {
    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |label: &str| self.checks.iter().filter(|report| report.verdict.label() == label).count();
        (count("pass"), count("FAIL"), count("skipped"))
    }

    /// True if no check failed.
    pub fn is_conformant(&self) -> bool {
        self.counts().1 == 0
    }
}

/// Checks a receiver, and passes each verdict to `on_check` as soon as it is known.
///
/// If the first check fails, `on_check` is not called for the others, which are skipped.
pub async fn run(
    options: &ConformOptions,
    mut on_check: impl FnMut(&CheckReport),
) -> Result<ConformReport, ConformError> {
    let harness = build_harness(options)?;
    let until = Instant::now() + options.total_timeout;
    let mut reports = Vec::new();
    let mut serves = true;
    for ContractCheck { name, rule, run, .. } in checks::checks_for(options.transport) {
        let verdict = if serves {
            match tokio::time::timeout_at(until, run(&harness)).await {
                Ok(Ok(())) => CheckVerdict::Passed,
                Ok(Err(CheckFailure::Unreachable(reason))) if reports.is_empty() => {
                    return Err(ConformError::Unreachable { reason });
                }
                Ok(Err(failure)) => verdict_of(failure),
                Err(_) => timed_out(options.total_timeout),
            }
        } else {
            CheckVerdict::Skipped { reason: "the prerequisite check `serves` failed".to_owned() }
        };
        // The first check says whether the others can be made.
        serves = serves && !(reports.is_empty() && verdict != CheckVerdict::Passed);
        let report = CheckReport { check: name, rule, verdict };
        if serves || reports.is_empty() {
            on_check(&report);
        }
        reports.push(report);
    }
    Ok(ConformReport { checks: reports })
}

fn build_harness(options: &ConformOptions) -> Result<Harness, ConformError> {
    let url = ReceiverUrl::parse(&options.url, &options.activity)?;
    let authorization = match &options.bearer_token {
        None => None,
        Some(token) => {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| ConformError::BearerToken)?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    let client = ReceiverClient { url, timeout: options.exchange_timeout, authorization };
    Ok(Harness::new(client, options))
}

fn verdict_of(failure: CheckFailure) -> CheckVerdict {
    match failure {
        CheckFailure::Violation { expected, found } => CheckVerdict::Failed { expected, found },
        CheckFailure::Skipped(reason) => CheckVerdict::Skipped { reason },
        CheckFailure::Unreachable(reason) => CheckVerdict::Failed {
            expected: "a response".to_owned(),
            found: format!("unreachable: {reason}"),
        },
    }
}

fn timed_out(limit: Duration) -> CheckVerdict {
    let expected = format!("all checks finished within {limit:?}");
    CheckVerdict::Failed { expected, found: "timed out".to_owned() }
}

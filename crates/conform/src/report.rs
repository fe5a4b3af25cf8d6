//! Runs the checks, one after the other and within the time there is, and says what came of them.

use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::checks::{self, Check};
use crate::exchange::Client;
use crate::place::Place;
use crate::unmet::Unmet;
use crate::{ConformError, Setting};

/// What came of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The check's name.
    pub check: &'static str,
    /// The rule, in one line.
    pub rule: &'static str,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// Whether a rule holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Passed,
    /// It does not.
    Failed {
        /// What a receiver that keeps it would have done.
        expected: String,
        /// What this one did.
        found: String,
    },
    /// That could not be found out, or need not hold.
    Skipped {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::Failed { .. } => "FAIL",
            Self::Skipped { .. } => "skipped",
        }
    }
}

/// What came of all checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// In the order in which they were made.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count =
            |word: &str| self.findings.iter().filter(|finding| finding.verdict.word() == word).count();
        (count("pass"), count("FAIL"), count("skipped"))
    }

    /// No rule is broken.
    pub fn is_conformant(&self) -> bool {
        self.counts().1 == 0
    }
}

/// Checks a receiver, and tells of each finding as it comes, until it is clear that there is nothing to check.
pub async fn run(setting: &Setting, mut tell: impl FnMut(&Finding)) -> Result<Report, ConformError> {
    let bench = bench(setting)?;
    let until = Instant::now() + setting.whole_time_max;
    let mut findings = Vec::new();
    let mut serves = true;
    for Check { name, rule, run, .. } in checks::of(setting.transport) {
        let verdict = if serves {
            match tokio::time::timeout_at(until, run(&bench)).await {
                Ok(Ok(())) => Verdict::Passed,
                Ok(Err(Unmet::Unreachable(reason))) if findings.is_empty() => {
                    return Err(ConformError::Unreachable { reason });
                }
                Ok(Err(unmet)) => verdict(unmet),
                Err(_) => late(setting.whole_time_max),
            }
        } else {
            Verdict::Skipped { why: "the activity does not do what it is there for".to_owned() }
        };
        // The first check is whether there is anything to check.
        serves = serves && !(findings.is_empty() && verdict != Verdict::Passed);
        let finding = Finding { check: name, rule, verdict };
        if serves || findings.is_empty() {
            tell(&finding);
        }
        findings.push(finding);
    }
    Ok(Report { findings })
}

fn bench(setting: &Setting) -> Result<Bench, ConformError> {
    let place = Place::parse(&setting.url, &setting.activity)?;
    let authorization = match &setting.bearer {
        None => None,
        Some(token) => {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| ConformError::Bearer)?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    let client = Client { place, time_max: setting.exchange_time_max, authorization };
    Ok(Bench::new(client, setting))
}

fn verdict(unmet: Unmet) -> Verdict {
    match unmet {
        Unmet::Broken { expected, found } => Verdict::Failed { expected, found },
        Unmet::Skipped(why) => Verdict::Skipped { why },
        Unmet::Unreachable(reason) => {
            Verdict::Failed { expected: "an answer".to_owned(), found: format!("nobody: {reason}") }
        }
    }
}

fn late(limit: Duration) -> Verdict {
    let expected = format!("all checks done within {limit:?}");
    Verdict::Failed { expected, found: "the time was up".to_owned() }
}

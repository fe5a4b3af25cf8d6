//! The report of the suite, check by check.
//!
//! It does not run checks and does not know what they check.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckOutcome {
    Passed,
    /// The promise was broken; the text says how.
    Failed(String),
    /// The check could not run on this backend; the text says why.
    Skipped(&'static str),
}

/// The outcomes of all checks, in order.
#[derive(Clone, Default, Debug)]
pub struct ConformanceReport {
    checks: Vec<(&'static str, &'static str, CheckOutcome)>,
}

impl ConformanceReport {
    pub(super) fn add(&mut self, promise: &'static str, check: &'static str, outcome: CheckOutcome) {
        self.checks.push((promise, check, outcome));
    }

    /// The promise, the check and the reason of every failure.
    pub fn failures(&self) -> Vec<(&'static str, &'static str, &str)> {
        let failures = self.checks.iter().filter_map(|(promise, check, outcome)| match outcome {
            CheckOutcome::Failed(how) => Some((*promise, *check, how.as_str())),
            CheckOutcome::Passed | CheckOutcome::Skipped(_) => None,
        });
        failures.collect()
    }

    /// The numbers of passed and of skipped checks.
    pub fn counts(&self) -> (usize, usize) {
        let passed = self.checks.iter().filter(|(.., outcome)| *outcome == CheckOutcome::Passed).count();
        (passed, self.checks.len() - passed - self.failures().len())
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for (promise, check, outcome) in &self.checks {
            if *promise != last {
                writeln!(f, "{promise}")?;
                last = promise;
            }
            let check = check.replace('_', " ");
            match outcome {
                CheckOutcome::Passed => writeln!(f, "  passed   {check}")?,
                CheckOutcome::Failed(how) => writeln!(f, "  FAILED   {check}: {how}")?,
                CheckOutcome::Skipped(why) => writeln!(f, "  skipped  {check}: {why}")?,
            }
        }
        Ok(())
    }
}

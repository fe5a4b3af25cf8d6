//! What the suite found, check by check.

use std::fmt;

/// What came of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The promise held.
    Held,
    /// It did not, and how.
    Broken(String),
    /// It could not be tried on this backend, and why.
    NotTried(&'static str),
}

/// All verdicts, in order.
#[derive(Clone, Default, Debug)]
pub struct Report {
    checks: Vec<(&'static str, &'static str, Verdict)>,
}

impl Report {
    pub(super) fn add(&mut self, promise: &'static str, check: &'static str, verdict: Verdict) {
        self.checks.push((promise, check, verdict));
    }

    /// Promise, check and what was wrong, for every broken one.
    pub fn broken(&self) -> Vec<(&'static str, &'static str, &str)> {
        let broken = self.checks.iter().filter_map(|(promise, check, verdict)| match verdict {
            Verdict::Broken(how) => Some((*promise, *check, how.as_str())),
            Verdict::Held | Verdict::NotTried(_) => None,
        });
        broken.collect()
    }

    /// How many held, and how many could not be tried.
    pub fn counts(&self) -> (usize, usize) {
        let held = self.checks.iter().filter(|(.., verdict)| *verdict == Verdict::Held).count();
        (held, self.checks.len() - held - self.broken().len())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for (promise, check, verdict) in &self.checks {
            if *promise != last {
                writeln!(f, "{promise}")?;
                last = promise;
            }
            let check = check.replace('_', " ");
            match verdict {
                Verdict::Held => writeln!(f, "  held    {check}")?,
                Verdict::Broken(how) => writeln!(f, "  BROKEN  {check}: {how}")?,
                Verdict::NotTried(why) => writeln!(f, "  —       {check}: {why}")?,
            }
        }
        Ok(())
    }
}

//! The rules of the contract as checks: a name, the rule in one line, and a function that checks it.
//!
//! There is one file per kind of rule. Each check makes its own calls, so the order does not matter, except for the
//! first check: if it fails, nothing else can be checked.

mod bodies;
mod deadlines;
mod envelopes;
mod identity;
mod metadata;
mod probes;
mod statuses;

use std::future::Future;
use std::pin::Pin;

use crate::WireFormat;
use crate::harness::Harness;
use crate::violation::CheckResult;

/// The future of a running check.
pub(crate) type CheckFuture<'b> = Pin<Box<dyn Future<Output = CheckResult> + Send + 'b>>;

/// A rule of the contract, and the function that checks it.
pub(crate) struct ContractCheck {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) run: Box<dyn for<'b> Fn(&'b Harness) -> CheckFuture<'b> + Send + Sync>,
}

impl ContractCheck {
    fn new(
        name: &'static str,
        rule: &'static str,
        run: impl for<'b> Fn(&'b Harness) -> CheckFuture<'b> + Send + Sync + 'static,
    ) -> Self {
        Self { name, rule, run: Box::new(run) }
    }
}

/// All checks for receivers of this wire, in the order in which they run.
pub(crate) fn checks_for(transport: WireFormat) -> Vec<ContractCheck> {
    let mut all = identity::all();
    all.extend(deadlines::all());
    all.extend(metadata::all(transport));
    all.extend(statuses::all());
    all.extend(bodies::all(transport));
    if transport == WireFormat::Envelope {
        all.extend(envelopes::all());
    }
    all.extend(probes::all());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_checks_are_unique_and_rules_fit_on_one_line() {
        for transport in WireFormat::ALL {
            let all = checks_for(transport);
            let names: BTreeSet<&str> = all.iter().map(|check| check.name).collect();
            assert_eq!(names.len(), all.len());
            for check in all {
                assert!(check.rule.len() <= 120 && !check.rule.contains('\n'), "{}", check.rule);
            }
        }
    }
}

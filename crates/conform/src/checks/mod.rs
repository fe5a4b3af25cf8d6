//! The rules of the contract as checks: a name, the rule in one line, and what finds out whether it holds.
//!
//! A file per kind of rule. Checks use work of their own, so their order does not matter; only the first one is special: without it there
//! is nothing to check.

mod bodies;
mod deadlines;
mod envelopes;
mod identity;
mod metadata;
mod probes;
mod statuses;

use std::future::Future;
use std::pin::Pin;

use crate::Wire;
use crate::bench::Bench;
use crate::unmet::Met;

/// A check under way.
pub(crate) type Checking<'b> = Pin<Box<dyn Future<Output = Met> + Send + 'b>>;

/// A rule, and how to find out whether it holds.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) run: Box<dyn for<'b> Fn(&'b Bench) -> Checking<'b> + Send + Sync>,
}

impl Check {
    fn new(
        name: &'static str,
        rule: &'static str,
        run: impl for<'b> Fn(&'b Bench) -> Checking<'b> + Send + Sync + 'static,
    ) -> Self {
        Self { name, rule, run: Box::new(run) }
    }
}

/// Everything that holds for receivers of this wire.
pub(crate) fn of(transport: Wire) -> Vec<Check> {
    let mut all = identity::all();
    all.extend(deadlines::all());
    all.extend(metadata::all(transport));
    all.extend(statuses::all());
    all.extend(bodies::all(transport));
    if transport == Wire::Envelope {
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
    fn checks_have_names_of_their_own_and_rules_of_one_line() {
        for transport in Wire::ALL {
            let all = of(transport);
            let names: BTreeSet<&str> = all.iter().map(|check| check.name).collect();
            assert_eq!(names.len(), all.len());
            for check in all {
                assert!(check.rule.len() <= 120 && !check.rule.contains('\n'), "{}", check.rule);
            }
        }
    }
}

//! Whether a definition makes sense as a whole. Every finding has a stable code, a place and something to do; errors refuse,
//! warnings publish.
//!
//! Each file here checks one kind of rule on the typed definition. Nothing here runs anything.

mod activities;
mod compensation;
mod loops;
mod scoping;
mod secrets;
mod targets;
mod timing;

use std::collections::BTreeMap;

use crate::definition::{ActivityCall, Authored, Definition, StateKind};
use crate::finding::{self, Finding, Severity};
use crate::flow::Flow;
use crate::registry::{Activity, Registry};

/// A definition that may be compiled, with the warnings it publishes with.
#[derive(Debug)]
pub struct Validated {
    pub(crate) definition: Definition,
    pub(crate) activities: BTreeMap<String, Activity>,
    findings: Vec<Finding>,
}

impl Validated {
    /// The definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Warnings and notes, worst first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// A definition that may not run, with everything that was found.
#[derive(Debug, thiserror::Error)]
#[error("the definition has {}", errors(.findings))]
pub struct Rejected {
    /// Errors first.
    pub findings: Vec<Finding>,
}

fn errors(findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| finding.severity() == Severity::Error).count() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    }
}

impl Authored {
    /// Checks the definition as a whole. With a registry unknown activities are errors; without one their names are noted.
    pub fn validate(self, registry: Option<&Registry>) -> Result<Validated, Rejected> {
        let Self { definition, mut findings } = self;
        let Some(definition) = definition else {
            return Err(Rejected { findings });
        };
        let flow = Flow::of(&definition);
        targets::check(&definition, &flow, &mut findings);
        loops::check(&definition, &flow, &mut findings);
        activities::check(&definition, registry, &mut findings);
        timing::check(&definition, registry, &mut findings);
        compensation::check(&definition, &flow, registry, &mut findings);
        scoping::check(&definition, &mut findings);
        secrets::check(&definition, &mut findings);
        finding::sort(&mut findings);
        findings.dedup();
        if findings.iter().any(|finding| finding.severity() == Severity::Error) {
            return Err(Rejected { findings });
        }
        let known = |name: &str| Some((name.to_owned(), registry?.get(name)?.clone()));
        let mut activities: BTreeMap<String, Activity> =
            calls(&definition).into_iter().filter_map(|(_, call, _)| known(&call.activity)).collect();
        let pairs: Vec<(String, Activity)> =
            activities.values().filter_map(|activity| known(activity.compensation.as_ref()?)).collect();
        activities.extend(pairs);
        Ok(Validated { definition, activities, findings })
    }
}

/// What a call without an input is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    /// Null.
    Null,
    /// The input and the result of the task to be undone.
    Pair,
}

/// Every activity call of a definition with the place of the call.
fn calls(definition: &Definition) -> Vec<(String, &ActivityCall, Without)> {
    let mut calls = Vec::new();
    let escalation = definition.configuration.escalation.as_ref();
    if let Some(call) = escalation.and_then(|escalation| escalation.notify.as_ref()) {
        calls.push(("/configuration/escalation/notify".to_owned(), call, Without::Null));
    }
    for state in &definition.states {
        match &state.kind {
            StateKind::Task(task) => {
                calls.push((state.pointer.clone(), &task.call, Without::Null));
                if let Some(call) = &task.compensate_with {
                    calls.push((format!("{}/compensateWith", state.pointer), call, Without::Pair));
                }
            }
            StateKind::Compensation { steps } => {
                for (position, step) in steps.iter().flatten().enumerate() {
                    calls.push((format!("{}/steps/{position}", state.pointer), &step.call, Without::Null));
                }
            }
            _ => {}
        }
    }
    calls
}

//! Validates a definition as a whole; each file checks one kind of rule on the typed definition. Nothing here runs
//! anything.
//!
//! Every finding has a stable code, a place and a hint. An error rejects the definition; a warning does not.

mod activities;
mod compensation;
mod loops;
mod scoping;
mod secrets;
mod targets;
mod timing;

use std::collections::BTreeMap;

use crate::definition::{ActivityCall, Definition, ParsedDefinition, StateKind};
use crate::finding::{self, Finding, Severity};
use crate::flow::Flow;
use crate::registry::{RegisteredActivity, Registry};

/// A definition without errors, ready to be compiled, with its warnings and notes.
#[derive(Debug)]
pub struct ValidatedDefinition {
    pub(crate) definition: Definition,
    pub(crate) activities: BTreeMap<String, RegisteredActivity>,
    findings: Vec<Finding>,
}

impl ValidatedDefinition {
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Warnings and notes, worst first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// The findings about a definition that cannot run.
#[derive(Debug, thiserror::Error)]
#[error("the definition has {}", errors(.findings))]
pub struct ValidationError {
    /// All findings, errors first.
    pub findings: Vec<Finding>,
}

fn errors(findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| finding.severity() == Severity::Error).count() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    }
}

impl ParsedDefinition {
    /// Checks the definition as a whole. With a registry, unknown activities are errors; without one, a note lists the
    /// activities.
    pub fn validate(self, registry: Option<&Registry>) -> Result<ValidatedDefinition, ValidationError> {
        let Self { definition, mut findings } = self;
        let Some(definition) = definition else {
            return Err(ValidationError { findings });
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
            return Err(ValidationError { findings });
        }
        let registered = |name: &str| Some((name.to_owned(), registry?.get(name)?.clone()));
        let mut activities: BTreeMap<String, RegisteredActivity> = activity_calls(&definition)
            .into_iter()
            .filter_map(|(_, call, _)| registered(&call.activity))
            .collect();
        let compensations: Vec<(String, RegisteredActivity)> =
            activities.values().filter_map(|activity| registered(activity.compensation.as_ref()?)).collect();
        activities.extend(compensations);
        Ok(ValidatedDefinition { definition, activities, findings })
    }
}

/// The input of a call that has none of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DefaultInput {
    Null,
    /// The input and the result of the task to be compensated.
    TaskInputAndResult,
}

/// All activity calls of a definition, each with its pointer and its default input.
fn activity_calls(definition: &Definition) -> Vec<(String, &ActivityCall, DefaultInput)> {
    let mut calls = Vec::new();
    let escalation = definition.configuration.escalation.as_ref();
    if let Some(call) = escalation.and_then(|escalation| escalation.notify.as_ref()) {
        calls.push(("/configuration/escalation/notify".to_owned(), call, DefaultInput::Null));
    }
    for state in &definition.states {
        match &state.kind {
            StateKind::Task(task) => {
                calls.push((state.pointer.clone(), &task.call, DefaultInput::Null));
                if let Some(call) = &task.compensate_with {
                    calls.push((
                        format!("{}/compensateWith", state.pointer),
                        call,
                        DefaultInput::TaskInputAndResult,
                    ));
                }
            }
            StateKind::Compensation { steps } => {
                for (position, step) in steps.iter().flatten().enumerate() {
                    calls.push((
                        format!("{}/steps/{position}", state.pointer),
                        &step.call,
                        DefaultInput::Null,
                    ));
                }
            }
            _ => {}
        }
    }
    calls
}

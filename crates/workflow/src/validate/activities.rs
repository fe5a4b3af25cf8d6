//! Activities by name: known to the registry, and given what they ask for, as far as that can be told before running.

use std::collections::BTreeSet;

use super::Without;
use crate::definition::{Definition, StateKind, closest};
use crate::finding::{Code, Finding, within};
use crate::path::Template;
use crate::registry::Registry;
use crate::schema::Schema;

pub(super) fn check(definition: &Definition, registry: Option<&Registry>, findings: &mut Vec<Finding>) {
    check_next_runs(definition, findings);
    let calls = super::calls(definition);
    let Some(registry) = registry else {
        let names: BTreeSet<&str> = calls.iter().map(|(_, call, _)| call.activity.as_str()).collect();
        if !names.is_empty() {
            let message = format!("not checked, because no registry was given: {}", join(&names));
            let hint = "give the list of activities to have them checked";
            findings.push(Finding::new(Code::ActivitiesUnchecked, "", message, hint));
        }
        return;
    };
    for (pointer, call, without) in calls {
        match registry.get(&call.activity) {
            Some(activity) => {
                // What a pair is given is known at run time only.
                if let Some(schema) =
                    activity.input.as_ref().filter(|_| call.input.is_some() || without == Without::Null)
                {
                    let who = format!("activity {:?}", call.activity);
                    check_input(&format!("{pointer}/input"), &who, call.input.as_ref(), schema, findings);
                }
            }
            None => {
                let hint = match closest(&call.activity, registry.names()) {
                    Some(near) => format!("did you mean {near:?}? Else register it first"),
                    None => "register the activity before publishing".to_owned(),
                };
                let message = format!("no activity {:?} is registered", call.activity);
                findings.push(Finding::new(
                    Code::UnknownActivity,
                    format!("{pointer}/activity"),
                    message,
                    hint,
                ));
            }
        }
    }
}

/// A run that begins again with an input its own schema refuses would fail every time.
fn check_next_runs(definition: &Definition, findings: &mut Vec<Finding>) {
    let Some(schema) = &definition.input else { return };
    for state in &definition.states {
        if let StateKind::ContinueAsNew { input } = &state.kind {
            let pointer = format!("{}/input", state.pointer);
            check_input(&pointer, "the next run", input.as_ref(), schema, findings);
        }
    }
}

/// Checks the literal parts. A hole may hold anything, and a secret will, so what depends on their value is left to run time.
fn check_input(
    pointer: &str,
    who: &str,
    template: Option<&Template>,
    schema: &Schema,
    findings: &mut Vec<Finding>,
) {
    let Some(template) = template else {
        // There is no input to point at: the place is who should have one.
        for mismatch in schema.mismatches(&serde_json::Value::Null) {
            let message = format!(
                "there is no input, so null is given, and {who} asks for something else: {}",
                mismatch.message
            );
            let place = pointer.strip_suffix("/input").unwrap_or(pointer);
            findings.push(Finding::new(Code::InputSchemaMismatch, place, message, "add an input"));
        }
        return;
    };
    let mut holes: Vec<String> = template.paths().into_iter().map(|(at, _)| at).collect();
    holes.extend(template.secrets());
    for mismatch in schema.mismatches(&with_nulls(template)) {
        let in_hole = holes.iter().any(|hole| within(&mismatch.pointer, hole));
        let above_hole = holes.iter().any(|hole| within(hole, &mismatch.pointer));
        let structural = matches!(
            mismatch.keyword.as_str(),
            "required"
                | "additionalProperties"
                | "type"
                | "minProperties"
                | "maxProperties"
                | "minItems"
                | "maxItems"
        );
        let decided_by_hole = mismatch.conditional && !holes.is_empty();
        if !in_hole && !decided_by_hole && (structural || !above_hole) {
            let message = format!("{who} asks for something else: {}", mismatch.message);
            let place = format!("{pointer}{}", mismatch.pointer);
            findings.push(Finding::new(
                Code::InputSchemaMismatch,
                place,
                message,
                "give what the schema asks for",
            ));
        }
    }
}

fn with_nulls(template: &Template) -> serde_json::Value {
    match template {
        Template::Literal(value) => value.clone(),
        Template::Path(_) => serde_json::Value::Null,
        Template::Array(items) => items.iter().map(with_nulls).collect(),
        Template::Object(fields) => serde_json::Value::Object(
            fields.iter().map(|(name, field)| (name.clone(), with_nulls(field))).collect(),
        ),
    }
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

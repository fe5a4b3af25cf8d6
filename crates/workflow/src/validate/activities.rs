//! Checks that the registry knows every activity and that inputs match their schemas, as far as that is known before
//! running. It calls no activity.

use std::collections::BTreeSet;

use super::DefaultInput;
use crate::definition::{Definition, StateKind, closest_name};
use crate::finding::{Code, Finding, is_within};
use crate::path::Template;
use crate::registry::Registry;
use crate::schema::Schema;

pub(super) fn check(definition: &Definition, registry: Option<&Registry>, findings: &mut Vec<Finding>) {
    check_next_runs(definition, findings);
    let calls = super::activity_calls(definition);
    let Some(registry) = registry else {
        let names: BTreeSet<&str> = calls.iter().map(|(_, call, _)| call.activity.as_str()).collect();
        if !names.is_empty() {
            let message =
                format!("activities not checked, because no registry was given: {}", join_names(&names));
            let hint = "pass a list of activities to have them checked";
            findings.push(Finding::new(Code::ActivitiesUnchecked, "", message, hint));
        }
        return;
    };
    for (pointer, call, default_input) in calls {
        match registry.get(&call.activity) {
            Some(activity) => {
                // The default input of a compensation is known only at run time.
                if let Some(schema) = activity
                    .input
                    .as_ref()
                    .filter(|_| call.input.is_some() || default_input == DefaultInput::Null)
                {
                    let receiver = format!("activity {:?}", call.activity);
                    check_input(
                        &format!("{pointer}/input"),
                        &receiver,
                        call.input.as_ref(),
                        schema,
                        findings,
                    );
                }
            }
            None => {
                let hint = match closest_name(&call.activity, registry.names()) {
                    Some(near) => format!("did you mean {near:?}? Otherwise register the activity first"),
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

/// A run that continues as new with an input that its own schema rejects would fail every time.
fn check_next_runs(definition: &Definition, findings: &mut Vec<Finding>) {
    let Some(schema) = &definition.input else { return };
    for state in &definition.states {
        if let StateKind::ContinueAsNew { input } = &state.kind {
            let pointer = format!("{}/input", state.pointer);
            check_input(&pointer, "the next run", input.as_ref(), schema, findings);
        }
    }
}

/// Checks the literal parts of a template. The values of paths and secrets are unknown, so everything that depends on
/// them is left to run time.
fn check_input(
    pointer: &str,
    receiver: &str,
    template: Option<&Template>,
    schema: &Schema,
    findings: &mut Vec<Finding>,
) {
    let Some(template) = template else {
        // There is no input to point at, so the finding points at the call that should have one.
        for mismatch in schema.mismatches(&serde_json::Value::Null) {
            let message = format!(
                "there is no input, so {receiver} would get null, which does not match its schema: {}",
                mismatch.message
            );
            let place = pointer.strip_suffix("/input").unwrap_or(pointer);
            findings.push(Finding::new(Code::InputSchemaMismatch, place, message, "add an input"));
        }
        return;
    };
    let mut holes: Vec<String> = template.paths().into_iter().map(|(at, _)| at).collect();
    holes.extend(template.secret_pointers());
    for mismatch in schema.mismatches(&render_with_nulls(template)) {
        let in_hole = holes.iter().any(|hole| is_within(&mismatch.pointer, hole));
        let above_hole = holes.iter().any(|hole| is_within(hole, &mismatch.pointer));
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
            let message = format!("the input does not match the schema of {receiver}: {}", mismatch.message);
            let place = format!("{pointer}{}", mismatch.pointer);
            findings.push(Finding::new(
                Code::InputSchemaMismatch,
                place,
                message,
                "change the input to match the schema",
            ));
        }
    }
}

fn render_with_nulls(template: &Template) -> serde_json::Value {
    match template {
        Template::Literal(value) => value.clone(),
        Template::Path(_) => serde_json::Value::Null,
        Template::Array(items) => items.iter().map(render_with_nulls).collect(),
        Template::Object(fields) => serde_json::Value::Object(
            fields.iter().map(|(name, field)| (name.clone(), render_with_nulls(field))).collect(),
        ),
    }
}

fn join_names(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

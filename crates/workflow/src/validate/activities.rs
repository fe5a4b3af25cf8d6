//! Activities by name: known to the registry, and given what they ask for, as far as that can be told before running.

use std::collections::BTreeSet;

use crate::definition::{ActivityCall, Definition, closest};
use crate::finding::{Code, Finding};
use crate::path::Template;
use crate::registry::Registry;
use crate::schema::Schema;

pub(super) fn check(definition: &Definition, registry: Option<&Registry>, findings: &mut Vec<Finding>) {
    let calls = super::calls(definition);
    let Some(registry) = registry else {
        let names: BTreeSet<&str> = calls.iter().map(|(_, call)| call.activity.as_str()).collect();
        if !names.is_empty() {
            let message = format!("not checked, because no registry was given: {}", join(&names));
            let hint = "give the list of activities to have them checked";
            findings.push(Finding::new(Code::ActivitiesUnchecked, "", message, hint));
        }
        return;
    };
    for (pointer, call) in calls {
        match registry.get(&call.activity) {
            Some(activity) => {
                if let Some(schema) = &activity.input {
                    check_input(&pointer, call, schema, findings);
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

/// Checks the literal parts. A hole may hold anything, so what depends on its value is left to run time.
fn check_input(pointer: &str, call: &ActivityCall, schema: &Schema, findings: &mut Vec<Finding>) {
    // A compensation without input of its own is given one at run time.
    let Some(template) = &call.input else { return };
    let holes: Vec<String> = template.paths().into_iter().map(|(at, _)| at).collect();
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
        if !in_hole && (structural || !above_hole) {
            let message =
                format!("activity {:?} asks for something else: {}", call.activity, mismatch.message);
            let place = format!("{pointer}/input{}", mismatch.pointer);
            findings.push(Finding::new(
                Code::InputSchemaMismatch,
                place,
                message,
                "give the activity what its schema asks for",
            ));
        }
    }
}

fn within(place: &str, outer: &str) -> bool {
    place == outer || place.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
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

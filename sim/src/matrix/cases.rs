//! The example workflows and their cases, as they lie in a folder: definitions, activities, input, answers, events, expectations.

use std::fs;
use std::path::{Path, PathBuf};

use abide_workflow::Duration;
use abide_workflow::rehearse::{Mocks, Stimulus, parse_stimuli};
use serde_json::Value;

/// One run of an example, with the world it meets.
#[derive(Clone, Debug)]
pub struct Case {
    /// The example it belongs to.
    pub example: String,
    /// Its own name.
    pub name: String,
    /// The definition it runs first, then those of its children.
    pub definitions: Vec<String>,
    /// The activities, as JSON.
    pub activities: String,
    /// What it begins with.
    pub input: Value,
    /// What activities answer.
    pub mocks: Mocks,
    /// What happens from outside, and how long after the start.
    pub stimuli: Vec<(Duration, Stimulus)>,
    /// How its author says it ends.
    pub expected: Value,
}

/// Where children live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Children {
    /// As the definition says.
    AsDefined,
    /// Each under a name of its own, so that messages between parent and child cross from shard to shard.
    Spread,
}

/// All cases of the example in this folder, in the order of their names.
pub fn cases_of(folder: &Path, children: Children) -> Result<Vec<Case>, String> {
    let example = match children {
        Children::AsDefined => name_of(folder),
        Children::Spread => format!("{} (spread)", name_of(folder)),
    };
    let activities = read(&folder.join("activities.json"))?;
    let mut cases = Vec::new();
    for place in folders(&folder.join("cases"))? {
        let expected = json(&place.join("expect.json"))?;
        let mut definitions = vec![definition(&folder.join("workflow.json"), children)?];
        for child in expected.get("with").and_then(Value::as_array).into_iter().flatten() {
            definitions.push(definition(&folder.join(child.as_str().unwrap_or_default()), children)?);
        }
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", place.display());
        let mocks = optional(&place.join("mock.json"))?
            .map_or_else(|| Ok(Mocks::default()), |text| Mocks::parse(&text).map_err(|error| told(&error)))?;
        let stimuli = optional(&place.join("events.json"))?
            .map_or_else(|| Ok(Vec::new()), |text| parse_stimuli(&text).map_err(|error| told(&error)))?;
        let input =
            if place.join("input.json").exists() { json(&place.join("input.json"))? } else { Value::Null };
        cases.push(Case {
            example: example.clone(),
            name: name_of(&place),
            definitions,
            activities: activities.clone(),
            input,
            mocks,
            stimuli,
            expected,
        });
    }
    Ok(cases)
}

/// The folders in a folder, in the order of their names.
pub fn folders(path: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn definition(path: &Path, children: Children) -> Result<String, String> {
    if children == Children::AsDefined {
        return read(path);
    }
    let mut definition = json(path)?;
    spread(&mut definition);
    Ok(definition.to_string())
}

/// Gives every child in a definition a name of its own.
fn spread(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("type").and_then(Value::as_str) == Some("workflow") {
                fields.insert("spread".to_owned(), Value::Bool(true));
            }
            fields.values_mut().for_each(spread);
        }
        Value::Array(values) => values.iter_mut().for_each(spread),
        _ => {}
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn optional(path: &Path) -> Result<Option<String>, String> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

fn json(path: &Path) -> Result<Value, String> {
    serde_json::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

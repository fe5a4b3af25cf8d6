//! Reads an example workflow and its cases from a folder: definitions, activities, input, mocks, events, expectations.

use std::fs;
use std::path::{Path, PathBuf};

use abide_workflow::Duration;
use abide_workflow::rehearse::{Mocks, Stimulus, parse_stimuli};
use serde_json::Value;

/// One case of an example, with its mocks and events.
#[derive(Clone, Debug)]
pub struct Case {
    pub example: String,
    pub name: String,
    /// The definition of the case first, then those of its children.
    pub definitions: Vec<String>,
    /// The activity declarations as JSON.
    pub activities: String,
    pub input: Value,
    pub mocks: Mocks,
    /// Events and control operations, each with its time after the start.
    pub stimuli: Vec<(Duration, Stimulus)>,
    /// The content of `expect.json`: how the case must end.
    pub expected: Value,
}

/// On which shards children run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildPlacement {
    AsDefined,
    /// Every child is spread, so that messages between parent and child cross shards.
    Spread,
}

/// Loads all cases of the example in this folder, ordered by name.
pub fn load_cases(folder: &Path, children: ChildPlacement) -> Result<Vec<Case>, String> {
    let example = match children {
        ChildPlacement::AsDefined => name_of(folder),
        ChildPlacement::Spread => format!("{} (spread)", name_of(folder)),
    };
    let activities = read(&folder.join("activities.json"))?;
    let mut cases = Vec::new();
    for place in folders(&folder.join("cases"))? {
        let expected = read_json(&place.join("expect.json"))?;
        let mut definitions = vec![definition(&folder.join("workflow.json"), children)?];
        for child in expected.get("with").and_then(Value::as_array).into_iter().flatten() {
            definitions.push(definition(&folder.join(child.as_str().unwrap_or_default()), children)?);
        }
        let with_path = |error: &dyn std::fmt::Display| format!("{}: {error}", place.display());
        let mocks = read_optional(&place.join("mock.json"))?.map_or_else(
            || Ok(Mocks::default()),
            |text| Mocks::parse(&text).map_err(|error| with_path(&error)),
        )?;
        let stimuli = read_optional(&place.join("events.json"))?
            .map_or_else(|| Ok(Vec::new()), |text| parse_stimuli(&text).map_err(|error| with_path(&error)))?;
        let input = if place.join("input.json").exists() {
            read_json(&place.join("input.json"))?
        } else {
            Value::Null
        };
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

/// The folders in a folder, ordered by name.
pub fn folders(path: &Path) -> Result<Vec<PathBuf>, String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(with_path)? {
        let path = entry.map_err(with_path)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn definition(path: &Path, children: ChildPlacement) -> Result<String, String> {
    if children == ChildPlacement::AsDefined {
        return read(path);
    }
    let mut definition = read_json(path)?;
    spread_children(&mut definition);
    Ok(definition.to_string())
}

/// Sets `spread` for every child in a definition.
fn spread_children(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("type").and_then(Value::as_str) == Some("workflow") {
                fields.insert("spread".to_owned(), Value::Bool(true));
            }
            fields.values_mut().for_each(spread_children);
        }
        Value::Array(values) => values.iter_mut().for_each(spread_children),
        _ => {}
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_optional(path: &Path) -> Result<Option<String>, String> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

fn read_json(path: &Path) -> Result<Value, String> {
    serde_json::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

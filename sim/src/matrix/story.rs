//! A history without what a crash may change: times, the number of deliveries, how facts were grouped into turns, and the order between
//! branches. What is left must be the same whatever was stopped where.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What happened in all runs of a case: run → place → what happened there, in order. A place is a branch, or [`RUN`], or [`EVENTS`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Story {
    runs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The place of what concerns a run as a whole.
pub(super) const RUN: &str = "run";
/// The place of external events.
pub(super) const EVENTS: &str = "events";
/// The name of the first branch.
const ROOT: &str = "root";

impl Story {
    /// Adds the history of a run.
    pub(super) fn add(&mut self, run: &str, history: &[Value]) {
        let mut telling = Telling { places: BTreeMap::new(), ..Telling::default() };
        telling.names.insert(0, ROOT.to_owned());
        for event in history {
            telling.hear(event);
        }
        self.runs.insert(run.to_owned(), telling.places);
    }

    /// Adds what else is known of a run.
    pub(super) fn note(&mut self, run: &str, place: &str, line: String) {
        let places = self.runs.entry(run.to_owned()).or_default();
        places.entry(place.to_owned()).or_default().push(line);
    }

    /// Where another story differs from this one: the first difference of each place.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let nothing = BTreeMap::new();
        let mut found = Vec::new();
        for run in keys(&self.runs, &other.runs) {
            let (here, there) =
                (self.runs.get(run).unwrap_or(&nothing), other.runs.get(run).unwrap_or(&nothing));
            for place in keys(here, there) {
                let (here, there) = (here.get(place), there.get(place));
                if let Some(what) = first_difference(lines(here), lines(there)) {
                    found.push(format!("{run}, {place}: {what}"));
                }
            }
        }
        found
    }
}

fn keys<'a, T>(
    here: &'a BTreeMap<String, T>,
    there: &'a BTreeMap<String, T>,
) -> std::collections::BTreeSet<&'a String> {
    here.keys().chain(there.keys()).collect()
}

fn lines(lines: Option<&Vec<String>>) -> &[String] {
    lines.map_or(&[], Vec::as_slice)
}

fn first_difference(here: &[String], there: &[String]) -> Option<String> {
    let longest = here.len().max(there.len());
    let line = (0..longest).find(|line| here.get(*line) != there.get(*line))?;
    let told = |lines: &[String]| lines.get(line).map_or("nothing", String::as_str).to_owned();
    Some(format!("line {line} was {}, is {}", told(here), told(there)))
}

/// A history being told.
#[derive(Default)]
struct Telling {
    places: BTreeMap<String, Vec<String>>,
    /// Branch → its name: where it came from, rather than its number.
    names: BTreeMap<u64, String>,
    /// Branch → the state it is in.
    states: BTreeMap<u64, String>,
    /// Command → the branch that gave it; none for those of the run itself.
    commands: BTreeMap<u64, String>,
}

impl Telling {
    fn hear(&mut self, event: &Value) {
        let Some(fields) = event.as_object() else { return };
        let kind = text(fields, "eventType");
        // Turns begin and end as they like.
        if matches!(kind, "OrchestratorStarted" | "OrchestratorCompleted") {
            return;
        }
        let branch = number(fields, "branch");
        match (kind, branch) {
            ("StateEntered", Some(branch)) => {
                let visit = number(fields, "visit").unwrap_or(0);
                self.states.insert(branch, format!("{}#{visit}", text(fields, "state")));
            }
            ("BranchStarted", Some(branch)) => {
                let parent = number(fields, "parent").unwrap_or(0);
                let from = self.states.get(&parent).map_or("?", String::as_str);
                let index = number(fields, "index").unwrap_or(0);
                let name = format!("{}/{from}.{index}", self.name(parent));
                self.names.insert(branch, name);
            }
            _ => {}
        }
        let command = number(fields, "command");
        let place = match (branch, command) {
            (Some(branch), _) => self.name(branch),
            (None, Some(command)) => self.commands.get(&command).cloned().unwrap_or_else(|| RUN.to_owned()),
            (None, None) if kind == "EventRaised" => EVENTS.to_owned(),
            (None, None) => RUN.to_owned(),
        };
        if let (Some(command), Some(_)) = (command, branch) {
            self.commands.insert(command, place.clone());
        }
        self.places.entry(place).or_default().push(line(kind, fields));
    }

    fn name(&self, branch: u64) -> String {
        self.names.get(&branch).cloned().unwrap_or_else(|| format!("branch {branch}"))
    }
}

/// What an event says besides when, where and for the how manieth time.
fn line(kind: &str, fields: &Map<String, Value>) -> String {
    let mut line = kind.to_owned();
    for (name, value) in fields {
        let said = match name.as_str() {
            "eventType" | "sequence" | "timestamp" | "branch" | "command" | "attempt" | "fireAt" => continue,
            // A branch's parent is in its name.
            "parent" if value.is_number() => continue,
            "retryAt" => "again".to_owned(),
            "error" => format!("error={}", value.get("code").unwrap_or(value)),
            "states" => format!("states={}", sorted(value)),
            _ => format!("{name}={value}"),
        };
        line.push(' ');
        line.push_str(&said);
    }
    line
}

fn sorted(value: &Value) -> String {
    let mut texts: Vec<String> = value.as_array().into_iter().flatten().map(ToString::to_string).collect();
    texts.sort();
    texts.join(",")
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    fields.get(name).and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn story(history: &[Value]) -> Story {
        let mut story = Story::default();
        story.add("a/1", history);
        story
    }

    fn entered(branch: u32, state: &str) -> Value {
        json!({"eventType": "StateEntered", "branch": branch, "state": state, "visit": 1, "timestamp": "now"})
    }

    #[test]
    fn branches_are_told_apart_by_where_they_come_from_and_not_by_when_they_began() {
        let begun = |branch, index| json!({"eventType": "BranchStarted", "branch": branch, "parent": 0, "index": index});
        let one = story(&[entered(0, "Both"), begun(1, 0), begun(2, 1), entered(1, "A"), entered(2, "B")]);
        let other = story(&[entered(0, "Both"), begun(1, 1), begun(2, 0), entered(1, "B"), entered(2, "A")]);
        assert_eq!(one, other);
        let swapped =
            story(&[entered(0, "Both"), begun(1, 0), begun(2, 1), entered(1, "B"), entered(2, "A")]);
        assert_eq!(one.differences(&swapped).len(), 2);
    }

    #[test]
    fn an_answer_belongs_to_the_branch_that_called_whatever_its_command_is_called() {
        let history = |command: u64, code: &str| {
            story(&[
                json!({"eventType": "TaskScheduled", "command": command, "branch": 0, "activity": "A"}),
                json!({"eventType": "TaskFailed", "command": command, "attempt": command, "error": {"code": code}}),
            ])
        };
        assert_eq!(history(1, "Busy"), history(7, "Busy"));
        let found = history(1, "Busy").differences(&history(1, "Gone"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a/1, root: line 1 was TaskFailed"), "{found:?}");
    }
}

//! A history without the parts that a crash may change: times, the number of attempts, the grouping of facts into
//! turns, and the order between branches. The rest must be the same after any crash.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The history of all runs of a case: run → scope → events, in order. A scope is a branch, [`RUN_SCOPE`] or
/// [`EVENTS_SCOPE`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NormalisedHistory {
    runs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The scope of events that concern a run as a whole.
pub(super) const RUN_SCOPE: &str = "run";
/// The scope of external events.
pub(super) const EVENTS_SCOPE: &str = "events";
/// The name of the first branch.
const ROOT: &str = "root";

impl NormalisedHistory {
    /// Adds the history of a run.
    pub(super) fn add(&mut self, run: &str, history: &[Value]) {
        let mut normaliser = HistoryNormaliser { scopes: BTreeMap::new(), ..HistoryNormaliser::default() };
        normaliser.names.insert(0, ROOT.to_owned());
        for event in history {
            normaliser.apply_event(event);
        }
        self.runs.insert(run.to_owned(), normaliser.scopes);
    }

    /// Adds a line about a run that is not from its history.
    pub(super) fn add_line(&mut self, run: &str, scope: &str, line: String) {
        let scopes = self.runs.entry(run.to_owned()).or_default();
        scopes.entry(scope.to_owned()).or_default().push(line);
    }

    /// The first difference from another history in each scope.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let nothing = BTreeMap::new();
        let mut found = Vec::new();
        for run in keys(&self.runs, &other.runs) {
            let (here, there) =
                (self.runs.get(run).unwrap_or(&nothing), other.runs.get(run).unwrap_or(&nothing));
            for scope in keys(here, there) {
                let here = here.get(scope);
                let there = there.get(scope);
                if let Some(what) = first_difference(lines(here), lines(there)) {
                    found.push(format!("{run}, {scope}: {what}"));
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
    let text = |lines: &[String]| lines.get(line).map_or("nothing", String::as_str).to_owned();
    Some(format!("line {line} was {}, is {}", text(here), text(there)))
}

/// Normalises the history of one run, event by event.
#[derive(Default)]
struct HistoryNormaliser {
    scopes: BTreeMap<String, Vec<String>>,
    /// Branch → its name, made from its parent and state rather than its number.
    names: BTreeMap<u64, String>,
    /// Branch → the state it is in.
    states: BTreeMap<u64, String>,
    /// Command → the branch that issued it; commands of the run itself are not in it.
    commands: BTreeMap<u64, String>,
}

impl HistoryNormaliser {
    fn apply_event(&mut self, event: &Value) {
        let Some(fields) = event.as_object() else { return };
        let kind = text(fields, "eventType");
        // The grouping into turns may differ.
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
        let scope = match (branch, command) {
            (Some(branch), _) => self.name(branch),
            (None, Some(command)) => {
                self.commands.get(&command).cloned().unwrap_or_else(|| RUN_SCOPE.to_owned())
            }
            (None, None) if kind == "EventRaised" => EVENTS_SCOPE.to_owned(),
            (None, None) => RUN_SCOPE.to_owned(),
        };
        if let (Some(command), Some(_)) = (command, branch) {
            self.commands.insert(command, scope.clone());
        }
        self.scopes.entry(scope).or_default().push(normalise_event(kind, fields));
    }

    fn name(&self, branch: u64) -> String {
        self.names.get(&branch).cloned().unwrap_or_else(|| format!("branch {branch}"))
    }
}

/// An event as text, without its time, branch and attempt number.
fn normalise_event(kind: &str, fields: &Map<String, Value>) -> String {
    let mut line = kind.to_owned();
    for (name, value) in fields {
        let field = match name.as_str() {
            "eventType" | "sequence" | "timestamp" | "branch" | "command" | "attempt" | "fireAt" => continue,
            // The name of a branch contains its parent.
            "parent" if value.is_number() => continue,
            "retryAt" => "again".to_owned(),
            "error" => format!("error={}", value.get("code").unwrap_or(value)),
            "states" => format!("states={}", sorted(value)),
            _ => format!("{name}={value}"),
        };
        line.push(' ');
        line.push_str(&field);
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

    fn story(history: &[Value]) -> NormalisedHistory {
        let mut story = NormalisedHistory::default();
        story.add("a/1", history);
        story
    }

    fn entered(branch: u32, state: &str) -> Value {
        json!({"eventType": "StateEntered", "branch": branch, "state": state, "visit": 1, "timestamp": "now"})
    }

    #[test]
    fn branches_are_identified_by_their_origin_and_not_by_their_start_order() {
        let begun = |branch, index| json!({"eventType": "BranchStarted", "branch": branch, "parent": 0, "index": index});
        let one = story(&[entered(0, "Both"), begun(1, 0), begun(2, 1), entered(1, "A"), entered(2, "B")]);
        let other = story(&[entered(0, "Both"), begun(1, 1), begun(2, 0), entered(1, "B"), entered(2, "A")]);
        assert_eq!(one, other);
        let swapped =
            story(&[entered(0, "Both"), begun(1, 0), begun(2, 1), entered(1, "B"), entered(2, "A")]);
        assert_eq!(one.differences(&swapped).len(), 2);
    }

    #[test]
    fn a_result_belongs_to_the_calling_branch_whatever_its_command_id() {
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

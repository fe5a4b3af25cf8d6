//! Renders a definition as Mermaid text, with a box around the branches of every parallel and map.
//!
//! It does not validate: it draws any definition. A transition to a state that does not exist leads to a dashed node.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::condition::{Condition, Op, Operand};
use crate::definition::{Definition, ErrorHandler, State, StateKind, WaitTime};
use crate::flow::{resolve, state_of};
use crate::ids::{BlockId, StateId};

/// Renders a definition as a Mermaid flowchart.
pub fn mermaid(definition: &Definition) -> String {
    let mut drawing = Drawing { definition, text: String::from("flowchart TD\n"), missing: BTreeMap::new() };
    drawing.block(BlockId::TOP, 1);
    if let Some(escalation) = &definition.configuration.escalation
        && let Some(recover) = &escalation.recover
    {
        drawing.line(1, "timeout{{\"workflow timeout\"}}");
        let target = drawing.target(BlockId::TOP, recover);
        drawing.line(1, &format!("timeout -. \"recover\" .-> {target}"));
    }
    for number in 0..drawing.missing.len() {
        drawing.line(1, &format!("style missing{number} stroke-dasharray: 5 5"));
    }
    drawing.text
}

struct Drawing<'a> {
    definition: &'a Definition,
    text: String,
    missing: BTreeMap<(BlockId, String), usize>,
}

impl Drawing<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", depth * 2);
    }

    fn block(&mut self, id: BlockId, depth: usize) {
        let Some(block) = self.definition.blocks.get(id.0 as usize) else { return };
        let start = self.target(id, block.start_at.as_deref().unwrap_or_default());
        self.line(depth, &format!("start{0}(( )) --> {start}", id.0));
        for state in block.states.values() {
            self.state(*state, depth);
        }
        for state in block.states.values() {
            self.edges(*state, depth);
        }
    }

    fn state(&mut self, id: StateId, depth: usize) {
        let Some(state) = state_of(self.definition, id) else { return };
        let node = node(id);
        let label = escape(&label(state));
        let shape = match &state.kind {
            StateKind::Choice { .. } => format!("{node}{{\"{label}\"}}"),
            StateKind::WaitUntil(_) | StateKind::WaitEvent(_) => format!("{node}[/\"{label}\"/]"),
            StateKind::Succeed { .. } | StateKind::Fail { .. } => format!("{node}([\"{label}\"])"),
            StateKind::Compensation { .. } => format!("{node}[\\\"{label}\"\\]"),
            StateKind::Workflow(_) | StateKind::ContinueAsNew { .. } => format!("{node}[[\"{label}\"]]"),
            _ => format!("{node}[\"{label}\"]"),
        };
        self.line(depth, &shape);
        for (position, block) in state.blocks().iter().enumerate() {
            let title = match &state.kind {
                StateKind::Map { items, .. } => format!("{}: for each {}", state.name, items.text()),
                _ => format!("{}: branch {}", state.name, position + 1),
            };
            self.line(depth, &format!("subgraph block{}[\"{}\"]", block.0, escape(&title)));
            self.block(*block, depth + 1);
            self.line(depth, "end");
            self.line(depth, &format!("{node} --- block{}", block.0));
        }
    }

    fn edges(&mut self, id: StateId, depth: usize) {
        let Some(state) = state_of(self.definition, id) else { return };
        let from = node(id);
        let mut edge = |name: &str, label: Option<String>, dotted: bool| {
            let to = self.target(state.block, name);
            let (open, close) = if dotted { ("-.", ".->") } else { ("--", "-->") };
            let line = match label {
                Some(label) => format!("{from} {open} \"{}\" {close} {to}", escape(&label)),
                None if dotted => format!("{from} -.-> {to}"),
                None => format!("{from} --> {to}"),
            };
            self.line(depth, &line);
        };
        if let StateKind::Choice { choices, default } = &state.kind {
            for (condition, next) in choices {
                edge(next, Some(describe(condition)), false);
            }
            if let Some(default) = default {
                edge(default, Some("else".to_owned()), false);
            }
        }
        if let Some(next) = &state.next {
            edge(next, None, false);
        }
        if let Some(next) = &state.timeout_next {
            edge(next, Some("timeout".to_owned()), true);
        }
        for handler in &state.on_error {
            edge(&handler.next, Some(codes(handler)), true);
        }
    }

    fn target(&mut self, block: BlockId, name: &str) -> String {
        if let Some(id) = resolve(self.definition, block, name) {
            return node(id);
        }
        let count = self.missing.len();
        if let Some(number) = self.missing.get(&(block, name.to_owned())) {
            return format!("missing{number}");
        }
        self.missing.insert((block, name.to_owned()), count);
        self.line(1, &format!("missing{count}[\"{} is missing\"]", escape(name)));
        format!("missing{count}")
    }
}

fn node(id: StateId) -> String {
    format!("s{}", id.0)
}

fn label(state: &State) -> String {
    let detail = match &state.kind {
        StateKind::Task(task) => task.call.activity.clone(),
        StateKind::WaitUntil(WaitTime::After(duration)) => format!("for {duration}"),
        StateKind::WaitUntil(WaitTime::At(time)) => format!("until {time}"),
        StateKind::WaitUntil(WaitTime::AfterPath(path)) => format!("for {}", path.text()),
        StateKind::WaitUntil(WaitTime::AtPath(path)) => format!("until {}", path.text()),
        StateKind::WaitEvent(wait) => format!("for event {}", wait.name),
        StateKind::Workflow(call) => format!("workflow {}", call.workflow),
        StateKind::Choice { .. } => return state.name.clone(),
        _ => state.type_name().to_owned(),
    };
    format!("{}\n{detail}", state.name)
}

fn codes(handler: &ErrorHandler) -> String {
    if handler.handles_all() { "error".to_owned() } else { handler.codes.join(", ") }
}

fn describe(condition: &Condition) -> String {
    let several = |conditions: &[Condition], word: &str| {
        conditions.iter().map(describe).collect::<Vec<_>>().join(&format!(" {word} "))
    };
    match condition {
        Condition::And(conditions) => several(conditions, "and"),
        Condition::Or(conditions) => several(conditions, "or"),
        Condition::Not(condition) => format!("not ({})", describe(condition)),
        Condition::Test { path, op, operand } => {
            let right = match operand {
                Operand::None => String::new(),
                Operand::Value(value) => format!(" {value}"),
                Operand::Path(path) => format!(" {}", path.text()),
            };
            let op = Op::NAMES.iter().find(|name| Op::named(name) == Some(*op)).copied().unwrap_or_default();
            format!("{} {op}{right}", path.text())
        }
    }
}

/// Escapes quotes, backticks, `#` and angle brackets, which Mermaid reads as markup in a label.
fn escape(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    let mut escaped = String::new();
    for (position, c) in text.chars().enumerate() {
        match c {
            _ if position == CHARS_MAX => {
                escaped.push('…');
                break;
            }
            '\n' => escaped.push_str("<br>"),
            '#' | '&' | '"' | '<' | '>' | '`' => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

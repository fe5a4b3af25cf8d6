//! Reads the outer parts of a definition: its text, ids, configuration and blocks. `states` reads the states.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{FieldReader, Findings, report_wrong_type};
use super::states::read_state;
use super::{
    ActivityCall, Block, Configuration, Definition, EscalationPolicy, ParsedDefinition, RetryPolicy, State,
};
use crate::finding::{Code, Finding, pointer_token};
use crate::ids::{BlockId, StateId};
use crate::json::{self, JsonError};
use crate::limits::definition::{BYTES_MAX, NAME_CHARS_MAX, RETRY_ATTEMPTS_MAX, STATES_MAX};
use crate::schema::Schema;

/// The value of `$schema` in every definition.
pub(crate) const SCHEMA_NAME: &str = "workflow-schema-v1.json";

pub(super) const NAME_HINT: &str = "use 1 to 128 visible characters without /";

/// The problem with a name, if there is one.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.chars().count() > NAME_CHARS_MAX {
        Some("has more than 128 characters")
    } else if name.chars().any(|c| c.is_control() || c == '/') {
        Some("has a character that is not allowed in a name")
    } else {
        None
    }
}

pub(super) fn read(text: &str) -> ParsedDefinition {
    if text.len() > BYTES_MAX {
        let message = format!("the definition has {} bytes; the limit is {BYTES_MAX}", text.len());
        return unreadable(Finding::new(Code::LimitExceeded, "", message, "split it into child workflows"));
    }
    match json::parse(text) {
        Ok(source) => read_value(source),
        Err(error) => {
            let hint = match error {
                _ if text.trim().is_empty() => "the file is empty: write a definition",
                JsonError::IntegerTooLarge { .. } => "write the number as a string",
                JsonError::DuplicateKey { .. } => "remove one of the two",
                JsonError::TooDeep { .. } | JsonError::Malformed { .. } => {
                    "correct the JSON at this position"
                }
            };
            let finding = Finding::new(Code::MalformedJson, "", error.to_string(), hint);
            unreadable(Finding { position: Some(error.position()), ..finding })
        }
    }
}

fn unreadable(finding: Finding) -> ParsedDefinition {
    ParsedDefinition { definition: None, findings: vec![finding] }
}

fn read_value(source: Value) -> ParsedDefinition {
    let findings: Findings = RefCell::default();
    let definition = read_definition(&source, &findings);
    ParsedDefinition {
        definition: definition.map(|definition| Definition { source, ..definition }),
        findings: findings.into_inner(),
    }
}

fn read_definition(source: &Value, findings: &Findings) -> Option<Definition> {
    let fields = FieldReader::of(source, String::new(), findings)?;
    if let Some(schema) = fields.required_string("$schema")
        && schema.rsplit('/').next() != Some(SCHEMA_NAME)
    {
        fields.report(
            Code::InvalidValue,
            "$schema",
            format!("unknown schema {schema:?}"),
            format!("write {SCHEMA_NAME:?}"),
        );
    }
    let id = fields.required_string("id").filter(|id| {
        let valid = id.len() <= NAME_CHARS_MAX
            && id.starts_with(|c: char| c.is_ascii_alphanumeric())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !valid {
            let hint = "use 1 to 128 characters of A-Z a-z 0-9 . _ - and start with a letter or digit";
            fields.report(Code::InvalidValue, "id", format!("invalid id {id:?}"), hint);
        }
        valid
    });
    let version = fields.required_string("version").and_then(|text| {
        let report = |error: semver::Error| {
            let message = format!("{text:?} is not a semantic version: {error}");
            fields.report(Code::InvalidValue, "version", message, "write three numbers, such as 1.0.0");
        };
        semver::Version::parse(text).map_err(report).ok()
    });
    let description = fields.string("description").map(str::to_owned);
    let input = fields.value("input").and_then(|schema| read_schema(&fields, schema));
    let configuration = fields.value("configuration").and_then(|value| read_configuration(&fields, value));
    let mut blocks = BlockReader { findings, blocks: Vec::new(), states: Vec::new(), too_many: false };
    blocks.read(&fields, None, "");
    fields.finish();
    if blocks.too_many {
        // Half a definition would only produce findings about dangling targets.
        return None;
    }
    Some(Definition {
        id: id.unwrap_or_default().to_owned(),
        version: version.unwrap_or_else(|| semver::Version::new(0, 0, 0)),
        description,
        input,
        configuration: configuration.unwrap_or_default(),
        blocks: blocks.blocks,
        states: blocks.states,
        source: Value::Null,
    })
}

fn read_schema(fields: &FieldReader<'_>, schema: &Value) -> Option<Schema> {
    if !schema.is_object() && !schema.is_boolean() {
        report_wrong_type(
            fields.findings(),
            &fields.pointer_of("input"),
            "a JSON Schema (an object)",
            schema,
        );
        return None;
    }
    let report = |reason: String| {
        fields.report(
            Code::InvalidSchema,
            "input",
            format!("not a JSON Schema: {reason}"),
            "correct the schema",
        );
    };
    Schema::compile(schema).map_err(report).ok()
}

fn read_configuration(outer: &FieldReader<'_>, value: &Value) -> Option<Configuration> {
    let fields = FieldReader::of(value, outer.pointer_of("configuration"), outer.findings())?;
    let configuration = Configuration {
        default_timeout: fields.duration("defaultTimeout"),
        timeout: fields.duration("timeout"),
        retry_policy: fields.value("retryPolicy").and_then(|value| read_retry_policy(&fields, value)),
        stuck_after: fields.duration("stuckAfter"),
        max_transitions: fields.bounded_integer("maxTransitions", 1, u64::from(u32::MAX)),
        escalation: fields.value("escalation").and_then(|value| read_escalation(&fields, value)),
    };
    fields.finish();
    Some(configuration)
}

fn read_escalation(outer: &FieldReader<'_>, value: &Value) -> Option<EscalationPolicy> {
    let fields = FieldReader::of(value, outer.pointer_of("escalation"), outer.findings())?;
    let escalation = EscalationPolicy {
        notify: fields.value("notify").and_then(|value| read_call(&fields, "notify", value)),
        recover: fields.string("recover").map(str::to_owned),
        recover_within: fields.duration("recoverWithin").unwrap_or(EscalationPolicy::RECOVER_WITHIN),
    };
    fields.finish();
    Some(escalation)
}

/// Reads an object that has `activity` and `input` and nothing else.
pub(super) fn read_call(outer: &FieldReader<'_>, name: &str, value: &Value) -> Option<ActivityCall> {
    let fields = FieldReader::of(value, outer.pointer_of(name), outer.findings())?;
    let call = read_call_fields(&fields);
    fields.finish();
    call
}

pub(super) fn read_call_fields(fields: &FieldReader<'_>) -> Option<ActivityCall> {
    let activity = fields.required_name("activity");
    let input = fields.template("input");
    Some(ActivityCall { activity: activity?, input })
}

pub(super) fn read_retry_policy(outer: &FieldReader<'_>, value: &Value) -> Option<RetryPolicy> {
    let fields = FieldReader::of(value, outer.pointer_of("retryPolicy"), outer.findings())?;
    let policy = read_policy_fields(&fields);
    fields.finish();
    Some(policy)
}

fn read_policy_fields(fields: &FieldReader<'_>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let attempts = fields.bounded_integer("maxAttempts", 1, u64::from(RETRY_ATTEMPTS_MAX));
    let backoff = fields.value("backoffCoefficient").and_then(|value| {
        let number = value.as_f64();
        match number {
            None => report_wrong_type(
                fields.findings(),
                &fields.pointer_of("backoffCoefficient"),
                "a number",
                value,
            ),
            Some(number) if !(1.0..=100.0).contains(&number) => {
                let message = format!("{number} is out of bounds");
                fields.report(
                    Code::InvalidValue,
                    "backoffCoefficient",
                    message,
                    "use a number from 1 to 100",
                );
            }
            Some(_) => {}
        }
        number.filter(|number| (1.0..=100.0).contains(number))
    });
    RetryPolicy {
        max_attempts: attempts.and_then(|n| u32::try_from(n).ok()).unwrap_or(default.max_attempts),
        initial_interval: fields.duration("initialInterval").unwrap_or(default.initial_interval),
        backoff_coefficient: backoff.unwrap_or(default.backoff_coefficient),
        max_interval: fields.duration("maxInterval"),
        non_retryable: fields.strings("nonRetryable"),
    }
}

impl RetryPolicy {
    /// Reads a policy outside a definition; the error is the first problem.
    pub(crate) fn from_json(value: &Value) -> Result<Self, String> {
        let findings: Findings = RefCell::default();
        let policy = FieldReader::of(value, String::new(), &findings).map(|fields| {
            let policy = read_policy_fields(&fields);
            fields.finish();
            policy
        });
        match (policy, findings.into_inner().into_iter().next()) {
            (_, Some(finding)) => Err(format!("{}: {}", finding.pointer, finding.message)),
            (Some(policy), None) => Ok(policy),
            (None, None) => Err("not an object".to_owned()),
        }
    }
}

/// Reads blocks and numbers their states.
pub(super) struct BlockReader<'a> {
    findings: &'a Findings,
    blocks: Vec<Block>,
    states: Vec<State>,
    too_many: bool,
}

impl BlockReader<'_> {
    /// Reads `startAt` and `states` of a block; `path` is the prefix of the paths of its states.
    pub(super) fn read(&mut self, fields: &FieldReader<'_>, owner: Option<StateId>, path: &str) -> BlockId {
        let id = BlockId(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX));
        let start_at = fields.required_string("startAt").map(str::to_owned);
        self.blocks.push(Block { pointer: fields.pointer.clone(), owner, start_at, states: BTreeMap::new() });
        let states = match fields.required("states") {
            Some(Value::Object(states)) => states,
            Some(other) => {
                report_wrong_type(self.findings, &fields.pointer_of("states"), "an object", other);
                return id;
            }
            None => return id,
        };
        if states.is_empty() {
            fields.report(Code::InvalidValue, "states", "there are no states", "add at least one");
        }
        let by_name: BTreeMap<&String, &Value> = states.iter().collect();
        for (name, value) in by_name {
            let pointer = format!("{}/{}", fields.pointer_of("states"), pointer_token(name));
            if let Some(problem) = name_problem(name) {
                let message = format!("the state's name {name:?} {problem}");
                self.findings.borrow_mut().push(Finding::new(
                    Code::InvalidValue,
                    pointer.clone(),
                    message,
                    NAME_HINT,
                ));
            }
            if self.states.len() >= STATES_MAX {
                self.report_too_many(&pointer);
                break;
            }
            let state = StateId(u32::try_from(self.states.len()).unwrap_or(u32::MAX));
            if let Some(block) = self.blocks.get_mut(id.0 as usize) {
                block.states.insert(name.clone(), state);
            }
            // The state's number is assigned before its inner blocks are read, so that numbering is depth first.
            self.states.push(State::placeholder(name, format!("{path}{name}"), pointer.clone(), id));
            let read = read_state(value, state, self, pointer, self.findings);
            if let Some(slot) = self.states.get_mut(state.0 as usize) {
                *slot = State { name: name.clone(), path: format!("{path}{name}"), block: id, ..read };
            }
        }
        id
    }

    /// The path of a state that has its number.
    pub(super) fn path_of(&self, state: StateId) -> String {
        self.states.get(state.0 as usize).map(|state| state.path.clone()).unwrap_or_default()
    }

    fn report_too_many(&mut self, pointer: &str) {
        if !std::mem::replace(&mut self.too_many, true) {
            let message = format!("there are more than {STATES_MAX} states");
            let finding =
                Finding::new(Code::LimitExceeded, pointer, message, "split it into child workflows");
            self.findings.borrow_mut().push(finding);
        }
    }
}
